"""Heartbeats: retried tasks, counts and the time of entering; and answers by which functions wake waiters."""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from e2e.aws.checked import LEASE_S, Checked, NotSeen, assumes, details, ends_of_parking, entity, in_state
from e2e.cloud import Ended, History

from ticketlock import LockName

# Three attempts of the heartbeat: at once, and after each half of the lease.
_HOLD_S = LEASE_S + LEASE_S // 4
_CONTEXT = "https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html"
_EVENTS = "https://docs.aws.amazon.com/step-functions/latest/apireference/API_HistoryEvent.html"
_ERRORS = "https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html"
_STATES = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsstepfunctions.html"
_ALIASES = "https://docs.aws.amazon.com/step-functions/latest/dg/auth-version-alias.html"
_NO_ROLE_ASKED = "it asks no role for the resource of such an answer"
_NO_TRIES = "its histories do not have the tries of a task inside a Parallel"


def _held(checked: Checked) -> History:
    """The history of an execution that has held its lock for some heartbeats."""
    arn = checked.nest(entity("held"), _HOLD_S)
    status = checked.ended(arn, _HOLD_S + 90.0).status
    if status != "SUCCEEDED":
        raise NotSeen(f"{arn} ended as {status}")
    return checked.history(arn)


def _lost(checked: Checked) -> tuple[Ended, History]:
    """An execution whose lock was freed by force while it worked: its end and its history."""
    name = entity("lost")
    arn = checked.nest(name, 2 * LEASE_S)
    checked.wait_until_held(name, arn)
    checked.locks.force_release(LockName(name), checked.holder(name, arn).fencing_token)
    return checked.ended(arn, 3 * LEASE_S), checked.history(arn)


def _payloads(history: History) -> list[Mapping[str, Any]]:
    """The payload of each attempt of the heartbeat."""
    tries = [event for event in in_state(history, "Heartbeat") if event["type"] == "TaskScheduled"]
    payloads = [json.loads(details(event)["parameters"])["Payload"] for event in tries]
    if len(payloads) < 3:
        raise NotSeen(f"{len(payloads)} heartbeats in the history; at least 3 are expected")
    return payloads


@assumes(assumed="0, 1, 2 and so on, one more with each beat", link=_CONTEXT, emulator_lacks=_NO_TRIES)
def test_the_retry_count_goes_up_by_one_with_each_beat(checked: Checked) -> tuple[bool, str]:
    counts = [payload["retry"] for payload in _payloads(checked.once(_held))]
    return counts == list(range(len(counts))), f"{counts}"


@assumes(
    assumed="it never goes back, so that it and the retry count together rise",
    link=_CONTEXT,
    emulator_lacks=_NO_TRIES,
)
def test_the_entered_time_never_goes_back_over_retries(checked: Checked) -> tuple[bool, str]:
    entered = [payload["entered"] for payload in _payloads(checked.once(_held))]
    times = [datetime.fromisoformat(each) for each in entered]
    stays = "the same each time" if len(set(entered)) == 1 else " then ".join(entered)
    return times == sorted(times), stays


@assumes(assumed="4: scheduled, started, submitted, timed out", link=_EVENTS, emulator_lacks=_NO_TRIES)
def test_a_beat_is_four_events_of_the_history(checked: Checked) -> tuple[bool, str]:
    """Count the events from one attempt of the heartbeat to the next."""
    kinds = [event["type"] for event in in_state(checked.once(_held), "Heartbeat")]
    tries = [place for place, kind in enumerate(kinds) if kind == "TaskScheduled"]
    if len(tries) < 2:
        raise NotSeen(f"{len(tries)} beats in the history")
    beats = [kinds[one:then] for one, then in pairwise(tries)]
    return all(len(beat) == 4 for beat in beats), ", ".join(beats[0])


@assumes(
    assumed="LockLost, and not States.BranchFailed",
    link=_ERRORS,
    emulator_lacks="a failing branch of a Parallel does not stop the others",
)
def test_a_lost_lock_is_the_executions_own_error(checked: Checked) -> tuple[bool, str]:
    """Free a lock by force while an execution works under it."""
    end, _ = checked.once(_lost)
    return (end.status, end.error) == ("FAILED", "LockLost"), f"{end.status} {end.error}"


@assumes(
    assumed="the heartbeat's task fails with LockLost: by SendTaskFailure, allowed by the machine's ARN",
    link=_STATES,
    emulator_lacks=_NO_ROLE_ASKED,
)
def test_a_function_may_fail_a_task_by_the_machines_arn(checked: Checked) -> tuple[bool, str]:
    """Read how the heartbeat of the lost lock ended."""
    _, history = checked.once(_lost)
    failed = [details(event).get("error") for event in in_state(history, "Heartbeat") if event["type"] == "TaskFailed"]
    return failed[-1:] == ["LockLost"], f"the errors of the heartbeat's task: {failed}"


def _ends_of_the_wait(checked: Checked, machine: str) -> tuple[bool, str]:
    """Make an execution of a machine wait behind another, and return how its parking ended."""
    name = entity("woken")
    holder = checked.nest(name, 15, machine)
    checked.wait_until_held(name, holder)
    waiter = checked.nest(name, 0, machine)
    checked.wait_until_parked(waiter)
    for arn in (holder, waiter):
        checked.ended(arn)
    ends = ends_of_parking(checked.history(waiter))
    return ends[-1] == "TaskSucceeded", ", ".join(ends)


@assumes(
    assumed="WaitForWakeUp succeeds: SendTaskSuccess is authorised by the machine's ARN",
    link=_STATES,
    emulator_lacks=_NO_ROLE_ASKED,
)
def test_a_function_wakes_a_waiter_by_the_machines_arn(checked: Checked) -> tuple[bool, str]:
    """Make one execution wait behind another."""
    return _ends_of_the_wait(checked, checked.outputs["StateMachineArn"])


@assumes(
    assumed="the same of executions that were started by an alias: it is authorised by the machine's ARN",
    link=_ALIASES,
    emulator_lacks=_NO_ROLE_ASKED,
)
def test_a_function_wakes_a_waiter_that_was_started_by_an_alias(checked: Checked) -> tuple[bool, str]:
    """Make a version and an alias of the stack's machine, which are deleted with it."""
    machine = checked.outputs["StateMachineArn"]
    version = checked.step_functions.publish_state_machine_version(stateMachineArn=machine)["stateMachineVersionArn"]
    alias = checked.step_functions.create_state_machine_alias(
        name=f"check-{uuid.uuid4().hex[:8]}",
        routingConfiguration=[{"stateMachineVersionArn": version, "weight": 100}],
    )["stateMachineAliasArn"]
    return _ends_of_the_wait(checked, alias)
