"""Requests and replies that are lost, cut off, duplicated or late, and a table that is silent for a while."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
from kit.far import Far
from kit.faults import Fault, Late, delivered_twice, reply_broken_off, reply_lost, request_lost
from kit.in_a_loop import Loop
from kit.places import (
    PATIENCE_S,
    Emulated,
    Kind,
    Wire,
    is_grant,
    is_release,
    is_renewal,
    is_row,
    meanwhile,
    outcome,
    until,
)
from kit.proxy import Proxy
from kit.sentences.faults import *  # noqa: F403 -- pytest collects the tests that it brings
from kit.sentences.faults import Hit
from ticketlock_local.engines.emulator import Emulator

from ticketlock import Lease, LockClient, OutcomeUnknown
from ticketlock.testing import Sent

pytestmark = pytest.mark.shows("lost requests", "exclusion", "liveness", "reported loss")

FAULTS = [request_lost, reply_lost, reply_broken_off, delivered_twice]


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.__name__)
def hit(proxy: Proxy, request: pytest.FixtureRequest) -> Hit:
    return lambda is_meant: proxy.trouble(request.param, is_meant).met


def test_a_heartbeat_survives_several_faults_in_a_row(place: Far, proxy: Proxy, entity: str) -> None:
    lost: list[object] = []
    lease = place.client(lease=12, shortest_lease=1).acquire(entity, on_lost=lost.append)
    troubles = [proxy.trouble(fault, is_renewal) for fault in (reply_lost, request_lost, reply_broken_off)]
    until(lambda: all(trouble.met.is_set() for trouble in troubles))
    until(lambda: lease.remaining_s > 9)
    assert lease.is_held()
    assert lost == []


@pytest.mark.parametrize("fault", [reply_lost, reply_broken_off, delivered_twice], ids=lambda each: each.__name__)
def test_a_transaction_under_the_lock_is_applied_once(
    place: Far, proxy: Proxy, locks: LockClient, entity: str, fault: Fault
) -> None:
    counter = {"pk": {"S": f"counter of {entity}"}, "sk": {"S": "-"}}
    count_one = {
        "Update": {
            "TableName": place.table_name,
            "Key": counter,
            "UpdateExpression": "ADD seen :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    lease = locks.acquire(entity)
    trouble = proxy.trouble(fault, lambda sent: sent.operation == "TransactWriteItems")
    lease.transact_write([count_one])
    assert trouble.met.is_set()
    seen = place.table.client.get_item(TableName=place.table_name, Key=counter, ConsistentRead=True)
    assert seen["Item"]["seen"] == {"N": "1"}


# Requests that arrive long after they were given up and sent again have no effect, or were reported as unknown.


# A quarter of it is the time-out after which a request is sent again.
LEASE_S = 2


@pytest.fixture
def late() -> Iterator[Late]:
    late = Late()
    yield late
    late.gate.set()


@pytest.fixture
def impatient(place: Far) -> LockClient:
    """A client that soon retries unanswered requests."""
    return place.client(shortest_lease=LEASE_S)


def arrives(late: Late) -> None:
    late.gate.set()
    assert late.arrived.wait(PATIENCE_S)


@pytest.mark.parametrize("what", [is_grant, is_release])
def test_a_grant_or_a_release_that_arrives_late_leaves_the_next_holder_alone(
    place: Far,
    proxy: Proxy,
    impatient: LockClient,
    near: LockClient,
    entity: str,
    late: Late,
    what: Callable[[Sent], bool],
) -> None:
    proxy.trouble(late, what)
    impatient.acquire(entity).release()
    following = near.acquire(entity, record_wait=0)
    arrives(late)
    following.renew()
    assert (place.holders_of(entity), place.token_of(entity)) == (1, following.fencing_token)


def test_a_late_grant_of_a_free_lock_blocks_it_until_the_end_of_its_first_lease(
    place: Far, proxy: Proxy, impatient: LockClient, entity: str, late: Late
) -> None:
    proxy.trouble(late, is_grant)
    lease = impatient.acquire(entity)
    until_ms = place.lease_until_ms(entity)
    lease.release()
    arrives(late)
    assert place.token_of(entity) == lease.fencing_token + 1
    assert place.lease_until_ms(entity) <= until_ms


def test_a_late_grant_of_a_turn_is_refused_though_the_lock_is_free(
    place: Far, proxy: Proxy, impatient: LockClient, near: LockClient, entity: str, late: Late
) -> None:
    holder = near.acquire(entity)
    waiting = meanwhile(lambda: impatient.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    proxy.trouble(late, is_grant)
    holder.release()
    lease = outcome(waiting)
    lease.release()
    arrives(late)
    assert place.is_free(entity)
    assert place.token_of(entity) == lease.fencing_token


def test_a_renewal_that_arrives_late_revives_nothing(
    place: Far, proxy: Proxy, impatient: LockClient, entity: str, late: Late
) -> None:
    lease = impatient.acquire(entity)
    proxy.trouble(late, is_renewal)
    lease.renew()
    lease.release()
    arrives(late)
    assert place.is_free(entity)


def test_a_row_that_arrives_late_does_not_count_twice(
    place: Far, proxy: Proxy, impatient: LockClient, near: LockClient, entity: str, late: Late
) -> None:
    holder = near.acquire(entity)
    proxy.trouble(late, is_row)
    waiting = meanwhile(lambda: impatient.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    arrives(late)
    holder.release()
    lease = outcome(waiting)
    assert lease.fencing_token == holder.fencing_token + 1
    lease.release()
    assert near.acquire(entity).fencing_token == lease.fencing_token + 1
    assert place.queue_of(entity) == 0


def test_a_fenced_transaction_that_its_condition_refuses_may_have_an_earlier_attempt_that_arrives_late(
    place: Far, proxy: Proxy, impatient: LockClient, entity: str, late: Late
) -> None:
    order = {"pk": {"S": f"order of {entity}"}, "sk": {"S": "-"}}
    table, dynamodb = {"TableName": place.table_name}, place.near.dynamodb("threads", LEASE_S)
    pay = {**table, "Item": {**order, "state": {"S": "paid"}}, "ConditionExpression": "attribute_exists(pk)"}
    lease = impatient.acquire(entity)
    proxy.trouble(late, lambda sent: sent.operation == "TransactWriteItems")
    with pytest.raises(OutcomeUnknown):
        lease.transact_write([{"Put": pay}])
    dynamodb.put_item(**table, Item={**order, "state": {"S": "open"}})
    arrives(late)
    assert dynamodb.get_item(**table, Key=order)["Item"]["state"] == {"S": "paid"}


# A table that does not answer: for less than a lease, for more than a lease, and from the beginning.


def test_a_lease_that_cannot_be_renewed_is_in_danger_then_lost_and_no_one_else_holds_it_before(
    place: Far, proxy: Proxy, near: LockClient, entity: str
) -> None:
    told: list[str] = []
    lost_at: list[datetime] = []
    is_lost = threading.Event()

    def note_loss(_: Lease) -> None:
        lost_at.append(datetime.now(UTC))
        told.append("lost")
        is_lost.set()

    def no_other_owner_holds_it() -> bool:
        other = near.try_acquire(entity)
        assert other is None or not lease.is_held()
        return True

    locks = place.client(lease=4)
    lease = locks.acquire(entity, danger=3, on_danger=lambda _: told.append("danger"), on_lost=note_loss)
    with proxy.black_hole():
        deadline = lease.deadline
        until(lambda: no_other_owner_holds_it() and is_lost.is_set(), "the loss")
    assert told == ["danger", "lost"]
    assert lost_at[0] >= deadline
    assert not lease.is_held()


def test_a_lease_is_kept_through_a_silence_that_is_shorter(place: Far, proxy: Proxy, entity: str) -> None:
    lost: list[object] = []
    lease = place.client(lease=20, shortest_lease=1).acquire(entity, on_lost=lost.append)
    with proxy.black_hole() as hole:
        until(hole.met.is_set, "a renewal")
        assert lease.is_held()
    until(lambda: lease.remaining_s > 14, "another renewal")
    assert lost == []


def test_a_waiter_keeps_its_place_through_a_silence(place: Far, proxy: Proxy, near: LockClient, entity: str) -> None:
    holder = near.acquire(entity)
    locks = place.client(lease=60, shortest_lease=2)
    first = meanwhile(lambda: locks.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    with proxy.black_hole() as hole:
        second = meanwhile(lambda: place.near.client().acquire(entity))
        until(lambda: place.queue_of(entity) == 2)
        holder.release()
        until(hole.met.is_set, "a poll")
    lease = outcome(first)
    lease.release()
    assert outcome(second).fencing_token == lease.fencing_token + 1 == holder.fencing_token + 2


def test_refused_connections_are_retried(place: Far, emulator: Emulator, kind: Kind, loop: Loop, entity: str) -> None:
    with Proxy(emulator.endpoint) as closed:
        wire = Wire()
        behind = Emulated(kind, loop, closed.url, place.table_name, {})
        with closing(behind):
            locks = behind.client(wire=wire)
            waiting = meanwhile(lambda: locks.acquire(entity))
            until(lambda: len(wire.sent) > 2, "a third try")
            closed.listen()
            lease = outcome(waiting)
            assert (place.holders_of(entity), place.token_of(entity)) == (1, lease.fencing_token)
        behind.keeps_its_promises()
