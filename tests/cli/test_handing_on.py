"""`ticketlock acquire`, `renew` and `release`: a lock over several steps, each a process of its own."""

import json
import signal
from datetime import datetime
from typing import Any

import pytest
from kit.command import Command, until

from ticketlock import LockClient

pytestmark = pytest.mark.verify("each command is a process; tests/client tests resuming")


def holders(locks: LockClient, entity: str) -> list[str]:
    item = locks.inspect(entity).item
    return [holder.owner for holder in (item.holders if item else ())]


def told(command: Command, *arguments: str) -> dict[str, Any]:
    ended = command.run(*arguments)
    assert (ended.exit_code, ended.err) == (0, "")
    answer: dict[str, Any] = json.loads(ended.out)
    return answer


def test_a_lock_is_taken_in_one_step_renewed_in_another_and_released_in_a_third(
    command: Command, locks: LockClient, entity: str
) -> None:
    taken = told(command, "acquire", entity, "--owner", "build-7", "--lease", "120", "--data", "deploys")
    assert holders(locks, entity) == ["build-7"]
    renewed = told(command, "renew", entity, "--owner", "build-7", "--lease", "600")
    assert renewed["fencingToken"] == taken["fencingToken"]
    assert datetime.fromisoformat(renewed["deadline"]) > datetime.fromisoformat(taken["deadline"])
    assert 500 < renewed["remainingSeconds"] <= 600
    released = told(command, "release", entity, "--owner", "build-7")
    assert (released["entity"], released["owner"], released["leaseWasOver"]) == (entity, "build-7", False)
    assert holders(locks, entity) == []


def test_the_same_owner_gets_the_same_grant(command: Command, entity: str) -> None:
    first, second = (told(command, "acquire", entity, "--owner", "build-7") for _ in range(2))
    assert (first["fencingToken"], first["owner"]) == (second["fencingToken"], "build-7")


def test_without_an_owner_it_generates_one_and_prints_it(command: Command, locks: LockClient, entity: str) -> None:
    assert [told(command, "acquire", entity)["owner"]] == holders(locks, entity)


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_a_lock_that_is_not_held_is_reported_as_lost(command: Command, entity: str, verb: str) -> None:
    ended = command.run(verb, entity, "--owner", "build-7")
    assert (ended.exit_code, ended.out) == (76, "")
    assert ended.err.startswith("ticketlock: ")
    assert len(ended.err.splitlines()) == 1


def test_a_release_after_the_lease_says_so(command: Command, locks: LockClient, entity: str) -> None:
    told(command, "acquire", entity, "--owner", "build-7", "--lease", "1")

    def lease_is_over() -> bool:
        found = locks.inspect(entity)
        assert found.item is not None
        return found.item.holders[0].lease_until_ms < found.now.earliest_ms

    until(lease_is_over)
    ended = command.run("release", entity, "--owner", "build-7")
    assert ended.exit_code == 76
    assert json.loads(ended.out)["leaseWasOver"] is True


def test_a_signal_while_it_waits_leaves_the_queue(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        acquire = command.start("acquire", entity, "--wait", "forever")
        until(lambda: len(locks.inspect(entity).rows) == 1)
        acquire.send(signal.SIGTERM)
        assert acquire.end().exit_code == 128 + signal.SIGTERM
        assert locks.inspect(entity).rows == ()


@pytest.mark.parametrize(
    "arguments",
    [
        ("release", "order-42"),
        ("release", "order-42", "--owner", "a", "--force"),
        ("release", "order-42", "--owner", "a", "--fencing-token", "1"),
        ("renew", "order-42"),
        ("acquire", "order-42", "--lease", "0.5"),
        ("acquire", "order-42", "--lease", "1e9"),
        ("acquire", "order-42", "--wait", "nan"),
        ("acquire", "order-42", "--namespace", "a/b"),
        ("acquire", "order-42", "--permits", "0"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_is_written(
    command: Command, arguments: tuple[str, ...]
) -> None:
    ended = command.run(*arguments)
    assert (ended.exit_code, ended.out) == (2, "")
    assert "Traceback" not in ended.err
