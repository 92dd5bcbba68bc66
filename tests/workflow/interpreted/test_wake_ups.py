"""Hand-over by callback: waiters park as callback tasks, and an execution that frees the lock wakes the next."""

from itertools import pairwise

import pytest
from kit.interpreter.harness import Work
from kit.interpreter.stage import HALF_LIFE_S
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import ENTITY, Open, held_and_waited_for

from ticketlock.locks._items import Session

pytestmark = [
    pytest.mark.shows("liveness"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]

CALLBACK = HandOver.CALLBACK


@pytest.mark.always("the way that most executions take")
def test_the_next_in_line_runs_as_soon_as_it_is_woken(open_stage: Open, work: Work) -> None:
    after = Work()
    stage, holder, waiting = held_and_waited_for(open_stage, work, after, waiters=3, hand_over=CALLBACK)
    polls = stage.machine.entered(waiting[0])["CheckPosition"]
    work.finish.set()
    assert {stage.machine.wait(arn).status for arn in (holder, *waiting)} == {"SUCCEEDED"}
    # Woken, each polled once and took the lock.
    assert stage.machine.entered(waiting[0])["CheckPosition"] == polls + 1
    assert len(after.runs) == 3
    assert [run.event["lock"]["owner"] for run in after.runs] == waiting
    tokens = [run.event["lock"]["fencingToken"] for run in (*work.runs, *after.runs)]
    assert all(earlier < later for earlier, later in pairwise(tokens))
    assert stage.is_free(ENTITY)


def test_a_parked_waiter_extends_its_row_without_a_transition(open_stage: Open) -> None:
    work, after = Work(seconds=4 * HALF_LIFE_S), Work()
    stage, holder, (waiter,) = held_and_waited_for(open_stage, work, after, hand_over=CALLBACK)
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
    entered = stage.machine.entered(waiter)
    assert (entered["WaitForWakeUp"], entered["CheckPosition"], entered["MyTurn?"]) == (1, 1, 1)
    assert len(stage.engine.invocations_of("WaitForWakeUp")) >= 3
    assert work.runs[0].ended <= after.runs[0].started


def test_a_lost_wake_up_costs_time_only(open_stage: Open, work: Work) -> None:
    stage, holder, (waiter,) = held_and_waited_for(open_stage, work, hand_over=CALLBACK)
    # As if a later task of the waiter had replaced this one.
    stage.client.update_item(
        TableName=stage.table_name,
        Key=Session(waiter, "serialize").key(),
        UpdateExpression="SET wakeUpToken = :token",
        ExpressionAttributeValues={":token": {"S": "stale"}},
    )
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"


def test_a_park_that_fails_falls_back_to_polling(open_stage: Open, work: Work) -> None:
    stage = open_stage({"work": work, "next": Work()}, hand_over=CALLBACK)

    def break_down(_event: object) -> None:
        raise RuntimeError("no parking")

    stage.function("WaitForWakeUp").before = break_down
    holder = stage.hold(ENTITY)
    waiter = stage.start(ENTITY, function="next")
    stage.machine.wait_until_entered(waiter, "WaitForTurn")
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
