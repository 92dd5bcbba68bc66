"""Requests and replies that are lost, cut off or duplicated: each takes effect once, and its sender learns that."""

from typing import Any

import pytest
from kit.far import Far
from kit.faults import Fault, Late, delivered_twice, reply_broken_off, reply_lost, request_lost
from kit.places import meanwhile, outcome, until
from kit.proxy import Proxy
from kit.sent import is_grant, is_leave, is_release, is_renewal, is_row, is_ticket

from ticketlock import LockClient, Position, RecordWaitExceeded

pytestmark = pytest.mark.shows("lost requests")

FAULTS = [request_lost, reply_lost, reply_broken_off, delivered_twice]


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.__name__)
def fault(request: pytest.FixtureRequest) -> Fault:
    fault: Fault = request.param
    return fault


def test_a_grant_is_found_once(place: Far, proxy: Proxy, locks: LockClient, entity: str, fault: Fault) -> None:
    trouble = proxy.trouble(fault, is_grant)
    lease = locks.acquire(entity)
    assert trouble.met.is_set()
    assert lease.is_held()
    assert (place.holders_of(entity), place.token_of(entity)) == (1, lease.fencing_token)
    lease.release()
    assert place.is_free(entity)


def test_a_grant_of_a_turn_is_found_once(
    place: Far, proxy: Proxy, locks: LockClient, near: LockClient, entity: str, fault: Fault
) -> None:
    holder = near.acquire(entity)
    waiting = meanwhile(lambda: locks.acquire(entity))
    until(lambda: place.queue_of(entity) == 1)
    trouble = proxy.trouble(fault, is_grant)
    holder.release()
    lease = outcome(waiting)
    assert trouble.met.is_set()
    assert lease.fencing_token == holder.fencing_token + 1 == place.token_of(entity)
    assert (place.holders_of(entity), place.queue_of(entity)) == (1, 0)


def test_a_refusal_is_reported_as_one(
    place: Far, proxy: Proxy, locks: LockClient, near: LockClient, entity: str, fault: Fault
) -> None:
    holder = near.acquire(entity)
    trouble = proxy.trouble(fault, is_grant)
    assert locks.try_acquire(entity) is None
    assert trouble.met.is_set()
    assert place.queue_of(entity) == 0
    holder.renew()


@pytest.mark.parametrize("is_meant", [is_ticket, is_row])
def test_a_waiter_has_one_place(
    place: Far, proxy: Proxy, locks: LockClient, near: LockClient, entity: str, fault: Fault, is_meant: Any
) -> None:
    holder = near.acquire(entity)
    trouble = proxy.trouble(fault, is_meant)
    polls: list[Position] = []
    waiting = meanwhile(lambda: locks.acquire(entity, on_wait=polls.append))
    until(lambda: len(polls) > 1)
    assert trouble.met.is_set()
    assert place.queue_of(entity) == 1
    holder.release()
    assert outcome(waiting).is_held()
    assert (place.holders_of(entity), place.queue_of(entity)) == (1, 0)


def test_a_waiter_that_gives_up_leaves_the_queue(
    place: Far, proxy: Proxy, locks: LockClient, near: LockClient, entity: str, fault: Fault
) -> None:
    near.acquire(entity)
    trouble = proxy.trouble(fault, is_leave)
    with pytest.raises(RecordWaitExceeded):
        locks.acquire(entity, record_wait=0.05)
    assert trouble.met.is_set()
    assert place.queue_of(entity) == 0


def test_a_renewal_keeps_the_lock(place: Far, proxy: Proxy, entity: str, fault: Fault) -> None:
    lease = place.client(heartbeat=False).acquire(entity)
    trouble = proxy.trouble(fault, is_renewal)
    before = lease.deadline
    lease.renew()
    assert trouble.met.is_set()
    assert lease.is_held()
    assert lease.deadline > before
    assert place.token_of(entity) == lease.fencing_token


def test_a_heartbeat_survives_several_faults_in_a_row(place: Far, proxy: Proxy, entity: str) -> None:
    lost: list[object] = []
    lease = place.client(lease=4, shortest_lease=1).acquire(entity, on_lost=lost.append)
    troubles = [proxy.trouble(fault, is_renewal) for fault in (reply_lost, request_lost, reply_broken_off)]
    until(lambda: all(trouble.met.is_set() for trouble in troubles))
    until(lambda: lease.remaining_s > 3)
    assert lease.is_held()
    assert lost == []


def test_a_release_frees_the_lock_at_once(
    proxy: Proxy, locks: LockClient, near: LockClient, entity: str, fault: Fault
) -> None:
    lease = locks.acquire(entity)
    trouble = proxy.trouble(fault, is_release)
    lease.release()
    assert trouble.met.is_set()
    assert near.acquire(entity, record_wait=0).fencing_token == lease.fencing_token + 1


def test_a_release_whose_reply_is_lost_succeeds_though_the_next_owner_holds_by_then(
    place: Far, proxy: Proxy, locks: LockClient, near: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity)
    proxy.trouble(reply_lost, is_release)
    second = Late()
    repeated = proxy.trouble(second, is_release)
    releasing = meanwhile(lease.release)
    assert repeated.met.wait(30)
    following = near.acquire(entity, record_wait=0)
    second.opened.set()
    outcome(releasing)
    following.renew()
    assert place.holders_of(entity) == 1


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
