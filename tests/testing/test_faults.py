"""Faults of the DynamoDB in memory: which request meets which, and what it and ticketlock make of it."""

import re
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from kit.units import make_table
from testing.memory_requests import KEY, LEASE_MS, LOCKS, put, putting, stored, table_on

from ticketlock import Claim, Grant, LockName, OutcomeUnknown, RequestNotApplied, TableRefused
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB
from ticketlock.testing._faults import AFFECTED, OPERATIONS

ANSWERS: dict[Fault, tuple[str, int, bool]] = {
    Fault.SERVER_ERROR: ("InternalServerError", 500, False),
    Fault.SERVER_ERROR_AFTER: ("InternalServerError", 500, True),
    Fault.THROTTLED: ("ThrottlingException", 400, False),
    Fault.THROUGHPUT_EXCEEDED: ("ProvisionedThroughputExceededException", 400, False),
    Fault.ACCESS_DENIED: ("AccessDeniedException", 400, False),
    Fault.CONFLICT: ("TransactionConflictException", 400, False),
    Fault.SIGNATURE_EXPIRED: ("InvalidSignatureException", 400, False),
}
"""The code and the status of the reply, and whether the request is applied."""


@pytest.mark.parametrize("fault", ANSWERS)
def test_a_fault_that_is_answered_has_the_services_code_and_status(memory: MemoryDynamoDB, fault: Fault) -> None:
    memory.faults.append(fault)
    with pytest.raises(ClientError) as caught:
        put(memory, "x")
    answer: Any = caught.value.response
    told = answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"], stored(memory) == ["x"]
    assert told == ANSWERS[fault]


@pytest.mark.parametrize(
    ("fault", "error", "found"),
    [(Fault.REQUEST_LOST, ConnectTimeoutError, []), (Fault.REPLY_LOST, ReadTimeoutError, ["x"])],
)
def test_a_request_without_a_reply_was_applied_if_only_the_reply_was_lost(
    memory: MemoryDynamoDB, fault: Fault, error: type[Exception], found: list[str]
) -> None:
    memory.faults.append(fault)
    with pytest.raises(error):
        put(memory, "x")
    assert stored(memory) == found


@pytest.mark.parametrize(("action", "permission"), [("Put", "PutItem"), ("ConditionCheck", "ConditionCheckItem")])
def test_a_denied_transaction_names_the_permission_of_its_first_action(
    memory: MemoryDynamoDB, action: str, permission: str
) -> None:
    what: Any = {"Item": KEY} if action == "Put" else {"Key": KEY, "ConditionExpression": "attribute_exists(pk)"}
    memory.faults.append(Fault.ACCESS_DENIED)
    with pytest.raises(ClientError, match=f"perform: dynamodb:{permission} on resource: .*table/locks"):
        memory.transact_write_items(TransactItems=[{action: {**LOCKS, **what}}])


def test_a_client_that_is_served_raises_its_own_class_of_error(memory: MemoryDynamoDB) -> None:
    client = boto3.client("dynamodb")
    memory.serve(client)
    memory.faults.append(Fault.SERVER_ERROR_AFTER)
    with pytest.raises(client.exceptions.InternalServerError):
        client.put_item(TableName="locks", Item={"pk": {"S": "a"}, "sk": {"S": "b"}})
    assert stored(memory) == ["b"]


# Which request meets which.


def outcomes(memory: MemoryDynamoDB, *names: str) -> list[str]:
    """What becomes of a put of each item: a dot, or the letters of a throttled or denied one."""
    found = []
    for name in names:
        try:
            put(memory, name)
            found.append(".")
        except ClientError as error:
            found.append({"ThrottlingException": "T", "AccessDeniedException": "D"}[error.response["Error"]["Code"]])
    return found


def test_a_fault_of_an_operation_waits_for_the_next_one(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.THROTTLED.on("TransactWriteItems"))
    put(memory, "x")
    with pytest.raises(ClientError, match="Throttling"):
        memory.transact_write_items(TransactItems=[putting("y")])
    memory.transact_write_items(TransactItems=[putting("z")])
    assert stored(memory) == ["x", "z"]


OF_ORDERS = {"TableName": "orders", "Key": {"id": {"S": "1"}}}
REQUESTS: dict[str, Any] = {
    "get_item": OF_ORDERS,
    "batch_get_item": {"RequestItems": {"locks": {"Keys": [KEY]}, "orders": {"Keys": [OF_ORDERS["Key"]]}}},
    "transact_get_items": {"TransactItems": [{"Get": {**LOCKS, "Key": KEY}}, {"Get": OF_ORDERS}]},
}


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_fault_of_a_table_waits_for_a_request_that_names_it(memory: MemoryDynamoDB, operation: str) -> None:
    make_table(memory, "orders", {"id": "S"})
    memory.faults.append(Fault.THROTTLED.on(table="orders"))
    put(memory, "x")
    with pytest.raises(ClientError, match="Throttling"):
        getattr(memory, operation)(**REQUESTS[operation])
    getattr(memory, operation)(**REQUESTS[operation])


@pytest.mark.parametrize(("nth", "found"), [(1, "T..."), (2, ".T.."), (4, "...T"), (5, "....")])
def test_a_fault_meets_the_nth_of_its_requests(memory: MemoryDynamoDB, nth: int, found: str) -> None:
    memory.faults.append(Fault.THROTTLED.on("PutItem", nth=nth))
    memory.get_item(**LOCKS, Key=KEY)
    assert "".join(outcomes(memory, "a", "b", "c", "d")) == found


@pytest.mark.parametrize(("throttled", "denied"), [(2, 3), (3, 2)])
def test_each_of_several_faults_counts_all_requests_from_now_on(
    memory: MemoryDynamoDB, throttled: int, denied: int
) -> None:
    memory.faults += [Fault.THROTTLED.on("PutItem", nth=throttled), Fault.ACCESS_DENIED.on(nth=denied)]
    found = outcomes(memory, "a", "b", "c", "d")
    assert (found[throttled - 1], found[denied - 1], found.count(".")) == ("T", "D", 2)
    assert not memory.faults


def test_none_lets_one_request_pass_also_in_an_outage(memory: MemoryDynamoDB) -> None:
    memory.faults.extend([None, Fault.THROTTLED, None])
    with memory.outage(Fault.ACCESS_DENIED):
        assert outcomes(memory, "a", "b", "c", "d") == [".", "T", ".", "D"]


def test_an_outage_begins_with_its_nth_request_and_the_one_around_it_goes_on(memory: MemoryDynamoDB) -> None:
    with memory.outage(Fault.THROTTLED):
        with memory.outage(Fault.ACCESS_DENIED.on("PutItem", nth=2)):
            assert outcomes(memory, "a", "b", "c") == [".", "D", "D"]
        assert outcomes(memory, "d") == ["T"]
    assert outcomes(memory, "e") == ["."]


def test_faults_may_name_each_operation_of_the_client(memory: MemoryDynamoDB) -> None:
    methods = {name for name in dir(memory) if name in dir(boto3.client("dynamodb")) and name[0] != "_"}
    named = {re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower() for operation in OPERATIONS}
    others = {"can_paginate", "close", "exceptions", "generate_presigned_url", "get_paginator", "get_waiter", "meta"}
    assert named == methods - {*others, "waiter_names"}


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        (Fault.THROTTLED, "TransactWrite"),
        (Fault.THROTTLED, "put_item"),
        (Fault.CONFLICT, "GetItem"),
        (Fault.TOKEN_FORGOTTEN, "PutItem"),
    ],
)
def test_an_operation_that_the_fault_does_not_affect_is_refused_by_name(fault: Fault, wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"operation is '{wrong}'; allowed for .*TransactWriteItems") as refused:
        fault.on(wrong)
    assert all(name in str(refused.value) for name in AFFECTED.get(fault, OPERATIONS))


@pytest.mark.parametrize("nth", [0, -1, True, 1.5, "1"])
def test_a_fault_counts_in_whole_numbers_from_one_on(nth: Any) -> None:
    with pytest.raises(ValueError, match="nth is"):
        Fault.THROTTLED.on(nth=nth)


# What ticketlock makes of them.


def test_faults_that_pass_are_retried(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    table = table_on(memory, clock)
    lasting = (Fault.ACCESS_DENIED, Fault.SIGNATURE_EXPIRED, Fault.TOKEN_FORGOTTEN)
    memory.faults.extend(fault for fault in Fault if fault not in lasting)
    assert isinstance(table.take_ticket(Claim(LockName("order-42"), "me", LEASE_MS), None), Grant)
    assert not memory.faults
    (item,) = memory.items()
    assert item["held"] == {"N": "1"}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.REQUEST_LOST, RequestNotApplied),
        (Fault.THROTTLED, RequestNotApplied),
        (Fault.CONFLICT, RequestNotApplied),
        (Fault.THROUGHPUT_EXCEEDED, RequestNotApplied),
        (Fault.REPLY_LOST, OutcomeUnknown),
        (Fault.SERVER_ERROR, OutcomeUnknown),
        (Fault.SERVER_ERROR_AFTER, OutcomeUnknown),
        (Fault.ACCESS_DENIED, TableRefused),
    ],
)
def test_an_outage_is_given_up_on(memory: MemoryDynamoDB, clock: ManualClock, fault: Fault, error: type) -> None:
    table = table_on(memory, clock)
    table.now()
    claim = Claim(LockName("order-42"), "me", LEASE_MS)
    with memory.outage(fault), pytest.raises(error):
        table.take_ticket(claim, None)
    assert isinstance(table.take_ticket(claim, None), Grant)
