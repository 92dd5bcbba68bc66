"""The deployed stack, end to end: started as a user starts it, observed from outside."""

import json
from itertools import pairwise

import pytest
from e2e.cloud import NOTHING, Cloud
from e2e.roles import Role
from kit.kept import Kept
from kit.lock_history import events_of
from kit.parsed import Parsed

from ticketlock import Claim, Grant, LockName, Position

pytestmark = pytest.mark.shows("exclusion")

EXECUTIONS = 10
LONG_S = 120
"""Of work that is stopped when the test has seen what it asks."""


def test_ten_executions_on_one_entity_run_one_at_a_time_in_the_order_of_their_tickets(
    either: Cloud, entity: str, kept: Kept
) -> None:
    ended = [either.ended(arn) for arn in [either.sleep(entity, 0.3) for _ in range(EXECUTIONS)]]
    kept.write(event for each in ended for event in events_of(either.story(each.arn)))
    assert [each.status for each in ended] == ["SUCCEEDED"] * EXECUTIONS
    assert all(each.held_until_ms is not None for each in kept.read().acquisitions)
    assert len({each.ticket for each in ended}) == EXECUTIONS
    by_grant = sorted((each.output for each in ended), key=lambda output: output["lock"]["fencingToken"])
    assert all(earlier["endedMs"] <= later["startedMs"] for earlier, later in pairwise(by_grant))
    kept.check({entity: either.lock(entity)})


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


def test_a_record_wait_that_ends_leaves_the_queue(cloud: Cloud, entity: str) -> None:
    holder = cloud.nest(entity, LONG_S)
    cloud.wait_until_held(entity)
    ended = cloud.ended(cloud.sleep(entity, 0, recordWaitSeconds=2))
    assert (ended.status, ended.error) == ("FAILED", "RecordWaitExceeded")
    assert (cloud.lock(entity).rows, cloud.item(entity).waiting) == ((), 0)
    cloud.stop(holder)


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
