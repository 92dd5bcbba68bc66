"""`ticketlock top`: a frame fits the terminal, the urgent lines come first, and a reading that fails ends nothing."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from cli.seen import EXECUTION, printed
from click.testing import CliRunner
from kit.left_units import AGO_S, left
from kit.left_units import PENDING as UNIT
from kit.newer import raise_the_format
from kit.units import Books
from rich.text import Text

from ticketlock import Claim, LockClient, LockName, RequestNotApplied, create_table
from ticketlock.cli import _commands
from ticketlock.cli._local import serving
from ticketlock.cli._settings import CommandSettings
from ticketlock.cli._show import list_table
from ticketlock.cli._top import Top
from ticketlock.cli._units import Desk
from ticketlock.cli._watching import watch
from ticketlock.report import ListedUnit, TableReader, _units, read_list
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import OpenUnit, Outcome

ENDED = replace(UNIT, state=Outcome.COMMITTED, lease_ends_in_s=None)


@pytest.fixture
def locks() -> Iterator[LockClient]:
    with LockClient("locks", client=MemoryDynamoDB().client) as made:
        yield made


def waits(locks: LockClient, entity: str, owner: str = EXECUTION) -> None:
    locks.table.take_ticket(Claim(LockName(entity), owner, 300_000), None)


def a_top(locks: LockClient) -> Top:
    reader = TableReader(table=locks.table, units=None)
    return Top(reader=reader, place="eu-west-1 (http://127.0.0.1:41234)", wide=False)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 24), (80, 12)])
@pytest.mark.parametrize(("busy", "units"), [(30, 0), (30, 2), (2, 30), (30, 30)])
def test_a_frame_fits_the_terminal_and_says_what_it_leaves_out(
    locks: LockClient, width: int, height: int, busy: int, units: int
) -> None:
    for number in range(busy):
        for _ in range(2):
            waits(locks, f"customers/of/the/north/order-{number}")
    top = a_top(locks)
    reading = replace(top.reader.read(), units=[ListedUnit(UNIT)] * units)
    lines = printed(top.report(reading, height - 1), width)
    # The cursor is on the last line.
    assert len(lines) <= height - 1
    assert max(map(len, lines)) <= width
    shown = {"locks": sum("order-" in line for line in lines), "units": sum(UNIT.unit[:20] in line for line in lines)}
    left_out = {what: number - shown[what] for what, number in (("locks", busy), ("units", units))}
    assert [line for line in lines if line.startswith("…") and line.endswith((" more locks", " more units"))] == [
        f"… {number} more {what}" for what, number in left_out.items() if number
    ]
    assert all(shown[what] for what, number in (("locks", busy), ("units", units)) if number)


def test_a_lock_of_a_newer_format_is_one_line_and_hides_no_other() -> None:
    memory = MemoryDynamoDB()
    with LockClient("locks", client=memory.client) as locks:
        for entity in ("newer", "order-42"):
            waits(locks, entity)
        raise_the_format(memory.client, "locks", LockName("newer"), "waiting")
        top = a_top(locks)
        reading = top.reader.read(whole=2)
        lines = printed(top.report(reading, 20), 80)
        assert [" ".join(line.split()[:3]) for line in lines if "format" in line] == ["newer newer format"]
        assert any(line.startswith("order-42") for line in lines)
        told = {each["entity"]: (each["verdict"], each["next"]) for each in top.to_json(reading)["locks"]}
        assert told == {"newer": ("newer format", "upgrade"), "order-42": ("granted", "nothing")}
        shown = printed(list_table(read_list(locks.table, None, "", busy=True)), 120)
        assert ["newer format" in line for line in shown if "order-42" in line or "newer" in line] == [True, False]


def test_where_there_is_no_room_columns_are_left_out_and_each_lock_can_be_told(locks: LockClient) -> None:
    places = [
        (entity, name) for entity in ("a/very/long/path/to/order-41", "order-42") for name in ("default", "north")
    ]
    for entity, namespace in places:
        for owner in (EXECUTION, "waiter"):
            locks.table.take_ticket(Claim(LockName(entity, namespace), owner, 300_000), None)
    top = a_top(locks)
    reading = replace(top.reader.read(), units=[ListedUnit(UNIT)])
    headings = {}
    for width in (100, 60, 50, 40, 30):
        lines = printed(top.report(reading, None), width)
        first = next(number for number, line in enumerate(lines) if line.startswith("lock"))
        headings[width] = lines[first].split()
        of_locks = lines[first + 1 : lines.index("", first)]
        assert "……" not in "".join(of_locks)
        assert max(map(len, lines)) <= width
        if width > 30:
            assert [UNIT.unit in line for line in lines].count(True) == 1
            ends = ["order-41", "order-42", "order-42", "order-41"]
            assert sorted(line.split()[0][-8:] for line in of_locks) == sorted(ends)
            assert len({line.split()[0] for line in of_locks}) == len(places)
        else:
            whole = "".join(line[:14].strip() for line in of_locks)
            assert all(entity in whole for entity, _ in places)
    assert headings == {
        100: ["lock", "verdict", "lease", "holder", "queue", "oldest", "next"],
        60: ["lock", "verdict", "lease", "queue", "oldest", "next"],
        50: ["lock", "verdict", "lease", "queue", "next"],
        40: ["lock", "verdict", "lease", "next"],
        30: ["lock", "verdict", "next"],
    }


@pytest.mark.parametrize("width", [80, 60])
def test_where_a_name_is_cut_its_namespace_stays_and_the_option_for_whole_names_is_named(
    locks: LockClient, width: int
) -> None:
    entity, names = "customers/of/the/north/order-42", ("eu/", "the-billing-department-of-the-north/")
    for name in names:
        locks.table.take_ticket(Claim(LockName(entity, name[:-1]), EXECUTION, 300_000), None)
    top = a_top(locks)
    lines = printed(top.report(top.reader.read(), 20), width)
    assert any("whole names: --wide" in line for line in lines)
    cells = sorted(line.split()[0] for line in lines if line.split()[-1:] == ["-"])
    assert len(cells) == len(names)
    for cell, name in zip(cells, names, strict=True):
        namespace, _, rest = cell.partition("…")
        assert name.startswith(namespace)
        assert len(namespace) >= 3
        assert entity.endswith(rest.rpartition("…")[2])
    whole = "".join(
        "".join(line.split()) for line in printed(replace(top, wide=True).report(top.reader.read(), 20), 400)
    )
    assert "--wide" not in whole
    assert all(name + entity in whole for name in names)
    wide = printed(replace(top, wide=True).report(top.reader.read(), 20), width)
    assert not any("…" in line for line in wide[3:])


@pytest.mark.parametrize(
    ("unit", "unfinished", "step"),
    [
        (UNIT, None, "wait"),
        (replace(UNIT, is_saved=True), None, "nothing"),
        (replace(UNIT, lease_ends_in_s=-1.0), None, "units settle"),
        (replace(UNIT, lease_ends_in_s=-2_000.0), None, "see sweeper"),
        (replace(ENDED, ended_for_s=60.0), None, "nothing"),
        (replace(ENDED, ended_for_s=60.0), 0, "nothing"),
        (replace(ENDED, ended_for_s=60.0), 1, "units settle"),
        (replace(ENDED, ended_for_s=2_000.0), 1, "units settle"),
        (replace(ENDED, ended_for_s=2_000.0), 0, "see sweeper"),
        (replace(ENDED, state=Outcome.ROLLED_BACK, ended_for_s=2_000.0), None, "see sweeper"),
        (replace(ENDED, is_closed=True, ended_for_s=2_000.0), None, "nothing"),
    ],
)
def test_a_unit_needs_an_operator_if_an_item_is_not_finished_or_its_lease_or_the_time_for_a_sweep_is_over(
    unit: OpenUnit, unfinished: int | None, step: str
) -> None:
    assert ListedUnit(unit, unfinished).step == step


def test_a_reading_has_what_is_stuck_first_and_the_open_units(
    memory: MemoryDynamoDB, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table("locks", client=memory.client)
    units = [left(books, ["a"]), left(books, ["b"], ago_s=AGO_S)]
    units += [left(books, names, is_committed=True, ago_s=AGO_S - 9) for names in (["c", "d"], ["e"])]
    books.write("accounts", {"id": "c", "balance": 7})
    books.write("accounts", {"id": "e", "balance": 7})
    with serving(memory, port=0) as url, LockClient("locks", client=memory.client) as locks:
        for entity in ("a-busy", "b-closed", "c-busy", "d-closed"):
            for owner in ("holder", "waiter")[: 1 if entity == "c-busy" else 2]:
                waits(locks, entity, owner)
            if entity.endswith("closed"):
                locks.table.set_limit(LockName(entity), 0)
        locks.acquire("e-idle").release()
        for name, value in {"AWS_ENDPOINT_URL": url, "TICKETLOCK_TABLE": "locks"}.items():
            monkeypatch.setenv(name, value)

        def top(*words: str) -> str:
            done = CliRunner().invoke(_commands._ticketlock, ["top", "--once", *words])
            assert done.exit_code == 0, done.output
            return done.output

        whole = json.loads(top("--json", "--units-table", "units"))
        some = json.loads(top("--json", "--stuck", "--prefix", "b"))
        _, counts, *stuck = top("--stuck", "--units-table", "units").splitlines()
        lines = [line.split() for line in top("--sort", "name").splitlines()]
    assert [(each["entity"], each["next"], each["isStuck"]) for each in whole["locks"]] == [
        ("b-closed", "ask who closed", True),
        ("d-closed", "ask who closed", True),
        ("a-busy", "wait", False),
        ("c-busy", "nothing", False),
    ]
    assert [each["verdict"] for each in whole["locks"][0]["holders"]] == ["granted"]
    assert [(each["unit"], each["state"], each["unfinishedCount"], each["next"]) for each in whole["units"]] == [
        (units[1], "expired", None, "units settle"),
        (units[2], "committed", 1, "units settle"),
        (units[0], "pending", None, "wait"),
        (units[3], "committed", 0, "nothing"),
    ]
    assert [each["isStuck"] for each in whole["units"]] == [True, True, False, False]
    assert ([each["entity"] for each in some["locks"]], some["units"]) == (["b-closed"], None)
    assert counts == "4 busy, 2 stuck, 3 waiting; units: 1 expired, 2 committed, 1 pending"
    assert [line.split()[0] for line in stuck if line] == ["lock", "b-closed", "d-closed", "unit", *units[1:3]]
    assert [line[0] for line in lines[3:]] == ["lock", "a-busy", "b-closed", "c-busy", "d-closed"]


@pytest.mark.parametrize(
    ("most", "items", "unfinished", "told", "step"),
    [
        (250, 250, [249], 1, "units settle"),
        (250, 250, [], 0, "nothing"),
        (249, 250, [249], None, "units settle"),
        (249, 250, [], None, "units settle"),
        (249, 250, [3, 249], 1, "units settle"),
    ],
)
def test_of_a_committed_unit_an_unfinished_item_is_found_wherever_it_is_or_some_were_not_read(
    memory: MemoryDynamoDB,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    items: int,
    unfinished: list[int],
    told: int | None,
    step: str,
) -> None:
    monkeypatch.setattr(_units, "_MOST_ITEMS_READ", most)
    names = [f"a-{number:03}" for number in range(items)]
    unit = left(books, names, is_committed=True, ago_s=AGO_S)
    for name in names:
        if int(name[2:]) not in unfinished:
            books.write("accounts", {"id": name, "balance": 7})
    with serving(memory, port=0) as url:
        settings = CommandSettings(units_table="units", endpoint_url=url, region="us-east-1")
        (listed,) = Desk(settings).read_open(print)
    assert (listed.unit.unit, listed.unfinished, listed.step) == (unit, told, step)


def test_a_large_unit_leaves_smaller_ones_the_room_to_be_counted(
    memory: MemoryDynamoDB, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_units, "_MOST_ITEMS_READ", 5)
    large = left(books, [f"a-{number}" for number in range(5)], is_committed=True, ago_s=AGO_S)
    small = left(books, ["b", "c"], is_committed=True, ago_s=AGO_S - 9)
    for name in ("a-0", "a-1", "a-2", "b"):
        books.write("accounts", {"id": name, "balance": 7})
    with serving(memory, port=0) as url:
        settings = CommandSettings(units_table="units", endpoint_url=url, region="us-east-1")
        listed = Desk(settings).read_open(print)
    assert [(each.unit.unit, each.unfinished, each.step) for each in listed] == [
        (large, None, "units settle"),
        (small, 1, "units settle"),
    ]


def test_a_reading_that_fails_is_reported_and_the_next_one_is_taken_until_a_signal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    readings = iter(["first", "failed", "third", "signal"])

    def read() -> str:
        reading = next(readings)
        if reading == "failed":
            raise RequestNotApplied("throttled")
        if reading == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        return reading

    watch(read, every_s=0, to_json=None, report=lambda reading, _: Text(reading))
    printed = capsys.readouterr()
    assert printed.out == "first\n\nthird\n\n"
    assert printed.err.startswith("ticketlock: no reading for ")
    assert printed.err.endswith("s: throttled\n")


def test_a_first_reading_that_fails_ends_it() -> None:
    def read() -> str:
        raise RequestNotApplied("throttled")

    with pytest.raises(RequestNotApplied):
        watch(read, every_s=0, to_json=None, report=lambda reading, _: Text(reading))
