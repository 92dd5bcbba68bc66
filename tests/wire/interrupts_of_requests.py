"""A program: interrupts requests that a client of boto3 sends by HTTP, at each opcode of what waits, or by signals.

    python -m wire.interrupts_of_requests opcodes|signals

After each interrupt another thread sends a request with the same client. The program prints, in JSON, each interrupt
after which a request waited for ever: the function that was interrupted, and the one in which the request waits. It
ends with an error if a request fails.
"""

import datetime
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType

import boto3
import botocore.credentials
import botocore.session
import urllib3
from botocore.config import Config
from kit.opcodes import OF_THREADS, AtOpcode
from kit.places import meanwhile
from memory_server import memory_server
from wire.interrupts_at_once import DESCRIBE, SIGNALS, Interrupt, interrupt

from ticketlock import LockTable, create_table
from ticketlock.wire._actions import Actions
from ticketlock.wire._sdk import CLIENT_SETTINGS, make_client

_URLLIB3 = Path(urllib3.__file__).parent
ROOMS: tuple[str | Path, ...] = (
    *OF_THREADS,
    *(str(_URLLIB3 / name) for name in ("_collections.py", "connectionpool.py", "poolmanager.py")),
    botocore.credentials.__file__,
)
REGION = "eu-central-1"
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
MOMENT_S = 0.1
"""Most requests are answered within it; those that are not are waited for together, at the end."""
MOST_S = 8
"""What has not ended by then waits for ever."""


def credentials() -> dict[str, str]:
    """Such that botocore refreshes before each request: they expire within ten minutes."""
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)
    return {"access_key": "test", "secret_key": "test", "token": "test", "expiry_time": soon.isoformat()}


@dataclass
class Clients:
    """One client after the other: another one when a request of the last one waits.

    Attributes:
        kept: all of them: urllib3 empties the pool of one that is dropped, and would wait for ever there.
    """

    url: str
    kept: list[LockTable] = field(default_factory=list)
    session: botocore.session.Session = field(default_factory=botocore.session.get_session)

    @cached_property
    def table(self) -> LockTable:
        expiring = botocore.credentials.RefreshableCredentials.create_from_metadata(credentials(), credentials, "test")
        vars(self.session)["_credentials"] = expiring
        client = boto3.Session(botocore_session=self.session, region_name=REGION).client(
            "dynamodb", endpoint_url=self.url, config=Config(**CLIENT_SETTINGS)
        )
        table = LockTable("locks", client=client)
        self.kept.append(table)
        # It opens a connection, which the next ones use.
        table.drive(one())
        return table

    def forget(self) -> None:
        del self.table


def one() -> Actions[None]:
    yield DESCRIBE


@dataclass(eq=False)
class Request:
    """A request on a thread of its own.

    Attributes:
        at: the opcode at which it is interrupted; None for none.
        after: the function in which an earlier one was.
    """

    table: LockTable
    at: AtOpcode | None = None
    after: str = ""
    thread: int = 0

    @cached_property
    def done(self) -> "Future[None]":
        return meanwhile(self._send)

    def _send(self) -> None:
        self.thread = threading.get_ident()
        if self.at is None:
            self.table.drive(one())
            return
        with suppress(Interrupt), self.at:
            self.table.drive(one())

    def has_ended(self, patience_s: float) -> bool:
        """Raises what it raised."""
        try:
            self.done.result(timeout=patience_s)
        except TimeoutError:
            return False
        return True

    def told(self) -> tuple[str, str]:
        """Where the interrupt came, and where it waits."""
        where = self.after if self.at is None else self.at.where
        return where, waits_in(sys._current_frames()[self.thread])


def waits_in(frame: FrameType | None) -> str:
    """The innermost function, but for those of the locks themselves."""
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    return "?" if frame is None else frame.f_code.co_qualname


@dataclass
class Search:
    """What it has found."""

    clients: Clients
    late: list[Request] = field(default_factory=list)
    found: list[tuple[str, str]] = field(default_factory=list)

    def ends_soon(self, request: Request) -> bool:
        """If it does not, look for it at the end, and go on with another client."""
        if request.has_ended(MOMENT_S):
            return True
        self.late.append(request)
        self.clients.forget()
        return False

    def at_opcodes(self) -> None:
        for number in itertools.count(1):
            at = AtOpcode(number, interrupt, ROOMS)
            if self.ends_soon(Request(self.clients.table, at)):
                self.ends_soon(Request(self.clients.table, after=at.where))
                if at.passed < number:
                    break
        assert number > 400

    def by_signals(self) -> None:
        where, interrupted, is_armed = "", 0, False

        def handle(_: int, frame: FrameType | None) -> None:
            nonlocal where, is_armed
            if where:
                # The interrupted request has not ended since.
                self.found.append((where, waits_in(frame)))
                self.clients.forget()
                raise Interrupt
            if is_armed and frame is not None:
                is_armed, where = False, frame.f_code.co_qualname
                signal.setitimer(signal.ITIMER_REAL, MOST_S)
                raise Interrupt

        # Python only reports an exception of a handler that interrupts the callback of a weak reference.
        sys.unraisablehook = lambda _: None
        signal.signal(signal.SIGALRM, handle)
        chance = random.Random(1)
        while interrupted < SIGNALS:
            table = self.clients.table
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, 0.003))
                table.drive(one())
                is_armed = False
            except Interrupt:
                interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            if where:
                self.ends_soon(Request(self.clients.table, after=where))
                where = ""

    def waited(self) -> list[tuple[str, str]]:
        """Where a request that has not ended was interrupted, and where it waits."""
        last = time.monotonic() + MOST_S
        ended = [request for request in self.late if request.has_ended(max(0, last - time.monotonic()))]
        # Interrupted requests that were only slow: the next one is still to be sent.
        again = [Request(each.table, after=each.at.where) for each in ended if each.at is not None]
        left = [each for each in self.late if each not in ended]
        left += [each for each in again if not each.has_ended(MOST_S)]
        return self.found + [request.told() for request in left]


def main(how: str) -> None:
    with memory_server() as url:
        create_table("locks", client=make_client(endpoint_url=url, **KEYS, region_name=REGION))
        search = Search(Clients(url))
        {"opcodes": search.at_opcodes, "signals": search.by_signals}[how]()
        sys.stdout.write(json.dumps(search.waited()))
        sys.stdout.flush()
        # At the exit urllib3 empties all pools. The server ends with this process.
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
