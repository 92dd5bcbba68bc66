"""A signal handler that raises in the middle of a request, as a job queue's soft time limit does."""

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from threading import Thread, main_thread
from types import FrameType

import pytest
from ticketlock_local.engines.processes import wait_until

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
    signal.signal(signal.SIGALRM, before)


def waits_for_a_reply(thread: int) -> bool:
    return sys._current_frames()[thread].f_code is socket.SocketIO.readinto.__code__


def sends_a_signal_in_place_of_a_reply(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)
        identity = main_thread().ident
        assert identity is not None
        # Earlier, it would interrupt the construction of http.client's response, which then never closes its socket.
        assert wait_until(lambda: waits_for_a_reply(identity), timeout_s=5)
        signal.pthread_kill(identity, signal.SIGALRM)
        connection.recv(65_536)


@pytest.mark.parametrize("raised", [SoftTimeLimitExceeded, TimeoutError, RuntimeError, ValueError], indirect=True)
def test_its_error_while_the_table_is_silent_is_raised_and_not_taken_for_a_network_error(
    raised: type[Exception],
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(make_client(endpoint_url=f"http://127.0.0.1:{server.getsockname()[1]}")) as client,
    ):
        Thread(target=sends_a_signal_in_place_of_a_reply, args=(server,), daemon=True).start()
        with pytest.raises(raised):
            LockTable("locks", client=client).now()
