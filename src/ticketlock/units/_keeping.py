"""The lease of a unit's read locks, which a heartbeat renews between the unit's statements."""

import weakref

from ticketlock.units._locking import Locking
from ticketlock.wire._heartbeat import Due
from ticketlock.wire._requests import ForkingSteps
from ticketlock.wire._table_time import Reading

RENEWED_EVERY_MS = 20_000


class Kept:
    """One unit's read locks. They are renewed while the unit is referenced: one without references ends by its lease.

    Args:
        locking: the unit.

    Attributes:
        is_watched: whether a heartbeat watches it.
    """

    def __init__(self, locking: Locking) -> None:
        self._locking = weakref.ref(locking)
        self._due_at_ms: int | None = None
        self.is_watched = False

    def renew(self) -> ForkingSteps[None]:
        """A whole new lease.

        Raises:
            UnitRolledBack, UnitForgotten, TableError: it was not renewed.
        """
        locking = self._locking()
        if locking is not None and locking.is_kept:
            yield from locking.renew()

    # What the heartbeat calls.

    def _due_ms(self, reading: Reading) -> int:
        if self._due_at_ms is None:
            self._due_at_ms = reading.local_ms + RENEWED_EVERY_MS
        return self._due_at_ms

    def _take_due(self, reading: Reading) -> Due | None:
        self._due_at_ms = reading.local_ms + RENEWED_EVERY_MS
        return "renew" if self._is_watched_on() else None

    def _is_watched_on(self) -> bool:
        locking = self._locking()
        return locking is not None and locking.is_kept

    def _callback(self, what: Due) -> None:
        """None: the unit's next request finds out."""
