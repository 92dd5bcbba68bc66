"""`ticketlock report`: what its options ask for, and how the page is written."""

import errno
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.seen import WRONG_WORDS
from click.testing import CliRunner, Result
from kit.left_units import AGO_S, left
from kit.parsed import Parsed
from kit.units import Books

from ticketlock import Claim, LockName, LockTable, create_table
from ticketlock.cli import _commands
from ticketlock.cli._local import serving
from ticketlock.testing import MemoryDynamoDB


@pytest.fixture
def tables(memory: MemoryDynamoDB, books: Books, monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    """Tables whose locks are closed, one in another namespace, and the environment of a shell that uses them."""
    create_table("locks", client=memory.client)
    table = LockTable("locks", client=memory.client)
    for lock in (LockName("a-1"), LockName("b-1"), LockName("a-2", "others")):
        for owner in ("holder", "waiter"):
            table.take_ticket(Claim(lock, owner, 300_000), None)
    table.set_limit(LockName("b-1"), 0)
    with serving(memory, port=0) as url:
        for name, value in {"AWS_ENDPOINT_URL": url, "TICKETLOCK_TABLE": "locks"}.items():
            monkeypatch.setenv(name, value)
        yield books


def report(*words: object) -> Result:
    return CliRunner().invoke(_commands._ticketlock, ["report", *map(str, words)])


@pytest.mark.usefixtures("tables")
def test_options_say_what_is_on_the_page(tables: Books) -> None:
    unit = left(tables, ["a"], ago_s=AGO_S)

    def headings(*words: str) -> list[str]:
        done = report("-o", "-", *words)
        assert (done.exit_code, done.stderr) == (0, "")
        root = Parsed(done.stdout).root
        return root.texts("h3") + [text for text in root.texts("code") if text == unit]

    assert headings() == ["b-1", "a-1", "a-2"]
    assert headings("--prefix", "a") == ["a-1", "a-2"]
    assert headings("--namespace", "others") == ["a-2"]
    assert headings("--stuck", "--units-table", "units") == ["b-1", unit]
    (counts,) = Parsed(report("-o", "-", "--stuck").stdout).root.all("dl", "counts")
    assert list(zip(counts.texts("dd"), counts.texts("dt"), strict=True))[:3] == [
        ("1", "stuck"),
        ("3", "busy"),
        ("3", "waiting"),
    ]


@pytest.mark.usefixtures("tables")
def test_the_file_is_replaced_in_one_step_and_keeps_its_permissions(tmp_path: Path) -> None:
    file, link = tmp_path / "report.html", tmp_path / "link.html"
    assert report("-o", file).exit_code == 0
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask
    file.chmod(0o640)
    link.symlink_to(file)
    with file.open() as served_now:
        assert report("-o", link, "--stuck").exit_code == 0
        before, after = served_now.read(), file.read_text()
    assert [Parsed(text).root.texts("h3") for text in (before, after)] == [["b-1", "a-1", "a-2"], ["b-1"]]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, file]


@pytest.mark.usefixtures("tables")
def test_a_file_that_is_mounted_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    file = tmp_path / "report.html"
    file.touch()
    monkeypatch.setattr(os, "replace", is_busy)
    assert report("-o", file).exit_code == 0
    assert Parsed(file.read_text()).root.texts("h3") == ["b-1", "a-1", "a-2"]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("tables")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reads = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert report("-o", pipe).exit_code == 0
        assert Parsed(os.read(reads, 1_000_000).decode()).root.texts("h3")[0] == "b-1"
    finally:
        os.close(reads)
    assert pipe.is_fifo()


@pytest.mark.usefixtures("tables")
def test_a_pipe_may_be_written_by_the_name_of_its_descriptor() -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads) as pipe:
        try:
            assert report("-o", f"/dev/fd/{writes}").exit_code == 0
        finally:
            os.close(writes)
        assert Parsed(pipe.read()).root.texts("h3")[0] == "b-1"


@pytest.mark.usefixtures("tables")
def test_a_page_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("old")
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, most))
    try:
        done = report("-o", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (done.exit_code, done.stdout) == (WRONG_WORDS, "")
    assert "cannot be written: File too large" in done.stderr
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("report.html", "old")]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("words", [(), ("-o", "."), ("-o", "missing/report.html")])
def test_without_a_file_that_it_may_write_it_is_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = report(*words)
    assert (done.exit_code, done.stdout) == (WRONG_WORDS, "")
    assert "-o" in done.stderr
    assert list(tmp_path.iterdir()) == []
