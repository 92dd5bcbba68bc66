"""Holders that are suspended: durable executions of Lambda, of which nothing runs.

Their lease is as long as the suspension. If one ends meanwhile, a clean-up frees its lock from the status event; if
that event was lost, a waiter asks Lambda.
"""

from collections.abc import Mapping
from typing import Any

from ticketlock.errors import TableError
from ticketlock.locks._items import Session, session_expires_at_s
from ticketlock.locks._outcomes import Claim, Position, hold_of
from ticketlock.locks._protocol import Contender
from ticketlock.locks._writes import THE_CLAIM, on_the_session, the_claim
from ticketlock.wire import DescribingDurable, Steps, number

NO_SIGN_MS = 15 * 60_000
"""After a suspension of this length a waiter asks whether its execution goes on."""
_HAS_ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "TIMED_OUT"})


def note_suspension(me: Contender, session: Session, until_ms: int) -> Steps[None]:
    """Record the claim of a holder that is about to be suspended, for longer than its lease: for a clean-up."""
    values = {**the_claim(me.claim), ":expires_at": number(session_expires_at_s(until_ms))}
    yield from me.send(on_the_session(session, f"SET {THE_CLAIM}, expiresAt = :expires_at", "", values))


def free_if_ended(me: Contender, seen: Position) -> Steps[bool]:
    """Free the lock if executions that hold it suspended have ended long ago; for the first in line.

    One that Lambda does not know any more keeps it until its lease ends: it may be one of another account.

    Returns:
        Whether any was freed.
    """
    freed = False
    for holder in seen.holders if seen.is_next else ():
        if not holder.suspended or me.now.latest_ms < holder.renewed_ms + NO_SIGN_MS:
            continue
        execution, _, _ = holder.owner.rpartition("/")
        if (yield from has_ended(me, execution)) and (item := me.last_seen) is not None:
            claim = Claim(me.claim.lock, holder.owner, me.claim.lease_ms, shared=holder.shared)
            held = hold_of(claim.lock, holder, item)
            freed = (yield from Contender(claim, me.now).free_suspended(held)) or freed
    return freed


def has_ended(me: Contender, execution: str) -> Steps[bool]:
    """Whether a durable execution has ended, as Lambda tells; False also if it does not, for want of a permission."""
    try:
        reply = yield from me.send(DescribingDurable(execution))
    except TableError:
        return False
    described: Mapping[str, Any] = reply.item or {}
    return described.get("Status") in _HAS_ENDED
