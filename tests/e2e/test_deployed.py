"""The deployed stack, end to end: started as a user starts it, observed from outside."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from e2e.cloud import NOTHING, SHORT_LEASE_S, Cloud, Ended
from e2e.roles import Role
from kit.kept import Kept
from kit.lock_history import events_of
from kit.parsed import Parsed

from ticketlock import Claim, Grant, LockName, Position
from ticketlock.locks._items import row_key

pytestmark = pytest.mark.shows("exclusion")

EXECUTIONS = 10
LONG_S = 120
"""Of work that is stopped when the test has seen what it asks."""

IN_ANOTHER_STACK = pytest.mark.verify("another deployment, whose leases end")


def all_succeeded(kept: Kept, cloud: Cloud, *arns: str) -> list[Ended]:
    """Wait for the ends of executions, all of which succeed, and keep their histories."""
    ended = [cloud.ended(arn) for arn in arns]
    kept.write(event for arn in arns for event in events_of(cloud.story(arn)))
    assert [each.status for each in ended] == ["SUCCEEDED"] * len(arns)
    assert all(each.held_until_ms is not None for each in kept.read().acquisitions)
    return ended


def by_grant(ended: list[Ended]) -> list[Any]:
    """The outputs of executions in the order in which they were granted the lock."""
    return sorted((each.output for each in ended), key=lambda output: output["lock"]["fencingToken"])


def test_ten_executions_on_one_entity_run_one_at_a_time_in_the_order_of_their_tickets(
    either: Cloud, entity: str, kept: Kept
) -> None:
    ended = all_succeeded(kept, either, *(either.sleep(entity, 0.3) for _ in range(EXECUTIONS)))
    assert len({each.ticket for each in ended}) == EXECUTIONS
    assert all(earlier["endedMs"] <= later["startedMs"] for earlier, later in pairwise(by_grant(ended)))
    kept.check({entity: either.lock(entity)})


def test_executions_on_several_entities_run_side_by_side(cloud: Cloud, entity: str) -> None:
    holder = cloud.nest(f"{entity}/0", LONG_S)
    cloud.wait_until_held(f"{entity}/0")
    assert cloud.ended(cloud.sleep(f"{entity}/1")).status == "SUCCEEDED"
    assert cloud.described(holder)["status"] == "RUNNING"
    cloud.stop(holder)


def test_the_work_gets_its_input_and_the_lock_and_its_output_is_the_output(cloud: Cloud, entity: str) -> None:
    # The example returns its input.
    task = {"stateMachineArn": cloud.outputs["ExampleTargetArn"]}
    work_input = {"order": {"lines": [1, 2.5, None]}, "name": "Ærø", "seconds": 1}
    asked = {"entity": entity, "namespace": "pay", "recordWaitSeconds": "Infinity"}
    ended = cloud.run({**asked, "task": {**task, "input": work_input}})
    assert ended.status == "SUCCEEDED"
    lock = ended.output.pop("lock")
    assert ended.output == work_input
    item = cloud.item(entity, "pay")
    assert lock == {"entity": entity, "namespace": "pay", "owner": ended.arn, "fencingToken": item.fencing_token}
    assert set(cloud.run({"entity": entity, "task": task}).output) == {"lock"}


def test_the_next_one_runs_after_work_that_failed(cloud: Cloud, entity: str) -> None:
    task = {"functionArn": cloud.failing_function, "input": {"colour": "blue"}}
    failing, next_one = cloud.start({"entity": entity, "task": task}), cloud.sleep(entity, 0)
    ended = cloud.ended(failing)
    assert (ended.status, cloud.ended(next_one).status) == ("FAILED", "SUCCEEDED")
    # Its name should be OutOfPaint; the emulator uses the same name for every handler's exception.
    assert ended.error
    assert "there is no more blue" in ended.cause
    # The clean-up, which gets the event of every failure, finds nothing to do.
    assert cloud.cleaned_up(failing) == NOTHING
    assert cloud.is_free(entity)


NOT_A_TARGET = {"functionArn": "arn:aws:lambda:us-east-1:000000000000:function:other"}


@pytest.mark.parametrize(
    ("change", "error", "field"),
    [
        ({"colour": "blue"}, "InvalidLockRequest", "colour"),
        ({"task": NOT_A_TARGET}, "TaskNotAllowed", "task.functionArn"),
    ],
)
def test_a_refused_input_fails_by_name_and_writes_nothing(
    change: Any, error: str, field: str, cloud: Cloud, entity: str
) -> None:
    valid = {"entity": entity, "task": {"functionArn": cloud.outputs["ExampleFunctionArn"], "input": {"seconds": 0}}}
    before = keys(cloud)
    ended = cloud.run({**valid, **change})
    assert (ended.status, ended.error) == ("FAILED", error)
    assert ended.cause.startswith(f"{field} is ")
    assert "; allowed" in ended.cause
    assert keys(cloud) <= before


@pytest.mark.parametrize(
    ("kind", "output", "error"),
    [
        # The emulator's name for every error of a function.
        ("functionArn", "ExampleFunctionArn", "Runtime.HandlerError"),
        ("stateMachineArn", "ExampleTargetArn", "ExampleFailed"),
    ],
)
def test_an_example_fails_if_its_input_says_so_and_the_lock_is_free_then(
    kind: str, output: str, error: str, cloud: Cloud, entity: str
) -> None:
    task = {kind: cloud.outputs[output], "input": {"seconds": 0, "fail": "sold out"}}
    ended = cloud.run({"entity": entity, "task": task})
    assert (ended.status, ended.error) == ("FAILED", error)
    assert "sold out" in ended.cause
    assert cloud.is_free(entity)


def keys(cloud: Cloud) -> set[tuple[str, str]]:
    """The keys of all items: the attributes of another execution's item may change in between."""
    return {(item["pk"]["S"], item["sk"]["S"]) for item in cloud.items()}


def test_a_record_wait_that_ends_leaves_the_queue(either: Cloud, entity: str) -> None:
    holder = either.sleep(entity, 6)
    either.wait_until_held(entity)
    ended = either.ended(either.sleep(entity, 0, recordWaitSeconds=2))
    assert (ended.status, ended.error) == ("FAILED", "RecordWaitExceeded")
    assert (either.lock(entity).rows, either.item(entity).waiting) == ((), 0)
    assert either.ended(holder).status == "SUCCEEDED"


def test_readers_run_side_by_side_and_a_writer_alone(either: Cloud, entity: str, kept: Kept) -> None:
    holder = either.sleep(entity, 8)
    either.wait_until_held(entity)
    readers: list[str] = []
    for _ in range(2):
        readers.append(either.sleep(entity, 5, shared=True))
        either.wait_until_queued(entity, *readers)
    writer = either.sleep(entity, 0)
    _, first, second, last = (each.output for each in all_succeeded(kept, either, holder, *readers, writer))
    assert max(first["startedMs"], second["startedMs"]) < min(first["endedMs"], second["endedMs"])
    assert max(first["endedMs"], second["endedMs"]) <= last["startedMs"]
    kept.check({entity: either.lock(entity)})


@pytest.mark.verify("two more deployments; tests/workflow/interpreted/test_sharing.py updates a definition")
def test_a_deployment_with_another_number_of_permits_fails_no_execution(
    cloud: Cloud, entity: str, deploy_permits: Callable[[int], None]
) -> None:
    before = cloud.ended(cloud.sleep(entity, 0))
    deploy_permits(2)
    holder = cloud.nest(entity, LONG_S)
    cloud.wait_until_held(entity)
    second = cloud.ended(cloud.sleep(entity))
    assert (before.status, second.status, cloud.item(entity).permits) == ("SUCCEEDED", "SUCCEEDED", 2)
    assert cloud.described(holder)["status"] == "RUNNING"
    cloud.stop(holder)


def test_as_many_run_at_once_as_there_are_permits(cloud: Cloud, entity: str, kept: Kept) -> None:
    holders = [cloud.sleep(entity, 15, permits=2) for _ in range(2)]
    cloud.wait_until(lambda: (item := cloud.lock(entity).item) is not None and item.held == 2, "two holders")
    waiter = cloud.sleep(entity, 0, permits=2)
    cloud.wait_until_queued(entity, waiter)
    first, second, third = by_grant(all_succeeded(kept, cloud, *holders, waiter))
    assert second["startedMs"] < first["endedMs"]
    assert third["startedMs"] >= min(first["endedMs"], second["endedMs"])
    kept.check({entity: cloud.lock(entity)})
    refused = cloud.ended(cloud.sleep(entity, 0))
    assert (refused.error, refused.cause.partition(",")[0]) == (
        "PermitsMismatch",
        f"the lock on '{entity}' has 2 permits",
    )
    assert cloud.is_free(entity)


@IN_ANOTHER_STACK
def test_the_lease_of_a_holder_is_renewed_while_it_works_and_the_next_waits(short_lease: Cloud, entity: str) -> None:
    holder = short_lease.fall_asleep(entity, SHORT_LEASE_S + 2)
    short_lease.wait_until_held(entity)
    waiting = short_lease.sleep(entity, 0)
    assert [short_lease.ended(arn).status for arn in (holder, waiting)] == ["SUCCEEDED", "SUCCEEDED"]
    held_until_ms, granted_ms = short_lease.story(holder).held_until_ms, short_lease.story(waiting).held_from_ms
    assert held_until_ms is not None
    assert granted_ms is not None
    assert short_lease.slept_until_ms(holder)[0] <= granted_ms
    assert short_lease.is_free(entity)


@IN_ANOTHER_STACK
def test_an_execution_whose_row_is_lost_joins_again(short_lease: Cloud, entity: str) -> None:
    holder = short_lease.sleep(entity, 3)
    short_lease.wait_until_held(entity)
    waiter = short_lease.sleep(entity, 0)
    short_lease.wait_until_queued(entity, waiter)
    [row] = short_lease.lock(entity).rows
    key = row_key(LockName(entity), row.ticket)
    short_lease.dynamodb.delete_item(TableName=short_lease.outputs["TableName"], Key=key)
    assert [short_lease.ended(arn).status for arn in (holder, waiter)] == ["SUCCEEDED", "SUCCEEDED"]
    assert short_lease.is_free(entity)


def test_the_dashboard_shows_who_holds_and_who_waits_and_what_to_type(cloud: Cloud, entity: str) -> None:
    holder, waiter = (Claim(LockName(entity), f"{who}-<b>", 60_000) for who in ("holder", "waiter"))
    held = cloud.locks.take_ticket(holder, None)
    place = cloud.locks.take_ticket(waiter, None)
    assert isinstance(held, Grant)
    assert isinstance(place, Position)
    dashboards = cloud.client("cloudwatch")
    bodies = [
        json.loads(dashboards.get_dashboard(DashboardName=each["DashboardName"])["DashboardBody"])
        for each in dashboards.list_dashboards()["DashboardEntries"]
    ]
    [endpoint] = [
        each["properties"]["endpoint"] for body in bodies for each in body["widgets"] if each["type"] == "custom"
    ]
    Role.of_step(cloud, "live_report").drop_conditions()
    root = Parsed(cloud.invoke(endpoint, {"widgetContext": {"theme": "light"}})).root
    cloud.locks.withdraw(waiter, place.place.ticket)
    cloud.locks.release(holder, held)
    [shown] = [each for each in root.all("article") if entity in each.texts("h3")]
    assert shown.texts("", "name") == ["holder-<b>", "1.waiter-<b>"]
    assert root.texts("h1") == [f"Locks in the table {cloud.outputs['TableName']}"]


def test_afterwards_no_holder_and_no_waiter_is_left(either: Cloud, entity: str) -> None:
    """But for the rows of executions that were stopped, since the emulator goes on with what stood in a Parallel."""
    assert either.ended(either.sleep(entity, 0)).status == "SUCCEEDED"
    items = either.items()
    assert items
    owners = [item["owner"]["S"] for item in items if "createdAtMs" in item]
    statuses = {owner: either.described(owner)["status"] for owner in owners}
    waiting = {owner: status for owner, status in statuses.items() if status != "ABORTED"}
    holders = [name for item in items for name in item if name.startswith("holder:")]
    assert (waiting, holders) == ({}, [])
    assert {item["held"]["N"] for item in items if "held" in item} == {"0"}
    # Everything that is left will be deleted by time to live.
    assert all("expiresAt" in item for item in items)
