"""The ticket lock: every decision of the protocol, and nothing else. No I/O, no clock.

The rules, in rank order:

1. **The queue decides whose turn it is; one conditional write on the lock item decides who holds.** A process that
   stalls anywhere, for any time, can be late in the queue, never a second holder.
2. Every granting write mints the fencing token, and demands that its owner is not a holder yet: a repeated request
   grants nothing twice.
3. A lease is written from the upper end of table time and judged by the lower end, less a margin.
4. A refusal brings the item that refused: the loser decides by what stands there, not by what it remembers.
   "Refused, but I am in the item" means that an earlier try won.

A ticket's life::

    (none) ──acquire──► holder                                   nobody holds or queues: one write
    (none) ──mint──► numbered ──put row──► waiting               the row must follow its number within a second
    waiting ──my turn──► holder                                  one transaction: the row goes, the holder comes
    waiting ──withdraw──► (none)        waiting ──lease over──► swept by one of the first two in line
    holder ──renew──► holder ──release──► (none)                 holder ──lease over──► removed by the next grant

The ticket lock is due to Reed and Kanodia (eventcounts and sequencers, 1979) and Mellor-Crummey and Scott (1991); its
DynamoDB form with an atomic counter and queue rows to "Distributed Locking in DynamoDB" (2020); the fencing token to
Lamport's and Kleppmann's arguments. What differs here, and why, is in docs/decisions.

Each method of ``Contender`` is a generator: it yields requests, is sent replies, and returns its result. The caller
performs the requests, with boto3, asyncio or in a simulated world.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ticketlock._checks import text
from ticketlock.errors import (
    InvalidLockRequest,
    LockLost,
    OutcomeUnknown,
)
from ticketlock.locks import _grants as grants
from ticketlock.locks import _writes as write
from ticketlock.locks._claim import DATA_BYTES
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._joiner import Joiner
from ticketlock.locks._outcomes import (
    BY_THE_OWNER,
    Grant,
    HandedOver,
    Hold,
    Place,
    Position,
    Released,
    Releasing,
    no_wait,
    wait_is_over,
)
from ticketlock.locks._queue import Queue, expired_holders, position_of, somebody_lives, the_turn_is_told
from ticketlock.wire._attributes import Item
from ticketlock.wire._requests import Steps, Write
from ticketlock.wire._table_time import Moment

_TRIES = 5
_SWEPT_A_LOOK = 25


class Contender(Joiner):
    """One owner's dealings with one lock."""

    # The verbs of a waiter.

    def take_ticket(self, record_wait_ms: int | None, *, others_wait: bool = False) -> Steps[Grant | Position]:
        """Acquire at once, or stand in the queue.

        Args:
            record_wait_ms: 0 to fail instead of queueing.
            others_wait: the caller has just seen them, and its owner has asked for nothing yet: the hopeless first
                try is left out.

        Raises:
            RecordWaitExceeded: somebody holds or queues, and the record wait is 0; nothing is left behind.
            PermitsMismatch, UnsupportedFormat: the lock exists with another limit, or in a newer format.
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
        place, item = yield from self.join()
        return position_of(item, place, self.now, ahead=item.ahead_of_the_last)

    def check_turn(self, place: Place, wait_until_ms: int | None) -> Steps[Grant | Position]:
        """Look once; take the lock if it is my turn; leave the queue if the record wait is over.

        Args:
            place: from the ticket or the look before.
            wait_until_ms: the end of the record wait in table time; None waits for ever.

        Raises:
            RecordWaitExceeded: it is over, it is not my turn, and the queue is left.
        """
        found = yield from self.check_position(place)
        if isinstance(found, Grant) or wait_until_ms is None or self.now.likely_ms < wait_until_ms:
            return found
        won_meanwhile = yield from self.withdraw(found.place.ticket)
        if won_meanwhile is not None:
            return won_meanwhile
        raise wait_is_over(found)

    # The operations.

    def acquire_at_once(self) -> Steps[Grant | Row | None]:
        """Take the lock if nobody holds it or queues for it.

        Returns:
            The grant; or my own row, when an earlier try has joined the queue; or None: somebody holds or queues.
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
                # Taken over before it was reported: the request took longer than the lease.
                take, expired = at_once, ()
                continue
            item = self.checked_item(reply.item)
            if item is not None and (mine := item.holder(self.claim.owner)) is not None:
                return (yield from self.report(item, mine, None))
            take, expired = at_once, expired_holders(item, self.now)
            if item is None:
                continue
            if item.room(self.claim.mode, without=expired) <= 0:
                return None
            if item.waiting == 0:
                if expired:
                    take = partial(grants.take_over, self.claim, seen=item, expired=expired)
                continue
            queue = yield from self.look(until=somebody_lives)
            if queue.mine:
                return queue.mine[0]
            if queue.live or queue.item is None:
                return None
            expired = expired_holders(queue.item, self.now)
            if queue.item.room(self.claim.mode, without=expired) <= 0:
                return None
            old = self._is_old(queue.item)
            if old and (yield from self._swept_a_live_row(queue)):
                expired = ()
                continue
            # What heals declares every row void: whoever was dead at the look may have come alive meanwhile.
            heal = old and len(queue.dead) <= _SWEPT_A_LOOK
            take = partial(grants.take_past_the_count, self.claim, seen=queue.item, expired=expired, heal=heal)
        return None

    def check_position(self, place: Place) -> Steps[Grant | Position]:
        """Look at the front of the queue; take the lock if it is my turn, else keep my place alive."""
        for _ in range(_TRIES):
            queue = yield from self.look(until=the_turn_is_told)
            item = queue.item
            if item is not None and (holder := item.holder(self.claim.owner)) is not None:
                won = yield from self.report(item, holder, place.ticket)
                if won is not None:
                    for row in queue.mine:
                        yield from self.send(write.delete_my_row(self.claim, row.ticket))
                    return won
                continue
            place, is_void = yield from self._my_place(queue, place)
            if is_void or item is None or queue.surely_lacks(place.ticket):
                return (yield from self._join_again())
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
            kept = yield from self.extend(place)
            if kept is None:
                return (yield from self._join_again())
            is_next = bool(queue.mine) and ahead == 0
            return position_of(item, kept, self.now, ahead, turns, is_next=is_next)
        return position_of(None, place, self.now, ahead=0)

    def withdraw(self, ticket: int) -> Steps[Grant | None]:
        """Leave the queue.

        Returns:
            None; or the grant, when an earlier try of mine had taken the lock already.
        """
        reply = yield from self.send(write.withdraw(self.claim, ticket, self.now))
        if reply.applied or not reply.refused[0]:
            return None
        item = self.checked_item(reply.items[0])
        won = None
        if item is not None and (holder := item.holder(self.claim.owner)) is not None:
            won = yield from self.report(item, holder, ticket)
        yield from self.send(write.delete_my_row(self.claim, ticket))
        return won

    def renew(self, fencing_token: int) -> Steps[Grant]:
        """The heartbeat: a whole new lease.

        Raises:
            LockLost: the lease is over, or the lock is not held with this token any more.
            OutcomeUnknown: it kept changing, and is held still.
        """
        for _ in range(_TRIES):
            built = self.now
            reply = yield from self.send(write.renew(self.claim, fencing_token, built))
            item = LockItem.parse(reply.item) if reply.item is not None else None
            holder = self._held_with(item, fencing_token)
            if item is None or holder is None:
                raise LockLost(f"the lock is not held with fencing token {fencing_token} any more")
            if not reply.applied and holder.lease_until_ms <= self.now.latest_ms:
                raise LockLost(f"the lease of fencing token {fencing_token} ended before it was renewed")
            if reply.applied or holder.lease_until_ms >= built.latest_ms + self.claim.lease_ms:
                grant = yield from self._with_whole_lease(built, item, holder, None)
                if grant is not None:
                    return grant
        raise OutcomeUnknown(f"the lease of fencing token {fencing_token} kept changing while it was renewed")

    def set_data(self, fencing_token: int, data: str | None) -> Steps[None]:
        """Show something else beside the holder; None for nothing.

        Raises:
            LockLost: the lease is over, or the lock is not held with this token any more.
        """
        if data is not None:
            text("data", data, DATA_BYTES)
        reply = yield from self.send(write.set_data(self.claim, fencing_token, data, self.now))
        if not reply.applied:
            raise LockLost(f"the lock is not held with fencing token {fencing_token} any more, or its lease is over")

    def release(
        self,
        held: Hold,
        finished_at_ms: int | None = None,
        *,
        data_left: str | None = None,
        releasing: Releasing = BY_THE_OWNER,
    ) -> Steps[Released]:
        """Free the lock, and call the next in line, where this contender calls; see ``free``."""
        return (yield from self.free(held, finished_at_ms, data_left=data_left, releasing=releasing))

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
            finished_at_ms: when the work was finished, table time; now, unless an earlier try of this release has
                written it down.
            data_left: up to 256 bytes that the next holder finds.
            releasing: who frees it, and whether an earlier try may have.

        Raises:
            LockLost: the lock is not held with this token any more, and the lease had ended by then, or somebody else
                has freed it: an operator, another process of the owner, or whoever deleted the lock item.
            InvalidLockRequest: the claim says otherwise than that of the grant whether the lock is shared.
        """
        check_data_left(data_left)
        held_ms, mean_hold_ms = hold_times(held, self.now)
        by_ms = finished_at_ms if finished_at_ms is not None else self.now.latest_ms
        reply = yield from self.send(write.release(self.claim, held, releasing, mean_hold_ms, self.now, data_left))
        if not reply.applied:
            found = LockItem.parse(reply.item) if reply.item is not None else None
            token = held.fencing_token
            if self._held_with(found, token) is not None:
                raise InvalidLockRequest("shared", self.claim.shared, "what the grant was claimed with")
            in_time = by_ms < held.lease_until_ms
            freed_by = found.freed_by(token) if found is not None else None
            if freed_by is not None:
                is_own = freed_by == (releasing.by or held.owner)
            else:
                # Others have released since. Nobody but its owner can have freed it untold; a grant, if it was over.
                tried_before = releasing.tried_before or reply.repeated
                is_own = tried_before and found is not None and found.last_release is not None
                is_own = is_own and (in_time or releasing.in_place)
            if is_own:
                return Released(held_ms, lease_was_over=not in_time)
            if in_time:
                raise LockLost(f"the lock was not held with fencing token {token} any more: somebody else has freed it")
            raise LockLost(f"the lease of fencing token {token} ended and the lock went to somebody else")
        was = LockItem.parse(reply.item) if reply.item is not None else None
        holder = self._held_with(was, held.fencing_token)
        lease_was_over = holder is not None and holder.lease_until_ms <= by_ms
        if was is None:
            return Released(held_ms, lease_was_over)
        return Released(held_ms, lease_was_over, was.waiting, was.fencing_token)

    def call_next(self) -> Steps[int]:
        """Call whoever may enter now. This contender calls nobody: they look by themselves.

        Returns:
            How many were called.
        """
        yield from ()
        return 0

    # Private.

    def _is_old(self, item: LockItem) -> bool:
        """Whether every number was followed by its row by now, or will not be."""
        return item.ticket_at_ms + 2 * write.JOIN_DEADLINE_MS < self.now.earliest_ms

    def _held_with(self, item: LockItem | None, fencing_token: int) -> Holder | None:
        holder = item.holder(self.claim.owner) if item is not None else None
        return holder if holder is not None and holder.fencing_token == fencing_token else None

    def _my_place(self, queue: Queue, place: Place) -> Steps[tuple[Place, bool]]:
        """My place as the queue has it, and whether its number is void. A retried join counts once: the older row."""
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

    def _swept_a_live_row(self, queue: Queue) -> Steps[bool]:
        """Delete dead rows, and say whether one of them has come alive meanwhile: then the look was wrong.

        The count stays: a late copy of a row may be among them, and a count too high is safe.
        """
        revived = False
        for row in queue.dead[:_SWEPT_A_LOOK]:
            reply = yield from self.send(write.delete_dead_row(self.claim.lock, row))
            revived |= not reply.applied and reply.item is not None
        return revived

    def extend(self, place: Place) -> Steps[Place | None]:
        """Keep my row alive, if less than ``row_kept_ms`` is left of its lease; None when the row is gone.

        Whatever a waiter sleeps, a quarter of the lease remains for a late look.
        """
        if place.lease_until_ms - self.now.latest_ms > self.row_kept_ms:
            return place
        built = self.now
        reply = yield from self.send(write.extend_row(self.claim, place.ticket, built))
        if reply.applied:
            return Place(place.ticket, built.latest_ms + self.claim.lease_ms)
        row = Row.parse(reply.item) if reply.item is not None else None
        return Place(row.ticket, row.lease_until_ms) if row is not None and row.owner == self.claim.owner else None

    def _join_again(self) -> Steps[Position]:
        place, item = yield from self.join()
        return replace(position_of(item, place, self.now, ahead=item.ahead_of_the_last), place_lost=True)

    def _granted(
        self,
        built: Moment,
        new_item: Item | None,
        took_over: int,
        *,
        seen: LockItem | None = None,
        ticket: int | None = None,
    ) -> Steps[Grant | None]:
        """A granting write was applied: make sure of the lease, and report it."""
        if new_item is not None:
            item = LockItem.parse(new_item)
            token, ticket = item.fencing_token, item.issued
            holders, waiting = len(item.holders), item.waiting
        else:
            assert seen is not None
            item, token = seen, seen.fencing_token + 1
            holders, waiting = len(item.holders) - took_over + 1, item.waiting - 1
        claim = self.claim
        lease_until_ms = built.latest_ms + claim.lease_ms
        holder = Holder(claim.owner, token, lease_until_ms, built.likely_ms, claim.data, claim.shared)
        grant = yield from self._with_whole_lease(built, item, holder, ticket)
        if grant is None:
            return None
        room = waiting > 0 and holders < claim.mode.capacity(item.permits)
        return replace(grant, took_over=took_over, next_may_enter=room)

    def as_known_now(self, grant: Grant) -> Grant:
        """A grant that was not reported yet: this machine may have stood still, or been set, since it was made."""
        deadline_ms = min(grant.deadline_ms, self.now.local_of(grant.lease_until_ms))
        deadline_wall_ms = min(grant.deadline_wall_ms, self.now.wall_ms + deadline_ms - self.now.local_ms)
        return replace(grant, deadline_ms=deadline_ms, deadline_wall_ms=deadline_wall_ms)

    def report(self, item: LockItem | HandedOver, holder: Holder, ticket: int | None) -> Steps[Grant | None]:
        """Another request took the lock for me, with its lease: give it a whole one before reporting it."""
        return (yield from self._with_whole_lease(self.now, item, holder, ticket))

    def _with_whole_lease(
        self, built: Moment, item: LockItem | HandedOver, holder: Holder, ticket: int | None
    ) -> Steps[Grant | None]:
        """Report a grant whose lease is nearly whole; else write it anew first, if nothing has changed it.

        A slow request, or an earlier try, leaves less of a lease than was asked for. None when somebody has changed
        it meanwhile: the caller looks again.
        """
        lease_ms = self.claim.lease_ms
        until_ms = holder.lease_until_ms
        for _ in range(_TRIES):
            # Never later than a lease from the request, whatever stands in the item.
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
                    data_left=item.data_left,
                )
            built = self.now
            reply = yield from self.send(write.write_whole_lease(self.claim, holder.fencing_token, until_ms, built))
            until_ms = write.whole_lease_until_ms(self.claim, until_ms, built)
            if not reply.applied:
                found = LockItem.parse(reply.item) if reply.item is not None else None
                held = self._held_with(found, holder.fencing_token)
                # A repeat is refused too: its first attempt changed the lease. Then ours stands there.
                if held is None or held.lease_until_ms != until_ms:
                    return None
        return None


def hold_times(held: Hold, now: Moment) -> tuple[int, int]:
    """How long the lock was held, and the mean that this leaves, in milliseconds.

    The mean goes down at once, up slowly: too short a mean costs a waiter a poll, too long a one makes it late.
    """
    held_ms = max(0, now.likely_ms - held.since_ms)
    if held.mean_hold_ms is None:
        return held_ms, held_ms
    return held_ms, min(held_ms, (3 * held.mean_hold_ms + held_ms) // 4)


def check_data_left(data_left: str | None) -> None:
    """Refuse what is not text of at most 256 bytes."""
    if data_left is not None:
        text("data_left", data_left, DATA_BYTES)
