"""The promises, each as a function: what must hold after every step, in any order of processes and under any fault.

They compare the table and the holders' views from outside, with the true time, which no process knows.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ticketlock.locks._items import Holder, LockItem, Row, is_lock_item
from ticketlock.locks._modes import MAX_HOLDERS
from ticketlock.wire._actions import Item

LEASE_MS = 20_000
UNCERTAINTY_MS = 3_000
"""By how much each bound of a machine's table time may be off: the Date's resolution, a server, drift."""
REQUESTS_MS = 5_000
"""Time for the requests: the scheduler lets time pass between any two."""
MARGIN_MS = 1_000
SLEEPS_ROUND_MS = 20
"""By how much a sleep may be too long: slow clocks, and the rounding of milliseconds."""
JOIN_DEADLINE_MS = 999
"""How long after a ticket its row may arrive, by a fast clock."""
LONGEST_POLL_MS = LEASE_MS / 2 + REQUESTS_MS
QUIET_IDLE_MS = MARGIN_MS + 2 * UNCERTAINTY_MS + LONGEST_POLL_MS
ROW_LEASE_MS = 10 * LEASE_MS
"""In some worlds, that of the row of a waiter far behind."""


class Broken(AssertionError):
    """A promise is broken; the message begins with its name."""


@dataclass(slots=True)
class Belief:
    """The view of one holder: that it holds the lock.

    Attributes:
        permits: the limit when it was granted the lock: a lower limit does not end its grant.
    """

    owner: str
    shared: bool
    fencing_token: int
    permits: int


def exclusion(holding: Collection[Belief]) -> None:
    """At every moment at most ``permits`` holders believe that they hold the lock, or any number that share it.

    Args:
        holding: their views at this moment.
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


def own_token(owner: str, fencing_token: int, granted: Collection[int]) -> None:
    """A holder receives a token that it was granted.

    Args:
        granted: all tokens that it was granted: before the reply arrives, a late copy of its request may cause another
            grant.
    """
    if fencing_token not in granted:
        raise Broken(f"fencing: {owner} received {fencing_token}, and was granted {sorted(granted)}")


def counts(item: LockItem | None, raw: Item | None, standing: Collection[Row] = ()) -> None:
    """The counts in the lock item are those of its holders, and no lower than the number of waiters.

    Args:
        item, raw: the lock item, parsed and as stored.
        standing: the rows of those that are still waiting.
    """
    if item is None or raw is None:
        return
    shared = sum(holder.shared for holder in item.holders)
    if item.held != len(item.holders) or int(raw["heldShared"]["N"]) != shared:
        raise Broken(f"counts: {item.held} held, {raw['heldShared']['N']} shared; holders: {item.holders}")
    waiting = [row.ticket for row in standing if row.ticket > item.void_up_to]
    if item.waiting < len(waiting):
        raise Broken(f"counts: {item.waiting} waiting, and {waiting} rows in the queue")


def leases_grow(
    before: LockItem | None,
    after: LockItem | None,
    rows: Iterable[Row],
    rows_after: Mapping[int, Row],
    *,
    may_be_shortened: Collection[str] = (),
) -> None:
    """The lease of a grant, and that of a queue row, never becomes shorter, even by late or duplicate requests.

    Args:
        may_be_shortened: but that of the rows of these owners, whose tasks have ended.
    """
    old = {holder.fencing_token: holder for holder in before.holders} if before is not None else {}
    for holder in after.holders if after is not None else ():
        was = old.get(holder.fencing_token)
        # An invocation that goes on takes the long lease of a suspension back.
        if was is not None and not was.suspended and holder.lease_until_ms < was.lease_until_ms:
            raise Broken(f"leases grow: that of {holder.owner} was made shorter")
    for row in rows:
        is_shorter = row.ticket in rows_after and rows_after[row.ticket].lease_until_ms < row.lease_until_ms
        if is_shorter and row.owner not in may_be_shortened:
            raise Broken(f"leases grow: that of the row of {row.owner} was made shorter")


def no_eviction(item: LockItem | None, gone: Iterable[Row], now_ms: float, *, by: str) -> None:
    """No process removes another owner's row from the queue while its lease runs.

    Args:
        item: the lock item afterwards.
        gone: the rows that were removed, of owners that were still waiting.
        by: the machine that sent the request.
    """
    for row in gone:
        is_void = item is None or row.ticket <= item.void_up_to
        if row.lease_until_ms >= now_ms and not is_void and not is_of(row.owner, by):
            raise Broken(f"no eviction: {by} removed the row of {row.owner}, ticket {row.ticket}")


def no_holder_evicted(
    before: LockItem | None, after: LockItem | None, now_ms: float, *, by: str, meant: Collection[int]
) -> None:
    """No process ends another owner's grant while its lease runs.

    Args:
        meant: the tokens of grants that were freed legitimately: by force, or in their owner's name.
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
    read_step: int,
    now_ms: float,
    *,
    last_ticket_ms: float,
    by: str,
) -> None:
    """No process declares a row void whose lease runs and that it has seen, nor a ticket whose row may still arrive.

    Args:
        standing: the rows before, of those that wait.
        read_step: the step of the read that the request depends on.
        last_ticket_ms: the latest time of a ticket that the item has ever had: it is not to go back.
    """
    if before is None or after is None or after.void_up_to == before.void_up_to:
        return
    if now_ms - last_ticket_ms < JOIN_DEADLINE_MS:
        raise Broken(f"no eviction: {by} declared a ticket void after {now_ms - last_ticket_ms:.0f} ms")
    for each in standing:
        is_declared = before.void_up_to < each.row.ticket <= after.void_up_to
        if is_declared and each.since < read_step and each.row.lease_until_ms >= now_ms:
            raise Broken(f"no eviction: {by} declared the row of {each.row.owner} void, ticket {each.row.ticket}")


def limit_as_set(item: LockItem, limits: Collection[int]) -> None:
    """The limit is the one that was set last, or that is being set."""
    if item.permits not in limits:
        raise Broken(f"limit: it is {item.permits}, and was set to {sorted(limits)}")


def number_in_force(
    before: LockItem | None,
    after: LockItem,
    rows: Iterable[Row],
    *,
    numbers: Mapping[int, int],
    started: Mapping[str, int],
) -> None:
    """Of the deployments' numbers that of the latest execution with a ticket is in force, and is never set back.

    Args:
        rows: those after the write.
        numbers: the number of each execution, by when it started.
        started: when the execution of each owner started.
    """
    since_ms = after.permits_since_ms or 0
    of_users = after.permits_of_users if after.permits_are_set else after.permits
    if since_ms and of_users != numbers[since_ms]:
        raise Broken(f"number: it is {of_users}, and the execution that started at {since_ms} has {numbers[since_ms]}")
    same_item = before is not None and before.tokens_after == after.tokens_after
    if same_item and before is not None and since_ms < (before.permits_since_ms or 0):
        raise Broken(f"number: that of {before.permits_since_ms} was set back to that of {since_ms}")
    owners = [each.owner for each in after.holders] + [row.owner for row in rows if row.ticket > after.void_up_to]
    for owner in owners:
        if since_ms < started[owner]:
            raise Broken(f"number: it is that of {since_ms}, and {owner} started at {started[owner]}")


def limit(before: LockItem | None, after: LockItem) -> None:
    """A grant finds room: fewer holders than permits, or only holders that share the lock as it does."""
    old = {holder.owner for holder in before.holders} if before is not None else set()
    for holder in after.holders:
        if holder.owner in old:
            continue
        others = [each for each in after.holders if each.owner != holder.owner]
        # A grant by the number of a later deployment stores it in the same write.
        if room(others, after.permits, shared=holder.shared) <= 0:
            raise Broken(f"limit: {holder.owner} was granted beside {[each.owner for each in others]}")


def room(holders: "Collection[Holder | Belief]", permits: int, *, shared: bool) -> int:
    """How many more may hold the lock beside these, of those that share it or of those that do not."""
    if any(holder.shared != shared for holder in holders):
        return 0
    return (MAX_HOLDERS if shared and permits > 0 else permits) - len(holders)


def is_of(owner: str, machine: str) -> bool:
    """Whether it is the owner of one of a machine's acquisitions."""
    return owner.startswith(machine + "/")


@dataclass(frozen=True, slots=True)
class Standing:
    """A row in the queue.

    Attributes:
        since: the step at which it was put.
        alive_since: that step, or the one at which its owner extended its lease after the lease had ended: to earlier
            readers it was expired.
    """

    row: Row
    since: int
    alive_since: int

    @classmethod
    def now(cls, row: Row, before: "Standing | None", step: int, now_ms: float) -> "Standing":
        """The row at a step, from its state at the step before, if it existed."""
        if before is None:
            return cls(row, step, step)
        was_over = before.row.lease_until_ms < now_ms
        return cls(row, before.since, step if was_over else before.alive_since)


def no_overtaking(
    granted: Row | None,
    before: LockItem | None,
    standing: Collection[Standing],
    read_step: int,
    now_ms: float,
    *,
    shared: bool,
    permits: int,
    owner: str,
    slips: set[int] | None,
) -> None:
    """A grant overtakes no waiter whose unexpired row its owner could read in the queue, unless it fits in beside.

    A waiter whose row was put since then, or renewed after its expiry, is overtaken at most once.

    Args:
        granted: the row that became the grant; None for a grant without one.
        before: the lock item before the grant.
        standing: the rows before it, of those that wait.
        read_step: the step of the read that the grant depends on.
        slips: the tickets that were overtaken so far; those that are overtaken now are added. None for a read that was
            no snapshot: it may show the last grant, and yet not a row that existed before it.
    """
    passed = [
        each
        for each in standing
        if each.row.owner != owner
        and each.row.lease_until_ms >= now_ms
        and (before is None or each.row.ticket > before.void_up_to)
        and (granted is None or each.row.ticket < granted.ticket)
    ]
    live = [each for each in (before.holders if before is not None else ()) if each.lease_until_ms >= now_ms]
    left = room(live, permits, shared=shared)

    def fit_in(rows: Collection[Row]) -> bool:
        return len(rows) < left and all(row.shared == shared for row in rows)

    seen = [each.row for each in passed if each.alive_since < read_step]
    if seen and not fit_in(seen):
        raise Broken(f"no overtaking: {owner} overtook {[(row.owner, row.ticket) for row in seen]}")
    if slips is None or fit_in([each.row for each in passed]):
        return
    for each in passed:
        if each.alive_since >= read_step:
            if each.row.ticket in slips:
                raise Broken(
                    f"no overtaking: {owner} overtook {each.row.owner}, {each.row.ticket}, which was overtaken before"
                )
            slips.add(each.row.ticket)


def idle(asleep_ms: float, poll_ms: float) -> None:
    """Without faults, a free lock with a waiter is idle for at most one sleep of the waiter's pace.

    Args:
        asleep_ms: how long all machines have slept while it was free, and there was a waiter.
        poll_ms: the longest sleep of the first in line, by the pace of those that wait.
    """
    if asleep_ms > poll_ms + SLEEPS_ROUND_MS:
        raise Broken(f"idle: without faults the lock was free for {asleep_ms:.0f} ms while all slept")


def told_of_the_grant(owner: str, rows: Iterable[Row]) -> None:
    """Once a caller is told that it has the lock, no row of its owner is in the queue: nobody would delete it."""
    left = [row.ticket for row in rows if row.owner == owner]
    if left:
        raise Broken(f"told: {owner} was told of its grant, and its rows {left} stand in the queue")


def told_that_it_has_left(owner: str, item: LockItem | None) -> None:
    """Once a caller is told that it has left, its owner does not hold the lock: nobody would release it."""
    holder = item.holder(owner) if item is not None else None
    if holder is not None:
        raise Broken(f"told: {owner} was told that it has left, and it holds the lock with {holder.fencing_token}")


def own_end(owner: str, fencing_token: int, is_its_own: bool) -> None:
    """The release of a holder whose grant another process has ended does not report success."""
    if not is_its_own:
        raise Broken(
            f"outcomes: another process ended the grant {fencing_token} of {owner}, whose calls reported success"
        )


def most_idle_ms(row_lease_ms: float) -> float:
    """How long a free lock with a waiter may be idle after a fault, if no row's lease is longer."""
    return row_lease_ms + QUIET_IDLE_MS + (row_lease_ms - LEASE_MS) / 2


def liveness(idle_ms: float, quiet_ms: float, row_lease_ms: float = LEASE_MS) -> None:
    """The first in line, if there is room for it, waits no longer than a computable bound.

    A holder's lease may have ended by its own clocks, but must be seen to have ended; and the first in line polls
    within half of its own lease. After a fault, the process that blocks it may just have crashed.

    Args:
        quiet_ms: the time since the last fault.
        row_lease_ms: the lease of queue rows.
    """
    most_ms = most_idle_ms(row_lease_ms)
    if idle_ms > (most_ms if quiet_ms <= most_ms else most_ms - row_lease_ms):
        raise Broken(f"liveness: a waiter was not granted the lock, although there was room for {idle_ms:.0f} ms")


def wait_not_too_short(waited_ms: float, record_wait_ms: int | None, clock_is_off_ms: float) -> None:
    """A caller whose record wait is reported as over has waited for so long; without one, it is never over.

    Args:
        clock_is_off_ms: by how much the clock of the record wait may be off.
    """
    if record_wait_ms is None or waited_ms < record_wait_ms - clock_is_off_ms:
        raise Broken(f"liveness: a record wait of {record_wait_ms} ms was over after {waited_ms:.0f} ms")


def was_closed(closed_ms: float, asked_ms: float) -> None:
    """A caller that is told that the lock is closed has asked before it was opened again.

    Args:
        closed_ms: when the lock was closed last.
    """
    if closed_ms < asked_ms:
        raise Broken("liveness: a caller was told that the lock is closed, and it was open all the time")


def wait_not_too_long(waited_ms: float, record_wait_ms: int, clock_is_off_ms: float) -> None:
    """A caller that does not get the lock within its record wait is refused when the wait ends, or one poll later."""
    if waited_ms > record_wait_ms + clock_is_off_ms + LONGEST_POLL_MS:
        raise Broken(f"liveness: a record wait of {record_wait_ms} ms lasted {waited_ms:.0f} ms")


def count_of_tickets(item: LockItem | None, tickets: Collection[int]) -> None:
    """Without faults, only tickets are counted that were neither granted nor given up."""
    if item is not None and item.waiting > len(tickets):
        raise Broken(f"counts: {item.waiting} waiting, of the tickets {sorted(tickets)}")


def nothing_left(items: Sequence[Item], now_ms: float) -> None:
    """After all have left, there is no holder and no waiter.

    Args:
        now_ms: the true time; expired leases hold nothing.
    """
    for item in items:
        if is_lock_item(item):
            held = [holder for holder in LockItem.parse(item).holders if holder.lease_until_ms >= now_ms]
            if held:
                raise Broken(f"nothing left: {held}")
        elif Row.parse(item).lease_until_ms >= now_ms:
            raise Broken(f"nothing left: {Row.parse(item)}")
