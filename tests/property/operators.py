"""What machines do with a granted lock, as a client does it; and those that change the lock of another owner."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from kit.invariants import LEASE_MS
from property.clocks import Machine
from property.parties import TABLE, Hold
from property.world import World

from ticketlock import Grant
from ticketlock.client._arguments import Acquisition
from ticketlock.client._base_lease import BaseLease
from ticketlock.client._holdings import Holdings
from ticketlock.client._pace import PaceBounds
from ticketlock.errors import InvalidLockRequest, LockLost, RecordWaitExceeded, TableError
from ticketlock.locks._items import Holder, LockItem
from ticketlock.locks._operators import inspect, release_of, resume, set_limit, unset_limit
from ticketlock.locks._outcomes import Claim, Decision
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import Actions, Answer, Sleep, T
from ticketlock.wire._driver import Driver
from ticketlock.wire._heartbeat import Due
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._table_time import Moment

CLIENTS = PaceBounds(5, 400)
DECISION = Decision("an operator", "a reason")

EXTENDED_MS = 3 * LEASE_MS // 2

Verb = tuple[int, str]
"""What a holder does after so many milliseconds: ``renew``, ``extend``, ``show`` other data, or ``work``."""


class Client:
    """What a machine's client holds: the real client's holdings; the world is its table and its heartbeat.

    No heartbeat runs in the background: a script renews when it says so.
    """

    def __init__(self, world: World, machine: Machine, driver: Driver) -> None:
        self.world = world
        self.machine = machine
        self._driver = driver
        self.holdings: Holdings[BaseLease] = Holdings(
            self, self, clocks=machine, bounds=CLIENTS, local_waiters=world.lines
        )

    def lease(
        self, claim: Claim, grant: Grant, *, has_own_identity: bool = True, hold_at_least_ms: int = 0
    ) -> BaseLease:
        """A grant as its holder knows it."""
        asked = Acquisition(claim, has_own_identity=has_own_identity, hold_at_least_ms=hold_at_least_ms)
        return BaseLease(TABLE, asked, grant, self.machine)

    def leaving(self, lease: BaseLease) -> Iterable[BaseLease]:
        """What is to be released at the end of a hold: of a client that is being closed, what that releases at last."""
        return self.holdings.at_last(self.holdings.close()) if self.holdings.is_closed else (lease,)

    # The table.

    identity = TABLE

    @property
    def patience_ms(self) -> int:
        """The driver's."""
        return self._driver.patience_ms

    def contending(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, until_ms: int | None = None
    ) -> Actions[T]:
        """Steps of one claim."""
        return self._driver.run(lambda now: steps(contender(self.world, claim, now)), until_ms=until_ms)

    def sending(self, request: Request) -> Actions[Answer]:
        """One request."""
        return self._driver.send(request)

    # The heartbeat.

    def watch(self, lease: BaseLease) -> None:
        """Nothing is due in the background."""

    def forget(self, lease: BaseLease) -> None:
        """Nothing was due."""

    def tell(self, lease: BaseLease, what: Due) -> None:
        """Do nothing: the error reports it to the caller."""

    def join_idle(self) -> None:
        """No thread is left."""


def contender(world: World, claim: Claim, now: Moment) -> Contender:
    """A contender that wakes waiters, in a world where waiters are woken."""
    return Contender(claim, now, wakes=world.wakes)


def works(client: Client, lease: BaseLease, held: Hold, verbs: Iterable[Verb]) -> Actions[None]:
    """Hold the lock, do these, and release it."""
    checker = client.world.checker
    try:
        for ms, verb in verbs:
            yield Sleep(ms)
            if verb == "renew":
                yield from client.holdings.renew(lease)
            elif verb == "extend":
                yield from client.holdings.extend(lease, EXTENDED_MS / 1_000)
            elif verb == "show":
                yield from client.holdings.set_data(lease, "at work")
            checker.hears_of_its_renewal()
    except (LockLost, TableError) as error:
        if isinstance(error, LockLost):
            checker.hears_of_a_loss(held)
        checker.met(error, held)
        held.ends()
        return
    held.ends()
    unheard = client.machine.unheard
    least_ms = lease._hold_at_least_ms
    try:
        for each in client.leaving(lease):
            yield from client.holdings.release(each)
            held_until_ms = each._grant.since_ms + least_ms if least_ms else 0
            checker.ended_well(held, is_sure=client.machine.unheard == unheard, held_until_ms=held_until_ms)
    except (LockLost, TableError) as error:
        checker.met(error, held)


Script = Callable[[World, Machine, Driver], Actions[None]]
_ANOTHER_TRY_MS = (100, 3_000, 20_000)


def operator() -> Script:
    """Sets the limit from time to time: higher, lower, none at all, and finally to its first value."""

    def script(world: World, _: Machine, driver: Driver) -> Actions[None]:
        highest = min(3, world.caps.holders)
        for permits in (world.chance.pick(highest + 1), world.chance.pick(highest + 1), world.permits):
            yield Sleep(_ANOTHER_TRY_MS[world.chance.pick(3)])
            world.checker.limits.add(permits)
            while not (yield from _limited(world, driver, permits)):
                pass
            world.checker.limits = {permits}
        if world.deployments is not None:
            while not (yield from _unlimited(world, driver)):
                pass

    return script


def freer(rounds: int = 3) -> Script:
    """Takes the lock away from a holder by force, or frees it in its owner's name."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep(_ANOTHER_TRY_MS[world.chance.pick(3)])
            holder = yield from _a_holder(world, driver)
            if holder is None:
                continue
            by_token = world.chance.pick(2) == 1
            if not by_token:
                # A machine that releases in the name of an owner is one of its processes.
                world.checker.allied.setdefault(holder.owner, set()).add(machine.name)
            yield from _frees(world, machine, driver, *_like(holder, by_token=by_token))

    return script


def heir(rounds: int = 2) -> Script:
    """Another process of the lock's holder: continues its grant, beside it."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        for _ in range(rounds):
            yield Sleep(_ANOTHER_TRY_MS[world.chance.pick(3)])
            holder = yield from _a_holder(world, driver)
            if holder is None:
                continue
            world.checker.allied.setdefault(holder.owner, set()).add(machine.name)
            resumed = partial(_resumed, world, holder.owner)
            try:
                claim, grant = yield from driver.run(resumed)
            except (LockLost, TableError):
                continue
            client = Client(world, machine, driver)
            lease = client.lease(claim, grant, has_own_identity=False)
            held = world.checker.note_grant(machine, claim, grant, lease)
            yield from works(client, lease, held, [(ms, "renew") for ms in (1, 3_000)[: world.chance.pick(3)]])

    return script


def pessimist(owner: str, rounds: int = 3) -> Script:
    """One of several processes with one owner: takes the lock if it is free or its own, and frees it in its name."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        checker = world.checker
        checker.allied.setdefault(owner, set()).add(machine.name)
        claim = world.claim(owner)
        for _ in range(rounds):
            yield Sleep([1, 100, 3_000][world.chance.pick(3)])
            checker.asks(machine, owner, 0)
            try:
                grant = yield from driver.run(lambda now: contender(world, claim, now).take_ticket(0))
            except RecordWaitExceeded:
                checker.refused(machine)
                continue
            except TableError as error:
                checker.met(error)
                checker.gave_up(machine)
                continue
            assert isinstance(grant, Grant)
            held = checker.note_grant(machine, claim, grant, Client(world, machine, driver).lease(claim, grant))
            yield Sleep([1, 50, 3_000][world.chance.pick(3)])
            held.ends()
            yield from _frees(world, machine, driver, lambda each: each.owner == owner, None)

    return script


def _like(holder: Holder, *, by_token: bool) -> tuple[Callable[[Holder], bool], Decision | None]:
    """What identifies a holder: its token, as for force, or its owner; and the decision, if it is force."""
    if by_token:
        return lambda each: each.fencing_token == holder.fencing_token, DECISION
    return lambda each: each.owner == holder.owner, None


def _a_holder(world: World, driver: Driver) -> Actions[Holder | None]:
    """One of the holders of the lock."""
    try:
        state = yield from driver.run(lambda now: inspect(world.lock, now))
    except TableError:
        return None
    holders = state.item.holders if state.item is not None else ()
    return holders[world.chance.pick(len(holders))] if holders else None


def _frees(
    world: World, machine: Machine, driver: Driver, whose: Callable[[Holder], bool], by_force: Decision | None
) -> Actions[None]:
    """Free the grant of such a holder; the checker learns which one, and what was reported of it."""
    meant: list[int] = []

    def is_meant(holder: Holder) -> bool:
        if whose(holder):
            meant.append(holder.fencing_token)
            world.checker.may_free.setdefault(holder.fencing_token, set()).add(machine.name)
        return whose(holder)

    unheard, is_reported = machine.unheard, True
    identity = f"{machine.name}, {world.steps}"
    try:
        yield from driver.run(
            lambda now: release_of(
                world.lock, is_meant, now, partial(Contender, wakes=world.wakes), by=identity, by_force=by_force
            )
        )
    except LockLost:
        is_reported = False
    except TableError:
        return
    if meant:
        world.checker.freed(machine, meant[-1], is_reported=is_reported, is_sure=machine.unheard == unheard)


def _limited(world: World, driver: Driver, permits: int) -> Actions[bool]:
    try:
        yield from driver.run(
            lambda now: set_limit(world.lock, permits, DECISION, now, partial(Contender, wakes=world.wakes))
        )
    except TableError:
        return False
    return True


def _unlimited(world: World, driver: Driver) -> Actions[bool]:
    """Unset the limit; a lock that nobody used before it is given a number, which the next deployment replaces."""
    for permits in (None, world.permits):
        with suppress(InvalidLockRequest):
            try:
                yield from driver.run(partial(_unset, world, permits))
            except TableError:
                return False
            return True
    raise AssertionError("unreachable")


def _unset(world: World, permits: int | None, now: Moment) -> Steps[LockItem | None]:
    return (yield from unset_limit(world.lock, permits, DECISION, now, partial(Contender, wakes=world.wakes)))


def _resumed(world: World, owner: str, now: Moment) -> Steps[tuple[Claim, Grant]]:
    return (yield from resume(world.lock, owner, LEASE_MS, now))
