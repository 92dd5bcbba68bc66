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
def soon_over() -> Iterator[None]:
    def over(_number: int, _frame: FrameType | None) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("soon_over")
def test_what_it_raises_while_the_table_is_silent_is_raised_and_not_taken_for_the_networks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        table = LockTable("locks", client=make_client(endpoint_url=f"http://127.0.0.1:{silent.getsockname()[1]}"))
        with pytest.raises(SoftTimeLimitExceeded):
            table.now()
