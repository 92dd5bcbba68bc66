"""The clean-up after an execution was stopped or failed: EventBridge's event, and its effects."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.interpreter.harness import PATIENCE_S, Work, until
from kit.interpreter.stage import HALF_LIFE_S, LEASE_S, Stage
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import ENTITY, Open

from ticketlock.locks._items import Holder

pytestmark = pytest.mark.verify(
    "moto's interpreter waits in real time; `make test` asks the ways that most executions take"
)

CALLBACK = HandOver.CALLBACK


@pytest.fixture
def open_with(open_stage: Open, work: Work, after: Work) -> Callable[..., Stage]:
    return lambda **more: open_stage({"work": work, "next": after}, **more)


def park(stage: Stage, **more: Any) -> str:
    waiter = stage.start(ENTITY, function="next", **more)
    stage.wait_until_parked(waiter)
    return waiter


def beating_on(stage: Stage) -> str:
    """The continuation of a hold, once its first heartbeat is parked there."""
    continuation: str = until(lambda: stage.continuations("hold-"), PATIENCE_S, lambda: "a continuation")[0]
    until(
        lambda: any(event["type"] == "TaskSubmitted" for event in stage.continues.history(continuation)),
        10,
        lambda: f"a heartbeat: {stage.continues.entered(continuation)}",
    )
    return continuation


def holder_of(stage: Stage, owner: str) -> Holder | None:
    item = stage.lock(ENTITY).item
    return item.holder(owner) if item is not None else None


def end_of_lease_ms(stage: Stage, owner: str) -> int:
    holder = holder_of(stage, owner)
    assert holder is not None
    return holder.lease_until_ms


def slept_through(stage: Stage, waiter: str) -> int:
    """How many parkings of a waiter ended without a wake-up."""
    return sum(event["type"] == "TaskTimedOut" for event in stage.machine.history(waiter))


def granted_at(stage: Stage, owner: str, timeout: float) -> int:
    held: Holder = until(lambda: holder_of(stage, owner), timeout, lambda: f"{owner} to hold: {stage.lock(ENTITY)}")
    return held.since_ms


@pytest.mark.parametrize(("hand_over", "input_included"), [(CALLBACK, True), (CALLBACK, False), (HandOver.POLL, True)])
def test_a_stopped_waiter_leaves_the_queue_at_once(
    open_with: Callable[..., Stage], hand_over: HandOver, input_included: bool
) -> None:
    stage = open_with(hand_over=hand_over)
    stage.hold(ENTITY)
    stopped, behind = (stage.start(ENTITY, function="next") for _ in range(2))
    for waiter in (stopped, behind):
        stage.machine.wait_until_entered(waiter, "WaitForTurn" if hand_over is HandOver.POLL else "WaitForWakeUp")
    stage.machine.stop(stopped)
    stage.clean_up(stopped, input_included=input_included)
    assert [row.owner for row in stage.lock(ENTITY).rows] == [behind]


@pytest.mark.always("the way that most executions take")
@pytest.mark.parametrize("input_included", [True, False])
def test_the_nested_execution_of_a_stopped_holder_is_stopped_and_the_next_one_runs_at_once(
    open_with: Callable[..., Stage], after: Work, input_included: bool
) -> None:
    stage = open_with(hand_over=CALLBACK)
    holder, children, child = stage.hold_with_child(ENTITY)
    waiter = park(stage)
    stage.machine.stop(holder)
    lease_until_ms, before = end_of_lease_ms(stage, holder), slept_through(stage, waiter)
    stage.clean_up(holder, input_included=input_included)
    assert children.wait(child).status == "ABORTED"
    assert granted_at(stage, waiter, LEASE_S) < lease_until_ms
    assert slept_through(stage, waiter) == before
    after.finish.set()
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
    assert stage.is_free(ENTITY)


def test_the_function_of_a_stopped_holder_continues_and_the_lock_is_not_granted_before_its_lease_ends(
    open_with: Callable[..., Stage], work: Work, after: Work
) -> None:
    stage = open_with(hand_over=CALLBACK)
    holder = stage.hold(ENTITY)
    waiter = park(stage)
    stage.machine.stop(holder)
    stage.clean_up(holder)
    lease_until_ms = end_of_lease_ms(stage, holder)
    assert granted_at(stage, waiter, 2 * LEASE_S + HALF_LIFE_S) > lease_until_ms
    work.finish.set()
    after.finish.set()
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
    assert stage.is_free(ENTITY)


def test_the_wait_of_a_stopped_execution_ends_in_its_continuation(
    open_with: Callable[..., Stage], work: Work, after: Work
) -> None:
    stage = open_with(polls_an_execution=2, poll_s=3)
    holder = stage.hold(ENTITY)
    stopped = stage.start(ENTITY, function="next")
    (child,) = until(lambda: stage.continuations("wait-"), PATIENCE_S, lambda: "a continuation")
    stage.continues.wait_until_entered(child, "WaitForTurn")
    stage.machine.stop(stopped)
    stage.clean_up(stopped)
    assert stage.continues.wait(child).status == "ABORTED"
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    stage.wait_until_free(ENTITY)
    assert after.runs == []
    assert not after.started.is_set()


def test_the_heartbeat_of_a_stopped_execution_ends_in_its_continuation(
    open_with: Callable[..., Stage], after: Work
) -> None:
    stage = open_with(beats_an_execution=2, hand_over=CALLBACK)
    holder = stage.hold(ENTITY)
    waiter = park(stage)
    # If a beat has just begun, the clean-up ends that one.
    continuation = beating_on(stage)
    stage.machine.stop(holder)
    stage.clean_up(holder)
    assert stage.continues.wait(continuation).output["status"] == "ended"
    lease_until_ms = end_of_lease_ms(stage, holder)
    assert granted_at(stage, waiter, 2 * LEASE_S + HALF_LIFE_S) > lease_until_ms
    after.finish.set()
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
    assert stage.continuations("hold-")[0] == continuation
    assert stage.is_free(ENTITY)


def test_a_nested_execution_whose_heartbeat_was_continued_is_stopped_and_the_lock_freed(
    open_with: Callable[..., Stage],
) -> None:
    stage = open_with(beats_an_execution=2, hand_over=CALLBACK)
    holder, children, child = stage.hold_with_child(ENTITY)
    continuation = beating_on(stage)
    stage.machine.stop(holder)
    stage.clean_up(holder)
    assert children.wait(child).status == "ABORTED"
    assert stage.is_free(ENTITY)
    assert stage.continues.wait(continuation).output["status"] == "ended"
    assert stage.is_free(ENTITY)
