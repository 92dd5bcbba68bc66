"""What holds whether work is serialised by the workflow or is a fragment, is polled for or woken, with or without a
heartbeat: the definitions are interpreted, with real handlers and a real table.
"""

import json
import threading
import time
from typing import Any

import pytest
from kit.interpreter.harness import PATIENCE_S, Work
from kit.interpreter.lambda_server import Twice
from kit.interpreter.stage import CHILD_ARN
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import ENTITY, Open, OpenWay, StockMissing, both, held_and_waited_for, unreachable

pytestmark = pytest.mark.verify(
    "moto's interpreter waits in real time; `make test` asks the ways that most executions take"
)

ALWAYS = pytest.mark.always("the way that most executions take")


def always(*values: Any) -> Any:
    return pytest.param(*values, marks=ALWAYS)


@pytest.mark.shows("exclusion")
@pytest.mark.parametrize(
    "name",
    [
        always("polling"),
        "woken",
        "without heartbeat",
        "chain",
        *both("fixed_function"),
    ],
)
def test_executions_run_one_at_a_time_in_ticket_order(open_way: OpenWay, name: str) -> None:
    work = Work(seconds=0.2)
    way = open_way(name, work)
    arns = [way.start() for _ in range(5)]
    assert {way.machine.wait(arn).status for arn in arns} == {"SUCCEEDED"}
    assert (len(work.runs), work.overlaps()) == (5, [])
    # They are listed by their ends, and the next one may begin before the function of a release ends.
    releases = sorted(way.stage.engine.invocations_of("Release"), key=lambda each: each.started)
    grants = [each.event["turn"]["grant"] for each in releases]
    for served in (
        [grant["ticket"] for grant in grants],
        [grant["fencingToken"] for grant in grants],
        [run.event["lock"]["fencingToken"] for run in work.runs if "lock" in run.event],
    ):
        assert served == sorted(set(served))
    assert way.is_free()


@pytest.mark.shows("cost")
@pytest.mark.parametrize(
    ("name", "own", "transitions", "writes"),
    [
        ("polling", {"InvokeFunction"}, 4, 4),
        ("without heartbeat", {"InvokeFunction"}, 2, 3),
        # One state and one write more: the owner is made, and is recorded for a clean-up, which has only the ARN.
        ("function", {"Locked.InvokeFunction", "After"}, 5, 5),
        ("fixed_function", {"Locked.InvokeFunction", "Locked.TellLock", "After"}, 3, 4),
        # The Parallel in which a chain's failures are caught.
        ("chain", {"Look", "Work", "LookAgain", "After"}, 6, 5),
        # The state that returns the lock.
        ("by_path", {"Work"}, 7, 5),
        ("by_path_in_jsonata", {"Work"}, 7, 5),
    ],
)
def test_an_uncontended_execution_makes_few_transitions_beside_the_works_own_and_few_writes(
    open_way: OpenWay, name: str, own: set[str], transitions: int, writes: int
) -> None:
    payload = {"order": {"id": "tea"}, "tenant": "shop", "patience": 5}
    way = open_way(name, payload=payload)
    arn = way.start()
    assert way.machine.wait(arn).status == "SUCCEEDED"
    entered = way.machine.entered(arn)
    assert sum(count for state, count in entered.items() if state not in own) == transitions
    # A cold process reads the table's time once.
    assert sorted(way.stage.requests) == ["GetItem", *["UpdateItem"] * writes]


@pytest.mark.shows("liveness")
@pytest.mark.parametrize(
    ("name", "executions", "mode"),
    [("woken", 4, "second reply"), ("woken", 4, "first reply"), ("branches", 2, "second reply")],
)
def test_every_function_may_run_twice(open_way: OpenWay, name: str, executions: int, mode: Twice) -> None:
    work = Work(seconds=0.3)
    way = open_way(name, work)
    for function in ("TakeTicket", "WaitForWakeUp", "CheckPosition", "Heartbeat", "Release"):
        way.stage.function(function).twice = mode
    arns = [way.start() for _ in range(executions)]
    assert {way.machine.wait(arn).status for arn in arns} == {"SUCCEEDED"}
    assert (len(work.runs), work.overlaps()) == (4, [])
    # A copy that starts after its execution has ended may take the lock, or join the queue, once more for one lease.
    way.stage.wait_until_free(ENTITY)


@pytest.mark.parametrize("name", [always("polling"), always("without heartbeat"), "chain", *both("function")])
def test_failing_work_fails_the_execution_as_itself_and_frees_the_lock(open_way: OpenWay, name: str) -> None:
    way = open_way(name, Work(error=StockMissing("no tea")))
    outcome = way.run()
    assert (outcome.status, outcome.error) == ("FAILED", "StockMissing")
    assert json.loads(outcome.cause or "")["errorMessage"] == "no tea"
    assert way.is_free()


@pytest.mark.parametrize("name", [always("child"), *both("nested_execution"), "fixed_execution"])
def test_a_nested_execution_is_the_work(open_way: OpenWay, name: str) -> None:
    way = open_way(name, payload={"order": 42})
    done = {"Type": "Pass", "Parameters": {"got.$": "$"}, "End": True}
    assert way.stage.engine.machine("child", {"StartAt": "Done", "States": {"Done": done}}).arn == CHILD_ARN
    arn = way.start()
    outcome = way.machine.wait(arn)
    assert outcome.status == "SUCCEEDED"
    if name == "child":
        assert outcome.output["got"].pop("lock")["owner"] == arn
    assert outcome.output == {"got": {"order": 42}}
    assert way.is_free()


@pytest.mark.parametrize("name", ["child", *both("nested_execution"), "child_in_chain"])
def test_a_failed_nested_execution_fails_with_its_own_error_and_cause(open_way: OpenWay, name: str) -> None:
    way = open_way(name)
    fail = {"Type": "Fail", "Error": "StockMissing", "Cause": "no tea"}
    way.stage.engine.machine("child", {"StartAt": "No", "States": {"No": fail}})
    outcome = way.run()
    assert (outcome.status, outcome.error, outcome.cause) == ("FAILED", "StockMissing", "no tea")
    assert way.is_free()


@pytest.mark.shows("liveness")
@pytest.mark.parametrize("name", [always("polling"), "chain"])
def test_work_longer_than_the_lease_keeps_the_lock(open_way: OpenWay, name: str) -> None:
    work = Work(seconds=60)
    way = open_way(name, work)
    first = way.start()
    assert work.started.wait(PATIENCE_S)
    second = way.start()
    threading.Timer(way.lease_s + 3, work.finish.set).start()
    assert [way.machine.wait(arn).status for arn in (first, second)] == ["SUCCEEDED"] * 2
    assert (len(work.runs), work.overlaps()) == (2, [])
    assert len(way.stage.engine.invocations_of("Heartbeat")) >= 3


@pytest.mark.shows("lost lease")
@pytest.mark.parametrize("name", [always("polling"), always("chain"), always("function")])
def test_a_lost_lease_stops_the_work_within_one_heartbeat(open_way: OpenWay, work: Work, name: str) -> None:
    way = open_way(name, work)
    arn = way.start()
    assert work.started.wait(PATIENCE_S)
    way.stage.take_away(ENTITY)
    beats = len(way.stage.engine.invocations_of("Heartbeat"))
    outcome = way.machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")
    assert "not held with fencing token" in (outcome.cause or "")
    assert way.machine.entered(arn)["After"] == 0
    # The first beat may be in progress when the lock is freed by force: it only stores its token.
    assert len(way.stage.engine.invocations_of("Heartbeat")) <= max(1, beats) + 1


@pytest.mark.shows("no heartbeat")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("polling", {"change": {"Hold/0/InvokeFunction/TimeoutSeconds": 1}}),
        # The function itself cannot be stopped: its own time-out must not be longer.
        ("without heartbeat", {}),
        ("timing_out", {}),
        ("fixed_timing_out", {"heartbeat": False, "work_timeout_s": 1}),
    ],
)
def test_work_past_its_time_out_may_still_be_running_and_keeps_the_lock_until_its_lease_ends(
    open_way: OpenWay, work: Work, name: str, settings: dict[str, Any]
) -> None:
    after = Work()
    way = open_way(name, {"work": work, "after": after}, **settings)
    began = time.monotonic()
    outcome = way.run()
    assert (outcome.status, outcome.error) == ("FAILED", "Work.Timeout")
    assert time.monotonic() - began < way.lease_s
    assert not way.is_free()
    assert way.stage.run(ENTITY, function="after", recordWaitSeconds=0).error == "RecordWaitExceeded"
    assert way.stage.run(ENTITY, function="after").status == "SUCCEEDED"
    assert after.runs[0].started - began >= way.lease_s


@pytest.mark.shows("unreachable functions")
@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("polling", "Hold/0/Release/Retry"),
        ("without heartbeat", "Release/Retry"),
        ("function_in_jsonata", "Locked.Hold/0/Locked.Release/Retry"),
        ("fixed_function_in_jsonata", "Locked.Release/Retry"),
    ],
)
def test_a_failed_release_keeps_the_output_and_leaves_the_lock_to_the_heartbeat_or_to_its_lease(
    open_way: OpenWay, name: str, release: str
) -> None:
    way = open_way(name, Work(result="kept"), change={release: []})
    way.stage.function("Release").before = unreachable
    outcome = way.run()
    assert (outcome.status, outcome.output) == ("SUCCEEDED", "kept")
    assert way.is_free() == (name in ("polling", "function_in_jsonata"))
    way.stage.wait_until_free(ENTITY)


BOTH_WAYS = pytest.mark.parametrize("hand_over", list(HandOver))


@pytest.mark.shows("liveness")
@BOTH_WAYS
def test_a_stopped_waiter_delays_the_others_by_at_most_its_rows_lease(
    open_stage: Open, work: Work, hand_over: HandOver
) -> None:
    """If they are woken, the one behind it is, and sweeps its row once it has expired."""
    stage, holder, (stopped, third) = held_and_waited_for(open_stage, work, waiters=2, hand_over=hand_over)
    polled = stage.machine.entered(third)["CheckPosition"]
    stage.machine.stop(stopped)
    work.finish.set()
    assert stage.machine.wait(holder).status == "SUCCEEDED"
    stage.machine.wait_until_entered(third, "CheckPosition", more_than=polled)
    assert stage.machine.wait(third).status == "SUCCEEDED"
    assert stage.is_free(ENTITY)


@pytest.mark.shows("liveness")
@BOTH_WAYS
def test_a_stopped_holder_delays_the_others_by_at_most_its_lease(
    open_stage: Open, work: Work, hand_over: HandOver
) -> None:
    stage, holder, (waiter,) = held_and_waited_for(open_stage, work, hand_over=hand_over)
    stage.machine.stop(holder)
    assert stage.machine.wait(waiter).status == "SUCCEEDED"
