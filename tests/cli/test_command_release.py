"""`ticketlock run` whose lock cannot be released when its program has ended."""

import pytest

from ticketlock import LockClient
from ticketlock.cli._run import _released
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB


def test_a_failed_release_is_reported_and_not_retried_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)
    with LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep) as locks:
        lease = locks.acquire("order-42")
        with memory.outage(Fault.REQUEST_LOST):
            assert _released(lease, "order-42")
            tries = len(memory.sent)
            locks.close()
    assert len(memory.sent) == tries
    assert capsys.readouterr().err.startswith("ticketlock: 'order-42' was not released; it is free when its lease ends")
