"""The fencing token in a user's own writes: it refuses a former holder's."""

import math
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from kit.places import Emulated, Moved, meanwhile, outcome, some_entity, until

from ticketlock import InvalidLockRequest, LockClient, LockLost, RequestNotApplied, TableNotFound
from ticketlock.testing import Fault

pytestmark = pytest.mark.shows("fencing")


class Orders:
    """A table of the user's own, with a low-level client and with that of a resource."""

    def __init__(self, place: Emulated) -> None:
        self.name = f"orders-{some_entity()[-8:]}"
        self.client: Any = boto3.client("dynamodb", endpoint_url=place.endpoint)
        self.native: Any = boto3.resource("dynamodb", endpoint_url=place.endpoint).meta.client
        self.client.create_table(
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )

    def of(self, native: bool) -> Any:
        return self.native if native else self.client

    def item(self, item_id: str, state: str, *, native: bool) -> dict[str, Any]:
        item = {"id": item_id, "state": state}
        return item if native else {name: {"S": value} for name, value in item.items()}

    def put(self, item_id: str, state: str, *, native: bool = False) -> dict[str, Any]:
        return {"Put": {"TableName": self.name, "Item": self.item(item_id, state, native=native)}}

    def state_of(self, item_id: str) -> str | None:
        found = self.native.get_item(TableName=self.name, Key={"id": item_id}, ConsistentRead=True)
        state: str | None = found.get("Item", {}).get("state")
        return state


EITHER = pytest.mark.parametrize("native", [False, True], ids=["low-level", "Python types"])


@pytest.fixture
def orders(place: Emulated) -> Iterator[Orders]:
    orders = Orders(place)
    yield orders
    orders.client.delete_table(TableName=orders.name)


@pytest.fixture
def older_and_newer(place: Emulated, locks: LockClient, others: LockClient, entity: str) -> tuple[Any, Any]:
    """Two leases of one lock, the second of which is held."""
    older = locks.acquire(entity)
    place.lose(entity)
    return older, others.acquire(entity)


@EITHER
def test_a_transaction_with_the_holders_check_is_applied(
    locks: LockClient, orders: Orders, entity: str, native: bool
) -> None:
    lease = locks.acquire(entity)
    items = [lease.condition_check(native=native), orders.put("7", "paid", native=native)]
    orders.of(native).transact_write_items(TransactItems=items)
    assert orders.state_of("7") == "paid"


@EITHER
def test_a_transaction_is_refused_after_another_owner_got_the_lock(
    older_and_newer: tuple[Any, Any], orders: Orders, native: bool
) -> None:
    older, _ = older_and_newer
    items = [older.condition_check(native=native), orders.put("7", "paid", native=native)]
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.of(native).transact_write_items(TransactItems=items)
    assert orders.state_of("7") is None


def test_a_transaction_is_refused_after_the_release(locks: LockClient, orders: Orders, entity: str) -> None:
    lease = locks.acquire(entity)
    lease.release()
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.client.transact_write_items(TransactItems=[lease.condition_check(), orders.put("7", "paid")])


def test_a_renewal_leaves_the_check_as_it_is(locks: LockClient, orders: Orders, entity: str) -> None:
    lease = locks.acquire(entity)
    check = lease.condition_check()
    lease.renew()
    orders.client.transact_write_items(TransactItems=[check, orders.put("7", "paid")])
    assert orders.state_of("7") == "paid"


def test_transact_write_writes_while_the_lock_is_held(locks: LockClient, orders: Orders, entity: str) -> None:
    lease = locks.acquire(entity)
    lease.transact_write([orders.put("7", "paid"), orders.put("8", "open")])
    assert (orders.state_of("7"), orders.state_of("8")) == ("paid", "open")


def test_transact_write_accepts_an_iterator(locks: LockClient, orders: Orders, entity: str) -> None:
    once: Any = (orders.put(order, "paid") for order in ("7", "8"))
    locks.acquire(entity).transact_write(once)
    assert (orders.state_of("7"), orders.state_of("8")) == ("paid", "paid")


def test_transact_write_refuses_invalid_items_by_name(place: Emulated, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity) as lease, pytest.raises(InvalidLockRequest, match=r"^items is"):
        lease.transact_write([{"Put": {"TableName": "orders", "Item": {"pk": "a"}}}])
    assert place.is_free(entity)


def test_transact_write_says_that_the_lock_was_lost_and_writes_nothing(
    place: Emulated, locks: LockClient, orders: Orders, entity: str
) -> None:
    lease = locks.acquire(entity)
    place.lose(entity)
    with pytest.raises(LockLost):
        lease.transact_write([orders.put("7", "paid")])
    assert orders.state_of("7") is None


def test_transact_write_passes_on_the_refusal_of_the_users_own_condition(
    locks: LockClient, orders: Orders, entity: str
) -> None:
    lease = locks.acquire(entity)
    lease.transact_write([orders.put("7", "paid")])
    again = orders.put("7", "open")
    again["Put"]["ConditionExpression"] = "attribute_not_exists(id)"
    with pytest.raises(ClientError) as raised:
        lease.transact_write([again])
    reasons: Any = raised.value.response
    assert [reason["Code"] for reason in reasons["CancellationReasons"]] == ["None", "ConditionalCheckFailed"]
    assert orders.state_of("7") == "paid"
    assert lease.is_held()


def test_transact_write_succeeds_while_many_waiters_keep_taking_tickets(
    place: Emulated, locks: LockClient, orders: Orders, entity: str
) -> None:
    lease = locks.acquire(entity)
    over = threading.Event()

    def come_and_go() -> None:
        waiter = place.client()
        while not over.is_set():
            with pytest.raises(TimeoutError):
                waiter.acquire(entity, record_wait=0.01)

    waiters = [meanwhile(come_and_go) for _ in range(20)]
    until(lambda: place.queue_of(entity) >= 3)
    try:
        for number in range(10):
            lease.transact_write([orders.put("7", str(number))])
    finally:
        over.set()
    for waiter in waiters:
        outcome(waiter)
    assert orders.state_of("7") == "9"


def test_transact_write_is_retried_while_it_conflicts_with_waiters(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity)
    moved.memory.faults.extend([Fault.CONFLICT] * 4)
    lease.transact_write([_note("7", "paid")])
    assert _noted(moved, "7") == {"S": "paid"}


def test_transact_write_is_retried_after_a_lost_reply_and_applied_once(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity)
    moved.memory.faults.append(Fault.REPLY_LOST)
    once = _note("7", "paid")
    once["Put"]["ConditionExpression"] = "attribute_not_exists(pk)"
    lease.transact_write([once])
    assert _noted(moved, "7") == {"S": "paid"}


def test_transact_write_gives_up_after_its_patience(moved: Moved, entity: str) -> None:
    lease = moved.client(lease=3_600).acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.CONFLICT), pytest.raises(RequestNotApplied):
        lease.transact_write([_note("7", "paid")], patience=2)
    assert lease.is_held()


def test_transact_write_names_the_tables_if_one_does_not_exist(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity)
    note = {"Put": {"TableName": "orders", "Item": {"pk": {"S": "7"}, "sk": {"S": "note"}}}}
    with pytest.raises(TableNotFound, match="one of the tables 'locks', 'orders' does not exist in this account"):
        lease.transact_write([note])


@pytest.mark.parametrize("patience", [-1, math.nan, True])
def test_an_invalid_patience_is_refused(moved: Moved, entity: str, patience: float) -> None:
    lease = moved.client().acquire(entity)
    with pytest.raises(ValueError, match="patience"):
        lease.transact_write([], patience=patience)


@EITHER
def test_a_put_with_an_older_token_is_refused(older_and_newer: tuple[Any, Any], orders: Orders, native: bool) -> None:
    older, newer = older_and_newer
    new, old = (orders.item("7", state, native=native) for state in ("new", "old"))
    orders.of(native).put_item(**newer.fenced_put(new, native=native, TableName=orders.name))
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.of(native).put_item(**older.fenced_put(old, native=native, TableName=orders.name))
    assert orders.state_of("7") == "new"


def test_the_same_holder_and_the_next_one_may_put_again(older_and_newer: tuple[Any, Any], orders: Orders) -> None:
    for lease, state in zip([older_and_newer[0], *older_and_newer[:1], older_and_newer[1]], "abc", strict=True):
        orders.native.put_item(**lease.fenced_put({"id": "7", "state": state}, native=True, TableName=orders.name))
    assert orders.state_of("7") == "c"


@EITHER
def test_an_update_with_an_older_token_is_refused(
    older_and_newer: tuple[Any, Any], orders: Orders, native: bool
) -> None:
    def update(lease: Any, state: str) -> None:
        item = orders.item("7", state, native=native)
        names = {"ExpressionAttributeNames": {"#s": "state"}, "ExpressionAttributeValues": {":s": item["state"]}}
        key = {"TableName": orders.name, "Key": {"id": item["id"]}}
        orders.of(native).update_item(**lease.fenced_update("SET #s = :s", native=native, **key, **names))

    older, newer = older_and_newer
    update(newer, "new")
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        update(older, "old")
    assert orders.state_of("7") == "new"


def test_a_users_own_condition_must_hold_too(older_and_newer: tuple[Any, Any], orders: Orders) -> None:
    _, newer = older_and_newer
    only_new = {"ConditionExpression": "attribute_not_exists(id) OR #s = :open"}
    names = {"ExpressionAttributeNames": {"#s": "state"}, "ExpressionAttributeValues": {":open": "open"}}
    item = {"id": "7", "state": "paid"}
    write = newer.fenced_put(item, native=True, TableName=orders.name, **only_new, **names)
    orders.native.put_item(**write)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.native.put_item(**write)


def test_a_users_own_condition_does_not_let_an_older_token_through(
    older_and_newer: tuple[Any, Any], orders: Orders
) -> None:
    older, newer = older_and_newer
    orders.native.put_item(**newer.fenced_put({"id": "7", "state": "new"}, native=True, TableName=orders.name))
    # An OR in the user's condition must not bypass the token.
    condition = {"ConditionExpression": "attribute_exists(id) OR attribute_not_exists(id)"}
    refused = older.fenced_put({"id": "7", "state": "old"}, native=True, TableName=orders.name, **condition)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.native.put_item(**refused)


def test_the_token_may_be_stored_in_an_attribute_of_another_name(
    older_and_newer: tuple[Any, Any], orders: Orders
) -> None:
    older, newer = older_and_newer
    write = {"native": True, "attribute": "fence", "TableName": orders.name}
    orders.native.put_item(**newer.fenced_put({"id": "7", "state": "new"}, **write))
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.native.put_item(**older.fenced_put({"id": "7", "state": "old"}, **write))
    assert orders.native.get_item(TableName=orders.name, Key={"id": "7"})["Item"]["fence"] == newer.fencing_token


@pytest.mark.parametrize("update", ["REMOVE a", "SET", "", "SETTING a = :a"])
def test_an_update_that_does_not_begin_with_set_is_refused(locks: LockClient, entity: str, update: str) -> None:
    lease = locks.acquire(entity)
    with pytest.raises(ValueError, match="begins with SET"):
        lease.fenced_update(update)


@pytest.mark.parametrize("update", ["SET #s = :s", "set #s = :s", "  SET\n  #s = :s", "SET\t#s = :s"])
def test_an_update_may_be_written_in_any_way(locks: LockClient, orders: Orders, entity: str, update: str) -> None:
    lease = locks.acquire(entity)
    names: Any = {"ExpressionAttributeNames": {"#s": "state"}, "ExpressionAttributeValues": {":s": "paid"}}
    write = lease.fenced_update(update, native=True, TableName=orders.name, Key={"id": "7"}, **names)
    orders.native.update_item(**write)
    assert orders.state_of("7") == "paid"


def _note(name: str, state: str) -> dict[str, Any]:
    item = {"pk": {"S": f"note {name}"}, "sk": {"S": "-"}, "state": {"S": state}}
    return {"Put": {"TableName": "locks", "Item": item}}


def _noted(moved: Moved, name: str) -> Any:
    return next(item["state"] for item in moved.memory.items() if item["pk"] == {"S": f"note {name}"})
