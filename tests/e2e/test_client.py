"""Python clients and executions on one lock: they wait for each other, in one queue."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2e.cloud import Cloud
from kit.places import PATIENCE_S

from ticketlock import Lease, LockClient

pytestmark = pytest.mark.shows("mixed queue")

# Far less than half a lease, 30 s here, after which a parked execution looks without a wake-up.
_SOON_S = 10
# Less than the holder works for.
_RECORD_WAIT_S = 0.3


@pytest.fixture
def locks(cloud: Cloud) -> Iterator[LockClient]:
    with LockClient(cloud.outputs["TableName"], client=cloud.dynamodb, step_functions=cloud.step_functions) as client:
        yield client


def test_a_client_and_executions_are_served_in_the_order_of_their_tickets_one_soon_after_the_other(
    cloud: Cloud, locks: LockClient, entity: str, measured: Callable[[str, float], None]
) -> None:
    first = locks.acquire(entity)
    before = cloud.sleep(entity, 3)
    cloud.wait_until_queued(entity, before)
    cloud.wait_until_parked(before)
    waits = threading.Event()

    def wait_for_it() -> tuple[Lease, int]:
        return locks.acquire(entity, owner="the client", on_wait=lambda _: waits.set()), cloud.now_ms()

    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(wait_for_it)
        assert waits.wait(PATIENCE_S)
        after = cloud.sleep(entity, 0)
        cloud.wait_until_queued(entity, before, "the client", after)
        cloud.wait_until_parked(after)
        first.release()
        freed_ms = cloud.now_ms()
        lease, held_ms = client.result(PATIENCE_S)
        # The next execution has to wait for this one.
        assert cloud.described(after)["status"] == "RUNNING"
        lease.release()
    outputs = [cloud.ended(arn).output for arn in (before, after)]
    tokens = [output["lock"]["fencingToken"] for output in outputs]
    assert tokens[0] < lease.fencing_token < tokens[1]
    woken_s, granted_s = (outputs[0]["startedMs"] - freed_ms) / 1_000, (held_ms - outputs[0]["endedMs"]) / 1_000
    measured("from a client's release to the work of a parked execution", woken_s)
    measured("from the end of an execution's work to the lock in a client", granted_s)
    assert woken_s < _SOON_S
    assert 0 <= granted_s < _SOON_S


def test_a_client_that_gives_up_lets_the_execution_behind_it_run(cloud: Cloud, locks: LockClient, entity: str) -> None:
    holder = cloud.sleep(entity, 2)
    cloud.wait_until_held(entity, holder)
    with pytest.raises(TimeoutError):
        locks.acquire(entity, record_wait=_RECORD_WAIT_S)
    assert cloud.ended(cloud.sleep(entity, 0)).status == "SUCCEEDED"
