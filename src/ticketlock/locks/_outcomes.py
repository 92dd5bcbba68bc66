"""What an operation of the protocol ends with, as values."""

from dataclasses import dataclass

from ticketlock.errors import RecordWaitExceeded
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._names import LockName
from ticketlock.wire._table_time import Moment


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold as it can be handed on to another process: what it takes to renew it or to free it.

    Attributes:
        lock, owner: whose it is.
        ticket: its number; None when an earlier, repeated request took the lock and its reply was lost.
        fencing_token: greater than that of every earlier grant of this lock, unchanged by renewals.
        lease_until_ms: the end of the lease in table time, milliseconds since the epoch.
        since_ms: about when the lock was granted, table time.
        mean_hold_ms: how long recent holders kept it, for statistics; None before the first release.
    """

    lock: LockName
    owner: str
    ticket: int | None
    fencing_token: int
    lease_until_ms: int
    since_ms: int
    mean_hold_ms: int | None


@dataclass(frozen=True, slots=True)
class Grant(Hold):
    """One acquisition that holds the lock: also until when this process may count on it.

    Attributes:
        deadline_ms: on the local clock, the moment from which on the holder must not count on the lock any more.
        deadline_wall_ms: the same moment on the wall clock, as it was when the lock was known to be held: a machine
            that is frozen afterwards, its local clock with it, finds it over by this one.
        took_over: how many expired holders this grant removed.
        data_left: what the last holder left for the next.
        next_may_enter: whether somebody waits, and there was room for another one of the same kind.
    """

    deadline_ms: int
    deadline_wall_ms: int
    took_over: int = 0
    data_left: str | None = None
    next_may_enter: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the queue.

    Attributes:
        ticket: its number.
        lease_until_ms: until when the row stands without being extended, table time.
    """

    ticket: int
    lease_until_ms: int


@dataclass(frozen=True, slots=True)
class Position:
    """What a waiter learned by looking.

    Attributes:
        place: its place; a new one when ``place_lost``.
        ahead: how many live rows stand before it; an upper bound when it is not among the first.
        next_free_ms: about when a holder leaves, table time: by the mean hold, at the latest when its lease ends.
        mean_hold_ms: how long a holder keeps the lock, as far as is known.
        holders: who holds the lock.
        lease_over_ms: when a holder's lease ends, table time; None when nobody holds.
        now: the moment of the look.
        turns: how many turns before its own: those who may enter together count once.
        fencing_token: that of the last grant; None when the item was not seen.
        place_lost: True when the old place was swept or removed, or its number void, and another had to be taken.
        permits: how many may hold the lock at once; 0 where an operator has closed it; None when the item was not seen.
        is_next: whether the poll found its row in the queue, and no live one before it.
    """

    place: Place
    ahead: int
    next_free_ms: int | None
    mean_hold_ms: int | None
    holders: tuple[Holder, ...]
    now: Moment
    lease_over_ms: int | None = None
    place_lost: bool = False
    turns: int = 0
    fencing_token: int | None = None
    permits: int | None = None
    is_next: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether nobody can take the lock, since an operator has set its limit to 0."""
        return self.permits == 0


@dataclass(frozen=True, slots=True)
class Releasing:
    """Who frees a lock, and how: what tells a release of one's own that was applied before from somebody else's.

    Attributes:
        by: an identity chosen before the first request, the same in every try; the owner itself by default.
        tried_before: whether an earlier try, with requests of its own, may have freed it.
        in_place: whether the holder has not asked for it: then it does not matter whether its lease has ended.
        by_force: the lock item as an operator saw it who takes the lock from its holder.
    """

    by: str | None = None
    tried_before: bool = False
    in_place: bool = False
    by_force: LockItem | None = None


BY_THE_OWNER = Releasing()


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A grant that a release has written for the next waiter in line.

    Attributes:
        holder: the waiter, as the lock item has it now.
        mean_hold_ms, data_left: as the release left them.
    """

    holder: Holder
    mean_hold_ms: int | None
    data_left: str | None


@dataclass(frozen=True, slots=True)
class Released:
    """The lock is free.

    Attributes:
        held_ms: about how long it was held.
        lease_was_over: True when the lease had ended before the release, though nobody had taken the lock yet.
        waiting: how many were counted in the queue; None when an earlier try had freed the lock already, or when the
            release granted it to the next in line.
        fencing_token: of the last grant of this lock, whichever that was; None likewise.
        handed: the grant for the next in line that the release has written; None where it has written none.
    """

    held_ms: int
    lease_was_over: bool
    waiting: int | None = None
    fencing_token: int | None = None
    handed: HandedOver | None = None


@dataclass(frozen=True, slots=True)
class LockState:
    """One lock as it stands in the table.

    Attributes:
        item: counters and holders; None when the lock has never been used, or its item was cleaned away.
        rows: the queue, in ticket order, dead rows included.
        now: the moment of the last page.
    """

    item: LockItem | None
    rows: tuple[Row, ...]
    now: Moment


def wait_is_over(seen: Position) -> RecordWaitExceeded:
    """The error of a record wait that ended with this look; it names those who were in the way."""
    place = "was next in line" if seen.ahead == 0 else f"had {seen.ahead} ahead"
    why = f"ticket {seen.place.ticket} {place} when the record wait ended"
    return _in_vain(why, seen.holders, is_closed=seen.is_closed)


def no_wait(seen: LockItem | None) -> RecordWaitExceeded:
    """The error of a record wait of 0, with the item as it was seen; it names those who were in the way."""
    why = "the lock cannot be taken at once, and the record wait is 0"
    return _in_vain(why) if seen is None else _in_vain(why, seen.holders, is_closed=seen.permits == 0)


def _in_vain(why: str, holders: tuple[Holder, ...] = (), *, is_closed: bool = False) -> RecordWaitExceeded:
    named = ((holder.owner, holder.since_ms, holder.lease_until_ms) for holder in holders)
    return RecordWaitExceeded(why, named, is_closed=is_closed)
