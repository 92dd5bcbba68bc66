"""The decorator of units: which calls run again, when, and under which name. No I/O, no clock of its own."""

import dataclasses
import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from ticketlock._checks import text, whole_number
from ticketlock._decorating import CallKey, Decorator, KeyOf, Passed
from ticketlock._names import text_of
from ticketlock.errors import InvalidUnitRequest, TicketLockError, UnitConflict, UnitContended, UnitRolledBack
from ticketlock.units._again._turns import PlaceInTurn
from ticketlock.units._records import Payload, new_id
from ticketlock.units._statements import HeldLock, Isolation, Terms, Under, UnitsSettings
from ticketlock.wire import Actions, Clocks, Sleep, longest_backoff_ms

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)
U = TypeVar("U")
U_contra = TypeVar("U_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

AGAIN = (UnitConflict, UnitContended, UnitRolledBack)
"""After these errors nothing was written, and another try may succeed."""

TRANSACTIONAL = Decorator(
    name="transactional",
    key="name",
    key_of=text_of,
    refused=InvalidUnitRequest,
    for_threads="ticketlock.units.Units",
    for_tasks="ticketlock.aio.Units",
    by_hand="begin",
    run="after the commit",
)

_MOST_TRIES = 1_000
_UNDER = "a plain function that is given the call's arguments and returns a held lock, such as a Fence"
_PAYLOAD = "a plain function that is given the call's arguments and returns what to compare, of a unit with a name"
_ARGUMENT_BYTES = 255


PayloadOf = Callable[..., object]
"""Makes what calls of one name must have in common, from the arguments of a call."""


class UnitFunction(Protocol[U_contra, P, R_co]):
    """A function each call of which is a unit, or a part of the unit that its caller passes first."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, unit: U_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class UnitMethod(Protocol[S_contra, U_contra, P, R_co]):
    """Such a method."""

    def __get__(self, instance: S_contra, of: type[Any], /) -> UnitFunction[U_contra, P, R_co]: ...
    def __call__(self, instance: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class UnitDecorator(Protocol[U]):
    """A decorator of functions that get their unit first, or after ``self``; callers may leave it out."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # mypy does not tell a unit from a ``self``
        self, function: Callable[Concatenate[U, P], R], /
    ) -> UnitFunction[U, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, U, P], R], /) -> UnitMethod[S, U, P, R]: ...


@dataclass(slots=True)
class Tries:
    """The tries of one call: units that keep the age of the first one.

    Attributes:
        terms: of the current unit.
        turn: what the call queues for; None without a lock client.
        jitter: random numbers in [0, 1), so that units that have conflicted do not conflict again.
        failed: how many have; one that only stepped back is not counted.
    """

    terms: Terms
    most_tries: int
    clocks: Clocks
    turn: PlaceInTurn | None = None
    jitter: Callable[[], float] = random.random
    failed: int = 0

    @property
    def are_used_up(self) -> bool:
        return self.failed >= self.most_tries

    def note_failure(self, error: TicketLockError) -> None:
        if self.turn is None or self.turn.met(error):
            self.failed += 1

    def prepare_next(self) -> Actions[None]:
        """Wait, longer after more failures, unless the call holds its locks; then give the next unit its id."""
        if self.turn is None or not self.turn.is_held:
            yield Sleep(self.jitter() * longest_backoff_ms(max(self.failed - 1, 0)))
        self.terms = dataclasses.replace(self.terms, unit=new_id(self.clocks.read().wall_ms))


def check_has_parentheses(given: object) -> None:
    """Refuse ``@units.transactional`` on a function, which would be its first argument."""
    if given is not None:
        raise TypeError("transactional takes keyword arguments only: write @units.transactional(), with parentheses")


@dataclass(frozen=True, slots=True)
class TransactionalArguments:
    """The arguments of ``transactional``, as its caller has given them."""

    tries: Any
    unit_as: Any
    name: CallKey | None
    isolation: Any
    timeout: Any
    under: Under | None
    payload: PayloadOf | None

    def check(self, settings: UnitsSettings, clocks: Clocks) -> None:
        # The check counts frames of the stack: it is called directly from here.
        if self.name is not None:
            TRANSACTIONAL.check_key(self.name)
        whole_number("tries", self.tries, 1, _MOST_TRIES, InvalidUnitRequest)
        text("unit_as", self.unit_as, _ARGUMENT_BYTES, InvalidUnitRequest)
        if self.under is not None and (not callable(self.under) or inspect.iscoroutinefunction(self.under)):
            raise InvalidUnitRequest("under", self.under, _UNDER)
        is_made = callable(self.payload) and not inspect.iscoroutinefunction(self.payload)
        if self.payload is not None and not (is_made and self.name is not None):
            raise InvalidUnitRequest("payload", self.payload, _PAYLOAD)
        settings.terms(clocks, isolation=self.isolation, timeout=self.timeout)

    def of(self, function: Callable[..., Any]) -> "TransactionalFunction":
        """The function to which they apply, if it takes the unit."""
        passed = Passed(function, self.unit_as)
        name_of = None if self.name is None else KeyOf(TRANSACTIONAL, self.name, function, self.unit_as)
        return TransactionalFunction(self, passed, name_of)


@dataclass(frozen=True, slots=True)
class TransactionalFunction:
    """A decorated function.

    Attributes:
        passed: its parameter for the unit.
        name_of: makes the name of a call's unit; None for no name.
    """

    arguments: TransactionalArguments
    passed: Passed
    name_of: KeyOf[str] | None

    def tries(
        self,
        settings: UnitsSettings,
        clocks: Clocks,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        turn: PlaceInTurn | None,
    ) -> Tries:
        name = self.name_of(args, kwargs) if self.name_of is not None else None
        under, given = self._lock_of(args, kwargs), self.arguments
        terms = settings.terms(clocks, name=name, isolation=given.isolation, under=under, timeout=given.timeout)
        if given.payload is not None:
            terms = dataclasses.replace(terms, payload=Payload.of(given.payload(*args, **kwargs)))
        return Tries(terms, given.tries, clocks, turn)

    def joins(self, args: tuple[Any, ...], terms: Callable[[object], Terms | None]) -> bool:
        """Whether a call is part of the unit that its caller passes in the unit's place."""
        given, found = self.arguments, terms(self.passed.given_in(args))
        if found is None:
            return False
        for field, value in (("name", given.name), ("under", given.under)):
            if value is not None:
                allowed = f"left out: the function has a `{field}`, so each call of it is a unit of its own"
                raise InvalidUnitRequest(given.unit_as, found.id, allowed)
        levels = list(Isolation)
        if levels.index(found.isolation) < levels.index(given.isolation):
            allowed = f"a unit whose isolation is {given.isolation} at least, as the function's; or left out"
            raise InvalidUnitRequest(given.unit_as, f"{found.id}, {found.isolation}", allowed)
        return True

    def _lock_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> HeldLock | None:
        if self.arguments.under is None:
            return None
        lock: HeldLock | None = self.arguments.under(*args, **kwargs)
        if lock is None:
            # Otherwise the unit would be committed without a lock.
            raise InvalidUnitRequest("under", lock, _UNDER)
        return lock
