"""The ARNs and names of executions, and when an execution counts as closed."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from ticketlock import LockTable, RequestNotApplied, TableRefused
from ticketlock.wire._sdk import make_client
from ticketlock.wire._step_functions import Closing, Describing
from ticketlock.workflow._failures import (
    execution_arn,
    holding_name,
    redriven_since,
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

    def describes(self, status: str, **more: Any) -> "Service":
        described = {
            "executionArn": EXECUTION,
            "stateMachineArn": MACHINE,
            "status": status,
            "startDate": datetime.now(tz=UTC),
            **more,
        }
        self._stub.add_response("describe_execution", described, {"executionArn": EXECUTION})
        return self

    def stops(self) -> "Service":
        expected = {
            "executionArn": EXECUTION,
            "error": "Abandoned",
            "cause": "the execution that started it is over",
        }
        self._stub.add_response("stop_execution", {"stopDate": datetime.now(tz=UTC)}, expected)
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


class TestClosing:
    """Driven by a lock table, which retries transient errors."""

    @pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
    def test_a_closed_execution_is_not_stopped_again(self, service: Service, table: LockTable, status: str) -> None:
        service.describes(status)
        assert table.perform(Closing(EXECUTION)).applied
        assert service.has_said_it_all()

    @pytest.mark.parametrize("status", ["RUNNING", "PENDING_REDRIVE"])
    def test_a_running_execution_is_stopped_and_seen_closed(
        self, service: Service, table: LockTable, status: str
    ) -> None:
        service.describes(status).stops().describes("ABORTED")
        assert table.perform(Closing(EXECUTION)).applied
        assert service.has_said_it_all()

    def test_an_execution_that_ends_by_itself_while_it_is_stopped_is_closed(
        self, service: Service, table: LockTable
    ) -> None:
        service.describes("RUNNING").stops().describes("SUCCEEDED")
        assert table.perform(Closing(EXECUTION)).applied
        assert service.has_said_it_all()

    def test_it_is_applied_once_the_execution_is_seen_closed(self, service: Service, table: LockTable) -> None:
        service.describes("RUNNING").stops().describes("RUNNING").describes("ABORTED")
        assert table.perform(Closing(EXECUTION)).applied
        assert service.has_said_it_all()

    @pytest.mark.parametrize("code", ["ThrottlingException", "LimitExceededException"])
    def test_it_is_retried_while_the_service_throttles(self, service: Service, table: LockTable, code: str) -> None:
        service.refuses("describe_execution", code).describes("RUNNING").refuses("stop_execution", code)
        service.describes("FAILED")
        assert table.perform(Closing(EXECUTION)).applied
        assert service.has_said_it_all()

    def test_it_is_refused_if_there_is_no_such_execution(self, service: Service, table: LockTable) -> None:
        service.refuses("describe_execution", "ExecutionDoesNotExist")
        assert not table.perform(Closing(EXECUTION)).applied

    def test_it_is_given_up_when_the_execution_is_never_seen_closed(self, service: Service, table: LockTable) -> None:
        table = table_over(service, give_up_after_ms=-1)
        service.describes("RUNNING").stops().describes("RUNNING")
        with pytest.raises(RequestNotApplied):
            table.perform(Closing(EXECUTION))


class TestDescribingByRequest:
    def test_the_reply_is_the_services_description(self, service: Service, table: LockTable) -> None:
        service.describes("ABORTED", input="{}", redriveCount=1)
        described: Any = table.perform(Describing(EXECUTION)).item
        assert (described["input"], described["redriveCount"]) == ("{}", 1)

    def test_it_is_retried_while_the_service_throttles(self, service: Service, table: LockTable) -> None:
        service.refuses("describe_execution", "ThrottlingException").describes("ABORTED")
        assert table.perform(Describing(EXECUTION)).applied

    def test_it_is_refused_if_there_is_no_such_execution(self, service: Service, table: LockTable) -> None:
        service.refuses("describe_execution", "ExecutionDoesNotExist")
        reply = table.perform(Describing(EXECUTION))
        assert (reply.applied, reply.item) == (False, None)

    def test_any_other_answer_is_an_error(self, service: Service, table: LockTable) -> None:
        service.refuses("describe_execution", "AccessDeniedException")
        with pytest.raises(TableRefused, match="AccessDenied"):
            table.perform(Describing(EXECUTION))


class TestNames:
    @pytest.mark.parametrize("qualifier", ["", ":7", ":live"])
    def test_a_version_and_an_alias_have_the_executions_of_their_machine(self, qualifier: str) -> None:
        assert execution_arn(MACHINE + qualifier, "name") == EXECUTION

    def test_an_execution_is_in_the_partition_of_its_machine(self) -> None:
        machine = "arn:aws-cn:states:cn-north-1:123456789012:stateMachine:child"
        assert execution_arn(machine, "name") == "arn:aws-cn:states:cn-north-1:123456789012:execution:child:name"

    @pytest.mark.parametrize("token", [1, 1_800_000_000_000, 10**20])
    def test_the_service_accepts_every_name(self, token: int) -> None:
        """https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html"""
        for name in (work_name(OWNER, token), waiting_name(OWNER, token), holding_name(OWNER, token, 10**8)):
            assert re.fullmatch("[A-Za-z0-9_-]{1,80}", name), name

    def test_the_same_arguments_give_the_same_names(self) -> None:
        assert work_name(OWNER, 7) == work_name(OWNER, 7)
        assert short_hash(OWNER) == short_hash(OWNER)

    def test_another_owner_grant_or_continuation_has_another_name(self) -> None:
        names = [
            work_name(OWNER, 7),
            work_name(OWNER + "2", 7),
            work_name(OWNER, 8),
            waiting_name(OWNER, 7),
            waiting_name(OWNER + "2", 7),
            waiting_name(OWNER, 8),
            holding_name(OWNER, 7, 1),
            holding_name(OWNER, 7, 2),
            holding_name(OWNER, 71, 2),
            holding_name(OWNER + "2", 7, 1),
        ]
        assert len(set(names)) == len(names)

    def test_a_hash_does_not_name_the_owner(self) -> None:
        assert re.fullmatch("[0-9a-f]{8}", short_hash(OWNER))


class TestRedrives:
    ENDED = datetime(2026, 1, 1, tzinfo=UTC)
    EVENT: ClassVar[dict[str, Any]] = {"stopDate": int(ENDED.timestamp() * 1_000)}

    @pytest.mark.parametrize(("counted", "now", "redriven"), [(0, 0, False), (0, 1, True), (1, 1, False), (1, 2, True)])
    def test_an_event_with_a_redrive_count_belongs_to_the_run_with_that_number(
        self, counted: int, now: int, redriven: bool
    ) -> None:
        assert redriven_since({**self.EVENT, "redriveCount": counted}, {"redriveCount": now}) is redriven

    def test_an_event_without_a_redrive_count_belongs_to_the_last_run_if_that_ended_with_it(self) -> None:
        assert not redriven_since(self.EVENT, {"redriveCount": 1, "stopDate": self.ENDED})

    def test_an_event_without_a_redrive_count_belongs_to_an_earlier_run_if_the_execution_runs_or_ended_later(
        self,
    ) -> None:
        assert redriven_since(self.EVENT, {"redriveCount": 1})
        assert redriven_since(self.EVENT, {"redriveCount": 1, "stopDate": self.ENDED + timedelta(minutes=1)})

    def test_an_execution_that_was_never_redriven_has_one_run(self) -> None:
        assert not redriven_since(self.EVENT, {"status": "RUNNING"})
