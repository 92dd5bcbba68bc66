"""The settings of units: checked once, for threads and tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import duration_ms, text
from ticketlock.errors import InvalidLockRequest, InvalidUnitRequest
from ticketlock.units._marks import Marks
from ticketlock.units._reading import LEVELS, READ_LOCK, SERIALIZABLE, Isolation
from ticketlock.units._record import new_id
from ticketlock.units._terms import NAME_BYTES, SavedStep, SaveOptions, Terms, check_owner
from ticketlock.wire._driver import Clocks


@contextmanager
def as_a_unit_request(**given: object) -> Iterator[None]:
    """Within the block a setting may be refused.

    Args:
        given: the settings, by name.

    Raises:
        InvalidUnitRequest: in place of ``InvalidLockRequest``.
    """
    try:
        yield
    except InvalidLockRequest as error:
        raise InvalidUnitRequest(error.field, given.get(error.field), error.allowed) from error


_LONGEST_TIMEOUT_MS = 900_000
_SHORTEST_KEEP_MS = 1_000
_LONGEST_KEEP_MS = 366 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class UnitsSettings:
    """The arguments of a ``Units``.

    Attributes:
        units_table: the name of the units table.
        marks: the names of our attributes.
        timeout: of units that have no time-out of their own, in seconds.
    """

    units_table: str
    marks: Marks
    timeout: Any

    def __post_init__(self) -> None:
        _timeout_ms(self.timeout)

    def terms(
        self,
        clocks: Clocks,
        *,
        name: Any = None,
        isolation: Any = SERIALIZABLE,
        under: Any = None,
        timeout: Any = None,
        engine: Any = None,
        step: Any = None,
    ) -> Terms:
        """The terms of a new unit, or of a new coordinator of a saved one.

        Raises:
            InvalidUnitRequest: names the field.
        """
        if name is not None:
            text("name", name, NAME_BYTES, InvalidUnitRequest)
        if not isinstance(isolation, Isolation):
            raise InvalidUnitRequest("isolation", isolation, LEVELS)
        if under is not None and not callable(getattr(under, "condition_check", None)):
            raise InvalidUnitRequest("under", under, "a held lock: a Lease or a Fence of ticketlock, for example")
        if engine not in (None, "native", "marked"):
            raise InvalidUnitRequest("engine", engine, '"native", "marked", or None')
        if engine == "native" and isolation is READ_LOCK:
            raise InvalidUnitRequest("engine", engine, '"marked" or None with READ_LOCK')
        timeout_ms = _timeout_ms(self.timeout if timeout is None else timeout)
        born_ms = clocks.read().wall_ms
        return Terms(
            unit=new_id(born_ms),
            born_ms=born_ms,
            timeout_ms=timeout_ms,
            isolation=isolation,
            name=name,
            under=under,
            engine=engine,
            step=None if step is None else SavedStep(text("step", step, NAME_BYTES, InvalidUnitRequest)),
        )

    def terms_outside(self, clocks: Clocks, isolation: Any) -> Terms:
        """Those of a read outside units, which has no end that would take marks off.

        Raises:
            InvalidUnitRequest: it would mark what it reads; or that is no level.
        """
        if isolation is READ_LOCK:
            raise InvalidUnitRequest("isolation", isolation, "another level outside a unit")
        return self.terms(clocks, isolation=isolation)

    def until_ms(self, clocks: Clocks, timeout: Any) -> int | None:
        """When a time-out ends, by the local clock; None for none.

        Raises:
            InvalidUnitRequest: it is no such time.
        """
        return None if timeout is None else clocks.read().local_ms + _timeout_ms(timeout)


def keeping(keep_for: Any, owner: Any) -> SaveOptions:
    """How a unit is to be saved.

    Raises:
        InvalidUnitRequest: names the field.
    """
    keep_ms = duration_ms("keep_for", keep_for, _SHORTEST_KEEP_MS, _LONGEST_KEEP_MS, InvalidUnitRequest)
    return SaveOptions(keep_ms, None if owner is None else check_owner(owner))


def _timeout_ms(given: Any) -> int:
    return duration_ms("timeout", given, 0, _LONGEST_TIMEOUT_MS, InvalidUnitRequest)
