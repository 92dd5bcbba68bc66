"""The writes that grant a lock: one conditional write on the lock item, which decides who holds.

Each requires that its owner is not a holder yet, so that a retry grants nothing twice, and mints the fencing token.
"""

from collections.abc import Sequence
from typing import Any

from ticketlock.locks import _conditions as only_if
from ticketlock.locks import _writes as write
from ticketlock.locks._items import Holder, LockItem, holder_attribute, token_attribute
from ticketlock.locks._modes import MAX_HOLDERS, Mode
from ticketlock.locks._outcomes import Claim, Hold, Releasing
from ticketlock.locks._writes import left_as_it_is, numbering
from ticketlock.wire import Moment, TransactWrite, Write, every, number

# Each counter of holders, and the placeholder for its change by a grant.
_CHANGES = {"held": ":held_change", "heldShared": ":shared_change"}
_COUNTS = [f"{counter} = {counter} + {change}" for counter, change in _CHANGES.items()]
_COUNTS_OF_A_NEW_ITEM = [
    "waiting = if_not_exists(waiting, :zero)",
    "ticketAtMs = if_not_exists(ticketAtMs, :zero)",
    *(f"{counter} = if_not_exists({counter}, :zero) + {change}" for counter, change in _CHANGES.items()),
]
_HANDING_PATIENCE_MS = 1_500
_NEXT_TOKEN = ("fencingToken = fencingToken + :one", "#my_token = fencingToken + :one")


def take_at_once(claim: Claim, now: Moment, seen: LockItem | None = None) -> Write:
    """Take a lock without holders and waiters, or create it: an uncontended acquisition is this one write."""
    permits = numbering(claim, seen)
    return _grant(
        claim,
        now,
        update=[
            *write.CREATION,
            *permits.changes,
            f"issued = {write.LAST_ISSUED} + :one",
            f"fencingToken = {write.LAST_TOKEN} + :one",
            f"#my_token = {write.LAST_TOKEN} + :one",
        ],
        condition=permits.condition_with(
            only_if.NO_WAITER_IS_COUNTED,
            *permits.room_among(claim.mode.room_conditions),
            only_if.NOT_A_HOLDER_YET,
        ),
    )


def take_over(claim: Claim, now: Moment, seen: LockItem, expired: Sequence[Holder]) -> Write:
    """Take a lock without waiters from holders whose leases have expired."""
    return _grant(
        claim,
        now,
        seen=seen,
        expired=expired,
        update=["issued = issued + :one", *_NEXT_TOKEN],
        condition=every(
            only_if.NO_WAITER_IS_COUNTED,
            only_if.NO_GRANT_SINCE_I_READ,
            *_as_i_read(claim, seen, expired),
            only_if.NOT_A_HOLDER_YET,
        ),
    )


def take_past_the_count(claim: Claim, now: Moment, seen: LockItem, expired: Sequence[Holder], *, heal: bool) -> Write:
    """Take a free lock whose ``waiting`` is not zero although a read of the whole queue found no live row.

    ``heal`` sets the count to zero and declares every ticket issued so far void: a row that arrives later with such a
    ticket is ignored.
    """
    healing = ["waiting = :zero", "voidUpTo = :issued"] if heal else []
    return _grant(
        claim,
        now,
        seen=seen,
        expired=expired,
        update=["issued = issued + :one", *_NEXT_TOKEN, *healing],
        condition=every(
            only_if.NO_TICKET_SINCE_I_READ,
            only_if.NO_GRANT_SINCE_I_READ,
            *_as_i_read(claim, seen, expired),
            only_if.NOT_A_HOLDER_YET,
        ),
    )


def take_my_turn(claim: Claim, now: Moment, ticket: int, seen: LockItem, expired: Sequence[Holder]) -> TransactWrite:
    """Turn a queue row into a grant: one transaction deletes the row and writes the holder."""
    counted = seen.waiting > 0
    grant = _grant(
        claim,
        now,
        seen=seen,
        expired=expired,
        ticket=ticket,
        update=[*_NEXT_TOKEN, "nowServing = :ticket", *(["waiting = waiting - :one"] if counted else [])],
        condition=every(
            only_if.NO_GRANT_SINCE_I_READ,
            only_if.MY_TICKET_IS_NOT_VOID,
            *([only_if.A_WAITER_IS_COUNTED] if counted else []),
            *_as_i_read(claim, seen, expired),
            only_if.NOT_A_HOLDER_YET,
        ),
    )
    return TransactWrite((grant, write.delete_my_row(claim, ticket)))


def hand_over(
    claim: Claim,
    now: Moment,
    ticket: int,
    seen_token: int,
    held: Hold,
    mode: Mode,
    releasing: Releasing,
    mean_hold_ms: int,
    data_left: str | None,
) -> TransactWrite:
    """Release the lock and grant it to the next in line: replace the holder, delete the row, together.

    Args:
        claim: that of the next waiter, with ``ticket``, whose last poll has found ``seen_token``.
        held, mode, releasing: the hold that ends, its mode, and who ends it.
    """
    left = {} if data_left is None else {":data_left": {"S": data_left}}
    sign = "" if mode is claim.mode else "+" if claim.shared else "-"
    last_mode = only_if.ALL_HOLDERS_SHARE if mode.shared else only_if.NO_HOLDER_SHARES
    # With other holders, only a waiter in the same mode can follow.
    room = (only_if.ONE_HOLDS, only_if.NOT_CLOSED) if sign else (only_if.NO_MORE_HOLD_THAN_MAY,)
    changes = [
        *_NEXT_TOKEN,
        "nowServing = :ticket",
        "waiting = waiting - :one",
        "#me = :holder",
        "meanHoldMs = :mean_hold",
        "lastRelease = :last_release",
        *([f"heldShared = heldShared {sign} :one"] if sign else []),
        *(["dataLeft = :data_left"] if left else []),
    ]
    grant = write.on_the_lock(
        claim,
        now,
        changes,
        every(
            only_if.KNOWN_FORMAT,
            only_if.THE_LAST_HOLDS_WITH_ITS_TOKEN,
            only_if.NO_GRANT_SINCE_I_READ,
            only_if.MY_TICKET_IS_NOT_VOID,
            only_if.A_WAITER_IS_COUNTED,
            left_as_it_is(claim),
            last_mode,
            *room,
            only_if.NOT_A_HOLDER_YET,
        ),
        {
            **left,
            ":holder": {"M": _holder(claim, now)},
            ":ticket": number(ticket),
            ":seen_token": number(seen_token),
            ":token": number(held.fencing_token),
            ":mean_hold": number(mean_hold_ms),
            ":last_release": write.release_trace(held, releasing, atMs=number(now.likely_ms)),
        },
        removed=["#last", "#last_token", *([] if left else ["dataLeft"])],
        names={"#last": holder_attribute(held.owner), "#last_token": token_attribute(held.owner)},
    )
    # The waiter's lease runs from the first attempt on; and if the table fails, the release alone is tried for as long
    # as any other request.
    patience_ms = min(_HANDING_PATIENCE_MS, claim.lease_ms // 4)
    return TransactWrite((grant, write.delete_my_row(claim, ticket)), patience_ms=patience_ms)


def _as_i_read(claim: Claim, seen: LockItem, expired: Sequence[Holder]) -> tuple[str, ...]:
    permits = numbering(claim, seen)
    # The room was counted in what was read. Without a grant since, the holders are the same, or fewer.
    return (
        only_if.KNOWN_FORMAT,
        only_if.PERMITS_AS_I_SAW,
        *([permits.condition] if permits.changes else []),
        *(only_if.expired_holder_as_seen(position) for position in range(len(expired))),
    )


def _grant(
    claim: Claim,
    now: Moment,
    *,
    update: Sequence[str],
    condition: str,
    seen: LockItem | None = None,
    expired: Sequence[Holder] = (),
    ticket: int | None = None,
) -> Write:
    names: dict[str, str] = {}
    values: dict[str, Any] = {
        ":holder": {"M": _holder(claim, now)},
        ":most_shared": number(MAX_HOLDERS),
    }
    for counter, change in _CHANGES.items():
        gone = [holder for holder in expired if counter in holder.mode.counters] if expired else ()
        values[change] = number((counter in claim.mode.counters) - len(gone))
    for position, holder in enumerate(expired):
        names[f"#x{position}"] = holder_attribute(holder.owner)
        names[f"#xToken{position}"] = token_attribute(holder.owner)
        values[f":x{position}"] = number(holder.lease_until_ms)
    if seen is not None:
        values |= {
            ":issued": number(seen.issued),
            ":seen_token": number(seen.fencing_token),
            ":seen_permits": number(seen.permits),
        }
        update = [*update, *numbering(claim, seen).changes]
    if ticket is not None:
        values |= {":ticket": number(ticket)}
    changes = [*update, *(_COUNTS if seen is not None else _COUNTS_OF_A_NEW_ITEM), "#me = :holder"]
    return write.on_the_lock(
        claim, now, changes, condition, values, removed=list(names), names=names, returns="ALL_NEW"
    )


def _holder(claim: Claim, now: Moment) -> dict[str, Any]:
    holder: dict[str, Any] = {
        "owner": {"S": claim.owner},
        "leaseUntilMs": number(now.latest_ms + claim.lease_ms),
        "leaseMs": number(claim.lease_ms),
        "sinceMs": number(now.likely_ms),
    }
    if claim.data is not None:
        holder["data"] = {"S": claim.data}
    return {**holder, **claim.mode.marks}
