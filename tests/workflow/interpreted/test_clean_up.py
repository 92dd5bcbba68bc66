"""The clean-up after an execution was stopped or failed: EventBridge's event, and its effects."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.interpreter.harness import Machine, Work, until
from kit.interpreter.stage import CHILD_ARN, HALF_LIFE_S, LEASE_S, Stage
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import Open

from ticketlock.locks._items import Holder, Row

pytestmark = pytest.mark.verify(
    "moto's interpreter waits in real time; `make test` asks the ways that most executions take"
)

CALLBACK = HandOver.CALLBACK
ENTITY = "order-42"


@pytest.fixture
def work() -> Iterator[Work]:
    """Runs until the test releases it."""
    running = Work(seconds=60)
    yield running
    running.finish.set()


@pytest.fixture
def after() -> Iterator[Work]:
    """The next execution's; it runs as long too, so that its grant can be inspected."""
    running = Work(seconds=60)
    yield running
    running.finish.set()


@pytest.fixture
def open_with(open_stage: Open, work: Work, after: Work) -> Callable[..., Stage]:
    return lambda **more: open_stage({"work": work, "next": after}, **more)


def hold(stage: Stage, work: Work) -> str:
    """An execution whose function runs."""
    holder = stage.start(ENTITY)
    assert work.started.wait(10)
    return holder


def hold_with_child(stage: Stage) -> tuple[str, Machine, str]:
    """An execution whose nested execution runs, the nested one's machine, and the nested one."""
    sleep = {"Type": "Wait", "Seconds": 120, "End": True}
    machine = stage.engine.machine("child", {"StartAt": "Sleep", "States": {"Sleep": sleep}})
    assert machine.arn == CHILD_ARN
    task = {"stateMachineArn": machine.arn, "input": {}}
    holder = stage.machine.start("holder", {"entity": ENTITY, "task": task})
    found = until(
        lambda: stage.engine.client.list_executions(stateMachineArn=machine.arn)["executions"], 10, lambda: "a child"
    )
    child: str = found[0]["executionArn"]
    machine.wait_until_entered(child, "Sleep")
    return holder, machine, child


def park(stage: Stage, **more: Any) -> str:
    waiter = stage.start(ENTITY, function="next", **more)
    stage.wait_until_parked(waiter)
    return waiter


def beating_on(stage: Stage) -> str:
    """The continuation of a hold, once its first heartbeat is parked there."""
    continuation: str = until(lambda: stage.continuations("hold-"), 30, lambda: "a continuation")[0]
    until(
        lambda: any(event["type"] == "TaskSubmitted" for event in stage.continues.history(continuation)),
        10,
        lambda: f"a heartbeat: {stage.continues.entered(continuation)}",
    )
    return continuation


def holder_of(stage: Stage, owner: str) -> Holder | None:
    item = stage.lock(ENTITY).item
    return item.holder(owner) if item is not None else None


def lease_of(stage: Stage, owner: str) -> int:
    """The end of a holder's lease, or of a waiter's row's."""
    held = holder_of(stage, owner)
    return held.lease_until_ms if held is not None else row_of(stage, owner).lease_until_ms


def row_of(stage: Stage, owner: str) -> Row:
    (row,) = [row for row in stage.lock(ENTITY).rows if row.owner == owner]
    return row


def slept_through(stage: Stage, waiter: str) -> int:
    """How many parkings of a waiter ended without a wake-up."""
    return sum(event["type"] == "TaskTimedOut" for event in stage.machine.history(waiter))


def wake_up_token(stage: Stage, waiter: str) -> str:
    found = stage.session(waiter)
    assert found is not None
    token: str = found["wakeUpToken"]["S"]
    return token


def granted_at(stage: Stage, owner: str, timeout: float) -> int:
    held: Holder = until(lambda: holder_of(stage, owner), timeout, lambda: f"{owner} to hold: {stage.lock(ENTITY)}")
    return held.since_ms


class TestAStoppedWaiter:
    @pytest.mark.parametrize("input_included", [True, False])
    def test_it_leaves_the_queue_at_once(
        self, open_with: Callable[..., Stage], work: Work, input_included: bool
    ) -> None:
        stage = open_with(hand_over=CALLBACK)
        hold(stage, work)
        stopped, behind = park(stage), park(stage)
        stage.machine.stop(stopped)
        stage.clean_up(stopped, input_included=input_included)
        assert [row.owner for row in stage.lock(ENTITY).rows] == [behind]

    def test_the_next_execution_runs_as_soon_as_it_has_left(
        self, open_with: Callable[..., Stage], work: Work, after: Work
    ) -> None:
        stage = open_with(hand_over=CALLBACK)
        holder = hold(stage, work)
        stopped, behind = park(stage), park(stage)
        stage.machine.stop(stopped)
        lease_until_ms = lease_of(stage, stopped)
        token = wake_up_token(stage, behind)
        work.finish.set()
        assert stage.machine.wait(holder).status == "SUCCEEDED"
        # Woken in place of the stopped one, it polls before its turn and parks again.
        until(lambda: wake_up_token(stage, behind) != token, LEASE_S, lambda: "another parking")
        before = slept_through(stage, behind)
        stage.clean_up(stopped)
        assert granted_at(stage, behind, LEASE_S) < lease_until_ms
        assert slept_through(stage, behind) == before
        after.finish.set()
        assert stage.machine.wait(behind).status == "SUCCEEDED"
        assert [run.event["lock"]["owner"] for run in after.runs] == [behind]
        assert stage.is_free(ENTITY)

    def test_a_polling_waiter_leaves_too(self, open_with: Callable[..., Stage], work: Work) -> None:
        stage = open_with(poll_s=4)
        hold(stage, work)
        stopped = stage.start(ENTITY, function="next")
        stage.machine.wait_until_entered(stopped, "WaitForTurn")
        stage.machine.stop(stopped)
        stage.clean_up(stopped)
        assert stage.lock(ENTITY).rows == ()


class TestAStoppedHolder:
    @pytest.mark.always("the way that most executions take")
    @pytest.mark.parametrize("input_included", [True, False])
    def test_its_nested_execution_is_stopped_and_the_next_one_runs_at_once(
        self, open_with: Callable[..., Stage], after: Work, input_included: bool
    ) -> None:
        stage = open_with(hand_over=CALLBACK)
        holder, children, child = hold_with_child(stage)
        waiter = park(stage)
        stage.machine.stop(holder)
        lease_until_ms, before = lease_of(stage, holder), slept_through(stage, waiter)
        stage.clean_up(holder, input_included=input_included)
        assert children.wait(child).status == "ABORTED"
        assert granted_at(stage, waiter, LEASE_S) < lease_until_ms
        assert slept_through(stage, waiter) == before
        after.finish.set()
        assert stage.machine.wait(waiter).status == "SUCCEEDED"
        assert stage.is_free(ENTITY)

    def test_its_function_continues_and_the_lock_is_not_granted_before_its_lease_ends(
        self, open_with: Callable[..., Stage], work: Work, after: Work
    ) -> None:
        stage = open_with(hand_over=CALLBACK)
        holder = hold(stage, work)
        waiter = park(stage)
        stage.machine.stop(holder)
        stage.clean_up(holder)
        lease_until_ms = lease_of(stage, holder)
        assert granted_at(stage, waiter, 2 * LEASE_S + HALF_LIFE_S) > lease_until_ms
        work.finish.set()
        after.finish.set()
        assert stage.machine.wait(waiter).status == "SUCCEEDED"
        assert stage.is_free(ENTITY)


class TestAcrossAContinuation:
    def test_the_wait_of_a_stopped_execution_ends_in_its_continuation(
        self, open_with: Callable[..., Stage], work: Work, after: Work
    ) -> None:
        stage = open_with(polls_an_execution=2, poll_s=3)
        holder = hold(stage, work)
        stopped = stage.start(ENTITY, function="next")
        (child,) = until(lambda: stage.continuations("wait-"), 30, lambda: "a continuation")
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
        self, open_with: Callable[..., Stage], work: Work, after: Work
    ) -> None:
        stage = open_with(beats_an_execution=2, hand_over=CALLBACK)
        holder = hold(stage, work)
        waiter = park(stage)
        # If a beat has just begun, the clean-up ends that one.
        continuation = beating_on(stage)
        stage.machine.stop(holder)
        stage.clean_up(holder)
        assert stage.continues.wait(continuation, HALF_LIFE_S).output["status"] == "ended"
        lease_until_ms = lease_of(stage, holder)
        assert granted_at(stage, waiter, 2 * LEASE_S + HALF_LIFE_S) > lease_until_ms
        after.finish.set()
        assert stage.machine.wait(waiter).status == "SUCCEEDED"
        assert stage.continuations("hold-")[0] == continuation
        assert stage.is_free(ENTITY)

    def test_a_nested_execution_whose_heartbeat_was_continued_is_stopped_and_the_lock_freed(
        self, open_with: Callable[..., Stage]
    ) -> None:
        stage = open_with(beats_an_execution=2, hand_over=CALLBACK)
        holder, children, child = hold_with_child(stage)
        continuation = beating_on(stage)
        stage.machine.stop(holder)
        stage.clean_up(holder)
        assert children.wait(child).status == "ABORTED"
        assert stage.is_free(ENTITY)
        assert stage.continues.wait(continuation, HALF_LIFE_S).output["status"] == "ended"
        assert stage.is_free(ENTITY)


class TestAnExecutionThatFailedByItself:
    def test_an_execution_that_gave_up_waiting_does_not_affect_the_others(
        self, open_with: Callable[..., Stage], work: Work
    ) -> None:
        stage = open_with(hand_over=CALLBACK)
        holder = hold(stage, work)
        gave_up = stage.start(ENTITY, function="next", recordWaitSeconds=0)
        assert stage.machine.wait(gave_up).error == "RecordWaitExceeded"
        behind = park(stage)
        stage.clean_up(gave_up)
        state = stage.lock(ENTITY)
        assert state.item is not None
        assert [row.owner for row in state.rows] == [behind]
        assert [each.owner for each in state.item.holders] == [holder]
