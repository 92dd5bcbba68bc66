"""What the machines of the simulated world do with a granted lock: as a client does it, with its leases."""

from collections.abc import Callable, Iterable

from property.clocks import Machine
from property.parties import Hold
from property.seen import TABLE
from property.world import World

from ticketlock import Grant
from ticketlock.client._acquire import PaceBounds
from ticketlock.client._arguments import Acquisition
from ticketlock.client._base_lease import BaseLease
from ticketlock.client._holdings import Holdings
from ticketlock.errors import LockLost, TableError
from ticketlock.locks._outcomes import Claim
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import Actions, Answer, Sleep, T
from ticketlock.wire._driver import Driver
from ticketlock.wire._heartbeat import Due
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._table_time import Moment

CLIENTS = PaceBounds(5, 400)

Verb = tuple[int, str]
"""What a holder does after so many milliseconds: ``renew``, ``show`` other data, or ``work``."""


class Client:
    """What a machine's client holds: the real client's holdings; the world is its table and its heartbeat.

    No heartbeat runs in the background: a script renews when it says so.
    """

    def __init__(self, world: World, machine: Machine, driver: Driver) -> None:
        self.world = world
        self.machine = machine
        self._driver = driver
        self.holdings: Holdings[BaseLease] = Holdings(self, self, machine, CLIENTS, world.lines)

    def lease(self, claim: Claim, grant: Grant) -> BaseLease:
        """A grant as its holder knows it."""
        return BaseLease(TABLE, Acquisition(claim, has_own_identity=True), grant, self.machine)

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
    try:
        yield from client.holdings.release(lease)
    except (LockLost, TableError) as error:
        checker.met(error, held)
    else:
        checker.ended_well(held, is_sure=client.machine.unheard == unheard)
