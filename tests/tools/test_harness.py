"""The harness itself, on a toy machine: a work beside a beat that is a callback task; and the loop of tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from kit.interpreter.harness import PATIENCE_S, Machine, StepFunctions, Work, until
from kit.interpreter.lambda_server import Function, Twice, function_arn
from tables.recorded import HISTORIES
from ticketlock_local.engines.emulator import Emulator

pytestmark = pytest.mark.verify("tests no part of the product")

# Longer than a busy machine takes for a beat.
TIMEOUT_S, INTERVAL_S = 4, 1


def task(function: str, **fields: Any) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": function_arn(function), "Payload.$": "$"},
        "OutputPath": "$.Payload",
        "TimeoutSeconds": 20,
        "End": True,
    } | fields


def single(state: dict[str, Any]) -> dict[str, Any]:
    return {"StartAt": "Only", "States": {"Only": state}}


def beat(timeout: int) -> dict[str, Any]:
    """A callback task that is retried at each time-out."""
    return task(
        "beat",
        Resource="arn:aws:states:::lambda:invoke.waitForTaskToken",
        Parameters={
            "FunctionName": function_arn("beat"),
            "Payload": {"token.$": "$$.Task.Token", "retry.$": "$$.State.RetryCount"},
        },
        OutputPath="$",
        TimeoutSeconds=timeout,
        Retry=[
            {"ErrorEquals": ["Lost"], "MaxAttempts": 0},
            {
                "ErrorEquals": ["States.Timeout"],
                "IntervalSeconds": INTERVAL_S,
                "BackoffRate": 1,
                "MaxAttempts": 99999999,
            },
        ],
    )


def work_beside_beat(timeout: int = TIMEOUT_S) -> dict[str, Any]:
    return single(
        {
            "Type": "Parallel",
            "Branches": [single(task("work")), single(beat(timeout))],
            "OutputPath": "$[0]",
            "End": True,
        }
    )


OpenEngine = Callable[..., AbstractContextManager[StepFunctions]]


@pytest.fixture
def open_engine(emulator: Emulator) -> OpenEngine:
    return lambda **functions: StepFunctions(functions, dynamodb_endpoint=emulator.endpoint)


@pytest.mark.parametrize(("mode", "reply"), [("no", 1), ("second reply", 2), ("first reply", 1)])
def test_a_function_can_run_twice_for_one_event(open_engine: OpenEngine, mode: Twice, reply: int) -> None:
    runs: list[Any] = []

    def work(event: Any, context: Any) -> int:  # noqa: ARG001
        runs.append(event)
        return len(runs)

    with open_engine(work=Function(work, twice=mode)) as engine:
        assert engine.machine("m", single(task("work"))).run("e", {"k": 1}).output == reply
    assert runs == [{"k": 1}] * (1 if mode == "no" else 2)


def test_every_beat_has_a_new_token_and_the_old_one_has_timed_out(open_engine: OpenEngine) -> None:
    seen: list[tuple[int, str]] = []
    answers: list[str] = []

    def third_time(event: Any, context: Any) -> None:  # noqa: ARG001
        seen.append((event["retry"], event["token"]))
        if len(seen) == 3:
            client = boto3.client("stepfunctions")
            for _, token in seen:
                try:
                    client.send_task_success(taskToken=token, output='"beaten"')
                    answers.append("taken")
                except ClientError as error:
                    answers.append(error.response["Error"]["Code"])

    with open_engine(work=Work(), beat=third_time) as engine:
        machine = engine.machine("m", work_beside_beat())
        arn = machine.start("e", {})
        assert machine.wait(arn).output == "done"
        beats = engine.invocations_of("beat")
    assert [retry for retry, _ in seen] == [0, 1, 2]
    assert len({token for _, token in seen}) == 3
    assert answers == ["TaskTimedOut", "TaskTimedOut", "taken"]
    # A clock may be a little early.
    assert beats[2].started - beats[1].started > 0.95 * (TIMEOUT_S + INTERVAL_S)


def test_a_failure_sent_by_a_beat_stops_the_work_beside_it(open_engine: OpenEngine) -> None:
    work = Work(seconds=60)

    def lose(event: Any, context: Any) -> None:  # noqa: ARG001
        work.started.wait()
        boto3.client("stepfunctions").send_task_failure(taskToken=event["token"], error="Lost", cause="it ended")

    with open_engine(work=work, beat=lose) as engine:
        outcome = engine.machine("m", work_beside_beat(timeout=10)).run("e", {})
        assert not work.runs
        work.finish.set()
    assert (outcome.status, outcome.error, outcome.cause) == ("FAILED", "Lost", "it ended")


def test_a_time_out_of_a_state_in_a_branch_fails_the_parallel_under_its_own_name(open_engine: OpenEngine) -> None:
    work = Work(seconds=60)
    state = {"Type": "Parallel", "Branches": [single(task("work", TimeoutSeconds=1))], "End": True}
    with open_engine(work=work) as engine:
        outcome = engine.machine("m", single(state)).run("e", {})
        work.finish.set()
    assert (outcome.status, outcome.error) == ("FAILED", "States.Timeout")


class Broken(Exception):
    """An error of a function."""


def callback(answer: str, **fields: Any) -> dict[str, Any]:
    """A callback task that is answered by its function, or not at all."""
    payload = {"answer": answer, "token.$": "$$.Task.Token"}
    return task(
        "callback",
        Resource="arn:aws:states:::lambda:invoke.waitForTaskToken",
        Parameters={"FunctionName": function_arn("callback"), "Payload": payload},
        OutputPath="$",
        TimeoutSeconds=TIMEOUT_S,
        **fields,
    )


def answered(event: Any, _context: Any) -> None:
    client = boto3.client("stepfunctions")
    match event["answer"]:
        case "success":
            client.send_task_success(taskToken=event["token"], output="{}")
        case "failure":
            client.send_task_failure(taskToken=event["token"], error="Failed", cause="of itself")
        case "failure without a name":
            client.send_task_failure(taskToken=event["token"])


def parallel(*states: dict[str, Any]) -> dict[str, Any]:
    return {"Type": "Parallel", "Branches": [*map(single, states)], "End": True}


def caught(state: dict[str, Any]) -> dict[str, Any]:
    """The state, and one to which its errors lead."""
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]
    return {"StartAt": "Only", "States": {"Only": state | {"Catch": catch}, "Caught": {"Type": "Succeed"}}}


def events_of(machine: Machine, arn: str) -> list[str]:
    return [event["type"] for event in machine.history(arn)]


AGAIN = {"Retry": [{"ErrorEquals": ["Broken"], "IntervalSeconds": INTERVAL_S, "MaxAttempts": 1}]}
NESTED = {
    "Type": "Task",
    "Resource": "arn:aws:states:::states:startExecution.sync:2",
    "Parameters": {"StateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:child", "Name": "child"},
    "ResultSelector": {"output.$": "$.Output"},
    "End": True,
}
NOTHING = {
    "Type": "Task",
    "QueryLanguage": "JSONata",
    "Resource": "arn:aws:states:::lambda:invoke",
    "Arguments": {"FunctionName": "{% $states.input.nothing %}"},
    "End": True,
}
NAMELESS = callback("failure without a name")


@pytest.mark.parametrize(
    ("recorded", "definition"),
    [
        pytest.param(HISTORIES[name], definition, id=name)
        for name, definition in {
            "function": single(task("work")),
            "function, tried twice": caught(task("fails") | AGAIN),
            "callback": single(callback("success")),
            "callback, failed": caught(callback("failure")),
            "callback, timed out": single(callback("none")),
            "nested execution": single(NESTED),
            "branch, failed": caught(parallel(NAMELESS)),
            "expression, nothing found": single(NOTHING),
        }.items()
    ],
)
def test_the_interpreter_writes_the_events_that_were_recorded_on_aws(
    open_engine: OpenEngine, recorded: list[str], definition: dict[str, Any]
) -> None:
    with open_engine(work=Work(), fails=Work(error=Broken()), callback=answered) as engine:
        engine.machine("child", single({"Type": "Pass", "End": True}))
        machine = engine.machine("m", definition)
        arn = machine.start("e", {})
        machine.wait(arn)
        assert events_of(machine, arn)[1 : 1 + len(recorded)] == recorded


@pytest.mark.parametrize("state", [NAMELESS, parallel(NAMELESS)], ids=["task", "parallel"])
def test_a_failure_without_a_name_is_caught_as_null(open_engine: OpenEngine, state: dict[str, Any]) -> None:
    with open_engine(callback=answered) as engine:
        assert engine.machine("m", caught(state)).run("e", {}).output == {"Error": None, "Cause": None}


def test_a_callback_task_beside_a_branch_that_fails_is_aborted_and_writes_nothing_more(open_engine: OpenEngine) -> None:
    fails = Work(seconds=60, error=Broken())
    definition = caught(parallel(callback("none"), task("fails", TimeoutSeconds=60)))
    # Until after the time-out of the callback task.
    definition["States"]["Caught"] = {"Type": "Wait", "Seconds": TIMEOUT_S, "End": True}
    with open_engine(fails=fails, callback=answered) as engine:
        machine = engine.machine("m", definition)
        arn = machine.start("e", {})
        until(lambda: "TaskSubmitted" in events_of(machine, arn), PATIENCE_S, lambda: "the callback task to wait")
        fails.finish.set()
        assert machine.wait(arn).status == "SUCCEEDED"
        events = events_of(machine, arn)
    assert " ".join(events[events.index("TaskFailed") :]) == (
        "TaskFailed TaskStateAborted TaskStateAborted ParallelStateFailed ParallelStateExited "
        "WaitStateEntered WaitStateExited ExecutionSucceeded"
    )
