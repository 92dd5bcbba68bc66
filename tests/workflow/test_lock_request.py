"""The input of the serialised workflow: what it names, how many may hold the lock, and whether it is shared."""

import json
import math
import re
from typing import Any

import pytest
from kit.events import execution_arn, turn_of

from ticketlock import InvalidLockRequest, LockTable, TaskNotAllowed
from ticketlock.testing import MemoryDynamoDB
from ticketlock.workflow import Workflow
from ticketlock.workflow._turn import LockRequest

FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:work"
OTHER, MACHINE = f"{FUNCTION}-2", "arn:aws:states:eu-west-1:123456789012:stateMachine:work"
TASK = {"functionArn": FUNCTION}


def parsed(default_permits: int = 1, **asked: Any) -> LockRequest:
    request = {"entity": "order-42", "task": TASK, **asked}
    return LockRequest.parse(
        request, targets=[FUNCTION], default_record_wait="Infinity", default_permits=default_permits
    )


def parsed_place(default_permits: int = 1, **asked: Any) -> LockRequest:
    request = {"entity": "order-42", **asked}
    return LockRequest.parse_place(request, default_record_wait="Infinity", default_permits=default_permits)


BOTH = pytest.mark.parametrize("parse", [parsed, parsed_place], ids=["input", "fragment"])


@BOTH
@pytest.mark.parametrize("default", [1, 7])
def test_a_request_without_permits_has_the_deployments_number_and_is_exclusive(parse: Any, default: int) -> None:
    request = parse(default)
    assert (request.permits, request.shared) == (default, False)


@BOTH
@pytest.mark.parametrize("default", [0, -3, 101, "3", None])
def test_an_invalid_default_of_permits_is_refused_by_name_only_if_it_is_needed(parse: Any, default: Any) -> None:
    with pytest.raises(InvalidLockRequest, match="permits"):
        parse(default)
    assert parse(default, permits=2).permits == 2
    assert parse(default, shared=True).permits == 1


@BOTH
@pytest.mark.parametrize("permits", [1, 2, 100])
def test_a_request_may_ask_for_another_number_of_permits(parse: Any, permits: int) -> None:
    assert parse(7, permits=permits).permits == permits


@BOTH
@pytest.mark.parametrize("default", [1, 7])
@pytest.mark.parametrize("more", [{}, {"permits": 1}])
def test_a_shared_request_has_1_permit_whatever_the_default_is(parse: Any, default: int, more: Any) -> None:
    request = parse(default, shared=True, **more)
    assert (request.permits, request.shared) == (1, True)


@BOTH
@pytest.mark.parametrize("permits", [0, -1, 101, 1.5, 2.0, math.inf, True, "2", None, [2]])
def test_any_other_number_of_permits_is_refused_by_name(parse: Any, permits: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^permits is .*a whole number from 1 to 100"):
        parse(permits=permits)


@BOTH
@pytest.mark.parametrize("shared", [0, 1, "true", None, []])
def test_a_value_of_shared_that_is_neither_true_nor_false_is_refused_by_name(parse: Any, shared: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^shared is .*; allowed: true or false"):
        parse(shared=shared)


@BOTH
def test_more_than_one_permit_of_a_request_that_shares_is_refused(parse: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^permits is 2; allowed: 1, because `shared` is true"):
        parse(shared=True, permits=2)


@BOTH
@pytest.mark.parametrize(("number", "text"), [(42, "42"), (0, "0"), (-7, "-7"), (2**53 - 1, "9007199254740991")])
def test_a_whole_number_names_the_same_entity_as_its_digits(parse: Any, number: int, text: str) -> None:
    assert parse(entity=number).lock == parse(entity=text).lock


@BOTH
@pytest.mark.parametrize(
    "entity",
    [42.0, 42.5, math.inf, True, False, 2**53, -(2**53), pytest.param(10**5_000, id="5,001 digits"), None, [42]],
)
def test_any_other_value_of_the_entity_is_refused_by_name(parse: Any, entity: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^entity is .*text, or a whole number"):
        parse(entity=entity)


@BOTH
@pytest.mark.parametrize("field", ["entity", "namespace"])
@pytest.mark.parametrize(
    "text", ["$.order.id", "$['id']", "$$.Execution.Id", "States.Format('{}', $.id)", "{% $states.input.id %}"]
)
def test_a_path_that_was_not_evaluated_is_refused_and_names_no_lock(parse: Any, field: str, text: str) -> None:
    with pytest.raises(InvalidLockRequest, match=rf"^{field} is .*allowed: its value: .*{field}\.\$"):
        parse(**{"entity": "order-42", field: text})


@BOTH
@pytest.mark.parametrize("entity", ["$5", "US$", "$order", "{order}", "cost.$.x", "States.", "100%"])
def test_other_text_with_such_signs_is_an_entity(parse: Any, entity: str) -> None:
    assert parse(entity=entity).lock.entity == entity


def test_the_parent_of_a_nested_execution_may_be_named_in_the_input_and_changes_nothing() -> None:
    parent: dict[str, Any] = {
        "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": "arn:aws:states:eu-west-1:123456789012:execution:parent:1"
    }
    assert parsed(**parent) == parsed()


@pytest.mark.parametrize("name", ["AWS_STEP_FUNCTIONS_STARTED_BY", "AWS_REGION", ""])
def test_no_other_field_is_accepted_beside_the_parent(name: str) -> None:
    more: dict[str, Any] = {name: "arn"}
    with pytest.raises(InvalidLockRequest, match="allowed: only the fields entity, namespace"):
        parsed(**more)


def test_the_parent_of_a_nested_execution_is_refused_in_the_input_of_a_fragment() -> None:
    with pytest.raises(InvalidLockRequest, match="allowed: only the fields entity, namespace"):
        parsed_place(AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID="arn")


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"value": value}
    return value


NO_JSON = {
    "5,001 digits": 10**5_000,
    "a set": {1},
    "a number that is too large": json.loads("1e400"),
    "a negative one": json.loads("[-1e400]"),
    "no number": json.loads("NaN"),
    "half a surrogate pair": json.loads('"\\ud83d"'),
    "the same in a name": json.loads('{"\\ude00": 1}'),
    "500 levels in one": nested(500),
    "100,000 levels": nested(100_000),
}


@pytest.mark.parametrize("what", NO_JSON)
def test_work_input_that_cannot_be_passed_on_is_refused_by_name(what: str) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^task\.input is") as refused:
        parsed(task={**TASK, "input": {"value": NO_JSON[what]}})
    # The reply of a function is UTF-8.
    assert str(refused.value).encode()


@pytest.mark.parametrize("what", ["a number that is too large", "half a surrogate pair"])
def test_work_input_that_cannot_be_passed_on_takes_no_lock(memory: MemoryDynamoDB, what: str) -> None:
    workflow = Workflow(LockTable("locks", client=memory.client))
    asked = {"entity": "order-42", "task": {**TASK, "input": {"value": NO_JSON[what]}}}
    turn = turn_of(workflow, execution_arn(), asked)
    assert turn["status"] == "InvalidLockRequest"
    assert list(memory.items()) == []


@pytest.mark.parametrize("value", [nested(499), 10**400, 1.7e308, "\U0001f600", None, [], {}])
def test_any_other_work_input_is_passed_on(value: Any) -> None:
    assert parsed(task={**TASK, "input": {"value": value}}).task["input"] == {"value": value}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (["no object"], "the input"),
        ("no object", "the input"),
        ({}, "entity"),
        ({"entity": ""}, "entity"),
        ({"entity": "x" * 1_025}, "entity"),
        *(({"entity": "e", "namespace": namespace}, "namespace") for namespace in ("a/b", "", "x" * 256)),
        *(({"entity": "e", "recordWaitSeconds": wait}, "recordWaitSeconds") for wait in (-1, True, "60", None)),
        ({"entity": "e"}, "task"),
        ({"entity": "e", "task": None}, "task"),
        ({"entity": "e", "task": {"input": {}}}, "task"),
        ({"entity": "e", "task": {**TASK, "stateMachineArn": MACHINE}}, "task"),
        ({"entity": "e", "task": {"inputs": {}}}, "task.inputs"),
        ({"enity": "e"}, "enity"),
        ({"entity": "e", "task": {**TASK, "input": [1]}}, "task.input"),
        ({"entity": "e", "task": {**TASK, "input": {"lock": 1}}}, "task.input.lock"),
    ],
    ids=str,
)
def test_any_other_input_is_refused_by_its_field(given: Any, field: str) -> None:
    with pytest.raises(InvalidLockRequest, match=rf"^{re.escape(field)} is "):
        LockRequest.parse(given, targets=[FUNCTION], default_record_wait="Infinity", default_permits=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "entity is null; allowed: text or a whole number that names what is locked"),
        ({"entity": "e"}, "task is null; allowed: the work that is to run under the lock"),
    ],
    ids=["entity", "task"],
)
def test_a_field_that_is_missing_is_told_with_what_it_is_for(given: Any, message: str) -> None:
    with pytest.raises(InvalidLockRequest) as refused:
        LockRequest.parse(given, targets=[FUNCTION], default_record_wait="Infinity", default_permits=1)
    assert str(refused.value) == f"{message}; the field must be given"


@pytest.mark.parametrize("arn", [OTHER, f"{FUNCTION}:1", FUNCTION.upper(), f"{FUNCTION[:-1]}*", ["arn"], MACHINE])
@pytest.mark.parametrize("name", ["functionArn", "stateMachineArn"])
def test_work_that_is_not_exactly_a_target_is_refused_by_its_field(name: str, arn: Any) -> None:
    with pytest.raises(TaskNotAllowed, match=rf"^task\.{name} is "):
        parsed(task={name: arn})
