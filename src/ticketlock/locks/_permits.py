"""Which number of permits is in force, and the parts of a write that keep it so.

A caller's number is its own, or that of a deployment. Its own must be the lock's. A deployment's number carries when
its execution started: of two of them the later one is in force, and no request with an earlier one changes it back or
fails. An operator's limit replaces both; beneath it the later number is kept for the time when the limit is unset.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ticketlock.errors import PermitsMismatch
from ticketlock.locks import _conditions as only_if
from ticketlock.locks._items import LockItem
from ticketlock.locks._outcomes import Claim
from ticketlock.wire._requests import either, every


@dataclass(frozen=True, slots=True)
class Numbering:
    """What a write does with the lock's number of permits.

    Attributes:
        condition: what it requires of the number that is stored.
        changes: the clauses of its ``SET`` that store the claim's number.
        creates: whether it may create the lock item.
        room: the condition that a permit is free, by the number that is in force after the write.
    """

    condition: str
    changes: tuple[str, ...] = ()
    creates: bool = False
    room: str = only_if.A_PERMIT_IS_FREE

    def condition_with(self, *others: str) -> str:
        """The condition of a write that also requires these of an existing lock item."""
        existing = every(only_if.KNOWN_FORMAT, self.condition, *others)
        return either(only_if.NO_LOCK_ITEM, existing) if self.creates else existing

    def room_among(self, conditions: Iterable[str]) -> Sequence[str]:
        """A mode's conditions of room, by the number that is in force after the write."""
        return [self.room if each == only_if.A_PERMIT_IS_FREE else each for each in conditions]


_OWN = Numbering(only_if.PERMITS_AS_ASKED, ("permits = if_not_exists(permits, :permits)",), creates=True)
_LEFT = Numbering(only_if.PERMITS_AS_ASKED_OR_LATER)
_OF_NO_TIME = replace(
    _LEFT, changes=(*_OWN.changes, "permitsSinceMs = if_not_exists(permitsSinceMs, :since)"), creates=True
)
_LATER = Numbering(
    only_if.MY_PERMITS_ARE_LATER,
    ("permits = :permits", "permitsSinceMs = :since"),
    creates=True,
    room=only_if.A_PERMIT_OF_MINE_IS_FREE,
)
_LATER_BENEATH_A_LIMIT = Numbering(
    only_if.MY_PERMITS_ARE_LATER_BENEATH_A_LIMIT, ("permitsOfUsers = :permits", "permitsSinceMs = :since")
)


def numbering(claim: Claim, seen: LockItem | None) -> Numbering:
    """What the claim's next write does with the number.

    Args:
        seen: the lock item as the claim's owner last read it; None if it has not read one. If it has changed since, the
            write may be refused; the refusal shows the item.
    """
    if claim.permits_since_ms is None:
        return _OWN
    if seen is None:
        return _LATER if claim.permits_since_ms else _OF_NO_TIME
    if not _is_later(claim, seen):
        return _LEFT
    return _LATER_BENEATH_A_LIMIT if seen.permits_are_set else _LATER


def left_as_it_is(claim: Claim) -> str:
    """The condition of a grant that leaves the number: the claim's has counted when its owner joined the queue."""
    return only_if.PERMITS_AS_ASKED if claim.permits_since_ms is None else only_if.PERMITS_AS_ASKED_OR_LATER


def in_force(claim: Claim, seen: LockItem) -> LockItem:
    """The lock item with the number that is in force after the claim's next write."""
    return replace(seen, permits=claim.permits) if numbering(claim, seen) is _LATER else seen


def check_permits(claim: Claim, item: LockItem) -> None:
    """Check that the claim may use the lock with its number.

    Raises:
        PermitsMismatch: the lock has another number, which is not that of a deployment, or the claim's is not.
    """
    follows = claim.permits_since_ms is not None and item.permits_since_ms is not None
    if item.permits != claim.permits and not item.permits_are_set and not follows:
        raise PermitsMismatch(claim.permits, item.permits, claim.lock.entity)


def _is_later(claim: Claim, item: LockItem) -> bool:
    """Whether the claim's number is that of a later execution than the lock's."""
    if not claim.permits_since_ms:
        return False
    if item.permits_since_ms is not None:
        return item.permits_since_ms < claim.permits_since_ms
    # A lock whose users ask for their own number follows a deployment from the moment when both are the same.
    if item.permits_are_set:
        return item.permits_of_users in (None, claim.permits)
    return item.permits == claim.permits
