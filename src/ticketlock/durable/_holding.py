"""What an invocation does with the lock that its execution holds: it renews, keeps, or frees it.

While an invocation runs the lease is short, and a heartbeat renews it; while the execution is suspended nothing runs,
and one write at the suspension has made it long. The first renewal of an invocation takes the long lease back, and
fences off the invocation before it, which the service may have given up while it still runs.

A loss is an answer, never an exception within a step, which the SDK would retry for minutes.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ticketlock.errors import LockLost, TableError
from ticketlock.locks import Claim, Contender, Grant, Hold, LockTable, Releasing, Session, has_ended, note_suspension
from ticketlock.wire import Clocks, Due, Heartbeat, Reading, Steps

# A replay of a block that is over passes in this time, without a request.
_REPLAYS_FOR_MS = 200
_SHORTEST_RETRY_MS = 100


class DurableHolding:
    """A lock that an execution holds, as one of its invocations sees it.

    Args:
        table, heartbeat, clocks: of ``DurableLocks``.
        claim: with the owner and the invocation.
        session: of the hold.
        granted: the grant, as an operation has recorded it.
        bounds_ms: for how long the lock stays held in a suspension of unknown length, and after one.
    """

    def __init__(
        self,
        table: LockTable,
        heartbeat: "Heartbeat[DurableHolding]",
        clocks: Clocks,
        claim: Claim,
        session: Session,
        granted: Mapping[str, Any],
        bounds_ms: tuple[int, int],
    ) -> None:
        self._table = table
        self._heartbeat = heartbeat
        self._clocks = clocks
        self._claim = claim
        self._session = session
        self._held = Hold(
            lock=claim.lock,
            owner=claim.owner,
            ticket=granted["ticket"],
            fencing_token=granted["token"],
            lease_until_ms=granted["until"],
            since_ms=granted["since"],
            mean_hold_ms=granted["mean"],
        )
        self._while_suspended_ms, self._margin_ms = bounds_ms
        # Entered by several branches; re-entrant, since what renews may be called within a body.
        self._mutex = threading.RLock()
        self._bodies = threading.Condition(self._mutex)
        self._running = 0
        self._is_over = False
        self._why_lost: str | None = None
        # What this invocation has confirmed; None before its first request.
        self._grant: Grant | None = None

    def begin(self, grant: Grant | None) -> None:
        """The block begins.

        Args:
            grant: what this invocation was granted; None if an earlier one was, so that it has to resume first.
        """
        with self._mutex:
            self._grant = grant
        self._heartbeat.watch(self)

    @contextmanager
    def body(self) -> Iterator[str | None]:
        """A body runs: why the lock is lost, if it is. The block does not end, nor is it suspended, meanwhile."""
        with self._mutex:
            if self._is_over:
                self._why_lost = self._why_lost or "the block has ended"
            self._running += 1
        try:
            yield self._lost()
        finally:
            with self._mutex:
                self._running -= 1
                self._bodies.notify_all()

    def _lost(self) -> str | None:
        """Why the lock is lost; None if this invocation has confirmed it for a quarter of its lease at least."""
        with self._mutex:
            if self._why_lost is None and self.remaining_s() * 4_000 < self._claim.lease_ms:
                self.renew()
            return self._why_lost

    def renew(self) -> None:
        """Renew the lease: the first time in an invocation by resuming it.

        Raises:
            TableError: the table could not be asked; the step, or the heartbeat, tries again.
        """
        with self._mutex:
            if self._why_lost is not None or self._is_over:
                return
            token, is_first = self._held.fencing_token, self._grant is None
            invocation = self._claim.invocation
            last_ms = invocation.not_after_local_ms if invocation is not None else None
            try:
                self._grant = self._table.contend(
                    self._claim,
                    lambda me: me.resume(token) if is_first else me.renew(token, not_after_local_ms=last_ms),
                )
            except LockLost as lost:
                self._why_lost = str(lost)

    def remaining_s(self) -> float:
        """For how long the lock is surely held unless it is renewed, in seconds; asks no one."""
        grant, reading = self._grant, self._clocks.read()
        if grant is None or self._why_lost is not None:
            return 0.0
        return max(0, min(grant.deadline_ms - reading.local_ms, grant.deadline_wall_ms - reading.wall_ms)) / 1_000

    # For the heartbeat.

    def _due_ms(self, reading: Reading) -> int:
        grant = self._grant
        if grant is None:
            return reading.local_ms + _REPLAYS_FOR_MS
        return max(reading.local_ms + _SHORTEST_RETRY_MS, grant.deadline_ms - self._claim.lease_ms // 2)

    def _take_due(self, reading: Reading) -> Due | None:
        if self._is_over or self._why_lost is not None:
            return "lost"
        # A body may have renewed it since.
        is_due = self._grant is None or reading.local_ms >= self._grant.deadline_ms - self._claim.lease_ms // 2
        return "renew" if is_due else None

    def _is_watched_on(self) -> bool:
        return not self._is_over and self._why_lost is None

    def _callback(self, _what: Due) -> None:
        return None

    # The ends of the block.

    def end(self) -> None:
        """Wait for bodies that an early end of ``parallel`` or ``map`` has left behind, and stop the heartbeat."""
        with self._mutex:
            self._bodies.wait_for(lambda: not self._running)
            self._is_over = True
        self._heartbeat.forget(self)

    def suspend(self, until_s: float | None, *, may_have_ended: bool) -> None:
        """Keep the lock while nothing of the execution runs. If that fails, the lease decides.

        Args:
            until_s: when the execution goes on, in seconds since the epoch; None if no one knows.
            may_have_ended: whether it may never go on: then Lambda is asked, since its status event may have come.
        """
        if self._why_lost is not None:
            return
        if may_have_ended and self._table.contend(self._claim, lambda me: has_ended(me, self._session.execution)):
            self.release_at_once()
            return
        wait_ms = self._while_suspended_ms if until_s is None else max(0, int((until_s - time.time()) * 1_000))

        def keep(me: Contender) -> Steps[None]:
            until_ms = me.now.latest_ms + max(self._claim.lease_ms, wait_ms + self._margin_ms)
            yield from note_suspension(me, self._session, until_ms)
            yield from me.suspend(self._held.fencing_token, until_ms)

        try:
            self._table.contend(self._claim, keep)
        except (LockLost, TableError):
            # The next invocation finds out, and records it.
            return

    def release(self) -> dict[str, Any]:
        """Free the lock; at least once. Returns why it was lost, if it was."""
        releasing = Releasing(tried_before=True)
        held = self._held if self._grant is None else replace(self._held, lease_until_ms=self._grant.lease_until_ms)
        try:
            self._table.contend(self._claim, lambda me: me.release(held, releasing=releasing))
        except LockLost as lost:
            return {"lost": self._why_lost or str(lost)}
        return {} if self._why_lost is None else {"lost": self._why_lost}

    def release_at_once(self) -> None:
        """Free the lock where no operation can be recorded any more."""
        try:
            self.release()
        except TableError:
            return
