"""How the workflow handles a status event, with real clients; Step Functions is answered over the wire."""

import json
import random
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from kit.events import MACHINE, execution_arn, step_event, turn_of
from kit.mass_end import MassEnd
from kit.step_functions import TaskService
from kit.world import LEASE_MS, Process, World

from ticketlock import LockName, RequestNotApplied
from ticketlock.locks._items import Session
from ticketlock.workflow import Step, Workflow

pytestmark = pytest.mark.shows("self-cleaning", "clean-up")

CHILD = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
MINUTE_MS, YEAR_S = 60_000, 366 * 24 * 3_600
# Of the function that cleans up.
PATIENCE_MS = 13 * MINUTE_MS
# What a step of a workflow waits for a nested execution to close, with room for its other requests.
ANY_STEP_MS = 20_000


@pytest.mark.parametrize("place", [None, "first/1"], ids=["input", "fragment"])
@pytest.mark.parametrize("asked", [{"shared": True}, {"permits": 3}, {}], ids=["shared", "permits", "default"])
def test_a_holders_work_is_stopped_its_permit_is_freed_and_the_other_holders_stay(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName, asked: Any, place: str | None
) -> None:
    more = {"defaultPermits": 1 if "shared" in asked else 3, "asked": asked, "place": place, "work_machine": CHILD}
    execution, other = execution_arn(), execution_arn()
    turn, kept = (take(workflow, each, lock, **more) for each in (execution, other))
    work = running_work(service, turn)
    # That of a user's machine does not tell what its fragments asked for.
    given, machine = ({**request(lock), **asked}, MACHINE) if place is None else (None, f"{MACHINE}-of-others")
    step = clean_up(workflow, event(alice, execution, given, machine=machine))
    assert service.closings == [work]
    assert step.metrics == {"CleanedUpHolds": 1}
    assert holders(alice, lock) == [kept["claim"]["owner"]]
    workflow.release({"turn": kept})
    assert take(workflow, execution_arn(), lock, **more)["status"] == "granted"


def test_a_work_that_was_never_started_leaves_the_lock_to_its_lease(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    """Its start may be in progress: there is no execution of that name yet."""
    execution = execution_arn()
    take(workflow, execution, lock)
    assert clean_up(workflow, event(alice, execution, request(lock))).metrics == {"HoldsLeftToLease": 1}
    assert holders(alice, lock) == [execution]


@pytest.mark.parametrize("is_missing", [False, True], ids=["null", "missing"])
def test_an_input_that_was_too_long_for_the_event_is_described(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName, is_missing: bool
) -> None:
    alice.granted(alice.claim(lock))
    execution = execution_arn()
    take(workflow, execution, lock)
    service.described[execution] = {"status": "ABORTED", "input": json.dumps(request(lock)), "redriveCount": 0}
    without = event(alice, execution, None)
    if is_missing:
        del without["detail"]["input"]
    assert clean_up(workflow, without).metrics == {"CleanedUpPlaces": 1}
    assert alice.table.inspect(lock).rows == ()
    assert service.read == {execution}


def test_an_execution_that_is_forgotten_and_whose_input_is_missing_is_left_to_its_leases(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    execution = execution_arn()
    take(workflow, execution, lock)
    assert clean_up(workflow, event(alice, execution, None)).metrics == {}
    assert holders(alice, lock) == [execution]


@pytest.mark.parametrize("text", ["null", "[]", "not JSON", '{"entity": 7.5}', '{"entity": "e", "task": {}}', ""])
def test_after_an_execution_whose_input_was_refused_the_table_is_only_read(
    workflow: Workflow, alice: Process, text: str
) -> None:
    refused = event(alice, execution_arn(), None)
    refused["detail"]["input"] = text
    asked = len(alice.sent)
    assert clean_up(workflow, refused).metrics == {}
    assert {sent.operation for sent in alice.sent[asked:]} <= {"GetItem", "Query"}


def test_an_execution_that_was_redriven_since_is_left_alone(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName
) -> None:
    execution = execution_arn()
    take(workflow, execution, lock)
    service.described[execution] = {"status": "RUNNING", "input": json.dumps(request(lock)), "redriveCount": 1}
    step = clean_up(workflow, event(alice, execution, request(lock)))
    assert step.keys["redriven"]
    assert holders(alice, lock) == [execution]


def test_the_second_end_of_an_execution_that_was_redriven_is_cleaned_up(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    execution = execution_arn()
    take(workflow, execution, lock)
    service.described[execution] = {"status": "ABORTED", "input": json.dumps(request(lock)), "redriveCount": 1}
    again = event(alice, execution, request(lock))
    again["detail"]["redriveCount"] = 1
    assert clean_up(workflow, again).metrics == {"CleanedUpPlaces": 1}
    # Which may need a key that the clean-up may not use.
    assert service.read == set()


def test_a_users_workflow_is_recognised_by_its_sessions(
    workflow: Workflow, alice: Process, service: TaskService, world: World
) -> None:
    waited_for, held = world.lock(), world.lock()
    alice.granted(alice.claim(waited_for))
    execution = execution_arn()
    assert take(workflow, execution, held, place="first/1")["status"] == "granted"
    assert take(workflow, execution, waited_for, place="second/2")["status"] == "parked"
    other_machine = event(alice, execution, {"anything": "at all"}, machine=f"{MACHINE}-of-others")
    assert clean_up(workflow, other_machine).metrics == {"CleanedUpPlaces": 1, "HoldsLeftToLease": 1}
    assert alice.table.inspect(waited_for).rows == ()
    assert holders(alice, held) == [f"{execution}/first/1"]
    assert service.closings == []


def test_an_execution_of_a_users_workflow_that_never_asked_for_its_lock_is_ignored(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    """Its input may have the form of ours."""
    other_machine = event(alice, execution_arn(), request(lock), machine=f"{MACHINE}-of-others")
    assert clean_up(workflow, other_machine).metrics == {}
    assert alice.table.inspect(lock).item is None


def test_a_finished_fragment_of_a_users_workflow_is_not_cleaned_up(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    execution = execution_arn()
    turn = take(workflow, execution, lock, place="first")
    workflow.release({"turn": turn})
    alice.sent.clear()
    clean_up(workflow, event(alice, execution, None, machine="another"))
    # The sessions of the execution, and nothing else.
    assert [sent.operation for sent in alice.sent] == ["Query"]


def test_the_session_of_a_users_workflow_outlives_every_wait(
    workflow: Workflow, alice: Process, world: World, lock: LockName
) -> None:
    """An execution may last for a year."""
    execution = execution_arn()
    take(workflow, execution, lock, place="first")
    found = alice.client.get_item(TableName=world.engine.table_name, Key=Session(execution, "first").key())["Item"]
    expires_in_s = int(found["expiresAt"]["N"]) - world.now_ms // 1_000
    assert YEAR_S < expires_in_s < 1.1 * YEAR_S


@pytest.mark.parametrize("ended", ["its work failed", "it never came to its lock"])
def test_an_execution_that_left_nothing_costs_one_request_and_no_call_of_step_functions(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName, ended: str
) -> None:
    execution = execution_arn()
    if ended == "its work failed":
        turn = take(workflow, execution, lock)
        workflow.heartbeat(step_event("Heartbeat", turn, "beat"))
        failure = {"Error": "Declined", "Cause": '{"errorType": "Declined"}'}
        workflow.release({"turn": turn, "kind": "function", "work": "", "failure": failure})
    # A warm function does not read the time.
    clean_up(workflow, event(alice, execution_arn(), request(lock)))
    alice.sent.clear()
    service.asked.clear()
    clean_up(workflow, event(alice, execution, request(lock)))
    assert [sent.operation for sent in alice.sent] == ["BatchGetItem"]
    assert service.asked == []


def test_a_row_is_deleted_by_its_key_however_long_the_queue_is(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    executions = [execution_arn() for _ in range(12)]
    for execution in executions:
        take(workflow, execution, lock)
    alice.sent.clear()
    assert clean_up(workflow, event(alice, executions[-1], request(lock))).metrics == {"CleanedUpPlaces": 1}
    queries = [sent for sent in alice.sent if sent.operation == "Query"]
    # Except the poll of the front, whether a waiter must be woken.
    assert max(len(sent.response["Items"]) for sent in queries) <= 3
    assert len(alice.table.inspect(lock).rows) == 11


def test_a_ticket_is_recorded_before_its_row_is_written(workflow: Workflow, alice: Process, lock: LockName) -> None:
    """A crash between the two leaves no row that the clean-up cannot find."""
    alice.granted(alice.claim(lock))
    execution = execution_arn()
    alice.sent.clear()
    take(workflow, execution, lock)
    keys = [
        (sent.operation, sent.parameters.get("Key", sent.parameters.get("Item", {})).get("pk", {}).get("S"))
        for sent in alice.sent
    ]
    noted = keys.index(("UpdateItem", f"session#{execution}"))
    assert keys[noted + 1 :] == [("PutItem", lock.entity)]


def test_a_description_that_is_throttled_for_minutes_is_waited_for(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName
) -> None:
    alice.granted(alice.claim(lock))
    execution = execution_arn()
    take(workflow, execution, lock)
    over_ms = alice.world.now_ms + 5 * MINUTE_MS
    service.throttled = lambda: alice.world.now_ms < over_ms
    ended = event(alice, execution, request(lock))
    assert clean_up(workflow, ended, patience_ms=PATIENCE_MS).metrics == {"CleanedUpPlaces": 1}
    assert alice.world.now_ms >= over_ms


def test_a_description_that_is_throttled_for_longer_than_the_patience_fails_the_event(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName
) -> None:
    """Lambda repeats it, and finally sends it to the dead-letter queue."""
    alice.granted(alice.claim(lock))
    execution = execution_arn()
    take(workflow, execution, lock)
    began_ms = alice.world.now_ms
    service.throttled = lambda: True
    ended = event(alice, execution, request(lock))
    with pytest.raises(RequestNotApplied, match="Rate exceeded"):
        clean_up(workflow, ended, patience_ms=MINUTE_MS)
    assert MINUTE_MS <= alice.world.now_ms - began_ms < 2 * MINUTE_MS


def test_a_nested_execution_is_waited_for_while_step_functions_throttles(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName
) -> None:
    """Otherwise it would keep running, and after its lease run beside the next one's work."""
    execution = execution_arn()
    turn = take(workflow, execution, lock)
    work = running_work(service, turn)
    over_ms = alice.world.now_ms + MINUTE_MS // 2
    service.throttled = lambda: alice.world.now_ms < over_ms
    ended = event(alice, execution, request(lock))
    step = clean_up(workflow, ended, patience_ms=PATIENCE_MS)
    assert (service.closings, step.metrics) == ([work], {"CleanedUpHolds": 1})


def test_a_nested_execution_that_does_not_close_is_waited_for_as_long_as_by_any_step(
    workflow: Workflow, alice: Process, service: TaskService, lock: LockName
) -> None:
    execution = execution_arn()
    service.never_close.add(running_work(service, take(workflow, execution, lock)))
    began_ms = alice.world.now_ms
    ended = event(alice, execution, request(lock))
    assert clean_up(workflow, ended, patience_ms=PATIENCE_MS).metrics == {"HoldsLeftToLease": 1}
    assert alice.world.now_ms - began_ms < ANY_STEP_MS


def test_there_is_nothing_to_clean_up_after_an_execution_that_was_refused_for_its_permits(
    workflow: Workflow, alice: Process, lock: LockName
) -> None:
    take(workflow, execution_arn(), lock, asked={"permits": 2})
    alice.sent.clear()
    refused = event(alice, execution_arn(), request(lock))
    refused["detail"] |= {"status": "FAILED", "error": "PermitsMismatch"}
    step = clean_up(workflow, refused)
    assert (step.keys["left"], alice.sent) == ("PermitsMismatch", [])


# Thousands of executions end at once.


@pytest.mark.verify("thousands of events; the tests above count the requests of one")
def test_of_thousands_of_events_none_fails_and_those_of_executions_that_left_nothing_cost_one_request() -> None:
    """2,000 events at 100 a second; half of the executions left nothing, the others a row in one of two queues."""
    mass, quarter = MassEnd(), 500
    ended = mass.failed_works(quarter) + mass.never_came(quarter) + mass.waiters(quarter) + mass.waiters(quarter)
    random.Random(1).shuffle(ended)
    mass.clean_up(ended, a_second=100, concurrency=10)
    # Otherwise the test would show nothing.
    assert mass.step_functions.refused > 0
    assert [each.error for each in ended if each.error is not None] == []
    assert mass.rows() == 0
    nothing = [each for each in ended if each.kind == "left nothing"]
    assert Counter(sum(each.table.values()) for each in nothing) == {1: 2 * quarter}
    assert Counter(sum(each.calls.values()) for each in nothing) == {0: 2 * quarter}


def request(lock: LockName) -> dict[str, Any]:
    task = {"stateMachineArn": CHILD, "input": {"order": 42}}
    return {"entity": lock.entity, "namespace": lock.namespace, "task": task}


def take(
    workflow: Workflow,
    execution: str,
    lock: LockName,
    *,
    place: str | None = None,
    work_machine: str = "",
    asked: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    wanted = {**request(lock), **(asked or {})}
    if place is not None:
        del wanted["task"]
        more |= {"place": place, "workMachine": work_machine}
    return turn_of(workflow, execution, wanted, targets=[CHILD], **more)


def running_work(service: TaskService, turn: Mapping[str, Any]) -> str:
    """The nested execution of a turn, which runs."""
    work = f"{CHILD.replace('stateMachine', 'execution')}:{turn['workName']}"
    service.described[work] = {"status": "RUNNING"}
    return work


def clean_up(workflow: Workflow, ended: Mapping[str, Any], **more: Any) -> Step:
    return workflow.clean_up(ended, state_machine=MACHINE, lease_ms=LEASE_MS, **more)


def event(process: Process, execution: str, asked: Any, *, machine: str = MACHINE) -> dict[str, Any]:
    """https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html"""
    now_ms = process.world.now_ms
    detail: dict[str, Any] = {
        "executionArn": execution,
        "stateMachineArn": machine,
        "name": execution.rpartition(":")[2],
    }
    detail |= {"status": "ABORTED", "startDate": now_ms - 10_000, "stopDate": now_ms}
    detail |= {"input": None if asked is None else json.dumps(asked), "inputDetails": {"included": asked is not None}}
    kind = {"source": "aws.states", "detail-type": "Step Functions Execution Status Change"}
    return {"version": "0", "id": str(uuid.uuid4()), **kind, "resources": [execution], "detail": detail}


def holders(process: Process, lock: LockName) -> list[str]:
    item = process.table.inspect(lock).item
    return [holder.owner for holder in item.holders] if item is not None else []
