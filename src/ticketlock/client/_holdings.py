"""The locks that one client holds: what threads and tasks share. The client performs the calls and sleeps. No I/O.

Each verb of a held lock is written here once, as ``Actions``; a client drives or awaits it.
"""

import logging
import random
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import GEN_CREATED, getgeneratorstate
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from ticketlock._checks import Seconds, boolean, duration_ms
from ticketlock.client._acquire import Wait, acquire, leave
from ticketlock.client._arguments import Acquisition
from ticketlock.client._base_lease import BaseLease, LeaseState
from ticketlock.client._blocks import Caller
from ticketlock.client._held import Held
from ticketlock.client._known_locks import KnownLocks
from ticketlock.client._pace import PaceBounds
from ticketlock.client._self_wait import SelfWait, would_wait_for_itself
from ticketlock.client._waiters import LocalWaiters
from ticketlock.errors import (
    ClientClosed,
    InvalidLockRequest,
    LockLost,
    OutcomeUnknown,
    PermitsMismatch,
    RecordWaitExceeded,
    RequestNotApplied,
    TableError,
    TableRefused,
    TicketLockError,
    UnsupportedFormat,
)
from ticketlock.locks import (
    MAX_LEASE_MS,
    MIN_LEASE_MS,
    Claim,
    Contender,
    FencedTransaction,
    Grant,
    Released,
    Releasing,
    check_data,
    release_to,
)
from ticketlock.wire import Actions, Answer, Clocks, Due, OwnProcess, Request, Sleep, Steps, T, check_items

L_contra = TypeVar("L_contra", bound=BaseLease, contravariant=True)

L = TypeVar("L", bound=BaseLease)

Holds = list[tuple[L, tuple[Claim, ...]]]
"""Leases, each with the claims of its reentrant acquisitions."""

_log = logging.getLogger("ticketlock")

# Less than the time for which one request is retried.
_FAILS_FOR_MS = 5_000
_OTHERS_FAILED = "other releases have failed for too long"
TRANSACTION_PATIENCE_S = 10.0
_BLOCKS_CHECKED_EVERY_MS = 10

HAS_LEFT = (InvalidLockRequest, PermitsMismatch, RecordWaitExceeded, UnsupportedFormat)
"""The errors of an acquisition that has left nothing in the table."""


class HoldingsTable(Protocol):
    """A lock table, as a client's holdings use it."""

    @property
    def identity(self) -> Hashable:
        """A value that is equal for all clients of one table."""
        ...

    @property
    def patience_ms(self) -> int:
        """For how long one request is retried."""
        ...

    def contending(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, until_ms: int | None = None
    ) -> Actions[T]:
        """Perform the steps of one claim, as calls and sleeps; send no request again after this moment."""
        ...

    def sending(self, request: Request) -> Actions[Answer]:
        """Send one request until it is applied or refused."""
        ...


class Heart(Protocol[L_contra]):
    """Watches the leases: one thread, or one task for each."""

    def watch(self, lease: L_contra) -> None:
        """Watch a lease from now on."""
        ...

    def forget(self, lease: L_contra) -> None:
        """Stop watching a lease."""
        ...

    def tell(self, lease: L_contra, what: Due) -> None:
        """Call the lease's callback."""
        ...

    def join_idle(self) -> None:
        """Wait for threads that have nothing left to watch."""
        ...


class _Failing:
    """For how long the releases of several locks have failed; they share one bound, since the table may be away.

    Args:
        sends_for_all: whether the end of each lease sends a request; otherwise only if no others may use its grant.
    """

    def __init__(self, clocks: Clocks, *, sends_for_all: bool = True) -> None:
        self._clocks = clocks
        self._sends_for_all = sends_for_all
        self._failed_ms = 0

    def for_too_long(self, lease: BaseLease) -> bool:
        """Whether the release of a further lease is not to be tried."""
        sends = not lease._is_left() and (self._sends_for_all or lease._has_own_identity)
        return sends and self._failed_ms >= _FAILS_FOR_MS

    @contextmanager
    def measured(self, lease: BaseLease) -> Iterator[None]:
        """Within the block a lease is released."""
        began_ms = self._clocks.read().local_ms
        try:
            yield
        finally:
            if lease._state == "unreleased":
                self._failed_ms += self._clocks.read().local_ms - began_ms


class Holdings(Generic[L]):
    """The locks that one client holds, and what it remembers of the locks it has used.

    Args:
        keep_alive: told whether any lock is held, whenever that may have changed.
    """

    def __init__(
        self,
        table: HoldingsTable,
        heart: Heart[L],
        *,
        clocks: Clocks,
        bounds: PaceBounds,
        local_waiters: LocalWaiters,
        keep_alive: Callable[[bool], object] = bool,
    ) -> None:
        self.known = KnownLocks(bounds)
        self._local_waiters = local_waiters
        self._waiting: WeakValueDictionary[int, Wait] = WeakValueDictionary()
        self._table = table
        self._heart = heart
        self._clocks = clocks
        self._process = OwnProcess()
        self._closed = False
        # Whether a close has waited for blocks, and frees the locks.
        self._frees = False
        # Not at the end of the process, with which its daemon threads end.
        self.tells_of_blocks = True
        # Re-entrant: a signal handler that closes the client may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        self._held: Held[L] = Held(lambda: table.identity, local_waiters, keep_alive)

    # Held locks.

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process created the client, rather than being forked from the one that did."""
        return self._process.is_this

    def check_usable(self, *, reentrant: bool = False) -> None:
        """Refuse a client that was closed, or copied into a forked process; not a re-entrance, which ``held_by``
        refuses once the locks are freed.
        """
        self._process.check()
        if self._closed and not reentrant:
            raise ClientClosed("the client was closed")

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    def held_by(self, caller: Caller, acquisition: Acquisition, *, reentrant: bool) -> Actions[L | None]:
        """Hold a lock once more if the caller is inside of a block that holds it; return its lease, or None if it is
        in none, or need not wait for itself.

        Raises:
            ClientClosed: the client was closed, and the lock would be acquired, or is freed.
        """
        claim = acquisition.claim
        leases = self._held.around(caller, claim.lock)
        for lease in leases:
            if lease._is_in_doubt():
                with suppress(LockLost):
                    yield from self.renew(lease)
        leases = [lease for lease in leases if lease.is_held()]
        innermost = leases[-1] if leases else None
        if (
            innermost is not None
            and reentrant
            and innermost.shared == claim.shared
            and self._hold_again(innermost, claim)
        ):
            return innermost
        self.check_usable()
        if innermost is None:
            return None
        if claim.permits > 1 or (claim.shared and innermost.shared):
            # `SelfWait` refuses it if there turns out to be no room.
            return None
        # Another thread may have released it since.
        if not innermost.is_held():
            return None
        raise would_wait_for_itself(claim.lock)

    def _hold_again(self, lease: L, claim: Claim) -> bool:
        # A close frees a lease with all its acquisitions: none may come in between.
        with self._mutex:
            return not self._frees and lease._hold_again(claim)

    def hold(
        self, caller: Caller, acquisition: Acquisition, wait: Wait, make: Callable[[Acquisition, Grant], L]
    ) -> Actions[L]:
        """Wait for the lock, take it and keep its lease. If that fails or is interrupted, undo it as far as
        possible.
        """
        lease = None
        try:
            grant = yield from self.acquire(acquisition, wait)
            lease = make(acquisition, grant)
            return self.keep(lease, caller.who)
        except HAS_LEFT:
            raise
        except BaseException:
            wait.is_over = True
            if lease is None:
                yield from self.leave(acquisition, wait)
            else:
                yield from self.give_back(lease)
            raise

    def take_back(self, claim: Claim) -> Actions[None]:
        """Undo an acquisition whose caller was interrupted before it received the lease."""
        for lease in self._held.of(claim.lock):
            if lease._claim is claim:
                yield from self.give_back(lease)
            else:
                lease._hold_no_more(claim)

    def holds_of(self, who: object) -> Holds[L]:
        """What a task or thread holds now, for ``give_back_since``."""
        return [(lease, lease._again) for lease in self._held.all() if lease._is_of(who)]

    def give_back_since(self, who: object, before: Holds[L]) -> Actions[None]:
        """Undo all acquisitions of a task or thread that was interrupted before it received their leases."""
        known = {id(lease): again for lease, again in before}
        new = []
        for lease, again in self.holds_of(who):
            if id(lease) not in known:
                new.append(lease)
            for claim in again[len(known.get(id(lease), again)) :]:
                lease._hold_no_more(claim)
        yield from self.each(new, self.give_back)

    def keep(self, lease: L, who: object) -> L:
        """Remember a lease, and watch it.

        Args:
            who: the task or thread that has acquired it.

        Raises:
            ClientClosed: the client was closed during the acquisition: the caller must release the lease.
            RuntimeError: no thread can be started; without one the lease would not be renewed.
        """
        self._held.add(lease, who)
        try:
            if lease._is_watched():
                self._heart.watch(lease)
            # Last: from now on a close, for example in a signal handler, finds the lease and releases it.
            if self._closed:
                raise ClientClosed("the client was closed")
        except BaseException:
            self.forget(lease)
            raise
        _log.debug("acquired %r", lease)
        return lease

    def forget(self, lease: L) -> None:
        """Forget a lease and stop watching it."""
        self._heart.forget(lease)
        self._held.drop(lease)
        self._heart.join_idle()

    def close(self) -> list[L]:
        """Refuse further acquisitions; return the leases that still have to be released."""
        reading = self._clocks.read()
        # First: who adds a lease looks at it afterwards.
        self._closed = True
        return [lease for lease in self._held.all() if not lease._has_nothing_to_free(reading)]

    def wake_waiters(self) -> None:
        """End the sleeps of all waiters of this client."""
        # Copied in one step: other threads begin and end waits at the same time.
        for each in self._waiting.valuerefs():
            wait = each()
            if wait is not None:
                wait.wake()

    def at_last(self, leases: Sequence[L]) -> Iterator[L]:
        """The leases to release when the client closes, one by one, also if an outer acquisition still holds them.

        Once failed releases have taken too long in all, the remaining leases are forgotten.
        """
        failing = _Failing(self._clocks)
        with self._mutex:
            self._frees = True
        for lease in leases:
            lease._again = ()
            self._free_under_work(lease)
            if failing.for_too_long(lease):
                _log.warning("%r was not released, and stays locked until its lease ends: %s", lease, _OTHERS_FAILED)
                lease._mark_released()
                self.forget(lease)
                continue
            with failing.measured(lease):
                yield lease

    def _free_under_work(self, lease: L) -> None:
        """If somebody is inside of a block of a lease that is about to be freed, tell: the block's end raises."""
        if lease._shut() and self.tells_of_blocks:
            lease._freed_under_work = True
            _log.error("%r is freed while a block still works under it: its client is closed", lease)
            self._heart.tell(lease, "lost")

    def wait_for_blocks(self, caller: Caller, seconds: float) -> Actions[None]:
        """Wait until all blocks are left, except those that the caller is inside of; for so long at most, by the clocks
        or by the sleeps: nothing may move a test's clock.
        """
        began_ms, slept_ms = self._clocks.read().local_ms, 0
        while self._held.are_under_work_of_others(caller):
            if max(slept_ms, self._clocks.read().local_ms - began_ms) >= seconds * 1_000:
                return
            yield Sleep(_BLOCKS_CHECKED_EVERY_MS)
            slept_ms += _BLOCKS_CHECKED_EVERY_MS

    # The verbs.

    def wait(self, acquisition: Acquisition, caller: Caller) -> Wait:
        """The state of a new wait, with what earlier waits have taught."""
        lock = acquisition.claim.lock
        key = self._held.key(lock)
        local_ms = self._clocks.read().local_ms
        # Then trying to acquire at once would fail; but an owner that may have asked before must find its grant or row.
        expects_others = acquisition.has_own_identity and self.known.others_wait(
            lock, local_ms, partial(self._local_waiters.has, key)
        )
        wait = Wait(
            acquisition.claim,
            acquisition.record_wait_ms,
            self.known.pace(lock),
            jitter=random.random,
            on_wait=acquisition.on_wait,
            expects_others=expects_others,
            waits_if_closed=acquisition.waits_if_closed,
            will_be_woken=partial(self._local_waiters.will_release, key),
            check=SelfWait(acquisition.claim, caller, self._held.around, self._held.outside).check,
        )
        if acquisition.record_wait_ms is not None:
            wait.until_ms = local_ms + acquisition.record_wait_ms + self._table.patience_ms
        return wait

    def acquire(self, acquisition: Acquisition, wait: Wait) -> Actions[Grant]:
        """Wait for the lock and take it. After any error except ``HAS_LEFT``, call ``leave`` to clean up."""
        self._waiting[id(wait)], key = wait, self._held.key(wait.lock)

        # Quoted: Python 3.13 and older evaluate annotations at each definition.
        def steps(me: Contender) -> "Steps[Grant]":
            wait.has_asked, wait.contender = True, me
            return acquire(me, wait)

        standing = self._local_waiters.stands(key, wait)
        try:
            grant = yield from self._table.contending(acquisition.claim, steps, until_ms=wait.until_ms)
        except RecordWaitExceeded as error:
            self._local_waiters.leaves(key, standing)
            self._local_waiters.note_left(key, wait)
            if any(self._local_waiters.holds(key, owner) for owner, *_ in error.holders):
                error.note_held_here()
            raise
        finally:
            self._local_waiters.leaves(key, standing)
            self._waiting.pop(id(wait), None)
        if grant.next_may_enter:
            self._local_waiters.tell_first_waiter(key, grant.fencing_token)
        assert wait.contender is not None
        self.known.waited(wait, wait.contender.now.local_ms)
        return grant

    def leave(self, acquisition: Acquisition, wait: Wait) -> Actions[None]:
        """Undo an acquisition that was interrupted, as far as it is this acquisition's own."""
        if not wait.has_asked:
            return
        try:
            if not wait.has_left:
                yield from self._table.contending(
                    acquisition.claim,
                    lambda me: leave(me, wait.tickets, only_the_place=not acquisition.has_own_identity),
                    until_ms=wait.until_ms,
                )
            self._local_waiters.note_left(self._held.key(wait.lock), wait)
        except TicketLockError as error:
            _log.warning(
                "the queue row of %r was not deleted, and stays until it expires: %s", acquisition.claim.lock, error
            )

    def renew(self, lease: L, at_least_ms: int = 0) -> Actions[None]:
        """Give the grant a full new lease, or so long a one; an end that is later already stays.

        If it begins before the lease's end, it is not sent after it. If it was under way then, the lock is lost,
        whatever the table says, and what it may have written is given up. If it begins after the end, and nobody was
        told of it, the table says whether the lease is over.
        """
        before, kept_until_ms = lease._grant, lease._kept_until_ms()
        until_ms = lease._may_be_renewed_until_ms()

        def renew(me: Contender) -> Steps[Grant]:
            at_least_until_ms = max(kept_until_ms, me.now.latest_ms + at_least_ms)
            return me.renew(lease.fencing_token, at_least_until_ms, not_after_local_ms=until_ms)

        failed: TableError | None = None
        try:
            with self._losing(lease):
                grant = yield from self._table.contending(lease._claim, renew, until_ms=until_ms)
        except TableError as error:
            rest_ms = lease._rest_without_a_renewal_ms()
            if rest_ms and isinstance(error, RequestNotApplied | OutcomeUnknown):
                # It was given up because another try would have been sent too late.
                yield Sleep(rest_ms)
            if not lease._has_ended_since(until_ms):
                raise
            failed = error
        else:
            has_ended = lease._has_ended_since(until_ms)
            lease._renewed(grant, before)
            if not has_ended:
                _log.debug("renewed %r", lease)
                return
        self.lose(lease, "its lease has ended before it was renewed")
        yield from self._give_up(lease)
        raise lease._lost() from failed

    def extend(self, lease: L, seconds: Seconds) -> Actions[None]:
        """Let the lease last for so long from now on, once."""
        asked_ms = duration_ms("seconds", seconds, MIN_LEASE_MS, MAX_LEASE_MS)
        lease._check_held()
        yield from self.renew(lease, asked_ms)

    def beat(self, lease: L) -> Actions[None]:
        """The heartbeat: renew the lease; after a failure try again later."""
        try:
            yield from self.renew(lease)
        except LockLost:
            pass
        except TableError as error:
            _log.warning("%r was not renewed; the heartbeat will try again: %s", lease, error)
        finally:
            if lease._renewing:
                lease._not_renewed(self._clocks.read())

    def come_near_its_end(self, lease: L) -> None:
        """Report that the lease is about to end, because it was not renewed."""
        _log.warning("%r is about to end: it was not renewed", lease)
        self._heart.tell(lease, "danger")

    def lose(self, lease: L, why: str) -> None:
        """Record that the lock is lost, and tell its caller."""
        if lease._mark_lost():
            _log.error("%r is lost: %s", lease, why)
            self._heart.tell(lease, "lost")
            self._heart.forget(lease)
            self._held.drop(lease)

    @contextmanager
    def _losing(self, lease: L) -> Iterator[None]:
        """If one call learns that the lock is lost, record it for all users of the lease."""
        try:
            yield
        except LockLost as lost:
            self.lose(lease, str(lost))
            raise

    def ensure(self, lease: L, at_least: Seconds) -> Actions[None]:
        """Make sure that the lock is held for so long from now on."""
        needed_ms = duration_ms("at_least", at_least, 0, MAX_LEASE_MS)
        if lease._is_sure_of(needed_ms):
            return
        lease._check_held()
        lease._check_can_last(needed_ms)
        yield from self.renew(lease)
        if not lease._is_sure_of(needed_ms):
            lease._check_held()
            raise lease._too_short(needed_ms)

    def set_data(self, lease: L, data: str | None) -> Actions[None]:
        """Replace the data that is shown beside the holder."""
        lease._check_process()
        with self._losing(lease):
            yield from self._table.contending(lease._claim, lambda me: me.set_data(lease.fencing_token, data))
        lease._data = data

    def transact_write(
        self, lease: L, items: Sequence[Mapping[str, Any]], client: Any, patience: Seconds
    ) -> Actions[None]:
        """Write in one transaction with the check that the lock is held, by this DynamoDB client."""
        lease._check_process()
        patience_ms = duration_ms("patience", patience, 0, MAX_LEASE_MS)
        if not isinstance(items, Iterable):
            raise InvalidLockRequest("items", items, "a list of items of TransactWriteItems")
        items = list(items)
        check_items(client, items)
        answer = yield from self._table.sending(FencedTransaction(lease.condition_check(), tuple(items), patience_ms))
        with self._losing(lease):
            FencedTransaction.check_applied(answer)

    def release(self, lease: L, data_left: str | None = None, *, best_effort: bool = False) -> Actions[None]:
        """Free the lock, or end one acquisition of several by the same caller."""
        lease._check_process()
        boolean("best_effort", best_effort)
        check_data("data_left", data_left)
        try:
            was = lease._mark_released()
            if was == "still held" or was == "released":
                return
            self._heart.forget(lease)
            yield from self._free(lease, was, data_left)
        except TicketLockError as error:
            if not best_effort:
                raise
            _log.warning("%r was not released: %s", lease, error)
        except BaseException:
            if self._held.keeps(lease):
                # `close` tries it again, and the owner may too.
                lease._mark_unreleased()
            raise
        finally:
            self._heart.join_idle()

    def detach(self, lease: L) -> None:
        """Leave the lock held, for another process."""
        lease._check_process()
        lease._detached = True
        self.forget(lease)

    def give_back(self, lease: L) -> Actions[None]:
        """Release a lock under which no work has been done, with the data that it came with; a grant that others may
        use is kept.
        """
        if lease._has_own_identity:
            lease._hold_at_least_ms = 0
            yield from self.release(lease, lease.data_left, best_effort=True)
        elif lease._mark_released() != "still held":
            self.forget(lease)

    def leave_block(self, lease: L, error: BaseException | None, *, ends_it: bool) -> Actions[None]:
        """The end of ``with``: an exception from the block takes precedence over a failed release.

        Args:
            ends_it: whether it ends an acquisition; otherwise another block of it is open.
        """
        if lease._is_left():
            return
        if lease._freed_under_work:
            if error is None:
                raise LockLost(
                    f"the client was closed while this block held {lease.entity!r}, and has freed it: close(wait=...) "
                    "waits for blocks"
                )
            return
        if not ends_it:
            if error is None and lease._state == "lost":
                raise lease._lost()
            return
        try:
            yield from self.release(lease, best_effort=error is not None)
        except TableError as failed:
            # The work is done; the lease will end.
            _log.error("%r was not released, and stays locked until its lease ends: %s", lease, failed)

    def each(self, leases: Sequence[L], end: Callable[[L], Actions[None]]) -> Actions[None]:
        """End all of them, the last one first, even if some fail.

        Once failed releases have taken too long in all, the remaining leases are only renewed no more; those that are
        given back and that others may use, are.
        """
        ends = [(lease, end(lease)) for lease in reversed(leases)]
        failing = _Failing(self._clocks, sends_for_all=end != self.give_back)
        try:
            yield from self._one_by_one(ends, failing)
        except GeneratorExit:
            raise
        except BaseException:
            # Those that an interrupt between two of them has kept from starting.
            left = [(lease, each) for lease, each in ends if getgeneratorstate(each) == GEN_CREATED]
            yield from self._one_by_one(left, failing)
            raise

    def _one_by_one(self, ends: Sequence[tuple[L, Actions[None]]], failing: "_Failing") -> Actions[None]:
        first: BaseException | None = None
        for lease, end in ends:
            try:
                if failing.for_too_long(lease):
                    end.close()
                    self._leave_unreleased(lease)
                else:
                    with failing.measured(lease):
                        yield from end
            except GeneratorExit:
                raise
            except BaseException as error:
                # It is suspended in an action, if the exception was raised here and not inside it.
                end.close()
                first = first or error
        if first is not None:
            raise first

    def _leave_unreleased(self, lease: L) -> None:
        """Stop renewing a lease whose release is not tried; ``release`` and ``close`` may try it."""
        was = lease._mark_released()
        if was == "held":
            lease._mark_unreleased()
            self._heart.forget(lease)
            _log.warning("%r was not released, and stays locked until its lease ends: %s", lease, _OTHERS_FAILED)
        elif was != "still held":
            lease._state = was

    def _give_up(self, lease: L) -> Actions[None]:
        """Free what a renewal may have written for a lease that was lost meanwhile, in one try, as if no work had been
        done; a grant that others may use is kept.
        """
        if lease._state != "lost" or lease._detached or not lease._has_own_identity:
            return
        try:
            yield from self._free(lease, "lost", lease.data_left, until_ms=self._clocks.read().local_ms)
        except LockLost:
            pass
        except TableError as error:
            _log.warning("%r may stay locked until the end that its last renewal has asked for: %s", lease, error)

    def _free(self, lease: L, was: LeaseState, data_left: str | None, *, until_ms: int | None = None) -> Actions[None]:
        releasing = lease._releasing
        # From now on this try may be interrupted anywhere, and may have been applied.
        lease._releasing = Releasing(releasing.by, tried_before=True)
        key = self._held.key(lease.lock)
        wait = self._local_waiters.follower(key, lease.owner)
        following = wait.following if wait is not None else None

        # Quoted: Python 3.13 and older evaluate annotations at each definition.
        def free(me: Contender) -> "Steps[Released]":
            held, finished_ms = lease._grant, lease._finished_by(me.now)
            held_until_ms = held.since_ms + lease._hold_at_least_ms
            if lease._hold_at_least_ms and was != "lost" and me.now.latest_ms < held_until_ms:
                return me.leave_held(held, held_until_ms)
            if following is None:
                return me.release(held, finished_ms, data_left=data_left, releasing=releasing)
            return release_to(me, held, following, finished_ms, data_left=data_left, releasing=releasing)

        try:
            released = yield from self._table.contending(lease._claim, free, until_ms=until_ms)
        except LockLost as lost:
            self._held.drop(lease)
            if was != "lost":
                lease._was_taken = True
                _log.error("%r is lost: %s", lease, lost)
                self._heart.tell(lease, "lost")
            raise
        except BaseException as error:
            if isinstance(error, RequestNotApplied | TableRefused):
                lease._releasing = releasing
            # `close` may try it again too.
            lease._state = "lost" if was == "lost" else "unreleased"
            self._held.drop_what_is_over(self._clocks.read())
            raise
        self._held.drop(lease)
        if released.handed is not None and wait is not None:
            wait.receive_grant(released.handed)
        elif released.fencing_token is not None:
            self._local_waiters.tell_first_waiter(key, released.fencing_token)
        self.known.released(lease.lock, released, self._clocks.read().local_ms)
        if was == "lost" or released.lease_was_over:
            raise lease._lost()
        _log.debug("released %r", lease)
