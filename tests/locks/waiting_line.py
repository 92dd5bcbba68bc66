"""Who holds a lock and who waits for it; and a lock with its holders, and waiters behind them that can be woken."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kit.step_functions import Callback, TaskService
from kit.world import LEASE_MS, Process, World

from ticketlock import Claim, Grant, LockName, Place, Position, Released
from ticketlock.locks._hand_over import await_wake_up
from ticketlock.locks._items import LockItem, Session
from ticketlock.locks._protocol import Contender
from ticketlock.wire._requests import Steps

MARGIN_MS = 4_000
"""A process that knows the table's time takes a lease as expired so long after its end."""


def passes(_operation: str) -> None:
    """No fault."""


def item_of(process: Process, lock: LockName) -> LockItem:
    """The lock item, which exists."""
    item = process.table.inspect(lock).item
    assert item is not None
    return item


@dataclass
class Held:
    """A lock that a process holds."""

    process: Process
    claim: Claim
    grant: Grant

    @property
    def token(self) -> int:
        return self.grant.fencing_token

    def renews(self) -> Grant:
        self.grant = self.process.table.renew(self.claim, self.token)
        return self.grant

    def releases(self, **more: Any) -> Released:
        return self.process.table.release(self.claim, self.grant, **more)


@dataclass
class Queued:
    """A process that waits for a lock, and what it saw last."""

    process: Process
    claim: Claim
    seen: Position

    @property
    def ticket(self) -> int:
        return self.seen.place.ticket

    def polls(self, wait_until_ms: int | None = None) -> Grant | Position:
        found = self.process.poll(self.claim, self.seen, wait_until_ms)
        if isinstance(found, Position):
            self.seen = found
        return found

    def still_waits(self) -> Position:
        found = self.polls()
        assert isinstance(found, Position)
        return found

    def enters(self) -> Held:
        found = self.polls()
        assert isinstance(found, Grant)
        return Held(self.process, self.claim, found)


def holds(process: Process, lock: LockName, owner: str | None = None, **more: Any) -> Held:
    """The process takes the lock at once."""
    claim = process.claim(lock, owner, **more)
    return Held(process, claim, process.granted(claim))


def waits(process: Process, lock: LockName, owner: str | None = None, **more: Any) -> Queued:
    """The process joins the queue."""
    claim = process.claim(lock, owner, **more)
    return Queued(process, claim, process.queued(claim))


def as_its_owner(operator: Process, held: Held) -> None:
    operator.table.release_as(held.claim.lock, held.claim.owner)


def by_force(operator: Process, held: Held) -> None:
    operator.table.force_release(held.claim.lock, held.token)


def counts(process: Process, lock: LockName) -> tuple[int, int, int]:
    """How many hold the lock, how many are counted as waiting, and how many rows there are."""
    state = process.table.inspect(lock)
    assert state.item is not None
    assert state.item.held == len(state.item.holders)
    return state.item.held, state.item.waiting, len(state.rows)


@dataclass
class Waiter:
    """An acquisition that can be woken, and its place in the queue.

    Attributes:
        row_lease_ms: of its row while it is parked.
    """

    process: Process
    claim: Claim
    session: Session
    service: TaskService
    place: Place
    row_lease_ms: int = LEASE_MS

    @property
    def token(self) -> str:
        return f"token of {self.session.fragment}"

    def parks(self, token: str | None = None, park: int = 0, *, may_stay: bool = True) -> Callback[Position | None]:
        return Callback(
            self.process,
            replace(self.claim, lease_ms=self.row_lease_ms),
            lambda me: await_wake_up(me, self.place, self.session, token or self.token, park, lambda _: may_stay),
            self.service,
        )

    def stays_parked(self) -> bool:
        return self.parks().run().result is not None

    def polls(self) -> Grant | Position:
        found = self.process.table.check_turn(self.claim, self.place, None)
        if isinstance(found, Position):
            self.place = found.place
        return found

    def has_word(self) -> bool:
        return self.token in self.service.answered

    def comes_in(self) -> Callback[Grant | Position]:
        """It polls, and wakes the next if there is room for more."""
        return self._steps(lambda me: me.check_turn(self.place, None))

    def gives_up(self) -> Callback[Grant | Position]:
        """Its record wait ends with this poll."""
        return self._steps(lambda me: me.check_turn(self.place, wait_until_ms=0))

    def _steps(self, verb: Callable[[Contender], Steps[Any]]) -> Callback[Any]:
        return Callback(self.process, self.claim, verb, self.service)


@dataclass
class Line:
    """One lock with its holders, and waiters behind them in the order of their tickets.

    Attributes:
        processes: those that are reused; further ones are created.
        row_lease_ms: of a waiter's row while it is parked.
    """

    world: World
    processes: Sequence[Process] = ()
    permits: int = 1
    row_lease_ms: int = LEASE_MS
    service: TaskService = field(default_factory=TaskService)
    holders: list[Held] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = self.world.lock()
        self._free = list(self.processes)
        for process in self.processes:
            process.sent.clear()

    def process(self) -> Process:
        return self._free.pop(0) if self._free else self.world.process()

    def held(self, *, shared: bool = False) -> "Line":
        self.holders.append(holds(self.process(), self.lock, permits=self.permits, shared=shared))
        return self

    def claim(self, process: Process, name: str, *, shared: bool = False) -> tuple[Claim, Session]:
        session = Session(f"arn:aws:states:::execution:serialize:{uuid.uuid4()}", name)
        return process.claim(self.lock, permits=self.permits, session=session, shared=shared), session

    def waiter(self, *, shared: bool = False) -> Waiter:
        process = self.process()
        claim, session = self.claim(process, f"waiter-{len(self.waiters)}", shared=shared)
        place = process.queued(claim).place
        waiter = Waiter(process, claim, session, self.service, place, self.row_lease_ms)
        self.waiters.append(waiter)
        return waiter

    def parked(self, count: int = 1, *, shared: bool = False) -> list[Waiter]:
        """So many more waiters, each of which stays parked."""
        waiters = [self.waiter(shared=shared) for _ in range(count)]
        for waiter in waiters:
            assert waiter.stays_parked()
        return waiters

    def releases(self, holder: int = 0) -> Callback[Released]:
        held = self.holders[holder]
        return Callback(held.process, held.claim, lambda me: me.release(held.grant), self.service)

    def wakes_next(self) -> int | None:
        """Another client wakes whose turn it is; how many."""
        process = self.process()
        claim = process.claim(self.lock, permits=self.permits)
        return Callback(process, claim, lambda me: me.wake_next(), self.service).run().result

    def freed_by_one_that_wakes_no_one(self) -> None:
        """By a client that cannot reach Step Functions."""
        self.holders[0].releases()

    def holds(self, waiter: Waiter) -> bool:
        item = self.process().table.inspect(self.lock).item
        return item is not None and item.holder(waiter.claim.owner) is not None

    def is_free(self) -> bool:
        item = self.process().table.inspect(self.lock).item
        return item is not None and item.held < item.permits
