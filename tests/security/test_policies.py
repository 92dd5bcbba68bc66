"""The library with the policies of the pages: what it needs is allowed, and nothing else is."""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types
from botocore.exceptions import ClientError
from kit.pages import blocks, text
from kit.policy import Guarded, Statement, allows, asked_by, listed
from security.workflows import Table

from ticketlock import Claim, Grant, LockName, LockTable, TableRefused
from ticketlock.locks._fencing import condition_check
from ticketlock.locks._items import Session, row_key
from ticketlock.report import AtMost, TableReader
from ticketlock.wire._step_functions import TaskAnswer

LEASE_MS = 60_000
OURS = LockName("tenant-a/order-42")


def of_template(name: str) -> list[Statement]:
    body = text("examples/locks.yaml")
    statements: list[Statement] = yaml.safe_load(body)["Resources"][name]["Properties"]["PolicyDocument"]["Statement"]
    return statements


def confined() -> list[Statement]:
    (body,) = blocks("docs/threat-model.md", "json")
    statements: list[Statement] = json.loads(body)
    return statements


def use(table: LockTable, lock: LockName, pass_time: Callable[[float], None]) -> None:
    """All requests of a client for a lock: alone, in the queue, behind crashed owners."""
    me, other, dying = (Claim(lock, owner, LEASE_MS) for owner in ("me", "other", "dying"))
    grant = table.take_ticket(me, None)
    assert isinstance(grant, Grant)
    table.renew(me, grant.fencing_token)
    check: Any = condition_check("locks", lock, "me", grant.fencing_token, native=False)
    own_write: Any = {"Delete": {"TableName": "locks", "Key": {"pk": {"S": lock.entity}, "sk": {"S": "own"}}}}
    table.client.transact_write_items(TransactItems=[check, own_write])
    table.set_data(me, grant.fencing_token, "seen")
    for claim in (dying, other):
        found = table.take_ticket(claim, None)
    # The leases of the holder and of the first waiter end.
    while not isinstance(found, Grant):
        pass_time(LEASE_MS * 0.4 / 1_000)
        found = table.check_turn(other, found.place, None)
    waits = table.take_ticket(me, None)
    assert not isinstance(waits, Grant)
    table.withdraw(me, waits.place.ticket)
    table.release(other, found, data_left="left")
    table.set_limit(lock, 2)
    assert isinstance(table.take_ticket(Claim(lock, "again", LEASE_MS), None), Grant)
    _, resumed = table.resume(lock, "again", LEASE_MS)
    table.force_release(lock, resumed.fencing_token)


@pytest.mark.parametrize("policy", [partial(of_template, "UseLocks"), confined], ids=["UseLocks", "confined"])
def test_every_request_of_a_client_for_its_locks_is_allowed(
    policy: Callable[[], list[Statement]], table: Table
) -> None:
    guarded = Guarded(table.memory, policy())
    use(table.over(guarded), OURS, table.clock.advance)
    assert guarded.refused == []


def actions(policy: str) -> list[str]:
    return [action for each in of_template(policy) for action in listed(each["Action"])]


def without(policy: str, action: str) -> list[Statement]:
    return [
        {**each, "Action": [one for one in listed(each["Action"]) if one != action]} for each in of_template(policy)
    ]


def read(table: LockTable, lock: LockName, _pass_time: Callable[[float], None]) -> None:
    """All requests of an operator who only reads."""
    table.inspect(lock)
    list(table.list_locks())


@pytest.mark.parametrize(
    ("policy", "does", "action"),
    [
        *(("UseLocks", use, action) for action in sorted(set(actions("UseLocks")))),
        *(("ReadLocks", read, action) for action in actions("ReadLocks")),
    ],
)
def test_without_any_one_of_its_actions_a_policy_is_not_enough(
    policy: str, does: Callable[..., None], action: str, table: Table
) -> None:
    client = table.over(Guarded(table.memory, without(policy, action)))
    with pytest.raises((ClientError, TableRefused), match=f"not authorized to perform: {action}$"):
        does(client, OURS, table.clock.advance)


def test_a_client_wakes_the_workflow_that_waits_behind_it(table: Table) -> None:
    guarded = Guarded(table.memory, of_template("UseLocks"))
    client, me = table.over(guarded), Claim(OURS, "me", LEASE_MS)
    grant = client.take_ticket(me, None)
    assert isinstance(grant, Grant)
    table.execution("waiter").asks(OURS.entity).parks("its token")
    client.release(me, grant)
    assert table.tasks.answers == [TaskAnswer("its token")]
    assert guarded.refused == []


def test_a_client_that_may_not_check_sessions_leaves_the_row_of_one_that_has_gone_and_wakes_the_next(
    table: Table,
) -> None:
    """The check would return the session, with the token of a heartbeat. A function shortens the row."""
    guarded = Guarded(table.memory, of_template("UseLocks"))
    client, me = table.over(guarded), Claim(OURS, "me", LEASE_MS)
    grant = client.take_ticket(me, None)
    assert isinstance(grant, Grant)
    gone, waiter = (table.execution(name).asks(OURS.entity).parks(f"token of {name}") for name in ("gone", "waiter"))
    table.tasks.gone.add("token of gone")
    row = row_key(OURS, gone.turn["place"]["ticket"])
    far = {":far": {"N": f"{10**13}"}}
    table.memory.update_item(
        TableName="locks", Key=row, UpdateExpression="SET leaseUntilMs = :far", ExpressionAttributeValues=far
    )

    def ends_ms() -> int:
        return client.inspect(OURS).rows[0].lease_until_ms

    client.release(me, grant)
    assert table.tasks.answered == ["token of waiter"]
    assert [asked.action for asked in guarded.refused] == ["dynamodb:ConditionCheckItem"]
    assert ends_ms() == 10**13
    waiter.parks("its next token")
    assert ends_ms() < 10**13


def session_of(table: Table) -> Any:
    execution = table.execution("holder").asks(OURS.entity)
    execution.beats("a heartbeat's token")
    return Session(execution.arn, "serialize").key()


@pytest.mark.parametrize("policy", ["UseLocks", "ReadLocks"])
@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("get_item", {}),
        ("get_item", {"ProjectionExpression": "wakeUpToken"}),
        ("put_item", {}),
        ("delete_item", {}),
        ("update_item", {"UpdateExpression": "SET finishedToken = :token"}),
    ],
)
def test_no_policy_allows_writing_a_session_or_reading_it_by_its_key(
    policy: str, operation: str, more: dict[str, str], table: Table
) -> None:
    key = session_of(table)
    parameters = {"Item" if operation == "put_item" else "Key": key, **more}
    (asked,) = asked_by(operation, parameters)
    assert not allows(of_template(policy), asked)


NAMED = {"Select": "SPECIFIC_ATTRIBUTES"}


@pytest.mark.parametrize("policy", ["UseLocks", "ReadLocks"])
@pytest.mark.parametrize("operation", ["query", "scan"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"Select": "ALL_ATTRIBUTES"},
        {"AttributesToGet": ["pk", "taskToken"], **NAMED},
        {"ProjectionExpression": "pk, sk, taskToken", **NAMED},
        {"ProjectionExpression": "pk, sk, taskToken[0], waiting", **NAMED},
        {"ProjectionExpression": "pk, sk, finishedToken", **NAMED},
        {"ProjectionExpression": "pk, sk, #t", "ExpressionAttributeNames": {"#t": "taskToken"}, **NAMED},
        # Values that it does not receive it could guess with conditions, letter by letter.
        {"ProjectionExpression": "pk", "FilterExpression": "begins_with(taskToken, :x)", **NAMED},
        {
            "ProjectionExpression": "pk",
            "FilterExpression": "pk = :pk AND NOT #t < :x",
            "ExpressionAttributeNames": {"#t": "taskToken"},
            **NAMED,
        },
        {"FilterExpression": "size(taskToken) > :x", "Select": "COUNT"},
    ],
)
def test_no_policy_allows_reading_the_token_of_a_heartbeat(
    policy: str, operation: str, more: dict[str, Any], table: Table
) -> None:
    key = session_of(table)
    of_one = {"KeyConditionExpression": "pk = :partition", "ExpressionAttributeValues": {":partition": key["pk"]}}
    (asked,) = asked_by(operation, {**(of_one if operation == "query" else {}), **more})
    assert not allows(of_template(policy), asked)


def test_the_same_read_without_the_token_is_allowed(table: Table) -> None:
    key = session_of(table)
    of_one = {"KeyConditionExpression": "#k = :partition", "ExpressionAttributeValues": {":partition": key["pk"]}}
    aliases = {"ExpressionAttributeNames": {"#k": "pk", "#t": "wakeUpToken"}}
    query = {**of_one, **aliases, "ProjectionExpression": "#k, sk, #t", "FilterExpression": "#t > :x", **NAMED}
    assert all(allows(of_template("UseLocks"), asked) for asked in asked_by("query", query))
    scan = {"ProjectionExpression": "pk, sk, waiting", "FilterExpression": "held BETWEEN :x AND :y", **NAMED}
    assert all(allows(of_template("ReadLocks"), asked) for asked in asked_by("scan", scan))


def test_a_client_lists_nothing(table: Table) -> None:
    client = table.over(Guarded(table.memory, of_template("UseLocks")))
    with pytest.raises(TableRefused, match=r"dynamodb:Scan"):
        list(client.list_locks())


def test_an_operator_reads_and_lists_and_writes_nothing(table: Table) -> None:
    table.execution("holder").asks(OURS.entity)
    guarded = Guarded(table.memory, of_template("ReadLocks"))
    operator = table.over(guarded)
    seen = operator.inspect(OURS)
    assert seen.item is not None
    assert [each.lock for each in operator.list_locks()] == [OURS]
    for at_most in (None, AtMost()):
        reading = TableReader(table=operator, units=None, at_most=at_most).read(whole=1)
        assert [(each.lock.lock, each.front is not None) for each in reading.locks] == [(OURS, True)]
    assert guarded.refused == []
    with pytest.raises(TableRefused, match="UpdateItem"):
        operator.force_release(OURS, seen.item.fencing_token)


@pytest.mark.parametrize(
    "entity", ["tenant-b/order-42", "tenant-ab", "tenant-a", "session#x", "/", "Tenant-a/order-42"]
)
def test_a_confined_client_reaches_no_lock_of_others(entity: str, table: Table) -> None:
    other = LockName(entity)
    client = table.over(Guarded(table.memory, confined()))
    for attempt in (
        lambda: client.take_ticket(Claim(other, "me", LEASE_MS), None),
        lambda: client.inspect(other),
        lambda: client.set_limit(other, 0),
    ):
        with pytest.raises(TableRefused, match="not authorized"):
            attempt()
    with pytest.raises(TableRefused, match="dynamodb:Scan"):
        list(client.list_locks())
    assert table.memory.items() == []


def test_a_confined_client_wakes_no_workflow_which_then_polls_by_itself(table: Table) -> None:
    client, me = table.over(Guarded(table.memory, confined())), Claim(OURS, "me", LEASE_MS)
    grant = client.take_ticket(me, None)
    assert isinstance(grant, Grant)
    waiter = table.execution("waiter").asks(OURS.entity).parks("its token")
    client.release(me, grant)
    assert table.tasks.answers == []
    assert table.workflow.check_position(waiter.event("CheckPosition")).reply["status"] == "granted"


def test_the_pattern_of_the_page_ends_with_a_separator() -> None:
    """Without it, tenant-a's client would reach tenant-ab."""
    assert re.findall(r'"dynamodb:LeadingKeys": \["([^"]+)\*"\]', text("docs/threat-model.md")) == ["tenant-a/"]
