"""A task that was cancelled before the end of its unit's block commits nothing, whenever that was."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from kit.awaited import Awaited
from kit.opcodes import AtOpcode
from kit.units import KEYS, loaded, make_table

from ticketlock import UnitFinished, aio
from ticketlock.aio import _unit
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import UnitTable, create_units_table

KEY = {"id": "a"}
SET = "SET balance = :n"
End = Callable[[aio.Unit], Awaitable[None]]


class Scene:
    """A table, and what a task does with a unit that writes to it."""

    def __init__(self) -> None:
        self.memory = MemoryDynamoDB()
        create_units_table("units", client=self.memory.client)
        make_table(self.memory.client, "accounts", KEYS["accounts"])

    @property
    def is_committed(self) -> bool:
        return [loaded(item)["balance"] for item in self.memory.items("accounts")] == [1]

    def run(self, work: Callable[[aio.Units, UnitTable], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with aio.Units("units", client=Awaited(self.memory)) as units:
                await work(units, await units.table("accounts"))

        asyncio.run(main())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


ENDS = pytest.mark.parametrize("end", ["block", "commit", "decorator"])


def is_committed_though_cancelled(scene: Scene, end: str) -> bool:
    """Whether a unit is, whose task was cancelled after the last await of its block."""

    async def work(units: aio.Units, accounts: UnitTable) -> None:
        async def write(*, unit: aio.Unit) -> None:
            await unit.update(accounts, KEY, SET, {":n": 1})
            cancel_this_task()
            if end == "commit":
                await unit.commit()

        if end == "decorator":
            await units.transactional()(write)()
        else:
            async with units.begin() as unit:
                await write(unit=unit)

    with pytest.raises(asyncio.CancelledError):
        scene.run(work)
    return scene.is_committed


@ENDS
def test_a_cancellation_after_the_last_await_of_the_block_rolls_back(scene: Scene, end: str) -> None:
    assert not is_committed_though_cancelled(scene, end)


TIME_OUT_S = 0.1


async def in_time(work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(TIME_OUT_S):
        await work


async def in_a_group(work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work)


async def in_two_groups(work: Coroutine[Any, Any, None]) -> None:
    await in_a_group(in_a_group(work))


Runs = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]

TIME_OUTS = pytest.mark.parametrize(
    "runs",
    [
        in_time,
        lambda work: asyncio.wait_for(work, TIME_OUT_S),
        lambda work: in_time(in_two_groups(work)),
        lambda work: asyncio.wait_for(in_two_groups(work), TIME_OUT_S),
    ],
    ids=["timeout", "wait_for", "timeout around groups", "wait_for around groups"],
)


def is_committed_too_late(scene: Scene, runs: Runs) -> bool:
    """Whether a unit is, whose time-out was over at the end of its block."""

    async def work(units: aio.Units, accounts: UnitTable) -> None:
        loop = asyncio.get_running_loop()

        async def write() -> None:
            async with units.begin() as unit:
                await unit.update(accounts, KEY, SET, {":n": 1})
                # Longer than the time-out without an await.
                over_s = loop.time() + TIME_OUT_S
                while loop.time() <= over_s:
                    pass

        await runs(write())

    with pytest.raises(TimeoutError):
        scene.run(work)
    return scene.is_committed


@TIME_OUTS
def test_a_time_out_that_is_over_at_the_end_of_the_block_rolls_back(scene: Scene, runs: Runs) -> None:
    assert not is_committed_too_late(scene, runs)


@pytest.mark.parametrize(
    "runs", [lambda work: work, in_a_group, in_two_groups], ids=["a task", "a group", "two groups"]
)
def test_a_signal_in_the_block_whose_handler_cancels_the_task_rolls_back(scene: Scene, runs: Runs) -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        task = asyncio.current_task()
        assert task is not None

        async def write() -> None:
            async with units.begin() as unit:
                await unit.update(accounts, KEY, SET, {":n": 1})
                signal.raise_signal(signal.SIGTERM)

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await runs(write())

    with pytest.raises(asyncio.CancelledError):
        scene.run(work)
    assert not scene.is_committed


def test_a_task_whose_sibling_has_failed_in_the_block_rolls_back(scene: Scene) -> None:
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

    with pytest.raises(ExceptionGroup):
        scene.run(work)
    assert not scene.is_committed


def test_ctrl_c_after_the_last_await_of_the_block_rolls_back(scene: Scene) -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        async with units.begin() as unit:
            await unit.update(accounts, KEY, SET, {":n": 1})
            signal.raise_signal(signal.SIGINT)

    # A process that a shell has started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            scene.run(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not scene.is_committed


def test_a_commit_before_which_the_task_was_cancelled_ends_the_unit(scene: Scene) -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        async with units.begin() as unit:
            await unit.update(accounts, KEY, SET, {":n": 1})
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as time_out:
                    time_out.reschedule(asyncio.get_running_loop().time())
                    await unit.commit()

    with pytest.raises(UnitFinished, match="rolled back"):
        scene.run(work)
    assert not scene.is_committed


def committed_at_each_opcode() -> list[bool]:
    """Whether a unit is, whose task was cancelled at the first opcode of its block's end, the second one, and so on."""
    committed: list[bool] = []
    number = 0
    while True:
        number += 1
        scene, at = Scene(), AtOpcode(number, cancel_this_task, ["aio/_unit.py", "aio/_lock_table.py"])

        async def work(units: aio.Units, accounts: UnitTable, at: AtOpcode = at) -> None:
            async with units.begin() as unit:
                await unit.update(accounts, KEY, SET, {":n": 1})
                at.__enter__()

        try:
            with suppress(asyncio.CancelledError):
                scene.run(work)
        finally:
            at.__exit__()
        if at.passed < number:
            break
        committed.append(scene.is_committed)
    return committed


def test_a_cancellation_at_any_opcode_of_the_end_rolls_back_until_the_commit_begins() -> None:
    committed = committed_at_each_opcode()
    # None before the commit has begun, all afterwards.
    assert committed == sorted(committed)
    assert {False, True} == set(committed)


class TestABrokenUnitOfTasksIsCaught:
    @pytest.fixture
    def gives_no_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def at_once(_: aio.Unit) -> None:
            return

        monkeypatch.setattr(aio.Unit, "_give_way", at_once)

    @ENDS
    @pytest.mark.usefixtures("gives_no_way")
    def test_a_unit_of_tasks_that_commits_without_giving_way_to_a_cancellation_is_caught(
        self, scene: Scene, end: str
    ) -> None:
        assert is_committed_though_cancelled(scene, end)

    @pytest.mark.usefixtures("gives_no_way")
    def test_a_unit_of_tasks_that_gives_no_way_at_any_opcode_of_the_end_is_caught(self) -> None:
        assert False not in committed_at_each_opcode()

    @TIME_OUTS
    def test_a_unit_of_tasks_that_gives_way_for_one_turn_only_is_caught(
        self, scene: Scene, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_unit, "_TURNS", 1)
        assert is_committed_too_late(scene, runs)
