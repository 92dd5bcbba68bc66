"""What a command does if no one can read what it prints: stdout that is a closed pipe, or full."""

import os
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import TextIO

import pytest
from cli.seen import held

from ticketlock import Claim, LockClient, LockName
from ticketlock.cli import _commands
from ticketlock.cli._local import serving
from ticketlock.cli._streams import Guarded
from ticketlock.testing import MemoryDynamoDB

FULL = Path("/dev/full")
LOST = 74
"""The exit code of a command whose output is lost."""


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[LockClient]:
    """Locks in memory, which the command uses too."""
    memory = MemoryDynamoDB()
    with serving(memory, port=0) as url, LockClient("locks", client=memory.client) as made:
        for name, value in {"AWS_ENDPOINT_URL": url, "TICKETLOCK_TABLE": "locks"}.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture(params=["a closed pipe", "a full disk"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs a command line with such a stdout; returns its exit code, and what it prints on stderr."""
    if request.param == "a full disk" and not FULL.exists():
        pytest.skip("this system has no /dev/full")

    def opened() -> TextIO:
        if request.param == "a full disk":
            return FULL.open("w")
        reads, writes = os.pipe()
        os.close(reads)
        return os.fdopen(writes, "w")

    def run(*words: str) -> tuple[int, str]:
        err = StringIO()
        with monkeypatch.context() as patch, opened() as out:
            patch.setattr(sys, "argv", ["ticketlock", *words])
            patch.setattr(sys, "stdout", Guarded(out, drops=False))
            patch.setattr(sys, "stderr", err)
            return _commands._run(), err.getvalue()

    return run


Ends = Callable[..., tuple[int, str]]


def test_a_lock_whose_owner_is_told_to_no_one_is_given_back(locks: LockClient, ends: Ends) -> None:
    code, err = ends("acquire", "order-42")
    assert (code, held(locks, "order-42")) == (LOST, 0)
    assert err.startswith("ticketlock: a new grant of the lock on 'order-42' was given back: the output cannot be ")


def test_a_lock_that_its_owner_had_before_is_not_given_back(locks: LockClient, ends: Ends) -> None:
    lease = locks.acquire("order-42", owner="build-7")
    assert ends("acquire", "order-42", "--owner", "build-7")[0] == LOST
    lease.renew()


def test_a_lock_is_taken_from_all_of_its_holders(locks: LockClient, ends: Ends) -> None:
    for owner in ("one", "two", "three"):
        locks.table.take_ticket(Claim(LockName("order-42"), owner, 60_000, permits=3), None)
    code, err = ends("release", "order-42", "--force", "--yes")
    assert (code, held(locks, "order-42")) == (LOST, 0)
    assert "\nticketlock: the lock on 'order-42' was taken from all of these holders, but the output cannot be " in err


def test_what_was_done_is_told_on_stderr(locks: LockClient, ends: Ends) -> None:
    locks.acquire("order-42", owner="build-7", heartbeat=False).detach()
    locks.table.take_ticket(Claim(LockName("order-42"), "waiter", 60_000), None)
    (row,) = locks.inspect("order-42").rows
    for words, done in (
        (["renew", "order-42", "--owner", "build-7"], "the lease on 'order-42' was renewed"),
        (["remove-waiter", "order-42", str(row.ticket), "--yes"], f"removed waiter, ticket {row.ticket}"),
        (["limit", "order-42", "0", "--yes"], "order-42: 0 permits, held by 1, "),
        (["release", "order-42", "--owner", "build-7"], "the lock on 'order-42' was released"),
    ):
        code, err = ends(*words)
        assert (code, len(err.splitlines())) == (LOST, 1)
        assert err.startswith(f"ticketlock: {done}")
        assert ", but the output cannot be written: " in err
    found = locks.inspect("order-42")
    assert found.item is not None
    assert (found.item.held, found.item.permits, found.rows) == (0, 0, ())


@pytest.mark.parametrize(
    "words",
    ["ls", "ls --json", "show order-42", "top --once", "top", "report -o -", "--help", "limit --help", "--version"],
)
def test_a_command_that_only_reads_ends_and_is_silent_if_the_reader_has_left(
    locks: LockClient, ends: Ends, words: str, request: pytest.FixtureRequest
) -> None:
    with locks.acquire("order-42"):
        code, err = ends(*words.split())
    assert code == LOST
    is_full = "a full disk" in request.node.name
    assert err == ("ticketlock: the output cannot be written: No space left on device\n" if is_full else "")


def test_a_message_that_cannot_be_written_is_dropped() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as broken:
        stream = Guarded(broken, drops=True)
        for _ in range(2):
            stream.write("a message\n")
            stream.flush()
