"""The promises, each as a function: what has to hold after every step, whoever goes next and whatever fails.

They look at the table and at what holders believe from outside, with the true time, which no process knows.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ticketlock.locks._items import Holder, LockItem, Row, is_lock_item
from ticketlock.locks._modes import MAX_HOLDERS
from ticketlock.wire._attributes import Item

LEASE_MS = 20_000
UNCERTAINTY_MS = 3_000
"""How far either bound of a machine's table time is from the truth at most: the Date's resolution, a server, drift."""
REQUESTS_MS = 5_000
"""Room for the requests on the way: the scheduler lets time pass between any two."""
MARGIN_MS = 1_000
SLEEPS_ROUND_MS = 20
"""What a sleep is longer by than was asked for: clocks that are slow, and the rounding of milliseconds."""
JOIN_DEADLINE_MS = 999
"""For so long a ticket's row may come, by a clock that is quick."""
LONGEST_LOOK_MS = LEASE_MS / 2 + REQUESTS_MS
QUIET_IDLE_MS = MARGIN_MS + 2 * UNCERTAINTY_MS + LONGEST_LOOK_MS
MOST_IDLE_MS = LEASE_MS + QUIET_IDLE_MS


class Broken(AssertionError):
    """A promise is broken; begins with its name."""


@dataclass(slots=True)
class Belief:
    """What one holder believes: that it holds the lock.

    Attributes:
        permits: the limit when it was granted the lock: a lower one takes nothing away from it.
    """

    owner: str
    shared: bool
    fencing_token: int
    permits: int


def exclusion(holding: Collection[Belief]) -> None:
    """At every moment at most ``permits`` holders believe that they hold the lock, or any number who share it.

    Args:
        holding: what they believe at this moment.
    """
    for belief in holding:
        # Several processes of one owner may have the same grant.
        others = {other.fencing_token: other for other in holding if other.fencing_token < belief.fencing_token}
        if room(others.values(), belief.permits, shared=belief.shared) <= 0:
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


def told(owner: str, fencing_token: int, granted: Collection[int]) -> None:
    """A holder is told a token that it was granted.

    Args:
        granted: all that were granted to it: a late copy of its request may be granted once more before it hears.
    """
    if fencing_token not in granted:
        raise Broken(f"fencing: {owner} was told {fencing_token}, and granted {sorted(granted)}")


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
        if row.lease_until_ms >= now_ms and not is_void and not is_of(row.owner, by):
            raise Broken(f"no eviction: {by} took the place of {row.owner} away, ticket {row.ticket}")


def no_holder_evicted(
    before: LockItem | None, after: LockItem | None, now_ms: float, *, by: str, meant: Collection[int] = ()
) -> None:
    """Nobody ends a grant that is another's, and whose lease runs.

    Args:
        meant: the tokens of those that somebody freed who may: by force, or in their owner's name.
    """
    kept = {holder.fencing_token for holder in after.holders} if after is not None else set()
    for holder in before.holders if before is not None else ():
        if holder.fencing_token in kept or holder.fencing_token in meant:
            continue
        if holder.lease_until_ms >= now_ms and not is_of(holder.owner, by):
            raise Broken(f"no eviction: {by} ended the grant {holder.fencing_token} of {holder.owner}")


def none_declared_void(
    before: LockItem | None,
    after: LockItem | None,
    standing: "Iterable[Standing]",
    looked: int,
    now_ms: float,
    *,
    by: str,
) -> None:
    """Nobody declares a place void whose lease runs, and that stood when it looked; or a ticket whose row may come yet.

    Args:
        standing: the rows before, of those who wait.
        looked: the step of the look that the request rests on.
    """
    if before is None or after is None or after.void_up_to == before.void_up_to:
        return
    if now_ms - before.ticket_at_ms < JOIN_DEADLINE_MS:
        raise Broken(f"no eviction: {by} declared a ticket void after {now_ms - before.ticket_at_ms:.0f} ms")
    for each in standing:
        is_declared = before.void_up_to < each.row.ticket <= after.void_up_to
        if is_declared and each.since < looked and each.row.lease_until_ms >= now_ms:
            raise Broken(f"no eviction: {by} declared the place of {each.row.owner} void, ticket {each.row.ticket}")


def limit_as_set(item: LockItem, limits: Collection[int]) -> None:
    """The limit is the one that was set last, or that is being set."""
    if item.permits not in limits:
        raise Broken(f"limit: it is {item.permits}, and was set to {sorted(limits)}")


def limit(before: LockItem | None, after: LockItem) -> None:
    """A grant finds room: fewer holders than permits, or none but those who share the lock as it does."""
    old = {holder.owner for holder in before.holders} if before is not None else set()
    permits = before.permits if before is not None else after.permits
    for holder in after.holders:
        if holder.owner in old:
            continue
        others = [each for each in after.holders if each.owner != holder.owner]
        if room(others, permits, shared=holder.shared) <= 0:
            raise Broken(f"limit: {holder.owner} was granted beside {[each.owner for each in others]}")


def room(holders: "Collection[Holder] | Collection[Belief]", permits: int, *, shared: bool) -> int:
    """How many more may hold the lock beside these, of those who share it or of those who do not."""
    if any(holder.shared != shared for holder in holders):
        return 0
    return (MAX_HOLDERS if shared and permits > 0 else permits) - len(holders)


def is_of(owner: str, machine: str) -> bool:
    """Whether it is the owner of one of a machine's acquisitions."""
    return owner.startswith(machine + "/")


@dataclass(frozen=True, slots=True)
class Standing:
    """A row that stands in the queue.

    Attributes:
        since: the step at which it was put.
        alive_since: that, or the step at which its owner extended its lease after it had been over: for whoever looked
            before, it was dead.
    """

    row: Row
    since: int
    alive_since: int

    @classmethod
    def now(cls, row: Row, before: "Standing | None", step: int, now_ms: float) -> "Standing":
        """As it stands at a step, when it stood so at the one before, if it did."""
        if before is None:
            return cls(row, step, step)
        was_over = before.row.lease_until_ms < now_ms
        return cls(row, before.since, step if was_over else before.alive_since)


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
    slips: set[int] | None,
) -> None:
    """A grant passes nobody whose live row stood in the queue when its owner looked, but those who fit in beside it.

    Nobody whose row was put since then, or came alive again, is passed twice.

    Args:
        granted: the row that became the grant; None of a grant without one.
        before: the lock item before the grant.
        standing: the rows before it, of those who wait.
        looked: the step of the look that the grant rests on.
        slips: the tickets that were passed so far; those that are passed now are added. None of a look that was no
            snapshot: it may bring the last grant, and yet not a row that stood before it.
    """
    passed = [
        each
        for each in standing
        if each.row.owner != owner
        and each.row.lease_until_ms >= now_ms
        and (before is None or each.row.ticket > before.void_up_to)
        and (granted is None or each.row.ticket < granted.ticket)
    ]
    live = [h for h in (before.holders if before is not None else ()) if h.lease_until_ms >= now_ms]
    left = room(live, permits, shared=shared)

    def fit_in(rows: Collection[Row]) -> bool:
        return len(rows) < left and all(row.shared == shared for row in rows)

    seen = [each.row for each in passed if each.alive_since < looked]
    if seen and not fit_in(seen):
        raise Broken(f"no overtaking: {owner} passed {[(row.owner, row.ticket) for row in seen]}")
    if slips is None or fit_in([each.row for each in passed]):
        return
    for each in passed:
        if each.alive_since >= looked:
            if each.row.ticket in slips:
                raise Broken(
                    f"no overtaking: {owner} passed {each.row.owner}, {each.row.ticket}, who was passed before"
                )
            slips.add(each.row.ticket)


def idle(asleep_ms: float, poll_ms: float) -> None:
    """Where nothing goes wrong, a free lock with a waiter is left idle for one sleep of its pace at most.

    Args:
        asleep_ms: for how long everybody has slept while it was free, and somebody waited.
        poll_ms: the longest that a first in line sleeps by the pace of those who wait.
    """
    if asleep_ms > poll_ms + SLEEPS_ROUND_MS:
        raise Broken(f"idle: nothing went wrong, and the lock was free for {asleep_ms:.0f} ms while all slept")


def told_of_its_end(owner: str, fencing_token: int, is_its_own: bool) -> None:
    """A holder whose grant was ended by somebody else does not end as if all was well."""
    if not is_its_own:
        raise Broken(f"told: somebody else ended the grant {fencing_token} of {owner}, who was told that all was well")


def liveness(idle_ms: float, quiet_ms: float) -> None:
    """The first in line, if it fits in, is not kept waiting for longer than can be computed.

    A holder's lease may be over by its own clocks: it has to be seen to have ended; and the first in line looks at
    half its own lease at the latest. If something went wrong, whoever is in its way may have died just then.

    Args:
        quiet_ms: for how long nothing has gone wrong.
    """
    if idle_ms > (MOST_IDLE_MS if quiet_ms <= MOST_IDLE_MS else QUIET_IDLE_MS):
        raise Broken(f"liveness: somebody waits, and for {idle_ms:.0f} ms there was room")


def wait_not_too_short(waited_ms: float, record_wait_ms: int | None, clock_is_off_ms: float) -> None:
    """Whoever is told that its record wait is over has waited for so long; without an end, it is never over.

    Args:
        clock_is_off_ms: by how much the clock that it is counted by is off at most.
    """
    if record_wait_ms is None or waited_ms < record_wait_ms - clock_is_off_ms:
        raise Broken(f"liveness: a record wait of {record_wait_ms} ms was over after {waited_ms:.0f} ms")


def wait_not_too_long(waited_ms: float, record_wait_ms: int, clock_is_off_ms: float) -> None:
    """Whoever does not get the lock within its record wait is told so then, one look later at most."""
    if waited_ms > record_wait_ms + clock_is_off_ms + LONGEST_LOOK_MS:
        raise Broken(f"liveness: a record wait of {record_wait_ms} ms went on for {waited_ms:.0f} ms")


def count_of_tickets(item: LockItem | None, tickets: Collection[int]) -> None:
    """Where nothing goes wrong, nobody is counted but those with a ticket that was neither granted nor given up."""
    if item is not None and item.waiting > len(tickets):
        raise Broken(f"counts: {item.waiting} waiting, of the tickets {sorted(tickets)}")


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
