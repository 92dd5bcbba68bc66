"""The promises, each as a function: what has to hold after every step, whoever goes next and whatever fails.

They look at the table and at what holders believe from outside, with the true time, which no process knows.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ticketlock._items import Item, LockItem, Row, is_lock_item


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


def fencing(before: LockItem | None, after: LockItem | None) -> None:
    """Every grant's token is greater than that of every earlier grant; renewals do not change it."""
    if before is None or after is None:
        return
    if after.fencing_token < before.fencing_token:
        raise Broken(f"fencing: the token fell from {before.fencing_token} to {after.fencing_token}")
    old = {holder.owner: holder.fencing_token for holder in before.holders}
    for holder in after.holders:
        if holder.owner in old:
            if holder.fencing_token != old[holder.owner]:
                raise Broken(f"fencing: the token of {holder.owner} was changed")
        elif holder.fencing_token <= before.fencing_token:
            raise Broken(f"fencing: {holder.owner} was granted {holder.fencing_token} after {before.fencing_token}")


def counts(item: LockItem | None, raw: Item | None) -> None:
    """The counts in the lock item are those of its holders; the number of waiters is never below 0."""
    if item is None or raw is None:
        return
    shared = sum(holder.shared for holder in item.holders)
    if item.held != len(item.holders) or int(raw["heldShared"]["N"]) != shared:
        raise Broken(f"counts: {item.held} held, {raw['heldShared']['N']} shared; holders: {item.holders}")
    if item.waiting < 0:
        raise Broken(f"counts: {item.waiting} waiting")


def limit(before: LockItem | None, after: LockItem) -> None:
    """A grant finds room: fewer holders than permits, or none but those who share the lock as it does."""
    old = {holder.owner for holder in before.holders} if before is not None else set()
    permits = before.permits if before is not None else after.permits
    for holder in after.holders:
        if holder.owner in old:
            continue
        others = [each for each in after.holders if each.owner != holder.owner]
        if any(each.shared != holder.shared for each in others) or (not holder.shared and len(others) >= permits):
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


def nothing_left(items: Sequence[Item], now_ms: float) -> None:
    """Once everybody has left, nobody holds and nobody waits."""
    for item in items:
        if is_lock_item(item):
            held = [holder for holder in LockItem.parse(item).holders if holder.lease_until_ms >= now_ms]
            if held:
                raise Broken(f"nothing left: {held}")
        elif Row.parse(item).lease_until_ms >= now_ms:
            raise Broken(f"nothing left: {Row.parse(item)}")
