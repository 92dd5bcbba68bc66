"""An exception of a signal handler anywhere in the client, or a handler that closes it, leaves no lock and no row.

Celery's soft time limit and ``signal.alarm`` raise wherever the main thread is. Each test raises at one opcode of the
client's own code after the other: every 29th, or so. A step of 1 runs all of them.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kit.opcodes import AtOpcode
from kit.places import meanwhile, outcome, until

from ticketlock import Lease, LeaseGroup, LockClient, LockName, LockTable, TicketLockError
from ticketlock.client._waiters import lines_of_this_process
from ticketlock.testing import ManualClock, MemoryDynamoDB

pytestmark = [
    pytest.mark.shows("signal handlers"),
    # Python reports and ignores an exception that is raised while a generator is destroyed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(1_200),
]

LEASE_S = 60
ENTITIES = ("a", "b", "c")


class Interrupt(BaseException):
    """What a signal handler raises."""


def interrupt() -> None:
    raise Interrupt


class Scene:
    """A client, and another's; both in memory, and in a time that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=self.clock)
        self.locks = LockClient("locks", client=self.memory.client, clocks=self.clock, lease=LEASE_S, sleep=self._sleep)
        self.others = LockClient("locks", client=self.memory.client, clocks=self.clock, heartbeat=False)
        self.theirs: Lease | None = None

    def _sleep(self, seconds: float) -> None:
        """The holder releases the lock that is waited for in between."""
        self.clock.advance(seconds)
        if self.theirs is not None:
            theirs, self.theirs = self.theirs, None
            # On another thread: an exception raised here would be raised in the waiting client.
            outcome(meanwhile(theirs.release))

    def is_free(self) -> bool:
        table = LockTable("locks", client=self.memory.client, clocks=self.clock)
        states = [table.inspect(LockName(each)) for each in (*ENTITIES, "next")]
        return not any(state.rows or (state.item and (state.item.holders or state.item.held)) for state in states)

    def lives_on(self) -> None:
        """Another thread acquires a lock, and it is renewed."""
        lease = outcome(meanwhile(lambda: self.locks.acquire("next")))
        self.clock.advance(0.6 * LEASE_S)
        with self.locks._heartbeat._changed:
            self.locks._heartbeat._changed.notify_all()
        until(lambda: lease.remaining_s > 0.9 * LEASE_S)

    def ends(self) -> None:
        if self.theirs is not None:
            self.theirs.release()
        self.locks.close()
        self.others.close()
        assert self.is_free()
        until(lambda: self.locks._heartbeat.threads == 0)


def acquire(scene: Scene) -> Callable[[], object]:
    return lambda: scene.locks.acquire("a")


def wait(scene: Scene) -> Callable[[], object]:
    scene.theirs = scene.others.acquire("a")
    return lambda: scene.locks.acquire("a")


def give_up(scene: Scene) -> Callable[[], object]:
    scene.others.acquire("b")
    return lambda: scene.locks.try_acquire("b") or scene.locks.acquire("b", record_wait=0.001)


def acquire_all(scene: Scene) -> Callable[[], object]:
    return lambda: scene.locks.acquire_all(ENTITIES)


def renew(scene: Scene) -> Callable[[], object]:
    return scene.locks.acquire("a").renew


def release(scene: Scene) -> Callable[[], object]:
    return scene.locks.acquire("a").release


def release_all(scene: Scene) -> Callable[[], object]:
    return scene.locks.acquire_all(ENTITIES).release


def leave(scene: Scene) -> Callable[[], object]:
    lease = scene.locks.acquire("a")
    return lambda: lease.__exit__(None, None, None)


def leave_all(scene: Scene) -> Callable[[], object]:
    group = scene.locks.acquire_all(ENTITIES)
    return lambda: group.__exit__(None, None, None)


def close(scene: Scene) -> Callable[[], object]:
    for each in ENTITIES:
        scene.locks.acquire(each)
    return scene.locks.close


MANY = pytest.mark.verify("thousands of opcodes, each in a client of its own; make test runs some of them")
WORKS = [acquire, wait, give_up, acquire_all, renew, release, release_all, leave, close]


@pytest.fixture(params=[pytest.param(29, marks=MANY), 211], ids=["more opcodes", "some opcodes"])
def step(request: pytest.FixtureRequest) -> int:
    step: int = request.param
    return step


@pytest.fixture(autouse=True)
def no_wait_is_remembered() -> Iterator[None]:
    """Otherwise a release would wake a wait that has ended, instead of the next waiter."""
    waiting = lines_of_this_process()._waiting
    before = {each for waits in waiting.values() for each in waits}
    yield
    gc.collect()
    assert before >= {each for waits in waiting.values() for each in waits}


def scenes(
    begin: Callable[[Scene], Callable[[], object]], do: Callable[[Scene], Any], step: int
) -> Iterator[tuple[int, Scene]]:
    """Runs the work again and again, each time with the given act at a later opcode; yields the opcode's number."""
    number = 1 + step // 2
    while True:
        scene = Scene()
        work = begin(scene)
        with suppress(Interrupt, TicketLockError), AtOpcode(number, lambda do=do, scene=scene: do(scene)) as at:  # type: ignore[misc]
            work()
        if at.passed < number:
            break
        yield number, scene
        number += step
    scene.locks.close()
    assert at.passed > 300


@pytest.mark.parametrize("begin", WORKS, ids=lambda each: each.__name__)
def test_an_exception_raised_anywhere_in_the_client_leaves_it_usable_and_its_end_frees_all(
    begin: Callable[[Scene], Callable[[], object]], step: int
) -> None:
    for number, scene in scenes(begin, lambda _: interrupt(), step):
        try:
            if begin is not close:
                scene.lives_on()
            scene.ends()
        except BaseException as error:
            error.add_note(f"opcode {number}")
            raise


@pytest.mark.parametrize("begin", [acquire, wait], ids=lambda each: each.__name__)
def test_an_acquisition_in_which_an_exception_is_raised_gives_back_what_it_took_at_once(
    begin: Callable[[Scene], Callable[[], object]], step: int
) -> None:
    for number, scene in scenes(begin, lambda _: interrupt(), step):
        if scene.theirs is not None:
            scene.theirs.release()
        assert scene.is_free(), f"opcode {number}"
        scene.locks.close()


# The interpreter runs handlers at the first opcode of `__exit__`; its next ones only begin to guard it.
UNGUARDED = 6
# The state of a lease changes before that one.
AT_THE_BEGINNING = range(UNGUARDED, 400, 2)

ENDS = pytest.mark.parametrize("begin", [release, release_all, leave, leave_all], ids=lambda each: each.__name__)


def renewed_on(begin: Callable[[Scene], Callable[[], object]]) -> Iterator[str]:
    """Interrupts releases at one opcode each; yields where one has left a lease that is renewed."""
    for number in AT_THE_BEGINNING:
        scene = Scene()
        work = begin(scene)
        with suppress(Interrupt), AtOpcode(number, interrupt) as at:
            work()
        if any(lease._is_watched_on() for lease in scene.locks._heartbeat._leases):
            yield f"opcode {number}, in {at.where}"
        scene.locks.close()
        assert scene.is_free()


@ENDS
def test_a_release_in_which_an_exception_is_raised_is_renewed_no_more(
    begin: Callable[[Scene], Callable[[], object]],
) -> None:
    assert list(renewed_on(begin)) == []


@ENDS
def test_a_release_that_does_not_mark_its_lease_when_it_is_interrupted_is_caught(
    begin: Callable[[Scene], Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (Lease, LeaseGroup):
        monkeypatch.setattr(each, "_mark_interrupted", lambda *_: None)
    assert next(renewed_on(begin), None) is not None


def test_an_inner_block_in_whose_end_an_exception_is_raised_leaves_the_lock_to_the_outer_one() -> None:
    for number in AT_THE_BEGINNING:
        scene = Scene()
        lease = scene.locks.acquire("a")
        again = scene.locks.acquire("a", reentrant=True)
        with suppress(Interrupt), AtOpcode(number, interrupt) as at:
            again.__exit__(None, None, None)
        assert lease.is_held(), f"opcode {number}, in {at.where}"
        lease.release()
        assert scene.is_free(), f"opcode {number}, in {at.where}"
        scene.locks.close()


def test_an_exception_during_a_reentrant_acquisition_keeps_the_outer_hold(step: int) -> None:
    outer: list[Lease] = []

    def begin(scene: Scene) -> Callable[[], object]:
        outer.append(scene.locks.acquire("a", reentrant=True))
        return lambda: scene.locks.acquire("a", reentrant=True)

    for number, scene in scenes(begin, lambda _: interrupt(), step):
        outer.pop().release()
        assert scene.is_free(), f"opcode {number}"
        scene.locks.close()


@pytest.mark.parametrize("begin", WORKS, ids=lambda each: each.__name__)
def test_a_signal_handler_may_close_the_client_wherever_the_thread_is(
    begin: Callable[[Scene], Callable[[], object]], step: int
) -> None:
    for number, scene in scenes(begin, lambda scene: scene.locks.close(), step):
        try:
            scene.ends()
        except BaseException as error:
            error.add_note(f"opcode {number}")
            raise
