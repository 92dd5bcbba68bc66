"""Python clients and executions on one lock: they wait for each other, in one queue."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2e.cloud import Cloud

from ticketlock import Lease, LockClient

pytestmark = pytest.mark.shows("mixed queue")

# From the moment when the holder may release: measured from outside, so with the network and the emulator's own time.
_SOON_S = 0.5


@pytest.fixture
def locks(cloud: Cloud) -> Iterator[LockClient]:
    with LockClient(cloud.outputs["TableName"], client=cloud.dynamodb, step_functions=cloud.step_functions) as client:
        yield client


def test_a_clients_release_lets_a_parked_execution_run_at_once(
    cloud: Cloud, locks: LockClient, entity: str, measured: Callable[[str, float], None]
) -> None:
    lease = locks.acquire(entity)
    arn = cloud.sleep(entity, 0)
    cloud.wait_until_queued(entity, arn)
    cloud.wait_until_parked(arn)
    lease.release()
    released_ms = cloud.now_ms()
    ended = cloud.ended(arn)
    gap_s = (ended.output["startedMs"] - released_ms) / 1_000
    measured("from a client's release to the work of a parked execution", gap_s)
    assert gap_s < _SOON_S


def test_an_executions_release_lets_a_client_that_waits_run_at_once(
    cloud: Cloud, locks: LockClient, entity: str, measured: Callable[[str, float], None]
) -> None:
    arn = cloud.sleep(entity, 3)
    cloud.wait_until_held(entity, arn)
    with locks.acquire(entity) as lease:
        held_ms = cloud.now_ms()
        assert lease.is_held()
    gap_s = (held_ms - cloud.ended(arn).output["endedMs"]) / 1_000
    measured("from the end of an execution's work to the lock in a client", gap_s)
    assert 0 <= gap_s < _SOON_S


def test_a_client_and_executions_are_served_in_the_order_of_their_tickets(
    cloud: Cloud, locks: LockClient, entity: str
) -> None:
    first = locks.acquire(entity)
    before = cloud.sleep(entity, 0)
    cloud.wait_until_queued(entity, before)
    waits = threading.Event()

    def wait_for_it() -> Lease:
        return locks.acquire(entity, owner="the client", on_wait=lambda _: waits.set())

    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(wait_for_it)
        assert waits.wait(10)
        after = cloud.sleep(entity, 0)
        cloud.wait_until_queued(entity, before, "the client", after)
        first.release()
        lease = client.result(30)
        # The next execution has to wait for this one.
        assert cloud.described(after)["status"] == "RUNNING"
        lease.release()
    tokens = [cloud.ended(arn).output["lock"]["fencingToken"] for arn in (before, after)]
    assert tokens[0] < lease.fencing_token < tokens[1]


def test_a_client_that_gives_up_lets_the_execution_behind_it_run(cloud: Cloud, locks: LockClient, entity: str) -> None:
    holder = cloud.sleep(entity, 2)
    cloud.wait_until_held(entity, holder)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        locks.acquire(entity, record_wait=0.3)
    assert time.monotonic() - began < 2
    assert cloud.ended(cloud.sleep(entity, 0)).status == "SUCCEEDED"
