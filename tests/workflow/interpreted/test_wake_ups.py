"""Hand-over by callback: waiters park as callback tasks, and an execution that frees the lock wakes the next."""

from itertools import pairwise

import pytest
from kit.interpreter.harness import Work
from kit.interpreter.lambda_server import Twice
from kit.interpreter.stage import HALF_LIFE_S, LEASE_S, Stage
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import Open

pytestmark = [
    pytest.mark.shows("liveness"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]

CALLBACK = HandOver.CALLBACK


def queue_up(stage: Stage, work: Work, waiters: int) -> tuple[str, list[str]]:
    """One holder, and this many waiters behind it, parked in the order of their tickets."""
    holder = stage.start("order-42")
    assert work.started.wait(10)
    waiting = []
    for _ in range(waiters):
        waiting.append(stage.start("order-42", function="next"))
        stage.wait_until_parked(waiting[-1])
    return holder, waiting


@pytest.mark.always("the way that most executions take")
def test_the_next_in_line_runs_as_soon_as_it_is_woken(open_stage: Open) -> None:
    work, after = Work(seconds=60), Work()
    stage = open_stage({"work": work, "next": after}, hand_over=CALLBACK)
    holder, waiting = queue_up(stage, work, 3)
    polls = stage.machine.entered(waiting[0])["CheckPosition"]
    work.finish.set()
    assert {stage.machine.wait(arn).status for arn in (holder, *waiting)} == {"SUCCEEDED"}
    # Woken, each polled once and took the lock.
    assert stage.machine.entered(waiting[0])["CheckPosition"] == polls + 1
    assert len(after.runs) == 3
    assert [run.event["lock"]["owner"] for run in after.runs] == waiting
    tokens = [run.event["lock"]["fencingToken"] for run in (*work.runs, *after.runs)]
    assert all(earlier < later for earlier, later in pairwise(tokens))
    assert stage.is_free("order-42")


def test_a_parked_waiter_extends_its_row_without_a_transition(open_stage: Open) -> None:
    work = Work(seconds=4 * HALF_LIFE_S)
    stage = open_stage({"work": work, "next": Work()}, hand_over=CALLBACK)
    holder, (waiter,) = queue_up(stage, work, 1)
    assert stage.machine.wait(holder, 60).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
    entered = stage.machine.entered(waiter)
    assert (entered["WaitForWakeUp"], entered["CheckPosition"], entered["MyTurn?"]) == (1, 1, 2)
    assert len(stage.engine.invocations_of("WaitForWakeUp")) >= 3
    assert work.overlaps() == []


def test_a_lost_wake_up_costs_time_only(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()}, hand_over=CALLBACK)
    holder, (waiter,) = queue_up(stage, work, 1)
    stage.spoil_wake_up_token(waiter)
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter, HALF_LIFE_S + 30).status == "SUCCEEDED"


def test_a_stale_token_is_skipped_and_the_next_waiter_woken(open_stage: Open) -> None:
    """The first in line was stopped: its task is gone. The second is woken, and sweeps the first's row when it has
    expired.
    """
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()}, hand_over=CALLBACK)
    holder, (stopped, waiter) = queue_up(stage, work, 2)
    parked = stage.machine.entered(waiter)["CheckPosition"]
    stage.machine.stop(stopped)
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    stage.machine.wait_until_entered(waiter, "CheckPosition", more_than=parked)
    assert stage.machine.wait(waiter, LEASE_S + HALF_LIFE_S + 30).status == "SUCCEEDED"
    assert stage.is_free("order-42")


def test_a_waiter_whose_record_wait_ends_wakes_no_one_before_its_turn(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()}, hand_over=CALLBACK)
    holder, _ = queue_up(stage, work, 0)
    impatient = stage.start("order-42", function="next", recordWaitSeconds=2)
    patient = stage.start("order-42", function="next")
    stage.wait_until_parked(patient)
    assert stage.machine.wait(impatient).error == "RecordWaitExceeded"
    assert stage.machine.outcome(patient) is None
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(patient).status == "SUCCEEDED"


def test_a_crashed_holder_wakes_no_one_and_is_replaced_after_its_lease(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()}, hand_over=CALLBACK)
    holder, (waiter,) = queue_up(stage, work, 1)
    stage.machine.stop(holder)
    assert stage.machine.wait(waiter, LEASE_S + HALF_LIFE_S + 30).status == "SUCCEEDED"
    work.finish.set()


@pytest.mark.parametrize("mode", ["second reply", "first reply"])
def test_every_function_may_run_twice(open_stage: Open, mode: Twice) -> None:
    work = Work(seconds=0.3)
    stage = open_stage(work, hand_over=CALLBACK)
    for name in ("TakeTicket", "WaitForWakeUp", "CheckPosition", "Heartbeat", "Release"):
        stage.function(name).twice = mode
    arns = [stage.start("order-42") for _ in range(4)]
    assert {stage.machine.wait(arn, 90).status for arn in arns} == {"SUCCEEDED"}
    assert work.overlaps() == []
    assert len(work.runs) == 4
    stage.wait_until_free("order-42")


def test_a_park_that_fails_falls_back_to_polling(open_stage: Open) -> None:
    work = Work(seconds=60)
    stage = open_stage({"work": work, "next": Work()}, hand_over=CALLBACK)

    def break_down(_event: object) -> None:
        raise RuntimeError("no parking")

    stage.function("WaitForWakeUp").before = break_down
    holder, _ = queue_up(stage, work, 0)
    waiter = stage.start("order-42", function="next")
    stage.machine.wait_until_entered(waiter, "WaitForTurn")
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
