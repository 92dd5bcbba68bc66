"""An exception of a signal handler anywhere in the client, or a handler that closes it, leaves no lock and no row.

Celery's soft time limit and ``signal.alarm`` raise wherever the main thread is. Each test raises at one opcode of the
client's own code after the other: every 53rd, or so. A step of 1 runs all of them.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
from kit.opcodes import AtOpcode
from kit.places import meanwhile, outcome, until

from ticketlock import Lease, LeaseGroup, LockClient, LockName, LockTable, TicketLockError
from ticketlock.client._waiters import waiters_of_this_process
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


def interrupt(_: object) -> None:
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


Work = Callable[[], object]
Begin = Callable[[Scene], Work]


def close(scene: Scene) -> Work:
    for each in ENTITIES:
        scene.locks.acquire(each)
    return scene.locks.close


def give_up(scene: Scene) -> Work:
    scene.others.acquire("b")
    return lambda: scene.locks.try_acquire("b") or scene.locks.acquire("b", record_wait=0.001)


def wait(scene: Scene) -> Work:
    scene.theirs = scene.others.acquire("a")
    return lambda: scene.locks.acquire("a")


ACQUIRES: dict[str, Begin] = {"acquire": lambda scene: lambda: scene.locks.acquire("a"), "wait": wait}
LEAVES: dict[str, Begin] = {
    "release": lambda scene: scene.locks.acquire("a").release,
    "release all": lambda scene: scene.locks.acquire_all(ENTITIES).release,
    "leave": lambda scene: partial(scene.locks.acquire("a").__enter__().__exit__, None, None, None),
    "leave all": lambda scene: partial(scene.locks.acquire_all(ENTITIES).__enter__().__exit__, None, None, None),
}
WORKS: dict[str, Begin] = {
    **ACQUIRES,
    "give up": give_up,
    "acquire all": lambda scene: lambda: scene.locks.acquire_all(ENTITIES),
    "renew": lambda scene: scene.locks.acquire("a").renew,
    **{name: begin for name, begin in LEAVES.items() if name != "leave all"},
    "close": close,
}
MANY = pytest.mark.verify("thousands of opcodes, each in a client of its own; make test runs some of them")


@pytest.fixture(params=[pytest.param(53, marks=MANY), 211], ids=["more opcodes", "some opcodes"])
def step(request: pytest.FixtureRequest) -> int:
    step: int = request.param
    return step


@pytest.fixture(autouse=True)
def no_wait_is_remembered() -> Iterator[None]:
    """Otherwise a release would wake a wait that has ended, instead of the next waiter."""
    waiting = waiters_of_this_process()._waiting
    before = {each for waits in waiting.values() for each in waits}
    yield
    gc.collect()
    assert before >= {each for waits in waiting.values() for each in waits}


def scenes(begin: Begin, do: Callable[[Scene], Any], step: int) -> Iterator[Scene]:
    """Runs the work again and again, each time with the given act at a later opcode."""
    number = 1 + step // 2
    while True:
        scene = Scene()
        work = begin(scene)
        was_raised = False
        with suppress(TicketLockError), AtOpcode(number, partial(do, scene)) as at:
            try:
                work()
            except Interrupt:
                was_raised = True
        if at.passed < number:
            break
        if do is interrupt and not was_raised and at.where.endswith("<genexpr>"):
            # Python ignores what is raised in a generator whose rest nobody asks for.
            number += 1
            continue
        try:
            yield scene
        except BaseException as error:
            error.add_note(f"opcode {number}")
            raise
        number += step
    scene.locks.close()
    assert at.passed > 300


@pytest.mark.parametrize("what", ["raises an exception", "closes the client"])
@pytest.mark.parametrize("work", WORKS)
def test_a_signal_handler_that_raises_or_closes_the_client_anywhere_leaves_it_usable_and_its_end_frees_all(
    work: str, what: str, step: int
) -> None:
    do = interrupt if what == "raises an exception" else (lambda scene: scene.locks.close())
    for scene in scenes(WORKS[work], do, step):
        if do is interrupt and work != "close":
            scene.lives_on()
        scene.ends()


@pytest.mark.parametrize("work", ACQUIRES)
def test_an_acquisition_in_which_an_exception_is_raised_gives_back_what_it_took_at_once(work: str, step: int) -> None:
    for scene in scenes(ACQUIRES[work], interrupt, step):
        if scene.theirs is not None:
            scene.theirs.release()
        assert scene.is_free()
        scene.locks.close()


UNGUARDED = 6
"""The first opcodes of ``__exit__``, which only begin to guard it."""
AT_THE_BEGINNING = range(UNGUARDED, 400, 2)
"""Every second opcode, until a release has certainly changed the state of its lease."""


def renewed_on(begin: Begin) -> Iterator[str]:
    """Interrupts releases at one opcode each; yields where one has left a lease that is renewed."""
    for number in AT_THE_BEGINNING:
        scene = Scene()
        work = begin(scene)
        with suppress(Interrupt), AtOpcode(number, partial(interrupt, scene)) as at:
            work()
        if any(lease._is_watched_on() for lease in scene.locks._heartbeat._leases):
            yield f"opcode {number}, in {at.where}"
        scene.locks.close()
        assert scene.is_free()


@pytest.mark.parametrize("work", LEAVES)
def test_a_lease_in_whose_release_an_exception_is_raised_is_renewed_no_more(work: str) -> None:
    assert list(renewed_on(LEAVES[work])) == []


@pytest.mark.parametrize("work", LEAVES)
def test_a_release_that_does_not_mark_its_lease_when_it_is_interrupted_is_caught(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (Lease, LeaseGroup):
        monkeypatch.setattr(each, "_mark_interrupted", lambda *_: None)
    assert next(renewed_on(LEAVES[work]), None) is not None


def test_an_inner_block_in_whose_end_an_exception_is_raised_leaves_the_lock_to_the_outer_one() -> None:
    for number in AT_THE_BEGINNING:
        scene = Scene()
        stack = ExitStack()
        lease = stack.enter_context(scene.locks.acquire("a"))
        again = scene.locks.acquire("a", reentrant=True)
        assert again is lease
        with suppress(Interrupt), AtOpcode(number, partial(interrupt, scene)) as at:
            again.__exit__(None, None, None)
        assert lease.is_held(), f"opcode {number}, in {at.where}"
        lease.release()
        assert scene.is_free(), f"opcode {number}, in {at.where}"
        scene.locks.close()


def test_an_exception_during_a_reentrant_acquisition_keeps_the_outer_hold(step: int) -> None:
    stack = ExitStack()

    def begin(scene: Scene) -> Work:
        stack.enter_context(scene.locks.acquire("a"))
        return lambda: scene.locks.acquire("a", reentrant=True)

    for scene in scenes(begin, interrupt, step):
        stack.close()
        assert scene.is_free()
        scene.locks.close()
