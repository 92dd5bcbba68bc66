"""A task that was cancelled before the end of its unit's block commits nothing, whenever that was."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from kit.awaited import Awaited
from kit.opcodes import AtOpcode
from kit.units import in_memory, loaded

from ticketlock import UnitFinished, aio
from ticketlock.units import UnitTable
from ticketlock.units._for_tasks import _unit

KEY = {"id": "a"}
SET = "SET balance = :n"
TIME_OUT_S = 0.1

Work = Callable[[aio.Units, UnitTable], Coroutine[Any, Any, None]]
Runs = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]


def is_committed_by(work: Work, raised: type[BaseException] | None = None) -> bool:
    """Whether what a task has written in its unit is there afterwards.

    Args:
        raised: what its loop must raise; None: it may be cancelled.
    """
    memory = in_memory()

    async def main() -> None:
        async with aio.Units("units", client=Awaited(memory)) as units:
            await work(units, await units.table("accounts"))

    with suppress(asyncio.CancelledError) if raised is None else pytest.raises(raised):
        asyncio.run(main())
    return [loaded(item)["balance"] for item in memory.items("accounts")] == [1]


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def outlast_the_time_out() -> None:
    """Without an await."""
    loop = asyncio.get_running_loop()
    over_s = loop.time() + TIME_OUT_S
    while loop.time() <= over_s:
        pass


async def in_time(work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(TIME_OUT_S):
        await work


async def waited_for(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.wait_for(work, TIME_OUT_S)


async def in_a_group(work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work)


@dataclass(frozen=True)
class Cancelled:
    """What cancels a task after the last await of its block.

    Attributes:
        by: what the block does then.
        within: what runs the task, from the outside in; the handler of SIGTERM cancels the task around it.
        raised: by the loop.
        end: what would commit.
    """

    by: Callable[[], object]
    within: tuple[Runs, ...] = ()
    raised: type[BaseException] = asyncio.CancelledError
    end: str = "block"

    async def work(self, units: aio.Units, accounts: UnitTable) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

        async def write(unit: aio.Unit) -> None:
            await unit.update(accounts, KEY, SET, {":n": 1})
            self.by()
            if self.end == "commit":
                await unit.commit()

        async def write_in_a_block() -> None:
            async with units.begin() as unit:
                await write(unit)

        running = units.transactional()(write)() if self.end == "decorator" else write_in_a_block()
        for runs in reversed(self.within):
            running = runs(running)
        await running


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


ENDS = ("block", "commit", "decorator")
TWO_GROUPS = (in_a_group, in_a_group)
CANCELLED = {
    **{f"before the end of the {end}": Cancelled(cancel_this_task, end=end) for end in ENDS},
    "by a signal": Cancelled(terminate),
    "by a signal, in a group": Cancelled(terminate, (in_a_group,)),
    "by a signal, in two groups": Cancelled(terminate, TWO_GROUPS),
    "by Ctrl-C": Cancelled(lambda: signal.raise_signal(signal.SIGINT), raised=KeyboardInterrupt),
}
TOO_LATE = {
    "by a time-out": Cancelled(outlast_the_time_out, (in_time,), TimeoutError),
    "by wait_for": Cancelled(outlast_the_time_out, (waited_for,), TimeoutError),
    "by a time-out around groups": Cancelled(outlast_the_time_out, (in_time, *TWO_GROUPS), TimeoutError),
    "by wait_for around groups": Cancelled(outlast_the_time_out, (waited_for, *TWO_GROUPS), TimeoutError),
}


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Also if a shell has started this process in the background, which would ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("cancelled", [*CANCELLED.values(), *TOO_LATE.values()], ids=[*CANCELLED, *TOO_LATE])
def test_a_task_that_is_cancelled_after_the_last_await_of_its_block_rolls_back(cancelled: Cancelled) -> None:
    assert not is_committed_by(cancelled.work, cancelled.raised)


def test_a_task_whose_sibling_has_failed_in_the_block_rolls_back() -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        may_fail = asyncio.Event()

        async def write() -> None:
            async with units.begin() as unit:
                await unit.update(accounts, KEY, SET, {":n": 1})
                may_fail.set()

        async def fail() -> None:
            await may_fail.wait()
            raise ValueError

        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(write())

    assert not is_committed_by(work, ExceptionGroup)


def test_a_commit_before_which_the_task_was_cancelled_ends_the_unit() -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        async with units.begin() as unit:
            await unit.update(accounts, KEY, SET, {":n": 1})
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as time_out:
                    time_out.reschedule(asyncio.get_running_loop().time())
                    await unit.commit()

    assert not is_committed_by(work, UnitFinished)


def committed_at_each_opcode() -> list[bool]:
    """For each opcode of the end of a block: whether its unit is committed although the task was cancelled there."""
    committed: list[bool] = []
    while True:
        at = AtOpcode(
            len(committed) + 1, cancel_this_task, ["units/_for_tasks/_unit.py", "wire/_for_tasks/_to_the_end.py"]
        )

        async def work(units: aio.Units, accounts: UnitTable, at: AtOpcode = at) -> None:
            async with units.begin() as unit:
                await unit.update(accounts, KEY, SET, {":n": 1})
                at.__enter__()

        try:
            is_committed = is_committed_by(work)
        finally:
            at.__exit__()
        if at.passed <= len(committed):
            return committed
        committed.append(is_committed)


def test_a_cancellation_at_any_opcode_of_the_end_rolls_back_until_the_commit_begins() -> None:
    committed = committed_at_each_opcode()
    # None before the commit has begun, all afterwards.
    assert committed == sorted(committed)
    assert {False, True} == set(committed)


# Broken units.


@pytest.fixture
def gives_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: aio.Unit) -> None:
        return

    monkeypatch.setattr(aio.Unit, "_give_way", at_once)


@pytest.mark.usefixtures("gives_no_way")
@pytest.mark.parametrize("end", ENDS)
def test_a_unit_of_tasks_that_commits_without_giving_way_to_a_cancellation_is_caught(end: str) -> None:
    assert is_committed_by(Cancelled(cancel_this_task, end=end).work, asyncio.CancelledError)


@pytest.mark.usefixtures("gives_no_way")
def test_a_unit_of_tasks_that_gives_no_way_at_any_opcode_of_the_end_is_caught() -> None:
    assert False not in committed_at_each_opcode()


@pytest.mark.parametrize("cancelled", TOO_LATE.values(), ids=TOO_LATE)
def test_a_unit_of_tasks_that_gives_way_for_one_turn_only_is_caught(
    cancelled: Cancelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_unit, "_TURNS", 1)
    assert is_committed_by(cancelled.work, TimeoutError)
