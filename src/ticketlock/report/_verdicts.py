"""What an operator concludes from one reading of a lock: whether its holders renew, who is stuck, what to do next.

No I/O and no clock: times come with the reading.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, get_args

from ticketlock.locks import MAX_HOLDERS, Holder, LockItem, LockState, Row, first_in_line

HolderWord = Literal["renewing", "granted", "suspended", "silent", "expired"]
Word = Literal[HolderWord, "limited", "closed", "free", "newer format", "?"]
Tone = Literal["good", "late", "bad", "shut", "open", "plain"]
"""The colour of a state: ``shut`` of what an operator has set, ``plain`` of what the table does not tell."""

_A_REQUEST_TAKES_MS = 5_000
"""At most, usually: with its retries, or with the start of a Lambda function."""

_SAME_MOMENT_MS = 3_000
"""A lease is counted from the upper bound of table time at its grant, which may be that much later than the grant."""

_TAKEN_BY_THEN_MS = 10_000
"""By then a waiter that has become the first in line has polled a lock that it may take."""

_TAKEN_BY_WORKFLOW_MS = 35_000
"""The same of a workflow: if its wake-up was lost, or after long waits, it polls after half of its lease, usually a
minute."""

_LONG_LEASE_MS = 600_000
"""Others do not wait for the end of such a lease."""

_LONG = 10
_LONG_AT_LEAST_MS = 60_000


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    """A state in one word, and for how long it has lasted.

    Attributes:
        word: of a holder, or of a lock: then also ``limited``, ``closed``, ``free``, ``newer format`` if a newer
            version has written it, or ``?`` if it could not be read.
        for_ms: of a holder since its last renewal, or its grant; of an expired one since the end of its lease; of a
            limited lock since its limit was set; of a free lock since the first in line could have taken it. None if no
            one waits, or if it could not be read.
    """

    word: Word
    for_ms: int | None = None


_FROM_GOOD_TO_BAD: tuple[Word, ...] = get_args(HolderWord)


def verdict_on(holder: Holder, now_ms: int) -> TimedVerdict:
    """Whether a holder renews its lease.

    A heartbeat is due after half a lease, and takes some seconds. If the last renewal is not older than that, the
    holder is ``renewing``; if it has not renewed at all yet, ``granted``. After that it is ``silent`` until its lease
    ends, and then ``expired``.

    A durable execution of Lambda is ``suspended`` while nothing of it runs; its lease lasts as long.

    A silent holder has crashed, is paused, cannot reach the table, or has no heartbeat (``ticketlock acquire``): the
    table does not say which.
    """
    if now_ms >= holder.lease_until_ms:
        return TimedVerdict("expired", now_ms - holder.lease_until_ms)
    silent_ms = max(0, now_ms - holder.renewed_ms)
    if holder.suspended:
        return TimedVerdict("suspended", silent_ms)
    if silent_ms > holder.lease_ms / 2 + _A_REQUEST_TAKES_MS:
        return TimedVerdict("silent", silent_ms)
    has_renewed = holder.renewed_ms > holder.since_ms + _SAME_MOMENT_MS
    return TimedVerdict("renewing" if has_renewed else "granted", silent_ms)


def tone_of(holder: Holder, verdict: TimedVerdict) -> Tone:
    """The colour of a holder: good only if the table shows that it lives, or has had no time to show it."""
    if verdict.word in ("expired", "silent"):
        return "bad" if verdict.word == "expired" else "late"
    if verdict.word == "suspended":
        return "plain"
    # A holder of hours may have crashed at once.
    return "plain" if verdict.word == "granted" and holder.lease_ms >= _LONG_LEASE_MS else "good"


def left_ms(holder: Holder, now_ms: int) -> int:
    """How much of a lease is left, 0 to the whole lease: it is counted from the upper bound of table time."""
    return min(max(0, holder.lease_until_ms - now_ms), holder.lease_ms)


class NextStep(Enum):
    """What to expect of a lock, or to do about it, in a few words.

    Attributes:
        NOTHING: no one waits.
        WAIT: its holder renews, or no renewal is due yet.
        ASK: the same, but its long lease has not been renewed, so the table cannot tell for long whether it works.
        LOOK: its holder renews, and has held it for much longer than others.
        LIMITED: its holders renew, and more could hold it but for an operator's limit.
        WAIT_OUT: its holder is silent: the first in line takes the lock when the lease ends.
        TAKEN: the first in line takes it at its next poll.
        NOT_TAKEN: the first in line should have taken it by now: it has crashed, or is paused.
        CLOSED: no one can take it before an operator unsets its limit.
        NOT_READ: this caller may not read it.
        UPGRADE: a newer version of ticketlock has written it, and can read it.
    """

    NOTHING = "nothing"
    WAIT = "wait"
    ASK = "ask holder"
    LOOK = "check its work"
    LIMITED = "ask who limited"
    WAIT_OUT = "wait out lease"
    TAKEN = "next takes it"
    NOT_TAKEN = "remove-waiter"
    CLOSED = "ask who closed"
    NOT_READ = "no permission"
    UPGRADE = "upgrade"


_STUCK = (NextStep.ASK, NextStep.LOOK, NextStep.WAIT_OUT, NextStep.NOT_TAKEN, NextStep.CLOSED)


@dataclass(frozen=True, slots=True)
class Judged:
    """A lock as one reading found it.

    Attributes:
        verdict: of its worst holder; or that it is limited, closed, or free.
        holder: the worst holder.
        alike: how many of its holders have this verdict.
        first: the first in line.
        next: what to expect, or to do.
        closed_by: the operator who has closed it, if no one holds it.
        late_ms: for how long the first in line could have taken it, if it could.
    """

    verdict: TimedVerdict
    holder: Holder | None = None
    alike: int = 0
    first: Row | None = None
    next: NextStep = NextStep.NOTHING
    closed_by: str | None = None
    late_ms: int = 0

    @property
    def is_stuck(self) -> bool:
        """Whether someone waits, and not just for a holder at work."""
        return self.next in _STUCK

    @property
    def tone(self) -> Tone:
        """The colour of its verdict: what is stuck is never good."""
        word = self.verdict.word
        if word in ("closed", "limited"):
            return "shut"
        if word == "free":
            return "late" if self.is_stuck else "open"
        tone = "plain" if self.holder is None else tone_of(self.holder, self.verdict)
        if tone not in ("good", "plain") or not self.is_stuck:
            return tone
        return "plain" if self.next is NextStep.CLOSED else "late"


def judge(found: LockState | None) -> Judged:
    """The verdict on a lock.

    Args:
        found: the lock with its queue as far as the first waiter; None if this caller may not read it.
    """
    if found is None:
        return Judged(TimedVerdict("?"), next=NextStep.NOT_READ)
    item, now_ms, first = found.item, found.now.likely_ms, first_in_line(found)
    if item is None:
        return Judged(TimedVerdict("free"))
    if first is None and not item.holders and item.permits > 0:
        return Judged(TimedVerdict("free"))
    if first is not None and item.room(first.mode) > 0:
        late_ms = _late_ms(found, item, first)
        return Judged(TimedVerdict("free", late_ms), first=first, next=_of_the_first(first, late_ms), late_ms=late_ms)
    if not item.holders:
        by = None if item.limit_set is None else item.limit_set.by
        step = NextStep.NOTHING if first is None else NextStep.CLOSED
        return Judged(TimedVerdict("closed"), first=first, next=step, closed_by=by)
    judged = [(each, verdict_on(each, now_ms)) for each in _in_the_way(item, first, now_ms)]
    holder, verdict = max(judged, key=lambda each: _badness(each[1]))
    alike = sum(each.word == verdict.word for _, each in judged)
    if first is None:
        return Judged(verdict, holder, alike)
    if verdict.word == "expired" and item.permits > 0:
        # Several may have been in the way: the last of them counts.
        over_ms = min(each.for_ms or 0 for _, each in judged if each.word == "expired")
        late_ms = min(over_ms, _late_ms(found, item, first))
        return Judged(verdict, holder, alike, first, _of_the_first(first, late_ms), late_ms=late_ms)
    step = _of_the_holder(item, holder, verdict, now_ms)
    if verdict.word in ("renewing", "granted") and _is_limited(item, first):
        set_ms = None if item.limit_set is None else max(0, now_ms - item.limit_set.at_ms)
        step = NextStep.LIMITED if step is NextStep.WAIT else step
        return Judged(TimedVerdict("limited", set_ms), holder, alike, first, step)
    return Judged(verdict, holder, alike, first, step)


def _is_limited(item: LockItem, first: Row) -> bool:
    """Whether an operator's limit keeps the first in line from a lock that is not closed."""
    if not item.permits_are_set or item.permits == 0:
        return False
    # Rows of earlier versions do not tell the number.
    asked = max(item.permits_of_users or 0, first.permits or 0) or MAX_HOLDERS
    return replace(item, permits=asked).room(first.mode) > 0


def taken_by_then_ms(first: Row) -> int:
    """How soon the first in line takes a lock that it may take, if it lives."""
    # The owner of an execution is its ARN, also if it polls and so has no session.
    is_workflow = first.session is not None or first.owner.startswith("arn:")
    return _TAKEN_BY_WORKFLOW_MS if is_workflow else _TAKEN_BY_THEN_MS


def _late_ms(found: LockState, item: LockItem, first: Row) -> int:
    """For how long nothing but the leases of holders has kept the first in line from taking the lock."""
    changes = (item.last_release, item.limit_set, item.limit_unset)
    # A waiter before it that has crashed kept its place until its lease ended.
    before = [row.lease_until_ms for row in found.rows if item.void_up_to < row.ticket < first.ticket]
    since_ms = [first.created_at_ms, *before, *(each.at_ms for each in changes if each is not None)]
    return max(0, found.now.likely_ms - max(since_ms))


def _in_the_way(item: LockItem, first: Row | None, now_ms: int) -> Sequence[Holder]:
    """The holders; without those whose end, which is near, does not help the first in line, since others stay."""
    left, ending = list(item.holders), list[Holder]()
    for word in ("expired", "silent"):
        of_word = [each for each in left if verdict_on(each, now_ms).word == word]
        ending += of_word
        if first is None or item.room(first.mode, without=ending) > 0:
            break
        left = [each for each in left if each not in of_word]
    return left or item.holders


def _of_the_first(first: Row, free_for_ms: int) -> NextStep:
    return NextStep.NOT_TAKEN if free_for_ms > taken_by_then_ms(first) else NextStep.TAKEN


def _badness(verdict: TimedVerdict) -> tuple[int, int]:
    return _FROM_GOOD_TO_BAD.index(verdict.word), verdict.for_ms or 0


def _of_the_holder(item: LockItem, holder: Holder, verdict: TimedVerdict, now_ms: int) -> NextStep:
    if item.permits == 0:
        return NextStep.CLOSED
    if verdict.word == "silent":
        return NextStep.WAIT_OUT
    if verdict.word == "suspended":
        return NextStep.WAIT
    held_ms = now_ms - holder.since_ms
    if verdict.word == "granted" and holder.lease_ms >= _LONG_LEASE_MS and held_ms >= (item.mean_hold_ms or 0):
        return NextStep.ASK
    longest_ms = max(_LONG * (item.mean_hold_ms or now_ms), _LONG_AT_LEAST_MS)
    return NextStep.LOOK if held_ms > longest_ms else NextStep.WAIT
