"""Deployments of the simulated world: each execution asks with its deployment's number of permits, for its lifetime."""

from collections.abc import Callable
from dataclasses import dataclass, field

from property.clocks import Machine, TrueTime
from property.world import World

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
