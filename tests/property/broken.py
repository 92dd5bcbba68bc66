"""Locks that are broken on purpose, each by one change that somebody has shipped, published or tried.

Every one has to be caught by a named promise; one that is not says that the search is blind there.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from ticketlock import _conditions, _protocol, _queue, _writes
from ticketlock._queue import look
from ticketlock._requests import Transaction, Write

ALWAYS = "attribute_exists(pk)"


@dataclass(frozen=True)
class BrokenLock:
    """One change, and who made it.

    Attributes:
        name: what is wrong.
        seen_in: where it comes from.
        breaks: the promise that catches it.
        changes: what is replaced: module, attribute, value.
    """

    name: str
    seen_in: str
    breaks: str
    changes: tuple[tuple[Any, str, Any], ...]

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Within the block the lock is this one."""
        with ExitStack() as stack:
            for module, attribute, value in self.changes:
                stack.enter_context(patch.object(module, attribute, value))
            yield


def _without(original: Callable[..., Write], *conditions: str) -> Callable[..., Write]:
    """A write that asks for less."""

    def write(*args: Any, **kwargs: Any) -> Write:
        made = original(*args, **kwargs)
        condition = made.condition
        for each in conditions:
            assert each in condition, (each, condition)
            condition = condition.replace(each, ALWAYS)
        return replace(made, condition=condition)

    return write


def _turn_clears_the_flag(*args: Any, **kwargs: Any) -> Transaction:
    made = _take_my_turn(*args, **kwargs)
    grant, row = made.writes
    update = (grant.update or "").replace("waiting = waiting - :one", "waiting = :zero")
    return Transaction((replace(grant, update=update), row))


def _turn_without_the_seen_token(*args: Any, **kwargs: Any) -> Transaction:
    made = _take_my_turn(*args, **kwargs)
    grant, row = made.writes
    condition = grant.condition.replace(_conditions.NO_GRANT_SINCE_I_LOOKED, ALWAYS)
    return Transaction((replace(grant, condition=condition), row))


def _turn_of_a_holder(*args: Any, **kwargs: Any) -> Transaction:
    made = _take_my_turn(*args, **kwargs)
    grant, _ = made.writes
    return Transaction((replace(grant, condition=grant.condition.replace(_conditions.NOT_A_HOLDER_YET, ALWAYS)),))


def _heal_without_void(*args: Any, **kwargs: Any) -> Write:
    made = _take_past_the_count(*args, **kwargs)
    return replace(made, update=(made.update or "").replace(", voidUpTo = :issued", ""))


def _reviving_renewal(claim: Any, fencing_token: int, now: Any) -> Write:
    made = _renew(claim, fencing_token, now)
    holder = {"M": _writes._holder(claim, now)}
    return replace(
        made,
        update="SET #me = :holder, #my_token = :token",
        condition=ALWAYS,
        values={**made.values, ":holder": holder},
    )


def _first_page(me: Any, until: Any, patience_ms: int | None = None) -> Any:
    """A look that takes one page for the whole."""
    queue = yield from look(me, (lambda _: True) if until is _queue.somebody_lives else until, patience_ms)
    return queue


_take_my_turn = _writes.take_my_turn
_take_past_the_count = _writes.take_past_the_count
_renew = _writes.renew
_TAKES = ("take_at_once", "take_over", "take_past_the_count")


BROKEN_LOCKS = (
    BrokenLock(
        "a release without a condition",
        "dynalock, dynamodblock: it frees whoever holds the lock now",
        "counts",
        ((_writes, "release", _without(_writes.release, _conditions.I_HOLD_WITH_MY_TOKEN)),),
    ),
    BrokenLock(
        "a heartbeat that revives",
        "the published protocol: its only condition is that the row exists",
        "counts",
        ((_writes, "renew", _reviving_renewal),),
    ),
    BrokenLock(
        "wall clocks",
        "the published protocol, and every lock that compares two machines' clocks",
        "exclusion",
        ((_queue, "is_over", lambda until_ms, now: until_ms < (now.wall_ms or 0)),),
    ),
    BrokenLock(
        "time to live as expiry",
        "locks that compare the attribute of time to live, in whole seconds",
        "exclusion",
        ((_queue, "is_over", lambda until_ms, now: until_ms // 1_000 <= now.latest_ms // 1_000),),
    ),
    BrokenLock(
        "expiry judged by the upper end of table time",
        "the margins left out",
        "exclusion",
        ((_queue, "is_over", lambda until_ms, now: until_ms < now.latest_ms),),
    ),
    BrokenLock(
        "count, then insert",
        "sfn-concurrency-lease: the limit is looked at, and not asked for by the write",
        "limit",
        (
            (
                _writes,
                "take_at_once",
                _without(_writes.take_at_once, _conditions.A_PERMIT_IS_FREE, _conditions.NOBODY_SHARES),
            ),
        ),
    ),
    BrokenLock(
        "'<>' for the limit",
        "the AWS sample of a Step Functions semaphore: it never recovers from a lower limit",
        "limit",
        ((_writes, "_ROOM", ("held <> permits", _conditions.NOBODY_SHARES)),),
    ),
    BrokenLock(
        "a flag 'queue is empty' in place of the count",
        "a model of this lock",
        "no overtaking",
        ((_writes, "take_my_turn", _turn_clears_the_flag),),
    ),
    BrokenLock(
        "a count that is put back without declaring tickets void",
        "a model of this lock",
        "no overtaking",
        ((_writes, "take_past_the_count", _heal_without_void),),
    ),
    BrokenLock(
        "a partial page taken for the whole queue",
        "a model of this lock",
        "no overtaking",
        ((_protocol, "look", _first_page),),
    ),
    BrokenLock(
        "a renewal that may be earlier than the one that stands",
        "a model of this lock: a late renewal shortens the lease",
        "exclusion",
        ((_conditions, "MY_LEASE_GROWS", ALWAYS),),
    ),
    BrokenLock(
        "a grant to one who holds already",
        "a model of this lock: a repeated request counts a permit twice",
        "counts",
        (
            *((_writes, take, _without(getattr(_writes, take), _conditions.NOT_A_HOLDER_YET)) for take in _TAKES),
            (_writes, "take_my_turn", _turn_of_a_holder),
        ),
    ),
    BrokenLock(
        "a turn without the token that was seen",
        "a model of this lock: a Query is no snapshot",
        "exclusion",
        ((_writes, "take_my_turn", _turn_without_the_seen_token),),
    ),
    BrokenLock(
        "an expired holder removed though it has renewed",
        "locks that delete what they have read",
        "exclusion",
        ((_conditions, "expired_holder_as_seen", lambda _: ALWAYS),),
    ),
)
