"""Clients of the protocol of "Distributed Locking in DynamoDB" (2020).

They are better than the published ones where that does not matter: a waiter renews its row, and a holder relies on its
lease for less time than it has asked for, by more than all clocks and their rounding can differ.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from kit.invariants import LEASE_MS
from kit.published import PublishedContender
from property.clocks import Machine
from property.operators import Script
from property.world import World

from ticketlock.errors import TableError
from ticketlock.locks._outcomes import Claim
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._driver import Driver
from ticketlock.wire._table_time import Moment, Reading

_MARGIN_MS = 6_000
_POLL_MS = _HEARTBEAT_MS = 1_000
_MOST_HEARTBEATS = 3


@dataclass
class _Lease:
    """A holder's view that the lock is held until a time, by either of the machine's clocks."""

    machine: Machine
    deadline: Reading

    def is_held(self) -> bool:
        now = self.machine.read()
        return now.local_ms < self.deadline.local_ms and now.wall_ms < self.deadline.wall_ms

    def extend(self, deadline: Reading) -> None:
        """Never shorten it."""
        if deadline.local_ms >= self.deadline.local_ms:
            self.deadline = deadline


def client(rounds: int = 2) -> Script:
    """So many acquisitions by the published protocol."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        # Its items do not have our format, and it has one permit.
        world.checker.reads_table = False
        world.checker.permits = 1
        for owner in itertools.islice(machine.owners(), rounds):
            claim = Claim(world.lock, owner, LEASE_MS)
            world.checker.asks(machine, owner, None)
            try:
                yield from _acquires_and_releases(world, machine, driver, claim)
            except TableError:
                world.checker.note_end_of(machine)

    return script


def _acquires_and_releases(world: World, machine: Machine, driver: Driver, claim: Claim) -> Actions[None]:
    def me(now: Moment) -> PublishedContender:
        return PublishedContender(world.lock, LEASE_MS, now)

    ticket = yield from driver.run(lambda now: me(now).join())
    until_ms = yield from _beats(world, driver, me, ticket)
    while until_ms is not None and not (yield from driver.run(lambda now: me(now).poll(ticket))):
        yield Sleep(_POLL_MS)
        until_ms = yield from _beats(world, driver, me, ticket)
    heartbeats = world.chance.pick(_MOST_HEARTBEATS + 1)
    if heartbeats and until_ms is not None:
        lease = _Lease(machine, _by_its_clocks(machine, until_ms))
        world.checker.believes(machine, claim, ticket, lease)
        while heartbeats and until_ms is not None:
            lease.extend(_by_its_clocks(machine, until_ms))
            world.checker.hears_of_its_renewal()
            yield Sleep(_HEARTBEAT_MS)
            until_ms = yield from _beats(world, driver, me, ticket)
            heartbeats -= 1
    world.checker.note_end_of(machine)
    yield from driver.run(lambda now: me(now).release(ticket))


def _beats(
    world: World, driver: Driver, me: Callable[[Moment], PublishedContender], ticket: int
) -> Actions[float | None]:
    """The true time until which the holder may rely on its lease; None without a row."""
    sent_ms = world.time.now_ms
    there = yield from driver.run(lambda now: me(now).heartbeat(ticket))
    return sent_ms + LEASE_MS - _MARGIN_MS if there else None


def _by_its_clocks(machine: Machine, true_ms: float) -> Reading:
    now, left_ms = machine.read(), true_ms - machine.time.now_ms
    return Reading(int(now.local_ms + left_ms * machine.rate), int(now.wall_ms + left_ms))
