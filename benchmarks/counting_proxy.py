"""A proxy in a process of its own: counts and records requests, asks for capacity units, delays like a network.

    with counting_proxy("http://127.0.0.1:8000") as proxy:
        client = boto3.client("dynamodb", endpoint_url=proxy.url)
        proxy.delay(0.005)
        ...
        proxy.counts()

It reads commands from its standard input, answers each with one line, and ends with its standard input. aiohttp speaks
HTTP on both sides.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web
from programs import Program, program

WRITES = frozenset({"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"})
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})
# Headers of the connection, and those that depend on the body, which is changed here.
_NOT_FORWARDED = frozenset(
    {"connection", "content-length", "host", "keep-alive", "server", "transfer-encoding", "x-amz-crc32"}
)


class Passed(NamedTuple):
    """One request: when it came, in milliseconds since the epoch, and its operation."""

    at_ms: int
    operation: str


@dataclass(frozen=True)
class Counts:
    """The requests since the last counts, in the order in which they came, and the units that the engine reported."""

    passed: list[Passed]
    write_units: float | None
    read_units: float | None

    @property
    def requests(self) -> Counter[str]:
        """How many there were of each operation."""
        return Counter(each.operation for each in self.passed)


@dataclass(frozen=True)
class CountingProxy:
    """A running proxy."""

    url: str
    _program: Program

    def delay(self, seconds: float) -> None:
        """From now on each request waits so long before it is sent to the engine."""
        self._program.ask("delay", seconds)

    def lead_to(self, engine_url: str) -> None:
        """From now on its requests go on to this engine."""
        self._program.ask("lead-to", engine_url)

    def counts(self) -> Counts:
        """What was sent since the last call."""
        passed, write_units, read_units = json.loads(self._program.ask("counts"))
        return Counts([Passed(*each) for each in passed], write_units, read_units)


@contextmanager
def counting_proxy(engine_url: str = "") -> Iterator[CountingProxy]:
    """Start one in front of an engine, and end it; without an engine, ``lead_to`` sets it later."""
    with program("the proxy", [sys.executable, __file__, engine_url]) as proxy:
        yield CountingProxy(f"http://127.0.0.1:{int(proxy.line())}", proxy)


@dataclass
class _Passing:
    """The counts, and the delay of requests."""

    engine_url: str
    session: aiohttp.ClientSession
    delay_s: float = 0
    passed: list[tuple[int, str]] = field(default_factory=list)
    units: dict[bool, float | None] = field(default_factory=lambda: {True: None, False: None})

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, and its answer."""
        body, operation = await request.read(), request.headers.get("x-amz-target", "").rpartition(".")[2]
        self.passed.append((time.time_ns() // 1_000_000, operation))
        if operation in WRITES | _READS:
            # No engine here checks that the signature matches the body.
            body = json.dumps({**json.loads(body), "ReturnConsumedCapacity": "TOTAL"}).encode()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED}
        async with self.session.request(request.method, self.engine_url, headers=headers, data=body) as answer:
            content = await answer.read()
            headers = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_FORWARDED}
        if answer.status == 200 and operation in WRITES | _READS:
            reply = json.loads(content)
            self._note(operation in WRITES, reply.pop("ConsumedCapacity", None))
            # As for a client that has not asked for units.
            content = json.dumps(reply).encode()
        return web.Response(status=answer.status, headers=headers, body=content)

    def _note(self, writes: bool, consumed: Any) -> None:
        if consumed:
            units = sum(each["CapacityUnits"] for each in ([consumed] if isinstance(consumed, dict) else consumed))
            self.units[writes] = (self.units[writes] or 0) + units

    def command(self, name: str, value: str = "") -> object:
        """Perform a command."""
        if name == "delay":
            self.delay_s = float(value)
        elif name == "lead-to":
            self.engine_url = value
        else:
            counts = [self.passed, self.units[True], self.units[False]]
            self.passed, self.units = [], {True: None, False: None}
            return counts
        return "done"


async def _serve(engine_url: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        passing = _Passing(engine_url, session)
        runner = web.ServerRunner(web.Server(passing.handle), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(passing.command(*line.split())), flush=True)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
