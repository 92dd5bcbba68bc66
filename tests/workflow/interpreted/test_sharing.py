"""Several executions that hold one lock at once: readers together, and holders up to a limit."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.interpreter.harness import PATIENCE_S, Work, until
from kit.interpreter.stage import Stage
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import ENTITY, Open, OpenUser

from ticketlock import LockName
from ticketlock.locks._items import lock_key

pytestmark = [
    pytest.mark.shows("exclusion"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]

BOTH_WAYS = pytest.mark.parametrize("hand_over", list(HandOver))


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
    return work.started.wait(PATIENCE_S)


def wait_until_queued(stage: Stage, arn: str) -> None:
    until(
        lambda: arn in [row.owner for row in stage.lock(ENTITY).rows],
        PATIENCE_S,
        lambda: f"{arn} to queue: {stage.items()}",
    )


@pytest.mark.always("the way that most executions take")
@BOTH_WAYS
def test_readers_run_together_a_writer_waits_for_all_and_a_later_reader_behind_it(
    open_with: Callable[..., Stage], works: dict[str, Work], hand_over: HandOver
) -> None:
    stage = open_with(hand_over=hand_over)
    first, second, third, fourth = works.values()
    readers = [stage.hold(ENTITY, function=name, shared=True) for name in ("first", "second")]
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


def test_a_reader_that_waited_and_held_in_other_executions_is_a_reader_still(
    open_with: Callable[..., Stage], works: dict[str, Work]
) -> None:
    stage = open_with(polls_an_execution=2, beats_an_execution=2)
    first, second, third, _ = works.values()
    writer = stage.hold(ENTITY, function="first")
    readers = [stage.start(ENTITY, function=name, shared=True) for name in ("second", "third")]
    until(lambda: len(stage.continuations("wait-")) >= 2, PATIENCE_S, lambda: "two continuations")
    first.finish.set()
    assert runs(second)
    assert runs(third)
    until(lambda: len(stage.continuations("hold-")) >= 2, PATIENCE_S, lambda: "two continuations")
    second.finish.set()
    third.finish.set()
    assert {stage.machine.wait(arn).status for arn in (writer, *readers)} == {"SUCCEEDED"}
    assert stage.is_free(ENTITY)


def test_a_request_for_another_number_of_permits_than_the_lock_has_fails_by_name_and_leaves_nothing_behind(
    open_with: Callable[..., Stage], works: dict[str, Work]
) -> None:
    stage = open_with()
    holder = stage.hold(ENTITY, function="first", permits=2)
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
    ("hand_over", "continues"),
    [(HandOver.CALLBACK, False), (HandOver.POLL, False), (HandOver.POLL, True)],
    ids=["woken", "polling", "in another execution"],
)
def test_a_waiter_fails_by_name_and_leaves_the_queue_when_the_number_of_permits_changes(
    open_with: Callable[..., Stage], hand_over: HandOver, continues: bool
) -> None:
    """As when the lock item was deleted by hand and created again by users with a number of their own."""
    stage = open_with(hand_over=hand_over, **({"polls_an_execution": 2} if continues else {}))
    holder = stage.hold(ENTITY, function="first")
    waiter = stage.start(ENTITY, function="second")
    wait_until_queued(stage, waiter)
    if continues:
        until(lambda: stage.continuations("wait-"), PATIENCE_S, lambda: "a continuation")
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


# Fragments.


@pytest.mark.parametrize(
    ("name", "items", "permits", "holders", "waiting"),
    [
        ("readers", [{"shares": True}] * 3, 1, 3, 0),
        ("two_at_once", [{"line": line} for line in range(3)], 2, 2, 1),
    ],
)
def test_as_many_iterations_hold_together_as_share_or_as_the_fragment_has_permits(
    open_user: OpenUser, work: Work, name: str, items: list[Any], permits: int, holders: int, waiting: int
) -> None:
    user = open_user(name, work)
    arn = user.start({"items": items})
    until(lambda: user.machine.entered(arn)["Work"] == holders, PATIENCE_S, lambda: str(user.machine.entered(arn)))
    if waiting:
        user.wait_until_parked(arn)
    item = user.stage.lock(ENTITY).item
    assert item is not None
    assert (len(item.holders), item.waiting) == (holders, waiting)
    assert [holder.shared for holder in item.holders] == [name == "readers"] * holders
    assert item.permits == permits
    assert work.runs == []
    work.finish.set()
    assert user.machine.wait(arn).output == ["done"] * len(items)
    assert user.stage.is_free(ENTITY)


def test_an_iteration_that_does_not_share_runs_alone(open_user: OpenUser) -> None:
    work = Work(seconds=0.5)
    user = open_user("readers", work)
    outcome = user.run({"items": [{"shares": True}, {"shares": False}, {"shares": True}]})
    assert outcome.status == "SUCCEEDED"
    [writer] = [run for run in work.runs if not run.event["shares"]]
    readers = [run for run in work.runs if run is not writer]
    assert all(run.ended <= writer.started or writer.ended <= run.started for run in readers)
    assert user.stage.is_free(ENTITY)


def test_a_fragment_with_another_number_of_permits_than_the_lock_has_fails_by_name(open_user: OpenUser) -> None:
    user = open_user("two_at_once")
    assert user.stage.run(ENTITY, function="work").status == "SUCCEEDED"
    outcome = user.run({"items": [{"line": 1}]})
    assert (outcome.status, outcome.error) == ("FAILED", "PermitsMismatch")
    assert (outcome.cause or "").startswith(f"the lock on '{ENTITY}' has 1 permit, not 2")
    assert user.stage.is_free(ENTITY)
