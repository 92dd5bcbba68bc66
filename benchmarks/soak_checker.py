"""The invariant checker of a soak: sees every write, one lock at a time, and counts broken promises."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kit.invariants import Belief, Broken, Standing, counts, exclusion, fencing, limit, no_overtaking

from ticketlock.aio import Lease
from ticketlock.locks._items import LockItem, Row, is_lock_item
from ticketlock.wire._actions import Item


@dataclass
class Checker:
    """Checks one lock from outside, by the true time, which no machine knows.

    Attributes:
        permits: the limit of the lock's users.
        grants: how many it has seen.
        token: the last fencing token; it outlives the item.
        deepest: the most rows in the queue.
        held: the leases under which tasks are working.
        broken: the promises that were broken.
    """

    permits: int
    grants: int = 0
    token: int = 0
    deepest: int = 0
    held: set[Lease] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    _item: LockItem | None = None
    _rows: dict[int, Standing] = field(default_factory=dict)
    # Owners that no longer wait: a late copy may put a row of theirs into the queue.
    _served: set[str] = field(default_factory=set)
    _slips: set[int] = field(default_factory=set)

    def sees_holder(self, lease: Lease) -> None:
        """A task begins to work under a lease."""
        self.held.add(lease)
        holding = [
            Belief(each.owner, each.shared, each.fencing_token, self.permits) for each in self.held if each.is_held()
        ]
        with self._accused():
            exclusion(holding)

    def sees_write(self, items: Iterable[Item], step: int, read_step: int, now_ms: int, *, late: bool) -> None:
        """A write was applied.

        Args:
            items: of the lock, as they are now.
            step: a number that grows from request to request.
            read_step: the step of the read that the write depends on.
            now_ms: the time.
            late: whether it was a late copy, whose sender no longer waits.
        """
        before, rows_before, raw = self._item, self._rows, None
        self._item, self._rows = None, {}
        for item in items:
            if is_lock_item(item):
                raw, self._item = item, LockItem.parse(item)
            else:
                row = Row.parse(item)
                self._rows[row.ticket] = Standing.now(row, rows_before.get(row.ticket), step, now_ms)
        self.deepest = max(self.deepest, len(self._rows))
        left = _owners(rows_before.values()) - _owners(self._rows.values())
        old = {holder.owner for holder in before.holders} if before is not None else set()
        new = [each for each in self._item.holders if each.owner not in old] if self._item is not None else []
        served = self._served | left | {holder.owner for holder in new}
        with self._accused():
            counts(self._item, raw, [each.row for each in self._rows.values() if each.row.owner not in served])
        with self._accused():
            fencing(before, self._item, self.token)
        if self._item is not None:
            self.token = max(self.token, self._item.fencing_token)
            with self._accused():
                limit(before, self._item)
        for holder in new:
            self.grants += 1
            if late:
                continue
            with self._accused():
                no_overtaking(
                    next((each.row for each in rows_before.values() if each.row.owner == holder.owner), None),
                    before,
                    [each for each in rows_before.values() if each.row.owner not in self._served],
                    read_step,
                    now_ms,
                    shared=holder.shared,
                    permits=self.permits,
                    owner=holder.owner,
                    slips=self._slips,
                )
        self._served = served

    @contextmanager
    def _accused(self) -> Iterator[None]:
        try:
            yield
        except Broken as broken:
            self.broken.append(str(broken))


def _owners(rows: Collection[Standing]) -> set[str]:
    return {each.row.owner for each in rows}


@dataclass(frozen=True, slots=True)
class Left:
    """What a table contains.

    Attributes:
        locks: lock items.
        rows: queue rows.
        held, waiting: the sums of their counts.
        holders: those in the lock items.
    """

    locks: int
    rows: int
    held: int
    waiting: int
    holders: int

    @property
    def is_idle(self) -> bool:
        """Whether there is no holder, and all counts are zero."""
        return self.held == self.waiting == self.holders == 0


def left_in(items: Sequence[Item]) -> Left:
    """Count what a table contains."""
    locks = [LockItem.parse(item) for item in items if is_lock_item(item)]
    return Left(
        locks=len(locks),
        rows=len(items) - len(locks),
        held=sum(lock.held for lock in locks),
        waiting=sum(lock.waiting for lock in locks),
        holders=sum(len(lock.holders) for lock in locks),
    )
