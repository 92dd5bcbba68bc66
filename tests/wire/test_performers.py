"""Performers of calls and sleeps: any exception, raised anywhere, reaches the steps, whose clean-up runs."""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from threading import Thread, main_thread
from types import FrameType
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.awaited import Awaited
from kit.places import meanwhile, outcome
from ticketlock_local.engines.processes import wait_until
from wire.interrupts_at_once import DESCRIBE, Interrupt

from ticketlock import LockTable
from ticketlock.locks._for_tasks._lock_table import LockTable as AsyncLockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire import _actions, _performer
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._for_tasks import _performer as _async_performer
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.shows("signal handlers")

PERFORMERS = {module.__file__ for module in (_actions, _performer, _async_performer)}
REFUSED = ClientError({"Error": {"Code": "ConditionalCheckFailedException", "Message": ""}}, "PutMetricData")


class Steps:
    """Two sleeps, a call, and a clean-up that sends another call."""

    def __init__(self) -> None:
        self.begun = self.ended = False

    def __call__(self) -> Actions[str]:
        self.begun = True
        try:
            yield Sleep(0)
            yield DESCRIBE
            yield Sleep(0)
        finally:
            self.ended = True
            yield DESCRIBE
        return "done"


def interrupted(work: Callable[[], object], line: int) -> bool:
    """Run it, and interrupt it when the performers reach the given line; return whether they did.

    On a thread of its own: the interpreter treats an exception that a trace function raised at some lines as being
    handled for the rest of the thread, and makes it the context of every later one.
    """
    return outcome(meanwhile(partial(_interrupted, work, line)))


def _interrupted(work: Callable[[], object], line: int) -> bool:
    passed = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename not in PERFORMERS:
            return None
        if event == "line":
            passed += 1
            if passed == line:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    assert passed < line
    return False


def by_hand(coroutine: Any) -> Any:
    """Run a coroutine that only yields to its loop."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as end:
        return end.value


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(params=["threads", "tasks"])
def drive(
    memory: MemoryDynamoDB, clock: ManualClock, loop: asyncio.AbstractEventLoop, request: pytest.FixtureRequest
) -> Callable[..., object]:
    """Performs steps as one of the two performers does."""
    if request.param == "threads":
        return LockTable("locks", client=memory.client, sleep=lambda _: None).drive
    table = AsyncLockTable("locks", None, clock)

    async def open_it() -> None:
        table.open(Awaited(memory))

    def drive(steps: Actions[Any]) -> object:
        # On whichever thread: the table looks at the loop, and the performer is stepped by hand.
        asyncio._set_running_loop(loop)
        try:
            return by_hand(table.drive(steps))
        finally:
            asyncio._set_running_loop(None)

    loop.run_until_complete(open_it())
    return drive


def test_an_interrupt_at_any_line_of_a_performer_lets_the_steps_end(drive: Callable[..., object]) -> None:
    for line in itertools.count(1):
        steps = Steps()
        if not interrupted(partial(drive, steps()), line):
            break
        assert steps.ended == steps.begun, line
    assert line > 30


@pytest.mark.timeout(120)
def test_where_python_has_no_frame_left_to_tell_the_steps_of_it_the_error_is_raised(memory: MemoryDynamoDB) -> None:
    """Steps that cannot be told of an error were told of it for ever, at one depth of the recursion."""
    drive = LockTable("locks", client=memory.client, sleep=lambda _: None).drive
    found = Counter[str]()

    def below(frames: int) -> None:
        drive(Steps()()) if frames == 0 else below(frames - 1)

    # A thread of its own begins at the top of its stack.
    for frames in range(sys.getrecursionlimit() - 120, sys.getrecursionlimit()):
        try:
            outcome(meanwhile(partial(below, frames)))
        except RecursionError:
            found["refused"] += 1
        else:
            found["done"] += 1
    assert min(found["refused"], found["done"]) > 5


def test_an_interrupt_before_steps_that_end_without_a_call_is_not_lost(drive: Callable[..., object]) -> None:
    """As the release of an inner hold, which sends nothing."""

    def steps() -> Actions[None]:
        return
        yield Sleep(0)

    for line in itertools.count(1):
        if not interrupted(partial(drive, steps()), line):
            break
    assert line > 10


@pytest.mark.parametrize(
    "error", [REFUSED, StopIteration("enough"), ValueError("no")], ids=lambda each: type(each).__name__
)
def test_an_error_of_the_callers_own_sleep_is_raised_unchanged(memory: MemoryDynamoDB, error: Exception) -> None:
    """Even an error of the SDK, which the steps would otherwise take for an answer to their request."""

    def sleep(_: float) -> None:
        raise error

    def steps() -> Actions[None]:
        try:
            yield Sleep(1)
        except Exception:
            pytest.fail("the steps took it for an answer")

    table = LockTable("locks", client=memory.client, sleep=sleep)
    with pytest.raises(type(error)) as raised:
        table.drive(steps())
    assert raised.value is error


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run one of this folder's programs with the code that this process has imported."""
    command = [sys.executable, "-m", f"wire.{program}", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("how", ["opcodes", "signals"])
def test_an_interrupt_anywhere_while_requests_are_sent_at_once_waits_only_for_those_that_have_begun(how: str) -> None:
    ended = run("interrupts_at_once", how, "own")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("how", ["opcodes", "signals"])
def test_a_thread_pool_in_place_of_the_performers_threads_fails_under_the_same_interrupts(how: str) -> None:
    """An interrupt leaves its locks taken: it waits for ever, raises another error, or leaves requests under way."""
    ended = run("interrupts_at_once", how, "pool")
    assert ended.returncode != 0
    assert "threading.py" in ended.stderr or "len(requests.ended)" in ended.stderr


# Decision 17 names what nothing can guard: by the function in which later requests wait, those in which an exception
# leaves its lock taken, and at how many of the opcodes of a request, which refreshes its credentials several times.
IN_A_QUEUE = {"Condition.__enter__", "Condition.__exit__"}
IN_A_REFRESH = {"RefreshableCredentials._refresh"}
UNGUARDED = {
    "Queue.get": (IN_A_QUEUE, 12),
    "Queue.put": (IN_A_QUEUE, 12),
    "RefreshableCredentials._refresh": (IN_A_REFRESH, 30),
}


@pytest.mark.verify("a request for each of some hundred opcodes; make test interrupts requests that are sent at once")
@pytest.mark.parametrize("how", ["opcodes", "signals"])
def test_after_an_interrupt_anywhere_in_a_request_another_one_succeeds_but_for_the_documented_places(how: str) -> None:
    ended = run("interrupts_of_requests", how)
    assert ended.returncode == 0, ended.stderr
    found = Counter((where, waits_in) for where, waits_in in json.loads(ended.stdout))
    for waits_in, (unguarded, most) in UNGUARDED.items():
        interrupted_at = {where: count for (where, waits), count in found.items() if waits == waits_in}
        assert interrupted_at.keys() <= unguarded, found
        assert sum(interrupted_at.values()) <= most, found
        # Real signals seldom come there.
        if how == "opcodes":
            assert interrupted_at.keys() == unguarded, found
    assert {waits_in for _, waits_in in found} <= UNGUARDED.keys(), found


# A signal handler that raises in the middle of a request, as a job queue's soft time limit does.


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
def test_the_error_of_a_signal_handler_while_the_table_is_silent_is_raised_and_not_taken_for_a_network_error(
    raised: type[Exception],
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(make_client(endpoint_url=f"http://127.0.0.1:{server.getsockname()[1]}")) as client,
    ):
        Thread(target=sends_a_signal_in_place_of_a_reply, args=(server,), daemon=True).start()
        with pytest.raises(raised):
            LockTable("locks", client=client).now()
