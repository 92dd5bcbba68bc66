"""The state of docs/workflows.md to copy, in both query languages, executed beside the lock's machine."""

import json
from typing import Any

import pytest
from kit.interpreter.harness import PATIENCE_S, Machine, Work, until
from kit.interpreter.stage import CHILD_ARN, Stage
from kit.pages import blocks
from workflow.interpreted.conftest import ENTITY, Open

pytestmark = pytest.mark.verify("moto's interpreter waits in real time")

ORDER = {"orderId": ENTITY}
LANGUAGES = dict(zip(("JSONPath", "JSONata"), blocks("docs/workflows.md", "json"), strict=True))


@pytest.fixture(params=LANGUAGES)
def copied(request: pytest.FixtureRequest) -> str:
    return LANGUAGES[request.param]


def orders(stage: Stage, copied: str, lock: str | None = None) -> Machine:
    """A state machine of the page, whose placeholders have values."""
    text = copied.replace("${LockArn}", lock or stage.machine.arn).replace("${ShipOrderArn}", CHILD_ARN)
    assert "${" not in text
    return stage.engine.machine("orders", text)


def ship_order(stage: Stage, **state: Any) -> Machine:
    """The task: a machine of one state."""
    machine = stage.engine.machine("child", {"StartAt": "Ship", "States": {"Ship": state}})
    assert machine.arn == CHILD_ARN
    return machine


def test_the_task_gets_the_payload_and_its_output_goes_on(open_stage: Open, copied: str) -> None:
    stage = open_stage()
    ship_order(stage, Type="Succeed")
    outcome = orders(stage, copied).run("order", ORDER)
    assert outcome.status == "SUCCEEDED"
    lock = outcome.output.pop("lock")
    assert (outcome.output, lock["entity"]) == (ORDER, ENTITY)
    assert stage.is_free(ENTITY)


def test_an_error_of_the_lock_is_routed_by_its_name(open_stage: Open, work: Work, copied: str) -> None:
    stage = open_stage(work)
    stage.hold(ENTITY)
    waits = '"recordWaitSeconds": 300'
    assert waits in copied
    machine = orders(stage, copied.replace(waits, '"recordWaitSeconds": 0'))
    arn = machine.start("order", ORDER)
    assert machine.wait(arn).status == "SUCCEEDED"
    assert machine.entered(arn)["Busy"] == 1


def test_an_error_without_a_rule_fails_with_its_name_in_the_cause(open_stage: Open, copied: str) -> None:
    stage = open_stage()
    ship_order(stage, Type="Fail", Error="OutOfStock", Cause="no tea")
    outcome = orders(stage, copied).run("order", ORDER)
    assert (outcome.status, outcome.error) == ("FAILED", "NotShipped")
    cause = json.loads(outcome.cause or "")
    assert (cause["Error"], cause["Cause"], cause["Status"]) == ("OutOfStock", "no tea", "FAILED")
    assert stage.is_free(ENTITY)


def test_a_stopped_execution_of_the_lock_has_no_error_and_has_a_status(open_stage: Open, copied: str) -> None:
    stage = open_stage()
    ship_order(stage, Type="Wait", Seconds=60, End=True)
    machine = orders(stage, copied)
    arn = machine.start("order", ORDER)
    (of_the_lock,) = until(stage.machine.executions, PATIENCE_S, lambda: "the lock's execution")
    stage.machine.wait_until_entered(of_the_lock["executionArn"], "StartExecution")
    stage.machine.stop(of_the_lock["executionArn"])
    outcome = machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "NotShipped")
    cause = json.loads(outcome.cause or "")
    # moto has an empty name.
    assert (cause.get("Error") or None, cause["Status"]) == (None, "ABORTED")


def test_a_refused_start_whose_cause_is_text_fails_too(open_stage: Open, copied: str) -> None:
    stage = open_stage()
    machine = orders(stage, copied, f"{stage.machine.arn}-of-nobody")
    arn = machine.start("order", ORDER)
    outcome = machine.wait(arn)
    assert (outcome.status, outcome.error) == ("FAILED", "NotShipped")
    assert "StateMachineDoesNotExist" in (outcome.cause or "")
    assert machine.entered(arn)["ReadCause"] == 0
