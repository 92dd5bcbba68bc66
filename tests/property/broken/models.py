"""This lock without one of its precautions: bugs of its models, and conditions left out.

Conditions that another one covers are not listed: a void ticket (to declare it void mints a token, which a turn
requires as well), a count that includes no waiter, another owner's row (a ticket is minted once). Nor is a renewal
after the lease: it revives nothing that was taken, as the contract's tests show.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from property import explore, scripts
from property.broken.lock import ALWAYS, BrokenLock, without
from property.faults import Faults

from ticketlock.client._acquire import Wait, acquire
from ticketlock.locks import _conditions, _grants, _queue, _writes
from ticketlock.locks._hand_over import Next
from ticketlock.locks._items import Holder, LockItem, LockName, Row, lock_key
from ticketlock.locks._modes import Mode
from ticketlock.locks._outcomes import Grant, Hold, Released
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import Queue
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import number
from ticketlock.wire._requests import Steps, TransactWrite, Write
from ticketlock.wire._table_time import Moment

_hand_over = _grants.hand_over
_suspend = _writes.suspend
_take_my_turn = _grants.take_my_turn
_take_past_the_count = _grants.take_past_the_count
_delete_stale_row = _writes.delete_stale_row
_shorten_row = _writes.shorten_row
_take_in = Queue.take_in
_read_queue = Contender.read_queue
_room = LockItem.room
_with_whole_lease = Contender._with_whole_lease
_TAKES = ("take_at_once", "take_over", "take_past_the_count")


def _handed_without_the_row(*args: Any) -> TransactWrite:
    grant, _ = _hand_over(*args).writes
    return TransactWrite((grant,))


def _any_waiter(wait: Wait) -> Next | None:
    return Next(wait.claim, replace(wait._seen, is_next=True)) if wait.sleeps and wait._seen is not None else None


def _turn_clears_the_flag(*args: Any, **kwargs: Any) -> TransactWrite:
    made = _take_my_turn(*args, **kwargs)
    grant, row = made.writes
    update = (grant.update or "").replace("waiting = waiting - :one", "waiting = :zero")
    return TransactWrite((replace(grant, update=update), row))


def _first_without(original: Callable[..., TransactWrite], condition: str) -> Callable[..., TransactWrite]:
    """A transaction whose write of the lock item has fewer conditions."""

    def transaction(*args: Any, **kwargs: Any) -> TransactWrite:
        first, *others = original(*args, **kwargs).writes
        return TransactWrite((replace(first, condition=first.condition.replace(condition, ALWAYS)), *others))

    return transaction


def _heal_without_void(*args: Any, **kwargs: Any) -> Write:
    made = _take_past_the_count(*args, **kwargs)
    return replace(made, update=(made.update or "").replace(", voidUpTo = :issued", ""))


def _sweep_and_count(lock: LockName, row: Row) -> TransactWrite:
    fewer = Write(
        "Update",
        lock_key(lock),
        update="SET waiting = waiting - :one",
        condition=_conditions.A_WAITER_IS_COUNTED,
        values={":one": number(1), ":zero": number(0)},
    )
    return TransactWrite((_delete_stale_row(lock, row), fewer))


def _shortened_unseen(*args: Any) -> TransactWrite:
    made = _shorten_row(*args)
    parked, row = made.writes
    return replace(made, writes=(parked, replace(row, condition="")))


def _first_page(me: Any, until: Any, *more: Any, **options: Any) -> Steps[Queue]:
    """A poll that takes one page for the whole queue."""
    return (yield from _read_queue(me, (lambda _: True) if until is _queue.has_a_live_row else until, *more, **options))


def _taken_in_as_alive(queue: Queue, row: Row, now: Moment) -> None:
    _take_in(queue, replace(row, lease_until_ms=now.latest_ms), now)


def _released_by_nothing(me: Contender, *_: Any, **__: Any) -> Steps[Released]:
    yield from me.send(TIME_CHECK)
    return Released(held_ms=0, lease_was_over=False)


def _left_for_less(me: Contender, held: Hold, _: int) -> Steps[Released]:
    return (yield from me.release(held))


def _withdrawn_by_nothing(me: Contender, _: int) -> Steps[None]:
    yield from me.send(TIME_CHECK)


def _no_room_beside_a_holder(item: LockItem, mode: Mode, *, without: Sequence[Holder] = ()) -> int:
    return 0 if any(holder not in without for holder in item.holders) else _room(item, mode, without=without)


def _turn_leaves_the_count(*args: Any, **kwargs: Any) -> TransactWrite:
    grant, row = _take_my_turn(*args, **kwargs).writes
    update = (grant.update or "").replace("waiting = waiting - :one", "waiting = waiting + :zero")
    return TransactWrite((replace(grant, update=update), row))


def _acquire_impatiently(me: Contender, wait: Wait) -> Steps[Grant]:
    wait.record_wait_ms = 1 if wait.record_wait_ms else wait.record_wait_ms
    return (yield from acquire(me, wait))


def _acquire_patiently(me: Contender, wait: Wait) -> Steps[Grant]:
    wait.record_wait_ms = wait.record_wait_ms or None
    return (yield from acquire(me, wait))


def _settled_with_the_last_token(me: Contender, *args: Any, **more: Any) -> Steps[Grant | None]:
    grant = yield from _with_whole_lease(me, *args, **more)
    return replace(grant, fencing_token=grant.fencing_token - 1) if grant is not None else None


def _dropped(condition: str, why: str, *caught_by: str) -> BrokenLock:
    changes = ((_conditions, condition, ALWAYS),)
    return BrokenLock(f"without the condition {condition}", why, frozenset(caught_by), changes)


BROKEN_MODELS = (
    BrokenLock(
        "expiry judged by the upper end of table time",
        "a model of this lock: the margins left out",
        frozenset({"exclusion", "no eviction", "no overtaking"}),
        ((_queue, "is_over", lambda until_ms, now: until_ms < now.latest_ms),),
    ),
    BrokenLock(
        "a flag for an empty queue in place of the count",
        "a model of this lock",
        frozenset({"counts"}),
        ((_grants, "take_my_turn", _turn_clears_the_flag),),
    ),
    BrokenLock(
        "a count that is put back without declaring tickets void",
        "a model of this lock",
        frozenset({"counts"}),
        ((_grants, "take_past_the_count", _heal_without_void),),
    ),
    BrokenLock(
        "a partial page treated as the whole queue",
        "a model of this lock",
        frozenset({"no overtaking", "no eviction", "counts"}),
        ((Contender, "read_queue", _first_page),),
    ),
    BrokenLock(
        "a sweep that lowers the count",
        "a model of this lock: a late copy of a row's PutItem is swept as well, and was counted off already",
        frozenset({"counts"}),
        ((_writes, "delete_stale_row", _sweep_and_count),),
    ),
    BrokenLock(
        "a grant to an owner that holds already",
        "a model of this lock: a repeated request counts a permit twice",
        frozenset({"counts"}),
        (
            *((_grants, take, without(getattr(_grants, take), _conditions.NOT_A_HOLDER_YET)) for take in _TAKES),
            (_grants, "take_my_turn", _first_without(_take_my_turn, _conditions.NOT_A_HOLDER_YET)),
        ),
    ),
    BrokenLock(
        "a turn without the token that was seen",
        "a model of this lock: a Query is no snapshot",
        frozenset({"limit", "no overtaking", "counts", "liveness"}),
        ((_grants, "take_my_turn", _first_without(_take_my_turn, _conditions.NO_GRANT_SINCE_I_READ)),),
    ),
    BrokenLock(
        "tokens that begin anew with a new item",
        "a model of this lock: time to live has deleted the item",
        frozenset({"fencing"}),
        ((_writes, "LAST_TOKEN", "if_not_exists(fencingToken, :zero)"),),
    ),
    BrokenLock(
        "a crashed waiter is waited for",
        "locks whose queue has no leases",
        frozenset({"liveness"}),
        ((Queue, "take_in", _taken_in_as_alive),),
    ),
    BrokenLock(
        "a release that does nothing",
        "a lease that does all the work",
        frozenset({"outcomes", "liveness", "nothing left"}),
        ((Contender, "free", _released_by_nothing),),
    ),
    BrokenLock(
        "a withdrawal that does nothing",
        "a lease that does all the work",
        frozenset({"liveness", "nothing left", "counts"}),
        ((Contender, "_withdraw", _withdrawn_by_nothing),),
    ),
    replace(
        _dropped("PARKED_AS_I_SAW", "a waiter that has parked again sleeps longer than its row lasts", "leases grow"),
        begins=explore.behind_one_that_has_gone,
        shown_by=Faults(pause=10),
    ),
    BrokenLock(
        "a row that is shortened whatever became of it",
        "an update without a condition makes a row again that was granted, or swept",
        frozenset({"nothing left"}),
        ((_writes, "shorten_row", _shortened_unseen),),
        Faults(pause=10),
        begins=explore.behind_one_that_has_gone,
    ),
    _dropped("NO_WAITER_IS_COUNTED", "a newcomer overtakes waiters", "no overtaking"),
    _dropped("MY_LEASE_GROWS", "a late renewal shortens the lease", "leases grow"),
    BrokenLock(
        "a row that is put again",
        "a model of this lock: a late copy takes back an extension",
        frozenset({"leases grow"}),
        ((_conditions, "NO_SUCH_ROW", "attribute_exists(pk) OR attribute_not_exists(pk)"),),
    ),
    BrokenLock(
        "the number of the last request",
        "a late execution of an earlier deployment sets its number of permits again",
        frozenset({"number"}),
        (
            (_writes, "_is_later", lambda claim, _: bool(claim.permits_since_ms)),
            (_writes, "_LATER", replace(_writes._LATER, condition=_conditions.NO_LIMIT_IS_SET)),
        ),
    ),
    BrokenLock(
        "a number that ends with its first execution",
        "a lock keeps the number of its first use, whatever is deployed",
        frozenset({"number"}),
        ((_writes, "_is_later", lambda *_: False), (_writes, "_LATER", _writes._OF_NO_TIME)),
    ),
    BrokenLock(
        "room by the number before",
        "a grant that lowers the number of permits is judged by the higher one",
        frozenset({"limit"}),
        ((_writes, "_LATER", replace(_writes._LATER, room=_conditions.A_PERMIT_IS_FREE)),),
    ),
    BrokenLock(
        "a limit that hides a deployment",
        "when it is unset the number of the deployment before it is in force again",
        frozenset({"number"}),
        ((_writes, "_LATER_BENEATH_A_LIMIT", _writes._LEFT),),
    ),
    BrokenLock(
        "heals at once",
        "a ticket is declared void before its row could follow",
        frozenset({"no eviction"}),
        ((Contender, "_is_old", lambda *_: True),),
    ),
    BrokenLock(
        "no room beside a holder",
        "a lock with one permit: readers, and those who share permits, come in one after the other",
        frozenset({"liveness"}),
        ((LockItem, "room", _no_room_beside_a_holder),),
    ),
    BrokenLock(
        "a turn that leaves the count",
        "the queue never appears empty again: one write never takes the lock",
        frozenset({"counts"}),
        ((_grants, "take_my_turn", _turn_leaves_the_count),),
    ),
    BrokenLock(
        "a release that grants the lock to a waiter that has left",
        "no waiter polls its row: the lock is held for a lease without work",
        frozenset({"nothing left", "counts", "no eviction", "liveness", "idle", "told"}),
        ((_grants, "hand_over", _handed_without_the_row),),
    ),
    BrokenLock(
        "a release that grants the lock to any waiter",
        "a waiter of its process passes those of others",
        frozenset({"no overtaking"}),
        ((Wait, "following", property(_any_waiter)),),
    ),
    BrokenLock(
        "a record wait of a millisecond",
        "seconds treated as milliseconds",
        frozenset({"liveness"}),
        ((scripts, "acquire", _acquire_impatiently),),
    ),
    BrokenLock(
        "a record wait without an end",
        "a time-out that is not passed on",
        frozenset({"liveness"}),
        ((scripts, "acquire", _acquire_patiently),),
    ),
    BrokenLock(
        "a least time that is not held",
        "a job that takes a moment is run again by the next machine in the same period",
        frozenset({"held at least"}),
        ((Contender, "leave_held", _left_for_less),),
    ),
    BrokenLock(
        "a suspension with a short lease",
        "an execution that waits for days with the lease of a process that renews it",
        frozenset({"exclusion"}),
        ((_writes, "suspend", lambda claim, token, _, now: _suspend(claim, token, now.latest_ms, now)),),
    ),
    BrokenLock(
        "an invocation that is not fenced off",
        "the service has given it up, and it still renews, or suspends, the lock of the next one",
        frozenset({"invocations", "exclusion"}),
        ((_writes, "_of_my_invocation", lambda _: ()), (Contender, "_check_invocation", lambda *_: None)),
    ),
    BrokenLock(
        "the token before the write",
        "a holder receives the token that was in the item, not the one that it was granted",
        frozenset({"fencing"}),
        ((Contender, "_with_whole_lease", _settled_with_the_last_token),),
    ),
)
