"""Calls of one process that queue for the same locks pass them on to each other. No I/O, no clock.

Only the first of them stands in the queue of the table. So most turns need no request for the locks, as in a lock that
is aware of its cohort (Dice, Marathe, Shavit, "Lock Cohorting", 2012), and the number of turns in a row is bounded as
there.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

MOST_IN_A_ROW = 20
"""How many calls have their turns under one acquisition: then the locks are released, so that others get theirs."""

NOT_IN_TIME = "the calls of this process that came before it took too long"


@dataclass(eq=False, slots=True)
class PlaceInLine:
    """The place of one call among those of its process that want the same locks.

    Attributes:
        caller: the thread or the task.
        tell: wakes it: it is the first now.
        is_within: whether the call runs within another one of its caller, which is the first.
        group: the held locks, if it was passed them, or has acquired them.
    """

    entities: frozenset[str]
    caller: object
    tell: Callable[[], object]
    is_within: bool = False
    group: Any = None
    _entered: Any = None

    def enter(self, call: FrameType) -> None:
        """Its call holds them: what it calls holds them again, instead of waiting for it."""
        self.group._enter(call)
        self._entered = self.group

    def leave(self) -> None:
        """The call holds them no more. Calling it again does nothing."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered._leave()


@dataclass(slots=True)
class _Line:
    first: PlaceInLine
    behind: deque[PlaceInLine] = field(default_factory=deque)
    in_a_row: int = 1


class Lines:
    """The calls of one process that queue, by the locks that they want."""

    def __init__(self) -> None:
        self._lines: dict[frozenset[str], _Line] = {}
        # Re-entrant: a signal handler that commits units may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()

    def join(self, place: PlaceInLine) -> None:
        """Take the last place, unless the first one is of the same caller."""
        with self._mutex:
            line = self._lines.get(place.entities)
            if line is None:
                self._lines[place.entities] = _Line(place)
            elif line.first.caller is place.caller:
                place.is_within = True
            else:
                line.behind.append(place)

    def is_first(self, place: PlaceInLine) -> bool:
        """Whether its call holds the locks that it was passed, or has to acquire them."""
        return place.is_within or self._lines[place.entities].first is place

    def is_alone(self, place: PlaceInLine) -> bool:
        """Whether no other call of the process waits for the same locks."""
        return not self._lines[place.entities].behind

    def may_keep(self, place: PlaceInLine) -> bool:
        """Whether the locks that it was passed are still held, and it is not yet the turn of other processes."""
        if place.group is None:
            return False
        line = self._lines[place.entities]
        if line.in_a_row < MOST_IN_A_ROW and place.group.is_held():
            line.in_a_row += 1
            return True
        line.in_a_row = 1
        return False

    def leave(self, place: PlaceInLine) -> None:
        """Give up a place, if it was taken. The next call gets the locks; if there is none, they stay with the place.

        Calling it again does nothing, or the rest after an interrupt.
        """
        with self._mutex:
            line = self._lines.get(place.entities)
            if line is None or place.is_within:
                return
            if place in line.behind:
                line.behind.remove(place)
            if line.first is place:
                if not line.behind:
                    del self._lines[place.entities]
                    return
                line.behind[0].group = place.group
                line.first = line.behind[0]
            heir = line.first
            if heir in line.behind:
                place.group = None
                heir.tell()
                # Unless a signal handler that has left a place of its own has done it.
                with suppress(ValueError):
                    line.behind.remove(heir)
