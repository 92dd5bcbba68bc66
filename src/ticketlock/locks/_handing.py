"""A release that grants the lock to the next waiter of its own process, in one transaction.

This saves the request between the two. The grant requires of the waiter's row and of the lock item what the waiter's
own grant would require: it is applied only while the waiter is in the queue. A waiter that does not learn of it finds
at its next poll that it holds the lock.
"""

from dataclasses import dataclass, replace

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableRefused
from ticketlock.locks import _grants as grants
from ticketlock.locks._claim import Claim
from ticketlock.locks._items import Holder
from ticketlock.locks._outcomes import BY_THE_OWNER, Grant, HandedOver, Hold, Position, Released, Releasing
from ticketlock.locks._protocol import Contender, check_data_left, hold_times
from ticketlock.wire._requests import Steps, TransactWrite


@dataclass(frozen=True, slots=True)
class Next:
    """The next waiter in line.

    Attributes:
        claim: its claim.
        seen: the position from its last poll.
    """

    claim: Claim
    seen: Position

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

    Args:
        me: the holder.
        held, finished_at_ms, data_left, releasing: as in ``Contender.free``.
        following: the waiter to grant it to.

    Raises:
        LockLost, InvalidLockRequest: as in ``Contender.free``.
        OutcomeUnknown: neither request had an answer, and one of them may have been applied.
    """
    is_unclear = False
    if following.may_follow(held, me.claim):
        check_data_left(data_left)
        built, claim, place = me.now, following.claim, following.seen.place
        held_ms, mean_hold_ms = hold_times(held, built)
        token = following.seen.fencing_token or 0
        mode = me.claim.mode
        handing = grants.hand_over(claim, built, place.ticket, token, held, mode, releasing, mean_hold_ms, data_left)
        is_applied, is_unclear = yield from _is_applied(me, handing)
        if is_applied:
            by_ms = finished_at_ms if finished_at_ms is not None else built.latest_ms
            holder = Holder(
                claim.owner, token + 1, built.latest_ms + claim.lease_ms, built.likely_ms, claim.data, claim.shared
            )
            handed = HandedOver(place.ticket, holder, mean_hold_ms, data_left)
            return Released(held_ms, lease_was_over=held.lease_until_ms <= by_ms, handed=handed)
        releasing = replace(releasing, tried_before=releasing.tried_before or is_unclear)
    try:
        return (yield from me.release(held, finished_at_ms, data_left=data_left, releasing=releasing))
    except (RequestNotApplied, TableRefused) as error:
        if is_unclear:
            raise OutcomeUnknown(f"the release that was sent before may have been applied; then: {error}") from error
        raise


def _is_applied(me: Contender, handing: TransactWrite) -> Steps[tuple[bool, bool]]:
    """Whether a release that grants the lock was applied; and if not, whether an attempt may have been."""
    try:
        reply = yield from me.send(handing)
    except RequestNotApplied:
        return False, False
    except OutcomeUnknown:
        return False, True
    return reply.applied, reply.repeated


def take_handed(me: Contender, seen: Position, handed: HandedOver) -> Steps[Grant | None]:
    """Report the grant that a release has written for this waiter.

    Args:
        me: the waiter.
        seen: the position from its last poll.
        handed: the grant from the release.

    Returns:
        The grant, with a full lease; None if it has been changed since, or if the waiter has joined the queue again: a
        poll finds the grant, and deletes the other row.
    """
    if handed.ticket != seen.place.ticket:
        return None
    grant = yield from me.report(handed, handed.holder, handed.ticket)
    if grant is None or not grant.next_may_enter:
        return grant
    yield from me.wake_next()
    return me.as_known_now(grant)
