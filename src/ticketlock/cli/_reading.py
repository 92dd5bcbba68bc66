"""One reading of the busy locks and the open units, with the verdict on each: what ``top`` and ``report`` show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ticketlock import LockTable
from ticketlock.cli._advice import needs_you
from ticketlock.cli._settings import CommandSettings, units_table_option
from ticketlock.cli._show import ORDERS as ORDERS_OF_LISTS
from ticketlock.cli._show import Listed, in_detail, read_list
from ticketlock.cli._units import Desk, explaining
from ticketlock.cli._units_reports import ListedUnit
from ticketlock.cli._verdicts import Judged

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Line:
    """A busy lock, and the verdict on it."""

    listed: Listed
    judged: Judged


@dataclass(frozen=True)
class TableReading:
    """What one reading of the tables has found.

    Attributes:
        now_ms: its time, by the table.
        locks: the busy locks, in the order that was asked for.
        units: the open units, the most urgent first; None without a units table.
        strange: how many rows of the units table no unit has written.
        stuck: whether only what is stuck is shown; the counts are those of all.
    """

    now_ms: int
    locks: list[Line]
    units: list[ListedUnit] | None
    strange: int
    stuck: bool

    @property
    def shown_locks(self) -> list[Line]:
        """Those that were asked for."""
        return [each for each in self.locks if each.judged.is_stuck or not self.stuck]

    @property
    def shown_units(self) -> list[ListedUnit] | None:
        """Those that were asked for."""
        if self.units is None:
            return None
        return [each for each in self.units if needs_you(each) or not self.stuck]


def _of_lock(order: Callable[[Listed], Any]) -> Callable[[Line], Any]:
    return lambda line: order(line.listed)


URGENT = "urgent"
ORDERS: Mapping[str, Callable[[Line], Any]] = {
    URGENT: lambda line: (not line.judged.is_stuck, line.listed.waited_since_ms),
    **{name: _of_lock(order) for name, order in ORDERS_OF_LISTS.items()},
}
"""By name, how locks are sorted: ``urgent`` has the stuck ones first, and of those the one with the oldest waiter."""


def _urgency(listed: ListedUnit) -> tuple[bool, bool, float]:
    return not needs_you(listed), listed.unit.ended_for_s is not None, -listed.unit.age_s


@dataclass(frozen=True, kw_only=True)
class TableReader:
    """Reads the tables.

    Attributes:
        desk: of the units table; None without one.
        namespace: only its locks; None for all.
        prefix: only locks whose entities begin with it.
        order: a key of ``ORDERS``.
        stuck: whether only what is stuck is of interest.
    """

    settings: CommandSettings
    table: LockTable
    desk: Desk | None
    namespace: str | None
    prefix: str
    order: str
    stuck: bool

    @classmethod
    def of(
        cls, settings: CommandSettings, *, namespace: str | None, prefix: str, stuck: bool, order: str = URGENT
    ) -> "TableReader":
        """A reader with the values of ``reading_options``."""
        return cls(
            settings=settings,
            table=settings.lock_table(),
            desk=Desk(settings) if settings.units_table else None,
            namespace=namespace,
            prefix=prefix,
            order=order,
            stuck=stuck,
        )

    def read(self, *, whole: int = 0) -> TableReading:
        """Take a reading.

        Args:
            whole: of how many locks, the first in the order, the whole queue is read; of the others only the first in
                line.
        """
        lines = self._judged(read_list(self.table, self.namespace, self.prefix, busy=True))
        if self.stuck:
            whole = min(whole, sum(line.judged.is_stuck for line in lines))
        first = in_detail(self.table, [line.listed.lock for line in lines[:whole]], to_the_end=True)
        lines = [*self._judged(first), *lines[whole:]]
        units, strange = self._read_units()
        return TableReading(self.table.now().likely_ms, lines, units, strange, self.stuck)

    def _judged(self, listed: Sequence[Listed]) -> list[Line]:
        """Locks with the verdicts on them, in the order that was asked for."""
        return sorted((Line(each, each.judged()) for each in listed), key=ORDERS[self.order])

    def _read_units(self) -> tuple[list[ListedUnit] | None, int]:
        if self.desk is None:
            return None, 0
        strange: list[object] = []
        with explaining(self.settings):
            units = self.desk.read_open(strange.append)
        return sorted(units, key=_urgency), len(strange)


def reading_options(command: F) -> F:
    """Add the options that say what is read."""
    for option in (
        units_table_option,
        click.option("--stuck", is_flag=True, help="Only the locks and units that need you, or a lease to end."),
        click.option("--prefix", default="", help="Only locks whose entity begins with this text."),
        click.option("--namespace", help="Only the locks of this namespace."),
    ):
        command = option(command)
    return command
