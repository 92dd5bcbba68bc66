"""Bugs of this lock that the search has found: each is put back, to show that the search finds it again."""

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

from botocore.exceptions import ClientError
from property import scripts
from property.broken.lock import ALWAYS, BrokenLock, without
from property.caps import Caps
from property.faults import Faults

from ticketlock.client import _acquire
from ticketlock.client._holdings import Holdings
from ticketlock.errors import LockLost
from ticketlock.locks import _conditions, _hand_over, _protocol, _queue, _writes
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._outcomes import Claim, Grant, HandedOver, Hold, Position, Released
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import Queue
from ticketlock.wire import _requests, _sdk
from ticketlock.wire import _table_time as _time
from ticketlock.wire._actions import Actions, Call, Refusal
from ticketlock.wire._requests import Steps, TransactWrite, Write
from ticketlock.wire._table_time import _DATE_RESOLUTION_MS, Estimate, Moment, Reading, TableTime

_acquire_at_once = Contender.acquire_at_once
_expired_holders = _queue.expired_holders
_free = Contender.free
_observe = TableTime.observe
_leave = _acquire.leave
_meaning_of_answer = _sdk._meaning_of_answer
_take_handed = _hand_over.take_handed
_with_whole_lease = Contender._with_whole_lease
_read_queue = Contender.read_queue
_withdraw = _writes.withdraw
_NEVER_MS = 10**15


class _Roomy(LockItem):
    """There is always room."""

    def room(self, *_: Any, **__: Any) -> int:
        return 1


def _queue_with_room(me: Any, until: Any, *more: Any, **options: Any) -> Steps[Queue]:
    queue = yield from _read_queue(me, until, *more, **options)
    if until is not _queue.has_a_live_row or queue.item is None:
        return queue
    values = {each.name: getattr(queue.item, each.name) for each in fields(queue.item)}
    return replace(queue, item=_Roomy(**values))


def _observe_after_a_freeze(time: TableTime, date_ms: int, sent: Reading, received: Reading) -> None:
    _observe(time, date_ms, sent, received)
    if time._estimate.bounds is None:
        bounds = (
            date_ms - received.local_ms,
            date_ms + _DATE_RESOLUTION_MS - sent.local_ms,
            received.local_ms,
        )
        time._estimate = Estimate(bounds, received)


def _settled_by_the_local_clock(me: Contender, *args: Any, **more: Any) -> Steps[Grant | None]:
    grant = yield from _with_whole_lease(me, *args, **more)
    return replace(grant, deadline_wall_ms=_NEVER_MS) if grant is not None else None


def _transaction_without_a_token(items: Any, _identity: str) -> Call:
    return Call("dynamodb", "transact_write_items", {"TransactItems": items})


def _ten_expired(item: LockItem | None, now: Moment) -> Sequence[Holder]:
    return _expired_holders(item, now)[:10]


def _free_or_freed_before(me: Contender, held: Hold, *args: Any, **kwargs: Any) -> Steps[Released]:
    """Takes every refusal during the lease for an earlier try of this release; it may have been force."""
    by_ms = me.now.latest_ms
    try:
        return (yield from _free(me, held, *args, **kwargs))
    except LockLost:
        if by_ms < held.lease_until_ms:
            return Released(held_ms=0, lease_was_over=False)
        raise


def _forced_in_vain(me: Contender, *args: Any, **kwargs: Any) -> Steps[Released]:
    """An operator's repeated request is refused because its first attempt has freed the lock."""
    released = yield from _free(me, *args, **kwargs)
    if released.waiting is None and kwargs["releasing"].by_force is not None:
        raise LockLost("no holder has this fencing token")
    return released


def _shown_without_consequence(holdings: Holdings[Any], lease: Any, data: str | None) -> Actions[None]:
    yield from holdings._table.contending(lease._claim, lambda me: me.set_data(lease.fencing_token, data))


def _last_answer_unseen(me: Contender) -> Steps[Grant | Row | None]:
    """The last of its tries is sent, and its answer is ignored."""
    steps = _acquire_at_once(me)
    tries = 0
    request = next(steps)
    while True:
        reply = yield request
        tries += isinstance(request, Write) and request.operation == "Update"
        if tries == _protocol._TRIES:
            return None
        try:
            request = steps.send(reply)
        except StopIteration as end:
            found: Grant | Row | None = end.value
            return found


def _handed_for_any_ticket(me: Contender, seen: Position, handed: HandedOver) -> Steps[Grant | None]:
    return (yield from _take_handed(me, seen, replace(handed, ticket=seen.place.ticket)))


def _only_what_was_read(me: Contender, queue: Queue, *_: Any) -> Steps[None]:
    for row in queue.mine:
        yield from me.send(_writes.delete_my_row(me.claim, row.ticket))


def _refused_beside_a_conflict(error: ClientError) -> Any:
    response: Any = error.response
    reasons = response.get("CancellationReasons", [])
    refused = tuple(each.get("Code") == "ConditionalCheckFailed" for each in reasons)
    if any(refused):
        return Refusal(refused, tuple(each.get("Item") or None for each in reasons))
    return _meaning_of_answer(error)


def _leave_what_is_read(me: Contender, _tickets: Collection[int]) -> Steps[None]:
    return _leave(me)


def _withdrawn_each_time(claim: Claim, ticket: int, now: Moment) -> TransactWrite:
    return replace(_withdraw(claim, ticket, now), once=None)


FOUND = (
    BrokenLock(
        "a transaction without a token",
        "a late copy of a withdrawal's first attempt found the row that a late copy of its PutItem had put back, and "
        "counted off another waiter",
        frozenset({"counts"}),
        ((_requests, "transact_write_call", _transaction_without_a_token),),
        Faults(twice=150, late=50),
    ),
    BrokenLock(
        "a deadline on the local clock alone",
        "a machine frozen between its grant and its lease, while it woke the next, its local clock with it, took "
        "the grant for as fresh as before",
        frozenset({"exclusion"}),
        (
            (Contender, "_with_whole_lease", _settled_by_the_local_clock),
            (Contender, "as_known_now", lambda _, grant: grant),
        ),
        Faults(freeze=10),
    ),
    BrokenLock(
        "past the count without checking the room",
        "a reader that found the queue empty came in beside a writer that was granted meanwhile",
        frozenset({"limit"}),
        ((Contender, "read_queue", _queue_with_room),),
    ),
    BrokenLock(
        "the Date of a reply to a frozen machine",
        "a machine that was frozen while a reply arrived, with its local clock, judged the table's time to be earlier",
        frozenset({"exclusion"}),
        ((TableTime, "observe", _observe_after_a_freeze),),
        Faults(freeze=10),
    ),
    BrokenLock(
        "a lease settled by what is known now",
        "a lease was made shorter by its own owner, who knew the table's time better by then: no harm was seen in it",
        frozenset({"leases grow"}),
        (
            (_time, "_SLOWEST_MS", 600_000),
            (_writes, "whole_lease_until_ms", lambda claim, _, now: now.latest_ms + claim.lease_ms),
        ),
        Faults(pause=20),
    ),
    BrokenLock(
        "a limit without a number",
        "a late copy of an operator's request closed the lock again, long after it had been opened",
        frozenset({"limit"}),
        tuple(
            (_conditions, condition, ALWAYS)
            for condition in ("LIMIT_AS_I_SAW", "LIMIT_UNSET_AS_I_SAW", "NO_LIMIT_IS_SET", "NO_LIMIT_UNSET_YET")
        ),
        Faults(twice=150, late=50),
    ),
    BrokenLock(
        "a take-over of ten at most",
        "and none if more have crashed: eleven expired readers kept any writer out for ever",
        frozenset({"liveness"}),
        tuple((module, "expired_holders", _ten_expired) for module in (_protocol, _hand_over)),
        Faults(),
    ),
    BrokenLock(
        "a release that treats every refusal as its own earlier attempt",
        "a lock that was freed by force, or whose item was deleted, was never reported as lost",
        frozenset({"outcomes"}),
        ((Contender, "free", _free_or_freed_before),),
        Faults(pause=5),
    ),
    BrokenLock(
        "a lock that was freed by force, and reported as not held",
        "an operator whose reply was lost heard that the lock was not held",
        frozenset({"outcomes"}),
        ((Contender, "free", _forced_in_vain),),
        Faults(reply_lost=300),
    ),
    BrokenLock(
        "a loss that the lease does not report",
        "set_data had learned from the table that the lock is lost, and is_held() was true for a minute",
        frozenset({"outcomes"}),
        ((Holdings, "set_data", _shown_without_consequence),),
        Faults(pause=5),
    ),
    BrokenLock(
        "a second row of a waiter that a release grants the lock",
        "it polled while the release was being applied, found neither its row nor the grant, and joined again: the row "
        "stayed, and all others waited for a lease",
        frozenset({"told"}),
        (
            (_writes, "mint_ticket", without(_writes.mint_ticket, _conditions.NOT_A_HOLDER_YET)),
            (_acquire, "take_handed", _handed_for_any_ticket),
            (Contender, "_delete_what_is_left", _only_what_was_read),
        ),
        Faults(),
    ),
    BrokenLock(
        "a refusal beside a conflict",
        "a waiter whose record wait was over withdrew while a release that grants it the lock was being applied: its "
        "row was gone, the lock item was still reserved, and it was told that it had left",
        frozenset({"told"}),
        ((_sdk, "_meaning_of_answer", _refused_beside_a_conflict),),
        Faults(),
    ),
    BrokenLock(
        "a waiter that only withdraws what it reads",
        "its client was closed while a release that grants it the lock was being applied: it found neither its row nor "
        "the grant, and left the lock held",
        frozenset({"told"}),
        ((scripts, "leave", _leave_what_is_read),),
        Faults(),
    ),
    BrokenLock(
        "a late mint that puts the time of the last ticket back",
        "a late copy of a request that mints a ticket made the last one look old: a ticket minted since, whose row was "
        "on its way, was declared void",
        frozenset({"no eviction"}),
        ((_writes, "mint_ticket", without(_writes.mint_ticket, _conditions.MY_TICKET_IS_THE_LATEST)),),
        Faults(twice=150, late=50),
    ),
    BrokenLock(
        "a second withdrawal of a ticket",
        "the first one was interrupted before its answer came, a late copy of the request that wrote the row wrote it "
        "again, and the second one lowered the count once more",
        frozenset({"counts"}),
        ((_writes, "withdraw", _withdrawn_each_time),),
        Faults(twice=150, reply_lost=100),
    ),
    BrokenLock(
        "a last try whose answer is ignored",
        "at the fifth refusal in a row the lock was taken, and its owner heard that it was not",
        frozenset({"told", "counts", "nothing left"}),
        ((Contender, "acquire_at_once", _last_answer_unseen),),
        Faults(),
        Caps(tries=2),
    ),
)
