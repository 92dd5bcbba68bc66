"""The example in examples/orders, deployed by the CDK to the emulator."""

import uuid
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from e2e.cloud import Cloud
from ticketlock_local.cloud.deploy import deploy
from ticketlock_local.engines.emulator import Emulator

pytestmark = pytest.mark.verify("a deployment of its own")

APP = Path(__file__).parents[2] / "examples" / "orders" / "app.py"
PRODUCTS, CUSTOMERS = "products", "customers"


@pytest.fixture(scope="module")
def orders(emulator: Emulator) -> Cloud:
    outputs = deploy(emulator, app=APP, stack="Orders")
    deployed = Cloud(
        emulator.endpoint,
        {
            "StateMachineArn": outputs["OrderWorkflowArn"],
            "TableName": outputs["LockTableName"],
            "ShopTableName": outputs["ShopTableName"],
        },
    )
    # The lock is measured, not how fast the emulator starts processes.
    warm_up = [order(deployed, ["warm", "warm"]) for _ in range(2)]
    assert {deployed.ended(arn).status for arn in warm_up} == {"SUCCEEDED"}
    return deployed


@pytest.fixture
def sku() -> str:
    return f"tea-{uuid.uuid4().hex}"


def order(orders: Cloud, skus: list[str], *, seconds: float = 0, quantity: int = 1, customer: str = "") -> str:
    """Start an execution; returns its ARN."""
    return orders.start(
        {
            "orderId": uuid.uuid4().hex,
            "customer": customer or uuid.uuid4().hex,
            "secondsAnItem": seconds,
            "items": [{"sku": sku, "quantity": quantity} for sku in skus],
        }
    )


def ticket(orders: Cloud, arn: str, namespace: str = PRODUCTS) -> int:
    """The ticket of an execution with one item: the emulator's history does not show a Map's iterations."""
    lines = [line for line in orders.log_lines("take_ticket", arn) if line["namespace"] == namespace]
    [drawn] = {line["ticket"] for line in lines}
    assert isinstance(drawn, int)
    return drawn


def shop(orders: Cloud, id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = orders.dynamodb.get_item(
        TableName=orders.outputs["ShopTableName"], Key={"id": {"S": id}}, ConsistentRead=True
    )["Item"]
    return found


def is_free(orders: Cloud, entity: str, namespace: str) -> bool:
    state = orders.lock(entity, namespace)
    return state.item is not None and (state.item.held, state.rows) == (0, ())


def test_orders_of_one_product_reserve_it_one_at_a_time_in_ticket_order(orders: Cloud, sku: str) -> None:
    arns = [order(orders, [sku], seconds=0.3) for _ in range(6)]
    ended = [orders.ended(arn) for arn in arns]
    assert {each.status for each in ended} == {"SUCCEEDED"}
    by_ticket = sorted(ended, key=lambda each: ticket(orders, each.arn))
    reserved = [item for each in by_ticket for item in each.output["reserved"]]
    assert [item["reservedInAll"] for item in reserved] == [1, 2, 3, 4, 5, 6]
    assert all(before["endedMs"] <= after["beganMs"] for before, after in pairwise(reserved))
    assert shop(orders, f"product/{sku}")["reserved"]["N"] == "6"
    assert is_free(orders, sku, PRODUCTS)


def test_orders_of_different_products_do_not_wait_for_each_other(orders: Cloud) -> None:
    arns = [order(orders, [uuid.uuid4().hex], seconds=2) for _ in range(2)]
    (first,), (second,) = (orders.ended(arn).output["reserved"] for arn in arns)
    assert first["beganMs"] < second["endedMs"]
    assert second["beganMs"] < first["endedMs"]


def test_an_order_that_names_a_product_twice_waits_for_itself_and_not_for_ever(orders: Cloud, sku: str) -> None:
    ended = orders.ended(order(orders, [sku, sku, sku], quantity=2))
    assert ended.status == "SUCCEEDED"
    assert sorted(item["reservedInAll"] for item in ended.output["reserved"]) == [2, 4, 6]
    assert ended.output["receipt"] == {"amount": 6}


def test_a_customer_is_charged_once_an_order_with_the_fencing_token_of_the_lock(orders: Cloud, sku: str) -> None:
    customer = uuid.uuid4().hex
    arns = [order(orders, [sku], quantity=3, customer=customer) for _ in range(2)]
    ended = [orders.ended(arn) for arn in arns]
    assert [each.output["receipt"] for each in ended] == [{"amount": 3}, {"amount": 3}]
    owes = shop(orders, f"customer/{customer}")
    assert owes["owed"]["N"] == "6"
    assert int(owes["lockToken"]["N"]) == max(each.output["fencingToken"] for each in ended)
    assert is_free(orders, customer, CUSTOMERS)


def test_a_charge_that_is_refused_fails_the_order_and_frees_the_lock(orders: Cloud, sku: str) -> None:
    customer = uuid.uuid4().hex
    assert orders.ended(order(orders, [sku], quantity=999, customer=customer)).status == "SUCCEEDED"
    refused = orders.ended(order(orders, [sku], quantity=2, customer=customer))
    assert refused.status == "FAILED"
    assert f"{customer} owes too much" in (refused.cause or "")
    assert shop(orders, f"customer/{customer}")["owed"]["N"] == "999"
    assert is_free(orders, customer, CUSTOMERS)


def test_an_order_that_is_stopped_while_it_waits_leaves_the_queue(orders: Cloud, sku: str) -> None:
    holder = order(orders, [sku], seconds=5)
    orders.wait_until(lambda: bool(held(orders, sku)), f"a holder of {sku}")
    stopped = order(orders, [sku])
    orders.wait_until(lambda: len(orders.lock(sku, PRODUCTS).rows) == 1, f"{stopped} to queue")
    orders.stop(stopped)
    # By the rule that `attach` created; otherwise a stopped waiter delays the others by a lease.
    orders.wait_until(lambda: orders.lock(sku, PRODUCTS).rows == (), f"{stopped} to leave")
    assert orders.described(holder)["status"] == "RUNNING"
    assert orders.ended(holder).status == "SUCCEEDED"


def held(orders: Cloud, sku: str) -> int:
    item = orders.lock(sku, PRODUCTS).item
    return 0 if item is None else item.held
