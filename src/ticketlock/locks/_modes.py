"""The modes in which a lock is held, and all that depends on them: who fits beside whom, and how many.

A claim, a queue row and a holder each have one. A new mode is a class here, and what tells it: a word of the API, the
input and the table (``shared``), and a counter of its holders in the lock item (``heldShared``).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ticketlock.locks import _conditions as only_if

MAX_HOLDERS = 100
"""Every write of the lock item is billed by its size, and a holder has some 200 bytes."""


class Mode(ABC):
    """One way to hold a lock.

    Attributes:
        shared: how the API and the table tell it.
        counters: the attributes of the lock item that count its holders.
        marks: what its rows and its holders have that those of others have not.
    """

    shared: bool
    counters: tuple[str, ...]
    marks: Mapping[str, Any]

    @property
    @abstractmethod
    def room_conditions(self) -> tuple[str, ...]:
        """The conditions that one more holder fits, when nobody's lease is judged."""

    @property
    @abstractmethod
    def as_granted(self) -> str:
        """The condition that a grant was made in this mode."""

    def fits_beside(self, other: "Mode") -> bool:
        """Whether both may hold the lock at one time."""
        return self is other

    @abstractmethod
    def capacity(self, permits: int) -> int:
        """How many may hold the lock at once in this mode.

        Args:
            permits: as the lock item has them.
        """

    @abstractmethod
    def permits_to_ask(self, permits: int) -> int:
        """The permits of a claim in this mode, of a lock, or by a default, with so many."""

    @abstractmethod
    def turn_is_told(self, others: Sequence["Mode"], mine: int, permits: int) -> bool:
        """Whether a waiter has seen enough of the front of the queue to tell whether it is its turn.

        Args:
            others: the modes of the other waiters that it has seen.
            mine: how many rows of its own it has seen.
            permits: of the lock.
        """


class _Exclusive(Mode):
    """Alone; or as one of so many as the lock has permits."""

    shared = False
    counters = ("held",)
    marks: Mapping[str, Any] = {}

    @property
    def room_conditions(self) -> tuple[str, ...]:
        return only_if.A_PERMIT_IS_FREE, only_if.NOBODY_SHARES

    @property
    def as_granted(self) -> str:
        return only_if.I_SHARE_WITH_NOBODY

    def capacity(self, permits: int) -> int:
        return permits

    def permits_to_ask(self, permits: int) -> int:
        return permits

    def turn_is_told(self, others: Sequence[Mode], mine: int, permits: int) -> bool:
        return len(others) + mine > permits


class _Shared(Mode):
    """Together with others that share it."""

    shared = True
    counters = ("held", "heldShared")
    marks: Mapping[str, Any] = {"shared": {"BOOL": True}}

    @property
    def room_conditions(self) -> tuple[str, ...]:
        return only_if.ALL_HOLDERS_SHARE, only_if.A_SHARED_PLACE_IS_FREE, only_if.NOT_CLOSED

    @property
    def as_granted(self) -> str:
        return only_if.I_SHARE

    def capacity(self, permits: int) -> int:
        return MAX_HOLDERS if permits > 0 else 0

    def permits_to_ask(self, _permits: int) -> int:
        return 1

    def turn_is_told(self, others: Sequence[Mode], mine: int, _permits: int) -> bool:
        return mine > 0 or not all(self.fits_beside(other) for other in others) or len(others) > MAX_HOLDERS


EXCLUSIVE: Mode = _Exclusive()
SHARED: Mode = _Shared()
MODES = (EXCLUSIVE, SHARED)


def mode_of(*, shared: bool) -> Mode:
    """The mode that the API and the table tell so."""
    return SHARED if shared else EXCLUSIVE


def turns_before(before: Sequence[Mode], mine: Mode, permits: int) -> int:
    """How many turns come before a waiter's own: those who may enter together count once.

    Args:
        before: the modes of those who stand before it, in order.
        mine: the waiter's.
        permits: of the lock.
    """
    alone = before.count(EXCLUSIVE) // max(1, permits)
    # A run of those who share is one turn, unless it is mine as well.
    runs = sum(mode is SHARED for mode, _ in groupby(before))
    return alone + runs - int(mine is SHARED and before[-1:] == [SHARED])
