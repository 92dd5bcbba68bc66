"""The decorator of units: which calls run again, when, and under which name. No I/O, no clock of its own.

Calls that met a conflict take turns: they queue for the items, in arrival order. The queue is advisory: conditions on
the items decide whether a unit is committed. If a lock is lost or cannot be acquired, nothing else changes.
"""

import dataclasses
import hashlib
import inspect
import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from ticketlock._checks import text, whole_number
from ticketlock._decorating import CallKey, Decorator, KeyOf
from ticketlock.errors import InvalidUnitRequest, TicketLockError, UnitConflict, UnitContended, UnitRolledBack
from ticketlock.units._reading import Isolation
from ticketlock.units._record import new_id
from ticketlock.units._settings import HeldLock, Terms, Under, UnitsSettings
from ticketlock.units._values import PYTHON
from ticketlock.units._work import ItemState
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._driver import Clocks

NAMESPACE = "units"
"""The namespace of the locks that calls queue for."""

_MOST_KNOWN = 1_000
_ENTITY_BYTES = 1_024

_log = logging.getLogger("ticketlock")

AGAIN = (UnitConflict, UnitContended, UnitRolledBack)
"""After these errors nothing was written, and another try may succeed."""

TRANSACTIONAL = Decorator(
    name="transactional",
    key="name",
    refused=InvalidUnitRequest,
    for_threads="ticketlock.units.Units",
    for_tasks="ticketlock.aio.Units",
    by_hand="begin",
    run="after the commit",
)

_MOST_TRIES = 1_000
_UNDER = "a plain function that is given the call's arguments and returns a held lock, such as a Fence"
_ARGUMENT_BYTES = 255
_FIRST_BACKOFF_MS = 25
_LONGEST_BACKOFF_MS = 1_000


class Locks(Protocol):
    """Where calls queue: a ``LockClient`` of ``ticketlock``, or of ``ticketlock.aio`` for tasks."""

    def acquire_all(self, entities: Iterable[str], **options: Any) -> Any:
        """Hold several locks together."""
        ...


class ThreadLocks(Locks, Protocol):
    """The one for threads: an interrupt may come before the caller of ``acquire_all`` receives its locks."""

    def _holds(self) -> Any: ...

    def _give_back_since(self, before: Any) -> None: ...


def check_locks(locks: Any) -> None:
    """Refuse anything but a lock client.

    Raises:
        InvalidUnitRequest: it is no lock client.
    """
    if locks is not None and not callable(getattr(locks, "acquire_all", None)):
        raise InvalidUnitRequest("locks", locks, "a LockClient: of ticketlock for threads, of ticketlock.aio for tasks")


class Contended:
    """The items at which calls of this process have recently met conflicts, for all of its threads.

    An item is contended from its first conflict until a call gets its turn without waiting.
    """

    def __init__(self) -> None:
        self._entities: OrderedDict[str, None] = OrderedDict()
        self._mutex = threading.Lock()

    def add(self, entities: Iterable[str]) -> None:
        """Note conflicts at these items; beyond a thousand, the oldest are forgotten."""
        with self._mutex:
            for entity in entities:
                self._entities[entity] = None
                self._entities.move_to_end(entity)
            while len(self._entities) > _MOST_KNOWN:
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

    Args:
        contended: the items with conflicts.

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
        """Step back if calls are queueing for an item that is about to be read: nothing is sent, and the try ends.

        Raises:
            UnitConflict: names the items; the next try queues for them.
        """
        wanted = {entity_of(*_named(place)): place for place in places}
        missing = {entity: place for entity, place in wanted.items() if self._is_missing(entity)}
        if missing:
            self._stood_aside = True
            self._want(missing)
            raise UnitConflict(_named(place) for place in missing.values())

    def _is_missing(self, entity: str) -> bool:
        return entity in self._contended and entity not in self.entities

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

    def wishes(self, timeout_ms: int) -> dict[str, Any]:
        """The arguments of ``acquire_all``."""
        self.is_due = self.is_held = self._has_waited = False
        return {
            "entities": sorted(self.entities),
            "namespace": NAMESPACE,
            "record_wait": timeout_ms / 1_000,
            # A call within a call does not queue behind itself.
            "reentrant": True,
            "on_wait": self._waits,
        }

    def _waits(self, _: object) -> None:
        self._has_waited = True

    def note_held(self) -> None:
        """Note that all locks are held."""
        self.is_held = True
        if not self._has_waited:
            self._contended.forget(self.entities)

    def note_missed(self, error: TicketLockError) -> None:
        """Note that the turn did not come: the next try runs without it."""
        _log.warning("a unit runs without its turn at %s: %s", ", ".join(sorted(self.entities)), error)


def entity_of(table: str, key: Mapping[str, Any]) -> str:
    """The entity of the lock for an item. Several items may share one by chance.

    Args:
        table: the table's name.
        key: in Python values.
    """
    parts = [str(part) if isinstance(part, str | Decimal) else repr(part) for part in key.values()]
    entity = "/".join([table, *parts])
    if len(entity.encode()) <= _ENTITY_BYTES:
        return entity
    return f"{table}/{hashlib.sha256(entity.encode()).hexdigest()}"


def _named(place: ItemState) -> tuple[str, dict[str, Any]]:
    return place.table.name, PYTHON.back(place.key) or {}


class Tries:
    """The tries of one call: units that keep the age of the first one.

    Args:
        terms: of the first unit.
        most: how many tries there may be.
        clocks: where the time comes from.
        jitter: random numbers in [0, 1), so that units that have conflicted do not conflict again.

    Attributes:
        terms: of the current unit.
        turn: what the call queues for; None without a lock client.
    """

    def __init__(
        self,
        terms: Terms,
        most: int,
        clocks: Clocks,
        turn: PlaceInTurn | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.terms = terms
        self.turn = turn
        self._most = most
        self._clocks = clocks
        self._jitter = jitter
        self._failed = 0

    def is_the_last(self, error: TicketLockError) -> bool:
        """Count a try that failed. Returns whether it was the last."""
        self._failed += self.turn is None or self.turn.met(error)
        return self._failed >= self._most

    def wait(self) -> Actions[None]:
        """Wait before the next try: longer after more failures, and not at all if the call holds its locks."""
        if self.turn is None or not self.turn.is_held:
            # Limited, since more doublings would not wait longer. To step back does not count as a try.
            doublings = min(max(self._failed - 1, 0), _LONGEST_BACKOFF_MS.bit_length())
            yield Sleep(self._jitter() * min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << doublings))
        self.terms = dataclasses.replace(self.terms, unit=new_id(self._clocks.read().wall_ms))


def check_has_parentheses(given: object) -> None:
    """Refuse ``@units.transactional`` on a function, which would be its first argument.

    Raises:
        TypeError: there is such an argument.
    """
    if given is not None:
        raise TypeError("transactional takes keyword arguments only: write @units.transactional(), with parentheses")


@dataclass(frozen=True, slots=True)
class TransactionalArguments:
    """The arguments of ``transactional``.

    Attributes:
        tries: how many there may be.
        unit_as: the argument in which the function gets its unit.
        name: a template or a callable, or None.
        isolation, timeout: of each unit.
        under: makes the lock of a call's unit from the arguments of the call; None for no lock.
    """

    tries: Any
    unit_as: Any
    name: CallKey | None
    isolation: Any
    timeout: Any
    under: Under | None

    def check(self, settings: UnitsSettings, clocks: Clocks) -> None:
        """Refuse arguments that are wrong for every call.

        Raises:
            InvalidUnitRequest: names the argument.
        """
        # At the call depth that the check of a key expects.
        if self.name is not None:
            TRANSACTIONAL.check_key(self.name)
        whole_number("tries", self.tries, 1, _MOST_TRIES, InvalidUnitRequest)
        text("unit_as", self.unit_as, _ARGUMENT_BYTES, InvalidUnitRequest)
        if self.under is not None and (not callable(self.under) or inspect.iscoroutinefunction(self.under)):
            raise InvalidUnitRequest("under", self.under, _UNDER)
        settings.terms(clocks, isolation=self.isolation, timeout=self.timeout)

    def of(self, function: Callable[..., Any]) -> "Calls":
        """The calls of a function.

        Raises:
            TypeError: the function does not take the unit.
            InvalidUnitRequest: the name is a template with a name that is no parameter of the function.
        """
        try:
            inspect.signature(function).bind_partial(**{self.unit_as: None})
        except TypeError as error:
            raise TypeError(
                f"the unit is passed as the keyword argument {self.unit_as!r}; the function does not take it: {error}"
            ) from None
        return Calls(self, KeyOf(TRANSACTIONAL, self.name, function, self.unit_as) if self.name is not None else None)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one function.

    Attributes:
        wishes: the arguments of the decorator.
        name_of: makes the name of a call's unit; None for no name.
    """

    wishes: TransactionalArguments
    name_of: KeyOf | None

    def tries(
        self,
        settings: UnitsSettings,
        clocks: Clocks,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        turn: PlaceInTurn | None,
    ) -> Tries:
        """The tries of one call.

        Raises:
            InvalidUnitRequest: the name is invalid, or ``under`` has not returned a held lock.
        """
        name = self.name_of(args, kwargs) if self.name_of is not None else None
        wishes = self.wishes
        under = self._lock_of(args, kwargs)
        terms = settings.terms(clocks, name=name, isolation=wishes.isolation, under=under, timeout=wishes.timeout)
        return Tries(terms, wishes.tries, clocks, turn)

    def joins(self, given: object, terms: Callable[[object], Terms | None]) -> bool:
        """Whether a call is part of the unit that its caller passes; None is as if nothing was passed.

        Args:
            given: what the caller passes as the unit.
            terms: the terms of a unit; None of anything else.

        Raises:
            InvalidUnitRequest: it is no unit, or it does not keep what the decorator promises.
        """
        if given is None:
            return False
        found, wishes = terms(given), self.wishes
        if found is None:
            raise InvalidUnitRequest(wishes.unit_as, given, "a unit, which the call then joins; or left out")
        for field, wish in (("name", wishes.name), ("under", wishes.under)):
            if wish is not None:
                allowed = f"left out: the function has a `{field}`, so each call of it is a unit of its own"
                raise InvalidUnitRequest(wishes.unit_as, found.id, allowed)
        levels = list(Isolation)
        if levels.index(found.isolation) < levels.index(wishes.isolation):
            allowed = f"a unit whose isolation is {wishes.isolation} at least, as the function's; or left out"
            raise InvalidUnitRequest(wishes.unit_as, f"{found.id}, {found.isolation}", allowed)
        return True

    def _lock_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> HeldLock | None:
        if self.wishes.under is None:
            return None
        lock: Any = self.wishes.under(*args, **kwargs)
        if lock is None:
            # Otherwise the unit would be committed without a lock.
            raise InvalidUnitRequest("under", lock, _UNDER)
        held: HeldLock = lock
        return held
