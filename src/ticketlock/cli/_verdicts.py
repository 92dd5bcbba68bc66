"""What an operator concludes from one reading of a lock: whether its holders renew, who is stuck, what to do next.

No I/O and no clock: times come with the reading.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

from ticketlock import LockState
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._operators import first_in_line

HolderWord = Literal["renewing", "granted", "silent", "expired"]
Word = Literal[HolderWord, "closed", "free", "?"]

_A_REQUEST_TAKES_MS = 5_000
"""At most, usually: with its retries, or with the start of a Lambda function."""

_SAME_MOMENT_MS = 3_000
"""A lease is counted from the upper bound of table time at its grant, which may be that much later than the grant."""

_TAKEN_BY_THEN_MS = 60_000
"""By then the first in line has polled a lock that is free: a parked workflow, after half of its lease."""

_LONG = 10
_LONG_AT_LEAST_MS = 60_000


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    """A state in one word, and for how long it has lasted.

    Attributes:
        word: of a holder, or of a lock: then also ``closed``, ``free``, or ``?`` if it could not be read.
        for_ms: of a holder since its last renewal, or its grant; of an expired one since the end of its lease; of a
            free lock since it was first seen so. None if that is not known.
    """

    word: Word
    for_ms: int | None = None


_FROM_GOOD_TO_BAD: tuple[Word, ...] = get_args(HolderWord)


def verdict_on(holder: Holder, now_ms: int) -> TimedVerdict:
    """Whether a holder renews its lease.

    A heartbeat is due after half a lease, and takes some seconds. If the last renewal is not older than that, the
    holder is ``renewing``; if it has not renewed at all yet, ``granted``. After that it is ``silent`` until its lease
    ends, and then ``expired``.

    A silent holder has crashed, is paused, cannot reach the table, or has no heartbeat (``ticketlock acquire``): the
    table does not say which.
    """
    if now_ms >= holder.lease_until_ms:
        return TimedVerdict("expired", now_ms - holder.lease_until_ms)
    silent_ms = max(0, now_ms - holder.renewed_ms)
    if silent_ms > holder.lease_ms / 2 + _A_REQUEST_TAKES_MS:
        return TimedVerdict("silent", silent_ms)
    has_renewed = holder.renewed_ms > holder.since_ms + _SAME_MOMENT_MS
    return TimedVerdict("renewing" if has_renewed else "granted", silent_ms)


def left_ms(holder: Holder, now_ms: int) -> int:
    """How much of a lease is left, 0 to the whole lease: it is counted from the upper bound of table time."""
    return min(max(0, holder.lease_until_ms - now_ms), holder.lease_ms)


class NextStep(Enum):
    """What to expect of a lock, or to do about it, in a few words.

    Attributes:
        NOTHING: no one waits.
        WAIT: its holder renews, or no renewal is due yet.
        LOOK: the same, and the holder has held it for much longer than others.
        WAIT_OUT: its holder is silent: the first in line takes the lock when the lease ends.
        TAKEN: the first in line takes it at its next poll.
        NOT_TAKEN: the first in line should have taken it by now.
        CLOSED: no one can take it before an operator unsets its limit.
        NOT_READ: this caller may not read it.
    """

    NOTHING = "nothing"
    WAIT = "wait"
    LOOK = "check its work"
    WAIT_OUT = "wait out lease"
    TAKEN = "next takes it"
    NOT_TAKEN = "run doctor"
    CLOSED = "ask who closed"
    NOT_READ = "no permission"


_STUCK = (NextStep.LOOK, NextStep.WAIT_OUT, NextStep.NOT_TAKEN, NextStep.CLOSED)


@dataclass(frozen=True, slots=True)
class Judged:
    """A lock as one reading found it.

    Attributes:
        verdict: of its worst holder; or that it is closed, or free.
        holder: the worst holder.
        alike: how many of its holders have this verdict.
        first: the first in line.
        next: what to expect, or to do.
        closed_by: the operator who has closed it, if no one holds it.
    """

    verdict: TimedVerdict
    holder: Holder | None = None
    alike: int = 0
    first: Row | None = None
    next: NextStep = NextStep.NOTHING
    closed_by: str | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether someone waits, and not just for a holder at work."""
        return self.next in _STUCK


def judge(found: LockState | None, free_for_ms: int | None = None) -> Judged:
    """The verdict on a lock.

    Args:
        found: the lock with its queue as far as the first waiter; None if this caller may not read it.
        free_for_ms: for how long it is known to have been free for the same first waiter.
    """
    if found is None:
        return Judged(TimedVerdict("?"), next=NextStep.NOT_READ)
    item, now_ms, first = found.item, found.now.likely_ms, first_in_line(found)
    if item is None:
        return Judged(TimedVerdict("free"))
    if is_free(item, first):
        late = free_for_ms is not None and free_for_ms > _TAKEN_BY_THEN_MS
        step = NextStep.NOTHING if first is None else NextStep.NOT_TAKEN if late else NextStep.TAKEN
        return Judged(TimedVerdict("free", free_for_ms), first=first, next=step)
    if not item.holders:
        by = None if item.limit_set is None else item.limit_set.by
        step = NextStep.NOTHING if first is None else NextStep.CLOSED
        return Judged(TimedVerdict("closed"), first=first, next=step, closed_by=by)
    holder, verdict = max(
        ((each, verdict_on(each, now_ms)) for each in item.holders), key=lambda each: _badness(each[1])
    )
    alike = sum(verdict_on(each, now_ms).word == verdict.word for each in item.holders)
    step = NextStep.NOTHING if first is None else _next(item, holder, verdict, now_ms)
    return Judged(verdict, holder, alike, first, step)


def is_free(item: LockItem, first: Row | None) -> bool:
    """Whether the first in line could take the lock, or anyone if no one waits."""
    return not item.holders and item.permits > 0 if first is None else item.room(first.mode) > 0


def _badness(verdict: TimedVerdict) -> tuple[int, int]:
    return _FROM_GOOD_TO_BAD.index(verdict.word), verdict.for_ms or 0


def _next(item: LockItem, holder: Holder, verdict: TimedVerdict, now_ms: int) -> NextStep:
    if item.permits == 0:
        return NextStep.CLOSED
    if verdict.word == "expired":
        return NextStep.NOT_TAKEN if (verdict.for_ms or 0) > _TAKEN_BY_THEN_MS else NextStep.TAKEN
    if verdict.word == "silent":
        return NextStep.WAIT_OUT
    longest_ms = max(_LONG * (item.mean_hold_ms or now_ms), _LONG_AT_LEAST_MS)
    return NextStep.LOOK if now_ms - holder.since_ms > longest_ms else NextStep.WAIT
