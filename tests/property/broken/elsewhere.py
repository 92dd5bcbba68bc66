"""What others have published or shipped.

The clients of the protocol of "Distributed Locking in DynamoDB" (2020) are better than the published ones where that
does not matter: a waiter renews its row, and a holder relies on its lease for six seconds less than it has asked for,
which is more than all clocks and their rounding can differ by.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kit.invariants import LEASE_MS
from kit.published import PublishedContender
from property import operators, scripts
from property.broken.lock import ALWAYS, BrokenLock, without
from property.clocks import Machine
from property.operators import Script
from property.world import World

from ticketlock.errors import TableError
from ticketlock.locks import _conditions, _grants, _queue, _writes
from ticketlock.locks._modes import EXCLUSIVE
from ticketlock.locks._outcomes import Claim
from ticketlock.wire import _driver
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import Write
from ticketlock.wire._table_time import Moment, Reading

_MARGIN_MS = 6_000


@dataclass
class _Until:
    """A holder's view that the lock is held until a time, by either of the machine's clocks."""

    machine: Machine
    deadline: Reading

    def is_held(self) -> bool:
        now = self.machine.read()
        return now.local_ms < self.deadline.local_ms and now.wall_ms < self.deadline.wall_ms


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
                yield from _holds(world, machine, driver, claim)
            except TableError:
                world.checker.is_no_more(machine)

    return script


def _holds(world: World, machine: Machine, driver: Driver, claim: Claim) -> Actions[None]:
    def me(now: Moment) -> PublishedContender:
        return PublishedContender(world.lock, LEASE_MS, now)

    ticket = yield from driver.run(lambda now: me(now).join())
    until_ms = yield from _beats(world, driver, me, ticket)
    while until_ms is not None and not (yield from driver.run(lambda now: me(now).poll(ticket))):
        yield Sleep(1_000)
        until_ms = yield from _beats(world, driver, me, ticket)
    hold = None
    for ms in [1_000] * world.chance.pick(4):
        if until_ms is not None:
            now, left_ms = machine.read(), until_ms - world.time.now_ms
            deadline = Reading(int(now.local_ms + left_ms * machine.rate), int(now.wall_ms + left_ms))
            if hold is None:
                lease = _Until(machine, deadline)
                hold = world.checker.believes(machine, claim, ticket, lease)
            elif deadline.local_ms >= lease.deadline.local_ms:
                lease.deadline = deadline
            world.checker.hears_of_its_renewal()
            yield Sleep(ms)
            until_ms = yield from _beats(world, driver, me, ticket)
    if hold is not None:
        hold.ends()
    world.checker.is_no_more(machine)
    yield from driver.run(lambda now: me(now).release(ticket))


def _beats(
    world: World, driver: Driver, me: Callable[[Moment], PublishedContender], ticket: int
) -> Actions[float | None]:
    """The end of its lease; None without a row."""
    sent_ms = world.time.now_ms
    there = yield from driver.run(lambda now: me(now).heartbeat(ticket))
    return sent_ms + LEASE_MS - _MARGIN_MS if there else None


_renew = _writes.renew
_moment = Driver._moment


def _reviving_renewal(claim: Any, fencing_token: int, now: Any) -> Write:
    made = _renew(claim, fencing_token, now)
    holder = {"M": _grants._holder(claim, now)}
    return replace(
        made,
        update="SET #me = :holder, #my_token = :token",
        condition=ALWAYS,
        values={**made.values, ":holder": holder},
    )


def _moment_by_the_wall_clock(driver: Driver, reading: Reading) -> Moment:
    return _moment(driver, reading) or Moment(reading.local_ms, reading.wall_ms, reading.wall_ms, reading.wall_ms)


BROKEN_ELSEWHERE = (
    BrokenLock(
        "the protocol as it was published",
        "Distributed Locking in DynamoDB (2020)",
        frozenset({"exclusion"}),
        (
            (scripts, "client", client),
            *((operators, each, lambda *_: client(0)) for each in ("operator", "freer", "heir", "pessimist")),
        ),
    ),
    BrokenLock(
        "a heartbeat that revives",
        "the same: its only condition is that the row exists",
        frozenset({"leases grow", "counts"}),
        ((_writes, "renew", _reviving_renewal),),
    ),
    BrokenLock(
        "a release without a condition",
        "dynalock, dynamodblock: it frees the lock even if another owner holds it now",
        frozenset({"counts"}),
        ((_writes, "release", without(_writes.release, _conditions.I_HOLD_WITH_MY_TOKEN)),),
    ),
    BrokenLock(
        "wall clocks",
        "the published protocol, and every lock that compares two machines' clocks",
        frozenset({"exclusion", "no eviction", "no overtaking", "liveness"}),
        ((_queue, "is_over", lambda until_ms, now: until_ms < now.wall_ms),),
    ),
    BrokenLock(
        "a lease written by the wall clock",
        "the same, as long as a process has heard nothing from the table",
        frozenset({"exclusion", "no eviction", "no overtaking", "liveness", "nothing left"}),
        ((_driver.Driver, "_moment", _moment_by_the_wall_clock),),
    ),
    BrokenLock(
        "time to live as expiry",
        "locks that compare the attribute of time to live, in whole seconds",
        frozenset({"exclusion", "no eviction", "no overtaking"}),
        ((_queue, "is_over", lambda until_ms, now: until_ms // 1_000 <= now.latest_ms // 1_000),),
    ),
    BrokenLock(
        "count, then insert",
        "sfn-concurrency-lease: the limit is read, but the write has no condition on it",
        frozenset({"limit"}),
        (
            (
                _grants,
                "take_at_once",
                without(_grants.take_at_once, _conditions.A_PERMIT_IS_FREE, _conditions.NO_HOLDER_SHARES),
            ),
        ),
    ),
    BrokenLock(
        "not equal for the limit",
        "the AWS sample of a Step Functions semaphore, by <>: it never recovers from a lower limit",
        frozenset({"limit"}),
        ((type(EXCLUSIVE), "room_conditions", ("held <> permits", _conditions.NO_HOLDER_SHARES)),),
    ),
    BrokenLock(
        "an expired holder removed though it has renewed",
        "locks that delete what they have read",
        frozenset({"exclusion", "no eviction", "counts", "limit"}),
        ((_conditions, "expired_holder_as_seen", lambda _: ALWAYS),),
    ),
)
