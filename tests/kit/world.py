"""A world whose time the test moves: processes with clocks of their own, and one table.

The engine's requests are real. Only the Date header of its replies is rewritten on the way in, to the world's time, so
that a lease can end without a wait.
"""

import itertools
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Generic, TypeVar

from botocore.exceptions import ReadTimeoutError
from kit.engines import Engine
from kit.promises import counts_are_kept, stored, tokens_grow
from ticketlock_local.demo.promises import Acquisition

from ticketlock import Claim, Grant, LockName, LockTable, Position
from ticketlock.errors import TableError
from ticketlock.locks._items import LockItem, is_lock_item
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import Actions, Reply
from ticketlock.wire._item_requests import GetMany
from ticketlock.wire._requests import Read, Request, Steps, TransactWrite, Write
from ticketlock.wire._table_time import Moment, Reading

LEASE_MS = 60_000
_BOOTED_MS = 1_700_000_000_000
"""When the local clocks began."""
T = TypeVar("T")


@dataclass
class World:
    """Its time, and what its processes did.

    Attributes:
        entities: those whose items a process has tried to change.
        grants: each with when its owner first learned of it, by a counter of requests and replies.
    """

    engine: Engine
    now_ms: int = 1_800_000_000_000
    entities: set[str] = field(default_factory=set)
    grants: dict[tuple[LockName, str, int], Acquisition] = field(default_factory=dict)
    ticks: Iterator[int] = field(default_factory=itertools.count)

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def process(self, *, wall_is_off_ms: int = 0, cold: bool = False) -> "Process":
        """A process; unless it is cold, it has already asked for the table's time."""
        return Process(self, wall_is_off_ms, cold=cold)

    def lock(self, namespace: str = "default") -> LockName:
        return LockName(f"entity-{uuid.uuid4().hex}", namespace)

    def heard(self, found: object, asked: int) -> None:
        """A process has received a result; a new grant is counted."""
        if isinstance(found, Grant):
            first = Acquisition(
                process=found.owner,
                entity=f"{found.lock.namespace}/{found.lock.entity}",
                outcome="applied",
                invoked_ms=asked,
                polled_ms=asked,
                granted_ms=next(self.ticks),
                fencing_token=found.fencing_token,
            )
            self.grants.setdefault((found.lock, found.owner, found.fencing_token), first)

    def keeps_its_promises(self, client: Any) -> None:
        """Check the promises in the table, with a client of its own, and those of the grants."""
        tokens_grow(self.grants.values())
        for entity in self.entities:
            counts_are_kept(stored(client, self.engine.table_name, entity), self.now_ms)


class Table(LockTable):
    """The table of a process; every grant is reported to the world."""

    def __init__(self, process: "Process", **more: Any) -> None:
        self._world = process.world
        name = process.world.engine.table_name
        super().__init__(name, client=process.client, clocks=process, sleep=process.sleep, **more)

    def drive(self, actions: Actions[T], **more: Any) -> T:
        asked = next(self._world.ticks)
        found = super().drive(actions, **more)
        self._world.heard(found, asked)
        return found


@dataclass
class Exchange:
    """One request, and its reply."""

    operation: str
    parameters: dict[str, Any]
    response: dict[str, Any] = field(default_factory=dict)


class Process:
    """A process of the world: a client, clocks, and a log of its requests."""

    def __init__(self, world: World, wall_is_off_ms: int, *, cold: bool) -> None:
        self.world = world
        self.wall_is_off_ms = wall_is_off_ms
        self.paused_ms = 0
        self.sent: list[Exchange] = []
        self.faults: list[Callable[[str], None]] = []
        self.client = world.engine.client()
        self.client.meta.events.register("provide-client-params.dynamodb", self._before)
        self.client.meta.events.register("after-call.dynamodb", self._after)
        self.table = Table(self)
        if not cold:
            self.table.now()

    def read(self) -> Reading:
        local_ms = self.world.now_ms - _BOOTED_MS - self.paused_ms
        return Reading(local_ms=local_ms, wall_ms=self.world.now_ms + self.wall_is_off_ms)

    def sleep(self, seconds: float) -> None:
        self.world.advance(int(seconds * 1_000))

    def stand_still(self, ms: int) -> None:
        """Pause together with the local clock."""
        self.world.advance(ms)
        self.paused_ms += ms

    def _before(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.sent.append(Exchange(model.name, params))
        if model.name == "UpdateItem":  # Only this operation creates a lock item.
            self.world.entities.add(params["Key"]["pk"]["S"])

    def _after(self, parsed: dict[str, Any], **_: Any) -> None:
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = formatdate(self.world.now_ms // 1_000, usegmt=True)
        self.sent[-1].response = parsed
        if self.faults:
            self.faults.pop(0)(self.sent[-1].operation)

    # What a test makes a process do.

    def claim(self, lock: LockName, owner: str | None = None, **more: Any) -> Claim:
        return Claim(lock, owner or f"owner-{uuid.uuid4().hex}", **{"lease_ms": LEASE_MS, **more})

    def take(self, claim: Claim, record_wait_ms: int | None = None) -> Grant | Position:
        return self.table.take_ticket(claim, record_wait_ms)

    def granted(self, claim: Claim) -> Grant:
        found = self.take(claim)
        assert isinstance(found, Grant), found
        return found

    def queued(self, claim: Claim) -> Position:
        found = self.take(claim)
        assert isinstance(found, Position), found
        return found

    def poll(self, claim: Claim, position: Position, wait_until_ms: int | None = None) -> Grant | Position:
        return self.table.check_turn(claim, position.place, wait_until_ms)

    def steps(self, claim: Claim, verb: Callable[[Contender], Steps[T]]) -> "Stepper[T]":
        return Stepper(self, lambda now: verb(Contender(claim, now)))

    def crash_after(self, requests: int, claim: Claim, verb: Callable[[Contender], Steps[T]]) -> None:
        stepper = self.steps(claim, verb)
        for _ in range(requests):
            stepper.step()

    def operations(self, do: Callable[[], object]) -> list[str]:
        """The operations that ``do`` sends, each as often as the engine answers in time: a busy one is asked again."""
        before = len(self.sent)
        do()
        return [sent.operation for sent in self.sent[before:] if sent.response]


def reply_lost(operation: str) -> None:
    """A fault: the request was applied, and there was no reply."""
    raise ReadTimeoutError(endpoint_url=f"the reply to {operation}")


class Stepper(Generic[T]):
    """Steps of the protocol that continue only when the test says so: a process that may pause between two requests."""

    def __init__(self, process: Process, steps: Callable[[Moment], Steps[T]]) -> None:
        self._process = process
        self._asked = next(process.world.ticks)
        self._steps: Generator[Request, Any, T] = steps(process.table.now())
        self.touched = Touched()
        self.done = False
        self.result: T | None = None
        self.error: Exception | None = None
        self.next_request: Request | None = None
        self._advance(lambda: next(self._steps))

    def step(self) -> None:
        """Send the next request, and process its reply."""
        assert self.next_request is not None
        reply = self._perform(self.next_request)
        self.touched = Touched.by(self.next_request, applied=reply.applied)
        self._advance(lambda: self._steps.send(reply))

    def fail(self, error: TableError) -> None:
        """Give the next request up."""
        self._advance(lambda: self._steps.throw(error))

    def _perform(self, request: Request) -> Reply:
        return self._process.table.perform(request)

    def to_the_end(self) -> T:
        while not self.done:
            self.step()
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def _advance(self, move: Callable[[], Request]) -> None:
        try:
            self.next_request = move()
        except StopIteration as end:
            self.done, self.result, self.next_request = True, end.value, None
            self._process.world.heard(end.value, self._asked)
        except Exception as error:
            self.done, self.error, self.next_request = True, error, None


@dataclass(frozen=True)
class Touched:
    """What another process can see of a request.

    Attributes:
        keys: the sort keys of the items that it accessed.
        prefix: the prefix of the sort keys that a Query reads.
        changed: whether it changed anything.
    """

    keys: frozenset[str] = frozenset()
    prefix: str | None = None
    changed: bool = False

    @classmethod
    def by(cls, request: Request, *, applied: bool) -> "Touched":
        if isinstance(request, Read):
            return cls(prefix=request.prefix["sk"]["S"])
        if isinstance(request, GetMany):
            return cls(frozenset(key["sk"]["S"] for _, key in request.keys))
        return cls(frozenset(write.key["sk"]["S"] for write in writes_of(request)), changed=applied)

    def may_swap_with(self, other: "Touched") -> bool:
        """Whether the result is the same, whichever of the two was first."""
        return not (self.changed and other._sees(self.keys)) and not (other.changed and self._sees(other.keys))

    def _sees(self, keys: frozenset[str]) -> bool:
        prefix = self.prefix
        return not keys.isdisjoint(self.keys) or (prefix is not None and any(key.startswith(prefix) for key in keys))


def writes_of(request: Request) -> tuple[Write, ...]:
    """The writes of a request; none of one that only reads, or of one to another service."""
    if isinstance(request, TransactWrite):
        return request.writes
    return (request,) if isinstance(request, Write) else ()


def exclusion_held(processes: Sequence[Process]) -> bool:
    """Whether every reply to the processes showed at most one holder, and the right count of them."""
    return all(item.held == len(item.holders) <= 1 for process in processes for item in _lock_items(process.sent))


def _lock_items(sent: Sequence[Exchange]) -> Iterator[LockItem]:
    for each in sent:
        response = each.response
        batches = response.get("Responses", {}).values()
        batched = [item for batch in batches for item in batch]
        for item in [response.get("Attributes"), response.get("Item"), *response.get("Items", []), *batched]:
            if item and is_lock_item(item):
                yield LockItem.parse(item)
