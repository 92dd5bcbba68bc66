"""A signal handler that raises in the middle of a request, as a job queue's soft time limit does."""

import signal
import socket
from collections.abc import Iterator
from types import FrameType

import pytest

from ticketlock import LockTable
from ticketlock.wire._sdk import make_client


class SoftTimeLimitExceeded(Exception):
    pass


@pytest.fixture
def raised(request: pytest.FixtureRequest) -> Iterator[type[Exception]]:
    def over(_number: int, _frame: FrameType | None) -> None:
        raise request.param

    before = signal.signal(signal.SIGALRM, over)
    yield request.param
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("raised", [SoftTimeLimitExceeded, TimeoutError, RuntimeError, ValueError], indirect=True)
def test_what_it_raises_while_the_table_is_silent_is_raised_and_not_taken_for_the_networks(
    raised: type[Exception],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        table = LockTable("locks", client=make_client(endpoint_url=f"http://127.0.0.1:{silent.getsockname()[1]}"))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(raised):
            table.now()
