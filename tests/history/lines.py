"""Histories that were not recorded: of a lock that is as it should be, in a reference model of a few lines."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st
from ticketlock_local.history.record import Action, Event, Kind

ENTITY = "order-42"
FOREVER_MS = 1_000_000
_STEP_MS = 10
_STEPS = 80
_ARRIVALS, _CROWDED = 0.3, 8
_DEATHS = 0.05


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
    """Some who stand in line behind each other, and are granted the lock one after the other."""
    return [told for place in range(waiters) for told in stay(f"{place}", place, place, waiters)]


def stay(process: str, ticket: int, turn: int, waiters: int, **wishes: Any) -> Iterator[Event]:
    """One waiter's wait and hold, which is the turn of that number; all rows stand before the first turn."""
    granted_ms = 1_000 * (turn + 1)
    yield event(process, "invoked", 10 * ticket, **wishes)
    yield event(process, "stands", 10 * ticket + 5, ticket=ticket, until_ms=FOREVER_MS)
    looked_ms = granted_ms - 20 if waiters > 1 else 10 * ticket
    yield event(process, "applied", granted_ms, ticket=ticket, fencing_token=100 + turn, looked_ms=looked_ms)
    yield event(process, "holds", granted_ms + 900)
    yield event(process, "invoked", granted_ms + 910, action="release")
    yield event(process, "applied", granted_ms + 930, action="release")


@dataclass
class Client:
    """One acquisition in the reference model."""

    name: str
    shared: bool
    ticket: int
    stands: bool = False
    # Of its last look that found its turn: when, and the last token that was granted then.
    looked: tuple[int, int] | None = None
    holds: bool = False


@dataclass
class Reference:
    """A lock with a queue: what may happen next, and the events of what has."""

    permits: int
    events: list[Event] = field(default_factory=list)
    _clients: list[Client] = field(default_factory=list)
    token: int = 100
    _now_ms: int = 100

    def choices(self) -> list[tuple[Callable[[Client], None], Client]]:
        """What may happen to whom."""
        found: list[tuple[Callable[[Client], None], Client]] = []
        for each in self._clients:
            if each.holds:
                found += [(self.release, each), (self.die, each)]
            elif not each.stands:
                found += [(self.stand, each), (self.die, each)]
            else:
                found += [(self.look, each)] if self._may_enter(each) else []
                # Only as long as nobody was granted the lock since it looked.
                if each.looked is not None and each.looked[1] == self.token:
                    found += [(self.grant, each), (self.grant_unheard, each)]
                found += [(self.die, each)]
        return found

    def arrive(self, *, shared: bool) -> None:
        client = Client(f"client {len(self.events)}", shared, ticket=len(self.events))
        self._clients.append(client)
        self._tell(client, "invoked", -3, shared=shared, permits=self.permits)

    def stand(self, client: Client) -> None:
        client.stands = True
        self._tell(client, "stands", 3, ticket=client.ticket, until_ms=FOREVER_MS)

    def look(self, client: Client) -> None:
        client.looked = self._now_ms - 3, self.token
        self._now_ms += _STEP_MS

    def grant(self, client: Client) -> None:
        assert client.looked is not None
        self.token += 1
        client.stands, client.holds = False, True
        numbers = {"ticket": client.ticket, "fencing_token": self.token, "looked_ms": client.looked[0]}
        self._tell(client, "applied", 3, **numbers)

    def grant_unheard(self, client: Client) -> None:
        """It is granted the lock, and dies before it hears of it; its lease ends."""
        self.token += 1
        self.die(client)

    def release(self, client: Client) -> None:
        self._clients.remove(client)
        self.events += [
            event(client.name, "holds", self._now_ms - 4),
            event(client.name, "invoked", self._now_ms - 3, action="release"),
            event(client.name, "applied", self._now_ms + 3, action="release"),
        ]
        self._now_ms += _STEP_MS

    def die(self, client: Client) -> None:
        """Its lease ends, and nobody hears of it any more."""
        self._clients.remove(client)

    def _tell(self, client: Client, kind: Kind, after_ms: int, **facts: Any) -> None:
        self.events.append(event(client.name, kind, self._now_ms + after_ms, **facts))
        self._now_ms += _STEP_MS

    def holding(self) -> list[Client]:
        return [each for each in self._clients if each.holds]

    def rows_before(self, client: Client) -> list[Client]:
        return [each for each in self._clients if each.stands and each.ticket < client.ticket]

    def _may_enter(self, client: Client) -> bool:
        in_the_way = self.rows_before(client) + self.holding()
        if any(each.shared != client.shared for each in in_the_way):
            return False
        return client.shared or len(in_the_way) < self.permits


def told_by(lock: Reference, chance: Random, *, shares: bool) -> list[Event]:
    """What may be told of a lock: waits, holds, looks that come too late, and now and then a death."""
    for _ in range(_STEPS):
        choices = [choice for choice in lock.choices() if choice[0] not in (lock.die, lock.grant_unheard)]
        if chance.random() < _DEATHS:
            choices = lock.choices()
        if len(choices) < _CROWDED and chance.random() < _ARRIVALS:
            lock.arrive(shared=shares and chance.random() < 0.5)
        elif choices:
            happens, client = chance.choice(choices)
            happens(client)
    return lock.events


@st.composite
def good_histories(draw: st.DrawFn) -> list[Event]:
    """Histories of a lock that is as it should be."""
    lock = Reference(permits=draw(st.integers(1, 3)))
    return told_by(lock, draw(st.randoms(use_true_random=True)), shares=draw(st.booleans()))
