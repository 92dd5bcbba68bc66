"""A lock whose holders have all expired is taken at once, however many they are."""

import re
from typing import Any

import pytest
from kit.engines import deep_engine_names, first_on
from kit.world import Process, World

from ticketlock import Claim, Grant, LockName
from ticketlock.locks._modes import MAX_HOLDERS

_SHORT_MS = 10_000
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_LONGEST_EXPRESSION_BYTES = 4 * 1024
_MOST_OPERATORS = 300
_OPERATOR = re.compile(r"\b(?:AND|OR|NOT|IN|BETWEEN)\b|<>|<=|>=|[=<>+-]|attribute_(?:not_)?exists|if_not_exists")

ON_DEEP_ENGINES = pytest.mark.parametrize("engine", first_on("memory", deep_engine_names()), indirect=True)


def expired_readers(world: World, lock: LockName, count: int) -> None:
    reader = world.process()
    for number in range(count):
        reader.granted(Claim(lock, f"reader-{number}", _SHORT_MS, shared=True))
    world.advance(2 * _SHORT_MS)


@pytest.mark.parametrize("expired", [10, 11])
def test_a_writer_replaces_more_than_ten_expired_readers_by_one_grant(
    world: World, alice: Process, lock: LockName, expired: int
) -> None:
    expired_readers(world, lock, expired)
    assert alice.granted(alice.claim(lock)).took_over == expired


def test_a_waiting_writer_replaces_eleven_expired_readers(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(11):
        bob.granted(Claim(lock, f"reader-{number}", _SHORT_MS, shared=True))
    claim = alice.claim(lock)
    place = alice.queued(claim)
    world.advance(2 * _SHORT_MS)
    assert isinstance(alice.poll(claim, place), Grant)


def test_a_permit_is_free_again_though_twelve_holders_expired_and_the_limit_was_lowered_since(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(12):
        bob.granted(Claim(lock, f"owner-{number}", _SHORT_MS, permits=20))
    world.advance(2 * _SHORT_MS)
    alice.table.set_limit(lock, 2)
    assert alice.granted(alice.claim(lock, permits=20)).took_over == 12


def test_only_the_expired_holders_are_removed_and_the_others_keep_their_permits(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(11):
        bob.granted(Claim(lock, f"expired-{number}", _SHORT_MS, permits=12))
    living = alice.claim(lock, permits=12)
    held = alice.granted(living)
    world.advance(2 * _SHORT_MS)
    assert bob.granted(bob.claim(lock, permits=12)).took_over == 11
    alice.table.renew(living, held.fencing_token)


@ON_DEEP_ENGINES
def test_a_hundred_expired_holders_are_removed_within_the_limits_of_an_expression(
    world: World, alice: Process, lock: LockName
) -> None:
    expired_readers(world, lock, MAX_HOLDERS)
    assert alice.granted(alice.claim(lock)).took_over == MAX_HOLDERS
    assert_bounded(alice.sent[-1].parameters)


@ON_DEEP_ENGINES
def test_the_first_in_line_removes_them_within_these_limits_too(
    world: World, alice: Process, bob: Process, lock: LockName
) -> None:
    for number in range(MAX_HOLDERS):
        bob.granted(Claim(lock, f"reader-{number}", _SHORT_MS, shared=True))
    claim = alice.claim(lock)
    place = alice.queued(claim)
    world.advance(2 * _SHORT_MS)
    assert isinstance(alice.poll(claim, place), Grant)
    (transaction,) = (sent for sent in alice.sent if sent.operation == "TransactWriteItems")
    assert_bounded(transaction.parameters["TransactItems"][0]["Update"])


def assert_bounded(write: dict[str, Any]) -> None:
    for expression in (write["ConditionExpression"], write["UpdateExpression"]):
        assert len(expression.encode()) <= _LONGEST_EXPRESSION_BYTES
    operators = _OPERATOR.findall(write["ConditionExpression"] + write["UpdateExpression"])
    assert len(operators) <= _MOST_OPERATORS
