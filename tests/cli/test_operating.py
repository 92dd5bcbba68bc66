"""`ticketlock release --force`, `limit` and `init`: an operator's commands, which ask first."""

import uuid

import boto3
import pytest
from kit.command import Command, until
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient

pytestmark = pytest.mark.verify("each command is a process; tests/locks tests what operators may do")


def held(locks: LockClient, entity: str) -> int:
    item = locks.inspect(entity).item
    assert item is not None
    return item.held


def test_a_lock_is_freed_by_force_after_a_question_that_names_its_holder(
    command: Command, locks: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity, owner="the holder")
    ended = command.run("release", entity, "--force", text="y\n")
    assert (ended.exit_code, ended.out) == (0, f"taken from the holder, fencing token {lease.fencing_token}\n")
    assert f"the holder, fencing token {lease.fencing_token}: its lease ends in" in ended.err
    assert held(locks, entity) == 0


def test_a_declined_confirmation_changes_nothing(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        assert command.run("release", entity, "--force", text="n\n").exit_code == 1
        assert held(locks, entity) == 1


def test_one_holder_of_several_is_named_by_its_token(command: Command, locks: LockClient, entity: str) -> None:
    first, second = (locks.acquire(entity, permits=2, owner=owner) for owner in ("first", "second"))
    ended = command.run("release", entity, "--force", "--yes", "--fencing-token", str(second.fencing_token))
    assert ended.out.startswith("taken from second")
    assert held(locks, entity) == 1
    first.release()


def test_a_lock_without_a_holder_cannot_be_freed_by_force(command: Command, entity: str) -> None:
    ended = command.run("release", entity, "--force", "--yes")
    assert (ended.exit_code, ended.err) == (76, f"ticketlock: no one holds the lock on '{entity}'\n")


def test_a_limit_replaces_the_number_that_the_users_ask_for(command: Command, locks: LockClient, entity: str) -> None:
    ended = command.run("limit", entity, "2", text="y\n")
    assert (ended.exit_code, ended.out) == (0, f"{entity}: 2 permits, held by 0, 0 waiting\n")
    assert "not used yet" in ended.err
    with locks.acquire(entity), locks.acquire(entity, permits=5):
        assert held(locks, entity) == 2


def test_a_closed_lock_is_not_granted_until_it_is_opened(command: Command, entity: str) -> None:
    assert command.run("limit", entity, "0", "--yes").exit_code == 0
    assert command.run("run", entity, "--no-wait", "--", "true").exit_code == 75
    assert command.run("limit", entity, "1", "--yes").exit_code == 0
    assert command.run("run", entity, "--no-wait", "--", "true").exit_code == 0


def test_a_limit_is_unset_after_a_question(command: Command, locks: LockClient, entity: str) -> None:
    locks.acquire(entity, permits=3).release()
    command.run("limit", entity, "0", "--yes")
    assert command.run("limit", entity, "--unset", text="n\n").exit_code == 1
    ended = command.run("limit", entity, "--unset", text="y\n")
    assert (ended.exit_code, ended.out) == (0, f"{entity}: 3 permits, held by 0, 0 waiting\n")
    assert command.run("run", entity, "--permits", "3", "--no-wait", "--", "true").exit_code == 0


def test_a_limit_of_a_lock_without_earlier_users_is_unset_to_a_number(command: Command, entity: str) -> None:
    command.run("limit", entity, "5", "--yes")
    ended = command.run("limit", entity, "--unset", "--yes")
    assert ended.exit_code == 2
    told = ended.err.splitlines()[-1]
    assert told.startswith(f"ticketlock: no one had used the lock on '{entity}' before its limit was set: ")
    assert f"ticketlock limit {entity} 1 --unset" in told
    assert command.run("limit", entity, "1", "--unset", "--yes").exit_code == 0
    assert command.run("run", entity, "--no-wait", "--", "true").exit_code == 0


def test_a_waiter_is_removed_after_a_question_that_names_it(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        waiter = command.start("run", entity, "--", "true")
        until(lambda: len(locks.inspect(entity).rows) == 1)
        (row,) = locks.inspect(entity).rows
        ticket = str(row.ticket)
        assert command.run("remove-waiter", entity, ticket, text="n\n").exit_code == 1
        ended = command.run("remove-waiter", entity, ticket, text="y\n")
        assert (ended.exit_code, ended.out) == (0, f"removed {row.owner}, ticket {ticket}\n")
        assert f"{row.owner}, ticket {ticket}: has waited " in ended.err
        # It still runs, and joins again.
        until(lambda: [each.ticket > row.ticket for each in locks.inspect(entity).rows] == [True])
    assert waiter.end().exit_code == 0


@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_an_unknown_waiter_cannot_be_removed(command: Command, entity: str, more: tuple[str, ...]) -> None:
    ended = command.run("remove-waiter", entity, "7", *more)
    assert (ended.exit_code, ended.err) == (
        76,
        f"ticketlock: no one waits for the lock on '{entity}' with ticket 7\n",
    )


def test_a_table_of_another_kind_is_refused_and_unchanged(command: Command, emulator: Emulator) -> None:
    name = f"other-{uuid.uuid4().hex[:8]}"
    client = boto3.client("dynamodb", **client_arguments(emulator.endpoint))
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    ended = command.run("init", "--table", name, "--yes")
    assert ended.exit_code == 78
    assert ended.err.startswith(f"ticketlock: {name} is no lock table: its keys are")
    client.delete_table(TableName=name)


def test_a_table_is_created_once(command: Command, emulator: Emulator, entity: str) -> None:
    name = f"locks-{uuid.uuid4().hex[:8]}"
    missing = command.run("run", entity, "--table", name, "--", "true")
    assert missing.exit_code == 78
    assert "correct its name, the Region or the account" in missing.err
    assert "Before their first use: `ticketlock init`" in missing.err
    assert command.run("init", "--table", name, text="n\n").exit_code == 1
    assert command.run("init", "--table", name, text="y\n").out.startswith(f"created the table '{name}'")
    assert command.run("init", "--table", name, "--yes").out.startswith(f"there was already the table '{name}'")
    assert command.run("run", entity, "--table", name, "--", "true").exit_code == 0
    client = boto3.client("dynamodb", **client_arguments(emulator.endpoint))
    ttl = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "expiresAt")
    client.delete_table(TableName=name)
