"""The writes of the protocol except the grants: one request for each operation, one line for each clause.

``_protocol.py`` decides who may send which, and what a refusal means. ``_grants.py`` has the grants.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ticketlock.errors import PermitsMismatch
from ticketlock.locks import _conditions as only_if
from ticketlock.locks._items import (
    FORMAT,
    LockItem,
    LockName,
    Row,
    Session,
    forced_attribute,
    holder_attribute,
    lock_key,
    row_key,
    session_expires_at_s,
    token_attribute,
)
from ticketlock.locks._outcomes import MIN_LEASE_MS, Claim, Decision, Hold, Releasing
from ticketlock.wire import Moment, TransactWrite, Write, either, every, number

JOIN_DEADLINE_MS = 1_000
MINTED_TOGETHER_MS = 1_000
"""The lock item's time of the last ticket is at most this much earlier than the last ticket."""
_DAY_S = 24 * 3_600
_LOCK_ITEM_OUTLIVES_ITS_USE_S = 28 * _DAY_S

# Every write of the lock item postpones its time to live, so that only unused locks are deleted. An item with an
# operator's limit is kept for ever.
LOCK_EXPIRES = "expiresAt = if_not_exists(permitsKeptUntil, :expires_at)"
# Any write that creates the lock item sets all its attributes. Tickets and tokens start at the epoch's milliseconds:
# so after a deletion of the item tokens still rise, and older rows are void.
CREATION = (
    "#format = :format",
    "voidUpTo = if_not_exists(voidUpTo, :epoch)",
    "tokensAfter = if_not_exists(tokensAfter, :epoch)",
)
LAST_ISSUED = "if_not_exists(issued, :epoch)"
LAST_TOKEN = "if_not_exists(fencingToken, :epoch)"
# The year 9000.
_KEPT_UNTIL_S = 221_845_392_000


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
    """Check that the claim may use the lock with its number."""
    if not may_ask(claim, item):
        raise PermitsMismatch(claim.permits, item.permits, claim.lock.entity)


def may_ask(asked: Claim | Row, item: LockItem) -> bool:
    """Whether the lock can be used with this number: it is the lock's, or another one replaces it."""
    follows = asked.permits_since_ms is not None and item.permits_since_ms is not None
    return asked.permits == item.permits or item.permits_are_set or follows


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


def mint_ticket(claim: Claim, now: Moment, seen: LockItem | None = None) -> Write:
    """Mint a ticket. The only write that is not idempotent: a duplicate mints another; the count is healed later.

    It requires that its owner is not a holder yet: a release may have granted it the lock, and then its row is gone.

    The time of the last ticket, by which a healing grant judges whether all rows are there, only moves forward: a late
    copy is refused. Who has just read a time of this second, or a later one of another's bounds, leaves it, and is not
    refused because others mint at the same time.
    """
    permits = numbering(claim, seen)
    is_latest = seen is None or seen.ticket_at_ms < now.latest_ms - MINTED_TOGETHER_MS
    changes = [
        *CREATION,
        *permits.changes,
        f"fencingToken = {LAST_TOKEN}",
        "held = if_not_exists(held, :zero)",
        "heldShared = if_not_exists(heldShared, :zero)",
        f"issued = {LAST_ISSUED} + :one",
        "waiting = if_not_exists(waiting, :zero) + :one",
        "ticketAtMs = :now" if is_latest else "ticketAtMs = if_not_exists(ticketAtMs, :now)",
    ]
    in_order = (only_if.MY_TICKET_IS_THE_LATEST,) if is_latest else ()
    condition = permits.condition_with(only_if.NOT_A_HOLDER_YET, *in_order)
    return on_the_lock(claim, now, changes, condition, returns="ALL_NEW")


def note_ticket(claim: Claim, session: Session, ticket: int, now: Moment) -> Write:
    """Record in the session the owner, the lock and the ticket before the row is written: a clean-up reads only that.

    The two newest tickets are kept: a first step that runs twice joins twice.
    """
    # A fragment has recorded its session before, with an expiry that outlives every wait: keep that one.
    expiry = "expiresAt = if_not_exists(expiresAt, :expires_at)"
    return on_the_session(
        session,
        f"SET {THE_CLAIM}, earlierTicket = if_not_exists(ticket, :ticket), ticket = :ticket, {expiry}",
        only_if.NO_LATER_TICKET,
        {**the_claim(claim), ":ticket": number(ticket), ":expires_at": _row_expires_at(claim, now)},
    )


THE_CLAIM = "entity = :entity, #namespace = :namespace, #owner = :me, leaseMs = :lease_ms"


def the_claim(claim: Claim) -> dict[str, Any]:
    """The values of ``THE_CLAIM``, by which a session records a claim."""
    return {
        ":entity": {"S": claim.lock.entity},
        ":namespace": {"S": claim.lock.namespace},
        ":me": {"S": claim.owner},
        ":lease_ms": number(claim.lease_ms),
    }


def on_the_session(
    session: Session,
    update: str,
    condition: str,
    values: Mapping[str, Any],
    returns: Literal["NONE", "ALL_NEW"] = "NONE",
) -> Write:
    """An update of a session item."""
    names = {"#namespace": "namespace", "#owner": "owner"}
    return Write(
        "Update", session.key(), condition=condition, update=update, names=names, values=values, returns=returns
    )


def put_row(claim: Claim, ticket: int, minted_local_ms: int, now: Moment) -> Write:
    """Write the queue row, unless the ticket is so old that a healing grant may have declared it void."""
    return replace(_row(claim, ticket, now), not_after_local_ms=minted_local_ms + JOIN_DEADLINE_MS)


def join_together(claim: Claim, seen: LockItem, now: Moment, *, counted: bool) -> TransactWrite:
    """Mint the next ticket together with its row, if no other ticket was minted since the item was read.

    The row cannot come too late, but it costs twice the capacity units, and of concurrent tries only one succeeds.

    Args:
        counted: whether ``waiting`` already counts an earlier ticket of mine whose row was not written.
    """
    more = [] if counted else ["waiting = waiting + :one"]
    in_order = ["ticketAtMs = :now"] if seen.ticket_at_ms <= now.latest_ms else []
    permits = numbering(claim, seen)
    number_taken = on_the_lock(
        claim,
        now,
        ["issued = issued + :one", *in_order, *permits.changes, *more],
        # It creates no item.
        every(only_if.KNOWN_FORMAT, permits.condition, only_if.NO_TICKET_SINCE_I_READ),
        {":issued": number(seen.issued)},
    )
    ticket = seen.issued + 1
    noted = [] if claim.noted_in is None else [note_ticket(claim, claim.noted_in, ticket, now)]
    return TransactWrite((number_taken, _row(claim, ticket, now), *noted))


def extend_row(claim: Claim, ticket: int, now: Moment, lease_ms: int) -> Write:
    """Extend the queue row by this lease."""
    return Write(
        "Update",
        row_key(claim.lock, ticket),
        update="SET leaseUntilMs = :lease_until, expiresAt = :expires_at",
        condition=every(only_if.ROW_IS_MINE, only_if.ROW_LEASE_GROWS),
        names={"#owner": "owner"},
        values={
            ":me": {"S": claim.owner},
            ":lease_until": number(now.latest_ms + lease_ms),
            ":expires_at": number(session_expires_at_s(now.latest_ms + lease_ms)),
        },
    )


def shorten_row(
    lock: LockName, row: Row, session: Session, task_token: str, until_ms: int, patience_ms: int
) -> TransactWrite:
    """End the lease of a parked waiter's row earlier, unless it has parked again, or extended the row, since."""
    parked = Write("ConditionCheck", session.key(), only_if.PARKED_AS_I_SAW, values={":seen_token": {"S": task_token}})
    shorter = Write(
        "Update",
        row_key(lock, row.ticket),
        update="SET leaseUntilMs = :lease_until",
        condition=only_if.ROW_IS_AS_I_SAW,
        names={"#owner": "owner"},
        values={
            ":seen_owner": {"S": row.owner},
            ":seen_lease": number(row.lease_until_ms),
            ":lease_until": number(until_ms),
        },
    )
    return TransactWrite((parked, shorter), patience_ms=patience_ms)


def delete_my_row(claim: Claim, ticket: int) -> Write:
    """Delete my row and leave the count."""
    return Write(
        "Delete",
        row_key(claim.lock, ticket),
        condition=only_if.ROW_IS_MINE,
        names={"#owner": "owner"},
        values={":me": {"S": claim.owner}},
    )


def delete_stale_row(lock: LockName, row: Row) -> Write:
    """Sweep a row that is void, or that has expired and was not extended since it was read."""
    return Write(
        "Delete",
        row_key(lock, row.ticket),
        condition=only_if.ROW_IS_AS_I_SAW,
        names={"#owner": "owner"},
        values={":seen_owner": {"S": row.owner}, ":seen_lease": number(row.lease_until_ms)},
    )


def withdraw(claim: Claim, ticket: int, now: Moment) -> TransactWrite:
    """Leave the queue: delete the row and lower the count, unless the ticket is void or was granted since.

    Once for each ticket, whoever asks and however often: between two withdrawals a late copy of the request that wrote
    the row may write it again, and the second one would lower the count again. So all of them are one transaction to
    the service, to the last parameter, and it does not postpone the time to live.
    """
    condition = every(only_if.A_WAITER_IS_COUNTED, only_if.MY_TICKET_IS_NOT_VOID, only_if.NOT_A_HOLDER_YET)
    values = {":ticket": number(ticket)}
    count = on_the_lock(claim, now, ["waiting = waiting - :one"], condition, values, expiry=None)
    once = f"withdraw\0{claim.lock.namespace}\0{claim.lock.entity}\0{claim.owner}\0{ticket}"
    return TransactWrite((count, delete_my_row(claim, ticket)), once=once)


def renew(claim: Claim, fencing_token: int, now: Moment, at_least_until_ms: int = 0) -> Write:
    """The heartbeat: a later end for a lease that has not expired. It neither shortens a lease nor revives one."""
    conditions = only_if.MY_LEASE_IS_NOT_OVER, only_if.MY_LEASE_GROWS, *_of_my_invocation(claim)
    return _lease(claim, fencing_token, now, *conditions, at_least_until_ms=at_least_until_ms)


def suspend(claim: Claim, fencing_token: int, until_ms: int, now: Moment) -> Write:
    """Keep the lock until this moment of table time while nothing of its durable execution runs."""
    return _lease(
        claim,
        fencing_token,
        now,
        only_if.MY_LEASE_IS_NOT_OVER,
        *_of_my_invocation(claim),
        at_least_until_ms=until_ms,
        more=["#me.suspended = :one"],
    )


def resume(claim: Claim, fencing_token: int, now: Moment, seen_lease_until_ms: int | None = None) -> Write:
    """An invocation goes on with the lock; the one before it is fenced off.

    After a suspension the lease ends exactly a lease from now, which may be earlier: nothing relies on the longer one.
    One that has ended without a suspension may still rely on its lease, so that is never made shorter.

    A late copy is refused: it would end the long lease of a suspension that came after it.

    Args:
        seen_lease_until_ms: the end of that lease, if it is later than a lease from now.
    """
    as_seen = seen_lease_until_ms is not None
    conditions = (
        only_if.MY_LEASE_IS_NOT_OVER,
        only_if.NO_LATER_INVOCATION_RESUMED,
        only_if.MY_LEASE_IS_AS_I_SAW if as_seen else only_if.I_AM_SUSPENDED_OR_MY_LEASE_GROWS,
    )
    until_ms = seen_lease_until_ms or 0
    return _lease(claim, fencing_token, now, *conditions, at_least_until_ms=until_ms, removed=["#me.suspended"])


def outlive(claim: Claim, until_ms: int, now: Moment) -> Write:
    """Postpone the lock item's time to live beyond this lease, of another: who joins a queue sets it by its own."""
    return on_the_lock(claim, now, (), only_if.KNOWN_FORMAT, {":expires_at": number(_outlives_s(until_ms))})


def free_suspended(claim: Claim, held: Hold, releasing: Releasing, mean_hold_ms: int, now: Moment) -> Write:
    """Free the lock of a durable execution that has ended while it was suspended, unless an invocation has resumed it
    since it was read.
    """
    freed = release(claim, held, releasing, mean_hold_ms, now, None)
    values = {**freed.values, ":seen_lease": number(held.lease_until_ms)}
    conditions = only_if.I_AM_SUSPENDED, only_if.MY_LEASE_IS_AS_I_SAW
    return replace(freed, condition=every(freed.condition or "", *conditions), values=values)


def write_whole_lease(claim: Claim, fencing_token: int, seen_lease_until_ms: int, now: Moment) -> Write:
    """Give a grant that is not reported yet a full lease, if it has not changed since it was read.

    Never a shorter one: if table time has become more precise, its upper bound may be lower than before.
    """
    conditions = only_if.MY_LEASE_IS_AS_I_SAW, *_of_my_invocation(claim)
    return _lease(claim, fencing_token, now, *conditions, at_least_until_ms=seen_lease_until_ms)


def whole_lease_until_ms(claim: Claim, at_least_until_ms: int, now: Moment) -> int:
    """The end of a full lease from now, or that end if it is later; in table time."""
    return max(at_least_until_ms, now.latest_ms + claim.lease_ms)


def release(
    claim: Claim, held: Hold, releasing: Releasing, mean_hold_ms: int, now: Moment, data_left: str | None
) -> Write:
    """Free the lock if it is still held with this token, and record who did.

    The record of a forced release is kept until the lease would have ended; after that its holder does not need it.
    """
    changed = [f"{counter} = {counter} - :one" for counter in claim.mode.counters]
    changed += ["meanHoldMs = :mean_hold", "lastRelease = :last_release"]
    removed = ["#me", "#my_token"]
    names: dict[str, str] = {}
    values: dict[str, Any] = {
        ":token": number(held.fencing_token),
        ":mean_hold": number(mean_hold_ms),
        ":last_release": release_trace(held, releasing, atMs=number(now.likely_ms)),
    }
    if data_left is None:
        removed.append("dataLeft")
    else:
        changed.append("dataLeft = :data_left")
        values |= {":data_left": {"S": data_left}}
    if releasing.by_force is not None:
        decision, seen = releasing.by_force.decision, releasing.by_force.seen
        over = [each.attribute for each in seen.forced if each.lease_until_ms < now.earliest_ms]
        names = {"#forced": forced_attribute(held.owner)} | {f"#x{place}": each for place, each in enumerate(over)}
        values |= {
            ":forced": release_trace(held, releasing, leaseUntilMs=number(held.lease_until_ms)),
            ":last_forced": _decided(decision, now, owner={"S": held.owner}, token=number(held.fencing_token)),
        }
        changed += ["#forced = :forced", "lastForced = :last_forced"]
        removed += [f"#x{place}" for place, each in enumerate(over) if each != names["#forced"]]
    condition = every(only_if.I_HOLD_WITH_MY_TOKEN, claim.mode.as_granted, *_of_my_invocation(claim))
    values |= _invocation_values(claim)
    return on_the_lock(claim, now, changed, condition, values, removed=removed, names=names, returns="ALL_OLD")


def set_data(claim: Claim, fencing_token: int, data: str | None, now: Moment) -> Write:
    """Replace the data that is shown beside the holder; None removes it."""
    changed, removed = ([], ["#me.#data"]) if data is None else (["#me.#data = :data"], [])
    condition = every(only_if.I_HOLD_WITH_MY_TOKEN, only_if.MY_LEASE_IS_NOT_OVER)
    values = {":token": number(fencing_token), ":data": {"S": data}}
    return on_the_lock(claim, now, changed, condition, values, removed=removed)


def set_limit(lock: LockName, permits: int, decision: Decision, seen: LockItem | None, now: Moment) -> Write:
    """Set an operator's limit: it replaces the number that the users ask for, and time to live does not delete it.

    A late copy of the request sets nothing: each limit is kept for one second longer than the one before, and the
    condition compares that second.
    """
    last_s = _last_kept_until_s(seen)
    changes = [
        *CREATION,
        f"fencingToken = {LAST_TOKEN}",
        f"issued = {LAST_ISSUED}",
        *(f"{name} = if_not_exists({name}, :zero)" for name in ("waiting", "ticketAtMs", "held", "heldShared")),
        # The users' number is kept, to be restored when the limit is unset.
        *(["permitsOfUsers = permits"] if seen is not None and not seen.permits_are_set else []),
        "permits = :limit",
        "permitsKeptUntil = :kept_until",
        "limitSet = :decided",
    ]
    return on_the_lock(
        Claim(lock, "operator", MIN_LEASE_MS),
        now,
        changes,
        only_if.NO_LOCK_ITEM if seen is None else every(only_if.KNOWN_FORMAT, *_limit_as_seen(seen)),
        {
            ":limit": number(permits),
            ":seen_kept_until": number(last_s or 0),
            ":kept_until": number(_KEPT_UNTIL_S if last_s is None else last_s + 1),
            ":decided": _decided(decision, now, permits=number(permits)),
        },
        removed=["permitsWereKeptUntil", "limitUnset"],
        expiry="expiresAt = :kept_until",
        returns="ALL_NEW",
    )


def unset_limit(lock: LockName, permits: int | None, decision: Decision, seen: LockItem, now: Moment) -> Write:
    """Remove an operator's limit; the users' number counts again.

    A late copy of this request cannot remove a later limit, and a late copy of an earlier ``set_limit`` sets nothing:
    the item keeps the second that identifies the removed limit, and the next limit gets the second after it.

    Args:
        permits: what the users ask for; None for what the item has of theirs.
        seen: the item, with its limit.
    """
    changes = ["permits = permitsOfUsers" if permits is None else "permits = :limit"]
    conditions = _limit_as_seen(seen)
    if seen.permits_of_users is None:
        # No user has asked for a number yet: a deployment may replace this one.
        changes.append("permitsSinceMs = :zero")
        conditions = *conditions, only_if.NO_USER_HAS_ASKED
    return on_the_lock(
        Claim(lock, "operator", MIN_LEASE_MS),
        now,
        [*changes, "permitsWereKeptUntil = :seen_kept_until", "limitUnset = :decided"],
        every(only_if.KNOWN_FORMAT, *conditions),
        {
            ":seen_kept_until": number(_last_kept_until_s(seen) or 0),
            ":limit": number(permits or 0),
            ":decided": _decided(decision, now),
        },
        removed=["permitsKeptUntil", "permitsOfUsers"],
        expiry="expiresAt = :expires_at",
        returns="ALL_NEW",
    )


def _limit_as_seen(seen: LockItem) -> tuple[str, ...]:
    """The conditions that no limit was set, or unset, since the item was read."""
    if seen.permits_are_set:
        return (only_if.LIMIT_AS_I_SAW,)
    unset = only_if.NO_LIMIT_UNSET_YET if seen.permits_were_kept_until_s is None else only_if.LIMIT_UNSET_AS_I_SAW
    return only_if.NO_LIMIT_IS_SET, unset


def _last_kept_until_s(seen: LockItem | None) -> int | None:
    return None if seen is None else seen.permits_kept_until_s or seen.permits_were_kept_until_s


def _of_my_invocation(claim: Claim) -> tuple[str, ...]:
    return () if claim.invocation is None else (only_if.MINE_IS_THE_LATEST_INVOCATION,)


def _invocation_values(claim: Claim) -> dict[str, Any]:
    if (invocation := claim.invocation) is None:
        return {}
    return {":invocation": {"S": invocation.id}, ":invocation_ends": number(invocation.ends_ms)}


def _lease(
    claim: Claim,
    fencing_token: int,
    now: Moment,
    *conditions: str,
    at_least_until_ms: int,
    more: Sequence[str] = (),
    removed: Collection[str] = (),
) -> Write:
    until_ms = whole_lease_until_ms(claim, at_least_until_ms, now)
    values = {
        ":token": number(fencing_token),
        ":lease_until": number(until_ms),
        ":lease_ms": number(until_ms - now.latest_ms),
        ":seen_lease": number(at_least_until_ms),
        ":expires_at": number(_outlives_s(until_ms)),
        **_invocation_values(claim),
    }
    changes = ["#me.leaseUntilMs = :lease_until", "#me.leaseMs = :lease_ms", *more]
    if claim.invocation is not None:
        changes += ["#me.invocation = :invocation", "#me.invocationEndsMs = :invocation_ends"]
    condition = every(only_if.I_HOLD_WITH_MY_TOKEN, *conditions)
    return on_the_lock(claim, now, changes, condition, values, removed=removed, returns="ALL_NEW")


def on_the_lock(
    claim: Claim,
    now: Moment,
    changes: Iterable[str],
    condition: str,
    values: Mapping[str, Any] | None = None,
    *,
    removed: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    expiry: str | None = LOCK_EXPIRES,
    returns: Literal["NONE", "ALL_OLD", "ALL_NEW"] = "NONE",
) -> Write:
    """An update of the lock item.

    Args:
        changes, expiry, removed: the clauses of its ``SET`` and of its ``REMOVE``; without ``expiry`` it does not
            postpone the time to live.
        values, names: the placeholders that only this update uses.
    """
    mine = {"#me": holder_attribute(claim.owner), "#my_token": token_attribute(claim.owner)}
    return Write(
        "Update",
        lock_key(claim.lock),
        update=f"SET {', '.join(filter(None, [*changes, expiry]))}"
        + (f" REMOVE {', '.join(removed)}" if removed else ""),
        condition=condition,
        names={"#format": "format", "#data": "data", "#shared": "shared", **mine, **(names or {})},
        values={**_lock_values(claim, now), **(values or {})},
        returns=returns,
    )


_NUMBERS = {":zero": number(0), ":one": number(1), ":format": number(FORMAT)}


def _lock_values(claim: Claim, now: Moment) -> dict[str, Any]:
    now_ms = number(now.latest_ms)
    return {
        **_NUMBERS,
        ":now": now_ms,
        ":epoch": now_ms,
        ":permits": number(claim.permits),
        ":since": number(claim.permits_since_ms or 0),
        ":expires_at": number(_outlives_s(now.latest_ms + claim.lease_ms)),
    }


def _outlives_s(until_ms: int) -> int:
    """When an item may be deleted whose last lease ends then."""
    return until_ms // 1_000 + _LOCK_ITEM_OUTLIVES_ITS_USE_S


def _row(claim: Claim, ticket: int, now: Moment) -> Write:
    return Write(
        "Put",
        row_key(claim.lock, ticket),
        item={
            **row_key(claim.lock, ticket),
            "owner": {"S": claim.owner},
            "leaseUntilMs": number(now.latest_ms + claim.lease_ms),
            "createdAtMs": number(now.likely_ms),
            "expiresAt": _row_expires_at(claim, now),
            # For operators, who may have to choose the number; nothing decides by it.
            "permits": number(claim.permits),
            **({} if claim.permits_since_ms is None else {"permitsSinceMs": number(claim.permits_since_ms)}),
            **({"session": {"M": claim.session.key()}} if claim.session is not None else {}),
            **claim.mode.marks,
        },
        condition=only_if.NO_SUCH_ROW,
    )


def release_trace(held: Hold, releasing: Releasing, **more: Any) -> dict[str, Any]:
    """The record of a release: the grant, and who freed it."""
    return {"M": {"token": number(held.fencing_token), "by": {"S": releasing.by or held.owner}, **more}}


def _decided(decision: Decision, now: Moment, **more: Any) -> dict[str, Any]:
    return {"M": {"by": {"S": decision.by}, "why": {"S": decision.why}, "atMs": number(now.likely_ms), **more}}


def _row_expires_at(claim: Claim, now: Moment) -> dict[str, str]:
    return number((now.latest_ms + claim.lease_ms) // 1_000 + _DAY_S)
