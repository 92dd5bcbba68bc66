"""A world whose time the test moves: processes with clocks of their own, and one table.

The engine's requests are real. Only the Date header of its replies is rewritten on the way in, to the world's time, so
that a lease can end without anybody waiting for it.
"""

import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Generic, TypeVar

from botocore.exceptions import ReadTimeoutError
from contract.engines import Engine

from ticketlock import Claim, Grant, LockName, LockTable, Position
from ticketlock._protocol import Contender, Steps
from ticketlock._requests import Request
from ticketlock._sdk import make_client
from ticketlock._time import Moment, Reading

LEASE_MS = 60_000
T = TypeVar("T")


@dataclass
class World:
    engine: Engine
    now_ms: int = 1_800_000_000_000

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def process(self, *, wall_is_off_ms: int = 0, cold: bool = False) -> "Process":
        """A process; one that is not cold has asked the table for the time before."""
        return Process(self, wall_is_off_ms, cold=cold)

    def lock(self, namespace: str = "default") -> LockName:
        return LockName(f"entity-{uuid.uuid4().hex}", namespace)


@dataclass
class Sent:
    """One request as it went over the wire, and what came back."""

    operation: str
    parameters: dict[str, Any]
    response: dict[str, Any] = field(default_factory=dict)


class Process:
    """A process of the world: a client, clocks, and a log of what it sent."""

    def __init__(self, world: World, wall_is_off_ms: int, *, cold: bool) -> None:
        self.world = world
        self.wall_is_off_ms = wall_is_off_ms
        self.sent: list[Sent] = []
        self.faults: list[Callable[[str], None]] = []
        options = {"endpoint_url": world.engine.endpoint_url} if world.engine.endpoint_url else {}
        self.client = make_client(**options)
        self.client.meta.events.register("provide-client-params.dynamodb", self._before)
        self.client.meta.events.register("after-call.dynamodb", self._after)
        self.table = LockTable(world.engine.table_name, client=self.client, clocks=self, sleep=self._sleep)
        if not cold:
            self.table.now()

    def read(self) -> Reading:
        return Reading(local_ms=self.world.now_ms - 1_700_000_000_000, wall_ms=self.world.now_ms + self.wall_is_off_ms)

    def _sleep(self, seconds: float) -> None:
        self.world.advance(int(seconds * 1_000))

    def _before(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.sent.append(Sent(model.name, params))

    def _after(self, parsed: dict[str, Any], **_: Any) -> None:
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = formatdate(self.world.now_ms // 1_000, usegmt=True)
        self.sent[-1].response = parsed
        if self.faults:
            self.faults.pop(0)(self.sent[-1].operation)

    # What a test asks a process to do.

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

    def look(self, claim: Claim, position: Position, wait_until_ms: int | None = None) -> Grant | Position:
        return self.table.check_turn(claim, position.place, wait_until_ms)

    def steps(self, claim: Claim, verb: Callable[[Contender], Steps[T]]) -> "Stepper[T]":
        return Stepper(self, lambda now: verb(Contender(claim, now)))

    def crash_after(self, requests: int, claim: Claim, verb: Callable[[Contender], Steps[T]]) -> None:
        stepper = self.steps(claim, verb)
        for _ in range(requests):
            stepper.step()

    def operations(self, do: Callable[[], object]) -> list[str]:
        """The operations that ``do`` sends."""
        before = len(self.sent)
        do()
        return [sent.operation for sent in self.sent[before:]]


def reply_lost(operation: str) -> None:
    """A fault: the request was applied, and nothing came back."""
    raise ReadTimeoutError(endpoint_url=f"the reply to {operation}")


class Stepper(Generic[T]):
    """Steps of the protocol that go on only when the test says so: a process that may stall between two requests."""

    def __init__(self, process: Process, steps: Callable[[Moment], Steps[T]]) -> None:
        self._process = process
        self._steps: Generator[Request, Any, T] = steps(process.table.now())
        self.done = False
        self.result: T | None = None
        self.error: Exception | None = None
        self.next_request: Request | None = None
        self._advance(lambda: next(self._steps))

    def step(self) -> None:
        """Send the next request, and take in its reply."""
        assert self.next_request is not None
        reply = self._process.table.perform(self.next_request)
        self._advance(lambda: self._steps.send(reply))

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
        except Exception as error:
            self.done, self.error, self.next_request = True, error, None
