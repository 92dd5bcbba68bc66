"""Calls that a type checker has to refuse, for ``test_types``: no program, and checked by nothing else.

The comment of a wrong line has what mypy says there, its code and a part of its message, and after a bar the rule of
pyright. Every other line is right.
"""

from collections.abc import Coroutine
from typing import Any, assert_type

import boto3

from ticketlock import AcquireOptions, Lease, LockClient, aio
from ticketlock.units import Unit, Units

locks = LockClient("locks")
tasks = aio.LockClient("locks")
units = Units("units")
accounts = units.table("accounts")
ANN = {"id": "ann"}
ADD = "SET balance = balance + :n"


def told(lease: Lease) -> None: ...
def told_of_tasks(lease: aio.Lease) -> None: ...


# Options: misspelt, of another type, and where they have no meaning.
locks.acquire("order-42", leese=30)  # call-arg: did you mean "lease"? | reportCallIssue
locks.try_acquire("order-42", leese=30)  # call-arg: did you mean "lease"? | reportCallIssue
locks.acquire_all(["order-42"], permit=2)  # call-arg: did you mean "permits"? | reportCallIssue
locks.lock("order-42", record_weit=3)  # call-arg: did you mean "record_wait"? | reportCallIssue
locks.serialized("order-42", leese=30)  # call-overload: "leese" for | reportCallIssue
tasks.acquire("order-42", leese=30)  # call-arg: did you mean "lease"? | reportCallIssue
tasks.try_acquire("order-42", leese=30)  # call-arg: did you mean "lease"? | reportCallIssue
locks.lock("order-42").acquire(leese=30)  # call-arg: did you mean "lease"? | reportCallIssue
locks.acquire("order-42", timeout=30)  # call-arg: "timeout" | reportCallIssue
locks.try_acquire("order-42", record_wait=3)  # call-arg: "record_wait" | reportCallIssue
locks.lock("order-42", owner="nightly")  # call-arg: "owner" | reportCallIssue
locks.lock("order-42").acquire(namespace="stock")  # call-arg: "namespace" | reportCallIssue
locks.acquire("order-42", lease="30")  # arg-type: expected "float | timedelta | None" | reportArgumentType
locks.acquire(4.2)  # arg-type: "float" | reportArgumentType
locks.acquire("order-42", on_lost=told_of_tasks)  # arg-type: "Callable[[ticketlock.client._lease | reportArgumentType
tasks.acquire("order-42", on_lost=told)  # arg-type: "Callable[[ticketlock.client._for_tasks | reportArgumentType
LockClient("locks", client=boto3.client("stepfunctions"))  # arg-type: "DynamoDBClient | None" | reportArgumentType
options: AcquireOptions[Lease] = {"lease": 30, "on_lost": told}
assert_type(locks.acquire("order-42", **options), Lease)

# Results that may be none.
locks.try_acquire("order-42").release()  # union-attr: "None" | reportOptionalMemberAccess
tasks.acquire("order-42").fencing_token  # attr-defined: "fencing_token" | reportAttributeAccessIssue


# Decorated functions, with the arguments that their callers pass.
@locks.serialized("order-{order_id}")
def ship(order_id: int, carrier: str = "post") -> str:
    return carrier


@locks.serialized("order-{order_id}", lease_as="lease")
def charge(lease: Lease, order_id: int, *, amount: int = 1) -> int:
    return lease.fencing_token + amount


@locks.serialized("order-{order_id}", lease_as="lease", record_wait=0, skip=True)
def report(lease: Lease, order_id: int) -> str:
    return lease.entity


@tasks.serialized("order-{order_id}", lease_as="lease", skip=True)
async def pay(lease: aio.Lease, order_id: int) -> str:
    return lease.entity


class Shop:
    @locks.serialized("order-{order_id}", lease_as="lease")
    def ship(self, lease: Lease, order_id: int) -> str:
        return lease.entity

    @units.transactional()
    def sell(self, unit: Unit, name: str, *, amount: int = 1) -> str:
        return unit.id


ship("42")  # arg-type: expected "int" | reportArgumentType
ship(42, carier="ship")  # call-arg: did you mean "carrier"? | reportCallIssue
charge("42")  # arg-type: expected "int" | reportArgumentType
charge(42, amounts=2)  # call-arg: did you mean "amount"? | reportCallIssue
report(42).upper()  # union-attr: "None" | reportOptionalMemberAccess
Shop().ship("42")  # arg-type: expected "int" | reportArgumentType
assert_type(charge(42, amount=2), int)
assert_type(report(42), str | None)
paid: Coroutine[Any, Any, str | None] = pay(42)
pay(42)  # unused-coroutine: must be used | reportUnusedCoroutine
assert_type(Shop().ship(42), str)


@locks.serialized("order-42", lease_as="lease")  # arg-type: incompatible type | reportArgumentType reportCallIssue
def takes_no_lease(order_id: int) -> None: ...


@units.transactional(tries=3)
def transfer(unit: Unit, giver: str, amount: int = 1) -> int:
    return amount


@units.transactional(name="transfer-{number}")
def once(unit: Unit, number: int) -> int:
    return number


with units.begin() as unit:
    assert_type(transfer(unit, "ann", amount=2), int)
    assert_type(Shop().sell(unit, "tea", amount=2), str)
    transfer(unit, 5)  # call-overload: No overload variant | reportArgumentType reportCallIssue
assert_type(transfer("ann", amount=2), int)
assert_type(Shop().sell("tea"), str)
transfer("ann", amuont=2)  # call-overload: "amuont" for | reportCallIssue
transfer("ann", amount="2")  # call-overload: No overload variant | reportArgumentType
once(1).bit_length()  # union-attr: "None" | reportOptionalMemberAccess
Shop().sell(5)  # call-overload: No overload variant | reportArgumentType


units.transactional(payload=len)  # call-overload: No overload variant | reportCallIssue


@units.transactional()  # arg-type: incompatible type | reportArgumentType reportCallIssue
def takes_no_unit(giver: str) -> None: ...


# Statements.
with units.begin() as unit:
    assert_type(unit.update(accounts, ANN, ADD, {":n": 1}), dict[str, Any])
    assert_type(unit.get_all(accounts, [ANN]), list[dict[str, Any] | None])
    unit.put_all((accounts, item) for item in [ANN])
    unit.put(accounts, ANN)["balance"]  # index: is not indexable | reportOptionalSubscript
    unit.get(accounts, ANN)["balance"]  # index: is not indexable | reportOptionalSubscript
    unit.update(accounts, ANN, "REMOVE x", conditon="balance > 1")  # call-overload: "conditon" for | reportCallIssue
    unit.update(accounts, ANN, "REMOVE x", blind=True)["x"]  # index: is not indexable | reportOptionalSubscript
    unit.get_all(accounts, ANN)  # arg-type: "dict[str, str]" | reportArgumentType
    unit.get_all([("accounts", ANN)])  # list-item: "tuple[str, dict[str, str]]" | reportArgumentType
    unit.query(accounts, "id = :id", "ann")  # arg-type: "str" | reportArgumentType
    unit.delete(accounts, "ann")  # arg-type: "str" | reportArgumentType
