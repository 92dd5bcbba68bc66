"""One reading of the busy locks and the open units, with the verdict on each: what reports show."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import Any

from ticketlock.errors import TableRefused, UnsupportedFormat
from ticketlock.locks import Holder, LockState, LockSummary, LockTable, Row, first_in_line, reads
from ticketlock.report._advice import Advice, advice_on
from ticketlock.report._units import ListedUnit, UnitsReader
from ticketlock.report._verdicts import Judged, NextStep, TimedVerdict, judge
from ticketlock.wire import Item, at_once

ITEMS_A_PAGE = 1_000
# Reading one lock takes one request.
_READS_AT_ONCE = 16


@dataclass(frozen=True)
class Listed:
    """One lock of a list.

    Attributes:
        lock: what the Scan of the table has returned of it.
        front: its holders, and its queue as far as the first waiter; None if this caller may not read it, or if there
            is neither a holder nor a waiter, or it is in a newer format.
        is_newer: whether a newer version has written it, so that this one cannot read it.
        is_whole: whether its queue was read to the end.
    """

    lock: LockSummary
    front: LockState | None
    is_newer: bool = False
    is_whole: bool = False

    @property
    def holders(self) -> Sequence[Holder]:
        """The holders, as far as they were read."""
        return () if self.front is None or self.front.item is None else self.front.item.holders

    @property
    def now_ms(self) -> int:
        """When it was read in detail, in table time; 0 if it was not."""
        return 0 if self.front is None else self.front.now.likely_ms

    @property
    def first(self) -> Row | None:
        """The first in line."""
        return None if self.front is None else first_in_line(self.front)

    @property
    def waiting(self) -> int:
        """How many wait, as the lock item counts them; without the crashed ones before the first in line, and 0 if
        there is no other. A count may outlast its waiter.
        """
        if self.front is None or self.front.item is None:
            return self.lock.waiting
        if (first := self.first) is None:
            return 0
        item = self.front.item
        crashed = sum(item.void_up_to < row.ticket < first.ticket for row in self.front.rows)
        return max(1, item.waiting - crashed)

    @cached_property
    def judged(self) -> Judged:
        """The verdict on it; see ``judge``."""
        if self.is_newer:
            return Judged(TimedVerdict("newer format"), next=NextStep.UPGRADE)
        if self.front is None and not self.lock.held and not self.lock.waiting:
            return Judged(TimedVerdict("free" if self.lock.permits else "closed"))
        return judge(self.front)

    @property
    def advice(self) -> Advice | None:
        """What to do about it; None for nothing."""
        if self.is_newer:
            return Advice("a newer version of ticketlock has written it: upgrade this one to see it")
        return advice_on(self.lock.lock, self.front)

    @property
    def held_since_ms(self) -> float:
        """Since when it is held, by table time; infinity if there is no holder."""
        return min((holder.since_ms for holder in self.holders), default=math.inf)

    @property
    def lease_until_ms(self) -> float:
        """When the first lease of a holder ends, by table time; infinity if there is no holder."""
        return min((holder.lease_until_ms for holder in self.holders), default=math.inf)

    @property
    def waited_since_ms(self) -> float:
        """Since when the first in line has waited, by table time; infinity if there is no waiter."""
        return math.inf if self.first is None else self.first.created_at_ms


URGENT = "urgent"
ORDERS: Mapping[str, Callable[[Listed], Any]] = {
    URGENT: lambda each: (not each.judged.is_stuck, each.waited_since_ms),
    "name": lambda each: each.lock.lock.entity,
    "held": lambda each: each.held_since_ms,
    "waiting": lambda each: -each.waiting,
    "oldest": lambda each: each.waited_since_ms,
    "lease": lambda each: each.lease_until_ms,
}
"""By name, how locks are sorted: ``urgent`` has the stuck ones first, and of those the one with the oldest waiter."""


def read_list(table: LockTable, namespace: str | None, prefix: str, *, busy: bool) -> list[Listed]:
    """The locks of a namespace, or of all, whose entities begin with a prefix, by name.

    Args:
        busy: only those with a holder, or a waiter that has not crashed.
    """
    found, _ = find_locks(table, namespace, prefix, busy=busy)
    return [each for each in in_detail(table, found) if not busy or each.lock.held or each.waiting]


def find_locks(
    table: LockTable, namespace: str | None, prefix: str, *, busy: bool, pages: int | None = None
) -> tuple[list[LockSummary], bool]:
    """What the Scan of the table returns of such locks, by name; and whether it has read the whole table.

    Args:
        pages: how many pages of ``ITEMS_A_PAGE`` items, of locks and others, it reads at most; None for all.
    """
    # In a table with other keys, which refuses to tell the time, a Scan would just find nothing.
    table.now()
    found: list[LockSummary] = []
    after: Item | None = None
    # The last one tells whether there is more.
    for limit in repeat(None) if pages is None else (*repeat(ITEMS_A_PAGE, pages), 1):
        reply = table.perform(reads.list_page(after, busy=busy, limit=limit))
        found += (LockSummary.parse(item) for item in reply.items if item is not None)
        after = reply.last_key
        if after is None:
            break
    asked = [each for each in found if namespace in (None, each.lock.namespace) and each.lock.entity.startswith(prefix)]
    return sorted(asked, key=lambda each: (each.lock.entity, each.lock.namespace)), after is None


def in_detail(table: LockTable, locks: Sequence[LockSummary], *, rows: int | None = 1) -> list[Listed]:
    """Locks with their holders and their queues.

    Args:
        rows: how many rows of each queue to read at first, and then on up to the first waiter that has not crashed;
            None for whole queues.
    """

    def read(lock: LockSummary) -> Listed:
        if not lock.held and not lock.waiting:
            return Listed(lock, None)
        try:
            front = table.inspect(lock.lock, rows=rows)
        except TableRefused:
            # A caller that may list all locks may lack the permission to read some.
            return Listed(lock, None)
        except UnsupportedFormat:
            return Listed(lock, None, is_newer=True)
        return Listed(lock, front, is_whole=rows is None or len(front.rows) < rows)

    return at_once([partial(read, lock) for lock in locks], _READS_AT_ONCE)


@dataclass(frozen=True)
class TableReading:
    """What one reading of the tables has found.

    Attributes:
        now_ms: its time, by the table.
        locks: the busy locks, in the order that was asked for.
        units: the open units, the most urgent first; None without a units table.
        strange: how many rows of the units table no unit has written.
        stuck: whether only what is stuck is shown; the counts are those of all.
        unread: what the reading has left out, in sentences.
    """

    now_ms: int
    locks: list[Listed]
    units: list[ListedUnit] | None
    strange: int
    stuck: bool
    unread: Sequence[str] = ()

    @property
    def shown_locks(self) -> list[Listed]:
        """Those that were asked for."""
        return [each for each in self.locks if each.judged.is_stuck or not self.stuck]

    @property
    def shown_units(self) -> list[ListedUnit] | None:
        """Those that were asked for."""
        if self.units is None:
            return None
        return [each for each in self.units if each.needs_you or not self.stuck]


def _urgency(listed: ListedUnit) -> tuple[bool, bool, float]:
    return not listed.needs_you, listed.unit.ended_for_s is not None, -listed.unit.age_s


@dataclass(frozen=True, kw_only=True)
class AtMost:
    """How much a reading reads at most, so that it takes seconds however large the tables are.

    Attributes:
        pages: of the lock table, each of 1,000 items.
        locks: busy ones, those with the most waiters first.
        rows: of each queue, and on up to the first waiter that has not crashed.
        units: open ones, without their items.
    """

    pages: int = 20
    locks: int = 200
    rows: int = 100
    units: int = 200


@dataclass(frozen=True, kw_only=True)
class TableReader:
    """Reads the tables.

    Attributes:
        table: the lock table; None for a report of units alone.
        units: reads the units table; None without one.
        namespace: only its locks; None for all.
        prefix: only locks whose entities begin with it.
        order: a key of ``ORDERS``.
        stuck: whether only what is stuck is of interest.
        at_most: how much it reads; None for everything.
    """

    table: LockTable | None
    units: UnitsReader | None
    namespace: str | None = None
    prefix: str = ""
    order: str = URGENT
    stuck: bool = False
    at_most: AtMost | None = None

    @property
    def name(self) -> str:
        """The name of the lock table, or without one of the units table."""
        by = self.table or self.units
        return "" if by is None else by.table_name

    @property
    def units_name(self) -> str | None:
        """The name of the units table."""
        return None if self.units is None else self.units.table_name

    def read(self, *, whole: int = 0) -> TableReading:
        """Take a reading.

        Args:
            whole: unless ``at_most`` says how much is read, of how many locks, the first in the order, the whole queue
                is read; of the others only the first in line.
        """
        unread: list[str] = []
        locks: list[Listed] = []
        if self.table is not None:
            locks = self._read_some(self.table, self.at_most, unread) if self.at_most else self._read(self.table, whole)
        units, strange = self._read_units(unread)
        by = self.table or self.units
        return TableReading(by.now().likely_ms if by else 0, locks, units, strange, self.stuck, unread)

    def _read(self, table: LockTable, whole: int) -> list[Listed]:
        locks = self._in_order(read_list(table, self.namespace, self.prefix, busy=True))
        if self.stuck:
            whole = min(whole, sum(each.judged.is_stuck for each in locks))
        first = in_detail(table, [each.lock for each in locks[:whole]], rows=None)
        return [*self._in_order(first), *locks[whole:]]

    def _read_some(self, table: LockTable, most: AtMost, unread: list[str]) -> list[Listed]:
        busy, are_all = find_locks(table, self.namespace, self.prefix, busy=True, pages=most.pages)
        if not are_all:
            unread.append(f"of the table's items at most {most.pages * ITEMS_A_PAGE:,} were read, and it has more")
        if len(busy) > most.locks:
            unread.append(f"of {len(busy):,} busy locks only the {most.locks:,} with the most waiters were read")
            busy = sorted(busy, key=lambda lock: -lock.waiting)[: most.locks]
        listed = in_detail(table, busy, rows=most.rows + 1)
        if any(each.front is not None and not each.is_whole for each in listed):
            unread.append(f"of long queues only the first {most.rows:,} rows were read")
        return self._in_order(each for each in listed if each.lock.held or each.waiting)

    def _in_order(self, locks: Iterable[Listed]) -> list[Listed]:
        return sorted(locks, key=ORDERS[self.order])

    def _read_units(self, unread: list[str]) -> tuple[list[ListedUnit] | None, int]:
        if self.units is None:
            return None, 0
        strange: list[object] = []
        most = None if self.at_most is None else self.at_most.units
        units = self.units.read_open(strange.append, most)
        if most is not None and len(units) > most:
            unread.append(f"of the open units only {most:,} were read")
        return sorted(units[:most], key=_urgency), len(strange)
