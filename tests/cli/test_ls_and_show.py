"""`ticketlock ls` and `show`: the content of the table, for people and for programs."""

import json
from typing import Any

import pytest
from cli.seen import waiters
from kit.command import Command, interrupt, until

from ticketlock import Claim, LockClient, LockName

pytestmark = pytest.mark.verify("each command is a process; tests/locks tests what is read")


def test_a_list_has_the_locks_by_name(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, namespace="b"), locks.acquire(entity, namespace="a", shared=True):
        listed = json.loads(command.run("ls", "--json").out)
        mine = [lock for lock in listed if lock["entity"] == entity]
        assert [(lock["namespace"], lock["held"], lock["shared"]) for lock in mine] == [("a", 1, True), ("b", 1, False)]


def test_a_list_for_people_has_a_line_for_each_lock_of_any_width(
    command: Command, locks: LockClient, entity: str
) -> None:
    long = entity + "x" * 200
    with locks.acquire(long, owner="build-7"):
        lines = command.run("ls", COLUMNS="80").out.splitlines()
    assert lines[0].split() == ["entity", "namespace", "holder", "held", "for", "waiting", "oldest", "permits"]
    (line,) = [line.split() for line in lines if line.startswith(long)]
    assert (line[:3], line[-3:]) == ([long, "default", "build-7"], ["0", "-", "1"])


def test_a_list_has_the_holders_and_the_oldest_waiter(command: Command, locks: LockClient, entity: str) -> None:
    first, second = (locks.acquire(entity, permits=2, owner=owner) for owner in ("first", "second"))
    waiter = command.start("run", entity, "--permits", "2", "--", "true")
    until(lambda: waiters(locks, entity) == 1)
    (row,) = locks.inspect(entity).rows
    (listed,) = json.loads(command.run("ls", "--prefix", entity, "--json").out)
    assert [holder["owner"] for holder in listed["holders"]] == ["first", "second"]
    assert 0 <= listed["holders"][0]["heldForSeconds"] < 60
    assert (listed["oldestWaiter"]["owner"], listed["oldestWaiter"]["ticket"]) == (row.owner, row.ticket)
    assert "first and 1 more" in command.run("ls", "--prefix", entity).out
    first.release()
    second.release()
    assert waiter.end().exit_code == 0


def test_an_expired_waiter_is_not_the_oldest(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        expired, alive = Claim(LockName(entity), "expired", 8_000), Claim(LockName(entity), "alive", 600_000)
        locks.table.take_ticket(expired, None)
        found: Any = locks.table.take_ticket(alive, None)

        def oldest() -> Any:
            (listed,) = json.loads(command.run("ls", "--prefix", entity, "--json").out)
            return listed["oldestWaiter"]["owner"]

        until(lambda: oldest() == "alive")
        locks.table.withdraw(alive, found.place.ticket)


def test_a_list_can_be_limited_to_entities_with_a_prefix(command: Command, locks: LockClient, entity: str) -> None:
    for name in (f"{entity}-a", f"{entity}-b", f"other-{entity}"):
        locks.acquire(name).release()
    listed = json.loads(command.run("ls", "--prefix", f"{entity}-", "--json").out)
    assert [lock["entity"] for lock in listed] == [f"{entity}-a", f"{entity}-b"]


@pytest.mark.parametrize(
    ("sort", "first"), [("name", "a-free"), ("held", "b-held"), ("waiting", "c-waited-for"), ("oldest", "c-waited-for")]
)
def test_a_list_begins_with_what_it_is_sorted_by(
    command: Command, locks: LockClient, entity: str, sort: str, first: str
) -> None:
    locks.acquire(f"{entity}/a-free").release()
    with locks.acquire(f"{entity}/b-held"), locks.acquire(f"{entity}/c-waited-for"):
        claim = Claim(LockName(f"{entity}/c-waited-for"), "waiter", 60_000)
        place: Any = locks.table.take_ticket(claim, None)
        listed = json.loads(command.run("ls", "--prefix", entity, "--sort", sort, "--json").out)
        locks.table.withdraw(claim, place.place.ticket)
    assert listed[0]["entity"] == f"{entity}/{first}"


def test_a_closed_lock_is_shown_and_listed_as_closed(command: Command, locks: LockClient, entity: str) -> None:
    locks.table.set_limit(locks.lock(entity), 0)
    assert "closed by an operator (0 permits)" in command.run("show", entity).out
    assert command.run("ls", "--prefix", entity).out.split()[-1] == "closed"


def test_a_list_of_busy_locks_leaves_out_free_ones(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, namespace="held"):
        locks.acquire(entity, namespace="free").release()
        listed = json.loads(command.run("ls", "--busy", "--json").out)
    assert [lock["namespace"] for lock in listed if lock["entity"] == entity] == ["held"]


def test_a_waiter_that_is_counted_and_has_left_is_not_listed(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        gone = Claim(LockName(entity), "gone", 600_000)
        found: Any = locks.table.take_ticket(gone, None)
        # So soon after it joined, its count stays.
        locks.table.remove_waiter(LockName(entity), found.place.ticket)
    item = locks.inspect(entity).item
    assert item is not None
    assert item.waiting == 1
    (listed,) = json.loads(command.run("ls", "--prefix", entity, "--json").out)
    assert (listed["waiting"], listed["oldestWaiter"]) == (0, None)
    assert command.run("ls", "--prefix", entity).out.splitlines()[-1].split()[-3:] == ["0", "-", "1"]
    assert json.loads(command.run("ls", "--busy", "--prefix", entity, "--json").out) == []


def test_a_list_can_be_limited_to_one_namespace(command: Command, locks: LockClient, entity: str) -> None:
    locks.acquire(entity, namespace=entity).release()
    locks.acquire(entity).release()
    assert [lock["namespace"] for lock in json.loads(command.run("ls", "--namespace", entity, "--json").out)] == [
        entity
    ]


def test_a_lock_is_shown_with_its_holder_and_its_queue(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, owner="the holder", data="a deployment", lease=60) as lease:
        waiter = command.start("run", entity, "--", "true")
        until(lambda: waiters(locks, entity) == 1)
        shown: dict[str, Any] = json.loads(command.run("show", entity, "--json").out)
        (holder,) = shown.pop("holders")
        (row,) = shown.pop("waiters")
        assert (holder["owner"], holder["data"]) == ("the holder", "a deployment")
        assert holder["fencingToken"] == lease.fencing_token
        assert 0 <= holder["heldForSeconds"] < 60
        assert 0 < holder["leaseEndsInSeconds"] < 65
        assert (row["isVoid"], row["isParked"], row["shared"]) == (False, False, False)
        assert row["ticket"] > lease.fencing_token - 2
        assert (shown["entity"], shown["namespace"], shown["permits"]) == (entity, "default", 1)
        people = command.run("show", entity).out
    assert waiter.end().exit_code == 0
    assert "the holder" in people
    assert "a deployment" in people
    assert "waiting for" in people


def test_an_unused_lock_is_shown_as_such(command: Command, entity: str) -> None:
    ended = command.run("show", entity)
    assert (ended.exit_code, ended.out.splitlines()[1]) == (0, "Never used, or not for weeks.")


def test_a_holder_past_its_lease_is_shown_as_such(command: Command, locks: LockClient, entity: str) -> None:
    locks.acquire(entity, lease=8, heartbeat=False).detach()
    until(lambda: "expired" in command.run("show", entity).out)
    assert " left" not in command.run("show", entity).out
    assert " (lease expired) " in command.run("ls", "--busy", "--prefix", entity).out


def test_a_name_from_the_table_cannot_command_the_terminal(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(f"{entity}[red]\x1b[2J", owner="\x07bell"):
        listed = command.run("ls").out
        shown = command.run("show", f"{entity}[red]\x1b[2J").out
    assert f"{entity}[red]\\x1b[2J" in listed
    assert "\\x07bell" in shown
    assert {"\x1b", "\x07"}.isdisjoint(listed + shown)


def test_a_watched_lock_is_printed_a_line_a_poll_until_a_signal(
    command: Command, locks: LockClient, entity: str
) -> None:
    watch = command.start("show", entity, "--json", "--watch", "--every", "0.1")
    assert json.loads(watch.line())["holders"] == []
    with locks.acquire(entity, owner="the holder"):
        until(lambda: [each["owner"] for each in json.loads(watch.line())["holders"]] == ["the holder"])
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


@pytest.mark.parametrize("arguments", [("show",), ("ls", "--every", "2"), ("run",), ("show", "")])
def test_a_wrong_command_line_prints_the_usage(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command.run(*arguments)
    assert ended.exit_code == 2
    assert "Traceback" not in ended.err
