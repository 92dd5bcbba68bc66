"""`ticketlock ls` and `show`: what stands in the table, for people and for programs."""

import json
from typing import Any

import pytest
from kit.command import Command, interrupt

from ticketlock import LockClient

pytestmark = pytest.mark.verify("each look is a process; tests/locks asks what is looked at")


def test_a_list_has_the_locks_by_name(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, namespace="b"), locks.acquire(entity, namespace="a", shared=True):
        listed = json.loads(command.run("ls", "--json").out)
        mine = [lock for lock in listed if lock["entity"] == entity]
        assert [(lock["namespace"], lock["held"], lock["shared"]) for lock in mine] == [("a", 1, True), ("b", 1, False)]


def test_a_list_for_people_is_a_line_a_lock_as_wide_as_it_is(command: Command, locks: LockClient, entity: str) -> None:
    long = entity + "x" * 200
    with locks.acquire(long):
        lines = command.run("ls", COLUMNS="80").out.splitlines()
    assert lines[0].split() == ["entity", "namespace", "held", "permits", "waiting", "fencing", "token", "mean", "hold"]
    assert [line.split()[:5] for line in lines if line.startswith(long)] == [[long, "default", "1", "1", "0"]]


def test_a_list_of_what_is_busy_leaves_out_what_is_free(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, namespace="held"):
        locks.acquire(entity, namespace="free").release()
        listed = json.loads(command.run("ls", "--busy", "--json").out)
    assert [lock["namespace"] for lock in listed if lock["entity"] == entity] == ["held"]


def test_a_list_may_be_of_one_namespace(command: Command, locks: LockClient, entity: str) -> None:
    locks.acquire(entity, namespace=entity).release()
    locks.acquire(entity).release()
    assert [lock["namespace"] for lock in json.loads(command.run("ls", "--namespace", entity, "--json").out)] == [
        entity
    ]


def test_a_lock_is_shown_with_its_holder_and_its_queue(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, owner="the holder", data="a deployment", lease=60) as lease:
        waiter = command.start("run", entity, "--", "true")
        shown: dict[str, Any] = {"waiters": []}
        while not shown["waiters"]:
            shown = json.loads(command.run("show", entity, "--json").out)
        (holder,) = shown.pop("holders")
        (row,) = shown.pop("waiters")
        assert (holder["owner"], holder["data"]) == ("the holder", "a deployment")
        assert holder["fencingToken"] == lease.fencing_token
        assert 0 <= holder["heldForSeconds"] < 60
        assert 0 < holder["leaseEndsInSeconds"] < 65
        assert (row["isVoid"], row["isCalled"], row["shared"]) == (False, False, False)
        assert row["ticket"] > lease.fencing_token - 2
        assert (shown["entity"], shown["namespace"], shown["permits"]) == (entity, "default", 1)
        people = command.run("show", entity).out
    assert waiter.end().exit_code == 0
    assert "the holder" in people
    assert "a deployment" in people
    assert "waiting for" in people


def test_a_lock_that_nobody_has_used_is_shown_as_such(command: Command, entity: str) -> None:
    ended = command.run("show", entity)
    assert (ended.exit_code, ended.out.splitlines()[1]) == (0, "Nobody has used it, or not for weeks.")


def test_a_holder_past_its_lease_is_shown_as_such(command: Command, locks: LockClient, entity: str) -> None:
    locks.acquire(entity, lease=8, heartbeat=False).detach()
    people = ""
    while "over since" not in people:
        people = command.run("show", entity).out
    assert " left" not in people


def test_a_name_from_the_table_cannot_command_the_terminal(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(f"{entity}[red]\x1b[2J", owner="\x07bell"):
        listed = command.run("ls").out
        shown = command.run("show", f"{entity}[red]\x1b[2J").out
    assert f"{entity}[red]\\x1b[2J" in listed
    assert "\\x07bell" in shown
    assert {"\x1b", "\x07"}.isdisjoint(listed + shown)


def test_a_watched_lock_is_told_a_line_a_look_until_a_signal(command: Command, locks: LockClient, entity: str) -> None:
    watch = command.start("show", entity, "--json", "--watch", "--every", "0.1")
    assert json.loads(watch.line())["holders"] == []
    with locks.acquire(entity, owner="the holder"):
        holders: list[Any] = []
        while not holders:
            holders = json.loads(watch.line())["holders"]
        assert holders[0]["owner"] == "the holder"
    interrupt(watch)
    assert watch.end().exit_code == 0


@pytest.mark.parametrize("arguments", [("show",), ("ls", "--every", "2"), ("run",), ("show", "")])
def test_a_wrong_command_line_is_told_its_usage(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command.run(*arguments)
    assert ended.exit_code == 2
    assert "Traceback" not in ended.err
