"""What is done for an execution that ended without its own last steps: stopped, timed out, or failed unnamed.

Best effort: the lease is the guarantee. It leaves the queue, and frees a held lock at once only when the work is known
to have ended: a nested execution is stopped and seen closed; anything else is left to the end of its lease, since a
function that runs cannot be stopped, nor seen to have ended.

What is left is read by its keys, which the session keeps, and never looked for in the queue: many executions may end
at once. Nothing here trusts the order in which events arrive. The grant is read first and freed by its fencing token,
so one that came later stays, whoever has it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ticketlock.errors import LockLost, TableError
from ticketlock.locks import _reads as reads
from ticketlock.locks import _writes as write
from ticketlock.locks._items import Holder, LockItem, Row, Session, lock_key, row_key
from ticketlock.locks._modes import EXCLUSIVE, MODES
from ticketlock.locks._outcomes import Hold
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import expired_holders
from ticketlock.wire._attributes import Item, integer
from ticketlock.wire._requests import Steps
from ticketlock.wire._step_functions import Closing
from ticketlock.workflow._session import stop

# The event's date is the service's, those in the table are the table's, known within about a second.
_DATES_DIFFER_MS = 2_000

WorkOf = Callable[[int], str | None]
"""The execution that is the work of the grant with this fencing token; None for work of another kind."""


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """What was found and done.

    Attributes:
        left: how many places in the queue were given up.
        freed: whether a held lock was freed.
        left_to_lease: whether the lock is held still, until its lease ends.
    """

    left: int = 0
    freed: bool = False
    left_to_lease: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What one place of an execution has left in the table.

    Attributes:
        item: the lock item.
        rows: its rows in the queue.
        holder: its grant.
        continuation: the execution in which its wait went on last.
    """

    item: LockItem | None
    rows: tuple[Row, ...]
    holder: Holder | None
    continuation: str | None

    def __bool__(self) -> bool:
        return bool(self.rows) or self.holder is not None


def find(me: Contender, session: Session, stopped_at_ms: int) -> Steps[Left]:
    """Find what a place of an execution that is over has left, by the keys that its session keeps.

    One request where it has never waited, or has said that its work is finished; two otherwise, at any depth of the
    queue.

    Args:
        me: the execution's own claim, whose mode becomes that of the grant.
        session: of that place.
        stopped_at_ms: when the execution ended: what is younger belongs to a later life of it.
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
    rows = tuple(Row.parse(each) for each in found if each is not None)
    item = LockItem.parse(stored) if stored is not None else None
    holder = _mine(item, me, youngest_ms)
    if item is not None:
        # What the claim was, as far as it matters now, stands in the table.
        mode = holder.mode if holder is not None else EXCLUSIVE
        me.claim = replace(me.claim, shared=mode.shared, permits=mode.permits_to_ask(max(1, item.permits)))
    return Left(
        item=item,
        rows=tuple(row for row in rows if row.owner == me.claim.owner and row.created_at_ms <= youngest_ms),
        holder=holder,
        continuation=str(noted["continuation"]["S"]) if noted is not None and "continuation" in noted else None,
    )


def is_anything_left(me: Contender, session: Session, stopped_at_ms: int) -> Steps[bool]:
    """Whether there is anything to clean up; calls the next in line where nothing is in its way, as a clean-up does."""
    left = yield from find(me, session, stopped_at_ms)
    if not left and _somebody_may_enter(left.item, me):
        yield from me.call_next()
    return bool(left)


def clean_up(me: Contender, session: Session, stopped_at_ms: int, work_of: WorkOf) -> Steps[CleanedUp]:
    """Clean up after one place of an execution that is over.

    Args:
        me: the execution's own claim.
        session: of that place.
        stopped_at_ms: when the execution ended: what is younger belongs to a later life of it.
        work_of: finds the nested execution that is the work of a grant.
    """
    state = yield from find(me, session, stopped_at_ms)
    if state and state.continuation is not None:
        yield from close(me, state.continuation)
        state = yield from find(me, session, stopped_at_ms)
    left = 0
    while True:
        gone = 0
        for row in state.rows:
            # The count stays, as it does when a row is swept: this may be a late copy of one that was counted off.
            reply = yield from me.send(write.delete_my_row(me.claim, row.ticket))
            gone += reply.applied
        left += gone
        if gone == len(state.rows):
            break
        # Somebody else took one away meanwhile: perhaps a last look of the execution, with a grant.
        state = yield from find(me, session, stopped_at_ms)
    item, freed, held = state.item, False, False
    if item is not None and state.holder is not None:
        freed, held = yield from _free(me, session, _held(me, state.holder, item), work_of)
    if left or freed or _somebody_may_enter(item, me):
        yield from me.call_next()
    return CleanedUp(left=left, freed=freed, left_to_lease=held)


def _free(me: Contender, session: Session, held: Hold, work_of: WorkOf) -> Steps[tuple[bool, bool]]:
    """Whether the lock was freed, and whether it is held still."""
    yield from stop(me, held, session)
    work = work_of(held.fencing_token)
    if work is None or not (yield from close(me, work)):
        return False, True
    try:
        # The clean-up calls once, at its end.
        yield from me.free(held)
    except LockLost:
        return False, False
    return True, False


def close(me: Contender, execution: str, *, was_refused: bool = False) -> Steps[bool]:
    """Stop an execution; whether it was seen closed.

    Args:
        was_refused: its start was: then it has never begun if nobody knows it. Else it may be about to begin.
    """
    try:
        reply = yield from me.send(Closing(execution))
    except TableError:
        return False
    return reply.applied or was_refused


def _somebody_may_enter(item: LockItem | None, me: Contender) -> bool:
    """Whether somebody is counted in the queue, and there is room."""
    if item is None or item.waiting == 0:
        return False
    expired = expired_holders(item, me.now)
    return any(item.room(mode, without=expired) > 0 for mode in MODES)


def _mine(item: LockItem | None, me: Contender, youngest_ms: int) -> Holder | None:
    holder = item.holder(me.claim.owner) if item is not None else None
    return holder if holder is not None and holder.since_ms <= youngest_ms else None


def _held(me: Contender, holder: Holder, item: LockItem) -> Hold:
    return Hold(
        lock=me.claim.lock,
        owner=holder.owner,
        ticket=None,
        fencing_token=holder.fencing_token,
        lease_until_ms=holder.lease_until_ms,
        since_ms=holder.since_ms,
        mean_hold_ms=item.mean_hold_ms,
    )
