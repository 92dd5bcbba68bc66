"""The writes of the protocol: each operation's one request, read as one line of intent a clause.

Who may send which, and what a refusal means, is decided in ``_protocol.py``.
"""

from collections.abc import Sequence
from typing import Any

from ticketlock.locks import _conditions as only_if
from ticketlock.locks._claim import MIN_LEASE_MS, Claim
from ticketlock.locks._items import (
    FORMAT,
    MAX_HOLDERS,
    Holder,
    LockItem,
    Row,
    holder_attribute,
    lock_key,
    row_key,
    token_attribute,
)
from ticketlock.locks._names import LockName
from ticketlock.wire._attributes import number
from ticketlock.wire._requests import Transaction, Write
from ticketlock.wire._table_time import Moment

JOIN_DEADLINE_MS = 1_000
_DAY_S = 24 * 3_600
_LOCK_ITEM_OUTLIVES_ITS_USE_S = 28 * _DAY_S


def take_at_once(claim: Claim, now: Moment) -> Write:
    """Take a lock that nobody holds or queues for, or create it: the whole of an uncontended acquisition."""
    return _grant(
        claim,
        now,
        update=[
            *_CREATION,
            f"issued = {_ISSUED} + :one",
            f"fencingToken = {_TOKEN} + :one",
            f"#my_token = {_TOKEN} + :one",
        ],
        condition=only_if.either(
            only_if.NO_LOCK_ITEM,
            only_if.every(
                only_if.KNOWN_FORMAT,
                only_if.PERMITS_AS_ASKED,
                only_if.NOBODY_WAITS,
                *(_ROOM_TO_SHARE if claim.shared else _ROOM),
                only_if.NOT_A_HOLDER_YET,
            ),
        ),
    )


def take_over(claim: Claim, now: Moment, seen: LockItem, gone: Sequence[Holder]) -> Write:
    """Take a lock that nobody queues for from holders whose leases are over."""
    return _grant(
        claim,
        now,
        seen=seen,
        gone=gone,
        update=["issued = issued + :one", *_NEXT_TOKEN],
        condition=only_if.every(
            only_if.NOBODY_WAITS, only_if.NO_GRANT_SINCE_I_LOOKED, *_capacity(gone), only_if.NOT_A_HOLDER_YET
        ),
    )


def take_past_the_count(claim: Claim, now: Moment, seen: LockItem, gone: Sequence[Holder], *, heal: bool) -> Write:
    """Take a free lock whose count says that somebody waits, when a read to the end found no live row.

    ``heal`` puts the count back to zero and declares the tickets void that were issued so far: their rows, should one
    still arrive, count for nothing.
    """
    healing = ["waiting = :zero", "voidUpTo = :issued"] if heal else []
    return _grant(
        claim,
        now,
        seen=seen,
        gone=gone,
        update=["issued = issued + :one", *_NEXT_TOKEN, *healing],
        condition=only_if.every(
            only_if.NO_TICKET_SINCE_I_LOOKED,
            only_if.NO_GRANT_SINCE_I_LOOKED,
            *_capacity(gone),
            only_if.NOT_A_HOLDER_YET,
        ),
    )


def take_my_turn(claim: Claim, now: Moment, ticket: int, seen: LockItem, gone: Sequence[Holder]) -> Transaction:
    """Turn the place in the queue into a grant: the row goes, the holder comes, together."""
    counted = seen.waiting > 0
    grant = _grant(
        claim,
        now,
        seen=seen,
        gone=gone,
        ticket=ticket,
        update=[*_NEXT_TOKEN, "nowServing = :ticket", *(["waiting = waiting - :one"] if counted else [])],
        condition=only_if.every(
            only_if.NO_GRANT_SINCE_I_LOOKED,
            only_if.MY_TICKET_IS_NOT_VOID,
            *([only_if.SOMEBODY_IS_COUNTED] if counted else []),
            *_capacity(gone),
            only_if.NOT_A_HOLDER_YET,
        ),
    )
    return Transaction((grant, delete_my_row(claim, ticket)))


def mint_ticket(claim: Claim, now: Moment) -> Write:
    """Take a number. The one write that repetition changes: a second number, and a count that is healed later."""
    return Write(
        "Update",
        lock_key(claim.lock),
        update="SET "
        + ", ".join(
            [
                *_CREATION,
                f"fencingToken = {_TOKEN}",
                "held = if_not_exists(held, :zero)",
                "heldShared = if_not_exists(heldShared, :zero)",
                f"issued = {_ISSUED} + :one",
                "waiting = if_not_exists(waiting, :zero) + :one",
                "ticketAtMs = :now",
                _LOCK_EXPIRES,
            ]
        ),
        condition=only_if.either(only_if.NO_LOCK_ITEM, only_if.every(only_if.KNOWN_FORMAT, only_if.PERMITS_AS_ASKED)),
        names=_NAMES,
        values=_lock_values(claim, now) | {":now": number(now.latest_ms)},
        returns="ALL_NEW",
    )


def put_row(claim: Claim, ticket: int, minted_local_ms: int, now: Moment) -> Write:
    """Stand in the queue, unless the number is so old by now that it was perhaps declared void."""
    return Write(
        "Put",
        row_key(claim.lock, ticket),
        item={
            **row_key(claim.lock, ticket),
            "owner": {"S": claim.owner},
            "leaseUntilMs": number(now.latest_ms + claim.lease_ms),
            "createdAtMs": number(now.likely_ms),
            "expiresAt": _row_expires_at(claim, now),
            **({"session": {"M": claim.session.key()}} if claim.session is not None else {}),
            **(_SHARED if claim.shared else {}),
        },
        condition=only_if.NO_SUCH_ROW,
        not_after_local_ms=minted_local_ms + JOIN_DEADLINE_MS,
    )


def extend_row(claim: Claim, ticket: int, now: Moment) -> Write:
    """Keep the place in the queue for another lease."""
    return Write(
        "Update",
        row_key(claim.lock, ticket),
        update="SET leaseUntilMs = :lease_until, expiresAt = :expires_at",
        condition=only_if.every(only_if.ROW_IS_MINE, only_if.ROW_LEASE_GROWS),
        names={"#owner": "owner"},
        values={
            ":me": {"S": claim.owner},
            ":lease_until": number(now.latest_ms + claim.lease_ms),
            ":expires_at": _row_expires_at(claim, now),
        },
    )


def delete_my_row(claim: Claim, ticket: int) -> Write:
    """Give up the place, leaving the count."""
    return Write(
        "Delete",
        row_key(claim.lock, ticket),
        condition=only_if.ROW_IS_MINE,
        names={"#owner": "owner"},
        values={":me": {"S": claim.owner}},
    )


def delete_dead_row(lock: LockName, row: Row) -> Write:
    """Sweep a row that is void, or whose lease is over and was not extended since it was seen."""
    return Write(
        "Delete",
        row_key(lock, row.ticket),
        condition=only_if.ROW_IS_AS_I_SAW,
        names={"#owner": "owner"},
        values={":seen_owner": {"S": row.owner}, ":seen_lease": number(row.lease_until_ms)},
    )


def withdraw(claim: Claim, ticket: int, now: Moment) -> Transaction:
    """Leave the queue: the row goes and the count with it, unless the ticket is void or was granted meanwhile."""
    count = Write(
        "Update",
        lock_key(claim.lock),
        update=f"SET waiting = waiting - :one, {_LOCK_EXPIRES}",
        condition=only_if.every(only_if.SOMEBODY_IS_COUNTED, only_if.MY_TICKET_IS_NOT_VOID, only_if.NOT_A_HOLDER_YET),
        names={"#me": holder_attribute(claim.owner)},
        values=_lock_values(claim, now) | {":ticket": number(ticket)},
    )
    return Transaction((count, delete_my_row(claim, ticket)))


def renew(claim: Claim, fencing_token: int, now: Moment) -> Write:
    """The heartbeat: a later end for a lease that is not over yet. Never a shorter one, never a revived one."""
    return _lease(claim, fencing_token, now, only_if.MY_LEASE_IS_NOT_OVER, only_if.MY_LEASE_GROWS)


def settle_lease(claim: Claim, fencing_token: int, seen_lease_until_ms: int, now: Moment) -> Write:
    """Give a grant that is not reported yet a whole lease, if nothing has changed it since it was seen.

    Never a shorter one, though the table's time may be known better than before, by more than has passed.
    """
    return _lease(claim, fencing_token, now, only_if.MY_LEASE_IS_AS_I_SAW, seen_lease_until_ms=seen_lease_until_ms)


def settled_until_ms(claim: Claim, seen_lease_until_ms: int, now: Moment) -> int:
    """The end of the lease that ``settle_lease`` writes."""
    return max(seen_lease_until_ms, now.latest_ms + claim.lease_ms)


def release(claim: Claim, fencing_token: int, mean_hold_ms: int, now: Moment, data_left: str | None) -> Write:
    """Free the lock, if it is still held with this very token."""
    fewer = ["held = held - :one", *(["heldShared = heldShared - :one"] if claim.shared else [])]
    left = [] if data_left is None else ["dataLeft = :data_left"]
    gone = ["#me", "#my_token", *(["dataLeft"] if data_left is None else [])]
    return Write(
        "Update",
        lock_key(claim.lock),
        update=f"SET {', '.join([*fewer, 'meanHoldMs = :mean_hold', *left, _LOCK_EXPIRES])} REMOVE {', '.join(gone)}",
        condition=only_if.every(
            only_if.I_HOLD_WITH_MY_TOKEN, only_if.I_SHARE if claim.shared else only_if.I_SHARE_WITH_NOBODY
        ),
        names=_my_names(claim),
        values=_lock_values(claim, now)
        | {":token": number(fencing_token), ":mean_hold": number(mean_hold_ms)}
        | ({} if data_left is None else {":data_left": {"S": data_left}}),
        returns="ALL_OLD",
    )


def set_data(claim: Claim, fencing_token: int, data: str | None, now: Moment) -> Write:
    """Show something else beside the holder; None for nothing."""
    return Write(
        "Update",
        lock_key(claim.lock),
        update=f"SET {_LOCK_EXPIRES}" + (" REMOVE #me.#data" if data is None else ", #me.#data = :data"),
        condition=only_if.every(only_if.I_HOLD_WITH_MY_TOKEN, only_if.MY_LEASE_IS_NOT_OVER),
        names=_my_names(claim),
        values=_lock_values(claim, now)
        | {":token": number(fencing_token), ":now": number(now.latest_ms)}
        | ({} if data is None else {":data": {"S": data}}),
    )


def set_limit(lock: LockName, permits: int, seen: LockItem | None, now: Moment) -> Write:
    """An operator's limit: from now on it counts, whatever number the users ask for, and it is kept.

    A late copy sets nothing: each limit is kept for a second longer than the one before it was.
    """
    claim = Claim(lock, "operator", MIN_LEASE_MS)
    seen_until_s = seen.permits_kept_until_s if seen is not None else None
    return Write(
        "Update",
        lock_key(lock),
        update="SET "
        + ", ".join(
            [
                "#format = :format",
                "voidUpTo = if_not_exists(voidUpTo, :epoch)",
                f"fencingToken = {_TOKEN}",
                f"issued = {_ISSUED}",
                *(f"{name} = if_not_exists({name}, :zero)" for name in ("waiting", "ticketAtMs", "held", "heldShared")),
                "permits = :limit",
                "permitsKeptUntil = :kept_until",
                "expiresAt = :kept_until",
            ]
        ),
        condition=only_if.either(
            only_if.NO_LOCK_ITEM,
            only_if.every(
                only_if.KNOWN_FORMAT,
                only_if.NO_LIMIT_SET_YET if seen_until_s is None else only_if.LIMIT_AS_I_SAW,
            ),
        ),
        names=_NAMES,
        values=_lock_values(claim, now)
        | {
            ":limit": number(permits),
            ":seen_kept_until": number(seen_until_s or 0),
            ":kept_until": number(_KEPT_UNTIL_S if seen_until_s is None else seen_until_s + 1),
        },
        returns="ALL_NEW",
    )


_NAMES = {"#format": "format"}
# Time to live is pushed on by every write of the lock item; an operator's limit is kept as long as the table is.
_LOCK_EXPIRES = "expiresAt = if_not_exists(permitsKeptUntil, :expires_at)"
# The year 9000.
_KEPT_UNTIL_S = 221_845_392_000
_SHARED = {"shared": {"BOOL": True}}
_ROOM = (only_if.A_PERMIT_IS_FREE, only_if.NOBODY_SHARES)
_ROOM_TO_SHARE = (only_if.ALL_HOLDERS_SHARE, only_if.A_SHARED_PLACE_IS_FREE, only_if.NOT_CLOSED)
_ISSUED = "if_not_exists(issued, :epoch)"
_TOKEN = "if_not_exists(fencingToken, :epoch)"
# Whatever write creates the lock item sets all of it. Counting from the epoch's milliseconds keeps tokens rising, and
# older rows void, across a deletion of the item.
_CREATION = (
    "#format = :format",
    "permits = if_not_exists(permits, :permits)",
    "voidUpTo = if_not_exists(voidUpTo, :epoch)",
)
_NEXT_TOKEN = ("fencingToken = fencingToken + :one", "#my_token = fencingToken + :one")


def _capacity(gone: Sequence[Holder]) -> tuple[str, ...]:
    # Who holds is what was seen, or fewer: that they leave room was judged by their list.
    return (
        only_if.PERMITS_AS_I_SAW,
        only_if.A_PERMIT_IS_FREE_WITHOUT_THE_EXPIRED,
        *(only_if.expired_holder_as_seen(position) for position in range(len(gone))),
    )


def _grant(
    claim: Claim,
    now: Moment,
    *,
    update: Sequence[str],
    condition: str,
    seen: LockItem | None = None,
    gone: Sequence[Holder] = (),
    ticket: int | None = None,
) -> Write:
    names = dict(_my_names(claim))
    values = _lock_values(claim, now) | {
        ":holder": {"M": _holder(claim, now)},
        ":held_change": number(1 - len(gone)),
        ":shared_change": number(int(claim.shared) - sum(holder.shared for holder in gone)),
        ":most_shared": number(MAX_HOLDERS),
    }
    for position, holder in enumerate(gone):
        names |= {f"#gone{position}": holder_attribute(holder.owner)}
        names |= {f"#goneToken{position}": token_attribute(holder.owner)}
        values |= {f":gone{position}": number(holder.lease_until_ms)}
    if seen is not None:
        values |= {
            ":issued": number(seen.issued),
            ":seen_token": number(seen.fencing_token),
            ":seen_permits": number(seen.permits),
            ":capacity": number(seen.capacity(shared=claim.shared) + len(gone)),
        }
    if ticket is not None:
        values |= {":ticket": number(ticket)}
    if seen is not None:
        counts = ["held = held + :held_change", "heldShared = heldShared + :shared_change"]
    else:
        counts = [
            "waiting = if_not_exists(waiting, :zero)",
            "ticketAtMs = if_not_exists(ticketAtMs, :zero)",
            "held = if_not_exists(held, :zero) + :held_change",
            "heldShared = if_not_exists(heldShared, :zero) + :shared_change",
        ]
    removed = ", ".join(f"#gone{position}, #goneToken{position}" for position in range(len(gone)))
    return Write(
        "Update",
        lock_key(claim.lock),
        update=f"SET {', '.join([*update, *counts, '#me = :holder', _LOCK_EXPIRES])}"
        + (f" REMOVE {removed}" if gone else ""),
        condition=condition,
        names=names,
        values=values,
        returns="ALL_NEW",
    )


def _lease(claim: Claim, fencing_token: int, now: Moment, *conditions: str, seen_lease_until_ms: int = 0) -> Write:
    values = _lock_values(claim, now) | {
        ":token": number(fencing_token),
        ":now": number(now.latest_ms),
        ":lease_until": number(settled_until_ms(claim, seen_lease_until_ms, now)),
        ":seen_lease": number(seen_lease_until_ms),
    }
    return Write(
        "Update",
        lock_key(claim.lock),
        update=f"SET #me.leaseUntilMs = :lease_until, {_LOCK_EXPIRES}",
        condition=only_if.every(only_if.I_HOLD_WITH_MY_TOKEN, *conditions),
        names=_my_names(claim),
        values=values,
        returns="ALL_NEW",
    )


def _my_names(claim: Claim) -> dict[str, str]:
    mine = {"#me": holder_attribute(claim.owner), "#my_token": token_attribute(claim.owner)}
    return _NAMES | mine | {"#data": "data", "#shared": "shared"}


def _holder(claim: Claim, now: Moment) -> dict[str, Any]:
    holder: dict[str, Any] = {
        "owner": {"S": claim.owner},
        "leaseUntilMs": number(now.latest_ms + claim.lease_ms),
        "sinceMs": number(now.likely_ms),
    }
    if claim.data is not None:
        holder["data"] = {"S": claim.data}
    return holder | (_SHARED if claim.shared else {})


def _lock_values(claim: Claim, now: Moment) -> dict[str, Any]:
    return {
        ":zero": number(0),
        ":one": number(1),
        ":format": number(FORMAT),
        ":permits": number(claim.permits),
        ":epoch": number(now.latest_ms),
        ":expires_at": number((now.latest_ms + claim.lease_ms) // 1_000 + _LOCK_ITEM_OUTLIVES_ITS_USE_S),
    }


def _row_expires_at(claim: Claim, now: Moment) -> dict[str, str]:
    return number((now.latest_ms + claim.lease_ms) // 1_000 + _DAY_S)
