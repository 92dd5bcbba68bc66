"""Heartbeat and release: in every order of their requests the task ends and the lock is free."""

from collections.abc import Sequence
from typing import Any

import pytest
from kit.engines import ON_ONE_ENGINE
from kit.orders import every_order
from kit.step_functions import Callback
from kit.world import LEASE_MS, Process, Stepper, World, exclusion_held
from workflow.hold import Hold

from ticketlock import Grant, LockLost, Released

pytestmark = pytest.mark.shows("lost requests", "repeated steps")

Steps = list[Callback[Any]]
Made = tuple[Hold, Steps]


@pytest.fixture
def processes(world: World) -> list[Process]:
    return [world.process() for _ in range(7)]


HELD_MS = pytest.mark.parametrize("held_ms", [0, LEASE_MS // 2])
"""A beat with a fresh lease, which only stores its token; and one that renews."""


@HELD_MS
def test_in_every_order_of_requests_the_heartbeat_ends_and_the_lock_is_free(
    world: World, processes: list[Process], held_ms: int
) -> None:
    def start() -> tuple[Made, Steps]:
        hold = Hold(world, world.lock(), processes)
        world.advance(held_ms)
        steps: Steps = [hold.beat(1), hold.finish()]
        return (hold, steps), steps

    for order, (hold, steps) in every_order(world, start):
        answers = [answer for each in steps for answer in each.answers]
        assert steps[1].error is None, order
        assert answers, order
        assert {answer.error for answer in answers} == {None}, order
        assert hold.is_free(), order


def test_a_duplicate_release_in_every_order_is_one_release(world: World, processes: list[Process]) -> None:
    def start() -> tuple[Made, Steps]:
        hold = Hold(world, world.lock(), processes)
        hold.beat(0).run()
        steps: Steps = [hold.finish(), hold.finish()]
        return (hold, steps), steps

    for order, (hold, steps) in every_order(world, start):
        assert [each.error for each in steps] == [None, None], order
        assert hold.is_free(), order


@ON_ONE_ENGINE
class TestInEveryOrder:
    """Every function is invoked twice, every reply is late: the requests of three of them in every order."""

    @pytest.mark.verify("many orders, each of many requests")
    @HELD_MS
    def test_of_a_beat_its_copy_and_a_release(self, world: World, processes: list[Process], held_ms: int) -> None:
        def start() -> tuple[Made, Steps]:
            hold = Hold(world, world.lock(), processes)
            world.advance(held_ms)
            steps: Steps = [hold.beat(1), hold.beat(1), hold.finish()]
            return (hold, steps), steps

        for order, (hold, steps) in every_order(world, start):
            assert self.all_is_well(hold, steps), order

    @HELD_MS
    def test_of_a_beat_a_release_and_its_copy(self, world: World, processes: list[Process], held_ms: int) -> None:
        def start() -> tuple[Made, Steps]:
            hold = Hold(world, world.lock(), processes)
            world.advance(held_ms)
            steps: Steps = [hold.beat(1), hold.finish(), hold.finish()]
            return (hold, steps), steps

        for order, (hold, steps) in every_order(world, start):
            assert self.all_is_well(hold, steps), order

    @pytest.mark.verify("many orders, each of many requests")
    def test_of_a_beat_the_next_one_and_a_release(self, world: World, processes: list[Process]) -> None:
        """The first one's task has timed out: the second one's must be ended."""

        def start() -> tuple[Made, Steps]:
            hold = Hold(world, world.lock(), processes)
            hold.beat(0, "first").run()
            world.advance(LEASE_MS // 2)
            steps: Steps = [hold.beat(1, "second"), hold.beat(2, "third"), hold.finish()]
            return (hold, steps), steps

        for order, (hold, steps) in every_order(world, start):
            assert self.all_is_well(hold, steps), order
            assert "third" in {answer.task_token for each in steps for answer in each.answers}, order

    @pytest.mark.verify("many orders, each of many requests")
    def test_of_a_late_beat_a_redriven_one_and_a_release(self, world: World, processes: list[Process]) -> None:
        """A beat from before the redrive is still in progress: the later one's task must be ended."""

        def start() -> tuple[Made, Steps]:
            hold = Hold(world, world.lock(), processes)
            for beat_number in range(3):
                hold.beat(beat_number, f"before {beat_number}").run()
                world.advance(LEASE_MS // 2)
            steps: Steps = [hold.beat(2, "before 2"), hold.beat(10, "redriven"), hold.finish()]
            return (hold, steps), steps

        for order, (hold, steps) in every_order(world, start):
            assert self.all_is_well(hold, steps), order
            assert "redriven" in {answer.task_token for each in steps for answer in each.answers}, order

    @HELD_MS
    def test_of_a_beat_a_release_and_an_abandonment(self, world: World, processes: list[Process], held_ms: int) -> None:
        """A release is in progress when the execution is stopped: the work has ended, whatever the clean-up
        concludes.
        """

        def start() -> tuple[Made, Steps]:
            hold = Hold(world, world.lock(), processes)
            world.advance(held_ms)
            steps: Steps = [hold.beat(1), hold.finish(), hold.abandon()]
            return (hold, steps), steps

        for order, (hold, steps) in every_order(world, start):
            assert self.all_is_well(hold, steps), order

    @pytest.mark.parametrize("succeeded", [True, False])
    def test_of_a_beat_and_a_release_after_the_lease_which_fail_with_LockLost(
        self, world: World, processes: list[Process], bob: Process, succeeded: bool
    ) -> None:
        """Whether or not another owner has the lock by then."""

        def start() -> tuple[Made, Steps]:
            hold = Hold(world, world.lock(), processes)
            hold.beat(0, "first").run()
            world.advance(LEASE_MS + 4_000)
            if succeeded:
                bob.granted(bob.claim(hold.claim.lock))
            steps: Steps = [hold.beat(1, "second"), hold.finish()]
            return (hold, steps), steps

        for order, (hold, (beating, releasing)) in every_order(world, start):
            assert isinstance(releasing.error, LockLost), order
            assert "second" in {answer.task_token for each in (beating, releasing) for answer in each.answers}, order
            assert {answer.error for answer in releasing.answers} <= {"LockLost"}, order
            # A beat that finds the work finished leaves the answer to the release.
            assert all(answer.error in (None, "LockLost") for answer in beating.answers), order
            assert hold.is_free() != succeeded, order

    def test_of_a_beat_a_release_and_a_successor_after_the_lease(self, world: World, processes: list[Process]) -> None:
        *pool, successor = processes

        def start() -> tuple[tuple[Hold, Callback[Released], Stepper[Any]], list[Stepper[Any]]]:
            hold = Hold(world, world.lock(), pool)
            successor.sent.clear()
            hold.beat(0, "first").run()
            world.advance(LEASE_MS + 4_000)
            releasing = hold.finish()
            taking = successor.steps(successor.claim(hold.claim.lock), lambda me: me.take_ticket(None))
            return (hold, releasing, taking), [hold.beat(1, "second"), releasing, taking]

        for order, (hold, releasing, taking) in every_order(world, start):
            assert isinstance(releasing.error, LockLost), order
            assert isinstance(taking.result, Grant), order
            item = successor.table.inspect(hold.claim.lock).item
            assert item is not None
            assert [holder.fencing_token for holder in item.holders] == [taking.result.fencing_token], order
            assert exclusion_held([*pool, successor]), order

    def all_is_well(self, hold: Hold, steps: Sequence[Callback[Any]]) -> bool:
        """No step failed, the heartbeat was ended and not failed, the lock is free."""
        answers = [answer.error for each in steps for answer in each.answers]
        return all(each.error is None for each in steps) and set(answers) == {None} and hold.is_free()
