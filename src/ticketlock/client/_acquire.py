"""One acquisition: join the queue, poll and sleep until the turn comes, and leave the queue if the wait ends early."""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from ticketlock.client._pace import Pace
from ticketlock.errors import (
    OutcomeUnknown,
    PermitsMismatch,
    RequestNotApplied,
    TableError,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.locks import (
    Claim,
    Contender,
    Grant,
    HandedOver,
    LockName,
    Next,
    Position,
    is_closed,
    take_handed,
    wait_is_over,
)
from ticketlock.wire import Pause, Steps

_log = logging.getLogger("ticketlock")

_PATIENCE_MS = 1_500


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
