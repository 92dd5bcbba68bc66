"""Histories: they are recorded as they happen, and each long run ends with a verdict, also if it fails."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kit.crowd import Crowd
from kit.engines import create_table
from kit.kept import Kept
from kit.lines import ENTITY, line
from kit.lock_history import Event, Recorder, Seen, history, operations, outcome
from kit.lock_model import judge
from kit.places import meanwhile, until
from kit.places import outcome as outcome_of
from kit.programs import LEASE_S, Programs, Shared
from kit.recorded import RecordedLocks
from kit.works import TWO, several
from ticketlock_local.demo.checks import Verdict
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import EmulatorError
from tools.long_history import judged

from ticketlock import LockClient, LockLost, LockTable, RecordWaitExceeded
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("tests no part of the product")

THREADS, OPERATIONS = 8, 50
HOLD_S, RECORD_WAIT_S = 60, 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def client(memory: MemoryDynamoDB, clock: ManualClock) -> LockClient:
    return LockClient("locks", client=memory.client, clocks=clock, lease=HOLD_S, heartbeat=False)


def told(path: Path) -> list[Event]:
    return Seen(path).events()


def test_many_writers_of_one_file_lose_nothing(path: Path) -> None:
    def work(name: str) -> None:
        recorder = Recorder(path, name)
        for _ in range(OPERATIONS):
            recorder.begin("acquire", ENTITY).tell("applied", ticket=1, fencing_token=2)

    threads = [threading.Thread(target=work, args=(f"{number}",)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorded = operations(told(path))
    assert [len(each) for each in recorded] == [2] * THREADS * OPERATIONS
    assert {outcome(each) for each in recorded} == {"applied"}


def test_a_client_records_its_grant_its_hold_and_its_release(
    path: Path, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    with client(memory, clock) as locks, RecordedLocks(locks, Recorder(path, "0")).acquire(ENTITY) as lease:
        token = lease.lease.fencing_token
    (acquisition,) = history(told(path)).acquisitions
    assert (acquisition.outcome, acquisition.fencing_token, acquisition.is_over) == ("applied", token, True)
    assert acquisition.ticket is not None
    assert acquisition.granted_ms is not None
    assert acquisition.held_until_ms is not None
    assert acquisition.invoked_ms <= acquisition.granted_ms <= acquisition.held_until_ms
    left = {ENTITY: LockTable("locks", client=memory.client, clocks=clock).inspect(client(memory, clock).lock(ENTITY))}
    assert judge(history(told(path)), left).passed


def test_a_client_whose_lease_has_ended_records_no_hold_and_a_release_that_was_refused(
    path: Path, memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    with client(memory, clock) as locks:
        lease = RecordedLocks(locks, Recorder(path, "0")).acquire(ENTITY)
        clock.advance(HOLD_S + 1)
        assert not lease.check()
        with pytest.raises(LockLost):
            lease.release()
    (acquisition,) = history(told(path)).acquisitions
    assert acquisition.held_until_ms is None
    releases = [each for each in operations(told(path)) if each[0].action == "release"]
    assert [outcome(each) for each in releases] == ["refused"]


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_wait_records_since_when_its_row_is_in_the_queue_and_without_the_lock_its_polls(
    path: Path, memory: MemoryDynamoDB, clock: ManualClock, is_granted: bool
) -> None:
    with client(memory, clock) as locks, client(memory, clock) as others:
        held, recorder = others.acquire(ENTITY), Recorder(path, "0")
        waits = meanwhile(lambda: RecordedLocks(locks, recorder).acquire(ENTITY, record_wait=RECORD_WAIT_S).release())
        until(lambda: {"stands", "polls"} <= {event.kind for event in told(path)}, "a row and a poll")
        if is_granted:
            held.release()
            outcome_of(waits)
        else:
            clock.advance(RECORD_WAIT_S + 1)
            with pytest.raises(RecordWaitExceeded):
                outcome_of(waits)
    first, second, *_ = [event.kind for event in told(path)]
    assert (first, second) == ("invoked", "stands")
    (acquisition,) = history(told(path)).acquisitions
    (standing,) = acquisition.standings
    assert acquisition.ticket is not None
    if is_granted:
        assert acquisition.invoked_ms <= standing.from_ms <= acquisition.polled_ms
    else:
        assert {event.kind for event in told(path)[2:]} == {"polls", "refused"}


@pytest.fixture
def ends_badly(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """A history that is not checked at the end of the test."""
    kept = Kept(request.node.name)
    yield kept
    kept.remove()


def test_a_history_that_is_broken_fails_and_says_where_it_is_kept(
    request: pytest.FixtureRequest, ends_badly: Kept
) -> None:
    ends_badly.write(line(2))
    with pytest.raises(AssertionError, match="no lost update: the counter of order-42 is 1"):
        ends_badly.check({}, {ENTITY: 1})
    where = f"build/histories/{request.node.name}"
    assert ends_badly.draw("why") == f"{where}.jsonl and, drawn, {where}.svg"
    assert ends_badly.picture.exists()


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_run_that_fails_says_so_in_a_line_and_is_judged_and_drawn(ends_badly: Kept, is_recorded: bool) -> None:
    def fails() -> Verdict:
        if is_recorded:
            ends_badly.write(replace(each, local_ms=2_500) if each.kind == "holds" else each for each in line(2))
        raise EmulatorError("it did not start:\n  no such file")

    first, *failures = judged(ends_badly, fails).failures
    assert first == "the run failed: EmulatorError: it did not start: no such file"
    assert [failure.partition(":")[0] for failure in failures] == (["exclusion"] if is_recorded else [])
    ends_badly.draw(first)
    assert ends_badly.picture.exists()


def test_the_end_of_a_crowd_comes_after_the_leases_of_its_crashed_processes(emulator: Emulator, kept: Kept) -> None:
    table = create_table(make_client(endpoint_url=emulator.endpoint))
    shared = Shared(emulator.endpoint, table, ENTITY, str(kept.path))
    crowd = Crowd(shared, Programs(shared), kept)
    with LockClient(table, client=shared.client(), lease=LEASE_S, heartbeat=False) as locks:
        dies = RecordedLocks(locks, Recorder(Path(shared.history), "dies"))
        dies.acquire(several(ENTITY), permits=TWO)
        crowd.end()
        assert crowd.verdict().failures == ()
