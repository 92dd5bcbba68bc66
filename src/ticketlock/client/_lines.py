"""Waiters of one process, by lock: a release in it wakes the next of them, of whatever client. No I/O.

It is a hint and no more. Whoever is woken takes the lock by the same conditional write as ever, or polls; whoever is
not woken, or is a waiter of another process, polls by its pace. So a hint that is lost costs idle time, and one too
many costs a poll.
"""

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import ReferenceType, ref

from ticketlock.client._wait import Waits
from ticketlock.locks._names import LockName
from ticketlock.wire._process import OwnProcess


@dataclass(frozen=True, slots=True)
class Line:
    """Which lock is waited for.

    Attributes:
        table: what tells its table from others.
        lock: its name.
    """

    table: Hashable
    lock: LockName


class Lines:
    """Who waits in this process, and for which lock."""

    def __init__(self) -> None:
        self._process = OwnProcess()
        # A signal handler that releases a lock may have interrupted the thread that has this one.
        self._mutex = threading.RLock()
        # Weak: an exception that a signal handler raises may end a wait between two instructions of `standing`.
        self._waiting: dict[Line, tuple[ReferenceType[Waits], ...]] = {}

    @property
    def are_of_this_process(self) -> bool:
        """Whether they were not copied into a forked child, where none of these threads runs."""
        return self._process.is_this

    @contextmanager
    def standing(self, line: Line, waits: Waits) -> Iterator[None]:
        """Within the block a release may wake this wait."""
        mine = ref(waits, lambda gone: self._leaves(line, gone))
        with self._mutex:
            self._waiting[line] = (*self._waiting.get(line, ()), mine)
        try:
            yield
        finally:
            self._leaves(line, mine)

    def _leaves(self, line: Line, gone: ReferenceType[Waits]) -> None:
        with self._mutex:
            others = tuple(each for each in self._waiting.get(line, ()) if each is not gone)
            if others:
                self._waiting[line] = others
            else:
                self._waiting.pop(line, None)

    def first(self, line: Line) -> Waits | None:
        """Who waits here with the lowest ticket; None where nobody is known to have one."""
        with self._mutex:
            waiting = [each() for each in self._waiting.get(line, ())]
        return min(
            (each for each in waiting if each is not None and each.ticket is not None), key=_ticket, default=None
        )

    def has_room(self, line: Line, fencing_token: int) -> None:
        """A lock was released, or granted with room for another: tell the first in line, which tells the next so.

        Args:
            line: which lock.
            fencing_token: of its last grant.
        """
        first = self.first(line)
        if first is not None:
            first.hears_of(fencing_token)


def _ticket(waits: Waits) -> int:
    return waits.ticket or 0


_of_process = Lines()


def lines_of_this_process() -> Lines:
    """The same for all clients of one process; a forked child has its own."""
    global _of_process
    if not _of_process.are_of_this_process:
        _of_process = Lines()
    return _of_process
