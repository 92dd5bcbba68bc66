"""How a release hands the lock on: it wakes a parked workflow, or grants the lock to a waiter of its own process.

By callback: a waiter parks as a Step Functions callback task, and the releasing client wakes the next. A waiter writes
its task token into its session, **then** polls; a client that frees the lock frees it, **then** polls. So at least one
of the two sees the other. A wake-up is only a hint: the woken waiter polls and takes the lock itself, and a waiter that
is not woken polls when its task times out. So a lost, late, duplicate or forged wake-up costs only time.

In one process: the release grants the lock to the next waiter in its own transaction, which saves the request between
the two. The grant requires of the waiter's row and of the lock item what the waiter's own grant would require: it is
applied only while the waiter is in the queue. A waiter that does not learn of it finds at its next poll that it holds
the lock.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableRefused
from ticketlock.locks import _conditions as only_if
from ticketlock.locks import _grants as grants
from ticketlock.locks._items import Session, session_expires_at_s
from ticketlock.locks._outcomes import (
    BY_THE_OWNER,
    Claim,
    Grant,
    HandedOver,
    Hold,
    Place,
    Position,
    Released,
    Releasing,
    check_data,
)
from ticketlock.locks._protocol import Contender, granted_to, hold_times
from ticketlock.locks._queue import expired_holders, position_of, the_turn_is_known
from ticketlock.locks._writes import on_the_session
from ticketlock.wire import Steps, TaskAnswer, TransactWrite, number


@dataclass(frozen=True, slots=True)
class Next:
    """The next waiter in line.

    Attributes:
        claim: its claim.
        seen: the position from its last poll.
        wakes: whether it wakes the next in line itself when it learns of its grant.
    """

    claim: Claim
    seen: Position
    wakes: bool = True

    def may_follow(self, held: Hold, claim: Claim) -> bool:
        """Whether one write can release this hold and grant the lock to this waiter."""
        # A table of the same name in another account has the same locks, and no such holder.
        releasing = held.owner, held.fencing_token
        has_seen = any((each.owner, each.fencing_token) == releasing for each in self.seen.holders)
        is_known = self.seen.is_next and self.seen.fencing_token is not None and has_seen
        both_share = claim.shared and self.claim.shared
        return is_known and not both_share and self.claim.lock == held.lock and self.claim.owner != held.owner


def release_to(
    me: Contender,
    held: Hold,
    following: Next,
    finished_at_ms: int | None = None,
    *,
    data_left: str | None = None,
    releasing: Releasing = BY_THE_OWNER,
) -> Steps[Released]:
    """Free the lock and grant it to the next in line, in one transaction; if that is refused, only free it.

    Raises:
        LockLost, InvalidLockRequest: as in ``Contender.free``.
        OutcomeUnknown: neither request had an answer, and one of them may have been applied.
    """
    is_unclear = False
    if following.may_follow(held, me.claim):
        check_data("data_left", data_left)
        built, claim, place = me.now, following.claim, following.seen.place
        held_ms, mean_hold_ms = hold_times(held, built)
        token = following.seen.fencing_token or 0
        mode = me.claim.mode
        handing = grants.hand_over(claim, built, place.ticket, token, held, mode, releasing, mean_hold_ms, data_left)
        is_applied, is_unclear = yield from _send(me, handing)
        if is_applied:
            by_ms = finished_at_ms if finished_at_ms is not None else built.latest_ms
            handed = HandedOver(place.ticket, granted_to(claim, token + 1, built), mean_hold_ms, data_left)
            if not following.wakes and handed.leaves_room(claim.mode):
                yield from me.wake_next()
            return Released(held_ms, lease_was_over=held.lease_until_ms <= by_ms, handed=handed)
        releasing = replace(releasing, tried_before=releasing.tried_before or is_unclear)
    try:
        return (yield from me.release(held, finished_at_ms, data_left=data_left, releasing=releasing))
    except (RequestNotApplied, TableRefused) as error:
        if is_unclear:
            raise OutcomeUnknown(f"the release that was sent before may have been applied; then: {error}") from error
        raise


def _send(me: Contender, handing: TransactWrite) -> Steps[tuple[bool, bool]]:
    """Send a release that grants the lock. Returns whether it was applied; if not, whether an attempt may have been."""
    try:
        reply = yield from me.send(handing)
    except RequestNotApplied:
        return False, False
    except OutcomeUnknown:
        return False, True
    return reply.applied, reply.repeated


def take_handed(me: Contender, seen: Position, handed: HandedOver) -> Steps[Grant | None]:
    """Report the grant that a release has written for this waiter, whose last poll found the position ``seen``.

    None if it has been changed since, or if the waiter has joined the queue again: a poll finds the grant, and deletes
    the other row.
    """
    if handed.ticket != seen.place.ticket:
        return None
    grant = yield from me.report(handed, handed.holder, handed.ticket)
    if grant is None or not grant.next_may_enter:
        return grant
    yield from me.wake_next()
    return me.as_known_now(grant)


def await_wake_up(
    me: Contender,
    place: Place,
    session: Session,
    task_token: str,
    park_number: int,
    may_stay: Callable[[Position], bool],
) -> Steps[Position | None]:
    """Park: store the callback task's token, extend the queue row, and end the task at once if it should poll now.

    Args:
        park_number: rises with each try to park: a token older than the stored one is not written.
        may_stay: whether a waiter with this position may stay parked for as long as the task lasts.

    Returns:
        Its position, if it stays parked. None if the task was ended: its turn may have come, its row is lost, or
        ``may_stay`` was False.
    """
    yield from store_wake_up_token(me, session, task_token, park_number)
    seen = yield from _still_waiting(me, place)
    if seen is not None and may_stay(seen):
        return seen
    yield from me.send(TaskAnswer(task_token))
    return None


def store_wake_up_token(me: Contender, session: Session, task_token: str, park_number: int) -> Steps[None]:
    """Store the token by which a waiter is woken, **before** it polls; an older one than that of this park."""
    update = "SET wakeUpToken = :task_token, park = :park, expiresAt = :expires_at"
    expires_at = number(session_expires_at_s(me.now.latest_ms + me.row_lease_ms))
    values = {":task_token": {"S": task_token}, ":park": number(park_number), ":expires_at": expires_at}
    yield from me.send(on_the_session(session, update, only_if.NO_LATER_PARK, values))


def _still_waiting(me: Contender, place: Place) -> Steps[Position | None]:
    """Poll, and extend the queue row; None if the turn may have come, or the row is lost."""
    queue = yield from me.read_queue(the_turn_is_known)
    item = queue.item
    if item is None or place.ticket <= item.void_up_to or item.holder(me.claim.owner) is not None:
        return None
    if queue.mine:
        place = Place(queue.mine[0].ticket, queue.mine[0].lease_until_ms)
        if queue.may_enter(place.ticket, expired_holders(item, me.now)):
            return None
    elif queue.surely_lacks(place.ticket):
        return None
    kept = yield from me.extend(place, is_read=bool(queue.mine))
    if kept is None:
        return None
    yield from me.wake_if_idle(queue)
    return position_of(item, kept, me.now, queue.ahead_of(kept.ticket), queue.turns_before(kept.ticket))
