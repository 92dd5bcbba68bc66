"""Calls that met a conflict take turns: they queue for the items, in arrival order. No I/O, no clock.

The queue is advisory: conditions on the items decide whether a unit is committed. If a lock is lost or cannot be
acquired, nothing else changes.
"""

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from inspect import iscoroutinefunction
from typing import Any, Protocol

from ticketlock.errors import InvalidUnitRequest, TicketLockError, UnitConflict
from ticketlock.units._statements import ItemState
from ticketlock.units._words import PYTHON

NAMESPACE = "units"
"""The namespace of the locks that calls queue for."""

_MOST_KNOWN = 1_000
_ENTITY_BYTES = 1_024

_log = logging.getLogger("ticketlock")


class Locks(Protocol):
    """Where calls queue: a ``LockClient`` of ``ticketlock``, or of ``ticketlock.aio`` for tasks."""

    @property
    def acquire_all(self) -> Callable[..., Any]: ...


class ThreadLocks(Locks, Protocol):
    """The one for threads: an interrupt may come before the caller of ``acquire_all`` receives its locks."""

    def _holds(self) -> Any: ...

    def _give_back_since(self, before: Any) -> None: ...


def check_locks(locks: Any, *, is_awaited: bool = False) -> None:
    if locks is None:
        return
    is_of_this_kind = iscoroutinefunction(getattr(locks, "resume", None)) is is_awaited
    if not callable(getattr(locks, "acquire_all", None)) or not is_of_this_kind:
        raise InvalidUnitRequest("locks", locks, "a LockClient: of ticketlock for threads, of ticketlock.aio for tasks")


class Contended:
    """The items at which calls of this process have recently met conflicts, for all of its threads.

    An item is contended from its first conflict until a call gets its turn without waiting.
    """

    def __init__(self) -> None:
        self._entities: OrderedDict[str, None] = OrderedDict()
        # Re-entrant, as that of `Lines`.
        self._mutex = threading.RLock()

    def add(self, entities: Iterable[str]) -> None:
        """Note conflicts at these items; beyond a thousand, the oldest are forgotten."""
        with self._mutex:
            for entity in entities:
                self._entities[entity] = None
                self._entities.move_to_end(entity)
            for _ in range(len(self._entities) - _MOST_KNOWN):
                self._entities.popitem(last=False)

    def forget(self, entities: Iterable[str]) -> None:
        """Note that a call got its turn at these items without waiting."""
        with self._mutex:
            for entity in entities:
                self._entities.pop(entity, None)

    def __contains__(self, entity: str) -> bool:
        return entity in self._entities


class PlaceInTurn:
    """What the tries of one call queue for.

    Attributes:
        entities: the locks that its next try needs, one for each item.
        is_due: whether some of them were added since it last queued.
        is_held: whether it holds the locks that it last queued for.
    """

    def __init__(self, contended: Contended) -> None:
        self.entities: set[str] = set()
        self.is_due = False
        self.is_held = False
        self._contended = contended
        self._stood_aside = False
        self._has_waited = False

    def check(self, places: Sequence[ItemState]) -> None:
        """Step back if calls are queueing for an item that is about to be read: nothing is sent, and the try ends."""
        wanted = {entity_of(*_named(place)): place for place in places}
        queued = [entity for entity in wanted if entity in self._contended and entity not in self.entities]
        missing = {entity: wanted[entity] for entity in queued}
        if missing:
            self._stood_aside = True
            self._want(missing)
            raise UnitConflict(_named(place) for place in missing.values())

    def met(self, error: TicketLockError) -> bool:
        """Note how a try has ended. Returns whether it counts: a try that only stepped back does not."""
        if self._stood_aside:
            self._stood_aside = False
            return False
        if isinstance(error, UnitConflict):
            met = [entity_of(table, key) for table, key in error.keys]
            self._contended.add(met)
            self._want(met)
        return True

    def _want(self, entities: Iterable[str]) -> None:
        self.is_due |= not self.entities.issuperset(entities)
        self.entities.update(entities)

    def begins(self) -> None:
        """Note that it queues from now on."""
        self.is_due = self.is_held = self._has_waited = False

    def acquire_arguments(self, timeout_ms: int) -> dict[str, Any]:
        return {
            "entities": sorted(self.entities),
            "namespace": NAMESPACE,
            "record_wait": timeout_ms / 1_000,
            # A call within a call does not queue behind itself.
            "reentrant": True,
            "on_wait": self.note_waits,
        }

    def note_waits(self, _: object = None) -> None:
        """Note that it is not the first in the queue."""
        self._has_waited = True

    def note_held(self) -> None:
        self.is_held = True
        if not self._has_waited:
            self._contended.forget(self.entities)

    def note_missed(self, reason: object) -> None:
        """Note that the turn did not come: the next try runs without it."""
        _log.warning("a unit runs without its turn at %s: %s", ", ".join(sorted(self.entities)), reason)


def entity_of(table: str, key: Mapping[str, Any]) -> str:
    """The entity of the lock for an item, whose key is in Python values. Several items may share one by chance."""
    parts = [str(part) if isinstance(part, str | Decimal) else repr(part) for part in key.values()]
    entity = "/".join([table, *parts])
    if len(entity.encode()) <= _ENTITY_BYTES:
        return entity
    return f"{table}/{hashlib.sha256(entity.encode()).hexdigest()}"


def _named(place: ItemState) -> tuple[str, dict[str, Any]]:
    return place.table.name, PYTHON.to_caller(place.key) or {}
