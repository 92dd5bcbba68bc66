"""What an operator does to a lock that is not theirs: set its limit, free it by force."""

import uuid
from collections.abc import Callable

from ticketlock.errors import LockLost, RequestNotApplied
from ticketlock.locks import _writes as write
from ticketlock.locks._claim import MIN_LEASE_MS, Claim
from ticketlock.locks._inspect import inspect
from ticketlock.locks._items import Holder, LockItem
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import Grant, Hold, Released, Releasing
from ticketlock.locks._protocol import Contender
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
        if not reply.applied and item.permits != permits:
            continue
        if permits > 0 and item.waiting > 0:
            yield from contender(Claim(lock, "operator", MIN_LEASE_MS, permits=permits), now).call_next()
        return item
    raise RequestNotApplied(f"in {_TRIES} tries the limit was set by somebody else each time")


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
    lock: LockName, whose: Callable[[Holder], bool], now: Moment, contender: type[Contender], *, by_force: bool
) -> Steps[Released]:
    """Free a lock in its holder's place, who finds out at the next heartbeat.

    Args:
        whose: tells the holder.
        contender: what contends for the locks of this table: it calls those who may enter now.
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
    releasing = Releasing(by=uuid.uuid4().hex, by_force=item if by_force else None)
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
