"""What an operator does to a lock that is not theirs: set its limit, free it by force."""

from ticketlock import _writes as write
from ticketlock._calls import call_next
from ticketlock._items import MAX_HOLDERS, LockItem
from ticketlock._names import LockName, whole_number
from ticketlock._outcomes import Grant, Released
from ticketlock._protocol import Contender
from ticketlock._queue import inspect
from ticketlock._requests import Steps
from ticketlock._time import Moment
from ticketlock._writes import MIN_LEASE_MS, Claim
from ticketlock.errors import LockLost


def set_limit(lock: LockName, permits: int, now: Moment, *, then_call: bool) -> Steps[LockItem]:
    """Set how many may hold a lock at once: 0 to 100, at once, whatever number its users ask for.

    Whoever holds it keeps it: a lower limit only stops further grants; 0 closes the lock.

    Args:
        then_call: whether the waiters who may enter now are to be called.
    """
    whole_number("permits", permits, 0, MAX_HOLDERS)
    reply = yield write.set_limit(lock, permits, now)
    assert reply.item is not None
    # Refused only for its format, and then this raises.
    item = LockItem.parse(reply.item)
    if then_call and permits > 0 and item.waiting > 0:
        yield from call_next(Contender(Claim(lock, "operator", MIN_LEASE_MS, permits=permits), reply.now))
    return item


def force_release(lock: LockName, fencing_token: int, now: Moment, *, then_call: bool) -> Steps[Released]:
    """Take a lock away from the holder with this fencing token, who finds out at the next heartbeat.

    Args:
        then_call: whether the waiters who may enter now are to be called.

    Raises:
        LockLost: nobody holds it with this token.
    """
    state = yield from inspect(lock, now)
    item = state.item
    holder = next((each for each in (item.holders if item else ()) if each.fencing_token == fencing_token), None)
    if item is None or holder is None:
        raise LockLost(f"nobody holds the lock with fencing token {fencing_token}")
    claim = Claim(
        lock, holder.owner, MIN_LEASE_MS, permits=1 if holder.shared else max(1, item.permits), shared=holder.shared
    )
    me = Contender(claim, state.now)
    held = Grant(
        lock=lock,
        owner=holder.owner,
        ticket=None,
        fencing_token=holder.fencing_token,
        # Over already: so a refusal means that it is gone, not that it was freed before.
        lease_until_ms=0,
        deadline_ms=0,
        since_ms=holder.since_ms,
        mean_hold_ms=item.mean_hold_ms,
    )
    released = yield from me.release(held)
    if then_call and released.waiting != 0:
        yield from call_next(me)
    return released
