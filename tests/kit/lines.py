"""Generated histories of a correct lock, by a small reference model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st
from kit.lock_history import Action, Event, Kind

ENTITY = "order-42"
FOREVER_MS = 1_000_000
_STEP_MS = 10
_STEPS = 200
_TRIP_MS = 3
"""How long a request takes to the table, and its reply back."""
_LEASE_MS = 300
_CROWDED = 8
"""No client arrives while so many things may happen next."""
_ARRIVALS, _CRASHES, _UNHEARD = 0.3, 0.03, 0.1
"""How probable it is that a client arrives in a step, that one crashes, and that a reply does not arrive."""


def event(process: str, kind: Kind, at_ms: int, *, action: Action = "acquire", turn: int = 0, **facts: Any) -> Event:
    """An event of a process's acquisition, or of what it does under it."""
    acquisition = f"{process}/{turn}"
    operation = acquisition if action == "acquire" else f"{acquisition}/{action}"
    if action != "acquire" and kind == "invoked":
        facts["of"] = acquisition
    return Event(
        process=process,
        operation=operation,
        action=action,
        entity=ENTITY,
        kind=kind,
        local_ms=at_ms,
        wall_ms=at_ms,
        **facts,
    )


def line(waiters: int) -> list[Event]:
    """Some waiters in a queue, which are granted the lock one after the other."""
    return [each for place in range(waiters) for each in stay(f"{place}", place, place, waiters)]


def stay(process: str, ticket: int, turn: int, waiters: int, **wishes: Any) -> Iterator[Event]:
    """One waiter's wait and hold, with that turn number; all rows exist before the first turn."""
    granted_ms = 1_000 * (turn + 1)
    yield event(process, "invoked", 10 * ticket, **wishes)
    yield event(process, "stands", 10 * ticket + 5, ticket=ticket, until_ms=FOREVER_MS)
    polled_ms = granted_ms - 20 if waiters > 1 else 10 * ticket
    yield event(process, "applied", granted_ms, ticket=ticket, fencing_token=100 + turn, polled_ms=polled_ms)
    yield event(process, "holds", granted_ms + 900)
    yield event(process, "invoked", granted_ms + 910, action="release")
    yield event(process, "applied", granted_ms + 930, action="release")


@dataclass(kw_only=True)
class Client:
    """One acquisition in the reference model.

    Attributes:
        busy_until_ms: when the answer arrives that it waits for.
        polled_ms: the beginning of its last poll.
        seen_token: the last token that had been granted when its poll found its turn.
        row_until_ms: the end of its row's lease.
        hold_until_ms: the end of its grant's lease.
    """

    name: str
    shared: bool
    busy_until_ms: int
    polled_ms: int
    ticket: int | None = None
    row_until_ms: int | None = None
    seen_token: int | None = None
    hold_until_ms: int | None = None
    has_written: bool = False
    has_crashed: bool = False


@dataclass
class Reference:
    """A lock with a queue: what may happen next, and the events of what has happened.

    Attributes:
        counter: the counter under the lock.
    """

    permits: int
    chance: Random
    events: list[Event] = field(default_factory=list)
    counter: int = 0
    token: int = 100
    _clients: list[Client] = field(default_factory=list)
    _issued: int = 0
    _now_ms: int = 100

    def choices(self) -> list[tuple[Callable[[Client], None], Client]]:
        """What may happen next, and to which client."""
        return [
            (happens, each)
            for each in self._clients
            if not each.has_crashed and each.busy_until_ms < self._now_ms
            for happens in self._next(each)
        ]

    def _next(self, client: Client) -> list[Callable[[Client], None]]:
        if client.hold_until_ms is not None:
            writes = self.permits == 1 and not client.shared and not client.has_written
            return [self.release, *([self.write] if writes else [])]
        if client.ticket is None:
            is_free = self._may_enter(client) and not self.has_waiters()
            return [self.take_at_once] if is_free else [*[self.join] * 5, self.refuse]
        if client.row_until_ms is None:
            return [self.stand]
        if client.row_until_ms < self._now_ms:
            return [self.join, self.refuse]
        # Only while no grant was made since it polled.
        if client.seen_token == self.token:
            return [self.take_its_turn]
        return [self.poll_and_may_enter] if self._may_enter(client) else [*[self.poll] * 9, self.refuse]

    def pass_time(self) -> None:
        self._now_ms += _STEP_MS
        # Crashed clients block others until their leases end.
        self._clients = [
            each for each in self._clients if not each.has_crashed or self._stands(each) or self._holds(each)
        ]

    def arrive(self, *, shared: bool) -> None:
        name = f"client {len(self.events)}"
        client = Client(name=name, shared=shared, busy_until_ms=0, polled_ms=self._now_ms - _TRIP_MS)
        self._clients.append(client)
        self._tell(client, "invoked", -_TRIP_MS, shared=shared, permits=self.permits)

    def take_at_once(self, client: Client) -> None:
        self._issued += 1
        # If the answer was lost, and the grant was found in the item, the ticket is not known.
        self._grant(client, ticket=self.chance.choice((self._issued, None)))

    def join(self, client: Client) -> None:
        """Take a ticket; a client that had one before has lost its position."""
        self._issued += 1
        client.ticket, client.row_until_ms, client.seen_token = self._issued, None, None

    def stand(self, client: Client) -> None:
        client.row_until_ms = self._now_ms + _LEASE_MS
        self._stay(client, "stands", ticket=client.ticket, until_ms=client.row_until_ms)

    def poll(self, client: Client) -> None:
        """It is another client's turn; half-way through its lease the row is renewed."""
        assert client.row_until_ms is not None
        if client.row_until_ms < self._now_ms + _LEASE_MS // 2:
            self.stand(client)
        else:
            self._stay(client, "polls")

    def poll_and_may_enter(self, client: Client) -> None:
        client.seen_token, client.polled_ms = self.token, self._now_ms - _TRIP_MS

    def take_its_turn(self, client: Client) -> None:
        self._grant(client, ticket=client.ticket)

    def refuse(self, client: Client) -> None:
        """It gives up, and leaves the queue."""
        self._clients.remove(client)
        self._tell(client, "refused", _TRIP_MS)

    def write(self, client: Client) -> None:
        """Count one more, if the lease is still running; the answer may be lost."""
        client.has_written = True
        self._tell(client, "invoked", -_TRIP_MS, action="update", found=self.counter)
        is_applied = self._holds(client)
        self.counter += is_applied
        if self.chance.random() < _UNHEARD:
            client.has_crashed = True
        else:
            self._tell(client, "applied" if is_applied else "refused", _TRIP_MS, action="update")

    def release(self, client: Client) -> None:
        self._clients.remove(client)
        if is_applied := self._holds(client):
            self._tell(client, "holds", -_TRIP_MS - 1)
        self._tell(client, "invoked", -_TRIP_MS, action="release")
        self._tell(client, "applied" if is_applied else "refused", _TRIP_MS, action="release")

    def crash(self, client: Client) -> None:
        client.has_crashed = True

    def _grant(self, client: Client, *, ticket: int | None) -> None:
        self.token += 1
        client.row_until_ms, client.hold_until_ms = None, self._now_ms + _LEASE_MS
        if self.chance.random() < _UNHEARD:
            client.has_crashed = True
            return
        # Replies may be slow.
        late_ms = self.chance.choice((_TRIP_MS, _TRIP_MS, 4 * _STEP_MS))
        client.busy_until_ms = self._now_ms + late_ms
        numbers = {"ticket": ticket, "fencing_token": self.token, "polled_ms": client.polled_ms}
        self._tell(client, "applied", late_ms, **numbers)

    def _stay(self, client: Client, kind: Kind, **facts: Any) -> None:
        client.polled_ms = client.busy_until_ms = self._now_ms + _TRIP_MS
        self._tell(client, kind, _TRIP_MS, **facts)

    def _tell(self, client: Client, kind: Kind, after_ms: int, **facts: Any) -> None:
        self.events.append(event(client.name, kind, self._now_ms + after_ms, **facts))

    def holding(self) -> list[Client]:
        return [each for each in self._clients if self._holds(each)]

    def rows_before(self, client: Client) -> list[Client]:
        return [
            each
            for each in self._clients
            if self._stands(each) and (client.ticket is None or (each.ticket or 0) < client.ticket)
        ]

    def has_waiters(self) -> bool:
        """Whether a client has a ticket and was not granted the lock."""
        return any(each.ticket is not None and each.hold_until_ms is None for each in self._clients)

    def _stands(self, client: Client) -> bool:
        return client.row_until_ms is not None and client.row_until_ms >= self._now_ms

    def _holds(self, client: Client) -> bool:
        return client.hold_until_ms is not None and client.hold_until_ms >= self._now_ms

    def _may_enter(self, client: Client) -> bool:
        in_the_way = self.rows_before(client) + self.holding()
        if any(each.shared != client.shared for each in in_the_way):
            return False
        return client.shared or len(in_the_way) < self.permits


def told_by(lock: Reference, *, shares: bool) -> Reference:
    """A history of a lock: waits, holds, late polls, leases that end, and sometimes a crash."""
    chance = lock.chance
    for _ in range(_STEPS):
        choices = lock.choices()
        if len(choices) < _CROWDED and chance.random() < _ARRIVALS:
            lock.arrive(shared=shares and chance.random() < 0.5)
        elif choices:
            happens, client = chance.choice(choices)
            (lock.crash if chance.random() < _CRASHES else happens)(client)
        lock.pass_time()
    return lock


@st.composite
def good_locks(draw: st.DrawFn) -> Reference:
    """Correct locks, with their histories."""
    lock = Reference(draw(st.integers(1, 3)), draw(st.randoms(use_true_random=True)))
    return told_by(lock, shares=draw(st.booleans()))
