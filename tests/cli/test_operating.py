"""`acquire`, `renew`, `release`: a lock over several steps, each a process of its own; and what operators are asked."""

import json
import os
import pty
import re
import signal
import subprocess
import uuid
from datetime import datetime
from typing import Any

import pytest
from cli.seen import held, is_refused, run_here, waiters
from kit.command import LONG_S, Command, until

from ticketlock import LockClient
from ticketlock.locks._items import LockItem
from ticketlock.locks._lock_table import this_user

pytestmark = pytest.mark.verify("a client for each command; tests/client tests resuming, tests/locks what operators do")


NOT_DONE = "ticketlock: nothing was done: "


def item_of(locks: LockClient, entity: str) -> LockItem:
    item = locks.inspect(entity).item
    assert item is not None
    return item


def in_the_table(command: Command) -> str:
    """How a question names the table."""
    return f"in the table '{command.environment['TICKETLOCK_TABLE']}' in us-east-1 (http"


def told(command: Command, *arguments: str) -> dict[str, Any]:
    ended = run_here(command.environment, *arguments)
    assert (ended.exit_code, ended.err) == (0, "")
    answer: dict[str, Any] = json.loads(ended.out)
    return answer


def test_a_lock_is_taken_in_one_step_renewed_in_another_and_released_in_a_third(
    command: Command, locks: LockClient, entity: str
) -> None:
    take = ("acquire", entity, "--owner", "build-7", "--lease", "120", "--data", "deploys")
    taken, again = told(command, *take), told(command, *take)
    assert (taken["owner"], again["fencingToken"], held(locks, entity)) == ("build-7", taken["fencingToken"], 1)
    renewed = told(command, "renew", entity, "--owner", "build-7", "--lease", "600")
    assert renewed["fencingToken"] == taken["fencingToken"]
    assert datetime.fromisoformat(renewed["deadline"]) > datetime.fromisoformat(taken["deadline"])
    assert 500 < renewed["remainingSeconds"] <= 600
    again = told(command, "renew", entity, "--owner", "build-7")
    assert 400 < again["remainingSeconds"] <= 600, "a shorter lease does not bring its end nearer"
    released = told(command, "release", entity, "--owner", "build-7")
    assert (released["entity"], released["owner"], released["leaseWasOver"]) == (entity, "build-7", False)
    assert held(locks, entity) == 0


def test_a_step_without_an_owner_generates_one_and_prints_it(command: Command, locks: LockClient, entity: str) -> None:
    owner = told(command, "acquire", entity)["owner"]
    item = locks.inspect(entity).item
    assert [holder.owner for holder in (item.holders if item else ())] == [owner]


def test_a_release_after_the_lease_says_so(command: Command, locks: LockClient, entity: str) -> None:
    told(command, "acquire", entity, "--owner", "build-7", "--lease", "1")

    def lease_is_over() -> bool:
        found = locks.inspect(entity)
        assert found.item is not None
        return found.item.holders[0].lease_until_ms < found.now.earliest_ms

    until(lease_is_over)
    ended = run_here(command.environment, "release", entity, "--owner", "build-7")
    assert (ended.exit_code, json.loads(ended.out)["leaseWasOver"]) == (76, True)


def test_a_signal_while_a_step_waits_leaves_the_queue(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        acquire = command.start("acquire", entity, "--wait", "forever")
        until(lambda: waiters(locks, entity) == 1)
        acquire.send(signal.SIGTERM)
        assert acquire.end().exit_code == 128 + signal.SIGTERM
        assert waiters(locks, entity) == 0


def test_a_lock_is_freed_by_force_after_a_question_that_names_its_holder(
    command: Command, locks: LockClient, entity: str
) -> None:
    token = locks.acquire(entity, owner="the holder").fencing_token
    declined = run_here(command.environment, "release", entity, "--force", text="n\n")
    assert declined.exit_code == 1
    assert declined.err.endswith(f"[y/N]: {NOT_DONE}you declined the confirmation\n")
    unasked = run_here(command.environment, "release", entity, "--force", text="")
    assert (unasked.exit_code, unasked.err.splitlines()[-1]) == (
        1,
        f"{NOT_DONE}there is no terminal to ask on; give --yes",
    )
    assert held(locks, entity) == 1
    ended = run_here(
        command.environment, "release", entity, "--force", "--by", "ann", "--why", "it was killed", text="y\n"
    )
    assert (ended.exit_code, ended.out) == (0, f"taken from the holder, fencing token {token}\n")
    assert f"the holder, fencing token {token}: its lease ends in" in ended.err
    assert f"Take the lock on '{entity}' {in_the_table(command)}" in ended.err
    assert held(locks, entity) == 0
    taken = item_of(locks, entity).last_forced
    assert taken is not None
    assert (taken.owner, taken.by, taken.why) == ("the holder", "ann", "it was killed")


def test_one_holder_of_several_is_named_by_its_token(command: Command, locks: LockClient, entity: str) -> None:
    first, second = (locks.acquire(entity, permits=2, owner=owner) for owner in ("first", "second"))
    ended = run_here(
        command.environment, "release", entity, "--force", "--yes", "--fencing-token", str(second.fencing_token)
    )
    assert (ended.out.startswith("taken from second"), held(locks, entity)) == (True, 1)
    first.release()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("renew ENTITY --owner build-7", "ticketlock: "),
        ("release ENTITY --owner build-7", "ticketlock: "),
        ("release ENTITY --force --yes", "ticketlock: no one holds the lock on 'ENTITY'\n"),
        ("remove-waiter ENTITY 7", "ticketlock: no one waits for the lock on 'ENTITY' with ticket 7\n"),
        ("remove-waiter ENTITY 7 --yes", "ticketlock: no one waits for the lock on 'ENTITY' with ticket 7\n"),
    ],
)
def test_a_holder_or_a_waiter_that_is_not_there_ends_a_command_with_76(
    command: Command, entity: str, words: str, says: str
) -> None:
    ended = run_here(command.environment, *words.replace("ENTITY", entity).split())
    assert (ended.exit_code, ended.out, len(ended.err.splitlines())) == (76, "", 1)
    assert ended.err.startswith(says.replace("ENTITY", entity))


def test_a_limit_is_set_after_a_question(command: Command, locks: LockClient, entity: str) -> None:
    ended = run_here(command.environment, "limit", entity, "2", text="y\n")
    assert (ended.exit_code, ended.out) == (0, f"{entity}: 2 permits, held by 0, 0 waiting\n")
    assert f"Let at most 2 at once hold the lock on '{entity}' {in_the_table(command)}" in ended.err
    assert "not used yet" in ended.err
    decided = item_of(locks, entity).limit_set
    assert decided is not None
    assert (decided.by, decided.why) == (this_user(), "")
    with locks.acquire(entity), locks.acquire(entity, permits=3):
        assert held(locks, entity) == 2
    assert run_here(command.environment, "limit", entity, "0", "--yes").exit_code == 0
    assert command.run("run", entity, "--no-wait", "--", "true").exit_code == 75


def test_a_limit_is_unset_after_a_question(command: Command, locks: LockClient, entity: str) -> None:
    locks.acquire(entity, permits=3).release()
    run_here(command.environment, "limit", entity, "0", "--yes", "--by", "ann", "--why", "INC-7")
    refused = run_here(command.environment, "limit", entity, "--unset", text="n\n")
    assert refused.exit_code == 1
    assert re.search(r"\(now 0 permits, held by 0; set [\d.]+ \w+ ago by ann: INC-7\)\?", refused.err)
    ended = run_here(command.environment, "limit", entity, "--unset", text="y\n")
    assert (ended.exit_code, ended.out) == (0, f"{entity}: 3 permits, held by 0, 0 waiting\n")
    assert command.run("run", entity, "--permits", "3", "--no-wait", "--", "true").exit_code == 0


def test_on_a_terminal_the_reason_is_asked_for_unless_it_is_given(
    command: Command, locks: LockClient, entity: str
) -> None:
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"y\nINC-7\ny\n")
    for more in ((), ("--why", "given")):
        words = ["ticketlock", "limit", entity, "0", *more]
        subprocess.run(words, stdin=terminal, env=command.environment, check=True, timeout=LONG_S)
        decided = item_of(locks, entity).limit_set
        assert decided is not None
        assert decided.why == (more[-1] if more else "INC-7")
    os.close(terminal)
    os.close(keyboard)


def test_a_limit_of_a_lock_without_earlier_users_is_unset_to_a_number(command: Command, entity: str) -> None:
    run_here(command.environment, "limit", entity, "5", "--yes")
    table = command.environment["TICKETLOCK_TABLE"]
    ended = run_here(command.environment, "limit", entity, "--unset", "--yes", "--table", table)
    is_refused(ended, 2, f"ticketlock: no one had used the lock on '{entity}' before its limit was set, so ")
    assert f"`ticketlock --table {table} limit {entity} N --unset`; N is the number" in ended.err
    is_refused(
        run_here(command.environment, "limit", entity, "N", "--unset", "--yes"),
        2,
        "put the number of permits that the lock's",
    )
    assert run_here(command.environment, "limit", entity, "1", "--unset", "--yes").exit_code == 0
    assert command.run("run", entity, "--no-wait", "--", "true").exit_code == 0


@pytest.mark.always("the one test in which a waiter of the command ends by a number of permits")
def test_who_unsets_a_limit_is_warned_of_the_waiters_that_end_and_they_end_with_78(
    command: Command, locks: LockClient, entity: str
) -> None:
    run_here(command.environment, "limit", entity, "0", "--yes")
    waiter = command.start("run", entity, "--permits", "3", "--wait-if-closed", "--", "true")
    until(lambda: waiters(locks, entity) == 1)
    ended = run_here(command.environment, "limit", entity, "1", "--unset", "--yes")
    assert ended.exit_code == 0
    assert ended.err == "of its waiters 1 that asks for 3 permits will end, with PermitsMismatch\n"
    is_refused(waiter.end(), 78, f"the lock on '{entity}' has 1 permit, not 3: all its users must ask")
    assert waiters(locks, entity) == 0


def test_a_waiter_is_removed_after_a_question_that_names_it(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        waiter = command.start("run", entity, "--", "true")
        until(lambda: waiters(locks, entity) == 1)
        (row,) = locks.inspect(entity).rows
        ticket = str(row.ticket)
        assert run_here(command.environment, "remove-waiter", entity, ticket, text="n\n").exit_code == 1
        ended = run_here(command.environment, "remove-waiter", entity, ticket, text="y\n")
        assert (ended.exit_code, ended.out) == (0, f"removed {row.owner}, ticket {ticket}\n")
        assert f"{row.owner}, ticket {ticket}: has waited " in ended.err
        assert f"Remove it from the queue for '{entity}' {in_the_table(command)}" in ended.err
        # It still runs, and joins again.
        until(lambda: [each.ticket > row.ticket for each in locks.inspect(entity).rows] == [True])
    assert waiter.end().exit_code == 0


def test_a_table_of_another_kind_is_refused_and_unchanged(command: Command, keyed_otherwise: str) -> None:
    ended = run_here(command.environment, "init", "--table", keyed_otherwise, "--yes")
    is_refused(ended, 78, f"ticketlock: {keyed_otherwise} is no lock table: its keys are")


def test_a_table_is_created_once(command: Command, dynamodb: Any, entity: str) -> None:
    name = f"locks-{uuid.uuid4().hex[:8]}"
    missing = command.run("run", entity, "--table", name, "--", "true")
    assert missing.exit_code == 78
    assert "correct its name, the Region or the account" in missing.err
    assert "Before their first use: `ticketlock init`" in missing.err
    assert run_here(command.environment, "init", "--table", name, text="n\n").exit_code == 1
    assert run_here(command.environment, "init", "--table", name, text="y\n").out.startswith(
        f"created the table '{name}'"
    )
    assert run_here(command.environment, "init", "--table", name, "--yes").out.startswith(
        f"there was already the table '{name}'"
    )
    assert command.run("run", entity, "--table", name, "--", "true").exit_code == 0
    ttl = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "expiresAt")
    dynamodb.delete_table(TableName=name)
