"""The decorator of units: which calls run again, when, and under which name. No I/O, no clock of its own."""

import dataclasses
import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import text, whole_number
from ticketlock._decorating import CallKey, Decorator, KeyOf
from ticketlock.errors import InvalidUnitRequest, TicketLockError, UnitConflict, UnitContended, UnitRolledBack
from ticketlock.units._reading import Isolation
from ticketlock.units._record import new_id
from ticketlock.units._settings import HeldLock, Terms, Under, UnitsSettings
from ticketlock.units._turns import PlaceInTurn
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._driver import Clocks

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


@dataclass(slots=True)
class Tries:
    """The tries of one call: units that keep the age of the first one.

    Attributes:
        terms: of the current unit.
        most: how many tries there may be.
        turn: what the call queues for; None without a lock client.
        jitter: random numbers in [0, 1), so that units that have conflicted do not conflict again.
        failed: how many have.
    """

    terms: Terms
    most: int
    clocks: Clocks
    turn: PlaceInTurn | None = None
    jitter: Callable[[], float] = random.random
    failed: int = 0

    def is_the_last(self, error: TicketLockError) -> bool:
        self.failed += self.turn is None or self.turn.met(error)
        return self.failed >= self.most

    def wait(self) -> Actions[None]:
        """Wait before the next try: longer after more failures, and not at all if the call holds its locks."""
        if self.turn is None or not self.turn.is_held:
            # Limited, since more doublings would not wait longer. To step back does not count as a try.
            doublings = min(max(self.failed - 1, 0), _LONGEST_BACKOFF_MS.bit_length())
            yield Sleep(self.jitter() * min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << doublings))
        self.terms = dataclasses.replace(self.terms, unit=new_id(self.clocks.read().wall_ms))


def check_has_parentheses(given: object) -> None:
    """Refuse ``@units.transactional`` on a function, which would be its first argument."""
    if given is not None:
        raise TypeError("transactional takes keyword arguments only: write @units.transactional(), with parentheses")


@dataclass(frozen=True, slots=True)
class TransactionalArguments:
    """The arguments of ``transactional``.

    Attributes:
        most_tries: how many there may be.
        name_of: makes the name of a call's unit; None for no name.
    """

    most_tries: Any
    unit_as: Any
    name: CallKey | None
    isolation: Any
    timeout: Any
    under: Under | None
    name_of: KeyOf | None = None

    def check(self, settings: UnitsSettings, clocks: Clocks) -> None:
        # The check counts frames of the stack: it is called directly from here.
        if self.name is not None:
            TRANSACTIONAL.check_key(self.name)
        whole_number("tries", self.most_tries, 1, _MOST_TRIES, InvalidUnitRequest)
        text("unit_as", self.unit_as, _ARGUMENT_BYTES, InvalidUnitRequest)
        if self.under is not None and (not callable(self.under) or inspect.iscoroutinefunction(self.under)):
            raise InvalidUnitRequest("under", self.under, _UNDER)
        settings.terms(clocks, isolation=self.isolation, timeout=self.timeout)

    def of(self, function: Callable[..., Any]) -> "TransactionalArguments":
        """The same, of one function."""
        try:
            inspect.signature(function).bind_partial(**{self.unit_as: None})
        except TypeError as error:
            raise TypeError(
                f"the unit is passed as the keyword argument {self.unit_as!r}; the function does not take it: {error}"
            ) from None
        if self.name is None:
            return self
        return dataclasses.replace(self, name_of=KeyOf(TRANSACTIONAL, self.name, function, self.unit_as))

    def tries(
        self,
        settings: UnitsSettings,
        clocks: Clocks,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        turn: PlaceInTurn | None,
    ) -> Tries:
        name = self.name_of(args, kwargs) if self.name_of is not None else None
        under = self._lock_of(args, kwargs)
        terms = settings.terms(clocks, name=name, isolation=self.isolation, under=under, timeout=self.timeout)
        return Tries(terms, self.most_tries, clocks, turn)

    def joins(self, given: object, terms: Callable[[object], Terms | None]) -> bool:
        """Whether a call is part of the unit that its caller passes; None is as if nothing was passed."""
        if given is None:
            return False
        found = terms(given)
        if found is None:
            raise InvalidUnitRequest(self.unit_as, given, "a unit, which the call then joins; or left out")
        for field, value in (("name", self.name), ("under", self.under)):
            if value is not None:
                allowed = f"left out: the function has a `{field}`, so each call of it is a unit of its own"
                raise InvalidUnitRequest(self.unit_as, found.id, allowed)
        levels = list(Isolation)
        if levels.index(found.isolation) < levels.index(self.isolation):
            allowed = f"a unit whose isolation is {self.isolation} at least, as the function's; or left out"
            raise InvalidUnitRequest(self.unit_as, f"{found.id}, {found.isolation}", allowed)
        return True

    def _lock_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> HeldLock | None:
        if self.under is None:
            return None
        lock: Any = self.under(*args, **kwargs)
        if lock is None:
            # Otherwise the unit would be committed without a lock.
            raise InvalidUnitRequest("under", lock, _UNDER)
        held: HeldLock = lock
        return held
