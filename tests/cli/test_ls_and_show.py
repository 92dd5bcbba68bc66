"""`ticketlock ls` and `show`: the content of the table, for people and for programs."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from cli.seen import run_here, waiters
from kit.command import Command, interrupt, until

from ticketlock import Claim, LockClient, LockName, Position
from ticketlock.cli._local import serving
from ticketlock.locks._items import Row
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("a client for each command; tests/locks tests what is read")


def joins(locks: LockClient, entity: str, owner: str, lease_ms: int = 600_000) -> tuple[Claim, int]:
    """A claim that waits, and its ticket."""
    claim = Claim(LockName(entity), owner, lease_ms)
    found = locks.table.take_ticket(claim, None)
    assert isinstance(found, Position)
    return claim, found.place.ticket


@pytest.fixture
def row(locks: LockClient, entity: str) -> Iterator[Row]:
    """Locks whose names begin with the entity, and one with another name; the row of the one that waits for a lock."""
    for name in (f"{entity}/a-free", f"{entity}/d-closed", f"other-{entity}"):
        locks.acquire(name).release()
    locks.acquire(f"{entity}/e-elsewhere", namespace=entity).release()
    locks.table.set_limit(locks.lock(f"{entity}/d-closed"), 0)
    with ExitStack() as stack:
        for owner in ("first", "second"):
            stack.enter_context(locks.acquire(f"{entity}/b-held", permits=2, owner=owner, lease=600))
        stack.enter_context(locks.acquire(f"{entity}/c-waited-for", shared=True, lease=300))
        claim, ticket = joins(locks, f"{entity}/c-waited-for", "waiter")
        (row,) = locks.inspect(f"{entity}/c-waited-for").rows
        yield row
        locks.table.withdraw(claim, ticket)


@pytest.mark.usefixtures("row")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("--prefix ENTITY", "abcde"),
        ("--prefix ENTITY --sort name", "abcde"),
        ("--prefix ENTITY --sort held", "bcade"),
        ("--prefix ENTITY --sort waiting", "cabde"),
        ("--prefix ENTITY --sort oldest", "cabde"),
        ("--prefix ENTITY --sort lease", "cbade"),
        ("--prefix ENTITY --busy", "bc"),
        ("--prefix ENTITY/a", "a"),
        ("--namespace ENTITY", "e"),
    ],
)
def test_a_list_has_the_locks_that_are_asked_for_in_the_order_that_is_asked_for(
    command: Command, entity: str, words: str, names: str
) -> None:
    listed = json.loads(run_here(command.environment, "ls", "--json", *words.replace("ENTITY", entity).split()).out)
    assert "".join(lock["entity"].removeprefix(f"{entity}/")[0] for lock in listed) == names


def test_a_list_has_the_holders_and_the_oldest_waiter(command: Command, row: Row, entity: str) -> None:
    _, held, waited_for, *_ = json.loads(run_here(command.environment, "ls", "--prefix", entity, "--json").out)
    assert [holder["owner"] for holder in held["holders"]] == ["first", "second"]
    assert 0 <= held["holders"][0]["heldForSeconds"] < 60
    assert (held["held"], held["shared"], waited_for["held"], waited_for["shared"]) == (2, False, 1, True)
    oldest = waited_for["oldestWaiter"]
    assert (oldest["owner"], oldest["ticket"]) == (row.owner, row.ticket)


@pytest.mark.usefixtures("row")
def test_a_list_for_people_has_a_line_for_each_lock_of_any_width(
    command: Command, locks: LockClient, entity: str
) -> None:
    long = f"{entity}/z{'x' * 200}"
    with locks.acquire(long, owner="build-7"):
        headings, _, *lines = run_here(command.environment, "ls", "--prefix", entity, COLUMNS="80").out.splitlines()
    assert headings.split() == ["entity", "namespace", "holder", "held", "for", "waiting", "oldest", "permits"]
    assert len(lines) == 6
    assert "first and 1 more" in lines[1]
    assert (lines[2].split()[-4], lines[3].split()[-1]) == ("1", "closed")
    assert (lines[5].split()[:3], lines[5].split()[-3:]) == ([long, "default", "build-7"], ["0", "-", "1"])


@pytest.fixture
def clock(environment: dict[str, str]) -> Iterator[ManualClock]:
    """The time of a table in memory, to which the environment leads."""
    clock = ManualClock()
    with (
        serving(MemoryDynamoDB(lock_table="locks", clock=clock), port=0) as endpoint,
        pytest.MonkeyPatch.context() as now,
    ):
        for name, value in {"AWS_ENDPOINT_URL": endpoint, "TICKETLOCK_TABLE": "locks"}.items():
            now.setitem(environment, name, value)
        yield clock


@pytest.fixture
def locks_there(clock: ManualClock, environment: dict[str, str]) -> Iterator[LockClient]:
    client = make_client(endpoint_url=environment["AWS_ENDPOINT_URL"], region_name="us-east-1")
    with LockClient("locks", client=client, clocks=clock, sleep=clock.sleep, heartbeat=False) as made:
        yield made


@pytest.mark.parametrize("setting", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_names_are_whole_in_a_pipe_whatever_colours_are_asked_for(
    environment: dict[str, str], locks_there: LockClient, entity: str, setting: str
) -> None:
    """CI services set these."""
    long = entity + 200 * "x"
    with locks_there.acquire(long, owner=200 * "o"):
        for command in (("ls",), ("show", long), ("top", "--once")):
            told = run_here(environment, *command, **{setting: "1"}).out
            assert long in told
            assert 200 * "o" in told


def test_an_expired_waiter_is_not_the_oldest(
    environment: dict[str, str], clock: ManualClock, locks_there: LockClient, entity: str
) -> None:
    with locks_there.acquire(entity, lease=600):
        joins(locks_there, entity, "expired", lease_ms=8_000)
        joins(locks_there, entity, "alive")
        (listed,) = json.loads(run_here(environment, "ls", "--json").out)
        assert listed["oldestWaiter"]["owner"] == "expired"
        clock.advance(30)
        (listed,) = json.loads(run_here(environment, "ls", "--json").out)
        assert listed["oldestWaiter"]["owner"] == "alive"


def test_a_waiter_that_is_counted_and_has_left_is_not_listed(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        _, ticket = joins(locks, entity, "gone")
        # So soon after it joined, its count stays.
        locks.table.remove_waiter(LockName(entity), ticket)
    item = locks.inspect(entity).item
    assert item is not None
    assert item.waiting == 1
    (listed,) = json.loads(run_here(command.environment, "ls", "--prefix", entity, "--json").out)
    assert (listed["waiting"], listed["oldestWaiter"]) == (0, None)
    assert run_here(command.environment, "ls", "--prefix", entity).out.splitlines()[-1].split()[-3:] == ["0", "-", "1"]
    assert json.loads(run_here(command.environment, "ls", "--busy", "--prefix", entity, "--json").out) == []


def test_a_lock_is_shown_with_its_holder_and_its_queue(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, owner="the holder", data="a deployment", lease=60) as lease:
        waiter = command.start("run", entity, "--", "true")
        until(lambda: waiters(locks, entity) == 1)
        (waiting,) = locks.inspect(entity).rows
        shown: dict[str, Any] = json.loads(run_here(command.environment, "show", entity, "--json").out)
        (holder,) = shown.pop("holders")
        (row,) = shown.pop("waiters")
        assert (holder["owner"], holder["data"]) == ("the holder", "a deployment")
        assert holder["fencingToken"] == lease.fencing_token
        assert 0 <= holder["heldForSeconds"] < 60
        assert 0 < holder["leaseEndsInSeconds"] < 65
        assert (row["isVoid"], row["isParked"], row["shared"]) == (False, False, False)
        assert (row["owner"], row["ticket"]) == (waiting.owner, waiting.ticket)
        assert (shown["entity"], shown["namespace"], shown["permits"]) == (entity, "default", 1)
        people = run_here(command.environment, "show", entity).out
    assert waiter.end().exit_code == 0
    assert "the holder" in people
    assert "a deployment" in people
    assert "waiting for" in people


def test_an_unused_lock_is_shown_as_such(command: Command, entity: str) -> None:
    ended = run_here(command.environment, "show", entity)
    assert (ended.exit_code, ended.out.splitlines()[1]) == (0, "Never used, or not for weeks.")


def test_a_holder_past_its_lease_is_shown_as_such(
    environment: dict[str, str], clock: ManualClock, locks_there: LockClient, entity: str
) -> None:
    locks_there.acquire(entity, lease=8).detach()
    assert "expired" not in run_here(environment, "show", entity).out
    clock.advance(30)
    shown = run_here(environment, "show", entity).out
    assert ("expired" in shown, " left" in shown) == (True, False)
    assert " (expired) " in run_here(environment, "ls", "--busy").out


def test_a_name_from_the_table_cannot_command_the_terminal(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(f"{entity}[red]\x1b[2J", owner="\x07bell"):
        listed = run_here(command.environment, "ls").out
        shown = run_here(command.environment, "show", f"{entity}[red]\x1b[2J").out
    assert f"{entity}[red]\\x1b[2J" in listed
    assert "\\x07bell" in shown
    assert {"\x1b", "\x07"}.isdisjoint(listed + shown)


@pytest.mark.parametrize("words", ["show ENTITY --watch", "ls --prefix ENTITY --watch", "top --prefix ENTITY"])
def test_what_is_watched_is_printed_a_line_of_json_a_reading_until_a_signal(
    command: Command, locks: LockClient, entity: str, words: str
) -> None:
    watch = command.start(*words.replace("ENTITY", entity).split(), "--json", "--every", "0.1")
    assert '"the holder"' not in watch.line()
    with locks.acquire(entity, owner="the holder"):
        until(lambda: '"the holder"' in json.dumps(json.loads(watch.line())))
    interrupt(watch)
    assert watch.end().exit_code == 0


def test_a_watched_lock_is_printed_into_a_pipe_too(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, owner="the holder"):
        watch = command.start("show", entity, "--watch", "--every", "0.1")
        assert watch.line() == f"{entity} in default"
        until(lambda: watch.line().startswith("the holder"))
    until(lambda: watch.line() == "No one holds it.")
    interrupt(watch)
    assert watch.end().exit_code == 0
