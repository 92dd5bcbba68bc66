"""The steps of the serialised workflow: what each function of the state machine does, as one call each.

The state machine passes one object, the *turn*, from step to step. Each call takes it in, drives the protocol, and
gives the next one back; the definition only routes by its ``status``:

    granted, waiting, InvalidLockRequest, TaskNotAllowed, RecordWaitExceeded, EventBudgetExceeded

Every call may run twice with the same input.
"""

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ticketlock._failures import Failure
from ticketlock._items import number
from ticketlock._lock_request import LockRequest
from ticketlock._names import LockName
from ticketlock._outcomes import Grant, Place, Position
from ticketlock._protocol import Contender, Steps
from ticketlock._sdk import make_step_functions_client
from ticketlock._session import Session, abandon, beat, expires_at_s, finish
from ticketlock._table import LockTable
from ticketlock._waiting import next_look_ms
from ticketlock._writes import Claim
from ticketlock.errors import EventBudgetExceeded, InvalidLockRequest, LockLost, RecordWaitExceeded, TaskNotAllowed

__all__ = ["EVENTS_PER_BEAT", "EVENTS_PER_POLL", "MAX_EVENTS", "MAX_POLLS", "Step", "Workflow"]

# An execution may have 25,000 events and then fails unnamed:
# https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
# The rest is for retries of steps, which nobody counts.
MAX_EVENTS = 23_000
# By the history's event types (https://docs.aws.amazon.com/step-functions/latest/apireference/API_HistoryEvent.html):
# Choice and Wait: entered and exited; the task: entered, scheduled, started, succeeded, exited.
EVENTS_PER_POLL = 9
# Scheduled, started, submitted, timed out.
EVENTS_PER_BEAT = 4
# What a wait may use; the rest is the hold's.
MAX_POLLS = 18_000 // EVENTS_PER_POLL

_PLACE = "serialize"


@dataclass(frozen=True, slots=True)
class Step:
    """What one step ends with.

    Attributes:
        reply: what the state machine goes on with.
        metrics: counts, and times in milliseconds (names that end in ``Time``).
        keys: what a log line of this step should tell.
    """

    reply: Mapping[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)


class Workflow:
    """The steps, over one lock table.

    Args:
        table: the lock table, with a Step Functions client for the heartbeat's answers.
    """

    def __init__(self, table: LockTable) -> None:
        self._table = table

    @classmethod
    def over(cls, table_name: str) -> "Workflow":
        """The workflow over a table, with clients of its own for DynamoDB and Step Functions."""
        return cls(LockTable(table_name, step_functions=make_step_functions_client()))

    def take_ticket(self, event: Mapping[str, Any]) -> Step:
        """Check the request, take the lock or a place in the queue.

        Args:
            event: ``request`` (the execution's input), ``execution`` (its ARN, which is the owner), ``targets``,
                ``defaultRecordWaitSeconds``, ``leaseSeconds``, ``pollSeconds``.
        """
        try:
            request = LockRequest.parse(
                event["request"], targets=event["targets"], default_record_wait=event["defaultRecordWaitSeconds"]
            )
        except (InvalidLockRequest, TaskNotAllowed) as error:
            return Step({"lock": {"turn": _refusal(error)}}, {}, {"refused": str(error)})
        execution = event["execution"]
        claim = Claim(request.lock, execution, int(event["leaseSeconds"] * 1_000))
        wait_ms = request.record_wait_ms
        try:
            found = self._table.take_ticket(claim, wait_ms)
        except RecordWaitExceeded as error:
            keys = _log_keys(claim) | {"refused": str(error)}
            return Step({"lock": {"turn": _refusal(error)}}, {"RecordWaitsExceeded": 1}, keys)
        now = self._table.now()
        turn = {
            "claim": {
                "entity": claim.lock.entity,
                "namespace": claim.lock.namespace,
                "owner": claim.owner,
                "leaseMs": claim.lease_ms,
            },
            "arrivedMs": now.likely_ms,
            "waitUntilMs": None if wait_ms is None else now.likely_ms + wait_ms,
            "pollMs": int(event["pollSeconds"] * 1_000),
            "polls": 0,
        }
        step = self._turn(turn, claim, found)
        return Step({"lock": {"turn": step.reply}, "task": request.task}, step.metrics, step.keys)

    def check_position(self, event: Mapping[str, Any]) -> Step:
        """Look once; take the lock if it is this execution's turn.

        Args:
            event: ``turn``.
        """
        turn = dict(event["turn"])
        claim = _claim(turn)
        place = Place(turn["place"]["ticket"], turn["place"]["leaseUntilMs"])
        turn["polls"] += 1
        try:
            found = self._table.check_turn(claim, place, turn["waitUntilMs"])
        except RecordWaitExceeded as error:
            keys = _log_keys(claim, place.ticket) | {"refused": str(error)}
            return Step(_refusal(error), {"RecordWaitsExceeded": 1}, keys)
        if isinstance(found, Position) and turn["polls"] >= MAX_POLLS:
            won = self._table.withdraw(claim, found.place.ticket)
            if won is None:
                over = EventBudgetExceeded(f"not the turn after {MAX_POLLS} looks: the event history has no more room")
                return Step(_refusal(over), {}, _log_keys(claim, found.place.ticket) | {"refused": str(over)})
            found = won
        return self._turn(turn, claim, found)

    def heartbeat(self, event: Mapping[str, Any]) -> Step:
        """Renew the lease; end the heartbeat's task when the work has ended or the lock is lost.

        Args:
            event: ``turn``, ``execution``, ``taskToken``, ``beat`` (the task's retry count).
        """
        turn = event["turn"]
        claim, held, session = _claim(turn), _held(turn), Session(event["execution"], _PLACE)
        beat_number = event["beat"]
        events = turn["polls"] * EVENTS_PER_POLL + (beat_number + 2) * EVENTS_PER_BEAT

        def steps(me: Contender) -> Steps[Grant]:
            return beat(me, held, session, event["taskToken"], beat_number, in_budget=events < MAX_EVENTS)

        keys = _log_keys(claim, held.ticket) | {"fencing_token": held.fencing_token, "beat": beat_number}
        try:
            self._table.run(lambda now: steps(Contender(claim, now)))
        except LockLost as lost:
            return Step({}, {"LostLeases": 1}, keys | {"lost": str(lost)})
        except EventBudgetExceeded as over:
            return Step({}, {}, keys | {"event_budget": str(over)})
        return Step({}, {}, keys)

    def release(self, event: Mapping[str, Any]) -> Step:
        """The work has ended, or failed: free the lock if the work is surely over, and end the heartbeat.

        Args:
            event: ``turn``, ``execution``; after a failure also ``failure`` (``{"Error", "Cause"}``) and ``kind``, the
                kind of the work.

        Returns:
            After a failure the work's own ``error`` and ``cause``.

        Raises:
            LockLost: the work succeeded, but only after its lease had ended.
        """
        turn = event["turn"]
        claim, held, session = _claim(turn), _held(turn), Session(event["execution"], _PLACE)
        keys = _log_keys(claim, held.ticket) | {"fencing_token": held.fencing_token}
        if "failure" not in event:
            released = self._table.run(lambda now: finish(Contender(claim, now), held, session))
            return Step({}, {"HoldTime": released.held_ms}, keys)
        failure = Failure.parse(event["failure"], kind=event["kind"])
        own = failure.to_report()
        reply = {"error": own.error, "cause": own.cause}
        keys |= {"work_error": own.error}
        if not failure.work_has_ended():
            self._table.run(lambda now: abandon(Contender(claim, now), held, session))
            return Step(reply, {"AbandonedHolds": 1}, keys)
        try:
            released = self._table.run(lambda now: finish(Contender(claim, now), held, session))
        except LockLost as lost:
            # The work failed anyway, with a better reason.
            return Step(reply, {"LostLeases": 1}, keys | {"lost": str(lost)})
        return Step(reply, {"HoldTime": released.held_ms}, keys)

    def _turn(self, turn: dict[str, Any], claim: Claim, found: Grant | Position) -> Step:
        if isinstance(found, Grant):
            return _granted(turn, found)
        wait_ms = next_look_ms(
            found,
            lease_ms=claim.lease_ms,
            shortest_ms=1_000,
            longest_ms=turn["pollMs"],
            jitter=random.random(),
        )
        if turn["waitUntilMs"] is not None:
            wait_ms = min(wait_ms, turn["waitUntilMs"] - found.now.likely_ms)
        place = {"ticket": found.place.ticket, "leaseUntilMs": found.place.lease_until_ms}
        # Wait states know whole seconds.
        reply = turn | {"status": "waiting", "place": place, "waitSeconds": max(1, -(-wait_ms // 1_000))}
        keys = _log_keys(claim, found.place.ticket) | {
            "ahead": found.ahead,
            "place_lost": found.place_lost,
            "holders": [_short_hash(owner) for owner in found.holders],
        }
        return Step(reply, {}, keys)


def _granted(turn: dict[str, Any], grant: Grant) -> Step:
    lock = {
        "entity": grant.lock.entity,
        "namespace": grant.lock.namespace,
        "owner": grant.owner,
        "fencingToken": grant.fencing_token,
    }
    reply = turn | {
        "status": "granted",
        "grant": {
            "ticket": grant.ticket,
            "fencingToken": grant.fencing_token,
            "leaseUntilMs": grant.lease_until_ms,
            "sinceMs": grant.since_ms,
            "meanHoldMs": grant.mean_hold_ms,
        },
        # What the state LeaveToHeartbeat writes, by itself: the values of its update, as DynamoDB takes them.
        "unreleased": {":token": number(grant.fencing_token), ":expires_at": number(expires_at_s(grant))},
        "work": {"lock": lock},
        # One work per grant: a retried start is the same child.
        "workName": f"lock-{_short_hash(grant.owner, 32)}-{grant.fencing_token}",
    }
    waited_ms = max(0, grant.since_ms - turn["arrivedMs"])
    metrics = {"Grants": 1, "WaitTime": waited_ms, "TakenOver": grant.took_over}
    keys = {"entity": grant.lock.entity, "namespace": grant.lock.namespace, "ticket": grant.ticket}
    return Step(reply, metrics, keys | {"fencing_token": grant.fencing_token})


def _refusal(error: Exception) -> dict[str, str]:
    return {"status": type(error).__name__, "cause": str(error)}


def _claim(turn: Mapping[str, Any]) -> Claim:
    claim = turn["claim"]
    return Claim(LockName(claim["entity"], claim["namespace"]), claim["owner"], claim["leaseMs"])


def _held(turn: Mapping[str, Any]) -> Grant:
    claim, grant = _claim(turn), turn["grant"]
    return Grant(
        lock=claim.lock,
        owner=claim.owner,
        ticket=grant["ticket"],
        fencing_token=grant["fencingToken"],
        lease_until_ms=grant["leaseUntilMs"],
        # This process has not granted it: what it knows is the lease in table time.
        deadline_ms=0,
        since_ms=grant["sinceMs"],
        mean_hold_ms=grant["meanHoldMs"],
    )


def _log_keys(claim: Claim, ticket: int | None = None) -> dict[str, Any]:
    return {"entity": claim.lock.entity, "namespace": claim.lock.namespace, "ticket": ticket}


def _short_hash(owner: str, digits: int = 8) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:digits]
