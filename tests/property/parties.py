"""The participants as the invariant checker knows them, and the table as seen from outside after each request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from kit.invariants import UNCERTAINTY_MS, Belief, Broken, Standing
from property.clocks import Machine, TrueTime

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
                if "owner" not in item:
                    raise Broken(f"nothing left: a row of no one, {item}")
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


LOCAL_CLOCK_IS_OFF_MS = 200
"""How much a local clock gains in the longest record wait, rounded up."""


@dataclass
class Waiting:
    """An acquisition in progress.

    Attributes:
        by_table_time: whether the record wait is counted in table time, from the ticket on; else by the local clock,
            from the beginning on.
        poll_ms: the longest sleep of its pace when it is the first in line.
        unclear: how many of its machine's requests were unclear when it began.
        met_others: whether there was a holder or a waiter since it began.
    """

    owner: str
    since_ms: float
    record_wait_ms: int | None
    machine: Machine
    shared: bool
    by_table_time: bool
    poll_ms: float
    unclear: int
    met_others: bool = False

    @property
    def is_clear(self) -> bool:
        """Whether each of its requests was answered, and no copy of one may arrive later."""
        return self.machine.unclear == self.unclear

    @property
    def clock_is_off_ms(self) -> float:
        """By how much the clock of its record wait can be off at most, over all of it."""
        return 2 * UNCERTAINTY_MS if self.by_table_time else LOCAL_CLOCK_IS_OFF_MS


class Held(Protocol):
    """Answers whether a holder holds its lock."""

    def is_held(self) -> bool:
        """Whether the holder may rely on the lock at this moment."""
        ...


@dataclass(slots=True)
class Hold(Belief):
    """A holder's view, by its lease and the holder's own clocks. A wall clock may be set, and a local clock may stop.

    Attributes:
        since_ms: when its acquisition began.
        lease: the client's own.
        over_ms: when its holder crashed, or began to release the lock.
    """

    machine: Machine
    since_ms: float
    lease: Held
    over_ms: float = inf

    def is_believed(self) -> bool:
        """Whether it says now that the lock is held, and the promises apply to it.

        They do not if its machine was frozen with its local clock, and its wall clock set back: it cannot notice that.
        """
        no_clock_shows_it = min(self.machine.frozen_at_ms, self.machine.set_back_at_ms) >= self.since_ms
        return not self.is_over and not no_clock_shows_it and self.lease.is_held()

    @property
    def is_over(self) -> bool:
        """Whether its holder no longer holds the lock, in its own view."""
        return self.over_ms < inf

    def ends(self) -> None:
        """Its holder crashes, or begins to release the lock."""
        self.over_ms = min(self.over_ms, self.machine.time.now_ms)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a grant ended in the table.

    Attributes:
        step, at_ms: the step at which it ended, and the time.
        by: the machine that sent the request; empty for TTL, or for the deletion of the item.
        until_ms: the end of its lease then.
        is_taken: whether a later grant has removed it, since its lease had ended.
        is_freed: whether a machine has freed it that may: its owner, or an operator by force. Then the promises no
            longer cover what other processes with the same grant believe, except that they learn it in the end.
    """

    step: int
    at_ms: float
    by: str
    until_ms: int
    is_taken: bool
    is_freed: bool
