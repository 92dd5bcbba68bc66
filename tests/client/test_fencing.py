"""The fencing token in a user's own writes: it refuses a former holder's."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from kit.places import Emulated, Moved, some_entity

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


def note(name: str, state: str) -> dict[str, Any]:
    """A Put into the lock table in memory."""
    item = {"pk": {"S": f"note {name}"}, "sk": {"S": "-"}, "state": {"S": state}}
    return {"Put": {"TableName": "locks", "Item": item}}


@EITHER
def test_a_transaction_with_the_holders_check_is_applied_after_a_renewal_too(
    locks: LockClient, orders: Orders, entity: str, native: bool
) -> None:
    lease = locks.acquire(entity)
    items = [lease.condition_check(native=native), orders.put("7", "paid", native=native)]
    lease.renew()
    orders.of(native).transact_write_items(TransactItems=items)
    assert orders.state_of("7") == "paid"


@EITHER
@pytest.mark.parametrize("is_released", [False, True], ids=["another owner got the lock", "it was released"])
def test_a_transaction_of_a_former_holder_is_refused(
    place: Emulated, locks: LockClient, others: LockClient, orders: Orders, entity: str, native: bool, is_released: bool
) -> None:
    lease = locks.acquire(entity)
    if is_released:
        lease.release()
    else:
        place.lose(entity)
        others.acquire(entity)
    items = [lease.condition_check(native=native), orders.put("7", "paid", native=native)]
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.of(native).transact_write_items(TransactItems=items)
    assert orders.state_of("7") is None


def test_transact_write_writes_the_items_of_any_iterator_while_the_lock_is_held(
    locks: LockClient, orders: Orders, entity: str
) -> None:
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


@pytest.mark.parametrize("faults", [[Fault.CONFLICT] * 4, [Fault.REPLY_LOST]], ids=["waiters' writes", "a lost reply"])
def test_transact_write_is_retried_after_conflicts_or_a_lost_reply_and_applied_once(
    moved: Moved, entity: str, faults: list[Fault]
) -> None:
    lease = moved.client().acquire(entity)
    moved.memory.faults.extend(faults)
    once = note("7", "paid")
    once["Put"]["ConditionExpression"] = "attribute_not_exists(pk)"
    lease.transact_write([once])
    assert next(item["state"] for item in moved.memory.items() if item["pk"] == {"S": "note 7"}) == {"S": "paid"}


def test_transact_write_gives_up_after_its_patience(moved: Moved, entity: str) -> None:
    lease = moved.client(lease=3_600).acquire(entity)
    with moved.time_flies(), moved.memory.outage(Fault.CONFLICT), pytest.raises(RequestNotApplied):
        lease.transact_write([note("7", "paid")], patience=2)
    assert lease.is_held()


def test_transact_write_names_the_tables_if_one_does_not_exist(moved: Moved, entity: str) -> None:
    lease = moved.client().acquire(entity)
    elsewhere = {"Put": {"TableName": "orders", "Item": {"pk": {"S": "7"}, "sk": {"S": "-"}}}}
    with pytest.raises(TableNotFound, match="one of the tables 'locks', 'orders' does not exist in this account"):
        lease.transact_write([elsewhere])


def put(orders: Orders, lease: Any, state: str, *, native: bool) -> None:
    item = orders.item("7", state, native=native)
    orders.of(native).put_item(**lease.fenced_put(item, native=native, TableName=orders.name))


def update(orders: Orders, lease: Any, state: str, *, native: bool) -> None:
    item = orders.item("7", state, native=native)
    names = {"ExpressionAttributeNames": {"#s": "state"}, "ExpressionAttributeValues": {":s": item["state"]}}
    key = {"TableName": orders.name, "Key": {"id": item["id"]}}
    orders.of(native).update_item(**lease.fenced_update("SET #s = :s", native=native, **key, **names))


@EITHER
@pytest.mark.parametrize("write", [put, update])
def test_a_write_with_an_older_token_is_refused(
    older_and_newer: tuple[Any, Any], orders: Orders, native: bool, write: Callable[..., None]
) -> None:
    older, newer = older_and_newer
    write(orders, newer, "new", native=native)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        write(orders, older, "old", native=native)
    assert orders.state_of("7") == "new"


def test_the_same_holder_and_the_next_one_may_put_again(older_and_newer: tuple[Any, Any], orders: Orders) -> None:
    older, newer = older_and_newer
    for lease, state in [(older, "a"), (older, "b"), (newer, "c")]:
        put(orders, lease, state, native=True)
    assert orders.state_of("7") == "c"


def test_a_users_own_condition_must_hold_too_and_does_not_let_an_older_token_through(
    older_and_newer: tuple[Any, Any], orders: Orders
) -> None:
    older, newer = older_and_newer

    def put_if(lease: Any, condition: str) -> None:
        write = lease.fenced_put({"id": "7"}, native=True, TableName=orders.name, ConditionExpression=condition)
        orders.native.put_item(**write)

    put_if(newer, "attribute_not_exists(id)")
    # An OR in the user's condition must not bypass the token.
    for lease, condition in [
        (newer, "attribute_not_exists(id)"),
        (older, "attribute_exists(id) OR attribute_not_exists(id)"),
    ]:
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            put_if(lease, condition)


def test_the_token_may_be_stored_in_an_attribute_of_another_name(
    older_and_newer: tuple[Any, Any], orders: Orders
) -> None:
    older, newer = older_and_newer
    write = {"native": True, "attribute": "fence", "TableName": orders.name}
    orders.native.put_item(**newer.fenced_put({"id": "7"}, **write))
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.native.put_item(**older.fenced_put({"id": "7"}, **write))
    assert orders.native.get_item(TableName=orders.name, Key={"id": "7"})["Item"]["fence"] == newer.fencing_token


@pytest.mark.parametrize("text", ["REMOVE a", "SET", "", "SETTING a = :a"])
def test_an_update_that_does_not_begin_with_set_is_refused(locks: LockClient, entity: str, text: str) -> None:
    lease = locks.acquire(entity)
    with pytest.raises(ValueError, match="begins with SET"):
        lease.fenced_update(text)


@pytest.mark.parametrize("text", ["SET #s = :s", "set #s = :s", "  SET\n  #s = :s", "SET\t#s = :s"])
def test_the_set_of_an_update_may_be_in_any_case_and_between_any_white_space(
    locks: LockClient, orders: Orders, entity: str, text: str
) -> None:
    lease = locks.acquire(entity)
    names: Any = {"ExpressionAttributeNames": {"#s": "state"}, "ExpressionAttributeValues": {":s": "paid"}}
    write = lease.fenced_update(text, native=True, TableName=orders.name, Key={"id": "7"}, **names)
    orders.native.update_item(**write)
    assert orders.state_of("7") == "paid"
