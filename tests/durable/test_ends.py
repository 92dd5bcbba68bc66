"""An execution is stopped, times out or is paused: as a waiter, while it works, or suspended with the lock."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext
from kit.places import until

from durable.executions import Executions, works
from ticketlock import LockLost

Make = Callable[..., Executions]
ENDS = pytest.mark.parametrize("status", ["STOPPED", "TIMED_OUT"])


def holds(world: Executions, event: Any, context: DurableContext) -> str:
    """One body, a worker's until it may end; who is called a sleeper then waits for an answer, with the lock."""
    with world.locks.hold(context, "order", while_suspended=timedelta(days=300)) as lease:
        lease.step(works(world, event, world.may_end if event == "worker" else None))
        if event == "sleeper":
            context.create_callback("answer").result()
            lease.step(works(world, "again"))
    return "over"


def ends(world: Executions, arn: str, status: str) -> None:
    (world.stop if status == "STOPPED" else world.time_out)(arn)


def two_wait(world: Executions) -> tuple[str, str]:
    first = world.start("first")
    world.wait_until_parked()
    second = world.start("second")
    world.wait_until_parked(2)
    return first, second


@ENDS
@pytest.mark.shows("liveness")
def test_the_event_of_a_waiters_end_frees_its_place(executions: Make, status: str) -> None:
    world = executions(holds)
    with world.client() as locks, locks.acquire("order"):
        first, second = two_wait(world)
        ends(world, first, status)
        told = world.ended(first, status)
        assert (told["CleanedUpPlaces"], told["execution"]) == (1, first)
        assert len(world.rows()) == 1
    assert world.result(second) == "over"
    assert world.order == ["second"]


@ENDS
def test_a_waiter_that_has_ended_without_an_event_is_passed_over_when_it_cannot_be_woken(
    executions: Make, status: str
) -> None:
    world = executions(holds)
    with world.client() as locks, locks.acquire("order"):
        first, second = two_wait(world)
        ends(world, first, status)
    # The release is refused by the first, and wakes the second, which has the lock once the first's row is over.
    assert world.local.refused
    kept_ms = world.rows()[0].lease_until_ms - world.local.read().wall_ms
    assert kept_ms < 70_000
    world.stop(second)


@ENDS
@pytest.mark.shows("liveness", "exclusion")
def test_the_event_of_a_suspended_holders_end_frees_the_lock(executions: Make, status: str) -> None:
    world = executions(holds)
    first = world.start("sleeper")
    world.wait_until_suspended()
    second = world.start("second")
    world.wait_until_parked()
    ends(world, first, status)
    assert world.ended(first, status)["CleanedUpHolds"] == 1
    assert world.result(second) == "over"
    assert (world.order, world.most) == (["sleeper", "second"], 1)


@ENDS
@pytest.mark.shows("exclusion")
def test_a_body_that_goes_on_after_the_end_of_its_execution_is_alone_until_it_is_over(
    executions: Make, status: str
) -> None:
    world = executions(holds)
    first = world.start("worker")
    until(lambda: world.order == ["worker"])
    ends(world, first, status)
    told = world.ended(first, status)
    assert told["CleanedUpHolds"] == 0
    assert world.holder() is not None

    def client_works() -> None:
        with world.client() as locks, locks.acquire("order", record_wait=60), world.inside("the client"):
            pass

    with ThreadPoolExecutor() as pool:
        # Its lease ends soon after its body.
        done = pool.submit(client_works)
        world.wait_until_parked()
        world.may_end.set()
        done.result()
    assert (world.order, world.most) == (["worker", "the client"], 1)


def test_an_invocation_that_is_cut_off_frees_its_lock_if_its_execution_has_failed(executions: Make) -> None:
    world = executions(holds)
    client: Any = world.runner._service_client
    checkpoint = client.checkpoint

    def fails_at_a_quota(*args: Any, **more: Any) -> Any:
        told = checkpoint(*args, **more)
        if not world.order:
            return told
        world.stop(first)
        # As Lambda tells it at a quota, and at a pause.
        return replace(told, checkpoint_token=None)

    client.checkpoint = fails_at_a_quota
    world.may_end.set()
    first = world.start("worker")
    until(lambda: world.order and world.holder() is None)
    assert world.local.asked == [first]


def test_an_end_of_which_no_event_came_is_found_by_the_first_in_line(executions: Make) -> None:
    world = executions(holds, skip_time=True, lease=60)
    first = world.start("sleeper")
    held = world.wait_until_suspended()
    world.stop(first)
    asked_ms = world.local.read().wall_ms
    assert world.result(world.start("second")) == "over"
    assert held.lease_until_ms - asked_ms > 299 * 24 * 3_600_000
    assert world.local.read().wall_ms - asked_ms < 3 * 3_600_000


def test_a_suspension_of_an_execution_that_goes_on_is_not_ended_by_the_first_in_line(executions: Make) -> None:
    # The runner's clock jumps over the wait of the second, also for the first.
    world = executions(holds, skip_time=True, lease=timedelta(days=1))
    first = world.start("sleeper")
    world.wait_until_suspended()
    second = world.start("second")
    until(lambda: len(world.local.asked) > 1)
    world.stop(second)
    world.runner.send_callback_success(world.runner.wait_for_callback(first, name="answer"), b'"yes"')
    assert world.result(first) == "over"
    assert world.order == ["sleeper", "again"]


def test_a_pause_of_a_waiter_keeps_its_place(executions: Make) -> None:
    world = executions(holds)
    with world.client() as locks, locks.acquire("order"):
        first, second = two_wait(world)
        world.runner.pause_execution(first)
    assert world.order == []
    world.runner.resume_execution(first)
    assert [world.result(each) for each in (first, second)] == ["over", "over"]
    assert (world.order, world.most) == (["first", "second"], 1)


@pytest.mark.parametrize("event", ["worker", "sleeper"])
def test_a_pause_of_a_holder_that_is_shorter_than_its_margin_keeps_the_lock(executions: Make, event: str) -> None:
    world = executions(holds, lease=30, while_suspended=60, resume_margin=60)
    first = world.start(event)
    if event == "worker":
        until(lambda: world.order == ["worker"])
    else:
        world.wait_until_suspended()
    with ThreadPoolExecutor() as pool:
        # It returns when no invocation runs.
        paused = pool.submit(world.runner.pause_execution, first)
        until(lambda: world.runner._store.load(first).is_paused)
        world.may_end.set()
        paused.result()
    second = world.start("second")
    world.wait_until_parked()
    assert world.holder() is not None
    if event == "sleeper":
        world.runner.send_callback_success(world.runner.wait_for_callback(first, name="answer"), b'"yes"')
    world.runner.resume_execution(first)
    assert [world.result(each) for each in (first, second)] == ["over", "over"]
    assert world.most == 1
    assert world.order[-1] == "second"


@pytest.mark.shows("exclusion")
def test_a_pause_of_a_holder_that_is_longer_is_a_recorded_loss(executions: Make) -> None:
    def handler(world: Executions, event: Any, context: DurableContext) -> str:
        try:
            with world.locks.hold(context, "order", while_suspended=1) as lease:
                lease.step(works(world, event))
                context.create_callback("answer").result()
                lease.step(works(world, "too late"))
        except LockLost:
            return "lost"
        return "held"

    world = executions(handler, lease=1, resume_margin=0)
    first = world.start("first")
    world.wait_until_suspended()
    world.runner.pause_execution(first)
    with world.client() as locks, locks.acquire("order", record_wait=60), world.inside("the client"):
        world.runner.send_callback_success(world.runner.wait_for_callback(first, name="answer"), b'"yes"')
        world.runner.resume_execution(first)
        assert world.result(first) == "lost"
    assert (world.order, world.most) == (["first", "the client"], 1)
