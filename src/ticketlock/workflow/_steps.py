"""The functions of the state machine, one call each."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ticketlock.errors import (
    EventBudgetExceeded,
    InvalidLockRequest,
    LockLost,
    PermitsMismatch,
    RecordWaitExceeded,
    TableError,
    TaskNotAllowed,
    UnsupportedFormat,
)
from ticketlock.locks import FIRST_CONTACT, Claim, Contender, Grant, LockTable, Position, Session, await_wake_up
from ticketlock.wire import (
    Describing,
    Steps,
    T,
    make_lambda_client,
    make_step_functions_client,
    run_that_ended,
)
from ticketlock.workflow import _turn as turns
from ticketlock.workflow._clean_up import CleanedUp, WorkOf, clean_up, close, is_anything_left
from ticketlock.workflow._durable import clean_up_durable, ended_at_ms, is_durable
from ticketlock.workflow._failures import (
    WorkFailure,
    execution_arn,
    holding_name,
    waiting_name,
    work_name,
)
from ticketlock.workflow._pace import Patience, PollPause, next_poll, next_sleep
from ticketlock.workflow._session import (
    LastBeat,
    abandon,
    beat,
    claims_of,
    finish,
    is_unfinished,
    note_claim,
    note_continuation,
)
from ticketlock.workflow._turn import LockRequest, Turn

_PLACE = "serialize"
_CLOCKS_DIFFER_MS = 3_000
# More than the retries of a task within its state.
_TRIES_A_MS = 10**9
# Ends of an execution that never had a queue row, or deleted it itself; work that fails with such a name is released.
_HAS_LEFT = frozenset(
    error.__name__ for error in (InvalidLockRequest, PermitsMismatch, RecordWaitExceeded, TaskNotAllowed)
)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    Attributes:
        reply: the output with which the state machine continues.
        metrics: counts, and times in milliseconds (names that end in ``Time`` or ``Age``).
        keys: the fields of this step's log line.
    """

    reply: Mapping[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)


class Workflow:
    """The steps, for one lock table.

    Args:
        table: the lock table, with a Step Functions client that answers callback tasks.
    """

    def __init__(self, table: LockTable) -> None:
        self._table = table

    @classmethod
    def over(cls, table_name: str) -> "Workflow":
        """The workflow for a table, with its own clients for DynamoDB, Step Functions and Lambda."""
        clients = {"step_functions": make_step_functions_client(), "lambda_client": make_lambda_client()}
        return cls(LockTable(table_name, **clients))

    def prepare(self) -> None:
        """Connect to the table and learn table time before the first step; if that fails the step does it.

        Sends one request, which waits for 3 seconds at most.
        """
        with suppress(TableError):
            self._table.perform(FIRST_CONTACT)

    def disconnect(self) -> None:
        """Close the connections; the next step opens new ones."""
        self._table.client.close()

    def take_ticket(self, event: Mapping[str, Any]) -> Step:
        """Check the request; take the lock or join the queue; answer the callback task, if there is one.

        Args:
            event: ``request`` (the execution's input), ``execution`` (its ARN, which is the owner), ``started`` (when
                it started, which orders the numbers of permits of two deployments), ``targets``,
                ``defaultRecordWaitSeconds``, ``defaultPermits``, ``leaseSeconds``, ``rowLeaseSeconds``,
                ``pollSeconds``, ``handOver``, ``continueMachine``, ``pollsAnExecution``, ``beatsAnExecution``. In a
                fragment also ``place``, which with the execution is the owner; its request names no task. Of a callback
                task ``taskToken``, and ``goesOn``, the kind of work to which its state goes on, but for fragments.

        Returns:
            The turn, and the task; nothing if they are the answer of the callback task.
        """
        step = self._ticket(event)
        if "taskToken" not in event:
            return step
        # Without table time, which a refused request does not need.
        self._table.drive(self._table.sending(turns.answer(event["taskToken"], step.reply, event.get("goesOn"))))
        return replace(step, reply={})

    def _ticket(self, event: Mapping[str, Any]) -> Step:
        asked, place = event["request"], event.get("place")
        defaults: dict[str, Any] = {
            "default_record_wait": event["defaultRecordWaitSeconds"],
            "default_permits": event["defaultPermits"],
        }
        try:
            if place is None:
                request = LockRequest.parse(asked, targets=event["targets"], **defaults)
            else:
                request = LockRequest.parse_place(asked, **defaults)
        except (InvalidLockRequest, TaskNotAllowed) as error:
            # The text quotes the caller, perhaps with another's owner; the execution fails with it as its cause.
            return Step({"lock": {"turn": turns.refusal(error)}}, {}, {"refused": type(error).__name__})
        execution = event["execution"]
        session = Session(execution, place or _PLACE)
        owner = execution if place is None else f"{execution}/{place}"
        is_woken = event["handOver"] == "callback"
        claim = Claim(
            request.lock,
            owner,
            int(event["leaseSeconds"] * 1_000),
            permits=request.permits,
            session=session if is_woken else None,
            shared=request.shared,
            noted_in=session,
            permits_since_ms=_permits_since_ms(request, event),
        )
        wait_ms = request.record_wait_ms
        if place is not None:
            self._run(claim, lambda me: note_claim(me, session, event["workMachine"]))
        try:
            found = self._table.take_ticket(claim, wait_ms)
        except (PermitsMismatch, RecordWaitExceeded) as error:
            refused = _refused(error, claim)
            return replace(refused, reply={"lock": {"turn": refused.reply}})
        turn = turns.new_turn(claim, session, event, self._table.now().likely_ms, wait_ms)
        step = self._found(turn, claim, found)
        return Step({"lock": {"turn": step.reply}, "task": request.task}, step.metrics, step.keys)

    def wait_for_wake_up(self, event: Mapping[str, Any]) -> Step:
        """Park: store the callback task's token for the client that frees the lock, and extend the queue row.

        Args:
            event: ``turn``, ``leaseSeconds``, ``taskToken``, ``entered`` and ``retry`` (when the state was entered, and
                how often it was retried).
        """
        turn = event["turn"]
        claim, place = turns.claim_of(turn, event), turns.place_of(turn)
        session, park = turns.session_of(turn), _order(event)

        def may_stay(seen: Position) -> bool:
            # The clocks of two functions differ: the decision of the last poll stands for some seconds.
            longer = self._sleep(turn, claim, seen, slack_ms=_CLOCKS_DIFFER_MS)
            return turn["status"] == "parkedBriefly" or longer.status in (turn["status"], "parkedBehind")

        keeping = replace(claim, lease_ms=turn["rowMs"]) if turn["status"] == "parkedBehind" else claim
        seen = self._run(keeping, lambda me: await_wake_up(me, place, session, event["taskToken"], park, may_stay))
        metrics = {} if seen is None else _age(turn, seen)
        return Step({}, metrics, turns.log_keys(claim, place.ticket) | {"stays": seen is not None})

    def check_position(self, event: Mapping[str, Any]) -> Step:
        """Poll once; take the lock if it is this execution's turn.

        Args:
            event: ``turn``, ``leaseSeconds``, ``rowLeaseSeconds``, ``execution`` (the ARN of the present one).
        """
        turn = dict(event["turn"])
        claim, place = turns.claim_of(turn, event), turns.place_of(turn)
        is_first = event["execution"] == turn["session"]["execution"]
        turn["polls"] += 1
        turn["pollsHere"] += 1
        turn["rowMs"] = turns.row_ms_of(event)
        try:
            found = self._table.check_turn(claim, place, turn["waitUntilMs"])
        except RecordWaitExceeded as error:
            return _refused(error, claim, place.ticket)
        except UnsupportedFormat:
            # A newer version has used the lock. Who leaves needs no format.
            self._table.withdraw(claim, place.ticket)
            raise
        except PermitsMismatch as error:
            # The lock was created again with another number of permits.
            won = self._table.withdraw(replace(claim, permits=error.stored, shared=False), place.ticket)
            if won is None:
                return _refused(error, claim, place.ticket)
            found = won
        most = turn["pollsAnExecution"]
        if is_first:
            most = min(most, turns.FIRST_POLLS)
            polled_ms = found.now.likely_ms if isinstance(found, Position) else found.since_ms
            turn["events"] += turns.events_of_a_poll(
                polled_ms - turn["polledMs"], claim.lease_ms, woken=turns.is_woken(turn)
            )
            turn["polledMs"] = polled_ms
        if isinstance(found, Position) and turn["pollsHere"] >= most:
            return self._continue(turn, claim, found)
        step = self._found(turn, claim, found)
        if isinstance(found, Grant) and not is_first:
            # When the first execution gets the grant, a part of the lease has passed: it renews the lease itself, and
            # counts the grant.
            return Step({**step.reply, "status": "grantedMeanwhile"}, {"TakenOver": found.took_over}, step.keys)
        return step

    def heartbeat(self, event: Mapping[str, Any]) -> Step:
        """Renew the lease; end the heartbeat's task if the work has ended or the lock is lost.

        Args:
            event: ``turn``, ``leaseSeconds``, ``execution``, ``taskToken``, ``entered`` and ``retry`` (when the state
                was entered, and how often it was retried).
        """
        turn = event["turn"]
        claim, held, session = turns.claim_of(turn, event), turns.grant_of(turn), turns.session_of(turn)
        is_first = event["execution"] == session.execution
        last = _last_beat(turn, event["retry"] + 1, is_first=is_first)
        beats = turn["beats"] + event["retry"]
        keys = turns.log_keys(claim, held.ticket) | {"fencing_token": held.fencing_token, "beat": beats}
        try:
            self._run(claim, lambda me: beat(me, held, session, event["taskToken"], _order(event), last))
        except LockLost as lost:
            return Step({}, {"LostLeases": 1}, keys | {"lost": str(lost)})
        return Step({}, {}, keys | ({"last": last.error} if last is not None else {}))

    def release(self, event: Mapping[str, Any]) -> Step:
        """The work has ended, or failed: free the lock if the work has certainly ended, and end the heartbeat.

        Args:
            event: ``turn``; after a failure also ``failure`` (``{"Error", "Cause"}``), ``kind``, the kind of the work,
                and ``work``, its ARN, if it has one.

        Returns:
            After a failure the work's own ``error`` and ``cause``.

        Raises:
            LockLost: the work succeeded, but only after its lease had ended.
        """
        turn = event["turn"]
        claim, held, session = turns.claim_of(turn), turns.grant_of(turn), turns.session_of(turn)
        keys = turns.log_keys(claim, held.ticket) | {"fencing_token": held.fencing_token}
        if "failure" not in event:
            released = self._run(claim, lambda me: finish(me, held, session))
            return Step({}, {"HoldTime": released.held_ms}, keys)
        failure = WorkFailure.parse(event["failure"], kind=event["kind"])
        own = failure.to_report()
        reply = {"error": own.error, "cause": own.cause}
        keys |= {"work_error": own.error}
        has_ended = failure.work_has_ended()
        if not has_ended and event["kind"] == "execution":
            # A nested execution continues after its task's time-out, and the error may not say whether it has ended.
            work = execution_arn(event["work"], work_name(claim.owner, held.fencing_token))
            refused = failure.start_was_refused()
            has_ended = self._run(claim, lambda me: close(me, work, was_refused=refused))
        if not has_ended:
            self._run(claim, lambda me: abandon(me, held, session))
            return Step(reply, {"AbandonedHolds": 1}, keys)
        try:
            released = self._run(claim, lambda me: finish(me, held, session))
        except LockLost as lost:
            # The work failed anyway, and its own error says more.
            return Step(reply, {"LostLeases": 1}, keys | {"lost": str(lost)})
        return Step(reply, {"HoldTime": released.held_ms}, keys)

    def clean_up(self, event: Mapping[str, Any], *, state_machine: str, lease_ms: int, patience_ms: int = 0) -> Step:
        """An execution has failed, timed out or was stopped: leave the queue; free the lock if its work has certainly
        ended.

        For an execution that left nothing, no request goes to Step Functions.

        Args:
            event: the status event of EventBridge
                (https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html).
            state_machine: the ARN of the serialised workflow; executions of others are identified by their sessions.
            lease_ms: the serialised workflow's lease.
            patience_ms: for how long throttled requests are retried.
        """
        detail = event["detail"]
        if is_durable(event):
            return self._clean_up_durable(detail, patience_ms)
        execution = detail["executionArn"]
        keys = {"status": detail["status"]}
        is_own = detail["stateMachineArn"] == state_machine
        if is_own and detail.get("error") in _HAS_LEFT:
            return Step({}, {}, keys | {"left": detail["error"]})
        patience, stopped_ms = Patience(patience_ms), detail["stopDate"]

        def run(steps: Callable[..., Steps[T]], *args: Any, **more: Any) -> T:
            return self._table.run(lambda now: patience.run(steps(*args, **more), now))

        def contend(claim: Claim, steps: Callable[..., Steps[T]], *args: Any) -> T:
            return self._table.run(lambda now: patience.run(steps(self._table.contender(claim, now), *args), now))

        asked, described = detail.get("input"), None
        if is_own and asked is None:
            # The input was too long for the event, and the session does not record the work.
            if not run(is_unfinished, execution):
                return Step({}, {}, keys)
            described = run(_describe, execution, with_input=True)
            asked = described.get("input")
        if is_own and asked is not None:
            claimed = _claim_by_input(asked, execution, lease_ms)
        else:
            claimed = run(claims_of, execution)
        left = [each for each in claimed if contend(each[1], is_anything_left, each[0], stopped_ms)]
        if not left:
            return Step({}, {}, keys)
        if described is None:
            described = run(_describe, execution)
        if described.get("redriveCount", 0) > run_that_ended(detail, described):
            return Step({}, {}, keys | {"redriven": True})
        done = [
            contend(claim, clean_up, session, stopped_ms, _work_of(claim, machine)) for session, claim, machine in left
        ]
        return _cleaned_up(done, keys)

    def _clean_up_durable(self, detail: Mapping[str, Any], patience_ms: int) -> Step:
        patience, ended_ms = Patience(patience_ms), ended_at_ms(detail)

        def clean(session: Session, claim: Claim) -> CleanedUp:
            return self._table.run(
                lambda now: patience.run(clean_up_durable(self._table.contender(claim, now), session, ended_ms), now)
            )

        claimed = self._table.run(lambda now: patience.run(claims_of(detail["durableExecutionArn"]), now))
        done = [clean(session, claim) for session, claim, _ in claimed]
        return _cleaned_up(done, {"status": detail["status"]})

    def _run(self, claim: Claim, steps: Callable[[Contender], Steps[T]]) -> T:
        return self._table.run(lambda now: steps(self._table.contender(claim, now)))

    def _found(self, turn: Turn, claim: Claim, found: Grant | Position) -> Step:
        if isinstance(found, Grant):
            keys = turns.log_keys(claim, found.ticket) | {"fencing_token": found.fencing_token}
            waited_ms = max(0, found.since_ms - turn["arrivedMs"])
            metrics = {"Grants": 1, "WaitTime": waited_ms, "TakenOver": found.took_over}
            return Step(turns.with_grant(turn, found), metrics, keys)
        keys = turns.log_keys(claim, found.place.ticket) | {
            "ahead": found.ahead,
            "place_lost": found.place_lost,
            "holders": turns.hashes(found.holders),
        }
        sleep = self._sleep(turn, claim, found)
        # A Wait state takes whole seconds.
        wait_s = max(1, -(-sleep.ms // 1_000))
        reply = {**turns.with_place(turn, found.place), "status": sleep.status, "waitSeconds": wait_s}
        return Step(reply, _age(turn, found), keys)

    def _sleep(self, turn: Turn, claim: Claim, found: Position, *, slack_ms: int = 0) -> PollPause:
        waited_ms = max(0, found.now.likely_ms - turn["arrivedMs"])
        rest_ms = None if turn["waitUntilMs"] is None else turn["waitUntilMs"] - found.now.likely_ms
        if turns.is_woken(turn):
            return next_sleep(
                found,
                lease_ms=claim.lease_ms,
                poll_ms=turn["pollMs"],
                rest_ms=rest_ms,
                row_ms=turn.get("rowMs", 0),
                slack_ms=slack_ms,
            )
        return next_poll(
            found,
            lease_ms=claim.lease_ms,
            poll_ms=turn["pollMs"],
            waited_ms=waited_ms,
            rest_ms=rest_ms,
            jitter=random.random(),
        )

    def _continue(self, turn: Turn, claim: Claim, found: Position) -> Step:
        keys = turns.log_keys(claim, found.place.ticket)
        if turn["events"] + turns.EVENTS_PER_WAITING_CONTINUATION > turns.WAITING_EVENTS:
            won = self._table.withdraw(claim, found.place.ticket)
            if won is not None:
                return self._found(turn, claim, won)
            over = EventBudgetExceeded(f"not the turn after {turn['polls']:,} polls: the event history is full")
            return Step(turns.refusal(over), {}, keys | {"refused": str(over)})
        continuation = turn["continuations"] + 1
        name = waiting_name(claim.owner, continuation)
        session = turns.session_of(turn)
        execution = execution_arn(turn["continueMachine"], name)
        self._run(claim, lambda me: note_continuation(me, session, execution, continuation))
        reply = {
            **turns.with_place(turn, found.place),
            "status": "continued",
            "continueName": name,
            "pollsHere": 0,
            "continuations": continuation,
            "events": turn["events"] + turns.EVENTS_PER_WAITING_CONTINUATION,
        }
        return Step(reply, {}, keys | {"continuation": continuation})


def _cleaned_up(done: Sequence[CleanedUp], keys: Mapping[str, Any]) -> Step:
    counts = {
        "CleanedUpPlaces": sum(each.left for each in done),
        "CleanedUpHolds": sum(each.freed for each in done),
        "HoldsLeftToLease": sum(each.left_to_lease for each in done),
    }
    return Step({}, {name: value for name, value in counts.items() if value}, {**keys, **counts})


def _refused(error: PermitsMismatch | RecordWaitExceeded, claim: Claim, ticket: int | None = None) -> Step:
    metrics = {"RecordWaitsExceeded": 1} if isinstance(error, RecordWaitExceeded) else {}
    # The text names the holders; the execution fails with it as its cause.
    return Step(turns.refusal(error), metrics, turns.log_keys(claim, ticket) | {"refused": type(error).__name__})


def _order(event: Mapping[str, Any]) -> int:
    """A number that rises with each try of a callback task, across continuations."""
    return _epoch_ms(event["entered"]) * _TRIES_A_MS + int(event["retry"])


def _permits_since_ms(request: LockRequest, event: Mapping[str, Any]) -> int | None:
    """As in ``Claim``. A request that shares the lock has one permit in every deployment, so it changes no number."""
    if request.names_permits:
        return None
    # The definition of an earlier version does not say when the execution started.
    return 0 if request.shared or "started" not in event else _epoch_ms(event["started"])


def _epoch_ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1_000)


def _age(turn: Turn, found: Position) -> Mapping[str, float]:
    return {"OldestWaiterAge": max(0, found.now.likely_ms - turn["arrivedMs"])} if found.ahead == 0 else {}


def _describe(execution: str, *, with_input: bool = False) -> Steps[Mapping[str, Any]]:
    """The description of an execution; empty if Step Functions does not know it any more."""
    return (yield Describing(execution, with_input)).item or {}


def _claim_by_input(text: str, execution: str, lease_ms: int) -> list[tuple[Session, Claim, str]]:
    """The claim of an execution of the serialised workflow itself, from its input."""
    try:
        given = json.loads(text)
        request = LockRequest.parse(given, targets=None, default_record_wait="Infinity", default_permits=1)
    except (ValueError, TaskNotAllowed):
        return []  # refused at its first step: it has no claim
    claim = Claim(request.lock, execution, lease_ms)
    machine = request.task["arn"] if request.task["kind"] == "execution" else ""
    return [(Session(execution, _PLACE), claim, machine)]


def _work_of(claim: Claim, machine: str) -> WorkOf:
    return lambda token: execution_arn(machine, work_name(claim.owner, token)) if machine else None


def _last_beat(turn: Turn, beats: int, *, is_first: bool) -> LastBeat | None:
    """How a beat ends its task if it is the last that its execution can afford; None if it is not."""
    most = min(turn["beatsAnExecution"], turns.FIRST_BEATS) if is_first else turn["beatsAnExecution"]
    if beats < most:
        return None
    spent = turn["events"] + turns.EVENTS_PER_HOLDING_CONTINUATION
    spent += beats * turns.EVENTS_PER_BEAT if is_first else 0
    # If the continuation fails, the first execution sends these beats itself.
    if spent + turns.FIRST_BEATS * turns.EVENTS_PER_BEAT > turns.MAX_EVENTS:
        return LastBeat("EventBudgetExceeded", "the execution's event history has no room for another heartbeat")
    beats += turn["beats"]
    name = holding_name(turn["claim"]["owner"], turn["grant"]["fencingToken"], beats)
    next_turn = {**turn, "beats": beats, "events": spent, "continueName": name}
    return LastBeat("ContinueHolding", json.dumps(next_turn, ensure_ascii=False))
