"""The waiters and the holders of one process: a release wakes the next waiter, even one of another client.

A wake-up is only a hint. A woken waiter takes the lock by the same conditional write as any other, or polls. A waiter
that is not woken, or belongs to another process, polls at its pace. So a lost hint costs idle time, and a superfluous
one costs a poll.
"""

import threading
from collections.abc import Hashable
from typing import NamedTuple
from weakref import ReferenceType, WeakValueDictionary, ref

from ticketlock.client._acquire import Wait
from ticketlock.client._base_lease import BaseLease
from ticketlock.locks import LockName, Position
from ticketlock.wire import OwnProcess, T


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

    def stands(self, key: WaitKey, wait: Wait) -> ReferenceType[Wait]:
        """From now on a release may wake this wait, until ``leaves`` gets what this returns."""
        mine = ref(wait, lambda gone: self.leaves(key, gone))
        with self._mutex:
            self._waiting[key] = (*self._waiting.get(key, ()), mine)
        return mine

    def leaves(self, key: WaitKey, gone: ReferenceType[Wait]) -> None:
        """No release wakes this wait any more. The end of a wait calls it in a forked child, too."""
        if not self.are_of_this_process:
            return
        with self._mutex:
            others = without(gone, self._waiting.get(key, ()))
            if others:
                self._waiting[key] = others
            else:
                self._waiting.pop(key, None)

    def first(self, key: WaitKey) -> Wait | None:
        """The waiter of this process with the lowest ticket; None if no waiter is known to have one."""
        found = [each for each in self._waits(key) if each.ticket is not None]
        return min(found, key=_ticket) if found else None

    def follower(self, key: WaitKey, holder: str) -> Wait | None:
        """The waiter of this process with the lowest ticket, of those whose last poll has found this holder.

        Waiters for a table of the same name in another account are in the same line.
        """
        found = [each for each in self._waits(key) if each.has_seen(holder)]
        return min(found, key=_ticket) if found else None

    def has(self, key: WaitKey, owner: str) -> bool:
        """Whether a client of this process holds the lock for this owner, or waits for it."""
        return self.holds(key, owner) or any(each.claim.owner == owner for each in self._waits(key))

    def _waits(self, key: WaitKey) -> list[Wait]:
        with self._mutex:
            waiting = self._waiting.get(key, ())
        return [wait for each in waiting if (wait := each()) is not None]

    def tell_first_waiter(self, key: WaitKey, fencing_token: int) -> None:
        """Tell the first waiter that the lock was released, or granted with room for another holder."""
        first = self.first(key)
        if first is not None:
            first.note_grant(fencing_token)

    def note_left(self, key: WaitKey, left: Wait) -> None:
        """Tell the waiters behind one that has left the queue without the lock: nobody else would tell them.

        The next of them polls, if no other waiter of this process is before it.
        """
        first = self.first(key)
        for each in self._waits(key):
            if left.ticket is not None and _ticket(each) > left.ticket:
                each.one_has_left(is_first_now=each is first)

    def takes(self, key: WaitKey, lease: BaseLease) -> None:
        """Learn of a lease that a client of this process holds."""
        self._leases[key, lease.owner] = lease

    def drops(self, key: WaitKey, lease: BaseLease) -> None:
        """Learn that no client of this process will release it any more."""
        self._leases.pop((key, lease.owner), None)

    def holds(self, key: WaitKey, owner: str) -> bool:
        """Whether a client of this process holds the lock for this owner."""
        return (key, owner) in self._leases

    def will_release(self, key: WaitKey, seen: Position) -> bool:
        """Whether clients of this process hold the lock, and nobody else: its release will wake the next waiter."""
        return bool(seen.holders) and all(self.holds(key, holder.owner) for holder in seen.holders)


def _ticket(wait: Wait) -> int:
    return wait.ticket or 0


def without(one: T, others: tuple[T, ...]) -> tuple[T, ...]:
    """The others of some objects. A function, so that the block of a mutex has no condition of a comprehension in it:
    what a signal handler raises there, from Python 3.12 on, leaves the mutex locked
    (https://github.com/python/cpython/issues/108214).
    """
    return tuple([each for each in others if each is not one])


_of_process = LocalWaiters()


def waiters_of_this_process() -> LocalWaiters:
    """The waiters of this process, for all its clients; a forked child has its own."""
    global _of_process
    if not _of_process.are_of_this_process:
        _of_process = LocalWaiters()
    return _of_process
