"""How the first step answers its own callback task: the definition goes on by the answer, see serialize.asl.json."""

import json
from typing import Any

import pytest
from kit.events import execution_arn, ticket_event
from kit.step_functions import TaskService

from ticketlock import LockName
from ticketlock.wire._step_functions import TaskAnswer
from ticketlock.workflow import Workflow
from ticketlock.workflow._turn import answer

pytestmark = pytest.mark.shows("cost", "one run per grant")

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"
MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:work"
A_FUNCTION, AN_EXECUTION = {"functionArn": FUNCTION}, {"stateMachineArn": MACHINE}
TOKEN = "token"
LONGEST_CAUSE = 32_768
"""https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskFailure.html"""


def take(workflow: Workflow, lock: LockName, task: Any = A_FUNCTION, **more: Any) -> Any:
    """What the first step replies to a callback task, of an execution of its own."""
    event = ticket_event(execution_arn(), {"entity": lock.entity, "task": task})
    return workflow.take_ticket(event | {"goesOn": "function", "taskToken": TOKEN} | more).reply


def taken_again(workflow: Workflow, lock: LockName, **more: Any) -> Any:
    """What an execution without a callback task gets."""
    return workflow.take_ticket(
        ticket_event(execution_arn(), {"entity": lock.entity, "task": A_FUNCTION}, **more)
    ).reply


def test_who_holds_the_lock_goes_straight_on_with_turn_and_task(
    workflow: Workflow, service: TaskService, lock: LockName
) -> None:
    assert take(workflow, lock) == {}
    [said] = service.answers
    told = json.loads(said.output)
    assert (said.error, told["lock"]["turn"]["status"]) == (None, "granted")
    assert told["task"] == {"kind": "function", "arn": FUNCTION, "input": {}}


def test_a_fragment_names_no_task_and_keeps_only_the_lock(
    workflow: Workflow, service: TaskService, lock: LockName
) -> None:
    event = ticket_event(execution_arn(), {"entity": lock.entity}, place="Charge/1", workMachine="", taskToken=TOKEN)
    assert workflow.take_ticket(event).reply == {}
    [said] = service.answers
    assert json.loads(said.output)["turn"]["status"] == "granted"


@pytest.mark.parametrize(("hand_over", "error"), [("callback", "Parked"), ("poll", "NotYet")])
def test_who_waits_goes_on_by_a_name_with_its_turn_as_the_cause(
    workflow: Workflow, service: TaskService, lock: LockName, hand_over: str, error: str
) -> None:
    taken_again(workflow, lock, handOver=hand_over)
    assert take(workflow, lock, handOver=hand_over) == {}
    [said] = service.answers
    assert said.error == error
    told = json.loads(said.cause or "")
    assert told["lock"]["turn"]["place"]["ticket"] > 0
    assert told["task"]["arn"] == FUNCTION


def test_who_holds_the_lock_for_work_of_another_kind_goes_on_by_a_name(
    workflow: Workflow, service: TaskService, lock: LockName
) -> None:
    take(workflow, lock, AN_EXECUTION)
    [said] = service.answers
    told = json.loads(said.cause or "")
    assert (said.error, told["lock"]["turn"]["status"], told["task"]["kind"]) == ("Granted", "granted", "execution")


@pytest.mark.parametrize(
    ("task", "more", "error"),
    [
        (A_FUNCTION, {"targets": []}, "TaskNotAllowed"),
        ({"functionArn": 7}, {}, "TaskNotAllowed"),
        ({}, {}, "InvalidLockRequest"),
        (A_FUNCTION, {"defaultRecordWaitSeconds": 0}, "RecordWaitExceeded"),
    ],
)
def test_a_refusal_fails_the_task_by_its_own_name(
    workflow: Workflow, service: TaskService, lock: LockName, task: Any, more: dict[str, Any], error: str
) -> None:
    taken_again(workflow, lock)
    assert take(workflow, lock, task, **more) == {}
    [said] = service.answers
    assert said.error == error
    assert said.cause


@pytest.mark.parametrize(("more", "error"), [(-1, "NotYet"), (0, "NotYet"), (1, "AnswerTooLong")])
def test_a_turn_that_is_too_long_for_a_cause_is_told_of_by_a_name_alone(more: int, error: str) -> None:
    def of(text: str) -> TaskAnswer:
        task = {"kind": "function", "arn": FUNCTION, "input": {"text": text}}
        return answer(TOKEN, {"lock": {"turn": {"status": "waiting"}}, "task": task}, "function")

    # The limit is of characters, of which each of these is one.
    told = of("ü" * (LONGEST_CAUSE - len(of("").cause or "") + more))
    assert told.error == error
    assert (len(told.cause or "") == LONGEST_CAUSE + more) is (error == "NotYet")


def test_a_refusal_that_is_too_long_for_a_cause_is_cut() -> None:
    refused = {"status": "TaskNotAllowed", "cause": "x" * (LONGEST_CAUSE + 1)}
    told = answer(TOKEN, {"lock": {"turn": refused}}, "function")
    assert (told.error, told.cause) == ("TaskNotAllowed", "x" * LONGEST_CAUSE)


def test_a_task_that_has_ended_is_nobodys(workflow: Workflow, service: TaskService, lock: LockName) -> None:
    """It timed out, and the next try has a token of its own: the claim is the same."""
    service.gone.add(TOKEN)
    assert take(workflow, lock) == {}
    assert service.answers == []
