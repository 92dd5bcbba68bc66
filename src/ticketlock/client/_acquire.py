"""One acquisition: join the queue, poll and sleep until the turn comes, and leave the queue if the wait ends early."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import sqrt

from ticketlock.errors import (
    OutcomeUnknown,
    PermitsMismatch,
    RequestNotApplied,
    TableError,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.locks._hand_over import Next, take_handed
from ticketlock.locks._items import LockName
from ticketlock.locks._outcomes import Claim, Grant, HandedOver, Position, is_closed, wait_is_over
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.wire._requests import Pause, Steps

# For a lock that has not been released yet.
_HOLD_IN_SHORTEST_SLEEPS = 10

# For the first in line.
_FINEST_SHARE = 0.03
_GROWTH = 0.5
_LATER_GROWTH = 0.125

# A release that wakes it should come before its poll: such a release cannot grant the lock to a waiter that is polling.
_AFTER_THE_RELEASE_SHARE = 0.5
_AFTER_THE_RELEASE_IN_SHORTEST_SLEEPS = 4

# For the waiters behind it, in turns.
_EARLY = 0.5
_EARLY_BY_ROOT = 0.2
_AT_LEAST = 0.25
_TRUSTED_TURNS = 100
_OVERDUE_SHARE = 0.25
_LONGEST_A_TURN = 2
# All waiters before it may leave: a free lock stays idle until it polls.
_LONGEST_BEHIND = 20

# For a hand-over.
_REQUESTS = 3
_SLOWLY = 1.25
_GRANTS_THAT_TELL = 3
# The minimum, also if a setting is shorter, or if the holder is late.
_ALWAYS_MS = 5

_log = logging.getLogger("ticketlock")

_PATIENCE_MS = 1_500


@dataclass(frozen=True, slots=True)
class PaceBounds:
    """The shortest and the longest sleep of the first in line, in milliseconds."""

    shortest_ms: float = 5
    longest_ms: float = 400


class Pace:
    """What one waiter learns about the speed of its queue.

    Args:
        bounds: those of the sleep of the first in line.
        hand_over_ms: how long a hand-over takes, as the last wait for the same lock measured it; 0 without one.
    """

    def __init__(self, bounds: PaceBounds, hand_over_ms: float = 0) -> None:
        self._bounds = bounds
        # Half of it: a wait that slept too long because of it made no poll that could correct it.
        self.hand_over_ms = max(hand_over_ms / 2, 2 * bounds.shortest_ms)
        self._woke_ms: float | None = None
        self._counted: tuple[int, int] | None = None
        self._grant_ms: float | None = None
        self._token: int | None = None
        self._unchanged_since_ms = 0

    @property
    def longest_ms(self) -> float:
        """The longest sleep of the first in line."""
        return self._bounds.longest_ms

    def sleep_ms(
        self, seen: Position, *, lease_ms: int, rest_ms: float | None, jitter: float, will_be_woken: bool = False
    ) -> float:
        """How long to sleep after a poll.

        Args:
            seen: the position that the poll found.
            lease_ms: the lease of the waiter's row.
            rest_ms: the remaining record wait; None for ever.
            jitter: a random number in [0, 1), so that waiters do not poll in step.
            will_be_woken: whether the release will wake the first in line.
        """
        self._learn(seen)
        shortest_ms = self._bounds.shortest_ms
        hold_ms = seen.mean_hold_ms
        if hold_ms is None:
            hold_ms = int(min(_HOLD_IN_SHORTEST_SLEEPS * shortest_ms, self._bounds.longest_ms))
        until_free_ms: float
        if seen.next_free_ms is not None:
            until_free_ms = seen.next_free_ms - seen.now.likely_ms
        elif seen.fencing_token is None:
            # The item was not read.
            until_free_ms = 0
        else:
            # It has no holder and yet is not granted: it is closed. Count from the last grant, or the first poll.
            until_free_ms = self._unchanged_since_ms - seen.now.local_ms
        if seen.turns == 0:
            if will_be_woken:
                least_ms = _AFTER_THE_RELEASE_IN_SHORTEST_SLEEPS * shortest_ms
                until_free_ms += max(least_ms, hold_ms * _AFTER_THE_RELEASE_SHARE)
            ms = self._in_front_ms(until_free_ms, hold_ms, jitter)
            if seen.lease_over_ms is not None:
                # If the holder has crashed, a poll after this moment takes the lock, and none before.
                until_over_ms = seen.lease_over_ms + EXPIRY_MARGIN_MS - seen.now.earliest_ms
                ms = min(ms, until_over_ms + shortest_ms) if until_over_ms >= 0 else ms
        else:
            ms = self._behind_ms(seen, until_free_ms, hold_ms, jitter)
        # The row must be extended before the last quarter of its lease.
        row_ms = seen.place.lease_until_ms - seen.now.latest_ms - lease_ms // 4
        ms = min(max(shortest_ms, ms), max(_ALWAYS_MS, row_ms), lease_ms / 2)
        if rest_ms is not None:
            ms = max(0, min(ms, rest_ms))
        self._woke_ms = seen.now.local_ms + ms
        return ms

    def _in_front_ms(self, until_free_ms: float, hold_ms: float, jitter: float) -> float:
        shortest_ms, longest_ms = self._bounds.shortest_ms, self._bounds.longest_ms
        if until_free_ms > -shortest_ms:
            ms = max(0, until_free_ms) + shortest_ms * (0.5 + jitter)
        else:
            # Half of the time by which the holder is late, up to half a hold; beyond that the mean says nothing.
            late_ms = -until_free_ms
            ms = min(late_ms * _GROWTH, max(shortest_ms, hold_ms / 2, late_ms * _LATER_GROWTH))
        return min(max(ms, hold_ms * _FINEST_SHARE), longest_ms)

    def _behind_ms(self, seen: Position, until_free_ms: float, hold_ms: float, jitter: float) -> float:
        shortest_ms, longest_ms = self._bounds.shortest_ms, self._bounds.longest_ms
        turn_ms = hold_ms + min(self.hand_over_ms, hold_ms / 2 + 4 * shortest_ms)
        if self._grant_ms is not None:
            # Waiters that may hold the lock together are several grants in one turn.
            turn_ms = min(turn_ms, max(2 * shortest_ms, self._grant_ms * max(1, seen.ahead) / seen.turns))
        early = _EARLY + _EARLY_BY_ROOT * (sqrt(seen.turns) - 1 + jitter)
        # A holder that is late, or a first in line that sleeps, may take as long again: waiting a part of that loses
        # nothing.
        overdue_ms = -until_free_ms if seen.holders else seen.now.local_ms - self._unchanged_since_ms
        leaving_ms = max(until_free_ms, overdue_ms * _OVERDUE_SHARE)
        ms = leaving_ms + max(_AT_LEAST, seen.turns - early) * turn_ms
        if self._grant_ms is None:
            # The mean may come from one slow hold: the first sleep behind many waiters is shorter, and measures their
            # pace.
            ms /= 1 + seen.turns / _TRUSTED_TURNS
        # If the holds suddenly become short, no waiter sleeps through many of them.
        return min(ms, seen.turns * _LONGEST_A_TURN * longest_ms, _LONGEST_BEHIND * longest_ms)

    def _learn(self, seen: Position) -> None:
        local_ms = seen.now.local_ms
        if self._woke_ms is not None:
            hand_over_ms = self._bounds.shortest_ms + _REQUESTS * max(1, local_ms - self._woke_ms)
            # Down at once, up slowly: the request after a slow one need not be slow.
            self.hand_over_ms = min(hand_over_ms, self.hand_over_ms * _SLOWLY)
        if seen.fencing_token is None:
            return
        if self._token != seen.fencing_token:
            self._token, self._unchanged_since_ms = seen.fencing_token, local_ms
        if self._counted is None:
            self._counted = (local_ms, seen.fencing_token)
            return
        grants = seen.fencing_token - self._counted[1]
        if grants >= _GRANTS_THAT_TELL:
            self._grant_ms = (local_ms - self._counted[0]) / grants
            self._counted = (local_ms, seen.fencing_token)


class WaitEnded(BaseException):
    """The caller's ``on_wait`` has raised an error, or the call would wait for itself.

    Attributes:
        error: that error.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Wait:
    """The state of one wait: calls ``on_wait`` after each poll, and decides whether a release wakes it.

    Args:
        jitter: random numbers in [0, 1), so that waiters do not poll in step.
        on_wait: the caller's; called after each poll that found the lock taken.
        waits_if_closed: whether it outlasts a time in which an operator has closed the lock.
        check: called before `on_wait`; what it raises ends the wait, too.
        will_be_woken: whether the lock, as the last poll found it, will be released in this process.

    Attributes:
        claim: the claim that waits.
        record_wait_ms: the record wait, by the local clock; None for ever; 0 to fail instead of queueing.
        pace: decides when to poll.
        expects_others: whether other waiters are assumed from the start.
        saw_others: whether a poll found a holder, or a waiter before this one.
        refused: the refusal that the last poll met; None if it was answered.
        is_over: whether the wait was interrupted and is leaving the queue.
        has_left: whether it has left the queue without the lock.
        sleeps: whether it sleeps between two polls, so that a release may wake it.
        wake: ends the present sleep; any thread may call it.
        contender: what sends its requests; None before the first one.
        has_asked: whether it has sent anything that may have been written.
        until_ms: when it must end, on the local clock, also if the table does not answer; None for never.
    """

    def __init__(
        self,
        claim: Claim,
        record_wait_ms: int | None,
        pace: Pace,
        *,
        jitter: Callable[[], float],
        on_wait: Callable[[Position], object] | None = None,
        expects_others: bool = False,
        waits_if_closed: bool = True,
        will_be_woken: Callable[[Position], bool] = lambda _: False,
        check: Callable[[Position], object] = lambda _: None,
    ) -> None:
        self.claim = claim
        self.record_wait_ms = record_wait_ms
        self.pace = pace
        self.expects_others = expects_others
        self.waits_if_closed = waits_if_closed
        self.refused: TableRefused | None = None
        self.saw_others = self.is_over = self.has_left = self.sleeps = self.has_asked = False
        self.until_ms: int | None = None
        self.wake: Callable[[], object] = _no_thread_sleeps
        self.contender: Contender | None = None
        self._check = check
        self._on_wait = on_wait
        self._jitter = jitter
        self._will_be_woken = will_be_woken
        self._began_ms = 0
        self._polls = 0
        self._seen: Position | None = None
        self._token: int | None = None
        self._handed: HandedOver | None = None
        self._left_before = 0
        self._is_to_poll = False

    def begin(self, local_ms: int) -> None:
        """The record wait begins."""
        self._began_ms = local_ms

    def rest_ms(self, local_ms: int) -> int | None:
        """What is left of the record wait; None for ever."""
        return None if self.record_wait_ms is None else self._began_ms + self.record_wait_ms - local_ms

    def note_position(self, seen: Position) -> None:
        """Learn of a poll that found that it is not the turn; tell the caller."""
        _log.debug("waiting for %r: ticket %s, %s ahead", self.lock.entity, seen.place.ticket, seen.ahead)
        self._polls += 1
        # The first report comes from joining: its count may include crashed waiters.
        self.saw_others |= bool(seen.holders) or (self._polls > 1 and seen.ahead > 0)
        self._seen = seen
        self._left_before = 0
        try:
            self._check(seen)
            if self._on_wait is not None:
                self._on_wait(replace(seen, lock=self.lock, waited_ms=seen.now.local_ms - self._began_ms))
        except BaseException as error:
            raise WaitEnded(error) from error
        self.sleeps = True

    def sleep_ms(self, seen: Position, rest_ms: int | None) -> float:
        """How long to sleep after this poll."""
        return self.pace.sleep_ms(
            seen,
            lease_ms=self.claim.lease_ms,
            rest_ms=rest_ms,
            jitter=self._jitter(),
            will_be_woken=self._will_be_woken(seen),
        )

    def pause_ms(self) -> float:
        """How long to pause before a poll that failed is sent again."""
        return self._jitter() * self.pace.longest_ms

    def note_failure(self, error: TableError) -> None:
        """Learn that a poll failed, and is tried again. A refusal may be for good: a warning tells of the first one."""
        if isinstance(error, TableRefused) and self.refused is None:
            _log.warning(
                "polls for the lock on %r are refused, and tried again until the wait ends: %s", self.lock.entity, error
            )
        self.refused = error if isinstance(error, TableRefused) else None

    @property
    def lock(self) -> LockName:
        """The lock that is waited for."""
        return self.claim.lock

    @property
    def ticket(self) -> int | None:
        """Its ticket, by the last poll; None before the first one."""
        return self._seen.place.ticket if self._seen is not None else None

    def has_seen(self, holder: str) -> bool:
        """Whether its last poll has found this holder."""
        return self._seen is not None and any(each.owner == holder for each in self._seen.holders)

    @property
    def tickets(self) -> set[int]:
        """Those with which it may be in the queue: by its last poll, and the last one whose row it has sent."""
        sent = self.contender.last_ticket if self.contender is not None else None
        return {each for each in (self.ticket, sent) if each is not None}

    @property
    def is_woken(self) -> bool:
        """Whether the last release or grant in this process makes this waiter the next one, by its last poll.

        Each fencing token since that poll stands for a waiter before it that got the lock, or for a newcomer past the
        queue; in the latter case it polls once too early. Waiters of this process that have left are not before it.
        """
        seen, token = self._seen, self._token
        if self._handed is not None or self._is_to_poll:
            return True
        if seen is None or token is None or seen.fencing_token is None:
            return False
        if self._polls == 1:
            # It has joined, and not polled: the count of those before it may include waiters that have left.
            return True
        return seen.turns - self._left_before <= token - seen.fencing_token

    def note_grant(self, fencing_token: int) -> None:
        """Learn of a grant after which there is room."""
        self._token = fencing_token
        if self.is_woken:
            self.wake()

    @property
    def following(self) -> Next | None:
        """What a release needs to grant it the lock; None if it is polling, or not known to be the next."""
        if not self.sleeps or self._seen is None or not self._seen.is_next:
            return None
        return Next(self.claim, self._seen, wakes=self.contender is not None and self.contender.wakes)

    def one_has_left(self, *, is_first_now: bool) -> None:
        """Learn that a waiter before it has left the queue without the lock.

        Args:
            is_first_now: whether no waiter of this process is before it any more: then it polls.
        """
        self._left_before += 1
        if is_first_now:
            self._is_to_poll = True
            self.wake()

    def receive_grant(self, handed: HandedOver) -> None:
        """Learn that a release has granted it the lock."""
        self._handed = handed
        self.wake()

    def wake_up(self) -> HandedOver | None:
        """End a sleep; return the grant that a release has written for this waiter, or None."""
        self.sleeps = False
        handed, self._token, self._handed, self._is_to_poll = self._handed, None, None, False
        return handed


def _no_thread_sleeps() -> None:
    pass


def acquire(me: Contender, wait: Wait) -> Steps[Grant]:
    """Wait for the lock and take it.

    Raises:
        RecordWaitExceeded: the record wait has ended, or the lock is closed; the contender has left the queue.
        TableRefused: the polls were refused until the record wait ended; it has left the queue.
        PermitsMismatch, UnsupportedFormat: the lock has another number of permits by now, or a newer format; the
            contender has left the queue.
        TableError: the table could not be used until the queue row's lease ended; what was written delays other waiters
            by one lease at most.
    """
    wait.begin(me.now.local_ms)
    # The pace leaves a quarter of the row's lease, so extending the row below half of it is enough for the sleeps.
    me.row_kept_ms = me.claim.lease_ms // 2
    found: Grant | Position = yield from me.take_ticket(wait.record_wait_ms, others_wait=wait.expects_others)
    while isinstance(found, Position):
        rest_ms = wait.rest_ms(me.now.local_ms)
        is_over = rest_ms is not None and rest_ms <= 0
        ends_now = found.is_closed and not wait.waits_if_closed
        if not is_over:
            wait.note_position(found)
        if is_over or ends_now:
            won = yield from me.withdraw(found.place.ticket)
            if won is not None:
                return won
            wait.has_left = True
            if wait.refused is not None:
                raise wait.refused
            raise wait_is_over(found) if is_over else is_closed(found)
        yield from me.send(Pause(wait.sleep_ms(found, rest_ms)))
        found = yield from _next_poll(me, wait, found)
    return found


def _next_poll(me: Contender, wait: Wait, seen: Position) -> Steps[Grant | Position]:
    """Poll. While the table is unreachable keep trying until the lease of the queue row ends.

    Returns:
        The result of the poll, or the last position if the record wait has ended.
    """
    handed = wait.wake_up()
    while True:
        try:
            if handed is not None and (won := (yield from take_handed(me, seen, handed))) is not None:
                return won
            found = yield from me.check_turn(seen.place, None)
            wait.refused = None
            return found
        except (PermitsMismatch, UnsupportedFormat):
            # While an operator's limit counted, the permits that the claim asks for did not matter; or a newer version
            # has used the lock since.
            left = yield from me.withdraw(seen.place.ticket)
            if left is not None:
                yield from me.release(left, data_left=left.data_left)
            raise
        except (RequestNotApplied, OutcomeUnknown, TableRefused) as error:
            wait.note_failure(error)
            yield from me.send(Pause(wait.pause_ms()))
            if me.now.latest_ms >= seen.place.lease_until_ms:
                raise
            rest_ms = wait.rest_ms(me.now.local_ms)
            if rest_ms is not None and rest_ms <= 0:
                return seen


def leave(me: Contender, tickets: Collection[int] = (), *, only_the_place: bool = False) -> Steps[None]:
    """Undo an acquisition that was interrupted: delete its queue rows, release its grant.

    Args:
        tickets: the last ones that the waiter knows of. A release may be granting it the lock, or its row is being
            written: while such a transaction is being applied, a read may find neither its row nor the grant, and a
            withdrawal waits for the end.
        only_the_place: keep a grant, since another process with the same owner may be working under it.
    """
    queue = yield from me.read_queue(lambda seen: bool(seen.mine), _PATIENCE_MS, only_leaves=True)
    holder = queue.item.holder(me.claim.owner) if queue.item is not None else None
    for each in sorted({row.ticket for row in queue.mine} | set(tickets)):
        won = yield from me.withdraw(each)
        if won is not None and not only_the_place:
            yield from me.release(won, data_left=won.data_left)
            holder = None
    if queue.item is not None and holder is not None and not only_the_place:
        held = yield from me.renew(holder.fencing_token)
        yield from me.release(held, data_left=queue.item.data_left)
