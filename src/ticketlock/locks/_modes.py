"""The modes in which a lock is held: which holders may hold it together, and how many.

A claim, a queue row and a holder each have a mode. A new mode needs a class here, a name in the API, the input and the
table (such as ``shared``), and a counter of its holders in the lock item (such as ``heldShared``).
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ticketlock.locks import _conditions as only_if

MAX_HOLDERS = 100
"""Every write of the lock item is billed by its size, and a holder takes some 200 bytes."""


class Mode:
    """One way to hold a lock: exclusively, as one of at most ``permits`` holders. Other modes say where they differ.

    Attributes:
        shared: its value in the API and the table.
        counters: the attributes of the lock item that count its holders.
        marks: the attributes that only its rows and holders have.
    """

    shared = False
    counters: tuple[str, ...] = ("held",)
    marks: Mapping[str, Any] = {}

    @property
    def room_conditions(self) -> tuple[str, ...]:
        """The conditions that one more holder fits, counting holders with expired leases too."""
        return only_if.A_PERMIT_IS_FREE, only_if.NO_HOLDER_SHARES

    @property
    def as_granted(self) -> str:
        """The condition that a grant was made in this mode."""
        return only_if.I_DO_NOT_SHARE

    def fits_beside(self, other: "Mode") -> bool:
        """Whether both may hold the lock at one time."""
        return self is other

    def capacity(self, permits: int) -> int:
        """How many may hold the lock at once in this mode, if the lock item has ``permits``."""
        return permits

    def permits_to_ask(self, permits: int) -> int:
        """The permits of a claim in this mode, for a lock (or a default) with ``permits``."""
        return permits

    def turn_is_known(self, others: Sequence["Mode"], mine: int, permits: int) -> bool:
        """Whether a waiter has read enough of the front of the queue to decide whether it is its turn.

        Args:
            others: the modes of the other waiters that it has read.
            mine: how many rows of its own it has read.
            permits: those of the lock.
        """
        return len(others) + mine > permits


class _Shared(Mode):
    """Together with any other holders that share the lock, up to 100."""

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

    def turn_is_known(self, others: Sequence[Mode], mine: int, _permits: int) -> bool:
        return mine > 0 or not all(self.fits_beside(other) for other in others) or len(others) > MAX_HOLDERS


EXCLUSIVE = Mode()
SHARED: Mode = _Shared()
MODES = (EXCLUSIVE, SHARED)


def mode_of(*, shared: bool) -> Mode:
    """The mode for this value of ``shared``."""
    return SHARED if shared else EXCLUSIVE


def turns_before(before: Sequence[Mode], mine: Mode, permits: int) -> int:
    """How many turns come before that of a waiter in the mode ``mine``, behind waiters in the modes ``before``: waiters
    that may hold the lock together count once.
    """
    alone = before.count(EXCLUSIVE) // max(1, permits)
    # A run of shared waiters is one turn, unless this waiter belongs to it.
    runs = sum(mode is SHARED for mode, _ in groupby(before))
    return alone + runs - int(mine is SHARED and before[-1:] == [SHARED])
