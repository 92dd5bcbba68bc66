"""Operators' commands on locks that others hold: set the limit, free a lock, remove a waiter."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ticketlock.errors import InvalidLockRequest, LockLost, RequestNotApplied
from ticketlock.locks import _reads as reads
from ticketlock.locks import _writes as write
from ticketlock.locks._items import Holder, LockItem, LockName, Row, integer_if_there, is_lock_item
from ticketlock.locks._outcomes import (
    MIN_LEASE_MS,
    Claim,
    Decision,
    Forcing,
    Grant,
    LockState,
    Released,
    Releasing,
    hold_of,
)
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import is_over
from ticketlock.wire import Item, Moment, Steps, integer

NewContender = Callable[[Claim, Moment], Contender]
"""Makes a contender of the table; it wakes the waiters that may take the lock now."""

_TRIES = 5


@dataclass(frozen=True, slots=True)
class LockSummary:
    """One lock, as a list shows it.

    Attributes:
        lock: its name.
        permits: how many may hold it at once.
        held: how many hold it, or crashed while they held it and have not been replaced yet.
        held_shared: how many of them share it.
        waiting: the count of its waiters.
        fencing_token: that of the last grant.
        mean_hold_ms: how long recent holders held it; None before the first release.
        permits_are_set: whether an operator has set the limit.
    """

    lock: LockName
    permits: int
    held: int
    held_shared: int
    waiting: int
    fencing_token: int
    mean_hold_ms: int | None
    permits_are_set: bool

    @classmethod
    def parse(cls, item: Item) -> "LockSummary":
        """Read a lock item with the attributes of a list."""
        return cls(
            lock=LockName(item["pk"]["S"], item["sk"]["S"].removesuffix("/")),
            permits=_number(item, "permits", 1),
            held=_number(item, "held", 1),
            held_shared=_number(item, "heldShared"),
            waiting=_number(item, "waiting"),
            fencing_token=_number(item, "fencingToken"),
            mean_hold_ms=integer_if_there(item, "meanHoldMs"),
            permits_are_set="permitsKeptUntil" in item,
        )


def _number(item: Item, name: str, otherwise: int = 0) -> int:
    """A number of an item, which a newer version may not have; then the lock counts as held, so that it is read."""
    return integer(item[name]) if "N" in item.get(name, {}) else otherwise


def list_page(after: Item | None, _now: Moment) -> Steps[tuple[list[LockSummary], Item | None]]:
    """One page of the locks of a table, and the key after which the next page begins; None at the end."""
    reply = yield reads.list_page(after)
    return [LockSummary.parse(item) for item in reply.items if item is not None], reply.last_key


def inspect(lock: LockName, now: Moment, *, rows: int | None = None, for_owner: str | None = None) -> Steps[LockState]:
    """Read one lock, its holders and its queue.

    Args:
        rows: how many rows to read at first, and then on up to the first waiter that has not expired; None for all.
        for_owner: who renews or releases; then the lock item may be of a newer version, and the queue is not read.
    """
    if for_owner is not None:
        reply = yield reads.read_first(lock)
        stored = next((each for each in reply.items if each is not None and is_lock_item(each)), None)
        return LockState(None if stored is None else LockItem.parse_for(for_owner, stored), (), reply.now)
    request = reads.read_whole(lock) if rows is None else reads.read_first(lock, rows)
    item: LockItem | None = None
    queue: list[Row] = []
    while True:
        reply = yield request
        now = reply.now
        for found in reply.items:
            if found is None:
                continue
            if is_lock_item(found):
                item = LockItem.parse(found)
            else:
                queue.append(Row.parse(found))
        state = LockState(item, tuple(queue), now)
        if reply.last_key is None or (rows is not None and first_in_line(state) is not None):
            return state
        request = replace(request, limit=None, after=reply.last_key)


def first_in_line(state: LockState) -> Row | None:
    """The first waiter that has not expired, of those that were read."""
    return next(live_rows(state), None)


def live_rows(state: LockState) -> Iterator[Row]:
    """The waiters that have not expired, of those that were read."""
    if (item := state.item) is not None:
        for row in state.rows:
            if row.ticket > item.void_up_to and not is_over(row.lease_until_ms, state.now):
                yield row


def set_limit(
    lock: LockName, permits: int, decision: Decision, now: Moment, contender: NewContender
) -> Steps[LockItem]:
    """Set how many may hold a lock at once; see ``LockTable.set_limit``."""
    for _ in range(_TRIES):
        seen = (yield from inspect(lock, now)).item
        reply = yield write.set_limit(lock, permits, decision, seen, now)
        now = reply.now
        if reply.item is None:
            continue
        item = LockItem.parse(reply.item)
        # Its own earlier attempt or another operator's may have refused it: unless the item has this limit, try again.
        if not reply.applied and not (item.permits_are_set and item.permits == permits):
            continue
        yield from _wake_next(lock, item, now, contender)
        return item
    raise _kept_changing("the limit")


def unset_limit(
    lock: LockName, permits: int | None, decision: Decision, now: Moment, contender: NewContender
) -> Steps[LockItem | None]:
    """Remove an operator's limit, and return the lock item, if there is one; see ``LockTable.unset_limit``."""
    # A reply may be lost: then a second attempt finds no limit.
    for attempt in range(_TRIES):
        seen = (yield from inspect(lock, now)).item
        if seen is None or not seen.permits_are_set:
            if seen is not None and attempt:
                yield from _wake_next(lock, seen, now, contender)
            return seen
        if permits is None and seen.permits_of_users is None:
            allowed = "the number that its users ask for: the lock had no users before its limit was set"
            raise InvalidLockRequest("permits", permits, allowed)
        # The next execution would replace another number than its deployment's.
        given = None if follows_deployments(seen) else permits
        reply = yield write.unset_limit(lock, given, decision, seen, now)
        now = reply.now
        if reply.applied and reply.item is not None:
            item = LockItem.parse(reply.item)
            yield from _wake_next(lock, item, now, contender)
            return item
    raise _kept_changing("the limit")


def follows_deployments(item: LockItem) -> bool:
    """Whether the number of a lock with a limit is a deployment's, so that no other one can be given with its end."""
    return item.permits_since_ms is not None and item.permits_of_users is not None


def ended_by_unsetting(state: LockState, permits: int | None) -> list[Row]:
    """The waiters that would end with ``PermitsMismatch`` if the limit were unset, as far as their rows tell.

    Args:
        state: the lock, with its limit and its whole queue.
        permits: the number that would be given.
    """
    item = state.item
    if item is None:
        return []
    given = None if follows_deployments(item) else permits
    number = given or item.permits_of_users
    if number is None:
        return []
    # As ``write.unset_limit`` leaves it.
    since_ms = 0 if item.permits_of_users is None else item.permits_since_ms
    left = replace(item, permits=number, permits_since_ms=since_ms, permits_kept_until_s=None)
    return [row for row in live_rows(state) if row.permits is not None and not write.may_ask(row, left)]


def remove_waiter(lock: LockName, ticket: int, now: Moment, contender: NewContender) -> Steps[Row]:
    """Delete a waiter's queue row, and return it; see ``LockTable.remove_waiter``."""
    removed: Row | None = None
    for _ in range(_TRIES):
        state = yield from inspect(lock, now)
        item, now = state.item, state.now
        row = next((each for each in state.rows if each.ticket == ticket), None)
        if row is None:
            if removed is None:
                raise no_waiter(lock, ticket)
            # Deleted since, perhaps by an earlier try.
            return removed
        removed = row
        if _is_counted(row, item, now):
            reply = yield write.withdraw(Claim(lock, row.owner, MIN_LEASE_MS), ticket, now)
        else:
            reply = yield write.delete_stale_row(lock, row)
        now = reply.now
        if reply.applied:
            if item is not None:
                yield from _wake_next(lock, item, now, contender)
            return row
    raise _kept_changing(f"the row of ticket {ticket}")


def no_waiter(lock: LockName, ticket: int) -> LockLost:
    """The error for a ticket that no row has."""
    return LockLost(f"no one waits for the lock on {lock.entity!r} with ticket {ticket}")


def _kept_changing(what: str) -> RequestNotApplied:
    return RequestNotApplied(f"another process changed {what} during each of {_TRIES} tries")


def _is_counted(row: Row, item: LockItem | None, now: Moment) -> bool:
    """Whether ``waiting`` counts this row exactly once, and no late copy of the row can be written any more.

    If that is not certain the count stays: too high costs a poll, too low would let a newcomer overtake a waiter.
    """
    if item is None or item.waiting == 0 or row.ticket <= max(item.void_up_to, item.now_serving or 0):
        return False
    is_young = row.created_at_ms + 2 * write.JOIN_DEADLINE_MS >= now.earliest_ms
    return not is_young and not is_over(row.lease_until_ms, now) and item.holder(row.owner) is None


def _wake_next(lock: LockName, item: LockItem, now: Moment, contender: NewContender) -> Steps[None]:
    """Wake the waiters that may take the lock now."""
    if item.permits > 0 and item.waiting > 0:
        claim = Claim(lock, "operator", MIN_LEASE_MS, permits=item.permits, permits_since_ms=0)
        yield from contender(claim, now).wake_next()


def resume(lock: LockName, owner: str, lease_ms: int, now: Moment) -> Steps[tuple[Claim, Grant]]:
    """Renew the grant of an owner that holds the lock; see ``LockTable.resume``."""
    state = yield from inspect(lock, now, for_owner=owner)
    holder = state.item.holder(owner) if state.item is not None else None
    if state.item is None or holder is None:
        raise LockLost(f"{owner!r} does not hold the lock on {lock.entity!r}")
    claim = _claim_of(lock, holder, state.item, lease_ms)
    return claim, (yield from Contender(claim, state.now).renew(holder.fencing_token, holder.lease_until_ms))


def release_of(
    lock: LockName,
    whose: Callable[[Holder], bool],
    now: Moment,
    contender: NewContender,
    *,
    by: str,
    by_force: Decision | None,
    for_owner: str | None = None,
) -> Steps[Released]:
    """Free a lock on its holder's behalf. The holder learns of it at its next heartbeat.

    Args:
        for_owner: as for ``inspect``.
        by: the identity of this call, chosen before it; distinguishes its release from any other.
        by_force: an operator's decision to take the lock from its holder, whose work is not finished: the next holder
            gets the data that this holder got. None for the owner itself, perhaps in another process.
    """
    state = yield from inspect(lock, now, for_owner=for_owner)
    item = state.item
    holder = next((each for each in (item.holders if item else ()) if whose(each)), None)
    if item is None or holder is None:
        raise LockLost(f"no holder of the lock on {lock.entity!r} has this owner or fencing token")
    claim = _claim_of(lock, holder, item, MIN_LEASE_MS)
    releasing = Releasing(by=by, in_place=True, by_force=None if by_force is None else Forcing(by_force, item))
    left, held = None if by_force is None else item.data_left, hold_of(lock, holder, item)
    return (yield from contender(claim, state.now).release(held, data_left=left, releasing=releasing))


def _claim_of(lock: LockName, holder: Holder, item: LockItem, lease_ms: int) -> Claim:
    return Claim(
        lock,
        holder.owner,
        lease_ms,
        permits=holder.mode.permits_to_ask(max(1, item.permits)),
        data=holder.data,
        shared=holder.shared,
        permits_since_ms=0,
    )
