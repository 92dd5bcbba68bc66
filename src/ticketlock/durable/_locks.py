"""``DurableLocks``: its settings, and one hold: the order of its operations, which is frozen.

An execution that is replayed must meet the same operations, by name, in the same order, in every later version:

    lock N: take -> [lock N: turn K -> lock N: park K -> [lock N: poll K]]* -> the block -> lock N: release

Every decision is by what an operation has recorded.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from secrets import token_hex
from types import TracebackType
from typing import Any

from ticketlock import errors
from ticketlock._checks import Refusals, Seconds, callback, duration_ms
from ticketlock._names import AnyName
from ticketlock.durable._holding import DurableHolding
from ticketlock.durable._lease import DurableLease
from ticketlock.durable._sdk import (
    OURS,
    CallbackConfig,
    CallbackError,
    DurableContext,
    Duration,
    ExecutionError,
    InvocationError,
    OrphanedChildException,
    StepError,
    SuspendExecution,
    TimedSuspendExecution,
    check_context,
    is_cut_off,
    operation_id,
    operation_name,
    raised_again,
)
from ticketlock.errors import AlreadyHeld, LockLost, PermitsMismatch, RecordWaitExceeded, TableError, UnsupportedFormat
from ticketlock.locks import (
    DEFAULT_NAMESPACE,
    MIN_LEASE_MS,
    Claim,
    Contender,
    Fence,
    Grant,
    Invocation,
    LockName,
    LockTable,
    Place,
    Position,
    Session,
    check_lease,
    free_if_ended,
    record_wait_ms,
    store_wake_up_token,
)
from ticketlock.wire import DURABLE, Clocks, Heartbeat, Steps, SystemClocks, TaskAnswer, make_lambda_client

_LONGEST_LEASE_MS = 24 * 3_600_000
# https://docs.aws.amazon.com/lambda/latest/dg/durable-configuration.html
_LONGEST_EXECUTION_MS = 366 * 24 * 3_600_000
_FIRST_PARK_S, _LONGEST_PARK_S = 30, 12 * 3_600
# An execution has 3,000 operations: so parks grow with the wait.
_PARKED_SHARE = 10
# The holds that each thread is inside of: a handler, or a branch, runs in one.
_inside = threading.local()


class DurableLocks:
    """The locks of one table, for durable executions. Make it once, at module level.

    Args:
        table_name: the lock table.
        client: a DynamoDB client of your own, with ``config=client_config()``.
        lambda_client: a Lambda client of that kind, which wakes other durable executions; made unless given.
        step_functions: a Step Functions client: a release then wakes waiting workflows at once.
        namespace: the namespace of locks that are named without one.
        lease: how long a lock stays held if the invocation that holds it ends without a trace, in seconds or as a
            ``timedelta``: from four read time-outs of the client, which are 8 seconds unless set, to 1 day.
        record_wait: how long to wait for a lock at most; ``math.inf`` waits for ever.
        while_suspended: for how long a lock stays held while an execution is suspended and no one knows until when: in
            ``callback.result()`` or ``context.invoke``, for example.
        resume_margin: how much later than planned an execution may go on without losing its locks: a cold start,
            throttling, a pause.
        function_timeout: the time-out of the function: the place in the queue of a waiter in a branch is kept for as
            long, since the SDK wakes it only once its siblings are suspended, too.
        on_wait: is called with the ``Position`` at each poll that finds others before it; never at a replay.
        clocks: the source of time; the machine's, unless a test replaces it.

    Raises:
        InvalidLockRequest: settings are out of their bounds, no Region is set, or a client cannot be used; it tells of
            all at once.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: Any = None,
        lambda_client: Any = None,
        step_functions: Any = None,
        namespace: str = DEFAULT_NAMESPACE,
        lease: Seconds = 60,
        record_wait: Seconds = math.inf,
        while_suspended: Seconds = timedelta(days=1),
        resume_margin: Seconds = timedelta(minutes=15),
        function_timeout: Seconds = timedelta(minutes=15),
        on_wait: Callable[[Position], object] | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        refusals = Refusals()
        self._namespace = refusals.of(LockName, "any", namespace)
        self._lease_ms = refusals.of(_lease_ms, lease)
        self._record_wait_ms = refusals.of(record_wait_ms, "record_wait", record_wait)
        self._suspended_ms = refusals.of(_long_ms, "while_suspended", while_suspended)
        self._margin_ms = refusals.of(_long_ms, "resume_margin", resume_margin)
        self._timeout_ms = refusals.of(_long_ms, "function_timeout", function_timeout)
        self._on_wait = refusals.of(callback, "on_wait", on_wait)
        if lambda_client is None:
            lambda_client = refusals.of(make_lambda_client)
        self._clocks = clocks if clocks is not None else SystemClocks()
        make_table = partial(LockTable, table_name, client=client, step_functions=step_functions, clocks=self._clocks)
        self._table = refusals.of(make_table, lambda_client=lambda_client)
        refusals.raise_all()
        self._invocations = _Invocations()
        self._heartbeat: Heartbeat[DurableHolding] = Heartbeat(self._clocks, lambda holding, _: holding.renew())

    @property
    def table(self) -> LockTable:
        """The lock table."""
        return self._table

    def hold(
        self,
        context: DurableContext,
        entity: AnyName,
        *,
        namespace: str | None = None,
        name: str | None = None,
        record_wait: Seconds | None = None,
        lease: Seconds | None = None,
        while_suspended: Seconds | None = None,
        permits: int = 1,
        shared: bool = False,
        data: str | None = None,
    ) -> "DurableHold":
        """A context manager that waits for the lock, and holds it for its block.

        The wait suspends the execution: nothing runs, and any release wakes it. In a branch of ``parallel`` or ``map``
        the SDK goes on with it only once its siblings are suspended or have ended: wait for a lock before the fan-out.

        Args:
            context: the durable context; of the branch, or child, that this is called in.
            entity: what is locked.
            namespace: None for the client's.
            name: begins the names of the operations, in printable ASCII; None for one that shows the entity.
            record_wait, lease, while_suspended: None for those of the client.
            permits, shared, data: as of ``ticketlock.LockClient.acquire``.

        Raises:
            InvalidLockRequest: an argument is out of its bounds; nothing was recorded or written.

        Entering it raises:
            AlreadyHeld: the line of control is inside of a block that holds the lock; nothing was recorded or written.
            RecordWaitExceeded: the record wait was over.
            PermitsMismatch: the lock has another number of permits.
        """
        check_context(context)
        lock = LockName(entity, self._namespace.namespace if namespace is None else namespace)  # type: ignore[arg-type]
        wait_ms = self._record_wait_ms if record_wait is None else record_wait_ms("record_wait", record_wait)
        suspended_ms = self._suspended_ms if while_suspended is None else _long_ms("while_suspended", while_suspended)
        claim = Claim(
            lock,
            "any",
            self._lease_ms if lease is None else _lease_ms(lease),
            permits=permits,
            shared=shared,
            data=data,
        )
        check_lease(claim.lease_ms, self._table.client)
        shown = operation_name(lock.entity, name)
        return DurableHold(self, context, claim, shown, wait_ms, (suspended_ms, self._margin_ms))


class DurableHold:
    """One hold of a lock; enter it once."""

    def __init__(
        self,
        locks: DurableLocks,
        context: Any,
        claim: Claim,
        name: str,
        wait_ms: int | None,
        bounds_ms: tuple[int, int],
    ) -> None:
        self._locks = locks
        self._table: LockTable = locks._table
        self._context = context
        self._claim = claim
        self._name = name
        self._wait_ms = wait_ms
        self._bounds_ms = bounds_ms
        self._holding: DurableHolding | None = None
        # What this invocation was granted itself.
        self._grant: Grant | None = None

    def __enter__(self) -> DurableLease:
        if self._holding is not None:
            raise errors.InvalidLockRequest("hold", self._name, "a new hold for each `with`")
        execution = self._context.execution_context.durable_execution_arn
        self._check_inside(execution)
        operation = operation_id(self._context)
        session = Session(execution, operation)
        self._claim = replace(
            self._claim,
            owner=f"{execution}/{operation}",
            session=session,
            noted_in=session,
            invocation=self._locks._invocations.of(self._context, self._locks._clocks),
        )
        state = self._wait_for_turn(session)
        if "granted" not in state:
            raise _refusal(state)
        locks, granted, claim = self._locks, state["granted"], self._claim
        self._holding = DurableHolding(
            self._table, locks._heartbeat, locks._clocks, claim, session, granted, self._bounds_ms
        )
        self._holding.begin(self._grant)
        _holds().append(self)
        fenced = {
            "entity": claim.lock.entity,
            "namespace": claim.lock.namespace,
            "owner": claim.owner,
            "fencingToken": granted["token"],
        }
        fence = Fence(fenced, self._table.table_name)
        return DurableLease(self._holding, self._context, claim, session, self._name, fence)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        holding = self._holding
        assert holding is not None
        if self in _holds():
            _holds().remove(self)
        holding.end()
        if isinstance(error, SuspendExecution):
            until_s = error.scheduled_timestamp if isinstance(error, TimedSuspendExecution) else None
            holding.suspend(until_s, may_have_ended=is_cut_off(self._context))
        elif isinstance(error, OrphanedChildException | ExecutionError):
            # The branch never runs again, or the execution fails: no operation can be recorded.
            holding.release_at_once()
        elif (error is not None and not isinstance(error, Exception)) or isinstance(error, InvocationError):
            # The invocation is torn down, and the next one comes back into the block.
            return
        else:
            try:
                outcome = self._operation(f"{self._name}: release", holding.release)
            except (OrphanedChildException, ExecutionError):
                # It meets what another version of the code has recorded there.
                holding.release_at_once()
                raise
            if "lost" in outcome and error is None:
                raise LockLost(outcome["lost"])

    def _check_inside(self, execution: str) -> None:
        """Refuse to wait for a lock that this line of control holds itself. What it decides by is the same at each
        replay.
        """
        claim = self._claim
        around = [each for each in _holds() if each._claim.lock == claim.lock and each._is_of(execution, self._table)]
        if around and (claim.shared or len(around) >= claim.permits):
            raise AlreadyHeld(
                f"the execution is inside of a block that holds {claim.lock.entity!r}, and would wait for itself: "
                "use the lease of that block"
            )

    def _is_of(self, execution: str, table: LockTable) -> bool:
        session = self._claim.session
        return session is not None and session.execution == execution and self._table.table_name == table.table_name

    # The wait.

    def _wait_for_turn(self, session: Session) -> Mapping[str, Any]:
        wait_ms = self._wait_ms
        state = self._asked("take", {}, lambda me: me.take_ticket(wait_ms))
        number = 0
        while "waiting" in state:
            number += 1
            patience_s = _park_s(state)
            turn = self._context.create_callback(
                name=f"{self._name}: turn {number}",
                config=CallbackConfig(timeout=Duration.from_seconds(patience_s), sub_type=OURS.sub_type),
            )
            state = self._asked(
                f"park {number}", state, self._parking(session, turn.callback_id, number, patience_s, state)
            )
            if "waiting" not in state:
                break
            try:
                turn.result()
            except CallbackError:
                # Nobody has woken it: the next park polls.
                continue
            polling = partial(_poll, place=Place(*state["waiting"]), until_ms=state["until"])
            state = self._asked(f"poll {number}", state, polling)
        return state

    def _parking(
        self, session: Session, callback_id: str, number: int, patience_s: int, state: Mapping[str, Any]
    ) -> Callable[[Contender], Steps[Grant | Position]]:
        """Store the token of the callback, **then** poll; the row outlives the callback and the function."""
        token = DURABLE + callback_id
        kept_ms = 2 * patience_s * 1_000 + self._locks._timeout_ms
        place, until_ms = Place(*state["waiting"]), state["until"]

        def park(me: Contender) -> Steps[Grant | Position]:
            me.keep_row_for(kept_ms)
            yield from store_wake_up_token(me, session, token, number)
            found = yield from _poll(me, place, until_ms)
            # Who has joined again has not looked since, and has a short row.
            if isinstance(found, Position) and (found.place_lost or (yield from free_if_ended(me, found))):
                found = yield from _poll(me, found.place, until_ms)
            if isinstance(found, Grant):
                # Nobody awaits the callback, whose time-out would start an invocation.
                with suppress(TableError):
                    yield from me.send(TaskAnswer(token))
            return found

        return park

    def _asked(
        self, what: str, state: Mapping[str, Any], steps: Callable[[Contender], Steps[Grant | Position]]
    ) -> Mapping[str, Any]:
        """The operation that asks the table, and what it has recorded."""
        return self._operation(f"{self._name}: {what}", lambda: self._answer(state, steps))

    def _answer(
        self, state: Mapping[str, Any], steps: Callable[[Contender], Steps[Grant | Position]]
    ) -> Mapping[str, Any]:
        now_ms = self._table.now().likely_ms
        until_ms = None if self._wait_ms is None else now_ms + self._wait_ms
        since = {"arrived": state.get("arrived", now_ms), "until": state.get("until", until_ms)}
        try:
            found = self._table.contend(self._claim, steps)
        except RecordWaitExceeded as over:
            holders = [[owner, *(round(each.timestamp() * 1_000) for each in times)] for owner, *times in over.holders]
            return {"over": str(over), "holders": holders, "closed": over.is_closed}
        except PermitsMismatch as found_other:
            return {"mismatch": [found_other.asked, found_other.stored, found_other.entity]}
        if isinstance(found, Grant):
            self._grant = found
            return {
                "granted": {
                    "token": found.fencing_token,
                    "ticket": found.ticket,
                    "until": found.lease_until_ms,
                    "since": found.since_ms,
                    "mean": found.mean_hold_ms,
                }
            }
        if self._locks._on_wait is not None:
            self._locks._on_wait(found)
        place = found.place
        return {"waiting": [place.ticket, place.lease_until_ms], **since, "at": found.now.likely_ms}

    def _operation(self, name: str, ask: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = self._context.step(lambda _: ask(), name=name, config=OURS)
        except StepError as failed:
            raise raised_again(failed, _table_error) from failed
        return answer


def _poll(me: Contender, place: Place, until_ms: int | None) -> Steps[Grant | Position]:
    """Poll once; who may not have the lock any more leaves the queue."""
    try:
        return (yield from me.check_turn(place, until_ms))
    except (PermitsMismatch, UnsupportedFormat):
        left = yield from me.withdraw(place.ticket)
        if left is not None:
            yield from me.release(left, data_left=left.data_left)
        raise


def _holds() -> "list[DurableHold]":
    found: list[DurableHold] = vars(_inside).setdefault("holds", [])
    return found


def _park_s(state: Mapping[str, Any]) -> int:
    """How long the next callback waits, by recorded values alone: at most to the end of the record wait."""
    waited_s = (state["at"] - state["arrived"]) // 1_000
    park_s = max(_FIRST_PARK_S, min(_LONGEST_PARK_S, waited_s // _PARKED_SHARE))
    if state["until"] is not None:
        park_s = min(park_s, -(-(state["until"] - state["at"]) // 1_000))
    return max(1, int(park_s))


def _refusal(state: Mapping[str, Any]) -> Exception:
    if "mismatch" in state:
        return PermitsMismatch(*state["mismatch"])
    over = RecordWaitExceeded("", [tuple(each) for each in state["holders"]], is_closed=state["closed"])
    over.args = (state["over"],)
    return over


def _table_error(name: str) -> type[Exception] | None:
    found = getattr(errors, name, None)
    return found if isinstance(found, type) and issubclass(found, TableError) else None


class _Invocations:
    """Tells invocations apart, by when the service ends them: what remains counts down to a moment that it fixed."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._last_ms = 0

    def of(self, context: Any, clocks: Clocks) -> Invocation:
        """Another one at each call, with a later end: within one invocation a branch may go on, and enter its block
        again.
        """
        remaining_ms = int(context.lambda_context.get_remaining_time_in_millis())
        reading = clocks.read()
        with self._mutex:
            self._last_ms = max(self._last_ms + 1, int(time.time() * 1_000) + remaining_ms)
            return Invocation(token_hex(8), self._last_ms, reading.local_ms + remaining_ms)


def _lease_ms(value: Seconds) -> int:
    return duration_ms("lease", value, MIN_LEASE_MS, _LONGEST_LEASE_MS)


def _long_ms(field: str, value: Seconds) -> int:
    return duration_ms(field, value, 0, _LONGEST_EXECUTION_MS)
