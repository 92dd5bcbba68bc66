"""Several executions that hold one lock at once: readers together, and holders up to a limit."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.interpreter.harness import Machine, Work, until
from kit.interpreter.stage import Stage
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import Open, OpenUser

from ticketlock.locks._items import LockName, lock_key

pytestmark = [
    pytest.mark.shows("exclusion"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]

BOTH_WAYS = pytest.mark.parametrize("hand_over", list(HandOver))
ENTITY = "order-42"


@pytest.fixture
def works() -> Iterator[dict[str, Work]]:
    """Each runs until the test releases it."""
    running = {name: Work(seconds=60) for name in ("first", "second", "third", "fourth")}
    yield running
    for work in running.values():
        work.finish.set()


@pytest.fixture
def open_with(open_stage: Open, works: dict[str, Work]) -> Callable[..., Stage]:
    return lambda **more: open_stage(dict(works), **more)


def runs(work: Work) -> bool:
    return work.started.wait(20)


def wait_until_queued(stage: Stage, arn: str) -> None:
    until(lambda: arn in [row.owner for row in stage.lock(ENTITY).rows], 20, lambda: f"{arn} to queue: {stage.items()}")


@pytest.mark.always("the way that most executions take")
@BOTH_WAYS
def test_readers_run_together_a_writer_waits_for_all_and_a_later_reader_behind_it(
    open_with: Callable[..., Stage], works: dict[str, Work], hand_over: HandOver
) -> None:
    stage = open_with(hand_over=hand_over)
    first, second, third, fourth = works.values()
    readers = [stage.start(ENTITY, function=name, shared=True) for name in ("first", "second")]
    assert runs(first)
    assert runs(second)
    writer = stage.start(ENTITY, function="third")
    wait_until_queued(stage, writer)
    late = stage.start(ENTITY, function="fourth", shared=True)
    wait_until_queued(stage, late)
    first.finish.set()
    assert stage.machine.wait(readers[0]).status == "SUCCEEDED"
    assert not third.started.is_set()
    second.finish.set()
    assert runs(third)
    assert not fourth.started.is_set()
    third.finish.set()
    assert runs(fourth)
    fourth.finish.set()
    assert {stage.machine.wait(arn).status for arn in (*readers, writer, late)} == {"SUCCEEDED"}
    assert third.runs[0].started >= max(first.runs[0].ended, second.runs[0].ended)
    assert fourth.runs[0].started >= third.runs[0].ended
    assert stage.is_free(ENTITY)


@BOTH_WAYS
@pytest.mark.parametrize("asked", [{"permits": 2}, {}], ids=["by the input", "by the deployment"])
def test_as_many_run_at_once_as_there_are_permits_and_the_next_after_one_of_them(
    open_with: Callable[..., Stage], works: dict[str, Work], hand_over: HandOver, asked: Any
) -> None:
    stage = open_with(hand_over=hand_over, permits=1 if asked else 2)
    first, second, third, _ = works.values()
    running = [stage.start(ENTITY, function=name, **asked) for name in ("first", "second")]
    assert runs(first)
    assert runs(second)
    waiting = stage.start(ENTITY, function="third", **asked)
    wait_until_queued(stage, waiting)
    assert not third.started.is_set()
    second.finish.set()
    assert runs(third)
    assert not first.finish.is_set()
    first.finish.set()
    third.finish.set()
    assert {stage.machine.wait(arn).status for arn in (*running, waiting)} == {"SUCCEEDED"}
    assert third.runs[0].started >= second.runs[0].ended
    assert stage.is_free(ENTITY)


@BOTH_WAYS
def test_a_deployment_with_another_number_of_permits_lets_in_who_has_begun_before_it(
    open_with: Callable[..., Stage], works: dict[str, Work], hand_over: HandOver
) -> None:
    stage = open_with(hand_over=hand_over)
    first, second, third, _ = works.values()
    running = [stage.start(ENTITY, function="first")]
    assert runs(first)
    running.append(stage.start(ENTITY, function="second"))
    wait_until_queued(stage, running[1])
    stage.machine.deploy(lambda text: text.replace('"defaultPermits": 1', '"defaultPermits": 2'))
    running.append(stage.start(ENTITY, function="third"))
    assert runs(second)
    wait_until_queued(stage, running[2])
    assert not first.finish.is_set()
    assert not third.started.is_set()
    for work in (first, second, third):
        work.finish.set()
    assert {stage.machine.wait(arn).status for arn in running} == {"SUCCEEDED"}
    assert stage.is_free(ENTITY)


def test_readers_behind_a_writer_are_all_woken_when_it_is_done(
    open_with: Callable[..., Stage], works: dict[str, Work]
) -> None:
    stage = open_with(hand_over=HandOver.CALLBACK)
    first, second, third, fourth = works.values()
    writer = stage.start(ENTITY, function="first")
    assert runs(first)
    readers = []
    for name in ("second", "third", "fourth"):
        readers.append(stage.start(ENTITY, function=name, shared=True))
        stage.wait_until_parked(readers[-1])
    parked = [stage.machine.entered(arn)["WaitForWakeUp"] for arn in readers]
    first.finish.set()
    assert all(map(runs, (second, third, fourth)))
    # Woken: none of them has slept until a time-out, or parked again.
    assert [stage.machine.entered(arn)["WaitForWakeUp"] for arn in readers] == parked
    for work in (second, third, fourth):
        work.finish.set()
    assert {stage.machine.wait(arn).status for arn in (writer, *readers)} == {"SUCCEEDED"}
    assert stage.is_free(ENTITY)


def test_a_reader_that_waited_and_held_in_other_executions_is_a_reader_still(
    open_with: Callable[..., Stage], works: dict[str, Work]
) -> None:
    stage = open_with(polls_an_execution=2, beats_an_execution=2)
    first, second, third, _ = works.values()
    writer = stage.start(ENTITY, function="first")
    assert runs(first)
    readers = [stage.start(ENTITY, function=name, shared=True) for name in ("second", "third")]
    until(lambda: len(stage.continuations("wait-")) >= 2, 30, lambda: "two continuations")
    first.finish.set()
    assert runs(second)
    assert runs(third)
    until(lambda: len(stage.continuations("hold-")) >= 2, 60, lambda: "two continuations")
    second.finish.set()
    third.finish.set()
    assert {stage.machine.wait(arn).status for arn in (writer, *readers)} == {"SUCCEEDED"}
    assert stage.is_free(ENTITY)


def test_another_number_than_the_lock_has_fails_by_name_and_leaves_nothing_behind(
    open_with: Callable[..., Stage], works: dict[str, Work]
) -> None:
    stage = open_with()
    holder = stage.start(ENTITY, function="first", permits=2)
    assert runs(works["first"])
    for asked in ({"permits": 3}, {}, {"shared": True}):
        refused = stage.start(ENTITY, function="second", **asked)
        outcome = stage.machine.wait(refused)
        assert (outcome.status, outcome.error) == ("FAILED", "PermitsMismatch")
        assert stage.session(refused) is None
        assert (outcome.cause or "").startswith(f"the lock on '{ENTITY}' has 2 permits, not ")
    state = stage.lock(ENTITY)
    assert state.item is not None
    assert (state.rows, state.item.waiting, state.item.permits) == ((), 0, 2)
    assert [each.owner for each in state.item.holders] == [holder]
    works["first"].finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"


@pytest.mark.parametrize(
    ("hand_over", "polls"),
    [(HandOver.CALLBACK, 100), (HandOver.POLL, 100), (HandOver.POLL, 2)],
    ids=["woken", "polling", "in another execution"],
)
def test_a_number_that_changes_while_it_waits_fails_by_name_and_it_leaves_the_queue(
    open_with: Callable[..., Stage], works: dict[str, Work], hand_over: HandOver, polls: int
) -> None:
    """As when the lock item was deleted by hand and created again by users with a number of their own."""
    stage = open_with(hand_over=hand_over, polls_an_execution=polls)
    holder = stage.start(ENTITY, function="first")
    assert runs(works["first"])
    waiter = stage.start(ENTITY, function="second")
    wait_until_queued(stage, waiter)
    if polls == 2:
        until(lambda: stage.continuations("wait-"), 30, lambda: "a continuation")
    stage.client.update_item(
        TableName=stage.table_name,
        Key=lock_key(LockName(ENTITY)),
        UpdateExpression="SET #permits = :permits REMOVE permitsSinceMs",
        ExpressionAttributeNames={"#permits": "permits"},
        ExpressionAttributeValues={":permits": {"N": "2"}},
    )
    outcome = stage.machine.wait(waiter)
    assert (outcome.status, outcome.error) == ("FAILED", "PermitsMismatch")
    state = stage.lock(ENTITY)
    assert state.item is not None
    assert (state.rows, state.item.waiting) == ((), 0)
    assert [each.owner for each in state.item.holders] == [holder]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"permits": 0}, "permits"),
        ({"permits": "2"}, "permits"),
        ({"shared": 1}, "shared"),
        ({"shared": True, "permits": 2}, "permits"),
    ],
)
def test_a_bad_one_fails_by_name_and_writes_nothing(open_stage: Open, asked: Any, field: str) -> None:
    stage = open_stage()
    outcome = stage.run(ENTITY, **asked)
    assert (outcome.error, (outcome.cause or "").partition(" is ")[0]) == ("InvalidLockRequest", field)
    assert stage.items() == []


def test_a_stopped_reader_whose_work_is_closed_leaves_the_others_in_and_the_writer_out(
    open_with: Callable[..., Stage], works: dict[str, Work]
) -> None:
    stage = open_with(hand_over=HandOver.CALLBACK)
    sleep = {"Type": "Wait", "Seconds": 120, "End": True}
    children = stage.engine.machine("child", {"StartAt": "Sleep", "States": {"Sleep": sleep}})
    task = {"stateMachineArn": children.arn, "input": {}}
    stopped = stage.machine.start("stopped", {"entity": ENTITY, "task": task, "shared": True})
    children.wait_until_entered(child_of(stage, children), "Sleep")
    reader = stage.start(ENTITY, function="first", shared=True)
    assert runs(works["first"])
    writer = stage.start(ENTITY, function="second")
    stage.wait_until_parked(writer)
    stage.machine.stop(stopped)
    stage.clean_up(stopped)
    state = stage.lock(ENTITY)
    assert state.item is not None
    assert [each.owner for each in state.item.holders] == [reader]
    assert [row.owner for row in state.rows] == [writer]
    works["first"].finish.set()
    assert runs(works["second"])
    works["second"].finish.set()
    assert {stage.machine.wait(arn).status for arn in (reader, writer)} == {"SUCCEEDED"}
    assert stage.is_free(ENTITY)


def child_of(stage: Stage, children: Machine) -> str:
    found = until(
        lambda: stage.engine.client.list_executions(stateMachineArn=children.arn)["executions"], 10, lambda: "a child"
    )
    arn: str = found[0]["executionArn"]
    return arn


class TestFragments:
    def test_iterations_that_share_the_lock_hold_it_together(self, open_user: OpenUser) -> None:
        work = Work(seconds=60)
        user = open_user("readers", work)
        arn = user.start({"items": [{"shares": True}, {"shares": True}, {"shares": True}]})
        until(lambda: user.machine.entered(arn)["Work"] == 3, 20, lambda: str(user.machine.entered(arn)))
        item = user.stage.lock(ENTITY).item
        assert item is not None
        assert [holder.shared for holder in item.holders] == [True] * 3
        work.finish.set()
        assert user.machine.wait(arn).status == "SUCCEEDED"
        assert user.stage.is_free(ENTITY)

    def test_an_iteration_that_does_not_runs_alone(self, open_user: OpenUser) -> None:
        work = Work(seconds=0.5)
        user = open_user("readers", work)
        outcome = user.run({"items": [{"shares": True}, {"shares": False}, {"shares": True}]}, 60)
        assert outcome.status == "SUCCEEDED"
        [writer] = [run for run in work.runs if not run.event["shares"]]
        readers = [run for run in work.runs if run is not writer]
        assert all(run.ended <= writer.started or writer.ended <= run.started for run in readers)
        assert user.stage.is_free(ENTITY)

    def test_as_many_iterations_hold_as_the_fragment_has_permits(self, open_user: OpenUser) -> None:
        work = Work(seconds=60)
        user = open_user("two_at_once", work)
        arn = user.start({"items": [{"line": line} for line in range(3)]})
        until(lambda: user.machine.entered(arn)["Work"] == 2, 20, lambda: str(user.machine.entered(arn)))
        user.wait_until_parked(arn)
        assert len(work.runs) == 0
        item = user.stage.lock(ENTITY).item
        assert item is not None
        assert (item.permits, item.held, item.waiting) == (2, 2, 1)
        work.finish.set()
        assert user.machine.wait(arn).output == ["done"] * 3
        assert user.stage.is_free(ENTITY)

    def test_another_number_than_the_lock_has_is_caught_by_name(self, open_user: OpenUser) -> None:
        user = open_user("two_at_once")
        assert user.stage.run(ENTITY, function="work").status == "SUCCEEDED"
        outcome = user.run({"items": [{"line": 1}]})
        assert (outcome.status, outcome.error) == ("FAILED", "PermitsMismatch")
        assert (outcome.cause or "").startswith(f"the lock on '{ENTITY}' has 1 permit, not 2")
        assert user.stage.is_free(ENTITY)
