"""A release that grants the lock to the next waiter of its own process, in one transaction.

This saves the request between the two. The grant requires of the waiter's row and of the lock item what the waiter's
own grant would require: it is applied only while the waiter is in the queue. A waiter that does not learn of it finds
at its next poll that it holds the lock.
"""

from dataclasses import dataclass, replace

from ticketlock.locks import _grants as grants
from ticketlock.locks._claim import Claim
from ticketlock.locks._items import Holder
from ticketlock.locks._outcomes import BY_THE_OWNER, Grant, HandedOver, Hold, Position, Released, Releasing
from ticketlock.locks._protocol import Contender, check_data_left, hold_times
from ticketlock.wire._requests import Steps


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
        is_known = self.seen.is_next and self.seen.fencing_token is not None
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
    """
    if following.may_follow(held, me.claim):
        check_data_left(data_left)
        built, claim, place = me.now, following.claim, following.seen.place
        held_ms, mean_hold_ms = hold_times(held, built)
        token = following.seen.fencing_token or 0
        mode = me.claim.mode
        reply = yield from me.send(
            grants.hand_over(claim, built, place.ticket, token, held, mode, releasing, mean_hold_ms, data_left)
        )
        if reply.applied:
            by_ms = finished_at_ms if finished_at_ms is not None else built.latest_ms
            holder = Holder(
                claim.owner, token + 1, built.latest_ms + claim.lease_ms, built.likely_ms, claim.data, claim.shared
            )
            handed = HandedOver(holder, mean_hold_ms, data_left)
            return Released(held_ms, lease_was_over=held.lease_until_ms <= by_ms, handed=handed)
        releasing = replace(releasing, tried_before=releasing.tried_before or reply.repeated)
    return (yield from me.release(held, finished_at_ms, data_left=data_left, releasing=releasing))


def take_handed(me: Contender, seen: Position, handed: HandedOver) -> Steps[Grant | None]:
    """Report the grant that a release has written for this waiter.

    Args:
        me: the waiter.
        seen: the position from its last poll.
        handed: the grant from the release.

    Returns:
        The grant, with a full lease; None if it has been changed since: poll.
    """
    grant = yield from me.report(handed, handed.holder, seen.place.ticket)
    # Other shared waiters may take the lock beside this one.
    return replace(grant, next_may_enter=me.claim.shared) if grant is not None else None
