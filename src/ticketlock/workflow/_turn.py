"""The turn: the one object that the state machine passes from step to step, and its fields as values.

It is JSON, created by the first step and passed on whole. Only the functions read it, except ``status``, by which the
definition routes, and the few fields that the definition's states name.

The event budget: an execution that reaches 25,000 events fails, without an error name
(https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html). So a wait and a hold use a small share of
their first execution, and then continue in one continuation after the other, executions of a separate state machine.
Each costs the first execution a few events. The types of events:
https://docs.aws.amazon.com/step-functions/latest/apireference/API_HistoryEvent.html
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import whole_number
from ticketlock.errors import InvalidLockRequest, TaskNotAllowed, shown
from ticketlock.locks import (
    DEFAULT_NAMESPACE,
    MAX_HOLDERS,
    Claim,
    Grant,
    Hold,
    Holder,
    LockName,
    Place,
    Session,
    mode_of,
    record_wait_ms,
    session_expires_at_s,
)
from ticketlock.wire import TaskAnswer, number
from ticketlock.workflow._failures import short_hash, work_name

# A payload may have 256 KiB. It also has to carry the turn, and the cause of failed work of up to 32 KiB, which quoting
# may double.
MAX_INPUT_BYTES = 150_000

# Parsers stop at about 1,000 levels, and each step adds some around it.
MAX_INPUT_LEVELS = 500

_FIELDS = frozenset({"entity", "namespace", "permits", "recordWaitSeconds", "shared", "task"})
# A state that starts this execution adds it, and the console then links the two. The lock ignores it.
_STARTED_BY = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"
# A greater number may be rounded in transit, as JSON allows (https://www.rfc-editor.org/rfc/rfc8259#section-6).
_EXACT = 2**53 - 1
# A path, an intrinsic function or JSONata, which would be one lock for all executions.
_UNEVALUATED = re.compile(r"\$\$?[.\[].*|States\.\w+\(.*\)|\{%.*%\}", re.DOTALL)
# Field of the request: the kind of work, and what its ARN must contain.
_TARGETS = {"functionArn": ("function", ":function:"), "stateMachineArn": ("execution", ":stateMachine:")}

MAX_EVENTS = 23_000
"""The rest is for retries of steps, which are not counted."""

EVENTS_PER_POLL = 9
"""A poll: Choice and Wait, entered and exited; the task: entered, scheduled, started, succeeded, exited."""

PARKS_PER_POLL = 10
"""How often a parked waiter extends its row by retries, at each half of its lease, before it takes a step to poll."""

EVENTS_PER_PARK = 4
"""Scheduled, started, submitted, timed out."""

EVENTS_PER_PARKED_POLL = 13 + (PARKS_PER_POLL - 1) * EVENTS_PER_PARK
"""At most: a poll; the callback task before it, which has one event more than the task of a poll; its retries."""

EVENTS_PER_BEAT = 4
"""Scheduled, started, submitted, timed out."""

EVENTS_PER_WAITING_CONTINUATION = 8
"""A Choice, and a nested execution: entered, scheduled, started, submitted, succeeded, exited."""

EVENTS_PER_HOLDING_CONTINUATION = 10
"""The same, and a Pass."""

FIRST_POLLS = 100
"""How often the first execution polls before its wait goes to a continuation."""

FIRST_BEATS = 500
"""How many heartbeats the first execution sends before its hold goes to a continuation."""

WAITING_EVENTS = 12_000
"""How many events of the first execution a wait may use; the rest is for the hold."""

BEATS_AN_EXECUTION = 2_000
"""How many heartbeats a continuation sends."""

# https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskFailure.html
_MAX_CAUSE = 32_768

Turn = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LockRequest:
    """The input of a serialised workflow.

    Attributes:
        lock: the lock's name.
        record_wait_ms: how long to wait at most; None for ever.
        permits: how many may hold the lock at once.
        names_permits: whether the input says so; otherwise it is the deployment's number.
        shared: whether it is held together with other holders that share it.
        task: ``{"kind": "function" or "execution", "arn": str, "input": object}``.
    """

    lock: LockName
    record_wait_ms: int | None
    permits: int
    names_permits: bool
    shared: bool
    task: Mapping[str, Any]

    @classmethod
    def parse(
        cls, request: Any, *, targets: Collection[str] | None, default_record_wait: Any, default_permits: int
    ) -> "LockRequest":
        """Read the input of an execution.

        Args:
            request: the input, any JSON value.
            targets: the ARNs of the functions and state machines that may be run; None for any.
            default_record_wait: for an input without ``recordWaitSeconds``.
            default_permits: for an input without ``permits`` that does not share the lock.

        Raises:
            InvalidLockRequest: a field is missing, unknown or out of its bounds; the message names it.
            TaskNotAllowed: the task's target is not in ``targets``.
        """
        with _of_json():
            fields = _object("the input", request, _FIELDS, ignored=_STARTED_BY)
            lock, wait_ms = _lock(fields, default_record_wait)
            permits, shared = _limit(fields, default_permits)
            task = _task(
                fields["task"] if "task" in fields else _missing("task", "the work that is to run under the lock"),
                targets,
            )
        return cls(lock, wait_ms, permits, "permits" in fields, shared, task)

    @classmethod
    def parse_place(cls, request: Any, *, default_record_wait: Any, default_permits: int) -> "LockRequest":
        """Read the request of a fragment, whose work is not named but follows in the workflow.

        Raises:
            InvalidLockRequest: a field is missing, unknown or out of its bounds; the message names it.
        """
        with _of_json():
            fields = _object("the lock request", request, _FIELDS - {"task"})
            lock, wait_ms = _lock(fields, default_record_wait)
            permits, shared = _limit(fields, default_permits)
        return cls(lock, wait_ms, permits, "permits" in fields, shared, {})


@contextmanager
def _of_json() -> Iterator[None]:
    """Within the block an error shows a value as it is in JSON."""
    try:
        yield
    except InvalidLockRequest as error:
        raise error.in_json() from None


def _lock(fields: Mapping[str, Any], default_record_wait: Any) -> tuple[LockName, int | None]:
    entity = _entity(
        fields["entity"]
        if "entity" in fields
        else _missing("entity", "text or a whole number that names what is locked")
    )
    namespace = fields.get("namespace", DEFAULT_NAMESPACE)
    for field, given in (("entity", entity), ("namespace", namespace)):
        if isinstance(given, str) and _UNEVALUATED.fullmatch(given):
            allowed = (
                f'its value: a state evaluates a path only in "{field}.$", and JSONata only with that query language'
            )
            raise InvalidLockRequest(field, given, allowed)
    lock = LockName(entity, namespace)
    return lock, record_wait_ms(
        "recordWaitSeconds", fields.get("recordWaitSeconds", default_record_wait), infinity='"Infinity"'
    )


def _entity(value: Any) -> str:
    """Text as it is, and a whole number as digits: order 42 is the same as order "42"."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _EXACT:
        allowed = f"text, or a whole number from {-_EXACT:,} to {_EXACT:,} (a greater one as text)"
        raise InvalidLockRequest("entity", value, allowed)
    return str(value)


def _limit(fields: Mapping[str, Any], default_permits: int) -> tuple[int, bool]:
    shared = fields.get("shared", False)
    if not isinstance(shared, bool):
        raise InvalidLockRequest("shared", shared, "true or false")
    # A lock that is shared has one permit, even if the default for other requests is another number.
    mode = mode_of(shared=shared)
    asked = fields["permits"] if "permits" in fields else mode.permits_to_ask(default_permits)
    permits = whole_number("permits", asked, 1, MAX_HOLDERS)
    if permits != mode.permits_to_ask(permits):
        raise InvalidLockRequest("permits", permits, "1, because `shared` is true")
    return permits, shared


def _task(task: Any, targets: Collection[str] | None) -> Mapping[str, Any]:
    fields = _object("task", task, {*_TARGETS, "input"})
    named = [name for name in _TARGETS if name in fields]
    if len(named) != 1:
        raise InvalidLockRequest("task", task, "exactly one of functionArn and stateMachineArn")
    target = fields[named[0]]
    part = _TARGETS[named[0]][1]
    if not isinstance(target, str) or part not in target or (targets is not None and target not in targets):
        allowed = tuple(sorted(arn for arn in targets or () if part in arn))
        raise TaskNotAllowed(f"task.{named[0]}", target, allowed)
    work_input = fields.get("input", {})
    if not isinstance(work_input, dict):
        raise InvalidLockRequest("task.input", work_input, "an object, to which `lock` is added")
    if "lock" in work_input:
        # Without its value: a `lock` from another payload names its owner.
        raise InvalidLockRequest("task.input.lock", "set", "to leave it out, because ticketlock adds it")
    # It is passed on after the lock is taken: a value that has no JSON, such as the number 1e400 or half a surrogate
    # pair, would fail the execution then, and leave the lock to its lease.
    try:
        size = len(json.dumps(work_input, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidLockRequest(
            "task.input", f"{type(error).__name__}: {error}", "a value that JSON can represent"
        ) from None
    if _is_deeper_than(MAX_INPUT_LEVELS, work_input):
        raise InvalidLockRequest("task.input", work_input, f"at most {MAX_INPUT_LEVELS} levels of objects and lists")
    if size > MAX_INPUT_BYTES:
        raise InvalidLockRequest("task.input", f"{size:,} bytes", f"at most {MAX_INPUT_BYTES:,} bytes of JSON")
    return {"kind": _TARGETS[named[0]][0], "arn": target, "input": work_input}


def _is_deeper_than(levels: int, value: Any) -> bool:
    level = [value]
    for _ in range(levels):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inner for each in values]
    return any(isinstance(each, dict | list) for each in level)


def _object(field: str, value: Any, known: Collection[str], *, ignored: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidLockRequest(field, value, "an object")
    for name in value:
        if name not in known and name != ignored:
            path = shown(f"{field}.{name}" if field == "task" else name).strip('"')
            raise InvalidLockRequest(path, value[name], f"only the fields {', '.join(sorted(known))}")
    return value


def _missing(field: str, what: str) -> Any:
    raise InvalidLockRequest(field, None, f"{what}; the field must be given")


def events_of_a_poll(since_ms: int, lease_ms: int, *, woken: bool) -> int:
    """How many events a poll has cost a waiter, this long after the one before."""
    if not woken:
        return EVENTS_PER_POLL
    parks = min(PARKS_PER_POLL - 1, max(0, since_ms) // (lease_ms // 2))
    return EVENTS_PER_PARKED_POLL - (PARKS_PER_POLL - 1 - parks) * EVENTS_PER_PARK


def most_polls_an_execution(*, woken: bool) -> int:
    """How often a continuation polls."""
    return 450 if woken else 2_000


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
        "rowMs": row_ms_of(event),
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


def row_ms_of(event: Mapping[str, Any]) -> int:
    """The lease of the rows of waiters far behind; 0 if the definition, of an earlier version, does not know of it."""
    return int(event.get("rowLeaseSeconds", 0) * 1_000)


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


def answer(task_token: str, reply: Mapping[str, Any], goes_on: str | None) -> TaskAnswer:
    """The answer of the first step to its own callback task, which routes the execution.

    It succeeds with the reply if the lock is held, and the work is what the state goes on to. It fails with the name
    and the text of a refusal; otherwise with a name by which a Catch goes on, and the reply as the cause.

    Args:
        reply: ``lock`` with the turn, and ``task``.
        goes_on: the kind of the work to which the state goes on; None in a fragment, which names no task and keeps only
            ``lock``.
    """
    turn, told = reply["lock"]["turn"], reply if goes_on is not None else reply["lock"]
    status = turn["status"]
    if "cause" in turn:
        return TaskAnswer(task_token, status, turn["cause"][:_MAX_CAUSE])
    text = json.dumps(told, ensure_ascii=False)
    if status == "granted" and reply["task"].get("kind") == goes_on:
        return TaskAnswer(task_token, output=text)
    if len(text) > _MAX_CAUSE:
        return TaskAnswer(task_token, "AnswerTooLong", f"{len(text):,} characters, of at most {_MAX_CAUSE:,}")
    return TaskAnswer(task_token, {"granted": "Granted", "parked": "Parked"}.get(status, "NotYet"), text)


def refusal(error: Exception) -> Turn:
    """The turn of a refused claim: the error's name and text."""
    return {"status": type(error).__name__, "cause": str(error)}


def log_keys(claim: Claim, ticket: int | None = None) -> dict[str, Any]:
    """The fields of a log line for a claim."""
    return {"entity": claim.lock.entity, "namespace": claim.lock.namespace, "ticket": ticket}


def hashes(holders: tuple[Holder, ...]) -> list[str]:
    """Hashes that identify holders without their names."""
    return [short_hash(holder.owner) for holder in holders]
