"""The example in examples/orders, deployed by the CDK to the emulator."""

import uuid
from itertools import pairwise
from pathlib import Path

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


def ticket(orders: Cloud, arn: str) -> int:
    """The ticket for its product: the emulator's history does not show a Map's iterations."""
    (drawn,) = {line["ticket"] for line in orders.log_lines("take_ticket", arn) if line["namespace"] == PRODUCTS}
    return int(drawn)


def test_orders_of_one_product_reserve_it_one_at_a_time_in_ticket_order(orders: Cloud, sku: str) -> None:
    arns = [order(orders, [sku], seconds=0.3) for _ in range(6)]
    ended = [orders.ended(arn) for arn in arns]
    assert {each.status for each in ended} == {"SUCCEEDED"}
    by_ticket = sorted(ended, key=lambda each: ticket(orders, each.arn))
    reserved = [item for each in by_ticket for item in each.output["reserved"]]
    assert [item["reservedInAll"] for item in reserved] == [1, 2, 3, 4, 5, 6]
    assert all(before["endedMs"] <= after["beganMs"] for before, after in pairwise(reserved))
    assert orders.got("ShopTableName", f"product/{sku}")["reserved"] == 6
    assert orders.is_free(sku, PRODUCTS)


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
    owes = orders.got("ShopTableName", f"customer/{customer}")
    assert owes["owed"] == 6
    assert owes["lockToken"] == max(each.output["fencingToken"] for each in ended)
    assert orders.is_free(customer, CUSTOMERS)


def test_a_charge_that_is_refused_fails_the_order_and_frees_the_lock(orders: Cloud, sku: str) -> None:
    customer = uuid.uuid4().hex
    assert orders.ended(order(orders, [sku], quantity=999, customer=customer)).status == "SUCCEEDED"
    refused = orders.ended(order(orders, [sku], quantity=2, customer=customer))
    assert refused.status == "FAILED"
    assert f"{customer} owes too much" in refused.cause
    assert orders.got("ShopTableName", f"customer/{customer}")["owed"] == 999
    assert orders.is_free(customer, CUSTOMERS)
