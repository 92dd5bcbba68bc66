"""Where an execution goes from its first step, also while a deployment changes definition and functions."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import check_position
import kit
import pytest
import take_ticket
import wait_for_wake_up
from kit.interpreter.harness import Work
from kit.interpreter.lambda_server import Function
from kit.interpreter.stage import CHILD_ARN, LEASE_S, Stage
from ticketlock_cdk.lock.settings import HandOver
from workflow.interpreted.conftest import ENTITY, Open

pytestmark = [
    pytest.mark.shows("one run per grant", "cost"),
    pytest.mark.verify("tests/workflow/test_answers.py asks the function, tests/infra/test_machine.py the definition"),
]

# As deployed by the version whose first step returned each turn to the state `MyTurn?`.
EARLIER = Path(kit.__path__[0]) / "fixtures" / "definition_that_routes_each_turn.json"
HELD = Counter(["Hold", "InvokeFunction", "Release", "Heartbeat"])
HELD_OF_EXECUTION = Counter(
    {"HoldOfExecution": 1, "StartExecution": 1, "ReleaseOfExecution": 1, "HeartbeatOfExecution": 1}
)


CALLBACK: dict[str, Any] = {"hand_over": HandOver.CALLBACK, "row_lease_s": LEASE_S + 2}
"""As woken, with rows whose lease is longer far behind."""


def of_an_earlier_version(handler: Any, *unknown: str) -> Function:
    """A function that does not know these fields of the definition, nor waiters far behind."""

    def handle(event: Mapping[str, Any], context: Any) -> Any:
        known = {name: value for name, value in event.items() if name not in (*unknown, "rowLeaseSeconds")}
        if event.get("turn", {}).get("status") == "parkedBehind":
            known["turn"] = {**event["turn"], "status": "parked", "rowMs": 0}
        return handler(known, context)

    return Function(handle)


def put_earlier_functions(stage: Stage) -> None:
    """Such as after a deployment that was rolled back."""
    # It answers no callback task.
    stage.engine.functions["TakeTicket"] = of_an_earlier_version(take_ticket.handler, "taskToken")
    stage.engine.functions["CheckPosition"] = of_an_earlier_version(check_position.handler)
    stage.engine.functions["WaitForWakeUp"] = of_an_earlier_version(wait_for_wake_up.handler)


def held_and_waited_for(
    stage: Stage, work: Work, waiters: int = 1, once_parked: Callable[[Stage], None] = lambda _: None
) -> list[str]:
    """An execution that has held the lock, and those that have waited for it; all have ended well, in order."""
    executions = [stage.hold(ENTITY)]
    for _ in range(waiters):
        executions.append(stage.start(ENTITY, function="after"))
        stage.wait_until_parked(executions[-1])
    once_parked(stage)
    work.finish.set()
    assert [stage.machine.wait(each).status for each in executions] == ["SUCCEEDED"] * len(executions)
    after: Any = stage.function("after").handler
    assert [run.event["lock"]["owner"] for run in after.runs] == executions[1:]
    assert stage.is_free(ENTITY)
    return executions


def test_a_holder_goes_straight_on_and_a_waiter_is_parked(open_stage: Open, work: Work) -> None:
    stage = open_stage({"work": work, "after": Work()}, **CALLBACK)
    holder, waiter, second, third = held_and_waited_for(stage, work, 3)
    assert stage.machine.entered(holder) == HELD + Counter(["TakeTicket"])
    waited = Counter(["TakeTicket", "Parked", "WaitForWakeUp", "CheckPosition", "MyTurn?"])
    assert stage.machine.entered(waiter) == HELD + waited
    assert [stage.machine.entered(each)["WaitForWakeUpBehind"] for each in (waiter, second, third)] == [0, 0, 1]


def test_executions_of_an_earlier_definition_end_well_with_the_functions_of_this_one(
    open_stage: Open, work: Work
) -> None:
    earlier = json.loads(EARLIER.read_text())
    functions = {"work": work, "after": Work()}
    earlier["States"]["TakeTicket"]["Parameters"]["Payload"]["targets"] = None
    stage = open_stage(functions, **CALLBACK, definition=earlier)
    for each in held_and_waited_for(stage, work, 3):
        assert stage.machine.entered(each)["ChooseWork"] == 1


def test_executions_of_this_definition_end_well_with_the_functions_of_an_earlier_one(
    open_stage: Open, work: Work
) -> None:
    functions = {"work": work, "after": Work()}
    stage = open_stage(functions, **CALLBACK, change={"TakeTicket/TimeoutSeconds": 2})
    put_earlier_functions(stage)
    for each in held_and_waited_for(stage, work, 3):
        assert stage.machine.entered(each)["TakeTicketAgain"] == 1
        assert stage.machine.entered(each)["WaitForWakeUpBehind"] == 0


def test_one_that_is_parked_far_behind_ends_well_with_the_functions_of_an_earlier_version(
    open_stage: Open, work: Work
) -> None:
    stage = open_stage({"work": work, "after": Work()}, **CALLBACK)
    *_, last = held_and_waited_for(stage, work, 3, put_earlier_functions)
    assert stage.machine.entered(last)["WaitForWakeUpBehind"] == 1


@pytest.mark.parametrize(
    ("length", "route"),
    [
        (100, Counter({"TakeTicket": 1, "Granted": 1})),
        (40_000, Counter({"TakeTicket": 1, "TakeTicketAgain": 1, "MyTurn?": 1})),
    ],
    ids=["short", "too long for an answer"],
)
def test_work_of_the_other_kind_is_held_by_states_of_its_own(
    open_stage: Open, length: int, route: "Counter[str]"
) -> None:
    stage = open_stage()
    done = {"Type": "Succeed"}
    assert stage.engine.machine("child", {"StartAt": "Done", "States": {"Done": done}}).arn == CHILD_ARN
    task = {"stateMachineArn": CHILD_ARN, "input": {"text": "x" * length}}
    arn = stage.machine.start("beside", {"entity": ENTITY, "task": task})
    outcome = stage.machine.wait(arn)
    assert outcome.status == "SUCCEEDED", outcome
    assert len(outcome.output["text"]) == length
    assert stage.machine.entered(arn) == HELD_OF_EXECUTION + route
    assert stage.is_free(ENTITY)
