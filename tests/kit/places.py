"""The tables on which the client is tested: one of the emulator, and one in memory whose time a test moves."""

import asyncio
import json
import sys
import threading
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from botocore.config import Config
from kit.awaited import Sending
from kit.in_a_loop import InALoop, Loop
from kit.promises import counts_are_kept, stored

from ticketlock import LockClient, LockName, LockTable, aio
from ticketlock.locks._items import LockItem
from ticketlock.testing import ManualClock, MemoryDynamoDB, Sent
from ticketlock.wire._driver import Clocks
from ticketlock.wire._sdk import CLIENT_SETTINGS, make_client

Kind = Literal["threads", "tasks"]
T = TypeVar("T")

PATIENCE_S = 30.0
_READ_TIMEOUT_S = 2.0
_SENT = "provide-client-params.dynamodb"
_TICK_S = 0.005


def until(is_so: Callable[[], T | None], what: str = "it") -> T:
    """Wait for a condition, on a machine that may be busy. Returns its value, which is true."""
    last = time.monotonic() + PATIENCE_S
    while not (found := is_so()):
        assert time.monotonic() < last, f"{what} did not come about in {PATIENCE_S} s"
        # This thread gets no notice of what happens elsewhere: it polls.
        time.sleep(_TICK_S)
    return found


def meanwhile(what: Callable[[], T]) -> "Future[T]":
    """Run something in a thread of its own."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(what())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def outcome(done: "Future[T]") -> T:
    """Its result; raises what it raised, or where each thread is if it does not end."""
    try:
        return done.result(timeout=PATIENCE_S)
    except TimeoutError as error:
        if not done.done():
            for frame in sys._current_frames().values():
                error.add_note("".join(traceback.format_stack(frame)))
        raise


@dataclass
class Gate:
    """Holds requests back until it is opened.

    Attributes:
        is_meant: which requests.
        reached: set when one has reached it.
        opened: lets them pass.
    """

    is_meant: Callable[[Sent], bool]
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def pass_through(self, sent: Sent) -> None:
        if self.is_meant(sent):
            self.reached.set()
            self.opened.wait(PATIENCE_S)


@dataclass
class _Once:
    is_meant: Callable[[Sent], bool]
    act: Callable[[], object]
    met: threading.Event = field(default_factory=threading.Event)

    def pass_through(self, sent: Sent) -> None:
        if not self.met.is_set() and self.is_meant(sent):
            self.met.set()
            self.act()


class Wire:
    """The requests of a client, which a test may hold back."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._gates: list[Gate | _Once] = []
        self._gates_of_answers: list[Gate] = []

    def renewals(self, entity: str) -> int:
        return sum(is_renewal(sent) and _entity_of(sent) == entity for sent in list(self.sent))

    @contextmanager
    def held_back(self, is_meant: Callable[[Sent], bool]) -> Iterator[Gate]:
        """Within the block, such requests hang."""
        gate = Gate(is_meant)
        self._gates.append(gate)
        try:
            yield gate
        finally:
            gate.opened.set()

    @contextmanager
    def answers_held_back(self, is_meant: Callable[[Sent], bool]) -> Iterator[Gate]:
        """Within the block, such requests are performed, and their answers hang; on a table in memory."""
        gate = Gate(is_meant)
        self._gates_of_answers.append(gate)
        try:
            yield gate
        finally:
            gate.opened.set()

    def before(self, is_meant: Callable[[Sent], bool], act: Callable[[], object]) -> threading.Event:
        """Call a function just before the next such request; returns an event that is set then."""
        once = _Once(is_meant, act)
        self._gates.append(once)
        return once.met

    def renewals_held_back(self, entity: str) -> Any:
        return self.held_back(lambda sent: is_renewal(sent) and _entity_of(sent) == entity)

    def pass_through(self, sent: Sent) -> None:
        self.sent.append(sent)
        for gate in self._gates:
            gate.pass_through(sent)

    def answer(self, sent: Sent) -> None:
        for gate in self._gates_of_answers:
            gate.pass_through(sent)

    # Handlers of botocore's and aiobotocore's events.

    def before_call(self, model: Any, params: Mapping[str, Any], **_: Any) -> None:
        self.pass_through(Sent(model.name, json.loads(params["body"])))

    async def before_call_in_a_loop(self, model: Any, params: Mapping[str, Any], **_: Any) -> None:
        sent = Sent(model.name, json.loads(params["body"]))
        # Not on the loop's own threads: they are few, and a test may hold back many requests.
        await asyncio.wrap_future(meanwhile(lambda: self.pass_through(sent)))


def _entity_of(sent: Sent) -> str:
    return str(sent.parameters["Key"]["pk"]["S"])


class Place(ABC):
    """A table, and clients of one kind on it; closed at the end of the test.

    Attributes:
        table: the table as operators use it.
    """

    table: LockTable

    def __init__(self, kind: Kind, loop: Loop) -> None:
        self.kind = kind
        self._loop = loop
        self._clients: list[LockClient] = []

    @abstractmethod
    def client(self, *, wire: Wire | None = None, lease: float = 60, **options: Any) -> LockClient:
        """A lock client of this kind."""

    @abstractmethod
    def keeps_its_promises(self) -> None:
        """Check the promises in the table, for the locks of this place's clients."""

    def close(self) -> None:
        for client in self._clients:
            client.close()

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let time pass where a test moves it; elsewhere it passes by itself."""

    def queue_of(self, entity: str) -> int:
        """How many rows a lock's queue has."""
        return len(self.table.inspect(LockName(entity)).rows)

    def is_free(self, entity: str) -> bool:
        """Whether the lock has no holder, and its queue no count and no row."""
        state = self.table.inspect(LockName(entity))
        item = state.item
        return not state.rows and (item is None or (not item.holders and item.held == 0 and item.waiting == 0))

    def holders_of(self, entity: str) -> int:
        item = self.table.inspect(LockName(entity)).item
        return len(item.holders) if item is not None else 0

    def item_of(self, entity: str) -> LockItem:
        """The lock item of an entity that has one."""
        item = self.table.inspect(LockName(entity)).item
        assert item is not None
        return item

    def lose(self, entity: str) -> None:
        """Take the lock away from its only holder, without notice."""
        (holder,) = self.item_of(entity).holders
        self.table.force_release(LockName(entity), holder.fencing_token)

    def _made(self, table_name: str, dynamodb: Any, options: Mapping[str, Any]) -> LockClient:
        if self.kind == "threads":
            client = LockClient(table_name, client=dynamodb, **options)
        else:

            async def make() -> aio.LockClient:
                return await aio.LockClient(table_name, client=dynamodb, **options).__aenter__()

            client = cast("LockClient", InALoop(self._loop, self._loop.do(make)))
        self._clients.append(client)
        return client


class Emulated(Place):
    """A table of the emulator."""

    def __init__(self, kind: Kind, loop: Loop, endpoint: str, table_name: str, shared: dict[Any, Any]) -> None:
        super().__init__(kind, loop)
        self.endpoint = endpoint
        self.table_name = table_name
        self._shared = shared
        self._watched: list[Any] = []
        self._entities: set[str] = set()
        self.table = LockTable(table_name, client=self.dynamodb("threads", _READ_TIMEOUT_S))

    def client(self, *, wire: Wire | None = None, lease: float = 60, **options: Any) -> LockClient:
        """A lock client; one with a short lease has short time-outs, as it must."""
        shortest_s = min(lease, options.pop("shortest_lease", lease))
        dynamodb = self.dynamodb(self.kind, min(_READ_TIMEOUT_S, shortest_s / 4), wire)
        return self._made(self.table_name, dynamodb, {"lease": lease, **options})

    def advance(self, seconds: float) -> None:
        pass

    def client_with(self, dynamodb: Any, **options: Any) -> LockClient:
        """A lock client over the test's own SDK client."""
        return self._made(self.table_name, dynamodb, options)

    def dynamodb(self, kind: Kind, read_timeout_s: float, wire: Wire | None = None) -> Any:
        """An SDK client; without a wire it is shared, since each takes a while to make."""
        made = self._shared.get((kind, read_timeout_s)) if wire is None else None
        if made is None:
            made = self._made_anew(kind, read_timeout_s, wire)
        if made not in self._watched:
            made.meta.events.register(_SENT, self._note)
            self._watched.append(made)
        return made

    def close(self) -> None:
        super().close()
        for client in self._watched:
            client.meta.events.unregister(_SENT, self._note)

    def keeps_its_promises(self) -> None:
        # The emulator's clock is this machine's.
        now_ms = int(time.time() * 1_000)
        for entity in self._entities:
            counts_are_kept(stored(self.table.client, self.table_name, entity), now_ms)

    def _note(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        if model.name == "UpdateItem" and params["TableName"] == self.table_name:
            self._entities.add(params["Key"]["pk"]["S"])

    def _made_anew(self, kind: Kind, read_timeout_s: float, wire: Wire | None) -> Any:
        config: dict[str, Any] = {**CLIENT_SETTINGS, "read_timeout": read_timeout_s}
        if kind == "tasks":
            made = self._loop.dynamodb(endpoint_url=self.endpoint, config=config)
        else:
            made = make_client(endpoint_url=self.endpoint, config=Config(**config))
        if wire is None:
            self._shared[kind, read_timeout_s] = made
        elif kind == "tasks":
            made.meta.events.register("before-call.dynamodb", wire.before_call_in_a_loop)
        else:
            made.meta.events.register("before-call.dynamodb", wire.before_call)
        return made


class Moved(Place):
    """A table in memory, and a clock that the test moves.

    Attributes:
        clock: the service's, and that of every client without a clock of its own.
        memory: the engine.
    """

    def __init__(self, kind: Kind, loop: Loop) -> None:
        super().__init__(kind, loop)
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=self.clock)
        self.table = LockTable("locks", client=self.memory.client, clocks=self.clock)

    def client(
        self, *, wire: Wire | None = None, lease: float = 60, clocks: Clocks | None = None, **options: Any
    ) -> LockClient:
        """A lock client; it sees the moved time at its next poll, and polls at least once in half a lease."""
        dynamodb = _on_the_wire(self.memory, wire)
        if self.kind == "tasks":
            dynamodb = _awaited(dynamodb)
        clocks = clocks if clocks is not None else self.clock
        return self._made("locks", dynamodb, {"lease": lease, "clocks": clocks, **options})

    def keeps_its_promises(self) -> None:
        counts_are_kept(self.memory.items(), self.clock.read().wall_ms)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @contextmanager
    def time_flies(self, times: float = 20) -> Iterator[None]:
        """Within the block, time passes so many times as fast."""
        over = threading.Event()

        def fly() -> None:
            while not over.wait(_TICK_S):
                self.clock.advance(_TICK_S * times)

        flying = threading.Thread(target=fly, daemon=True)
        flying.start()
        try:
            yield
        finally:
            over.set()
            flying.join()


def _on_the_wire(memory: MemoryDynamoDB, wire: Wire | None) -> Any:
    """The DynamoDB in memory behind a wire."""

    def call(operation: str, parameters: Mapping[str, Any]) -> Any:
        sent = Sent(operation.title().replace("_", ""), parameters)
        if wire is not None:
            wire.pass_through(sent)
        try:
            return getattr(memory, operation)(**parameters)
        finally:
            if wire is not None:
                wire.answer(sent)

    return Sending(memory, call)


def _awaited(dynamodb: Any) -> Any:
    """The same with aiobotocore's interface; a test may hold a call back."""

    async def call(operation: str, parameters: Mapping[str, Any]) -> Any:
        return await asyncio.wrap_future(meanwhile(lambda: getattr(dynamodb, operation)(**parameters)))

    return Sending(dynamodb, call)


def some_entity() -> str:
    return f"entity-{uuid.uuid4().hex}"


# The requests of a client, recognised by the text of their expressions.


def is_renewal(sent: Sent) -> bool:
    """Whether it renews a holder's lease."""
    return str(sent.parameters.get("UpdateExpression")).startswith("SET #me.leaseUntilMs")


def is_release(sent: Sent) -> bool:
    """Whether it releases a lock."""
    return str(sent.parameters.get("UpdateExpression")).startswith("SET held = held - :one")


def is_grant(sent: Sent) -> bool:
    """Whether it would make its sender a holder."""
    return "#my_token = " in str(sent.parameters)


def is_ticket(sent: Sent) -> bool:
    """Whether it takes a ticket."""
    return "ticketAtMs = :now" in str(sent.parameters)


def is_row(sent: Sent) -> bool:
    """Whether it puts a queue row."""
    return sent.operation == "PutItem"


def is_leave(sent: Sent) -> bool:
    """Whether it leaves the queue."""
    return sent.operation == "TransactWriteItems" and not is_grant(sent)


def is_poll(sent: Sent) -> bool:
    """Whether it reads the queue."""
    return sent.operation == "Query"


def is_time(sent: Sent) -> bool:
    """Whether it asks for the table's time."""
    return sent.operation == "GetItem"
