"""The promises, each as a function: what has to hold after every step, whoever goes next and whatever fails.

They look at the table and at what holders believe from outside, with the true time, which no process knows.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ticketlock._items import Item, LockItem, Row, is_lock_item
from ticketlock._queue import EXPIRY_MARGIN_MS

LEASE_MS = 20_000
UNCERTAINTY_MS = 3_000
"""How far either bound of a machine's table time is from the truth at most: the Date's resolution, a server, drift."""
REQUESTS_MS = 5_000
"""Room for the requests on the way: the scheduler lets time pass between any two."""
MOST_IDLE_MS = LEASE_MS + EXPIRY_MARGIN_MS + 2 * UNCERTAINTY_MS + LEASE_MS / 2 + REQUESTS_MS


class Broken(AssertionError):
    """A promise is broken; begins with its name."""


@dataclass(slots=True)
class Belief:
    """What one holder believes: that it holds the lock until a moment of true time.

    Attributes:
        until_ms: the end of its deadline, by whichever of its clocks comes first.
    """

    owner: str
    shared: bool
    fencing_token: int
    until_ms: float
    over: bool = False


def exclusion(beliefs: Iterable[Belief], now_ms: float, permits: int) -> None:
    """At every moment at most ``permits`` holders believe that they hold the lock, or any number who share it."""
    holding = [belief for belief in beliefs if not belief.over and belief.until_ms > now_ms]
    alone = sum(not belief.shared for belief in holding)
    if alone > permits or (alone and alone < len(holding)):
        raise Broken(f"exclusion: {[(each.owner, each.fencing_token) for each in holding]} hold the lock together")


def fencing(before: LockItem | None, after: LockItem | None, highest: int) -> None:
    """Every grant's token is greater than that of every earlier grant; renewals do not change it.

    Args:
        highest: the greatest token granted so far, also by an item that was deleted since.
    """
    if after is None:
        return
    old = {holder.owner: holder.fencing_token for holder in before.holders} if before is not None else {}
    for holder in after.holders:
        if holder.owner in old:
            if holder.fencing_token != old[holder.owner]:
                raise Broken(f"fencing: the token of {holder.owner} was changed")
        elif holder.fencing_token <= highest:
            raise Broken(f"fencing: {holder.owner} was granted {holder.fencing_token} after {highest}")
    if after.fencing_token < highest:
        raise Broken(f"fencing: the token fell from {highest} to {after.fencing_token}")


def counts(item: LockItem | None, raw: Item | None, standing: Collection[Row] = ()) -> None:
    """The counts in the lock item are those of its holders, and no lower than that of those who wait.

    Args:
        item, raw: the lock item, read and as it stands.
        standing: the rows of those who still wait.
    """
    if item is None or raw is None:
        return
    shared = sum(holder.shared for holder in item.holders)
    if item.held != len(item.holders) or int(raw["heldShared"]["N"]) != shared:
        raise Broken(f"counts: {item.held} held, {raw['heldShared']['N']} shared; holders: {item.holders}")
    waiting = [row.ticket for row in standing if row.ticket > item.void_up_to]
    if item.waiting < len(waiting):
        raise Broken(f"counts: {item.waiting} waiting, and {waiting} stand in the queue")


def leases_grow(
    before: LockItem | None, after: LockItem | None, rows: Iterable[Row], rows_after: Mapping[int, Row]
) -> None:
    """Whatever is asked of them late or twice: the lease of a grant, and that of a place, never becomes shorter."""
    old = {holder.fencing_token: holder for holder in before.holders} if before is not None else {}
    for holder in after.holders if after is not None else ():
        if holder.fencing_token in old and holder.lease_until_ms < old[holder.fencing_token].lease_until_ms:
            raise Broken(f"leases grow: that of {holder.owner} was made shorter")
    for row in rows:
        if row.ticket in rows_after and rows_after[row.ticket].lease_until_ms < row.lease_until_ms:
            raise Broken(f"leases grow: that of the place of {row.owner} was made shorter")


def no_eviction(item: LockItem | None, gone: Iterable[Row], now_ms: float, *, by: str) -> None:
    """Nobody takes a place from the queue that is another's, and whose lease runs.

    Args:
        item: the lock item afterwards.
        gone: the rows that went, of those who still waited.
        by: whose request it was.
    """
    for row in gone:
        is_void = item is None or row.ticket <= item.void_up_to
        if row.lease_until_ms >= now_ms and not is_void and not row.owner.startswith(by + "/"):
            raise Broken(f"no eviction: {by} took the place of {row.owner} away, ticket {row.ticket}")


def limit(before: LockItem | None, after: LockItem) -> None:
    """A grant finds room: fewer holders than permits, or none but those who share the lock as it does."""
    old = {holder.owner for holder in before.holders} if before is not None else set()
    permits = before.permits if before is not None else after.permits
    for holder in after.holders:
        if holder.owner in old:
            continue
        others = [each for each in after.holders if each.owner != holder.owner]
        is_full = permits == 0 or (not holder.shared and len(others) >= permits)
        if is_full or any(each.shared != holder.shared for each in others):
            raise Broken(f"limit: {holder.owner} was granted beside {[each.owner for each in others]}")


@dataclass(frozen=True, slots=True)
class Standing:
    """A row that stands in the queue, and since which step."""

    row: Row
    since: int


def no_overtaking(
    granted: Row | None,
    before: LockItem | None,
    standing: Collection[Standing],
    looked: int,
    now_ms: float,
    *,
    shared: bool,
    permits: int,
    owner: str,
) -> None:
    """A grant passes nobody whose live row stood in the queue when its owner looked, but those who fit in beside it.

    Args:
        granted: the row that became the grant; None of a grant without one.
        before: the lock item before the grant.
        standing: the rows before it.
        looked: the step of the look that the grant rests on.
    """
    passed = [
        each.row
        for each in standing
        if each.since < looked
        and each.row.owner != owner
        and each.row.lease_until_ms >= now_ms
        and (before is None or each.row.ticket > before.void_up_to)
        and (granted is None or each.row.ticket < granted.ticket)
        and (before is None or before.holder(each.row.owner) is None)
    ]
    if not passed:
        return
    live = [h for h in (before.holders if before is not None else ()) if h.lease_until_ms >= now_ms]
    room = (100 if shared else permits) - len(live)
    if any(row.shared != shared for row in passed) or len(passed) >= room:
        raise Broken(f"no overtaking: {owner} passed {[(row.owner, row.ticket) for row in passed]}")


def liveness(idle_ms: float) -> None:
    """While somebody waits and nothing goes wrong, the lock is not left unused for longer than can be computed.

    Whoever held it has died at the beginning of that time: its lease has to end, and to be seen to have ended; then
    the first in line looks, which it does at half its own lease at the latest.
    """
    if idle_ms > MOST_IDLE_MS:
        raise Broken(f"liveness: somebody waits, and for {idle_ms:.0f} ms nobody has held the lock")


def record_wait(waited_ms: float, record_wait_ms: int) -> None:
    """Whoever does not get the lock within its record wait is told so then, one look later at most."""
    if waited_ms > record_wait_ms + LEASE_MS / 2 + REQUESTS_MS:
        raise Broken(f"liveness: a record wait of {record_wait_ms} ms ended after {waited_ms:.0f} ms")


def nothing_left(items: Sequence[Item], now_ms: float) -> None:
    """Once everybody has left, nobody holds and nobody waits.

    Args:
        now_ms: the true time; leases that are over by then hold nothing.
    """
    for item in items:
        if is_lock_item(item):
            held = [holder for holder in LockItem.parse(item).holders if holder.lease_until_ms >= now_ms]
            if held:
                raise Broken(f"nothing left: {held}")
        elif Row.parse(item).lease_until_ms >= now_ms:
            raise Broken(f"nothing left: {Row.parse(item)}")
