"""The ticket lock: every decision of the protocol, and nothing else. No I/O, no clock.

The rules, in rank order:

1. **The queue decides whose turn it is; one conditional write on the lock item decides who holds.** A process that
   stalls anywhere, for any time, can be late, but never becomes a second holder.
2. Every granting write mints the fencing token, and requires that its owner is not a holder yet: a retry grants
   nothing twice.
3. The end of a lease is computed from the upper bound of table time, and compared with the lower bound, less a margin.
4. A refusal returns the item that refused it: the client decides by that item, not by what it read before. "Refused,
   but the item names me as a holder" means that an earlier try was applied.

A ticket's life::

    (none) ──acquire──► holder                                   no holder, no waiter: one write
    (none) ──mint──► numbered ──put row──► waiting               the row must follow its ticket within a second
    waiting ──my turn──► holder                                  one transaction deletes the row and adds the holder
    waiting ──withdraw──► (none)        waiting ──expired──► swept by one of the first two in line
    holder ──renew──► holder ──release──► (none)                 holder ──expired──► removed by the next grant

The ticket lock is due to Reed and Kanodia (eventcounts and sequencers, 1979) and Mellor-Crummey and Scott (1991); its
DynamoDB form with an atomic counter and queue rows to "Distributed Locking in DynamoDB" (2020); the fencing token to
Lamport's and Kleppmann's arguments. docs/decisions says what differs here, and why.

Each method of ``Contender`` is a generator: it yields requests, is sent replies, and returns its result. The caller
performs the requests with boto3, asyncio or in a simulated world.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ticketlock.errors import InvalidLockRequest, LockLost, OutcomeUnknown, RequestNotApplied, TicketLockError
from ticketlock.locks import _grants as grants
from ticketlock.locks import _reads as reads
from ticketlock.locks import _writes as write
from ticketlock.locks._items import FORMAT, Holder, LockItem, Row, Session, holder_attribute, is_lock_item
from ticketlock.locks._outcomes import (
    BY_THE_OWNER,
    Claim,
    Grant,
    HandedOver,
    Hold,
    Place,
    Position,
    Released,
    Releasing,
    check_data,
    no_wait,
    wait_is_over,
)
from ticketlock.locks._queue import Queue, expired_holders, has_a_live_row, position_of, the_turn_is_known
from ticketlock.locks._writes import check_permits, in_force
from ticketlock.wire import Item, Moment, Pause, Reply, Request, Steps, TaskAnswer, Write, integer

_PAGE = 100
_TRIES = 5
_MOST_COME_FIRST = 100
_SWEPT_PER_POLL = 25
# How many waiters with stale tokens a wake-up skips: they are about to poll, or have crashed.
_STALE_TOKENS = 3
PATIENCE_TO_WAKE_MS = 1_500
# A waiter between two tasks parks or polls again within seconds, and extends its row.
COMES_AGAIN_MS = 60_000
# Two processes know the table's time as well as that.
_TIMES_DIFFER_MS = 5_000
_BY_CHARACTERS = 1_024
# The attributes of a session that `TicketLock.grant_use` lets a client read; not the token of a heartbeat.
READ_TO_WAKE = ("pk", "sk", "wakeUpToken")


class Contender:
    """The operations of one owner on one lock.

    Args:
        wakes: whether it wakes the next in line whenever it leaves the lock or the queue.

    Attributes:
        wakes: whether it does.
        last_seen: the lock item as it was last read; None if there was none.
        last_ticket: the last ticket whose row it has sent; None before the first.
    """

    def __init__(self, claim: Claim, now: Moment, *, wakes: bool = False) -> None:
        self.claim = claim
        self.now = now
        self.wakes = wakes
        self.last_ticket: int | None = None
        self.keep_row_for(claim.lease_ms)
        self.last_seen: LockItem | None = None

    def keep_row_for(self, lease_ms: int) -> None:
        """Extend the queue row by this lease, which may be longer than that of a grant."""
        self.row_lease_ms = lease_ms
        # After a poll a row has at least this much of its lease: a parked waiter may sleep for half a lease.
        self.row_kept_ms = lease_ms * 3 // 4

    def send(self, request: Request) -> Steps[Reply]:
        """Send one request; its reply updates ``now``."""
        reply = yield request
        self.now = reply.now
        return reply

    def read_queue(
        self, until: Callable[[Queue], bool], patience_ms: int | None = None, *, only_leaves: bool = False
    ) -> Steps[Queue]:
        """Read the lock item and the queue from its front, until ``until`` is satisfied or the queue ends.

        Args:
            only_leaves: whether the reader leaves the queue: then the lock may have any number of permits, and its item
                may be of a newer version. Of that only the reader's own rows are read.
        """
        request = reads.read_front(self.claim, patience_ms)
        queue, is_newer = Queue(self.claim), False
        while True:
            reply = yield from self.send(request)
            for found in reply.items:
                if found is None:
                    continue
                if is_lock_item(found):
                    queue.item = self._for_me(found) if only_leaves else self.checked_item(found)
                    is_newer = integer(found["format"]) != FORMAT
                elif not is_newer or found.get("owner") == {"S": self.claim.owner}:
                    queue.take_in(Row.parse(found), self.now)
            queue.to_the_end = reply.last_key is None
            if queue.to_the_end or until(queue):
                return queue
            request = replace(request, limit=_PAGE, after=reply.last_key)

    def checked_item(self, item: Item | None) -> LockItem | None:
        """Parse the lock item, and check that the claim may use the lock with its permits."""
        if item is None:
            self.last_seen = None
            return None
        lock = LockItem.parse(item)
        check_permits(self.claim, lock)
        self.last_seen = lock
        return lock

    def _for_me(self, item: Item | None) -> LockItem | None:
        """Parse the lock item for a renewal, a release or a withdrawal, which do without its format."""
        return LockItem.parse_for(self.claim.owner, item) if item is not None else None

    # Joining.

    def join(self) -> Steps[tuple[Place | None, LockItem]]:
        """Mint a ticket and write its row: two requests, or one transaction if the table is slow.

        If the claim has raised the number of permits, the next in line is woken.

        Returns:
            The ticket with its row's lease, and the lock item after the ticket was minted; without a ticket, the lock
            item that names me as a holder.
        """
        seen = self.last_seen
        place, item = yield from self._join()
        if self.wakes and seen is not None and seen.permits < item.permits:
            yield from self.wake_next()
        return place, item

    def _join(self) -> Steps[tuple[Place | None, LockItem]]:
        perhaps_stands = False
        for _ in range(_TRIES):
            minted_at = self.now
            reply = yield from self.send(write.mint_ticket(self.claim, minted_at, self.last_seen))
            item = self.checked_item(reply.item)
            if item is not None and not reply.applied and item.holder(self.claim.owner) is not None:
                return None, item
            if not reply.applied or item is None:
                continue
            # `unused`: the ticket is counted in `waiting`, and its row cannot be written any more.
            was_sent, unused = False, True
            last_ms = minted_at.local_ms + write.JOIN_DEADLINE_MS
            if self.now.local_ms <= last_ms:
                try:
                    if (yield from self._noted(item.issued, last_ms)):
                        was_sent, self.last_ticket = True, item.issued
                        lease_until_ms = self.now.latest_ms + self.claim.lease_ms
                        row = write.put_row(self.claim, item.issued, minted_at.local_ms, self.now)
                        reply = yield from self.send(row)
                        if reply.applied or self._is_mine(reply.item):
                            return Place(item.issued, lease_until_ms), item
                        unused = False
                except (RequestNotApplied, OutcomeUnknown) as error:
                    # If its row was written after all, the next poll recognises it by its owner.
                    if was_sent and isinstance(error, OutcomeUnknown):
                        perhaps_stands, unused = True, False
                    # An error brings no reply, hence no time; the pause updates `now` for the next write.
                    yield from self.send(Pause(0))
            try:
                joined = yield from self._join_together(item, unused=unused)
            except RequestNotApplied as error:
                if perhaps_stands:
                    raise OutcomeUnknown(f"a queue row that was sent before may have been written: {error}") from error
                raise
            if joined is not None:
                return joined
        given_up = OutcomeUnknown if perhaps_stands else RequestNotApplied
        raise given_up(f"in {_TRIES} tries no ticket was followed by its row within {write.JOIN_DEADLINE_MS} ms")

    def _join_together(self, minted: LockItem, *, unused: bool) -> Steps[tuple[Place, LockItem] | None]:
        """Mint the next ticket together with its row; None if another waiter was faster in every try.

        Each try that fails lets one other waiter join, so only a steady stream of newcomers makes all of them fail.

        Args:
            minted: the lock item after this contender's last ticket was minted.
            unused: whether that ticket is counted in ``waiting`` and its row cannot be written any more.
        """
        seen: LockItem | None = minted
        for _ in range(_MOST_COME_FIRST):
            if seen is None:
                break
            counted = unused and minted.issued > seen.void_up_to
            lease_until_ms = self.now.latest_ms + self.claim.lease_ms
            self.last_ticket = seen.issued + 1
            reply = yield from self.send(write.join_together(self.claim, seen, self.now, counted=counted))
            joined = replace(seen, issued=seen.issued + 1, waiting=seen.waiting + (not counted))
            if reply.applied or self._is_mine(reply.items[1]):
                return Place(joined.issued, lease_until_ms), joined
            seen = self.checked_item(reply.items[0])
        return None

    def _noted(self, ticket: int, last_ms: int) -> Steps[bool]:
        """Record the ticket in the session for the clean-up; return whether its row may be written.

        It may not if a later ticket is recorded, because the same step ran twice: the clean-up would not find this row.
        """
        if self.claim.noted_in is None:
            return True
        note = write.note_ticket(self.claim, self.claim.noted_in, ticket, self.now)
        reply = yield from self.send(replace(note, not_after_local_ms=last_ms))
        return reply.applied or (reply.item is not None and integer(reply.item["ticket"]) == ticket)

    def _is_mine(self, row: Item | None) -> bool:
        return row is not None and Row.parse(row).owner == self.claim.owner

    # The verbs of a waiter.

    def take_ticket(self, record_wait_ms: int | None, *, others_wait: bool = False) -> Steps[Grant | Position]:
        """Acquire the lock at once, or join the queue; see ``LockTable.take_ticket``.

        Args:
            others_wait: the caller has just seen waiters, and its owner has sent no request yet: the try to acquire at
                once is left out, since it would fail.
        """
        found = None
        if record_wait_ms == 0 or not others_wait:
            found = yield from self.acquire_at_once()
        if isinstance(found, Grant):
            return found
        if isinstance(found, Row):
            return position_of(None, Place(found.ticket, found.lease_until_ms), self.now, ahead=0)
        if record_wait_ms == 0:
            raise no_wait(self.last_seen)
        return (yield from self._joined())

    def check_turn(self, place: Place, wait_until_ms: int | None) -> Steps[Grant | Position]:
        """Poll once; take the lock if it is my turn; leave the queue if the record wait has ended.

        With a grant, the next in line is woken if there is room for it too. See ``LockTable.check_turn``.
        """
        found = yield from self.check_position(place)
        if not isinstance(found, Grant) and wait_until_ms is not None and self.now.likely_ms >= wait_until_ms:
            won_meanwhile = yield from self.withdraw(found.place.ticket)
            if won_meanwhile is None:
                raise wait_is_over(found)
            found = won_meanwhile
        if self.wakes and isinstance(found, Grant) and found.next_may_enter:
            yield from self.wake_next()
            return self.as_known_now(found)
        return found

    # The operations.

    def acquire_at_once(self) -> Steps[Grant | Row | None]:
        """Take the lock if it has neither a holder nor a waiter.

        Returns:
            The grant; or my own row, if an earlier try has joined the queue; or None if there is a holder or a waiter.
        """
        at_once = partial(grants.take_at_once, self.claim)
        take: Callable[[Moment], Write] = at_once
        expired: Sequence[Holder] = ()
        for _ in range(_TRIES):
            built = self.now
            reply = yield from self.send(take(built))
            if reply.applied:
                grant = yield from self._granted(built, reply.item, len(expired))
                if grant is not None:
                    return grant
                # Another owner took it over before it was reported: the request took longer than the lease.
                take, expired = at_once, ()
                continue
            item = self.checked_item(reply.item)
            if item is not None and (mine := item.holder(self.claim.owner)) is not None:
                return (yield from self.report(item, mine, None))
            at_once = partial(grants.take_at_once, self.claim, seen=item)
            take, expired = at_once, expired_holders(item, self.now)
            if item is None:
                continue
            if in_force(self.claim, item).room(self.claim.mode, without=expired) <= 0:
                return None
            if item.waiting == 0:
                if expired:
                    take = partial(grants.take_over, self.claim, seen=item, expired=expired)
                continue
            queue = yield from self.read_queue(until=has_a_live_row)
            if queue.mine:
                return queue.mine[0]
            if queue.live or queue.item is None:
                return None
            expired = expired_holders(queue.item, self.now)
            if in_force(self.claim, queue.item).room(self.claim.mode, without=expired) <= 0:
                return None
            old = self._is_old(queue.item)
            if old and (yield from self._swept_a_live_row(queue)):
                expired = ()
                continue
            # Healing voids every row, so first all expired rows must be deleted: one may have been extended since.
            heal = old and len(queue.stale) <= _SWEPT_PER_POLL
            take = partial(grants.take_past_the_count, self.claim, seen=queue.item, expired=expired, heal=heal)
        return None

    def check_position(self, place: Place) -> Steps[Grant | Position]:
        """Poll: take the lock if it is my turn, else extend my queue row."""
        for _ in range(_TRIES):
            queue = yield from self.read_queue(until=the_turn_is_known)
            item = queue.item
            if item is not None and (holder := item.holder(self.claim.owner)) is not None:
                won = yield from self.report(item, holder, place.ticket)
                if won is not None:
                    yield from self._delete_what_is_left(queue, item, place)
                    return won
                continue
            place, is_void = yield from self._my_place(queue, place)
            if is_void or item is None or queue.surely_lacks(place.ticket):
                return (yield from self._joined(again=True))
            ahead, turns = queue.ahead_of(place.ticket), queue.turns_before(place.ticket)
            if queue.mine and ahead < 2 and (yield from self._swept_a_live_row(queue)):
                continue
            expired = expired_holders(item, self.now)
            if queue.mine and queue.may_enter(place.ticket, expired):
                built = self.now
                reply = yield from self.send(grants.take_my_turn(self.claim, built, place.ticket, item, expired))
                if reply.applied:
                    grant = yield from self._granted(built, None, len(expired), seen=item, ticket=place.ticket)
                    if grant is not None:
                        return grant
                continue
            kept = yield from self.extend(place, is_read=bool(queue.mine))
            if kept is None:
                return (yield from self._joined(again=True))
            is_next = bool(queue.mine) and ahead == 0
            yield from self._outlive(item)
            yield from self.wake_if_idle(queue)
            return position_of(item, kept, self.now, ahead, turns, is_next=is_next)
        return position_of(None, place, self.now, ahead=0)

    def withdraw(self, ticket: int) -> Steps[Grant | None]:
        """Leave the queue, and wake the next in line; see ``LockTable.withdraw``."""
        won = yield from self._withdraw(ticket)
        if self.wakes and won is None:
            yield from self.wake_next()
        return won

    def _withdraw(self, ticket: int) -> Steps[Grant | None]:
        reply = yield from self.send(write.withdraw(self.claim, ticket, self.now))
        if reply.applied or not reply.refused[0]:
            return None
        # Whatever number of permits it has by now: who leaves does not take it.
        item = self._for_me(reply.items[0])
        won = None
        if item is not None and (holder := item.holder(self.claim.owner)) is not None:
            won = yield from self.report(item, holder, ticket)
        yield from self.send(write.delete_my_row(self.claim, ticket))
        return won

    def renew(
        self, fencing_token: int, at_least_until_ms: int = 0, *, not_after_local_ms: int | None = None
    ) -> Steps[Grant]:
        """The heartbeat: give the grant a full new lease, or this end in table time if it is later; see
        ``LockTable.renew``.

        Args:
            not_after_local_ms: the last moment on the local clock at which it is sent: the holder's deadline. None for
                no such moment.
        """
        for _ in range(_TRIES):
            built = self.now
            renewal = write.renew(self.claim, fencing_token, built, at_least_until_ms)
            reply = yield from self.send(replace(renewal, not_after_local_ms=not_after_local_ms))
            item = self._for_me(reply.item)
            holder = self._held_with(item, fencing_token)
            if item is None or holder is None:
                raise LockLost(f"the lock is not held with fencing token {fencing_token} any more")
            self._check_invocation(holder)
            if not reply.applied and holder.lease_until_ms <= self.now.latest_ms:
                raise LockLost(f"the lease of fencing token {fencing_token} ended before it was renewed")
            asked_until_ms = write.whole_lease_until_ms(self.claim, at_least_until_ms, built)
            if reply.applied or holder.lease_until_ms >= asked_until_ms:
                grant = yield from self._with_whole_lease(
                    built, item, holder, None, at_least_until_ms=at_least_until_ms
                )
                if grant is not None:
                    return grant
        raise OutcomeUnknown(f"the lease of fencing token {fencing_token} kept changing while it was renewed")

    def suspend(self, fencing_token: int, until_ms: int) -> Steps[None]:
        """Keep the lock until this moment of table time, at least for a lease: nothing of its durable execution runs.

        Raises:
            LockLost: it is not held with this token any more, its lease is over, or a later invocation has resumed it.
        """
        built = self.now
        reply = yield from self.send(write.suspend(self.claim, fencing_token, until_ms, built))
        if not reply.applied:
            holder = self._held_with(self._for_me(reply.item), fencing_token)
            # Of the first attempt, if its answer was lost: the lease may have ended since.
            if holder is None or not (holder.suspended and self._is_my_invocation(holder)):
                raise LockLost(f"the lock is not held with fencing token {fencing_token} by this invocation any more")

    def resume(self, fencing_token: int) -> Steps[Grant]:
        """An invocation of a durable execution goes on with the lock: exactly a lease from now. Earlier invocations
        neither renew nor release it from then on.

        Raises:
            LockLost: it is not held with this token any more, its lease ended while the execution was suspended, or a
                later invocation has resumed it.
        """
        assert self.claim.invocation is not None
        seen_ms: int | None = None
        for _ in range(_TRIES):
            built = self.now
            request = write.resume(self.claim, fencing_token, built, seen_ms)
            reply = yield from self.send(replace(request, not_after_local_ms=self.claim.invocation.not_after_local_ms))
            item = self._for_me(reply.item)
            holder = self._held_with(item, fencing_token)
            if item is None or holder is None:
                raise LockLost(f"the lock is not held with fencing token {fencing_token} any more")
            self._check_invocation(holder)
            if reply.applied or (self._is_my_invocation(holder) and not holder.suspended):
                grant = yield from self._with_whole_lease(built, item, holder, None)
                if grant is not None:
                    return grant
            elif holder.lease_until_ms <= self.now.latest_ms:
                raise LockLost(f"the lease of fencing token {fencing_token} ended before the execution went on")
            seen_ms = None if holder.suspended else holder.lease_until_ms
        raise OutcomeUnknown(f"the lease of fencing token {fencing_token} kept changing while it was resumed")

    def _is_my_invocation(self, holder: Holder) -> bool:
        mine = self.claim.invocation
        return mine is not None and holder.invocation == mine.id

    def _check_invocation(self, holder: Holder) -> None:
        """Refuse to go on if a later invocation of this durable execution has resumed the grant."""
        mine, last_ms = self.claim.invocation, holder.invocation_ends_ms
        if mine is None or last_ms is None or self._is_my_invocation(holder) or last_ms < mine.ends_ms:
            return
        raise LockLost(f"a later invocation goes on with the lock of fencing token {holder.fencing_token}")

    def set_data(self, fencing_token: int, data: str | None) -> Steps[None]:
        """Replace the data that is shown beside the holder; None removes it."""
        check_data("data", data)
        reply = yield from self.send(write.set_data(self.claim, fencing_token, data, self.now))
        if not reply.applied:
            raise LockLost(f"the lock is not held with fencing token {fencing_token} any more, or its lease has ended")

    def release(
        self,
        held: Hold,
        finished_at_ms: int | None = None,
        *,
        data_left: str | None = None,
        releasing: Releasing = BY_THE_OWNER,
    ) -> Steps[Released]:
        """Free the lock, and wake the next in line; see ``free``."""
        released = yield from self.free(held, finished_at_ms, data_left=data_left, releasing=releasing)
        # None: an earlier try freed the lock, and may have failed before it woke a waiter.
        if self.wakes and released.waiting != 0:
            yield from self.wake_next()
        return released

    def free(
        self,
        held: Hold,
        finished_at_ms: int | None = None,
        *,
        data_left: str | None = None,
        releasing: Releasing = BY_THE_OWNER,
    ) -> Steps[Released]:
        """Free the lock.

        Args:
            held: the grant, with the latest lease that the caller knows of.
            finished_at_ms: when the work ended, table time, if an earlier try of this release has recorded it; None
                for now.
            releasing: who frees it, and whether an earlier try may have.

        Raises:
            LockLost: the lock is not held with this token any more, and the lease had ended by then, or it was freed by
                an operator or another process of the owner, or the lock item was deleted.
            InvalidLockRequest: the claim and the grant differ in whether the lock is shared.
        """
        check_data("data_left", data_left)
        held_ms, mean_hold_ms = hold_times(held, self.now)
        by_ms = finished_at_ms if finished_at_ms is not None else self.now.latest_ms
        reply = yield from self.send(write.release(self.claim, held, releasing, mean_hold_ms, self.now, data_left))
        if not reply.applied:
            found = self._for_me(reply.item)
            token = held.fencing_token
            if (holder := self._held_with(found, token)) is not None:
                self._check_invocation(holder)
                raise InvalidLockRequest("shared", self.claim.shared, "what the grant was claimed with")
            in_time = by_ms < held.lease_until_ms
            freed_by = found.freed_by(token) if found is not None else None
            if freed_by is not None:
                is_own = freed_by == (releasing.by or held.owner)
            else:
                # Later releases have overwritten the record. A forced release would still be recorded, so the owner
                # released it or, if its lease had ended, a grant removed it; unless the item was deleted since.
                tried_before = releasing.tried_before or reply.repeated
                is_known = in_time and not _may_have_been_forced(found, held)
                is_own = tried_before and _has_records_since(found, token) and (is_known or releasing.in_place)
            if is_own:
                return Released(held_ms, lease_was_over=not in_time)
            if in_time:
                why = "another client has freed it, or deleted its item"
                raise LockLost(f"the lock is not held with fencing token {token} any more: {why}")
            raise LockLost(f"the lease of fencing token {token} ended and the lock went to another owner")
        was = reply.item
        if was is None:
            return Released(held_ms, lease_was_over=False)
        # The condition has found the holder in the item, which is not parsed for three numbers.
        lease_until_ms = integer(was[holder_attribute(held.owner)]["M"]["leaseUntilMs"])
        if integer(was["format"]) != FORMAT:
            return Released(held_ms, lease_until_ms <= by_ms)
        return Released(held_ms, lease_until_ms <= by_ms, integer(was["waiting"]), integer(was["fencingToken"]))

    def leave_held(self, held: Hold, until_ms: int) -> Steps[Released]:
        """In place of a release: leave the lock to the end of a last lease, at this moment in table time or later.

        Raises:
            LockLost: the lock is not held with this token any more, or its lease has ended.
        """
        yield from self.renew(held.fencing_token, until_ms)
        held_ms, _ = hold_times(held, self.now)
        return Released(held_ms, lease_was_over=False)

    def free_suspended(self, held: Hold) -> Steps[bool]:
        """Free the lock of an execution that has ended, if it is suspended as it was read; wakes no one.

        Returns:
            Whether this request, or an earlier attempt of it, has freed it.
        """
        _, mean_hold_ms = hold_times(held, self.now)
        # The same for every clean-up after this execution: whichever has freed it, it is free.
        freeing = Releasing(by=f"after {held.owner}"[:_BY_CHARACTERS])
        reply = yield from self.send(write.free_suspended(self.claim, held, freeing, mean_hold_ms, self.now))
        if reply.applied:
            return True
        token, found = held.fencing_token, self._for_me(reply.item)
        freed_by = found.freed_by(token) if found is not None else None
        if freed_by is not None:
            return freed_by == freeing.by
        # As of a release: later ones have overwritten the record.
        is_free = self._held_with(found, token) is None
        return is_free and reply.repeated and _has_records_since(found, token)

    def wake_next(self) -> Steps[int]:
        """Wake as many of the first in line as may take the lock; none if this contender does not wake: they poll.

        Returns:
            How many were woken. A failure on the way raises nothing: a wake-up is only a hint.
        """
        woken = served = 0
        if not self.wakes:
            return woken
        tried: set[int] = set()
        try:
            for more in (1, 1 + _STALE_TOKENS):
                wanted = self.claim.permits + more
                queue = yield from self.read_queue(_that_many_live(wanted), PATIENCE_TO_WAKE_MS)
                if queue.item is None or not queue.live:
                    break
                mode = queue.live[0].mode
                free = queue.item.room(mode, without=expired_holders(queue.item, self.now)) - served
                for row in queue.live[:wanted]:
                    if free <= 0 or row.mode is not mode:
                        return woken
                    if row.ticket in tried:
                        continue
                    tried.add(row.ticket)
                    answered = row.session is not None and (yield from _wake(self, row, row.session))
                    woken += answered
                    # A waiter without a session polls by itself, and it is its turn.
                    if answered or row.session is None:
                        served += 1
                        free -= 1
                if queue.to_the_end:
                    break
                # The skipped waiters are about to poll, or have crashed: a waiter behind them may be parked.
        except TicketLockError:
            return woken
        return woken

    def wake_if_idle(self, queue: Queue) -> Steps[None]:
        """Wake the first in line if the lock waits for it, and may for long: who wakes one that has gone learns that.

        Not those behind it, which would wake each other again and again.
        """
        item, first = queue.item, next(iter(queue.live), None)
        if self.wakes and item is not None and first is not None and first.session is not None:
            has_room = item.room(self.claim.mode, without=expired_holders(item, self.now)) > 0
            if has_room and first.lease_until_ms > self.now.latest_ms + COMES_AGAIN_MS:
                with suppress(TicketLockError):
                    yield from _wake(self, first, first.session)

    # Private.

    def _outlive(self, item: LockItem) -> Steps[None]:
        """A holder may be suspended for longer than an item stays after the joining of its last waiter."""
        last_ms = max((each.lease_until_ms for each in item.holders), default=0)
        if item.expires_at_s is not None and last_ms // 1_000 > item.expires_at_s:
            yield from self.send(write.outlive(self.claim, last_ms, self.now))

    def _is_old(self, item: LockItem) -> bool:
        """Whether the row of every ticket has been written by now, or never will be."""
        last_ms = item.ticket_at_ms + write.MINTED_TOGETHER_MS
        return last_ms + 2 * write.JOIN_DEADLINE_MS < self.now.earliest_ms

    def _held_with(self, item: LockItem | None, fencing_token: int) -> Holder | None:
        holder = item.holder(self.claim.owner) if item is not None else None
        return holder if holder is not None and holder.fencing_token == fencing_token else None

    def _my_place(self, queue: Queue, place: Place) -> Steps[tuple[Place, bool]]:
        """My place by the rows that were read, and whether its ticket is void. After a retried join the older row
        counts.
        """
        if queue.mine:
            first, *others = queue.mine
            surplus = {row.ticket for row in others} | {place.ticket} - {first.ticket}
            for ticket in sorted(surplus - {first.ticket}):
                yield from self.send(write.delete_my_row(self.claim, ticket))
            return Place(first.ticket, first.lease_until_ms), False
        is_void = queue.item is None or place.ticket <= queue.item.void_up_to
        if is_void:
            yield from self.send(write.delete_my_row(self.claim, place.ticket))
        return place, is_void

    def _delete_what_is_left(self, queue: Queue, item: LockItem, place: Place) -> Steps[None]:
        """Delete the rows of mine that my grant has left: those that were read, and one that the poll did not reach.

        The count stays: a late copy of a row may be among them.
        """
        left = {row.ticket for row in queue.mine}
        if item.now_serving != place.ticket:
            left.add(place.ticket)
        for ticket in sorted(left):
            yield from self.send(write.delete_my_row(self.claim, ticket))

    def _swept_a_live_row(self, queue: Queue) -> Steps[bool]:
        """Delete rows that do not count; return whether one has been extended since: then the poll is out of date.

        The count stays: a late copy of a row may be among them, and too high a count is safe.
        """
        revived = False
        for row in queue.stale[:_SWEPT_PER_POLL]:
            reply = yield from self.send(write.delete_stale_row(self.claim.lock, row))
            revived |= not reply.applied and reply.item is not None
        return revived

    def extend(self, place: Place, *, is_read: bool) -> Steps[Place | None]:
        """Extend my row if less than ``row_kept_ms`` is left of its lease; None if the row was deleted.

        However long a waiter sleeps, a quarter of the lease remains for a late poll. Whose task may have ended, and so
        whose row may have been shortened, makes sure by a write: what it remembers may be from before, and what it has
        read too, if somebody was shortening it just then.

        Args:
            is_read: whether this poll has read the row; otherwise its end is what the waiter remembers.
        """
        left_ms = place.lease_until_ms - self.now.latest_ms
        is_known = self.claim.session is None or (is_read and left_ms <= COMES_AGAIN_MS + _TIMES_DIFFER_MS)
        if is_known and left_ms > self.row_kept_ms:
            return place
        built = self.now
        reply = yield from self.send(write.extend_row(self.claim, place.ticket, built, self.row_lease_ms))
        if reply.applied:
            return Place(place.ticket, built.latest_ms + self.row_lease_ms)
        row = Row.parse(reply.item) if reply.item is not None else None
        return Place(row.ticket, row.lease_until_ms) if row is not None and row.owner == self.claim.owner else None

    def _joined(self, *, again: bool = False) -> Steps[Grant | Position]:
        """Join the queue, unless I hold the lock by now."""
        while True:
            place, item = yield from self.join()
            if place is not None:
                return replace(position_of(item, place, self.now, ahead=item.ahead_of_the_last), place_lost=again)
            holder = item.holder(self.claim.owner)
            won = None if holder is None else (yield from self.report(item, holder, None))
            if won is not None:
                return won

    def _granted(
        self,
        built: Moment,
        new_item: Item | None,
        took_over: int,
        *,
        seen: LockItem | None = None,
        ticket: int | None = None,
    ) -> Steps[Grant | None]:
        """Report a granting write that was applied, with a full lease."""
        if new_item is not None:
            item = LockItem.parse(new_item)
            token, ticket = item.fencing_token, item.issued
            holders, waiting = len(item.holders), item.waiting
        else:
            assert seen is not None
            item, token = in_force(self.claim, seen), seen.fencing_token + 1
            holders, waiting = len(item.holders) - took_over + 1, item.waiting - 1
        claim = self.claim
        holder = granted_to(claim, token, built)
        room = waiting > 0 and holders < claim.mode.capacity(item.permits)
        return (yield from self._with_whole_lease(built, item, holder, ticket, room=room, took_over=took_over))

    def as_known_now(self, grant: Grant) -> Grant:
        """Recompute a grant's deadlines before it is reported: the machine may have stopped, or its clock been set."""
        deadline_ms = min(grant.deadline_ms, self.now.local_of(grant.lease_until_ms))
        deadline_wall_ms = min(grant.deadline_wall_ms, self.now.wall_ms + deadline_ms - self.now.local_ms)
        return replace(grant, deadline_ms=deadline_ms, deadline_wall_ms=deadline_wall_ms)

    def report(self, item: LockItem | HandedOver, holder: Holder, ticket: int | None) -> Steps[Grant | None]:
        """Report a grant that an earlier try, or another holder's release, has written for me, with a full lease."""
        room = item.leaves_room(self.claim.mode)
        return (yield from self._with_whole_lease(self.now, item, holder, ticket, room=room))

    def _with_whole_lease(
        self,
        built: Moment,
        item: LockItem | HandedOver,
        holder: Holder,
        ticket: int | None,
        *,
        at_least_until_ms: int = 0,
        room: bool = False,
        took_over: int = 0,
    ) -> Steps[Grant | None]:
        """Report a grant with at least three quarters of its lease left; renew it first if it has less.

        A slow request, or an earlier try, leaves less of a lease than was asked for. None if the grant has been changed
        since: the caller polls again.

        Args:
            at_least_until_ms: the end, in table time, that the request asked for if it is later than a full lease.
            room, took_over: ``next_may_enter`` and ``took_over`` of the grant.
        """
        until_ms = holder.lease_until_ms
        for _ in range(_TRIES):
            # At most what the request asked for when it was built, even if the item has a later end.
            lease_ms = max(self.claim.lease_ms, at_least_until_ms - built.latest_ms)
            deadline_ms = min(built.local_ms + lease_ms, self.now.local_of(until_ms))
            if deadline_ms - self.now.local_ms >= lease_ms * 3 // 4:
                return Grant(
                    lock=self.claim.lock,
                    owner=self.claim.owner,
                    ticket=ticket,
                    fencing_token=holder.fencing_token,
                    lease_until_ms=until_ms,
                    deadline_ms=deadline_ms,
                    deadline_wall_ms=self.now.wall_ms + deadline_ms - self.now.local_ms,
                    since_ms=holder.since_ms,
                    mean_hold_ms=item.mean_hold_ms,
                    took_over=took_over,
                    data_left=item.data_left,
                    next_may_enter=room,
                )
            built = self.now
            reply = yield from self.send(write.write_whole_lease(self.claim, holder.fencing_token, until_ms, built))
            until_ms = write.whole_lease_until_ms(self.claim, until_ms, built)
            if not reply.applied:
                found = self._for_me(reply.item)
                held = self._held_with(found, holder.fencing_token)
                # A retry is refused too if its first attempt was applied. Then the item has our lease.
                if held is None or held.lease_until_ms != until_ms:
                    return None
        return None


def granted_to(claim: Claim, fencing_token: int, built: Moment) -> Holder:
    """The holder that a grant of this claim writes, by a request that was built at this moment."""
    return Holder(
        owner=claim.owner,
        fencing_token=fencing_token,
        lease_until_ms=built.latest_ms + claim.lease_ms,
        lease_ms=claim.lease_ms,
        since_ms=built.likely_ms,
        data=claim.data,
        shared=claim.shared,
    )


def hold_times(held: Hold, now: Moment) -> tuple[int, int]:
    """How long the lock was held, and the new mean, in milliseconds.

    The mean goes down at once, up slowly: too short a mean costs a waiter one more poll, too long a mean makes it poll
    late.
    """
    held_ms = max(0, now.likely_ms - held.since_ms)
    if held.mean_hold_ms is None:
        return held_ms, held_ms
    return held_ms, min(held_ms, (3 * held.mean_hold_ms + held_ms) // 4)


def _has_records_since(item: LockItem | None, fencing_token: int) -> bool:
    """Whether an item has recorded releases since before this grant: it was not deleted since."""
    return item is not None and item.last_release is not None and item.tokens_after < fencing_token


def _may_have_been_forced(item: LockItem | None, held: Hold) -> bool:
    """Whether the record of a forced release of this grant may be gone: one after its lease removes it."""
    last = item.last_forced if item is not None else None
    return last is not None and last.at_ms + _TIMES_DIFFER_MS > held.lease_until_ms


def _that_many_live(wanted: int) -> Callable[[Queue], bool]:
    return lambda seen: len(seen.live) >= wanted


def find_session(
    me: Contender, session: Session, patience_ms: int | None = None, attributes: tuple[str, ...] = ()
) -> Steps[Item | None]:
    """Read one session item, or only the given attributes of it."""
    reply = yield from me.send(reads.read_session(session, patience_ms, attributes))
    return reads.session_in(reply.item, session)


def _wake(me: Contender, row: Row, session: Session) -> Steps[bool]:
    """Whether a waiter was woken. The row of one whose task has ended is shortened: it may be gone for good."""
    item = yield from find_session(me, session, PATIENCE_TO_WAKE_MS, READ_TO_WAKE)
    if item is None or "wakeUpToken" not in item:
        return False
    token = item["wakeUpToken"]["S"]
    answered = yield from me.send(TaskAnswer(token, patience_ms=PATIENCE_TO_WAKE_MS))
    until_ms = me.now.latest_ms + COMES_AGAIN_MS
    if not answered.applied and row.lease_until_ms > until_ms:
        # A role of an earlier version may not ask for a session's condition.
        with suppress(TicketLockError):
            yield from me.send(write.shorten_row(me.claim.lock, row, session, token, until_ms, PATIENCE_TO_WAKE_MS))
    return answered.applied
