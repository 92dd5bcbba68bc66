"""The serialised workflow, executed: its definition is interpreted, with real handlers and a real table."""

import json
from typing import Any

import pytest
from kit.interpreter.harness import Work
from kit.interpreter.lambda_server import function_arn
from workflow.interpreted.conftest import Open

pytestmark = [
    pytest.mark.shows("exclusion", "cost"),
    pytest.mark.verify("moto's interpreter waits in real time; `make test` asks the ways that most executions take"),
]


@pytest.mark.always("the way that most executions take")
def test_executions_on_one_entity_run_one_at_a_time_in_ticket_order(open_stage: Open) -> None:
    work = Work(seconds=0.2)
    stage = open_stage(work)
    arns = [stage.start("order-42") for _ in range(6)]
    assert {stage.machine.wait(arn, 60).status for arn in arns} == {"SUCCEEDED"}
    assert work.overlaps() == []
    tokens = [run.event["lock"]["fencingToken"] for run in sorted(work.runs, key=lambda run: run.started)]
    assert tokens == sorted(set(tokens))
    assert served_order(work) == sorted(served_order(work), key=lambda owner: tickets(stage)[owner])
    assert stage.is_free("order-42")


def served_order(work: Work) -> list[str]:
    return [run.event["lock"]["owner"] for run in sorted(work.runs, key=lambda run: run.started)]


def tickets(stage: Any) -> dict[str, int]:
    """Each owner's ticket, from its grant."""
    return {
        invocation.event["turn"]["claim"]["owner"]: invocation.event["turn"]["grant"]["ticket"]
        for invocation in stage.engine.invocations_of("Release")
    }


def test_executions_on_different_entities_do_not_wait_for_each_other(open_stage: Open) -> None:
    work = Work(seconds=20)
    stage = open_stage(work)
    arns = [stage.start(entity) for entity in ("order-1", "order-2")]
    for arn in arns:
        stage.machine.wait_until_entered(arn, "InvokeFunction")
    work.finish.set()
    assert {stage.machine.wait(arn).status for arn in arns} == {"SUCCEEDED"}


@pytest.mark.always("the way that most executions take")
def test_the_work_gets_its_input_and_the_lock_and_nothing_else(open_stage: Open) -> None:
    work = Work()
    stage = open_stage(work)
    arn = stage.start("order-42", namespace="billing")
    stage.machine.wait(arn)
    (run,) = work.runs
    token = run.event["lock"]["fencingToken"]
    assert run.event == {
        "order": 42,
        "lock": {"entity": "order-42", "namespace": "billing", "owner": arn, "fencingToken": token},
    }


@pytest.mark.parametrize("output", [{"total": 7, "lock": "kept"}, [1, 2], "text", 0, None, True])
def test_the_output_of_the_work_is_the_output_of_the_execution(open_stage: Open, output: Any) -> None:
    stage = open_stage(Work(result=output))
    outcome = stage.run("order-42")
    assert (outcome.status, outcome.output) == ("SUCCEEDED", output)


def test_an_uncontended_execution_makes_6_transitions_beside_the_works_own_and_4_writes(open_stage: Open) -> None:
    stage = open_stage()
    arn = stage.start("order-42")
    stage.machine.wait(arn)
    entered = stage.machine.entered(arn)
    assert entered.pop("InvokeFunction") == 1
    assert entered.total() == 6
    # A cold process reads the table's time once.
    assert stage.requests == ["GetItem", *["UpdateItem"] * 4]


class StockMissing(Exception):
    pass


@pytest.mark.always("the way that most executions take")
def test_failing_work_fails_the_execution_with_its_own_error_and_frees_the_lock(open_stage: Open) -> None:
    stage = open_stage({"work": Work(error=StockMissing("no tea")), "next": Work()})
    outcome = stage.run("order-42")
    assert (outcome.status, outcome.error) == ("FAILED", "StockMissing")
    assert json.loads(outcome.cause or "")["errorMessage"] == "no tea"
    assert stage.is_free("order-42")
    assert stage.run("order-42", function="next", recordWaitSeconds=0).status == "SUCCEEDED"


def test_a_record_wait_of_0_fails_while_the_lock_is_held(open_stage: Open) -> None:
    work = Work(seconds=20)
    stage = open_stage(work)
    first = stage.start("order-42")
    assert work.started.wait(10)
    outcome = stage.run("order-42", recordWaitSeconds=0)
    assert (outcome.status, outcome.error) == ("FAILED", "RecordWaitExceeded")
    work.finish.set()
    assert stage.machine.wait(first).status == "SUCCEEDED"
    assert stage.is_free("order-42")


@pytest.mark.always("the way that most executions take")
def test_a_record_wait_of_2_fails_after_about_2_seconds_and_leaves_the_queue(open_stage: Open) -> None:
    work = Work(seconds=20)
    stage = open_stage(work)
    first = stage.start("order-42")
    assert work.started.wait(10)
    arn = stage.start("order-42", recordWaitSeconds=2)
    outcome = stage.machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "RecordWaitExceeded")
    assert stage.machine.entered(arn)["CheckPosition"] >= 2
    assert stage.lock("order-42").rows == ()
    work.finish.set()
    assert stage.machine.wait(first).status == "SUCCEEDED"


@pytest.mark.parametrize("record_wait", [{"recordWaitSeconds": "Infinity"}, {"recordWaitSeconds": 60}, {}])
def test_a_longer_record_wait_gets_the_lock_when_it_is_free(open_stage: Open, record_wait: dict[str, Any]) -> None:
    work = Work(seconds=20)
    stage = open_stage(work)
    first = stage.start("order-42")
    assert work.started.wait(10)
    second = stage.start("order-42", **record_wait)
    stage.machine.wait_until_entered(second, "WaitForTurn")
    work.finish.set()
    assert [stage.machine.wait(arn).status for arn in (first, second)] == ["SUCCEEDED", "SUCCEEDED"]
    assert work.overlaps() == []


def test_the_default_record_wait_counts_when_the_input_names_none(open_stage: Open) -> None:
    work = Work(seconds=20)
    stage = open_stage(work, default_record_wait=0)
    first = stage.start("order-42")
    assert work.started.wait(10)
    assert stage.run("order-42").error == "RecordWaitExceeded"
    work.finish.set()
    stage.machine.wait(first)


BAD_INPUTS: list[tuple[str, str, Any]] = [
    ("InvalidLockRequest", "the input", ["no object"]),
    ("InvalidLockRequest", "the input", "no object"),
    ("InvalidLockRequest", "entity", {}),
    ("InvalidLockRequest", "entity", {"entity": ""}),
    ("InvalidLockRequest", "entity", {"entity": 7.5}),
    ("InvalidLockRequest", "entity", {"entity": "x" * 1_025}),
    ("InvalidLockRequest", "namespace", {"entity": "e", "namespace": "a/b"}),
    ("InvalidLockRequest", "namespace", {"entity": "e", "namespace": ""}),
    ("InvalidLockRequest", "namespace", {"entity": "e", "namespace": "x" * 256}),
    ("InvalidLockRequest", "recordWaitSeconds", {"entity": "e", "recordWaitSeconds": -1}),
    ("InvalidLockRequest", "recordWaitSeconds", {"entity": "e", "recordWaitSeconds": True}),
    ("InvalidLockRequest", "recordWaitSeconds", {"entity": "e", "recordWaitSeconds": "60"}),
    ("InvalidLockRequest", "recordWaitSeconds", {"entity": "e", "recordWaitSeconds": None}),
    ("InvalidLockRequest", "task", {"entity": "e"}),
    ("InvalidLockRequest", "task", {"entity": "e", "task": None}),
    ("InvalidLockRequest", "task", {"entity": "e", "task": {"input": {}}}),
    ("InvalidLockRequest", "task.inputs", {"entity": "e", "task": {"inputs": {}}}),
    ("InvalidLockRequest", "enity", {"enity": "e"}),
    (
        "InvalidLockRequest",
        "task",
        {"entity": "e", "task": {"functionArn": function_arn("work"), "stateMachineArn": "arn"}},
    ),
    ("InvalidLockRequest", "task.input", {"entity": "e", "task": {"functionArn": function_arn("work"), "input": [1]}}),
    (
        "InvalidLockRequest",
        "task.input.lock",
        {"entity": "e", "task": {"functionArn": function_arn("work"), "input": {"lock": 1}}},
    ),
    ("TaskNotAllowed", "task.functionArn", {"entity": "e", "task": {"functionArn": function_arn("other")}}),
    ("TaskNotAllowed", "task.functionArn", {"entity": "e", "task": {"functionArn": ["arn"]}}),
    ("TaskNotAllowed", "task.stateMachineArn", {"entity": "e", "task": {"stateMachineArn": function_arn("work")}}),
]


def test_bad_input_fails_by_name_says_the_field_and_writes_nothing(open_stage: Open) -> None:
    stage = open_stage()
    arns = [stage.machine.start(f"bad-{index}", given) for index, (_, _, given) in enumerate(BAD_INPUTS)]
    outcomes = [stage.machine.wait(arn) for arn in arns]
    assert [(outcome.error, (outcome.cause or "").partition(" is ")[0]) for outcome in outcomes] == [
        (error, field) for error, field, _ in BAD_INPUTS
    ]
    assert stage.items() == []
    assert stage.requests == []


@pytest.mark.parametrize("entity", ["#", "/", "order/42", "日本 😀", "session#arn:aws:states:::execution:serialize:x"])
def test_any_text_names_an_entity(open_stage: Open, entity: str) -> None:
    work = Work()
    stage = open_stage(work)
    assert stage.run(entity).status == "SUCCEEDED"
    assert work.runs[0].event["lock"]["entity"] == entity
    assert stage.is_free(entity)
