"""Where the calls of one ``Units`` for threads take their turns: first those of this process, then all."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from queue import Empty, SimpleQueue

from ticketlock.errors import TicketLockError
from ticketlock.units._again._passing import NOT_IN_TIME, Lines, PlaceInLine
from ticketlock.units._again._turns import Contended, PlaceInTurn, ThreadLocks
from ticketlock.wire import Clocks

_log = logging.getLogger("ticketlock")


class Turns:
    """The turns of the calls of one ``Units``.

    Args:
        locks: where they queue; None: nowhere.
        is_here: whether this is the process that has made it.
    """

    def __init__(self, locks: ThreadLocks | None, clocks: Clocks, is_here: Callable[[], bool]) -> None:
        self._locks, self._clocks, self._is_here = locks, clocks, is_here
        self.contended, self.lines = Contended(), Lines()

    def of_a_call(self) -> PlaceInTurn | None:
        """What a new call queues for."""
        return PlaceInTurn(self.contended) if self._locks is not None else None

    def take(self, turn: PlaceInTurn, timeout_ms: int, line: ExitStack) -> None:
        """Wait for the turn of a call, and hold its locks; ``line`` gives them back. Called by the call itself."""
        assert self._locks is not None
        turn.begins()
        began_ms, is_first = self._clocks.read().local_ms, SimpleQueue[None]()
        place = PlaceInLine(frozenset(turn.entities), threading.current_thread(), partial(is_first.put, None))
        # Twice: an interrupt may end the first one.
        line.callback(self._leave, place)
        line.callback(self._leave, place)
        self.lines.join(place)
        if not self.lines.is_first(place):
            turn.note_waits()
            with suppress(Empty):
                is_first.get(timeout=timeout_ms / 1_000)
            if not self.lines.is_first(place):
                turn.note_missed(NOT_IN_TIME)
                line.close()
                return
        if not self.lines.may_keep(place):
            self._release(place)
            rest_ms = max(0, timeout_ms - (self._clocks.read().local_ms - began_ms))
            before = self._locks._holds()
            try:
                place.group = self._locks.acquire_all(**turn.acquire_arguments(rest_ms))
            except TicketLockError as error:
                turn.note_missed(error)
                line.close()
                return
            except BaseException:
                self._locks._give_back_since(before)
                raise
        place.enter(sys._getframe(1))
        if not self.lines.is_alone(place):
            turn.note_waits()
        turn.note_held()

    def _leave(self, place: PlaceInLine) -> None:
        if not self._is_here():
            return
        place.leave()
        self.lines.leave(place)
        # Lets the thread that has its turn now run at once, rather than when this one waits.
        time.sleep(0)
        self._release(place)

    def _release(self, place: PlaceInLine) -> None:
        if place.group is not None:
            # Together: on a table that is away they share one bound.
            try:
                place.group.release()
            except TicketLockError as error:
                _log.warning("the locks of a unit's turn were not released: %s", error)
        place.group = None
