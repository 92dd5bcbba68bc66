"""Claims, and the results of the protocol's operations."""

from dataclasses import dataclass
from typing import Any

from ticketlock._checks import boolean, text, whole_number
from ticketlock._value import value
from ticketlock.errors import InvalidLockRequest, RecordWaitExceeded
from ticketlock.locks._items import Holder, LockItem, LockName, Row, Session, lock_name, owner_id
from ticketlock.locks._modes import EXCLUSIVE, MAX_HOLDERS, SHARED, Mode
from ticketlock.wire import Moment

MIN_LEASE_MS = 1_000
LONGEST_EXECUTION_MS = 366 * 24 * 3_600_000
"""Of a durable execution: https://docs.aws.amazon.com/lambda/latest/dg/durable-configuration.html."""
MAX_LEASE_MS = 7 * 24 * 3_600_000
DATA_BYTES = 1_024
# Each later write of the lock bills these bytes, too.
_DECISION_BYTES = 256


@value(frozen=True, slots=True)
class Invocation:
    """One invocation of a durable execution. The service begins one after another, and may not see the end of one.

    Attributes:
        id: distinguishes it from the others.
        ends_ms: when the service ends it at the latest, by the service's own clock, milliseconds since the epoch: so
            the one that began later has a later end.
        not_after_local_ms: the same moment on the local clock: from then on it sends no renewal.
    """

    id: str
    ends_ms: int
    not_after_local_ms: int | None = None


@value(frozen=True, slots=True)
class Claim:
    """The parameters of one acquisition.

    Attributes:
        lock: the lock's name.
        owner: the identity of this acquisition, chosen before the first request; every retry carries it.
        lease_ms: how long a grant, or a queue row, is valid unless it is renewed: 1 second to 7 days.
        permits: how many may hold the lock at once, 1 to 100. The first use of a lock sets its permits.
        shared: whether to hold the lock together with other holders that share it, up to 100. If False, at most
            ``permits`` owners hold it.
        permits_since_ms: None for the caller's own number of permits. For a deployment's: when the execution that asks
            started; of two deployments' numbers the later one is in force. 0 changes no lock's number.
        data: up to 1,024 bytes that are shown beside the holder.
        session: where a parked waiter stores its task token, so that it can be woken; None if it only polls.
        noted_in: the session item that records each ticket before its row is written, so that a clean-up finds the
            row by its key; None without a clean-up.
        invocation: that of the durable execution which writes: a later one has resumed the grant for itself, and this
            one neither renews nor releases it. None for whoever is no durable execution.

    Raises:
        InvalidLockRequest: a field is out of its bounds.
    """

    lock: LockName
    owner: str
    lease_ms: int
    permits: int = 1
    data: str | None = None
    session: Session | None = None
    shared: bool = False
    noted_in: Session | None = None
    permits_since_ms: int | None = None
    invocation: Invocation | None = None

    def __post_init__(self) -> None:
        lock_name(self.lock)
        owner_id(self.owner)
        boolean("shared", self.shared)
        whole_number("lease_ms", self.lease_ms, MIN_LEASE_MS, MAX_LEASE_MS)
        whole_number("permits", self.permits, 1, MAX_HOLDERS)
        if self.permits != self.mode.permits_to_ask(self.permits):
            raise InvalidLockRequest("permits", self.permits, "1 if shared is true: up to 100 may share a lock")
        check_data("data", self.data)

    @property
    def mode(self) -> Mode:
        """Whether it holds the lock exclusively or shared."""
        # As `mode_of`, without its call: each write asks several times.
        return SHARED if self.shared else EXCLUSIVE


def check_data(field: str, data: str | None) -> None:
    """Check the data that is shown beside a holder, or left for the next one."""
    if data is not None:
        text(field, data, DATA_BYTES)


def check_lease(lease_ms: int, client: Any) -> None:
    """Refuse a lease that could end during one request that hangs: shorter than four read time-outs of the client."""
    read_timeout_s = client.meta.config.read_timeout
    if read_timeout_s * 4_000 > lease_ms:
        allowed = f"at least {read_timeout_s * 4:g} s, four read time-outs of the client ({read_timeout_s} s each)"
        raise InvalidLockRequest("lease", f"{lease_ms / 1_000:g} s", allowed)


@value(frozen=True, slots=True)
class Hold:
    """A grant in the form that can be passed to another process: what a renewal or a release needs.

    Attributes:
        lock, owner: the lock, and its holder.
        ticket: its ticket; None if the reply to the request that took the lock was lost.
        fencing_token: greater than that of every earlier grant of this lock; renewals keep it.
        lease_until_ms: the end of the lease in table time, milliseconds since the epoch.
        since_ms: about when the lock was granted, table time.
        mean_hold_ms: how long recent holders held it, for statistics; None before the first release.
    """

    lock: LockName
    owner: str
    ticket: int | None
    fencing_token: int
    lease_until_ms: int
    since_ms: int
    mean_hold_ms: int | None


def hold_of(lock: LockName, holder: Holder, item: LockItem) -> Hold:
    """The grant of a holder, as the lock item has it."""
    return Hold(
        lock=lock,
        owner=holder.owner,
        ticket=None,
        fencing_token=holder.fencing_token,
        lease_until_ms=holder.lease_until_ms,
        since_ms=holder.since_ms,
        mean_hold_ms=item.mean_hold_ms,
    )


@value(frozen=True, slots=True)
class Grant(Hold):
    """A grant, and until when this process may rely on it.

    Attributes:
        deadline_ms: on the local clock; from then on the holder must not rely on the lock.
        deadline_wall_ms: the same moment on the wall clock, converted when the lock was known to be held. If the
            machine is frozen and its local clock stops, this one still shows that the lease has ended.
        took_over: how many expired holders this grant removed.
        data_left: the data that the last holder left for the next.
        next_may_enter: whether there are waiters, and room for another holder in the same mode.
    """

    deadline_ms: int
    deadline_wall_ms: int
    took_over: int = 0
    data_left: str | None = None
    next_may_enter: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A waiter's place in the queue: its ticket and the lease of its queue row.

    Attributes:
        ticket: orders the queue.
        lease_until_ms: when the row's lease ends unless it is extended, table time.
    """

    ticket: int
    lease_until_ms: int


@dataclass(frozen=True, slots=True)
class Position:
    """What a waiter learns from one poll.

    Attributes:
        place: its ticket and row; new ones if ``place_lost``.
        ahead: how many live rows are before its own; an upper bound if the poll did not reach its row.
        next_free_ms: about when a holder leaves, table time: by the mean hold, at the latest when its lease ends.
        mean_hold_ms: how long recent holders held the lock; None if it is not known.
        holders: the holders of the lock.
        lease_over_ms: when the first lease of a holder ends, table time; None without a holder.
        now: the moment of the poll.
        turns: how many turns come before its own: waiters that may hold the lock together count once.
        fencing_token: that of the last grant; None if the item was not read.
        place_lost: True if its row was swept or removed, or its ticket void, so that it has joined again.
        permits: how many may hold the lock at once; 0 if an operator has closed it; None if the item was not read.
        is_next: whether the poll found its row in the queue, and no live one before it.
        lock: what it waits for; None if a verb of ``LockTable`` returns it.
        waited_ms: for how long, by the local clock; 0 from such a verb.
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
    lock: LockName | None = None
    waited_ms: int = 0

    @property
    def is_closed(self) -> bool:
        """Whether an operator has closed the lock by setting its limit to 0."""
        return self.permits == 0


@dataclass(frozen=True, slots=True)
class Decision:
    """An operator's decision about a lock that others use; the lock item keeps it, for who looks later.

    Attributes:
        by: who decides: 1 to 256 bytes of text.
        why: for what reason: up to 256 bytes of text.

    Raises:
        InvalidLockRequest: a field is out of its bounds.
    """

    by: str
    why: str

    def __post_init__(self) -> None:
        text("by", self.by, _DECISION_BYTES)
        if self.why != "":
            text("why", self.why, _DECISION_BYTES)


@dataclass(frozen=True, slots=True)
class Forcing:
    """How an operator takes a lock from its holder.

    Attributes:
        decision: who decides, and why.
        seen: the lock item as the operator read it.
    """

    decision: Decision
    seen: LockItem


@value(frozen=True, slots=True)
class Releasing:
    """Who frees a lock, and how: distinguishes an earlier try of the same release from a release by another client.

    Attributes:
        by: an identity chosen before the first request, the same in every try; the owner itself by default.
        tried_before: whether an earlier call may have freed the lock.
        in_place: True if the holder has not asked for it: then its lease may have ended.
        by_force: for an operator that takes the lock from its holder.
    """

    by: str | None = None
    tried_before: bool = False
    in_place: bool = False
    by_force: Forcing | None = None


BY_THE_OWNER = Releasing()


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A grant that a release has written for the next waiter in line.

    Attributes:
        ticket: the waiter's; its row is deleted.
        holder: the waiter, as a holder in the lock item.
        mean_hold_ms, data_left: their values after the release.
    """

    ticket: int
    holder: Holder
    mean_hold_ms: int | None
    data_left: str | None

    def leaves_room(self, mode: Mode) -> bool:
        """Whether others may hold the lock beside it in this mode; it does not know whether any wait."""
        return mode is SHARED


@value(frozen=True, slots=True)
class Released:
    """The lock is free.

    Attributes:
        held_ms: about how long it was held.
        lease_was_over: True if the lease had ended before the release, although no other owner had taken the lock yet.
        waiting: the count of waiters; None if an earlier try had freed the lock already, or if the release granted the
            lock to the next in line.
        fencing_token: that of the last grant of this lock, whichever owner had it; None likewise.
        handed: the grant that the release has written for the next in line; None if it has written none.
    """

    held_ms: int
    lease_was_over: bool
    waiting: int | None = None
    fencing_token: int | None = None
    handed: HandedOver | None = None


@dataclass(frozen=True, slots=True)
class LockState:
    """One lock as it is stored.

    Attributes:
        item: counters and holders; None if the lock has never been used, or time to live has deleted its item.
        rows: the queue in ticket order, with expired and void rows.
        now: the moment when the last page was read.
    """

    item: LockItem | None
    rows: tuple[Row, ...]
    now: Moment


def wait_is_over(seen: Position) -> RecordWaitExceeded:
    """The error of a record wait that ended with this poll; it names the holders."""
    place = "was next in line" if seen.ahead == 0 else f"had {seen.ahead} ahead"
    why = f"ticket {seen.place.ticket} {place} when the record wait ended"
    return _in_vain(why, seen.holders, is_closed=seen.is_closed)


def is_closed(seen: Position) -> RecordWaitExceeded:
    """The error of a wait that does not outlast a closed lock; it names the holders."""
    return _in_vain("the lock cannot be taken until it is opened", seen.holders, is_closed=True)


def no_wait(seen: LockItem | None) -> RecordWaitExceeded:
    """The error of a record wait of 0; it names the holders of the item, if it was read."""
    why = "the lock cannot be taken at once, and the record wait is 0"
    return _in_vain(why) if seen is None else _in_vain(why, seen.holders, is_closed=seen.permits == 0)


def _in_vain(why: str, holders: tuple[Holder, ...] = (), *, is_closed: bool = False) -> RecordWaitExceeded:
    named = ((holder.owner, holder.since_ms, holder.lease_until_ms) for holder in holders)
    return RecordWaitExceeded(why, named, is_closed=is_closed)
