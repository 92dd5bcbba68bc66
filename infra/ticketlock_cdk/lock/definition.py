"""The state machines' definitions, with the numbers and lists of one deployment set in their states.

Strings stay as ``${...}`` placeholders, which the deployment substitutes.
"""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ticketlock.workflow._turn import PARKS_PER_POLL
from ticketlock_cdk.assets import source_folder
from ticketlock_cdk.lock.settings import HandOver, Settings

_PARKED = ("WaitForWakeUp", "WaitForWakeUpBriefly")
_WORK = ("InvokeFunction", "StartExecution")


def serialize_definition(settings: Settings, targets: Sequence[str]) -> dict[str, Any]:
    """The definition of the serialised workflow.

    Args:
        settings: the deployment's.
        targets: the ARNs of the functions and state machines that may be run.
    """
    definition: dict[str, Any] = json.loads((source_folder("statemachines") / "serialize.asl.json").read_text())
    states = definition["States"]
    states["TakeTicket"]["Parameters"]["Payload"] |= {"targets": list(targets), **ticket_settings(settings)}
    timed = [states["CheckPosition"], *(states[name] for name in _PARKED)]
    timed.append(states["Hold"]["Branches"][1]["States"]["Heartbeat"])
    for state in timed:
        state["Parameters"]["Payload"]["leaseSeconds"] = settings.lease_s
    if settings.hand_over is HandOver.POLL:
        for name in _PARKED:
            del states[name]
        choices = states["MyTurn?"]["Choices"]
        choices[:] = [choice for choice in choices if choice["Next"] not in _PARKED]
    else:
        states["WaitForWakeUp"]["TimeoutSeconds"] = settings.lease_s // 2
        states["WaitForWakeUp"]["Retry"][0]["MaxAttempts"] = PARKS_PER_POLL - 1
        states["WaitForWakeUpBriefly"]["TimeoutSeconds"] = settings.poll_s
    if settings.heartbeat:
        _set_heartbeat(states["Hold"]["Branches"][1]["States"]["Heartbeat"], settings)
    else:
        _hold_for_one_lease(states, settings)
    return definition


def ticket_settings(settings: Settings) -> dict[str, Any]:
    """The deployment's settings that are passed to the first step."""
    return {
        "defaultRecordWaitSeconds": settings.default_record_wait,
        "defaultPermits": settings.permits,
        "leaseSeconds": settings.lease_s,
        "pollSeconds": settings.poll_s,
        "handOver": settings.hand_over.value,
        "pollsAnExecution": settings.polls_an_execution,
        "beatsAnExecution": settings.beats_an_execution,
    }


def continue_definition(settings: Settings) -> dict[str, Any]:
    """The definition of the machine that continues long waits and holds, made of states of the serialised workflow.

    Its executions succeed, so that the names of errors survive: they return the turn after a wait, or the ``status``
    and ``Cause`` of a heartbeat that is over. It supports all settings, since it continues executions that began under
    other settings.
    """
    all_of_it = replace(settings, heartbeat=True, hand_over=HandOver.CALLBACK)
    serialize = serialize_definition(all_of_it, ())["States"]
    states = {name: serialize[name] for name in (*_PARKED, "WaitForTurn", "CheckPosition")}
    # Not grantedMeanwhile, which the first execution checks.
    asleep = [
        choice for choice in serialize["MyTurn?"]["Choices"] if choice["Next"] in states.keys() - {"CheckPosition"}
    ]
    states["MyTurn?"] = {**serialize["MyTurn?"], "Choices": asleep, "Default": "Waited"}
    states["Waited"] = {
        "Comment": "The turn came, or the wait failed, or no polls are left here: the first execution continues.",
        "Type": "Pass",
        "OutputPath": "$.lock",
        "End": True,
    }
    states["WaitingOrHolding?"] = {
        "Comment": "Whether a wait or a heartbeat continues here.",
        "Type": "Choice",
        "Choices": [{"Variable": "$.goOn", "StringEquals": "holding", "Next": "Heartbeat"}],
        "Default": "CheckPosition",
    }
    heartbeat = copy.deepcopy(serialize["Hold"]["Branches"][1]["States"]["Heartbeat"])
    del heartbeat["End"]
    ends = ["ContinueHolding", "LockLost", "EventBudgetExceeded"]
    heartbeat |= {
        "Next": "Ended",
        "Catch": [{"ErrorEquals": ends, "ResultPath": "$.heartbeatEnd", "Next": "BeatsOver"}],
    }
    states["Heartbeat"] = heartbeat
    states["Ended"] = {
        "Comment": "The work has ended.",
        "Type": "Pass",
        "Result": {"status": "ended", "Cause": ""},
        "End": True,
    }
    states["BeatsOver"] = {
        "Comment": "The lock is lost, or no heartbeats are left here: the first execution continues.",
        "Type": "Pass",
        "Parameters": {"status.$": "$.heartbeatEnd.Error", "Cause.$": "$.heartbeatEnd.Cause"},
        "End": True,
    }
    return {"Comment": _CONTINUES, "StartAt": "WaitingOrHolding?", "States": states}


_CONTINUES = "Continues a wait or a heartbeat whose own execution has used its share of events."


def _set_heartbeat(heartbeat: dict[str, Any], settings: Settings) -> None:
    heartbeat["TimeoutSeconds"] = settings.lease_s // 2
    on_any_error = heartbeat["Retry"][-1]
    # Its attempts are spread over the second half of the lease: after that the lease is lost anyway.
    on_any_error["IntervalSeconds"] = max(1, settings.lease_s // 12)


def _hold_for_one_lease(states: dict[str, Any], settings: Settings) -> None:
    """Replace the Parallel by the work's branch: work that always ends within its lease needs no heartbeat."""
    branch = states.pop("Hold")["Branches"][0]
    work = branch["States"]
    del work["LeaveToHeartbeat"]
    for name in _WORK:
        work[name]["TimeoutSeconds"] = settings.work_timeout_s
        # Each attempt has its own time-out; together they would outlast the lease.
        del work[name]["Retry"]
    work["Release"]["Catch"][-1]["Next"] = "LeftToLease"
    work["LeftToLease"] = {
        "Comment": "The release failed: the work's output is kept, and the lock is free when its lease ends.",
        "Type": "Pass",
        "OutputPath": "$.task.output",
        "End": True,
    }
    granted = next(choice for choice in states["MyTurn?"]["Choices"] if choice["Next"] == "Hold")
    granted["Next"] = branch["StartAt"]
    states |= work
