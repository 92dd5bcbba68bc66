"""Where the calls of one ``Units`` for tasks take their turns."""

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from ticketlock.errors import TicketLockError
from ticketlock.units._again import NOT_IN_TIME, Contended, Lines, Locks, PlaceInLine, PlaceInTurn
from ticketlock.wire import Clocks

_log = logging.getLogger("ticketlock")


class Turns:
    """The turns of the calls of one ``Units``; its arguments are those of the one for threads."""

    def __init__(self, locks: Locks | None, clocks: Clocks, is_here: Callable[[], bool]) -> None:
        self._locks, self._clocks, self._is_here = locks, clocks, is_here
        self.contended, self.lines = Contended(), Lines()

    def of_a_call(self) -> PlaceInTurn | None:
        """What a new call queues for."""
        return PlaceInTurn(self.contended) if self._locks is not None else None

    async def take(self, turn: PlaceInTurn, timeout_ms: int, line: AsyncExitStack) -> None:
        """Wait for the turn of a call; see ``ticketlock.units._again.Turns``."""
        assert self._locks is not None
        turn.begins()
        began_ms, is_first = self._clocks.read().local_ms, asyncio.Event()
        place = PlaceInLine(frozenset(turn.entities), asyncio.current_task(), is_first.set)
        line.push_async_callback(self._leave, place)
        self.lines.join(place)
        if not self.lines.is_first(place):
            turn.note_waits()
            with suppress(TimeoutError):
                await asyncio.wait_for(is_first.wait(), timeout_ms / 1_000)
            if not self.lines.is_first(place):
                turn.note_missed(NOT_IN_TIME)
                await line.aclose()
                return
        if not self.lines.may_keep(place):
            await self._release(place)
            rest_ms = max(0, timeout_ms - (self._clocks.read().local_ms - began_ms))
            try:
                place.group = await self._locks.acquire_all(**turn.acquire_arguments(rest_ms))
            except TicketLockError as error:
                turn.note_missed(error)
                await line.aclose()
                return
        place.enter(sys._getframe(1))
        if not self.lines.is_alone(place):
            turn.note_waits()
        turn.note_held()

    async def _leave(self, place: PlaceInLine) -> None:
        if not self._is_here():
            return
        place.leave()
        self.lines.leave(place)
        await self._release(place)

    async def _release(self, place: PlaceInLine) -> None:
        if place.group is not None:
            # Together: on a table that is away they share one bound.
            try:
                await place.group.release()
            except TicketLockError as error:
                _log.warning("the locks of a unit's turn were not released: %s", error)
        place.group = None
