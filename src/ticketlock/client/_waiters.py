"""The waiters and the holders of one process, and the calls in progress in its threads.

A release in this process wakes the next waiter, even one of another client; closing a client waits for its acquisitions
and releases in progress.

A wake-up is only a hint. A woken waiter takes the lock by the same conditional write as any other, or polls. A waiter
that is not woken, or belongs to another process, polls at its pace. So a lost hint costs idle time, and a superfluous
one costs a poll.
"""

import math
import threading
import time
from collections.abc import Callable, Generator, Hashable
from contextlib import suppress
from dataclasses import dataclass
from inspect import GEN_CLOSED, GEN_CREATED, getgeneratorstate
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakValueDictionary, ref

from ticketlock.client._acquire import Pace, PaceBounds, Wait
from ticketlock.client._base_lease import BaseLease
from ticketlock.locks._items import LockName
from ticketlock.locks._lock_table import LockTable
from ticketlock.locks._outcomes import Position, Released
from ticketlock.wire._actions import Actions, T, briefly
from ticketlock.wire._driver import OwnProcess

_MOST_LOCKS = 1_000
_MOST_TRACKED = 1_000
_CROWDED_MS = 1_000
# Long enough for the first tries that follow to heal the count.
_DISTRUSTED_MS = 30_000

_ACQUISITION_LEAVES_WITHIN_S = 2.0
# More than the time for which one request is retried.
_RELEASE_ENDS_WITHIN_S = 10.0
_CHECKS_EVERY_S = 0.005


class WaitKey(NamedTuple):
    """The lock that is waited for."""

    table: Hashable
    lock: LockName


class LocalWaiters:
    """The waiters of this process, by lock, and its leases, by lock and owner."""

    def __init__(self) -> None:
        self._process = OwnProcess()
        # Re-entrant: a signal handler that releases a lock may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        # Weak: an exception from a signal handler may end a wait before it `leaves`.
        self._waiting: dict[WaitKey, tuple[ReferenceType[Wait], ...]] = {}
        # Weak: a client may be dropped with its leases.
        self._leases: WeakValueDictionary[tuple[WaitKey, str], BaseLease] = WeakValueDictionary()

    @property
    def are_of_this_process(self) -> bool:
        """Whether this is the process that created them: in a forked child none of these threads runs."""
        return self._process.is_this

    def stands(self, line: WaitKey, wait: Wait) -> ReferenceType[Wait]:
        """From now on a release may wake this wait, until ``leaves`` gets what this returns."""
        mine = ref(wait, lambda gone: self.leaves(line, gone))
        with self._mutex:
            self._waiting[line] = (*self._waiting.get(line, ()), mine)
        return mine

    def leaves(self, line: WaitKey, gone: ReferenceType[Wait]) -> None:
        """No release wakes this wait any more. The end of a wait calls it in a forked child, too."""
        if not self.are_of_this_process:
            return
        with self._mutex:
            others = tuple([each for each in self._waiting.get(line, ()) if each is not gone])
            if others:
                self._waiting[line] = others
            else:
                self._waiting.pop(line, None)

    def first(self, line: WaitKey) -> Wait | None:
        """The waiter of this process with the lowest ticket; None if no waiter is known to have one."""
        found = [each for each in self._waits(line) if each.ticket is not None]
        return min(found, key=_ticket) if found else None

    def follower(self, line: WaitKey, holder: str) -> Wait | None:
        """The waiter of this process with the lowest ticket, of those whose last poll has found this holder.

        Waiters for a table of the same name in another account are in the same line.
        """
        found = [each for each in self._waits(line) if each.has_seen(holder)]
        return min(found, key=_ticket) if found else None

    def has(self, line: WaitKey, owner: str) -> bool:
        """Whether a client of this process holds the lock for this owner, or waits for it."""
        return self.holds(line, owner) or any(each.claim.owner == owner for each in self._waits(line))

    def _waits(self, line: WaitKey) -> list[Wait]:
        with self._mutex:
            return [wait for each in self._waiting.get(line, ()) if (wait := each()) is not None]

    def tell_first_waiter(self, line: WaitKey, fencing_token: int) -> None:
        """Tell the first waiter that the lock was released, or granted with room for another holder."""
        first = self.first(line)
        if first is not None:
            first.note_grant(fencing_token)

    def note_left(self, line: WaitKey, left: Wait) -> None:
        """Tell the waiters behind one that has left the queue without the lock: nobody else would tell them.

        The next of them polls, if no other waiter of this process is before it.
        """
        first = self.first(line)
        for each in self._waits(line):
            if left.ticket is not None and _ticket(each) > left.ticket:
                each.one_has_left(is_first_now=each is first)

    def takes(self, line: WaitKey, lease: BaseLease) -> None:
        """Learn of a lease that a client of this process holds."""
        self._leases[line, lease.owner] = lease

    def drops(self, line: WaitKey, lease: BaseLease) -> None:
        """Learn that no client of this process will release it any more."""
        self._leases.pop((line, lease.owner), None)

    def holds(self, line: WaitKey, owner: str) -> bool:
        """Whether a client of this process holds the lock for this owner."""
        return (line, owner) in self._leases

    def will_release(self, line: WaitKey, seen: Position) -> bool:
        """Whether clients of this process hold the lock, and nobody else: its release will wake the next waiter."""
        return bool(seen.holders) and all(self.holds(line, holder.owner) for holder in seen.holders)


def _ticket(wait: Wait) -> int:
    return wait.ticket or 0


_of_process = LocalWaiters()


def lines_of_this_process() -> LocalWaiters:
    """The waiters of this process, for all its clients; a forked child has its own."""
    global _of_process
    if not _of_process.are_of_this_process:
        _of_process = LocalWaiters()
    return _of_process


@dataclass(slots=True)
class _KnownLock:
    """What a client remembers of one lock.

    Attributes:
        hand_over_ms: how long a hand-over takes, as measured by the last wait.
        crowded_until_ms: until when the waiters at the last release are assumed to be waiting still.
        handed_to: the owner to whom the last release granted the lock; None if it granted it to none.
        distrusted_until_ms: until when that is not assumed, because the counted waiters turned out to have crashed.
    """

    hand_over_ms: float = 0.0
    crowded_until_ms: float = -math.inf
    handed_to: str | None = None
    distrusted_until_ms: float = -math.inf


class KnownLocks:
    """What a client remembers of up to 1,000 locks."""

    def __init__(self, bounds: PaceBounds) -> None:
        self._bounds = bounds
        self._locks: dict[LockName, _KnownLock] = {}

    def pace(self, lock: LockName) -> Pace:
        """The pace of a new wait for this lock, with what earlier waits have measured."""
        known = self._locks.get(lock)
        return Pace(self._bounds, known.hand_over_ms if known is not None else 0.0)

    def others_wait(self, lock: LockName, local_ms: int, is_here: Callable[[str], bool]) -> bool:
        """Whether the last release, a moment ago, left more than one waiter, or granted the lock to one that has it
        still; True only once for each release.

        Args:
            is_here: whether an owner has the lock in this process, or waits for it.
        """
        known = self._locks.get(lock)
        if known is None or local_ms >= known.crowded_until_ms:
            return False
        known.crowded_until_ms = -math.inf
        return known.handed_to is None or is_here(known.handed_to)

    def waited(self, wait: Wait, local_ms: int) -> None:
        """Learn from a wait that ended with the lock."""
        known = self._of(wait.lock)
        known.hand_over_ms = wait.pace.hand_over_ms
        if wait.expects_others and not wait.saw_others:
            # The count was too high because of a crashed waiter: do not use it for a while.
            known.distrusted_until_ms = local_ms + _DISTRUSTED_MS

    def released(self, lock: LockName, released: Released, local_ms: int) -> None:
        """Learn from a release whether there are other waiters."""
        known = self._of(lock)
        known.crowded_until_ms = -math.inf
        counted = local_ms >= known.distrusted_until_ms and released.waiting is not None and released.waiting > 1
        known.handed_to = released.handed.holder.owner if released.handed is not None else None
        if counted or known.handed_to is not None:
            known.crowded_until_ms = local_ms + min(released.held_ms, _CROWDED_MS)

    def _of(self, lock: LockName) -> _KnownLock:
        known = self._locks.get(lock)
        if known is None:
            if len(self._locks) >= _MOST_LOCKS:
                self._locks.clear()
            known = self._locks[lock] = _KnownLock()
        return known


class Latch:
    """Closed until it is opened, for good.

    ``threading.Event`` has a mutex: a signal handler that sets it while the interrupted thread is about to wait for it
    would deadlock. This class has nothing but the lock that is waited for.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Open it; opening it again does nothing."""
        self.is_open = True
        self._let_pass()

    def wait(self, seconds: float) -> bool:
        """Wait for at most this long; return whether it is open."""
        if not self.is_open:
            has_passed = False
            try:
                has_passed = self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
            finally:
                if has_passed or self.is_open:
                    self._let_pass()
        return self.is_open

    def _let_pass(self) -> None:
        # Several waiters may release it; one release is enough.
        with suppress(RuntimeError):
            self._lock.release()


class UnderWay:
    """Acquisitions and releases in progress, in all threads.

    Each is tracked by its generator, which is closed however it ends. So no entry has to be removed, and no exception
    from a signal handler can prevent that. Entries of generators that are gone are dropped now and then.
    """

    def __init__(self, table: LockTable) -> None:
        self._table = table
        self._process = OwnProcess()
        # Re-entrant: a signal handler that closes the client may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        # By the generator's id, which a later generator may have again: the generator, its thread, its limit.
        self._began: dict[int, tuple[ReferenceType[Generator[Any, Any, Any]], int, float]] = {}

    def acquisition(self, actions: Actions[T]) -> Actions[T]:
        """Track an acquisition: closing the client waits up to 2 s for it to leave the queue."""
        self._process.check()
        return self._followed(actions, _ACQUISITION_LEAVES_WITHIN_S)

    def release(self, actions: Actions[None]) -> None:
        """Perform a release, even if an interrupt comes before it has begun; closing the client waits for it.

        Raises:
            ClientClosed: this process was forked from the one that created the client.
        """
        try:
            # Before any mutex: a thread of the parent may have held it at the fork, and does not exist here.
            self._process.check()
            self._table.drive(self._followed(actions, _RELEASE_ENDS_WITHIN_S))
        except BaseException as error:
            if self._process.is_this and getgeneratorstate(actions) == GEN_CREATED:
                self._table.drive(actions)
            raise briefly(error)  # noqa: B904  # the same error

    def wait_for_others(self) -> None:
        """Wait until everything that other threads have begun has ended, or its time limit has passed."""
        began_s = time.monotonic()
        while any(time.monotonic() < began_s + within_s for within_s in self._of_others()):
            time.sleep(_CHECKS_EVERY_S)

    def _followed(self, actions: Actions[T], within_s: float) -> Actions[T]:
        with self._mutex:
            if len(self._began) >= _MOST_TRACKED:
                self._began = {key: each for key, each in list(self._began.items()) if each[0]() is not None}
            self._began[id(actions)] = ref(actions), threading.get_ident(), within_s
        return actions

    def _of_others(self) -> list[float]:
        with self._mutex:
            began = list(self._began.values())
        return [
            within_s
            for each, thread, within_s in began
            if thread != threading.get_ident()
            and (actions := each()) is not None
            and getgeneratorstate(actions) not in (GEN_CREATED, GEN_CLOSED)
        ]
