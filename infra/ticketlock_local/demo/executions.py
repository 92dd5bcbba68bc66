"""Executions of the serialised workflow, read from their histories."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

HOLDS = ("Hold", "HoldOfExecution")
"""The states that hold the lock."""

_POLLING_STATES = ("TakeTicket", "TakeTicketAgain", "CheckPosition")
TOLD_BY = (*_POLLING_STATES, "Parked", "NotYet", "Granted")
"""The states whose output has the turn."""

_ENDS = {
    "ExecutionSucceeded": "SUCCEEDED",
    "ExecutionFailed": "FAILED",
    "ExecutionAborted": "ABORTED",
    "ExecutionTimedOut": "TIMED_OUT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution, from its history; times are milliseconds since the epoch.

    Attributes:
        name: its name, the last part of its ARN.
        entity: the entity of its lock.
        status: as Step Functions names it.
        started_ms, ended_ms: from its first event to its last.
        ticket_ms: when it learned its ticket.
        ticket: its ticket; the last one, if it has lost its position in the queue.
        standings: from when until when its row with that ticket was certainly in the queue.
        polled_ms: when the step of its last poll began.
        granted_ms: when that step ended with the grant.
        fencing_token: of its grant.
        held_from_ms, held_until_ms: from entering to leaving the state that holds the lock.
        work_started_ms, work_ended_ms: the times that the work itself has returned.
        shared, permits: as in its request.
        polls: how often it polled.
        error: name and cause of its failure.
    """

    name: str
    entity: str = ""
    status: str = "RUNNING"
    started_ms: int = 0
    ended_ms: int | None = None
    ticket_ms: int | None = None
    ticket: int | None = None
    standings: tuple[tuple[int, int], ...] = ()
    polled_ms: int | None = None
    granted_ms: int | None = None
    fencing_token: int | None = None
    held_from_ms: int | None = None
    held_until_ms: int | None = None
    work_started_ms: int | None = None
    work_ended_ms: int | None = None
    shared: bool = False
    permits: int = 1
    polls: int = 0
    error: str = ""

    @property
    def waited_ms(self) -> int | None:
        """From the start to the hold, in milliseconds; None before it holds."""
        return None if self.held_from_ms is None else self.held_from_ms - self.started_ms

    @property
    def held_ms(self) -> int | None:
        """How long the lock was held; None before it is released."""
        if self.held_from_ms is None or self.held_until_ms is None:
            return None
        return self.held_until_ms - self.held_from_ms


def observe(client: "SFNClient", arn: str) -> Execution:
    """Read an execution's history up to now."""
    paginator = client.get_paginator("get_execution_history")
    pages = paginator.paginate(executionArn=arn, PaginationConfig={"PageSize": 1_000})
    return read_history(arn.rpartition(":")[2], [event for page in pages for event in page["events"]])


def read_history(name: str, events: Sequence[Mapping[str, Any]]) -> Execution:
    """Make an execution from the events of its history, oldest first."""
    execution = Execution(name=name)
    for event in events:
        execution = _after(execution, event)
    return execution


def _after(execution: Execution, event: Mapping[str, Any]) -> Execution:
    kind: str = event["type"]
    at = _milliseconds(event["timestamp"])
    if kind == "ExecutionStarted":
        request = json.loads(event["executionStartedEventDetails"]["input"])
        return replace(execution, entity=request["entity"], started_ms=at)
    if kind in _ENDS:
        return _ended(execution, event, at)
    if kind.endswith("StateEntered"):
        name = event["stateEnteredEventDetails"]["name"]
        if name in HOLDS:
            return replace(execution, held_from_ms=at)
        if name in _POLLING_STATES:
            return replace(execution, polled_ms=at, polls=execution.polls + (name == "CheckPosition"))
    if kind.endswith("StateExited"):
        return _left(execution, event["stateExitedEventDetails"], at)
    return execution


def _left(execution: Execution, details: Mapping[str, Any], at: int) -> Execution:
    if details["name"] in HOLDS:
        return replace(execution, held_until_ms=at)
    if details["name"] not in TOLD_BY:
        return execution
    turn = turn_in(details["output"])
    claim, grant, place = (turn.get(part, {}) for part in ("claim", "grant", "place"))
    if not grant and not place:
        # A refusal has no more information.
        return execution
    # None in a grant if the reply with the ticket was lost.
    ticket = grant.get("ticket") or place.get("ticket")
    standings = execution.standings if ticket == execution.ticket else ()
    if not grant and "leaseUntilMs" in place:
        standings = (*standings, (at, place["leaseUntilMs"]))
    return replace(
        execution,
        shared=claim.get("shared", False),
        permits=claim.get("permits", 1),
        ticket=ticket,
        standings=standings,
        granted_ms=at if grant else None,
        fencing_token=grant.get("fencingToken"),
        ticket_ms=execution.ticket_ms or at,
    )


def turn_in(output: str) -> Mapping[str, Any]:
    """The turn in the output of a state that polls, or reads what one has answered; empty if it has none."""
    turn: Mapping[str, Any] = json.loads(output).get("lock", {}).get("turn", {})
    return turn


def _ended(execution: Execution, event: Mapping[str, Any], at: int) -> Execution:
    status = _ENDS[event["type"]]
    details = event.get(f"e{event['type'][1:]}EventDetails", {})
    execution = replace(execution, status=status, ended_ms=at)
    if execution.held_from_ms is not None and execution.held_until_ms is None:
        # Failing work ends the execution during the hold.
        execution = replace(execution, held_until_ms=at)
    if status != "SUCCEEDED":
        return replace(execution, error=": ".join(filter(None, (details.get("error"), details.get("cause")))))
    output = json.loads(details["output"])
    work = output if isinstance(output, dict) else {}
    return replace(execution, work_started_ms=work.get("startedMs"), work_ended_ms=work.get("endedMs"))


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)
