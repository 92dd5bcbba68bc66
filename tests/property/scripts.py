"""What the machines of the simulated world do: acquire, hold, renew, release, give up."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from property.world import Machine, World

from ticketlock import Grant, LockName, Place, Position
from ticketlock._acquiring import acquire, leave
from ticketlock._driver import Actions, Driver, Sleep
from ticketlock._operate import set_limit
from ticketlock._pace import Bounds, Pace
from ticketlock._protocol import Contender
from ticketlock._requests import Steps
from ticketlock._time import Moment
from ticketlock._writes import Claim
from ticketlock.errors import LockLost, RecordWaitExceeded, TableError

LEASE_MS = 20_000
CLIENTS = Bounds(5, 400)
# One look is enough: whoever holds has left by then.
ONCE = Bounds(3_000, 3_000)
Script = Callable[[World, Machine, Driver], Actions[None]]


def client(rounds: int = 2) -> Script:
    """So many acquisitions, each shared or not, with a wait that is over or not, as a client's or as a workflow's."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        for owner in world.owners(machine):
            shared = world.permits == 1 and world.chance.pick(4) == 3
            claim = Claim(world.lock, owner, LEASE_MS, permits=world.permits, shared=shared)
            wait_ms = [None, 0, 2_000, 30_000, 90_000][world.chance.pick(5)]
            if world.chance.pick(3) == 2:
                acquisition = step_by_step(driver, claim, wait_ms)
            else:
                acquisition = at_once(driver, claim, wait_ms, others_wait=world.chance.pick(4) == 3)
            yield from hold(world, machine, driver, claim, acquisition, _holds_ms(world))
            if owner.endswith(f"/{rounds}"):
                return

    return script


def at_once(
    driver: Driver, claim: Claim, wait_ms: int | None, bounds: Bounds = CLIENTS, *, others_wait: bool = False
) -> Actions[Grant]:
    """Acquire as the Python client does."""
    pace = Pace(bounds)

    def steps(now: Moment) -> Steps[Grant]:
        return acquire(
            Contender(claim, now),
            wait_ms,
            pace,
            then_call=False,
            on_wait=lambda _: None,
            jitter=lambda: 0.5,
            others_wait=others_wait,
        )

    return (yield from driver.run(steps))


def step_by_step(driver: Driver, claim: Claim, wait_ms: int | None) -> Actions[Grant]:
    """Acquire as a workflow does, whose steps know of each other only what they have said."""
    found = yield from driver.run(lambda now: Contender(claim, now).take_ticket(wait_ms))
    until_ms = None if wait_ms is None else (yield from driver.now()).likely_ms + wait_ms
    while isinstance(found, Position):
        yield Sleep(5_000)
        found = yield from _checked(driver, claim, found.place, until_ms)
    return found


def hold(
    world: World,
    machine: Machine,
    driver: Driver,
    claim: Claim,
    acquisition: Actions[Grant],
    holds_ms: Iterable[int],
) -> Actions[None]:
    """Acquire, renew after each of these times, release."""
    try:
        grant = yield from acquisition
    except RecordWaitExceeded:
        world.served.add(claim.owner)
        return
    except TableError:
        world.served.add(claim.owner)
        with suppress(TableError, LockLost):
            yield from driver.run(lambda now: leave(Contender(claim, now), then_call=False))
        return
    belief = world.believes(machine, claim, grant)
    try:
        for ms in holds_ms:
            yield Sleep(ms)
            grant = yield from _renewed(driver, claim, grant)
            world.believes(machine, claim, grant, belief)
        belief.over = True
        yield from driver.run(lambda now: Contender(claim, now).release(grant))
    except (LockLost, TableError):
        belief.over = True


def holder(*, shared: bool) -> Script:
    """Acquires once, however long it takes; renews once; releases."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        claim = Claim(world.lock, f"{machine.name}/1", LEASE_MS, shared=shared)
        yield from hold(world, machine, driver, claim, at_once(driver, claim, None, ONCE), [1])

    return script


def _holds_ms(world: World) -> Iterator[int]:
    """How long it works between one renewal and the next."""
    for _ in range(world.chance.pick(5)):
        yield [1, 50, 3_000, LEASE_MS // 2, LEASE_MS][world.chance.pick(5)]


def operator() -> Script:
    """Sets the limit now and then: higher, lower, none at all, and at last as it was."""

    def script(world: World, _: Machine, driver: Driver) -> Actions[None]:
        for permits in (world.chance.pick(4), world.chance.pick(4), world.permits):
            yield Sleep([100, 3_000, 20_000][world.chance.pick(3)])
            world.most_permits = max(world.most_permits, permits)
            while not (yield from _limited(driver, world.lock, permits)):
                pass

    return script


def _limited(driver: Driver, lock: LockName, permits: int) -> Actions[bool]:
    try:
        yield from driver.run(lambda now: set_limit(lock, permits, now, then_call=False))
    except TableError:
        return False
    return True


def _renewed(driver: Driver, claim: Claim, held: Grant) -> Actions[Grant]:
    return (yield from driver.run(lambda now: Contender(claim, now).renew(held.fencing_token)))


def _checked(driver: Driver, claim: Claim, place: Place, until_ms: int | None) -> Actions[Grant | Position]:
    return (yield from driver.run(lambda now: Contender(claim, now).check_turn(place, until_ms)))
