"""Processes of tests, which can be killed and suspended: they print each result as a line of JSON, and continue when
they are sent a line.

Run as a program, this file is one with a lock client of its own; its command line says what to do.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from kit.lock_history import Recorder
from kit.recorded import RecordedLocks, process_name

from ticketlock import Lease, LockClient
from ticketlock.wire._sdk import make_client

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LEASE_S = 4.0
"""Four times the read time-out of these clients, so that the tests wait only briefly."""
INCREMENTS = 50
FEW = 5


@dataclass(frozen=True)
class Shared:
    """What all processes of a test work on.

    Attributes:
        history: the file in which processes record what they do; for a test without a history, the null device.
    """

    endpoint: str
    table: str
    entity: str
    history: str = os.devnull

    def client(self) -> "DynamoDBClient":
        config = Config(
            connect_timeout=1, read_timeout=LEASE_S / 4, retries={"total_max_attempts": 1, "mode": "standard"}
        )
        return make_client(region_name="us-east-1", endpoint_url=self.endpoint, config=config)

    def locks(self) -> LockClient:
        return LockClient(self.table, client=self.client(), lease=LEASE_S)

    def recorded(self, locks: LockClient) -> RecordedLocks:
        return RecordedLocks(locks, Recorder(Path(self.history), process_name(os.getpid())))


class Counter:
    """A plain item that is read, and written back with one more."""

    def __init__(self, shared: Shared) -> None:
        self.client: Any = shared.client()
        self.key = {"pk": {"S": f"counter of {shared.entity}"}, "sk": {"S": "-"}}
        self.table = {"TableName": shared.table}

    def read(self) -> int:
        found = self.client.get_item(**self.table, Key=self.key, ConsistentRead=True)
        return int(found.get("Item", {}).get("value", {"N": "0"})["N"])

    def write(self, value: int) -> None:
        self.client.put_item(**self.table, Item=self.item(value))

    def item(self, value: int) -> dict[str, Any]:
        return {**self.key, "value": {"N": f"{value}"}}

    def in_a_transaction(self, lease: Lease) -> Callable[[int], object]:
        """Writes it together with the check that the lock is held."""
        return lambda value: lease.transact_write([{"Put": {**self.table, "Item": self.item(value)}}])


# The work of a process.


def count_under_the_lock(shared: Shared) -> None:
    counter = Counter(shared)
    _count(shared, INCREMENTS, counter.read, lambda _: counter.write)


def count_under_faults(shared: Shared) -> None:
    """Read a counter, and write it back plus one in a transaction under the lock."""
    counter = Counter(shared)
    # A user's own client, which retries its reads, also those whose replies break off.
    counter.client = boto3.client("dynamodb", endpoint_url=shared.endpoint)
    _count(shared, FEW, lambda: _read(counter), counter.in_a_transaction)


def _count(
    shared: Shared, times: int, read: Callable[[], int], write: Callable[[Lease], Callable[[int], object]]
) -> None:
    # No lease of a test that takes turns must end, however busy the machine is.
    with LockClient(shared.table, client=shared.client(), lease=60, record_wait=600) as locks:
        recorded = shared.recorded(locks)
        meet_the_others()
        for _ in range(times):
            with recorded.acquire(shared.entity) as held:
                held.update(read(), write(held.lease))
    say("done")


def _read(counter: Counter) -> int:
    # The SDK retries replies that break off, but not those that it cannot decode.
    while True:
        with suppress(UnicodeDecodeError):
            return counter.read()


def count_without_the_lock(shared: Shared) -> None:
    counter = Counter(shared)
    first = counter.read() + 1
    meet_the_others()
    counter.write(first)
    for _ in range(INCREMENTS - 1):
        counter.write(counter.read() + 1)
    say("done")


def hold(shared: Shared) -> None:
    lease = shared.locks().acquire(shared.entity)
    say(lease.fencing_token)
    while sys.stdin.readline():
        say(lease.is_held())


def meet_the_others() -> None:
    say("here")
    assert sys.stdin.readline() == "go on\n"


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# The test's side.


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start one of the kit's files as a process; it gets its arguments as one text of JSON."""
    return subprocess.Popen(
        [sys.executable, "-m", f"kit.{Path(program).stem}", json.dumps(arguments)],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Programs:
    """Processes that are ended with the test, however it goes."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._started: list[subprocess.Popen[str]] = []

    def start(self, work: Callable[[Shared], None]) -> subprocess.Popen[str]:
        process = start(__file__, work.__module__, work.__name__, asdict(self._shared))
        self._started.append(process)
        return process

    def all_at_once(self, work: Callable[[Shared], None], processes: int) -> None:
        """Start them, wait until all are ready, and let them run to their ends."""
        started = [self.start(work) for _ in range(processes)]
        assert [heard(process) for process in started] == ["here"] * processes
        for process in started:
            tell(process, "go on")
        assert [heard(process) for process in started] == ["done"] * processes

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def said_by(process: "subprocess.Popen[str]") -> Iterator[Any]:
    """The lines that a process prints, to its end."""
    assert process.stdout is not None
    for line in iter(process.stdout.readline, ""):
        yield json.loads(line)


def heard(process: "subprocess.Popen[str]") -> Any:
    """The next line that a process prints."""
    for said in said_by(process):
        return said
    raise AssertionError("a process has failed; see what it printed")


if __name__ == "__main__":
    module, chosen, where = json.loads(sys.argv[1])
    getattr(import_module(module), chosen)(Shared(**where))
