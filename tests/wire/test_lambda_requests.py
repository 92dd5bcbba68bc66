"""Requests about durable executions, as boto3 sends them to Lambda and reads its answers."""

import io
import json
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from urllib3 import HTTPResponse

from ticketlock import LockTable, TableRefused, client_config
from ticketlock.testing import MemoryDynamoDB
from ticketlock.wire import DURABLE, DescribingDurable, TaskAnswer

EXECUTION = "arn:aws:lambda:eu-west-1:123456789012:function:ship:7/durable-execution/order-42/6e1b1b2c"
# An id is opaque; those of AWS are base64.
CALLBACK = "Ab+/cd=="
WAKES = TaskAnswer(f"{DURABLE}{CALLBACK}")
ASKS = DescribingDurable(EXECUTION)
THROTTLED, ENDED, FORGOTTEN = (
    (429, "TooManyRequestsException"),
    (400, "CallbackTimeoutException"),
    (404, "ResourceNotFoundException"),
)


class Lambda:
    """The service, at the end of a client's connection: it gives these answers, one after the other.

    Attributes:
        sent: the requests that it has got.
    """

    def __init__(self, *answers: tuple[int, str | dict[str, Any]], config: Config | None = None) -> None:
        self._answers = list(answers)
        self.sent: list[AWSPreparedRequest] = []
        self.client = boto3.client("lambda", region_name="eu-west-1", config=config or client_config())
        self.client.meta.events.register("before-send.lambda", self._answer)

    def _answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        self.sent.append(request)
        status, told = self._answers.pop(0)
        headers: Any = {"x-amzn-errortype": told} if isinstance(told, str) else {}
        body = {"Message": "refused"} if isinstance(told, str) else told
        raw = HTTPResponse(io.BytesIO(json.dumps(body).encode()), preload_content=False)
        return AWSResponse(request.url, status, headers, raw)

    def is_sent(self, request: Any) -> Any:
        """Perform a request; its answer."""
        table = LockTable("locks", client=MemoryDynamoDB().client, lambda_client=self.client, sleep=lambda _: None)
        return table.perform(request)


def test_a_callback_is_answered_by_its_id_and_an_execution_described_without_its_data() -> None:
    service = Lambda((200, {}), (200, {"Status": "RUNNING"}))
    assert service.is_sent(WAKES).applied
    assert service.is_sent(ASKS).item["Status"] == "RUNNING"
    waking, asking = (urlsplit(each.url) for each in service.sent)
    assert (unquote(waking.path), service.sent[0].body) == (
        f"/2025-12-01/durable-execution-callbacks/{CALLBACK}/succeed",
        b'"woken"',
    )
    assert unquote(asking.path) == f"/2025-12-01/durable-executions/{EXECUTION}"
    assert parse_qs(asking.query) == {"IncludeExecutionData": ["false"]}


@pytest.mark.parametrize("request_", [WAKES, ASKS], ids=["wakes", "asks"])
@pytest.mark.parametrize("answer", [THROTTLED, (500, "ServiceException"), (502, "KMSInvalidStateException")], ids=str)
def test_what_may_pass_is_sent_again(request_: Any, answer: tuple[int, str]) -> None:
    service = Lambda(answer, (200, {"Status": "RUNNING"}))
    assert service.is_sent(request_).applied
    assert len(service.sent) == 2


@pytest.mark.parametrize(("request_", "answer"), [(WAKES, ENDED), (WAKES, FORGOTTEN), (ASKS, FORGOTTEN)], ids=str)
def test_an_execution_that_has_ended_or_is_forgotten_is_a_refusal(request_: Any, answer: tuple[int, str]) -> None:
    assert not Lambda(answer).is_sent(request_).applied


@pytest.mark.parametrize("code", ["InvalidParameterValueException", "AccessDeniedException"])
def test_any_other_answer_is_an_error(code: str) -> None:
    with pytest.raises(TableRefused, match=code):
        Lambda((400, code)).is_sent(WAKES)


@pytest.mark.parametrize("validates", [False, True])
def test_a_boto3_that_cannot_leave_out_an_executions_data_is_sent_them(validates: bool) -> None:
    """Such versions have the operation without its second parameter."""
    service = Lambda((200, {"Status": "STOPPED"}), config=Config(parameter_validation=validates))
    members = service.client.meta.service_model.operation_model("GetDurableExecution").input_shape.members
    del members["IncludeExecutionData"]
    assert service.is_sent(ASKS).item["Status"] == "STOPPED"
    assert urlsplit(service.sent[0].url).query == ""
