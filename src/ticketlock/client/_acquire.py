"""One acquisition: join the queue, poll and sleep until the turn comes, and leave the queue if the wait ends early."""

from collections.abc import Callable, Collection

from ticketlock.client._pace import Pace
from ticketlock.errors import OutcomeUnknown, PermitsMismatch, RequestNotApplied, TableRefused
from ticketlock.locks._handing import take_handed
from ticketlock.locks._outcomes import Grant, HandedOver, Position, wait_is_over
from ticketlock.locks._protocol import Contender
from ticketlock.wire._requests import Pause, Steps

_PATIENCE_MS = 1_500


def acquire(
    me: Contender,
    record_wait_ms: int | None,
    pace: Pace,
    *,
    on_wait: Callable[[Position], object],
    jitter: Callable[[], float],
    others_wait: bool = False,
    wakes: Callable[[], HandedOver | None] = lambda: None,
    will_be_woken: Callable[[Position], bool] = lambda _: False,
) -> Steps[Grant]:
    """Wait for the lock and take it.

    Args:
        me: the contender.
        record_wait_ms: the record wait, by the local clock; None for ever; 0 to fail instead of queueing.
        pace: decides when to poll.
        on_wait: called with the position after each poll that found that it is not the turn.
        jitter: random numbers in [0, 1).
        others_wait: as in ``Contender.take_ticket``.
        wakes: called when a sleep ends; returns the grant that a release in this process has written for this
            waiter, or None.
        will_be_woken: whether the lock, as the last poll found it, will be released in this process.

    Raises:
        RecordWaitExceeded: the record wait has ended; the contender has left the queue.
        PermitsMismatch: the lock has another number of permits by now; the contender has left the queue.
        TableError: the table could not be used until the queue row's lease ended; what was written delays other waiters
            by one lease at most.
    """
    began_ms = me.now.local_ms
    # The pace leaves a quarter of the row's lease, so extending the row below half of it is enough for the sleeps.
    me.row_kept_ms = me.claim.lease_ms // 2
    found: Grant | Position = yield from me.take_ticket(record_wait_ms, others_wait=others_wait)
    while isinstance(found, Position):
        rest_ms = None if record_wait_ms is None else began_ms + record_wait_ms - me.now.local_ms
        if rest_ms is not None and rest_ms <= 0:
            won = yield from me.withdraw(found.place.ticket)
            if won is not None:
                return won
            raise wait_is_over(found)
        on_wait(found)
        sleep_ms = pace.sleep_ms(
            found,
            lease_ms=me.claim.lease_ms,
            rest_ms=rest_ms,
            jitter=jitter(),
            will_be_woken=will_be_woken(found),
        )
        yield from me.send(Pause(sleep_ms))
        found = yield from _next_poll(me, found, wakes(), began_ms, record_wait_ms, jitter() * pace.longest_ms)
    return found


def _next_poll(
    me: Contender,
    seen: Position,
    handed: HandedOver | None,
    began_ms: int,
    record_wait_ms: int | None,
    pause_ms: float,
) -> Steps[Grant | Position]:
    """Poll. While the table is unreachable keep trying until the lease of the queue row ends.

    Returns:
        The result of the poll, or the last position if the record wait has ended.
    """
    while True:
        try:
            if handed is not None and (won := (yield from take_handed(me, seen, handed))) is not None:
                return won
            return (yield from me.check_turn(seen.place, None))
        except PermitsMismatch:
            # While an operator's limit counted, the permits that the claim asks for did not matter.
            left = yield from me.withdraw(seen.place.ticket)
            if left is not None:
                yield from me.release(left, data_left=left.data_left)
            raise
        except (RequestNotApplied, OutcomeUnknown, TableRefused):
            yield from me.send(Pause(pause_ms))
            if me.now.latest_ms >= seen.place.lease_until_ms:
                raise
            if record_wait_ms is not None and me.now.local_ms >= began_ms + record_wait_ms:
                return seen


def leave(me: Contender, tickets: Collection[int] = (), *, only_the_place: bool = False) -> Steps[None]:
    """Undo an acquisition that was interrupted: delete its queue rows, release its grant.

    Args:
        tickets: the last ones that the waiter knows of. A release may be granting it the lock, or its row is being
            written: while such a transaction is being applied, a read may find neither its row nor the grant, and a
            withdrawal waits for the end.
        only_the_place: keep a grant, since another process with the same owner may be working under it.
    """
    queue = yield from me.read_queue(lambda seen: bool(seen.mine), _PATIENCE_MS, only_leaves=True)
    holder = queue.item.holder(me.claim.owner) if queue.item is not None else None
    for each in sorted({row.ticket for row in queue.mine} | set(tickets)):
        won = yield from me.withdraw(each)
        if won is not None and not only_the_place:
            yield from me.release(won, data_left=won.data_left)
            holder = None
    if queue.item is not None and holder is not None and not only_the_place:
        held = yield from me.renew(holder.fencing_token)
        yield from me.release(held, data_left=queue.item.data_left)
