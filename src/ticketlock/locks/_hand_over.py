"""Hand-over by call: a waiter parks as a Step Functions callback task, and whoever frees the lock calls the next.

A waiter leaves its task token in its session, **then** looks; whoever frees a place frees it, **then** looks. So one of
the two sees the other. A call is a hint and no more: the one who is called looks and takes the lock by itself, and one
who is not called looks by itself when its task times out. So a lost, late, repeated or foreign call costs time only.
"""

from collections.abc import Callable

from ticketlock.errors import TicketLockError
from ticketlock.locks import _conditions as only_if
from ticketlock.locks import _reads as reads
from ticketlock.locks._items import Session
from ticketlock.locks._outcomes import BY_THE_OWNER, Grant, Hold, Place, Position, Released, Releasing
from ticketlock.locks._protocol import Contender
from ticketlock.locks._queue import Queue, expired_holders, position_of, the_turn_is_told
from ticketlock.wire._attributes import Item, number
from ticketlock.wire._requests import Steps, Write
from ticketlock.wire._step_functions import TaskAnswer

# What `TicketLock.grant_use` lets a client read of a session: not the token of a heartbeat.
CALLED = ("pk", "sk", "callToken")
_PATIENCE_MS = 1_500
_SESSION_OUTLIVES_ITS_LEASE_S = 24 * 3_600
# Waiters whose tokens are stale are on their way to look, or dead: so many are passed over.
_STALE_CALLS = 3


def await_call(
    me: Contender,
    place: Place,
    session: Session,
    task_token: str,
    park_number: int,
    may_stay: Callable[[Position], bool],
) -> Steps[Position | None]:
    """Park: leave the callback task's token, keep the place, and end the task at once if there is reason to look.

    Args:
        me: the waiter.
        place: its place.
        session: where a caller looks for the token.
        task_token: the callback's; each retry of the task brings a new one.
        park_number: rises from one try to park to the next: a token older than the newest is not left.
        may_stay: whether a waiter that sees this may stay parked for as long as the task lasts.

    Returns:
        What it saw, if it stays parked. None if the task was ended: the turn may have come, or the place is lost, or it
        may not stay.
    """
    yield from me.send(
        Write(
            "Update",
            session.key(),
            condition=only_if.NO_LATER_PARK,
            update="SET callToken = :task_token, park = :park, expiresAt = :expires_at",
            values={
                ":task_token": {"S": task_token},
                ":park": number(park_number),
                ":expires_at": number(session_expires_at_s(me.now.latest_ms + me.claim.lease_ms)),
            },
        )
    )
    seen = yield from _still_waiting(me, place)
    if seen is not None and may_stay(seen):
        return seen
    yield from me.send(TaskAnswer(task_token))
    return None


class CallingContender(Contender):
    """A contender that calls the next ones in line whenever it leaves the lock or the queue."""

    def release(
        self,
        held: Hold,
        finished_at_ms: int | None = None,
        *,
        data_left: str | None = None,
        releasing: Releasing = BY_THE_OWNER,
    ) -> Steps[Released]:
        """Free the lock, and call; see ``Contender.release``."""
        released = yield from self.free(held, finished_at_ms, data_left=data_left, releasing=releasing)
        # None: an earlier try freed the lock, and perhaps it called nobody.
        if released.waiting != 0:
            yield from self.call_next()
        return released

    def check_turn(self, place: Place, wait_until_ms: int | None) -> Steps[Grant | Position]:
        """Look once, and call where there is room for another one; see ``Contender.check_turn``."""
        found = yield from super().check_turn(place, wait_until_ms)
        if isinstance(found, Grant) and found.next_may_enter:
            yield from self.call_next()
            return self.as_known_now(found)
        return found

    def withdraw(self, ticket: int) -> Steps[Grant | None]:
        """Leave the queue, and call; see ``Contender.withdraw``."""
        won = yield from super().withdraw(ticket)
        if won is None:
            yield from self.call_next()
        return won

    def call_next(self) -> Steps[int]:
        """Call as many of the first in line as may enter.

        Returns:
            How many were called. Nothing that goes wrong on the way is an error.
        """
        called = served = 0
        tried: set[int] = set()
        try:
            for more in (1, 1 + _STALE_CALLS):
                wanted = self.claim.permits + more
                queue = yield from self.look(_that_many_live(wanted), _PATIENCE_MS)
                if queue.item is None or not queue.live:
                    break
                mode = queue.live[0].mode
                free = queue.item.room(mode, without=expired_holders(queue.item, self.now)) - served
                for row in queue.live[:wanted]:
                    if free <= 0 or row.mode is not mode:
                        return called
                    if row.ticket in tried:
                        continue
                    tried.add(row.ticket)
                    answered = row.session is not None and (yield from _call(self, row.session))
                    called += answered
                    # One without a session looks by itself, and it is its turn.
                    if answered or row.session is None:
                        served += 1
                        free -= 1
                if queue.to_the_end:
                    break
                # Those were on their way to look, or dead: perhaps one behind them is parked.
        except TicketLockError:
            return called
        return called


def contender_class(*, calls: bool) -> type[Contender]:
    """What contends for the locks of a table.

    Args:
        calls: whether there is a Step Functions client to call waiters with.
    """
    return CallingContender if calls else Contender


def _that_many_live(wanted: int) -> Callable[[Queue], bool]:
    return lambda seen: len(seen.live) >= wanted


def find_session(
    me: Contender, session: Session, patience_ms: int | None = None, attributes: tuple[str, ...] = ()
) -> Steps[Item | None]:
    """Read one session item, or only these of its attributes."""
    reply = yield from me.send(reads.read_session(session, patience_ms, attributes))
    return reads.session_in(reply.item, session)


def session_expires_at_s(lease_until_ms: int) -> int:
    """When the session of a lease may be cleaned away, seconds since the epoch."""
    return lease_until_ms // 1_000 + _SESSION_OUTLIVES_ITS_LEASE_S


def _call(me: Contender, session: Session) -> Steps[bool]:
    item = yield from find_session(me, session, _PATIENCE_MS, CALLED)
    if item is None or "callToken" not in item:
        return False
    answered = yield from me.send(TaskAnswer(item["callToken"]["S"], patience_ms=_PATIENCE_MS))
    return answered.applied


def _still_waiting(me: Contender, place: Place) -> Steps[Position | None]:
    """Look, and keep the place alive; None if the turn may have come, or the place is lost."""
    queue = yield from me.look(the_turn_is_told)
    item = queue.item
    if item is None or place.ticket <= item.void_up_to or item.holder(me.claim.owner) is not None:
        return None
    if queue.mine:
        place = Place(queue.mine[0].ticket, queue.mine[0].lease_until_ms)
        if queue.may_enter(place.ticket, expired_holders(item, me.now)):
            return None
    elif queue.surely_lacks(place.ticket):
        return None
    kept = yield from me.extend(place)
    if kept is None:
        return None
    return position_of(item, kept, me.now, queue.ahead_of(kept.ticket), queue.turns_before(kept.ticket))
