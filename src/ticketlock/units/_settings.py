"""The settings of units: checked once, for threads and tasks."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ticketlock._checks import duration_ms, text, whole_number
from ticketlock.errors import InvalidLockRequest, InvalidUnitRequest
from ticketlock.units._marks import Marks
from ticketlock.units._operators import NAME_BYTES, Outcome, outcome_of_name, outcome_of_unit, roll_back
from ticketlock.units._reading import LEVELS, READ_LOCK, SERIALIZABLE, Isolation
from ticketlock.units._record import UnitRecords, new_id
from ticketlock.units._saved import Resumed, SaveOptions, end_owner, resume
from ticketlock.units._sweeping import MOST_PARTS, Swept, sweep
from ticketlock.units._tables import Tables
from ticketlock.units._terms import SavedStep, Terms
from ticketlock.wire._driver import Clocks
from ticketlock.wire._requests import ForkingSteps


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

_log = logging.getLogger("ticketlock")


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
        self, clocks: Clocks, *, name: Any, isolation: Any, under: Any, timeout: Any, engine: Any = None
    ) -> Terms:
        """The terms of a new unit.

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
        return Terms(new_id(born_ms), born_ms, timeout_ms, isolation, name, under, engine)

    def terms_outside(self, clocks: Clocks, isolation: Any) -> Terms:
        """Those of a read outside units, which has no end that would take marks off.

        Raises:
            InvalidUnitRequest: it would mark what it reads; or that is no level.
        """
        if isolation is READ_LOCK:
            raise InvalidUnitRequest("isolation", isolation, "another level outside a unit")
        return self.terms(clocks, name=None, isolation=isolation, under=None, timeout=None)

    def sweep(self, clocks: Clocks, parts: Any, timeout: Any) -> ForkingSteps[Swept]:
        """Sweep the units table.

        Raises:
            InvalidUnitRequest: names the field.
        """
        parts = whole_number("parts", parts, 1, MOST_PARTS, InvalidUnitRequest)
        until_ms = None if timeout is None else clocks.read().local_ms + _timeout_ms(timeout)
        return sweep(UnitRecords(self.units_table), self.marks, parts=parts, until_ms=until_ms)

    def resume(self, clocks: Clocks, tables: Tables, unit: Any, step: Any) -> ForkingSteps[Resumed]:
        """Resume a saved unit, under the id of a new coordinator.

        Raises:
            InvalidUnitRequest: ``unit`` is not the id of a unit that was saved, or ``step`` can be no step.
        """
        own = self.terms(clocks, name=None, isolation=SERIALIZABLE, under=None, timeout=None)
        if step is not None:
            own = replace(own, step=SavedStep(text("step", step, NAME_BYTES, InvalidUnitRequest)))
        return resume(unit, own, self.units_table, self.marks, tables)

    def roll_back(self, unit: Any) -> ForkingSteps[Outcome]:
        """Roll back a unit that is pending, and return its outcome.

        Raises:
            InvalidUnitRequest: ``unit`` is no id.
        """
        settled = yield from roll_back(UnitRecords(self.units_table), self.marks, unit)
        if settled.failed is not None:
            _log.warning("the unit %s has ended, and some of its marks are not removed yet: %s", unit, settled.failed)
        return settled.outcome

    def end_owner(self, owner: Any) -> ForkingSteps[list[str]]:
        """Roll back the units that were saved under an owner, and refuse later saves.

        Raises:
            InvalidUnitRequest: it can be none.
        """
        return end_owner(UnitRecords(self.units_table), text("owner", owner, NAME_BYTES, InvalidUnitRequest))

    def outcome(self, clocks: Clocks, name: Any, unit: Any) -> ForkingSteps[Outcome]:
        """The outcome of a name, or of a unit.

        Raises:
            InvalidUnitRequest: neither is given, or both are.
        """
        if (name is None) == (unit is None):
            raise InvalidUnitRequest("name", name, "a name or a unit: one of the two")
        if name is not None:
            return outcome_of_name(self.units_table, name, new_id(clocks.read().wall_ms))
        return outcome_of_unit(self.units_table, unit)


def keeping(keep_for: Any, owner: Any) -> SaveOptions:
    """How a unit is to be saved.

    Raises:
        InvalidUnitRequest: names the field.
    """
    keep_ms = duration_ms("keep_for", keep_for, _SHORTEST_KEEP_MS, _LONGEST_KEEP_MS, InvalidUnitRequest)
    return SaveOptions(keep_ms, None if owner is None else text("owner", owner, NAME_BYTES, InvalidUnitRequest))


def _timeout_ms(given: Any) -> int:
    return duration_ms("timeout", given, 0, _LONGEST_TIMEOUT_MS, InvalidUnitRequest)
