"""What is done for an execution that ended without its own last steps: stopped, timed out, or failed unnamed.

Best effort: the lease is the guarantee. It leaves the queue, and frees a held lock at once only when the work is known
to have ended: a nested execution is stopped and seen closed; anything else is left to the end of its lease, since a
function that runs cannot be stopped, nor seen to have ended.

Nothing here trusts the order in which events arrive. The grant is read first and freed by its fencing token, so one
that came later stays, whoever has it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ticketlock import _writes as write
from ticketlock._calls import call_next
from ticketlock._items import Holder, LockItem, Row, Session
from ticketlock._outcomes import Grant
from ticketlock._protocol import Contender
from ticketlock._queue import inspect
from ticketlock._requests import Closing, Steps
from ticketlock._session import abandon, continuation_of
from ticketlock.errors import LockLost, TableError

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


def clean_up(me: Contender, session: Session, stopped_at_ms: int, work_of: WorkOf) -> Steps[CleanedUp]:
    """Clean up after one place of an execution that is over.

    Args:
        me: the execution's own claim.
        session: of that place.
        stopped_at_ms: when the execution ended: what is younger belongs to a later life of it.
        work_of: finds the nested execution that is the work of a grant.
    """
    continuation = yield from continuation_of(me, session)
    if continuation is not None:
        yield from _close(me, continuation)
    state = yield from inspect(me.claim.lock, me.now)
    me.now = state.now
    youngest_ms = stopped_at_ms + _DATES_DIFFER_MS
    rows = [row for row in state.rows if row.owner == me.claim.owner and row.created_at_ms <= youngest_ms]
    present = state.item.holder(me.claim.owner) if state.item is not None else None
    holder = present if present is not None and present.since_ms <= youngest_ms else None
    won = yield from _leave(me, rows, holding=present is not None)
    if won is not None and won.since_ms > youngest_ms:
        won = None
    freed = False
    if holder is not None:
        freed = yield from _free(me, session, _grant(me, holder, state.item), work_of)
    elif won is not None:
        freed = yield from _free(me, session, won, work_of)
    if rows or freed:
        yield from call_next(me)
    held = holder is not None or won is not None
    return CleanedUp(left=len(rows), freed=freed, left_to_lease=held and not freed)


def _leave(me: Contender, rows: list[Row], *, holding: bool) -> Steps[Grant | None]:
    won: Grant | None = None
    for row in rows:
        if holding or won is not None:
            yield from me.ask(write.delete_my_row(me.claim, row.ticket))
        else:
            won = yield from me.withdraw(row.ticket)
    return won


def _free(me: Contender, session: Session, held: Grant, work_of: WorkOf) -> Steps[bool]:
    # Whatever beats still, in a continuation, gives up at this.
    yield from abandon(me, held, session)
    work = work_of(held.fencing_token)
    if work is None or not (yield from _close(me, work)):
        return False
    try:
        yield from me.release(held)
    except LockLost:
        return False
    return True


def _close(me: Contender, execution: str) -> Steps[bool]:
    try:
        reply = yield from me.ask(Closing(execution))
    except TableError:
        return False
    return reply.applied


def _grant(me: Contender, holder: Holder, item: LockItem | None) -> Grant:
    return Grant(
        lock=me.claim.lock,
        owner=holder.owner,
        ticket=None,
        fencing_token=holder.fencing_token,
        lease_until_ms=holder.lease_until_ms,
        deadline_ms=0,
        since_ms=holder.since_ms,
        mean_hold_ms=item.mean_hold_ms if item is not None else None,
    )
