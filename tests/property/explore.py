"""Random schedules of the simulated world.

``make replay ARGS='--seed 17'`` runs one again, and shortens it if it breaks a promise.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from kit.invariants import ROW_LEASE_MS, Broken
from property import caps, executions, operators, scripts
from property.caps import REAL, Caps
from property.chance import Chance
from property.clocks import Machine, TrueTime
from property.failures import noted
from property.faults import Faults
from property.world import OPERATOR, World

from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._driver import Driver

_ANOTHER_ONE_MS = (500, 5_000, 30_000)


@dataclass
class Deployments:
    """What the executions of the deployments ask with.

    Attributes:
        permits: the number of the present deployment.
        before: that of the deployment before it, which some executions still begin with.
        numbers: the number of each execution, by when it started.
        started: when the execution of each owner started; 0 for one that shares the lock.
    """

    time: TrueTime
    permits: int
    before: int
    numbers: dict[int, int] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)

    def starts(self, owner: str, *, shared: bool, is_behind: bool) -> tuple[int, int]:
        """An execution starts: its number of permits, and when it started.

        Args:
            is_behind: whether it begins with the definition of the deployment before, as just after an update.
        """
        if shared:
            self.started[owner] = 0
            return 1, 0
        if owner in self.started:
            # Another process of the same owner.
            return self.numbers[self.started[owner]], self.started[owner]
        started_ms = max(int(self.time.now_ms), max(self.numbers, default=0) + 1)
        self.numbers[started_ms] = self.before if is_behind else self.permits
        self.started[owner] = started_ms
        return self.numbers[started_ms], started_ms

    def deploys(self, permits: int) -> None:
        """A deployment, or the rollback of one, is over."""
        self.before, self.permits = self.permits, permits


def deployer(rounds: int = 3) -> Callable[[World, Machine, Driver], Actions[None]]:
    """Deploys another number from time to time."""

    def script(world: World, _: Machine, __: Driver) -> Actions[None]:
        assert world.deployments is not None
        for _round in range(rounds):
            yield Sleep(_ANOTHER_ONE_MS[world.chance.pick(3)])
            world.deployments.deploys(1 + world.chance.pick(min(3, world.caps.holders)))

    return script


# How often each is injected, in thousandths of the choices, if at all.
_RATES = Faults(
    request_lost=10,
    reply_lost=20,
    late=15,
    twice=15,
    torn=40,
    throttled=10,
    conflict=15,
    crash=2,
    pause=4,
    freeze=1,
    jump=1,
    expire=1,
)
_MOST_STEPS = 20_000
# Who is first in line polls all through a suspension: some 5,000 steps each.
_MOST_STEPS_WITH_SUSPENSIONS = 60_000
CRASHED_READERS = 12


def mixed(chance: Chance) -> Faults:
    """Some faults never, some at their rate, some often: all of them at once would hide bugs. Or none at all.

    Groce et al., "Swarm Testing" (2012).
    """
    if chance.pick(8) == 0:
        return Faults()
    return Faults(**{name: rate * [1, 0, 5][chance.pick(3)] for name, rate in asdict(_RATES).items()})


def begun(chance: Chance, faults: Faults, limits: Caps = REAL, kind: type[World] = World) -> World:
    """A world with its machines, about to begin; its caps must be set."""
    permits = min([1, 1, 1, 2, 3][chance.pick(5)], limits.holders)
    wakes, take_ms = chance.pick(2) == 1, [0, None, None, 5, 50][chance.pick(5)]
    in_steps = take_ms is None
    world = kind(
        chance, faults, permits, wakes=wakes, caps=limits, transactions_take_ms=take_ms or 0, in_steps=in_steps
    )
    is_deployed = chance.pick(4) == 3
    if is_deployed:
        world.deployments = world.checker.deployments = Deployments(world.time, permits, permits)
    rounds = [1, 1, 2, 2, 3][chance.pick(5)]
    if wakes and rounds > 1:
        world.row_lease_ms = world.checker.row_lease_ms = ROW_LEASE_MS
    if world.row_lease_ms and rounds > 2 and faults != Faults():
        with_one_that_goes(world)
    elif permits == 1 and limits.holders > CRASHED_READERS and chance.pick(16) == 15:
        with_crashed_readers(world)
    if chance.pick(16) == 15:
        for number in range(6):
            world.add(f"i{number}", scripts.impatient())
    for number in range([2, 3, 3, 4, 4, 5, 6, 8][chance.pick(8)]):
        world.add("abcdefgh"[number], scripts.client(rounds))
    if in_steps:
        for number in range([0, 2, 4, 6][chance.pick(4)]):
            world.add(f"b{number}", scripts.busy())
    if chance.pick(8) == 7:
        world.add(OPERATOR, operators.operator())
    if chance.pick(8) == 7:
        world.add("force", operators.freer())
    if chance.pick(8) == 7:
        world.add("heir", operators.heir())
    if chance.pick(16) == 15:
        for name in ("one", "other"):
            world.add(name, operators.pessimist("one/0"))
    if chance.pick(3) == 2:
        world.longest_lease_ms = executions.LONGEST_MS
        for number in range(1 + chance.pick(3)):
            world.add(f"d{number}", executions.execution(rounds))
    if is_deployed:
        world.add("deployer", deployer(), rate=1, wall_is_off_ms=0)
    return world


def behind_one_that_has_gone(chance: Chance, faults: Faults, limits: Caps = REAL, kind: type[World] = World) -> World:
    """A world in which one has gone, and few others wait."""
    world = kind(chance, faults, wakes=True, row_lease_ms=ROW_LEASE_MS, caps=limits)
    world.checker.row_lease_ms = ROW_LEASE_MS
    with_one_that_goes(world)
    for name in "abc":
        world.add(name, scripts.client(2))
    return world


def with_one_that_goes(world: World) -> None:
    """One parks and crashes, perhaps as the first in line; and many wake waiters: each time that a client leaves."""
    world.add("gone", scripts.crashing("parked"))
    world.checker.has_lost = True
    world.checker.struck()
    for number in range(6):
        world.add(f"l{number}", scripts.impatient())


def with_crashed_readers(world: World) -> None:
    """Many readers have crashed before the other machines begin: more than any cap on what one write removes."""
    names = [f"crashed{number}" for number in range(CRASHED_READERS)]
    for name in names:
        world.add(name, scripts.crashing("reader"), rate=1, wall_is_off_ms=0)
    faults, world.faults = world.faults, Faults()
    while not world.is_over:
        world.go_on(world.ready()[0])
    world.faults, world.checker.has_lost = faults, True
    world.checker.struck()


def run(
    chance: Chance,
    faults: Faults | None = None,
    limits: Caps | None = None,
    kind: type[World] = World,
    begins: Callable[[Chance, Faults, Caps, type[World]], World] = begun,
) -> World:
    """One schedule, to its end.

    Args:
        faults: how often each fault is injected; None for a mixture.
        limits: the protocol's caps; None for a mixture.
        kind: one that records what happens in it, perhaps.
        begins: makes the world with its machines.

    Raises:
        Broken, Unexpected: a promise was broken, or another error was raised; its note lists the injected faults and
            the grants before.
    """
    faults = faults or mixed(chance)
    limits = limits or caps.drawn(chance)
    with limits.set():
        world = begins(chance, faults, limits, kind)
        world.checker.is_fair = world.faults == Faults()
        world.checker.log += limits.in_words()
        with noted(world.checker.log):
            to_its_end(world)
            scripts.left_to_itself(world)
    return world


def to_its_end(world: World) -> None:
    """Let things happen until every machine has come to its end."""
    may_be_suspended = world.longest_lease_ms >= executions.LONGEST_MS
    most_steps = _MOST_STEPS_WITH_SUSPENSIONS if may_be_suspended else _MOST_STEPS
    while world.step():
        if world.steps > _MOST_STEPS // 2:
            # From now on no faults are injected: every machine must come to an end.
            world.faults = Faults()
        if world.steps > most_steps:
            raise Broken(f"liveness: after {most_steps} steps a machine is still waiting")
