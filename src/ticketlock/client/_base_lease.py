"""A held lock from its holder's view: until when it may rely on the lock, and what is due next. No I/O.

The deadline and two local clocks decide whether it is held, not a flag that another thread would have to set in time: a
process that was suspended past its deadline finds that the lock has expired at its first check.
"""

import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from types import FrameType
from typing import Any, Literal, NoReturn, Self, TypeVar

from ticketlock.client._arguments import Acquisition
from ticketlock.client._blocks import Block, being_left
from ticketlock.errors import ClientClosed, InvalidLockRequest, LockLost, TicketLockError
from ticketlock.locks import Claim, Grant, LockName, Releasing, _fencing
from ticketlock.wire import Clocks, Due, Moment, Reading

LeaseState = Literal["held", "lost", "released", "unreleased"]
L = TypeVar("L", bound="BaseLease")

_SHORTEST_RETRY_MS = 100
_RETRY_SHARE = 20
_DANGER_SHARE = 4
# As long as the longest pause between two tries of a renewal.
_LAST_MS = 1_000


def renewed_before_end_ms(lease_ms: int, danger_ms: int) -> int:
    """How long before its end a lease is renewed: at half of it, or so early that danger is reported only if renewals
    fail.
    """
    return max(lease_ms // 2, danger_ms + min(lease_ms // 4, (lease_ms - danger_ms) // 2))


class StaysHere:
    """An object that is itself alone told of what becomes of it: it is no copy of another, and leaves no process."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be pickled: acquire in the process that works, with a client made there")


class BaseLease(StaysHere):
    """One held lock: the part that threads and tasks share.

    Attributes:
        entity, namespace: the lock's name.
        owner: the identity of this acquisition.
        fencing_token: greater than that of every earlier grant of the lock; renewals do not change it.
        shared: whether other holders may share the lock.
        data_left: the data that the last holder left, if any.
    """

    _detached = False
    # The task or thread that has acquired it; weak, since a lease may outlive it.
    _acquired_by: Callable[[], object] = staticmethod(lambda: None)
    # Whether its client was closed, which has freed the lock, while a block was open.
    _freed_under_work = False
    # Whether its client, which is being closed, is about to free it: no block may begin.
    _is_shut = False
    # Those that were entered and not left; another object after each change.
    _blocks: tuple[Block, ...] = ()

    def __init__(self, table_name: str, acquisition: Acquisition, grant: Grant, clocks: Clocks) -> None:
        claim = acquisition.claim
        self.entity = claim.lock.entity
        self.namespace = claim.lock.namespace
        self.owner = claim.owner
        self.fencing_token = grant.fencing_token
        self.shared = claim.shared
        self.data_left = grant.data_left
        self._table_name = table_name
        self._claim = claim
        # Whether the client generated its owner; otherwise another process with the same owner may use its grant.
        self._has_own_identity = acquisition.has_own_identity
        self._data = claim.data
        self._clocks = clocks
        self._heartbeat = acquisition.heartbeat
        self._hold_at_least_ms = acquisition.hold_at_least_ms
        self._callbacks: dict[Due, Callable[[Any], object] | None] = {
            "lost": acquisition.on_lost,
            "danger": acquisition.on_danger,
        }
        self._danger_ms = (
            acquisition.danger_ms if acquisition.danger_ms is not None else claim.lease_ms // _DANGER_SHARE
        )
        self._renewed_before_end_ms = renewed_before_end_ms(claim.lease_ms, self._danger_ms)
        # Re-entrant: a signal handler that closes the client may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        # "unreleased": its release failed, and may have been applied. It no longer counts as held; the release may be
        # retried.
        self._state: LeaseState = "held"
        # The claims of reentrant acquisitions; another object after each change.
        self._again: tuple[Claim, ...] = ()
        self._in_danger = False
        self._renewing = False
        self._loss_is_told = False
        # The identity that distinguishes its release from another client's, and whether an earlier try may have been
        # applied. An owner that the client generated ends with a random number, which no other lease has.
        own = claim.owner.rpartition("/")[2] if acquisition.has_own_identity else token_hex(16)
        self._releasing = Releasing(by=own)
        # When its release was first called, in table time.
        self._finished_at_ms: int | None = None
        # Whether its release found that another client had freed the lock.
        self._was_taken = False
        self._take_in(grant)

    @property
    def lock(self) -> LockName:
        """The lock's name."""
        return self._claim.lock

    @property
    def data(self) -> str | None:
        """The data that is shown beside the holder."""
        return self._data

    @property
    def remaining_s(self) -> float:
        """How long the holder may still rely on the lock, in seconds; 0 if the lease has ended."""
        return self._remaining_ms(self._clocks.read()) / 1_000 if self._may_be_held() else 0.0

    @property
    def deadline(self) -> datetime:
        """Until when the holder may rely on the lock, by this machine's wall clock; each renewal postpones it."""
        reading = self._clocks.read()
        return datetime.fromtimestamp(reading.wall_ms / 1_000, UTC) + timedelta(
            milliseconds=self._remaining_ms(reading)
        )

    def is_held(self) -> bool:
        """Whether the holder may rely on the lock now; reads the local clocks, sends no request."""
        return self._may_be_held() and self._remaining_ms(self._clocks.read()) > 0

    def condition_check(self, *, native: bool = False) -> dict[str, Any]:
        """Return a ConditionCheck for your ``TransactWriteItems``: the lock is still held with this fencing token.

        Args:
            native: True for Python types, for the client of a ``boto3.resource``; False for a low-level client.

        Raises:
            ClientClosed: this process was forked from the one that holds the lock.
        """
        self._check_process()
        return _fencing.condition_check(self._table_name, self.lock, self.owner, self.fencing_token, native=native)

    def fenced_put(
        self, item: Mapping[str, Any], *, attribute: str = "lockToken", native: bool = False, **more: Any
    ) -> dict[str, Any]:
        """Return the arguments of a ``put_item`` that stores the token in your item and fails if the item has a later
        one.

        Args:
            item: the item.
            attribute: the attribute of your items that stores the token.
            native: as in ``condition_check``.
            more: further arguments, for example ``TableName``; a ``ConditionExpression`` must hold too.

        Raises:
            ClientClosed: as from ``condition_check``.
        """
        self._check_process()
        return _fencing.fenced_put(self.fencing_token, item, attribute=attribute, native=native, more=more)

    def fenced_update(
        self, update: str, *, attribute: str = "lockToken", native: bool = False, **more: Any
    ) -> dict[str, Any]:
        """Return the arguments of an ``update_item`` that does the same.

        Args:
            update: an update expression that begins with ``SET``.
            attribute, native, more: as in ``fenced_put``, which says what is raised as well; also ``Key``.
        """
        self._check_process()
        return _fencing.fenced_update(self.fencing_token, update, attribute=attribute, native=native, more=more)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.entity!r} in {self.namespace!r}, fencing token {self.fencing_token}, "
            f"{self._shown_state()}>"
        )

    def _shown_state(self) -> str:
        """What `is_held` says, and why."""
        if self._pid != os.getpid():
            return "of another process, not held here"
        if self._state == "held":
            rest_s = self.remaining_s
            return f"held, {rest_s:.1f} s left" if rest_s > 0 else "not held, its lease has expired"
        return "lost" if self._was_taken or self._freed_under_work else self._state

    # For the client and its heartbeat.

    def _take_in(self, grant: Grant) -> None:
        self._grant = grant
        self._deadline = Reading(grant.deadline_ms, grant.deadline_wall_ms)
        # Whether the heartbeat asked the table because of the wall clock, and has no confirmation of the lease yet.
        self._doubted = False
        self._renew_at_ms = grant.deadline_ms - self._renewed_before_end_ms

    def _remaining_ms(self, reading: Reading) -> int:
        """The time until the deadline, by the clock that is nearer to it."""
        return max(0, min(self._deadline.local_ms - reading.local_ms, self._deadline.wall_ms - reading.wall_ms))

    def _is_in_doubt(self) -> bool:
        """Whether only the wall clock says that the lease has ended: it was set, or the machine was frozen. Ask the
        table.
        """
        reading = self._clocks.read()
        is_over = reading.local_ms >= self._deadline.local_ms
        return self._may_be_held() and not is_over and reading.wall_ms >= self._deadline.wall_ms

    def _is_sure_of(self, needed_ms: int) -> bool:
        return self._may_be_held() and self._remaining_ms(self._clocks.read()) >= max(1, needed_ms)

    def _check_can_last(self, needed_ms: int) -> None:
        """Refuse to make sure of more than a renewal gives."""
        if needed_ms > self._claim.lease_ms:
            raise self._too_short(needed_ms)

    def _too_short(self, needed_ms: int) -> InvalidLockRequest:
        surely_s = self._claim.lease_ms * 3 / 4_000
        allowed = f"up to {surely_s} s, three quarters of the lease, which a renewal always leaves; extend gives more"
        return InvalidLockRequest("at_least", needed_ms / 1_000, allowed)

    def _may_be_held(self) -> bool:
        return self._state == "held" and self._pid == os.getpid()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ClientClosed("the lease belongs to the process that this one was forked from: it is not held here")

    @property
    def _how_it_ended(self) -> str:
        """How it ended by itself, as a clause of the error."""
        return f"its lease has ended, and {'it could not be renewed' if self._heartbeat else 'nothing renewed it'}"

    def _is_watched(self) -> bool:
        return self._heartbeat or any(self._callbacks.values())

    def _is_watched_on(self) -> bool:
        return self._state == "held"

    def _callback(self, what: Due) -> Callable[[Any], object] | None:
        is_given_up = self._state == "released" and not (self._was_taken or self._freed_under_work)
        return None if is_given_up else self._callbacks[what]

    def _due_ms(self, reading: Reading) -> int:
        """When something is due next, on the local clock."""
        if self._is_doubtful(reading):
            return reading.local_ms
        due = [self._deadline.local_ms]
        if not self._in_danger:
            due.append(self._deadline.local_ms - self._danger_ms)
        if self._heartbeat and not self._renewing:
            due.append(self._renew_at_ms)
        return min(due)

    def _take_due(self, reading: Reading) -> Due | None:
        """What is due now, reported once: marks it as started."""
        with self._mutex:
            if self._state != "held":
                return None
            if reading.local_ms >= self._deadline.local_ms:
                # At once: no renewal that is under way may count any more.
                self._state = "lost"
                return "lost"
            is_doubtful = self._is_doubtful(reading)
            if is_doubtful or (self._heartbeat and not self._renewing and reading.local_ms >= self._renew_at_ms):
                self._renewing, self._doubted = True, self._doubted or is_doubtful
                return "renew"
            if not self._in_danger and reading.local_ms >= self._deadline.local_ms - self._danger_ms:
                self._in_danger = True
                return "danger"
            return None

    def _is_doubtful(self, reading: Reading) -> bool:
        """Whether only the wall clock says that the lease has ended (it was set, or the machine was frozen): ask the
        table once.
        """
        is_asked = self._doubted or self._renewing
        return self._heartbeat and not is_asked and reading.wall_ms >= self._deadline.wall_ms

    def _kept_until_ms(self) -> int:
        """The end of the lease in table time, if a whole lease from now would end earlier: a renewal keeps it."""
        is_longer = self._deadline.local_ms - self._clocks.read().local_ms > self._claim.lease_ms
        return self._grant.lease_until_ms if is_longer else 0

    def _may_be_renewed_until_ms(self) -> int | None:
        """The last moment on the local clock at which a renewal may be sent, its deadline.

        None if that has passed already, and nobody was told: then only the table knows whether the lease is over.
        """
        until_ms = self._deadline.local_ms
        return until_ms if self._clocks.read().local_ms < until_ms else None

    def _rest_without_a_renewal_ms(self) -> int:
        """How long to wait for the end after a renewal that has failed just before it; 0 if another may be tried."""
        rest_ms = self._deadline.local_ms - self._clocks.read().local_ms
        return max(0, rest_ms) if rest_ms <= _LAST_MS else 0

    def _has_ended_since(self, until_ms: int | None) -> bool:
        """Mark it lost if its deadline has passed since a renewal began; return whether it is no longer held.

        Args:
            until_ms: what ``_may_be_renewed_until_ms`` said when the renewal began.
        """
        with self._mutex:
            if self._state == "held" and until_ms is not None and self._may_be_renewed_until_ms() is None:
                self._state = "lost"
            return self._state != "held"

    def _renewed(self, grant: Grant, before: Grant) -> None:
        """Take over a renewal's deadline, unless another renewal that ended meanwhile has given a later one: of two
        that saw the same end in the table, one may have asked for less.

        The new deadline may be earlier than the old one: after a clock was set, table time is known less precisely.

        Args:
            before: the grant as it was known when the renewal began.
        """
        with self._mutex:
            self._renewing = False
            if self._grant is before or grant.deadline_ms > self._grant.deadline_ms:
                self._take_in(grant)

    def _not_renewed(self, reading: Reading) -> None:
        with self._mutex:
            self._renewing = False
            pause_ms = max(_SHORTEST_RETRY_MS, self._claim.lease_ms // _RETRY_SHARE)
            # The last try is in the last second: it gives up what earlier ones may have written.
            last_ms = self._deadline.local_ms - _LAST_MS
            self._renew_at_ms = max(reading.local_ms + _SHORTEST_RETRY_MS, min(reading.local_ms + pause_ms, last_ms))

    def _mark_lost(self) -> bool:
        """Mark it lost; return whether its caller has to be told."""
        with self._mutex:
            self._renewing = False
            if self._state == "held":
                self._state = "lost"
            is_news = self._state == "lost" and not self._loss_is_told
            self._loss_is_told |= is_news
            return is_news

    def _has_nothing_to_free(self, reading: Reading) -> bool:
        """Whether its release failed and need not be retried, because the lease has ended since."""
        return self._state == "unreleased" and self._remaining_ms(reading) == 0

    def _hold_again(self, claim: Claim) -> bool:
        with self._mutex:
            if self._state == "held":
                self._again = (*self._again, claim)
            return self._state == "held"

    def _hold_no_more(self, claim: Claim) -> None:
        """Undo ``_hold_again`` for a caller that was interrupted before it got the lease."""
        with self._mutex:
            self._again = tuple(each for each in self._again if each is not claim)

    def _enter(self, within: FrameType | None = None) -> Block:
        """A block begins in which the caller holds it, or a function that has called it.

        Raises:
            LockLost: the lease has ended.
        """
        # Before the mutex, which another thread of the parent may have had for ever.
        self._check_process()
        block = Block(self, within)
        with self._mutex:
            self._blocks = (*self._blocks, block)
            block.enter()
            # Last: from now on a close, for example in a signal handler, finds the block and tells it.
            try:
                self._check_may_be_entered()
            except LockLost:
                self._end_of(block)
                raise
        return block

    def _leave(self, block: Block | None = None) -> bool:
        """The caller leaves a block, by default the one that it has entered; a forked child is in none.

        Returns:
            Whether the end of the block ends an acquisition. Blocks of one acquisition end it with the last one.
        """
        if self._pid != os.getpid():
            return True
        left = block if block is not None else being_left(self._blocks)
        if left is None:
            return True
        with self._mutex:
            self._end_of(left)
            return len(self._blocks) <= len(self._again)

    def _end_of(self, block: Block) -> None:
        block.leave()
        self._blocks = tuple([each for each in self._blocks if each is not block])

    def _is_under_work(self) -> bool:
        """Whether somebody is inside of a block of it."""
        return self._state == "held" and any(block.is_open for block in self._blocks)

    def _shut(self) -> bool:
        """No block may begin any more, since its client is about to free it; return whether one is open."""
        with self._mutex:
            self._is_shut = True
            return self._is_under_work()

    def _is_of(self, who: object) -> bool:
        """Whether a task or thread has acquired it, or entered a block of it."""
        return self._acquired_by() is who or any(block.who is who for block in self._blocks)

    def _check_may_be_entered(self) -> None:
        self._check_process()
        if self._is_shut and self._state in ("held", "released"):
            raise LockLost(f"{self._lost()}: its client was closed, which frees it")
        if self._state == "held":
            return
        if self._state == "released" and not self._was_taken:
            raise LockLost(
                f"{self._lost()}: a lease is for one use. Call acquire for each, or make a lock object once, "
                "lock = locks.lock(...), and enter that again and again"
            )
        raise self._lost()

    def _mark_released(self) -> LeaseState | Literal["still held"]:
        """Mark it released; return the state before, or "still held" if an outer acquisition still holds it."""
        with self._mutex:
            if self._again:
                self._again = self._again[:-1]
                return "still held"
            was, self._state = self._state, "released"
            return was

    def _finished_by(self, now: Moment) -> int:
        """When its holder finished, in table time: at the first try of its release."""
        if self._finished_at_ms is None:
            self._finished_at_ms = now.latest_ms
        return self._finished_at_ms

    def _mark_unreleased(self) -> None:
        """Mark a release that was interrupted."""
        with self._mutex:
            if self._state == "released":
                self._state = "unreleased"

    def _mark_interrupted(self, error: BaseException, again: tuple[Claim, ...] | None) -> None:
        """If an interrupt came before a release had changed anything, mark it: the lease is no longer renewed.

        Args:
            error: what the release has raised.
            again: the reentrant acquisitions before it; None if it was not to end one.
        """
        if isinstance(error, TicketLockError) or self._is_left():
            return
        with self._mutex:
            if self._state == "held" and self._again is again:
                if again:
                    self._again = again[:-1]
                else:
                    self._state = "unreleased"

    def _is_left(self) -> bool:
        """Whether the end of ``with`` must not release the lock: it is detached, or belongs to another process."""
        return self._pid != os.getpid() or self._detached

    def _check_held(self) -> None:
        self._check_process()
        if self._state != "held":
            raise self._lost()

    def _lost(self) -> LockLost:
        return LockLost(f"the lease of fencing token {self.fencing_token} on {self.entity!r} has ended")
