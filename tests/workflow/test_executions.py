"""The ARNs and names of executions, and when an execution counts as closed."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from ticketlock import LockTable, RequestNotApplied, TableRefused
from ticketlock.wire._runs import run_that_ended
from ticketlock.wire._sdk import make_client
from ticketlock.wire._step_functions import Closing, Describing, TaskAnswer
from ticketlock.workflow._failures import (
    execution_arn,
    holding_name,
    short_hash,
    waiting_name,
    work_name,
)

MACHINE = "arn:aws:states:eu-central-1:123456789012:stateMachine:child"
EXECUTION = "arn:aws:states:eu-central-1:123456789012:execution:child:name"
OWNER = "arn:aws:states:eu-central-1:123456789012:execution:serialize:" + 80 * "x"


class Service:
    """Step Functions as the SDK's own stub: gives these answers in this order, and no others."""

    def __init__(self) -> None:
        self.client = boto3.client("stepfunctions", region_name="eu-central-1")
        self._stub = Stubber(self.client)
        self._stub.activate()

    def describes(self, status: str, *, with_input: bool = False, **more: Any) -> "Service":
        described = {
            "executionArn": EXECUTION,
            "stateMachineArn": MACHINE,
            "status": status,
            "startDate": datetime.now(tz=UTC),
            **more,
        }
        included = "ALL_DATA" if with_input else "METADATA_ONLY"
        self._stub.add_response("describe_execution", described, {"executionArn": EXECUTION, "includedData": included})
        return self

    def stops(self) -> "Service":
        expected = {
            "executionArn": EXECUTION,
            "error": "Abandoned",
            "cause": "the execution that started it is over",
        }
        self._stub.add_response("stop_execution", {"stopDate": datetime.now(tz=UTC)}, expected)
        return self

    def stops_without_a_cause(self) -> "Service":
        self._stub.add_response("stop_execution", {"stopDate": datetime.now(tz=UTC)}, {"executionArn": EXECUTION})
        return self

    def fails_without_a_cause(self) -> "Service":
        self._stub.add_response("send_task_failure", {}, {"taskToken": "token"})
        return self

    def refuses(self, operation: str, code: str) -> "Service":
        self._stub.add_client_error(operation, code, http_status_code=400)
        return self

    def has_said_it_all(self) -> bool:
        self._stub.assert_no_pending_responses()
        return True


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def table(service: Service) -> Iterator[LockTable]:
    with mock_aws():
        boto3.client("dynamodb", region_name="eu-central-1").create_table(
            TableName="locks",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        )
        yield table_over(service, give_up_after_ms=60_000)


def table_over(service: Service, give_up_after_ms: int) -> LockTable:
    return LockTable(
        "locks",
        client=make_client(region_name="eu-central-1"),
        step_functions=service.client,
        sleep=lambda _: None,
        give_up_after_ms=give_up_after_ms,
    )


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
def test_a_closed_execution_is_not_stopped_again(service: Service, table: LockTable, status: str) -> None:
    service.describes(status)
    assert table.perform(Closing(EXECUTION)).applied
    assert service.has_said_it_all()


@pytest.mark.parametrize(
    ("status", "later"),
    [
        ("RUNNING", ["ABORTED"]),
        ("PENDING_REDRIVE", ["ABORTED"]),
        # It ends by itself while it is stopped.
        ("RUNNING", ["SUCCEEDED"]),
        ("RUNNING", ["RUNNING", "ABORTED"]),
    ],
)
def test_a_running_execution_is_stopped_and_counts_as_closed_once_it_is_seen_so(
    service: Service, table: LockTable, status: str, later: list[str]
) -> None:
    service.describes(status).stops()
    for each in later:
        service.describes(each)
    assert table.perform(Closing(EXECUTION)).applied
    assert service.has_said_it_all()


@pytest.mark.parametrize("code", ["ThrottlingException", "LimitExceededException", "KmsThrottlingException"])
def test_closing_is_retried_while_the_service_throttles(service: Service, table: LockTable, code: str) -> None:
    service.refuses("describe_execution", code).describes("RUNNING").refuses("stop_execution", code)
    service.describes("FAILED")
    assert table.perform(Closing(EXECUTION)).applied
    assert service.has_said_it_all()


KEY_REFUSES = pytest.mark.parametrize("code", ["KmsAccessDeniedException", "KmsInvalidStateException"])


@KEY_REFUSES
def test_an_execution_whose_key_refuses_is_stopped_without_error_and_cause(
    service: Service, table: LockTable, code: str
) -> None:
    service.describes("RUNNING").refuses("stop_execution", code).stops_without_a_cause().describes("ABORTED")
    assert table.perform(Closing(EXECUTION)).applied
    assert service.has_said_it_all()


@KEY_REFUSES
def test_a_task_whose_key_refuses_is_failed_without_error_and_cause(
    service: Service, table: LockTable, code: str
) -> None:
    service.refuses("send_task_failure", code).fails_without_a_cause()
    assert table.perform(TaskAnswer("token", "LockLost", "its lease has ended")).applied
    assert service.has_said_it_all()


@KEY_REFUSES
def test_any_other_request_that_a_key_refuses_is_an_error(service: Service, table: LockTable, code: str) -> None:
    service.refuses("describe_execution", code).refuses("send_task_success", code)
    with pytest.raises(TableRefused, match=code):
        table.perform(Describing(EXECUTION, with_input=True))
    with pytest.raises(TableRefused, match=code):
        table.perform(TaskAnswer("token"))


@pytest.mark.parametrize("request_of", [Closing, Describing])
def test_a_request_about_an_execution_that_does_not_exist_is_refused(
    service: Service, table: LockTable, request_of: Any
) -> None:
    service.refuses("describe_execution", "ExecutionDoesNotExist")
    reply = table.perform(request_of(EXECUTION))
    assert (reply.applied, reply.item) == (False, None)


@pytest.mark.usefixtures("table")
def test_closing_is_given_up_when_the_execution_is_never_seen_closed(service: Service) -> None:
    impatient = table_over(service, give_up_after_ms=-1)
    service.describes("RUNNING").stops().describes("RUNNING")
    with pytest.raises(RequestNotApplied):
        impatient.perform(Closing(EXECUTION))


def test_a_description_is_the_services_once_it_no_longer_throttles(service: Service, table: LockTable) -> None:
    service.refuses("describe_execution", "ThrottlingException")
    service.describes("ABORTED", redriveCount=1)
    described: Any = table.perform(Describing(EXECUTION)).item
    assert described["redriveCount"] == 1


def test_only_who_needs_the_input_asks_for_more_than_a_key_leaves_readable(service: Service, table: LockTable) -> None:
    service.describes("ABORTED", with_input=True, input="{}")
    described: Any = table.perform(Describing(EXECUTION, with_input=True)).item
    assert described["input"] == "{}"


def test_any_other_answer_to_a_description_is_an_error(service: Service, table: LockTable) -> None:
    service.refuses("describe_execution", "AccessDeniedException")
    with pytest.raises(TableRefused, match="AccessDenied"):
        table.perform(Describing(EXECUTION))


@pytest.mark.parametrize("qualifier", ["", ":7", ":live"])
def test_a_version_and_an_alias_have_the_executions_of_their_machine_in_its_partition(qualifier: str) -> None:
    assert execution_arn(MACHINE + qualifier, "name") == EXECUTION
    in_china = "arn:aws-cn:states:cn-north-1:123456789012:stateMachine:child"
    assert execution_arn(in_china, "name") == "arn:aws-cn:states:cn-north-1:123456789012:execution:child:name"


@pytest.mark.parametrize("token", [1, 1_800_000_000_000, 10**20])
def test_the_service_accepts_every_name(token: int) -> None:
    """https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html"""
    for name in (work_name(OWNER, token), waiting_name(OWNER, token), holding_name(OWNER, token, 10**8)):
        assert re.fullmatch("[A-Za-z0-9_-]{1,80}", name), name


def test_the_same_arguments_give_the_same_name_and_others_another() -> None:
    names = [
        *(name(*of) for name in (work_name, waiting_name) for of in ((OWNER, 7), (OWNER + "2", 7), (OWNER, 8))),
        *(holding_name(*of) for of in ((OWNER, 7, 1), (OWNER, 7, 2), (OWNER, 71, 2), (OWNER + "2", 7, 1))),
    ]
    assert len(set(names)) == len(names)
    assert work_name(OWNER, 7) == names[0]


def test_a_hash_does_not_name_the_owner() -> None:
    assert re.fullmatch("[0-9a-f]{8}", short_hash(OWNER))


ENDED = datetime(2026, 1, 1, tzinfo=UTC)
LATER = ENDED + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("counted", "described", "run"),
    [
        # An event with a redrive count belongs to the run with that number, whatever is described.
        ({"redriveCount": 0}, {"redriveCount": 1}, 0),
        ({"redriveCount": 2}, {}, 2),
        # One without belongs to the last run if that ended with it,
        ({}, {"redriveCount": 2, "stopDate": ENDED}, 2),
        ({"redriveCount": None}, {"redriveCount": 1, "stopDate": ENDED}, 1),
        # and to an earlier one if the execution runs or ended later.
        ({}, {"redriveCount": 2}, 1),
        ({}, {"redriveCount": 1, "stopDate": LATER}, 0),
        # An execution that was never redriven, or is forgotten, has one run.
        ({}, {"redriveCount": 0, "stopDate": LATER}, 0),
        ({}, {}, 0),
    ],
)
def test_an_event_belongs_to_one_run_of_its_execution(
    counted: dict[str, int | None], described: dict[str, Any], run: int
) -> None:
    assert run_that_ended({"stopDate": int(ENDED.timestamp() * 1_000), **counted}, described) == run
