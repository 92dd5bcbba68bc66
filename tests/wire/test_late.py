"""Requests that arrive long after they were given up and sent again have no effect, or were reported as unknown."""

from collections.abc import Callable, Iterator

import pytest
from kit.far import Far
from kit.faults import Late
from kit.places import PATIENCE_S, is_grant, is_release, is_renewal, is_row, meanwhile, outcome, until
from kit.proxy import Proxy

from ticketlock import LockClient, OutcomeUnknown
from ticketlock.testing import Sent

# A quarter of it is the time-out after which a request is sent again.
LEASE_S = 2


@pytest.fixture
def late() -> Iterator[Late]:
    late = Late()
    yield late
    late.opened.set()


@pytest.fixture
def impatient(place: Far) -> LockClient:
    """A client that soon retries unanswered requests."""
    return place.client(shortest_lease=LEASE_S)


def arrives(late: Late) -> None:
    late.opened.set()
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
