"""One acquisition: join the queue, poll and sleep until the turn comes, and leave the queue if the wait ends early."""

import logging
from collections.abc import Callable, Collection

from ticketlock.client._pace import Pace
from ticketlock.errors import OutcomeUnknown, PermitsMismatch, RequestNotApplied, TableRefused
from ticketlock.locks._hand_over import Next, take_handed
from ticketlock.locks._items import LockName
from ticketlock.locks._outcomes import Claim, Grant, HandedOver, Position, wait_is_over
from ticketlock.locks._protocol import Contender
from ticketlock.wire._requests import Pause, Steps

_log = logging.getLogger("ticketlock")


class WaitEnded(BaseException):
    """The caller's ``on_wait`` has raised an error.

    Attributes:
        error: that error.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Waits:
    """The state of one wait: calls ``on_wait`` after each poll, and decides whether a release wakes it.

    Args:
        on_wait: the caller's; called after each poll that found the lock taken.

    Attributes:
        claim: the claim that waits.
        pace: decides when to poll.
        expects_others: whether other waiters are assumed from the start.
        saw_others: whether a poll found a holder, or a waiter before this one.
        is_over: whether the wait was interrupted and is leaving the queue.
        sleeps: whether it sleeps between two polls, so that a release may wake it.
        wake: ends the present sleep; any thread may call it.
        contender: what sends its requests; None before the first one.
        has_asked: whether it has sent anything that may have been written.
        until_ms: when it must end, on the local clock, also if the table does not answer; None for never.
    """

    def __init__(
        self,
        claim: Claim,
        on_wait: Callable[[Position], object] | None,
        pace: Pace,
        *,
        expects_others: bool,
    ) -> None:
        self.claim = claim
        self.pace = pace
        self.expects_others = expects_others
        self.saw_others = self.is_over = self.sleeps = self.has_asked = False
        self.until_ms: int | None = None
        self.wake: Callable[[], object] = _no_thread_sleeps
        self.contender: Contender | None = None
        self._on_wait = on_wait
        self._polls = 0
        self._seen: Position | None = None
        self._token: int | None = None
        self._handed: HandedOver | None = None
        self._left_before = 0
        self._is_to_poll = False

    def __call__(self, seen: Position) -> None:
        _log.debug("waiting for %r: ticket %s, %s ahead", self.lock.entity, seen.place.ticket, seen.ahead)
        self._polls += 1
        # The first report comes from joining: its count may include crashed waiters.
        self.saw_others |= bool(seen.holders) or (self._polls > 1 and seen.ahead > 0)
        self._seen = seen
        self._left_before = 0
        if self._on_wait is not None:
            try:
                self._on_wait(seen)
            except BaseException as error:
                raise WaitEnded(error) from error
        self.sleeps = True

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
        return Next(self.claim, self._seen) if self.sleeps and self._seen is not None and self._seen.is_next else None

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

    def wakes(self) -> HandedOver | None:
        """End a sleep; return the grant that a release has written for this waiter, or None."""
        self.sleeps = False
        handed, self._token, self._handed, self._is_to_poll = self._handed, None, None, False
        return handed


def _no_thread_sleeps() -> None:
    pass


_PATIENCE_MS = 1_500


def acquire(
    me: Contender,
    record_wait_ms: int | None,
    pace: Pace,
    *,
    on_wait: Callable[[Position], object],
    jitter: Callable[[], float],
    others_wait: bool = False,
    wakes: Callable[[], HandedOver | None] = lambda: None,
    will_be_woken: Callable[[Position], bool] = lambda _: False,
) -> Steps[Grant]:
    """Wait for the lock and take it.

    Args:
        me: the contender.
        record_wait_ms: the record wait, by the local clock; None for ever; 0 to fail instead of queueing.
        pace: decides when to poll.
        on_wait: called with the position after each poll that found that it is not the turn.
        jitter: random numbers in [0, 1).
        others_wait: as in ``Contender.take_ticket``.
        wakes: called when a sleep ends; returns the grant that a release in this process has written for this
            waiter, or None.
        will_be_woken: whether the lock, as the last poll found it, will be released in this process.

    Raises:
        RecordWaitExceeded: the record wait has ended; the contender has left the queue.
        PermitsMismatch: the lock has another number of permits by now; the contender has left the queue.
        TableError: the table could not be used until the queue row's lease ended; what was written delays other waiters
            by one lease at most.
    """
    began_ms = me.now.local_ms
    # The pace leaves a quarter of the row's lease, so extending the row below half of it is enough for the sleeps.
    me.row_kept_ms = me.claim.lease_ms // 2
    found: Grant | Position = yield from me.take_ticket(record_wait_ms, others_wait=others_wait)
    while isinstance(found, Position):
        rest_ms = None if record_wait_ms is None else began_ms + record_wait_ms - me.now.local_ms
        if rest_ms is not None and rest_ms <= 0:
            won = yield from me.withdraw(found.place.ticket)
            if won is not None:
                return won
            raise wait_is_over(found)
        on_wait(found)
        sleep_ms = pace.sleep_ms(
            found,
            lease_ms=me.claim.lease_ms,
            rest_ms=rest_ms,
            jitter=jitter(),
            will_be_woken=will_be_woken(found),
        )
        yield from me.send(Pause(sleep_ms))
        found = yield from _next_poll(me, found, wakes(), began_ms, record_wait_ms, jitter() * pace.longest_ms)
    return found


def _next_poll(
    me: Contender,
    seen: Position,
    handed: HandedOver | None,
    began_ms: int,
    record_wait_ms: int | None,
    pause_ms: float,
) -> Steps[Grant | Position]:
    """Poll. While the table is unreachable keep trying until the lease of the queue row ends.

    Returns:
        The result of the poll, or the last position if the record wait has ended.
    """
    while True:
        try:
            if handed is not None and (won := (yield from take_handed(me, seen, handed))) is not None:
                return won
            return (yield from me.check_turn(seen.place, None))
        except PermitsMismatch:
            # While an operator's limit counted, the permits that the claim asks for did not matter.
            left = yield from me.withdraw(seen.place.ticket)
            if left is not None:
                yield from me.release(left, data_left=left.data_left)
            raise
        except (RequestNotApplied, OutcomeUnknown, TableRefused):
            yield from me.send(Pause(pause_ms))
            if me.now.latest_ms >= seen.place.lease_until_ms:
                raise
            if record_wait_ms is not None and me.now.local_ms >= began_ms + record_wait_ms:
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
