"""What an operator does to a lock that is not theirs: set its limit, free it by force, remove a waiter."""

from collections.abc import Callable

from ticketlock.errors import InvalidLockRequest, LockLost, RequestNotApplied
from ticketlock.locks import _writes as write
from ticketlock.locks._claim import MIN_LEASE_MS, Claim
from ticketlock.locks._inspect import inspect
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import Grant, Hold, Released, Releasing
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import is_over
from ticketlock.wire._requests import Steps
from ticketlock.wire._table_time import Moment

_TRIES = 5


def set_limit(lock: LockName, permits: int, now: Moment, contender: type[Contender]) -> Steps[LockItem]:
    """Set how many may hold a lock at once: 0 to 100, at once, whatever number its users ask for.

    Whoever holds it keeps it: a lower limit only stops further grants; 0 closes the lock.

    Args:
        contender: what contends for the locks of this table: it calls those who may enter now.

    Raises:
        RequestNotApplied: others keep setting it.
    """
    for _ in range(_TRIES):
        seen = (yield from inspect(lock, now)).item
        reply = yield write.set_limit(lock, permits, seen, now)
        now = reply.now
        if reply.item is None:
            continue
        item = LockItem.parse(reply.item)
        # Refused by its own repeat, or by another operator's: then once more, on what stands there.
        if not reply.applied and not (item.permits_are_set and item.permits == permits):
            continue
        yield from _call(lock, item, now, contender)
        return item
    raise RequestNotApplied(f"in {_TRIES} tries the limit was set by somebody else each time")


def unset_limit(lock: LockName, permits: int | None, now: Moment, contender: type[Contender]) -> Steps[LockItem | None]:
    """Remove an operator's limit; the users' number counts again.

    Args:
        permits: what the users ask for; None for what they asked for before the limit was set.
        contender: what contends for the locks of this table: it calls those who may enter now.

    Returns:
        The item; None where there is none.

    Raises:
        InvalidLockRequest: nobody had used the lock before its limit was set, and no number is said.
        RequestNotApplied: others keep setting it.
    """
    # A reply may be lost: then a second attempt finds no limit.
    for attempt in range(_TRIES):
        seen = (yield from inspect(lock, now)).item
        if seen is None or not seen.permits_are_set:
            if seen is not None and attempt:
                yield from _call(lock, seen, now, contender)
            return seen
        wanted = permits if permits is not None else seen.permits_of_users
        if wanted is None:
            allowed = "the number that its users ask for: nobody had used the lock before its limit was set"
            raise InvalidLockRequest("permits", permits, allowed)
        reply = yield write.unset_limit(lock, wanted, seen, now)
        now = reply.now
        if reply.applied and reply.item is not None:
            item = LockItem.parse(reply.item)
            yield from _call(lock, item, now, contender)
            return item
    raise RequestNotApplied(f"in {_TRIES} tries the limit was set by somebody else each time")


def remove_waiter(lock: LockName, ticket: int, now: Moment, contender: type[Contender]) -> Steps[Row | None]:
    """Take a waiter's place in the queue away. One that lives finds its place lost, and joins anew at the end.

    Args:
        contender: what contends for the locks of this table: it calls those who may enter now.

    Returns:
        Its row; None where nobody waits with this ticket.

    Raises:
        RequestNotApplied: the row, or the count, keeps changing.
    """
    removed: Row | None = None
    for _ in range(_TRIES):
        state = yield from inspect(lock, now)
        item, now = state.item, state.now
        row = next((each for each in state.rows if each.ticket == ticket), None)
        if row is None:
            # Gone meanwhile, perhaps by an earlier try.
            return removed
        removed = row
        if _is_counted(row, item, now):
            reply = yield write.withdraw(Claim(lock, row.owner, MIN_LEASE_MS), ticket, now)
        else:
            reply = yield write.delete_dead_row(lock, row)
        now = reply.now
        if reply.applied:
            if item is not None:
                yield from _call(lock, item, now, contender)
            return row
    raise RequestNotApplied(f"in {_TRIES} tries the place of ticket {ticket} was changed by somebody else each time")


def _is_counted(row: Row, item: LockItem | None, now: Moment) -> bool:
    """Whether the count has this row, and only once, and no late copy of it can come any more.

    Where that is not certain the count stays: too high costs a look, too low lets somebody overtake.
    """
    if item is None or item.waiting == 0 or row.ticket <= max(item.void_up_to, item.now_serving or 0):
        return False
    is_young = row.created_at_ms + 2 * write.JOIN_DEADLINE_MS >= now.earliest_ms
    return not is_young and not is_over(row.lease_until_ms, now) and item.holder(row.owner) is None


def _call(lock: LockName, item: LockItem, now: Moment, contender: type[Contender]) -> Steps[None]:
    """Call whoever may enter now."""
    if item.permits > 0 and item.waiting > 0:
        yield from contender(Claim(lock, "operator", MIN_LEASE_MS, permits=item.permits), now).call_next()


def resume(lock: LockName, owner: str, lease_ms: int, now: Moment) -> Steps[tuple[Claim, Grant]]:
    """The claim and the grant of an owner that holds a lock, renewed.

    Raises:
        LockLost: it does not hold it.
    """
    state = yield from inspect(lock, now)
    holder = state.item.holder(owner) if state.item is not None else None
    if state.item is None or holder is None:
        raise LockLost(f"{owner!r} does not hold the lock on {lock.entity!r}")
    claim = _claim_of(lock, holder, state.item, lease_ms)
    return claim, (yield from Contender(claim, state.now).renew(holder.fencing_token))


def release_of(
    lock: LockName,
    whose: Callable[[Holder], bool],
    now: Moment,
    contender: type[Contender],
    *,
    by: str,
    by_force: bool,
) -> Steps[Released]:
    """Free a lock in its holder's place, who finds out at the next heartbeat.

    Args:
        whose: tells the holder.
        contender: what contends for the locks of this table: it calls those who may enter now.
        by: the identity of this call, chosen before it: what tells its release from another one.
        by_force: its work is not done, so the next one finds what it has found.

    Raises:
        LockLost: nobody like that holds it.
    """
    state = yield from inspect(lock, now)
    item = state.item
    holder = next((each for each in (item.holders if item else ()) if whose(each)), None)
    if item is None or holder is None:
        raise LockLost(f"nobody holds the lock on {lock.entity!r} with this owner or fencing token")
    claim = _claim_of(lock, holder, item, MIN_LEASE_MS)
    held = Hold(
        lock=lock,
        owner=holder.owner,
        ticket=None,
        fencing_token=holder.fencing_token,
        lease_until_ms=holder.lease_until_ms,
        since_ms=holder.since_ms,
        mean_hold_ms=item.mean_hold_ms,
    )
    releasing = Releasing(by=by, in_place=True, by_force=item if by_force else None)
    left = item.data_left if by_force else None
    return (yield from contender(claim, state.now).release(held, data_left=left, releasing=releasing))


def _claim_of(lock: LockName, holder: Holder, item: LockItem, lease_ms: int) -> Claim:
    return Claim(
        lock,
        holder.owner,
        lease_ms,
        permits=holder.mode.permits_to_ask(max(1, item.permits)),
        data=holder.data,
        shared=holder.shared,
    )
