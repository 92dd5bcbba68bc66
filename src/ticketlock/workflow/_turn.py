"""The turn: the one object that the state machine passes from step to step, and its fields as values.

It is JSON, created by the first step and passed on whole. Only the functions read it, except ``status``, by which the
definition routes, and the few fields that the definition's states name.
"""

from collections.abc import Mapping
from typing import Any

from ticketlock.locks._claim import Claim
from ticketlock.locks._hand_over import session_expires_at_s
from ticketlock.locks._items import Holder, Session
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import Grant, Hold, Place
from ticketlock.wire._attributes import number
from ticketlock.workflow._executions import short_hash, work_name

Turn = Mapping[str, Any]


def new_turn(claim: Claim, session: Session, event: Mapping[str, Any], arrived_ms: int, wait_ms: int | None) -> Turn:
    """The turn of a new claim.

    Args:
        event: the first step's, with the settings of the deployment.
        arrived_ms: now, table time.
        wait_ms: the record wait; None for ever.
    """
    return {
        "claim": {
            "entity": claim.lock.entity,
            "namespace": claim.lock.namespace,
            "owner": claim.owner,
            "leaseMs": claim.lease_ms,
            "permits": claim.permits,
            "permitsSinceMs": claim.permits_since_ms,
            "shared": claim.shared,
        },
        "session": {"execution": session.execution, "place": session.fragment},
        "arrivedMs": arrived_ms,
        "waitUntilMs": None if wait_ms is None else arrived_ms + wait_ms,
        "pollMs": int(event["pollSeconds"] * 1_000),
        "handOver": event["handOver"],
        "continueMachine": event["continueMachine"],
        "pollsAnExecution": event["pollsAnExecution"],
        "beatsAnExecution": event["beatsAnExecution"],
        "polls": 0,  # in all executions
        "pollsHere": 0,  # in the present execution
        "continuations": 0,  # continuations so far
        "events": 0,  # of its history that the first execution has spent
        "beats": 0,  # before those of the present execution
        "polledMs": arrived_ms,  # when the first execution polled last
    }


def claim_of(turn: Turn, event: Mapping[str, Any] | None = None) -> Claim:
    """The claim of a turn.

    Args:
        event: of a step with timers: its ``leaseSeconds`` belong to the definition that set them, which may be newer
            than the one of the execution that took the ticket.
    """
    claim = turn["claim"]
    lock = LockName(claim["entity"], claim["namespace"])
    lease_ms = claim["leaseMs"] if event is None else int(event["leaseSeconds"] * 1_000)
    return Claim(
        lock,
        claim["owner"],
        lease_ms,
        permits=claim["permits"],
        session=session_of(turn) if is_woken(turn) else None,
        shared=claim["shared"],
        noted_in=session_of(turn),
        # A turn of an earlier version does not say.
        permits_since_ms=claim.get("permitsSinceMs", 0),
    )


def session_of(turn: Turn) -> Session:
    """The session of a turn: always that of the execution that took the ticket."""
    return Session(turn["session"]["execution"], turn["session"]["place"])


def is_woken(turn: Turn) -> bool:
    """Whether the waiter is woken when its turn may have come."""
    return bool(turn["handOver"] == "callback")


def place_of(turn: Turn) -> Place:
    """The place in the queue, after the last poll."""
    return Place(turn["place"]["ticket"], turn["place"]["leaseUntilMs"])


def grant_of(turn: Turn) -> Hold:
    """The grant, as reported."""
    claim, grant = claim_of(turn), turn["grant"]
    return Hold(
        lock=claim.lock,
        owner=claim.owner,
        ticket=grant["ticket"],
        fencing_token=grant["fencingToken"],
        lease_until_ms=grant["leaseUntilMs"],
        since_ms=grant["sinceMs"],
        mean_hold_ms=grant["meanHoldMs"],
    )


def with_place(turn: Turn, place: Place) -> Turn:
    """The turn of a waiter."""
    return {**turn, "place": {"ticket": place.ticket, "leaseUntilMs": place.lease_until_ms}}


def with_grant(turn: Turn, grant: Grant) -> Turn:
    """The turn of a holder."""
    lock = {
        "entity": grant.lock.entity,
        "namespace": grant.lock.namespace,
        "owner": grant.owner,
        "fencingToken": grant.fencing_token,
    }
    return {
        **turn,
        "status": "granted",
        "grant": {
            "ticket": grant.ticket,
            "fencingToken": grant.fencing_token,
            "leaseUntilMs": grant.lease_until_ms,
            "sinceMs": grant.since_ms,
            "meanHoldMs": grant.mean_hold_ms,
        },
        # The attributes of the update that the state LeaveToHeartbeat makes without a function, as DynamoDB takes them.
        "unreleased": {
            ":token": number(grant.fencing_token),
            ":expires_at": number(session_expires_at_s(grant.lease_until_ms)),
        },
        "work": {"lock": lock},
        "workName": work_name(grant.owner, grant.fencing_token),
    }


def refusal(error: Exception) -> Turn:
    """The turn of a refused claim: the error's name and text."""
    return {"status": type(error).__name__, "cause": str(error)}


def log_keys(claim: Claim, ticket: int | None = None) -> dict[str, Any]:
    """The fields of a log line for a claim."""
    return {"entity": claim.lock.entity, "namespace": claim.lock.namespace, "ticket": ticket}


def hashes(holders: tuple[Holder, ...]) -> list[str]:
    """Hashes that identify holders without their names."""
    return [short_hash(holder.owner) for holder in holders]
