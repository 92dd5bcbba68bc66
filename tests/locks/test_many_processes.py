"""Many operating-system processes on one lock, with real clocks and nothing in between.

Run as a program, this file is one of those processes: it is told what to do on its command line, says each result as a
line of JSON, and goes on when it is told a line.
"""

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kit.engines import IN_ONE_PROCESS, Engine, engine_named, engine_names

from ticketlock import Claim, Grant, LockName, LockTable, Position
from ticketlock.wire._clocks import SystemClocks
from ticketlock.wire._sdk import make_client

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PROCESSES = 6
ACQUISITIONS = 5
LEASE_MS = 60_000
SHORTEST_LEASE_MS = 8_000
"""Four times the read time-out of the default client."""
BETWEEN_LOOKS_S = 0.005

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True)
class Entry:
    """One stay inside, as the process that was there tells it. Times are of the machine's one monotonic clock.

    Attributes:
        was_alone: whether nobody's mark stood in the counter before, and its own until the end.
        found: the value of the counter that it found.
        fencing_token: of the grant.
        ticket: its number.
        queued_ns: when its row surely stood in the queue; None when it never queued.
        asked_ns: when the call that was granted began.
        granted_ns: when that call returned.
    """

    was_alone: bool
    found: int
    fencing_token: int = 0
    ticket: int | None = None
    queued_ns: int | None = None
    asked_ns: int = 0
    granted_ns: int = 0


@dataclass(frozen=True)
class Shared:
    """What every process of a test works on."""

    endpoint_url: str
    table_name: str
    lock: LockName

    def client(self) -> "DynamoDBClient":
        return make_client(region_name="us-east-1", endpoint_url=self.endpoint_url)

    def table(self) -> LockTable:
        return LockTable(self.table_name, client=self.client())


class Counter:
    """A plain item that is read, changed and written back, with the mark of whoever is at it."""

    def __init__(self, shared: Shared) -> None:
        self._client: Any = shared.client()
        self._table = {"TableName": shared.table_name}
        self._key = {"pk": {"S": f"counter of {shared.lock.entity}"}, "sk": {"S": "-"}}

    def read(self) -> tuple[int, str | None]:
        """Its value, and whose mark stands in it."""
        item = self._client.get_item(**self._table, Key=self._key, ConsistentRead=True).get("Item", {})
        return int(item.get("value", {"N": "0"})["N"]), item.get("inside", {"S": None})["S"]

    def write(self, value: int, inside: str | None) -> None:
        mark = {"inside": {"S": inside}} if inside else {}
        self._client.put_item(**self._table, Item={**self._key, "value": {"N": str(value)}, **mark})

    def add_one(self, between: Callable[[], None]) -> tuple[bool, int]:
        """Read, add, write, with ``between`` in the middle; whether nobody else was at it, and what it found."""
        me = uuid.uuid4().hex
        found, mark_before = self.read()
        self.write(found, inside=me)
        between()
        _, mark = self.read()
        self.write(found + 1, inside=None)
        return mark_before is None and mark == me, found


# The works of a process.


def count_under_the_lock(shared: Shared) -> None:
    table, counter = shared.table(), Counter(shared)
    meet_the_others()
    for _ in range(ACQUISITIONS):
        claim = Claim(shared.lock, uuid.uuid4().hex, LEASE_MS)
        grant, queued_ns, asked_ns, granted_ns = wait_in_line(table, claim)
        was_alone, found = counter.add_one(between=lambda: None)
        table.release(claim, grant)
        say(asdict(Entry(was_alone, found, grant.fencing_token, grant.ticket, queued_ns, asked_ns, granted_ns)))


def count_without_the_lock(shared: Shared) -> None:
    was_alone, found = Counter(shared).add_one(between=meet_the_others)
    say({"was_alone": was_alone, "found": found})


def hold_for_ever(shared: Shared) -> None:
    grant = shared.table().take_ticket(Claim(shared.lock, "the one that dies", SHORTEST_LEASE_MS), None)
    assert isinstance(grant, Grant)
    say({"fencing_token": grant.fencing_token, "deadline_ms": grant.deadline_ms})
    sys.stdin.read()


def wait_in_line(table: LockTable, claim: Claim) -> tuple[Grant, int | None, int, int]:
    """Acquire; the grant, and since when it queued, asked and held."""
    queued_ns: int | None = None
    asked_ns = time.monotonic_ns()
    found = table.take_ticket(claim, None)
    while isinstance(found, Position):
        if queued_ns is None or found.place_lost:
            queued_ns = time.monotonic_ns()
        time.sleep(BETWEEN_LOOKS_S)
        asked_ns = time.monotonic_ns()
        found = table.check_turn(claim, found.place, None)
    return found, queued_ns, asked_ns, time.monotonic_ns()


def meet_the_others() -> None:
    say("here")
    assert sys.stdin.readline() == "go on\n"


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# The test's side.


class Processes:
    """Processes that are ended with the test, however it goes."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._started: list[subprocess.Popen[str]] = []

    def start(self, work: Callable[[Shared], None]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"locks.{Path(__file__).stem}", work.__name__]
        where = [self.shared.endpoint_url, self.shared.table_name, self.shared.lock.entity]
        process = subprocess.Popen(
            [*command, *where],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def all_at_once(self, work: Callable[[Shared], None], entries_each: int) -> list[Entry]:
        """What the processes say after they have met."""
        processes = [self.start(work) for _ in range(PROCESSES)]
        for process in processes:
            assert heard(process) == "here"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go on\n")
            process.stdin.flush()
        return [Entry(**heard(process)) for process in processes for _ in range(entries_each)]

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def heard(process: subprocess.Popen[str]) -> Any:
    """The next line that a process says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "a process has failed; see what it printed"
    return json.loads(line)


@pytest.fixture
def processes(shared: Shared) -> Iterator[Processes]:
    running = Processes(shared)
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module", params=[name for name in engine_names() if name not in IN_ONE_PROCESS])
def shared_engine(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[Engine]:
    """An engine that several processes reach."""
    with engine_named(request.param, url_of) as named:
        yield named


@pytest.fixture
def shared(shared_engine: Engine) -> Shared:
    assert shared_engine.endpoint_url is not None
    return Shared(shared_engine.endpoint_url, shared_engine.table_name, LockName(f"entity-{uuid.uuid4().hex}"))


def overtakers(entries: list[Entry], of: Entry) -> list[Entry]:
    """Those that got in earlier with a later ticket."""
    return [
        other
        for other in entries
        if other.ticket is not None
        and of.ticket is not None
        and other.ticket > of.ticket
        and other.fencing_token < of.fencing_token
    ]


def test_many_processes_take_turns_in_the_order_of_their_tickets(processes: Processes, shared: Shared) -> None:
    entries = processes.all_at_once(count_under_the_lock, ACQUISITIONS)

    assert Counter(shared).read() == (PROCESSES * ACQUISITIONS, None)
    assert all(entry.was_alone for entry in entries)

    entries.sort(key=lambda entry: entry.found)
    assert [entry.found for entry in entries] == list(range(PROCESSES * ACQUISITIONS))
    tokens = [entry.fencing_token for entry in entries]
    assert tokens == sorted(set(tokens))

    queued = [(entry, entry.queued_ns) for entry in entries if entry.queued_ns is not None]
    assert len(queued) >= PROCESSES - 1
    for entry, stood_there_ns in queued:
        # Whoever asked when the row stood there saw it, and let it go first.
        assert not [other for other in overtakers(entries, entry) if other.asked_ns > stood_there_ns]
        # One grant at most was under way while the row was being written.
        assert len([other for other in overtakers(entries, entry) if other.granted_ns > stood_there_ns]) <= 1

    state = shared.table().inspect(shared.lock)
    assert state.rows == ()
    assert state.item is not None
    assert (state.item.held, state.item.holders) == (0, ())


def test_the_same_without_the_lock_loses_every_update_but_one(processes: Processes, shared: Shared) -> None:
    entries = processes.all_at_once(count_without_the_lock, 1)
    assert Counter(shared).read() == (1, None)
    assert not all(entry.was_alone for entry in entries)


def test_a_process_that_was_killed_while_it_held_is_replaced_after_its_lease(
    processes: Processes, shared: Shared
) -> None:
    victim = processes.start(hold_for_ever)
    held = heard(victim)
    table, claim = shared.table(), Claim(shared.lock, "the one that waits", SHORTEST_LEASE_MS)
    assert isinstance(table.take_ticket(claim, None), Position)

    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    grant, *_ = wait_in_line(table, claim)
    after_its_deadline_ms = SystemClocks().read().local_ms - held["deadline_ms"]

    assert grant.took_over == 1
    assert grant.fencing_token > held["fencing_token"]
    # Table time is known to 2 s at both ends, and a lease counts for 1 s more.
    assert 0 <= after_its_deadline_ms <= 10_000


if __name__ == "__main__":
    chosen, endpoint_url, table_name, entity = sys.argv[1:]
    works = {work.__name__: work for work in (count_under_the_lock, count_without_the_lock, hold_for_ever)}
    works[chosen](Shared(endpoint_url, table_name, LockName(entity)))
