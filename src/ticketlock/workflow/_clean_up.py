"""The clean-up after an execution that ended without its own last steps: stopped, timed out, or failed unexpectedly.

Best effort: safety rests on the lease. It leaves the queue. It frees a held lock at once only if the work has certainly
ended: a nested execution is stopped and seen closed. Any other work keeps the lock until its lease ends, since a
running function can be neither stopped nor seen to have ended.

The items are read by their keys, which the session records, and never searched for in the queue: many executions may
end at once. Nothing here depends on the order in which events arrive. The grant is read first and released by its
fencing token, so a later grant is kept, of any owner.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ticketlock.errors import LockLost, TableError
from ticketlock.locks import (
    EXCLUSIVE,
    MODES,
    Contender,
    Hold,
    Holder,
    LockItem,
    Row,
    Session,
    expired_holders,
    hold_of,
    lock_key,
    reads,
    row_key,
    write,
)
from ticketlock.wire import Closing, Item, Steps, integer
from ticketlock.workflow._session import stop

# The event's date comes from EventBridge, those in the table are table time, known to about a second.
_DATES_DIFFER_MS = 2_000

WorkOf = Callable[[int], str | None]
"""The execution that is the work of the grant with this fencing token; None for other work."""


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """What the clean-up did.

    Attributes:
        left: how many queue rows it deleted.
        freed: whether it freed a held lock.
        left_to_lease: whether the lock is still held until its lease ends.
    """

    left: int = 0
    freed: bool = False
    left_to_lease: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """The items that one fragment of an execution has left in the table.

    Attributes:
        item: the lock item.
        rows: its queue rows.
        holder: its grant.
        continuation: the last continuation of its wait.
    """

    item: LockItem | None
    rows: tuple[Row, ...]
    holder: Holder | None
    continuation: str | None

    def __bool__(self) -> bool:
        return bool(self.rows) or self.holder is not None


def find(me: Contender, session: Session, stopped_at_ms: int) -> Steps[Left]:
    """Find what a fragment of an ended execution has left, by the keys in its session.

    One request if it has never waited, or has recorded that its work is finished; two otherwise, however long the queue
    is.

    Args:
        me: a contender with the execution's own claim; gets the mode of the grant.
        stopped_at_ms: when the execution ended: anything newer belongs to a redrive.
    """
    lock = me.claim.lock
    youngest_ms = stopped_at_ms + _DATES_DIFFER_MS
    reply = yield from me.send(reads.read_items(session.key(), lock_key(lock)))
    noted, stored = reply.items
    tickets: list[int] = []
    if noted is not None and "ticket" in noted and "finishedToken" not in noted:
        tickets = [integer(noted["ticket"]), integer(noted["earlierTicket"])]
    found: Sequence[Item | None] = ()
    if tickets:
        keys = (row_key(lock, ticket) for ticket in tickets)
        reply = yield from me.send(reads.read_items(lock_key(lock), *keys))
        stored, found = reply.items[0], reply.items[1:]
    own = {"S": me.claim.owner}
    rows = tuple(Row.parse(each) for each in found if each is not None and each["owner"] == own)
    item = LockItem.parse_for(me.claim.owner, stored) if stored is not None else None
    holder = _mine(item, me, youngest_ms)
    if item is not None:
        # The item has what matters of the claim now.
        mode = holder.mode if holder is not None else EXCLUSIVE
        permits = mode.permits_to_ask(max(1, item.permits))
        me.claim = replace(me.claim, shared=mode.shared, permits=permits, permits_since_ms=0)
    return Left(
        item=item,
        rows=tuple(row for row in rows if row.created_at_ms <= youngest_ms),
        holder=holder,
        continuation=str(noted["continuation"]["S"]) if noted is not None and "continuation" in noted else None,
    )


def is_anything_left(me: Contender, session: Session, stopped_at_ms: int) -> Steps[bool]:
    """Whether there is anything to clean up. If not, wakes the next in line if it may take the lock, as a clean-up
    does.
    """
    left = yield from find(me, session, stopped_at_ms)
    if not left and _a_waiter_may_enter(left.item, me):
        yield from me.wake_next()
    return bool(left)


def clean_up(me: Contender, session: Session, stopped_at_ms: int, work_of: WorkOf) -> Steps[CleanedUp]:
    """Clean up after one fragment of an ended execution; the arguments are those of ``find``."""
    state = yield from find(me, session, stopped_at_ms)
    if state and state.continuation is not None:
        yield from close(me, state.continuation)
    state, left = yield from left_queue(me, session, stopped_at_ms)
    item, freed, held = state.item, False, False
    if item is not None and state.holder is not None:
        freed, held = yield from _free(me, session, hold_of(me.claim.lock, state.holder, item), work_of)
    yield from wake_a_waiter(me, item, left or freed)
    return CleanedUp(left=left, freed=freed, left_to_lease=held)


def left_queue(me: Contender, session: Session, stopped_at_ms: int) -> Steps[tuple[Left, int]]:
    """Delete the rows that a fragment has left; return what is left then, and how many were deleted."""
    state = yield from find(me, session, stopped_at_ms)
    left = 0
    while True:
        gone = 0
        for row in state.rows:
            # The count stays, as after a sweep: this may be a late copy of a row that is no longer counted.
            reply = yield from me.send(write.delete_my_row(me.claim, row.ticket))
            gone += reply.applied
        left += gone
        if gone == len(state.rows):
            return state, left
        # A row was deleted in between, perhaps by a last poll of the execution, with a grant.
        state = yield from find(me, session, stopped_at_ms)


def wake_a_waiter(me: Contender, item: LockItem | None, has_left: object) -> Steps[None]:
    """Wake the next in line after something has left the lock or the queue, or if it may take the lock anyway."""
    if has_left or _a_waiter_may_enter(item, me):
        yield from me.wake_next()


def _free(me: Contender, session: Session, held: Hold, work_of: WorkOf) -> Steps[tuple[bool, bool]]:
    """Return whether the lock was freed, and whether it is still held."""
    yield from stop(me, held, session)
    work = work_of(held.fencing_token)
    if work is None or not (yield from close(me, work)):
        return False, True
    try:
        # Without a wake-up: the clean-up wakes once, at its end.
        yield from me.free(held)
    except LockLost:
        return False, False
    return True, False


def close(me: Contender, execution: str, *, was_refused: bool = False) -> Steps[bool]:
    """Stop an execution; return whether it was seen closed.

    Args:
        was_refused: whether its start was refused: then, if the service does not know it, it never began. Otherwise it
            may be about to begin.
    """
    try:
        reply = yield from me.send(Closing(execution))
    except TableError:
        return False
    return reply.applied or was_refused


def _a_waiter_may_enter(item: LockItem | None, me: Contender) -> bool:
    """Whether ``waiting`` counts a waiter, and there is room."""
    if item is None or item.waiting == 0:
        return False
    expired = expired_holders(item, me.now)
    return any(item.room(mode, without=expired) > 0 for mode in MODES)


def _mine(item: LockItem | None, me: Contender, youngest_ms: int) -> Holder | None:
    holder = item.holder(me.claim.owner) if item is not None else None
    return holder if holder is not None and holder.since_ms <= youngest_ms else None
