"""The table as seen from outside after each request."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kit.invariants import Standing
from property.clocks import TrueTime

from ticketlock import LockName
from ticketlock.locks._items import Holder, LockItem, Row, is_lock_item
from ticketlock.testing import MemoryDynamoDB
from ticketlock.wire._actions import Item

TABLE = "locks"


@dataclass
class Seen:
    """The items of one lock at the last read.

    Attributes:
        raw, item: the lock item, as stored and as parsed; None if there is none.
        rows: the queue, by ticket.
        ended: the grants that have ended since the read before.
        came: how many grants were added since.
    """

    time: TrueTime
    memory: MemoryDynamoDB
    lock: LockName
    raw: Item | None = None
    item: LockItem | None = None
    rows: Mapping[int, Standing] = field(default_factory=dict)
    ended: tuple[Holder, ...] = ()
    came: int = 0

    def __post_init__(self) -> None:
        self._known: dict[str, tuple[Item, Standing]] = {}

    def items(self) -> list[Item]:
        """The items themselves, not copies: the engine replaces items, and never changes one."""
        return list(self.memory._service.tables[TABLE].partition(self.lock.entity))

    def refreshes(self, step: int) -> None:
        """Read the items."""
        raw, rows = None, {}
        for item in self.items():
            if is_lock_item(item):
                raw = item
                continue
            known = self._known.get(item["sk"]["S"])
            if known is None or known[0] is not item:
                known = self._known[item["sk"]["S"]] = item, self._standing(Row.parse(item), step)
            rows[known[1].row.ticket] = known[1]
        self.rows, self.ended, self.came = rows, (), 0
        if raw is not self.raw:
            before = {holder.fencing_token: holder for holder in (self.item.holders if self.item is not None else ())}
            self.raw, self.item = raw, LockItem.parse(raw) if raw is not None else None
            after = {holder.fencing_token for holder in (self.item.holders if self.item is not None else ())}
            self.ended = tuple(holder for token, holder in before.items() if token not in after)
            self.came = len(after - before.keys())

    def _standing(self, row: Row, step: int) -> Standing:
        return Standing.now(row, self.rows.get(row.ticket), step, self.time.now_ms)
