"""One reading of the busy locks and the open units, with the verdict on each: what ``top`` and ``report`` show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from ticketlock import LockName, LockTable
from ticketlock.cli._advice import needs_you
from ticketlock.cli._settings import CommandSettings, units_table_option
from ticketlock.cli._show import ORDERS as ORDERS_OF_LISTS
from ticketlock.cli._show import Listed, in_detail, read_list
from ticketlock.cli._units import Desk, explaining
from ticketlock.cli._verdicts import Judged, is_free
from ticketlock.units import OpenUnit
from ticketlock.units._operators import open_units

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
        locks: the busy locks that were asked for, in the order that was asked for.
        units: the open units, the most urgent first; None without a units table.
        strange: how many rows of the units table no unit has written.
    """

    now_ms: int
    locks: list[Line]
    units: list[OpenUnit] | None
    strange: int


@dataclass
class FreeLocks:
    """Remembers since when each lock has been free for the same first waiter."""

    _since: dict[LockName, tuple[int, int, int]] = field(default_factory=dict)

    def judge(self, listed: Sequence[Listed]) -> list[Line]:
        """The verdicts on the locks of the next reading."""
        before, self._since = self._since, {}
        return [Line(each, each.judged(self._free_for_ms(each, before))) for each in listed]

    def _free_for_ms(self, listed: Listed, before: Mapping[LockName, tuple[int, int, int]]) -> int | None:
        name, front, first = listed.lock.lock, listed.front, listed.first
        if front is None or front.item is None or first is None or not is_free(front.item, first):
            return None
        now_ms = front.now.likely_ms
        seen = (front.item.fencing_token, first.ticket, now_ms)
        if name in before and before[name][:2] == seen[:2]:
            seen = before[name]
        self._since[name] = seen
        return now_ms - seen[2] or None


def _of_lock(order: Callable[[Listed], Any]) -> Callable[[Line], Any]:
    return lambda line: order(line.listed)


URGENT = "urgent"
ORDERS: Mapping[str, Callable[[Line], Any]] = {
    URGENT: lambda line: (not line.judged.is_stuck, line.listed.waited_since_ms),
    **{name: _of_lock(order) for name, order in ORDERS_OF_LISTS.items()},
}
"""By name, how locks are sorted: ``urgent`` has the stuck ones first, and of those the one with the oldest waiter."""


def _urgency(unit: OpenUnit) -> tuple[bool, bool, float]:
    return not needs_you(unit), unit.ended_for_s is not None, -unit.age_s


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
    free: FreeLocks = field(default_factory=FreeLocks)

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
        lines = self._asked(self.free.judge(read_list(self.table, self.namespace, self.prefix, busy=True)))
        first = in_detail(self.table, [line.listed.lock for line in lines[:whole]], to_the_end=True)
        lines = [*self._asked([Line(each, each.judged()) for each in first]), *lines[whole:]]
        units, strange = self._read_units()
        return TableReading(self.table.now().likely_ms, lines, units, strange)

    def _asked(self, lines: Sequence[Line]) -> list[Line]:
        """Those that are of interest, in the order that was asked for."""
        return sorted((each for each in lines if each.judged.is_stuck or not self.stuck), key=ORDERS[self.order])

    def _read_units(self) -> tuple[list[OpenUnit] | None, int]:
        if self.desk is None:
            return None, 0
        strange: list[object] = []
        with explaining(self.settings):
            units = self.desk.perform(open_units(self.desk.records, strange.append))
        return sorted((each for each in units if needs_you(each) or not self.stuck), key=_urgency), len(strange)


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
