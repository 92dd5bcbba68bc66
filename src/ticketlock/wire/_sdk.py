"""What the SDK's clients must be like, and what their errors mean for a request: refused, not applied or unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
)
from botocore.validate import ParamValidator

from ticketlock.errors import InvalidLockRequest, TableError, TableNotFound, TableRefused
from ticketlock.wire._requests import InconclusiveAnswer, Refusal

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

CONNECT_TIMEOUT_S = 1.0
READ_TIMEOUT_S = 2.0
CLIENT_SETTINGS: Mapping[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "read_timeout": READ_TIMEOUT_S,
    # For as many threads that look at once.
    "max_pool_connections": 50,
    # What is sent is made by ticketlock, from values that it has checked.
    "parameter_validation": False,
    "retries": {"total_max_attempts": 1, "mode": "standard"},
}


def make_client(**overrides: Any) -> "DynamoDBClient":
    """A DynamoDB client as the protocol wants it: short time-outs, no retries of its own.

    Args:
        overrides: further arguments of ``boto3.client``, for example ``endpoint_url`` and ``region_name``.
    """
    return boto3.client("dynamodb", **{"config": _config(), **overrides})


def make_step_functions_client() -> "SFNClient":
    """A Step Functions client of the same kind."""
    return boto3.client("stepfunctions", config=_config())


def _config() -> Config:
    return Config(**CLIENT_SETTINGS)


def check_client(client: "DynamoDBClient") -> None:
    """Refuse a client that would repeat requests by itself or hang for long.

    Raises:
        ValueError: says which setting, and what it should be.
    """
    config: Any = client.meta.config
    attempts = (config.retries or {}).get("total_max_attempts")
    if attempts != 1:
        raise ValueError(
            f"the client makes up to {attempts or 'several'} attempts a request; ticketlock repeats requests itself: "
            "give it Config(retries={'total_max_attempts': 1})"
        )
    for setting, value, most in (
        ("connect_timeout", config.connect_timeout, 5),
        ("read_timeout", config.read_timeout, 5),
    ):
        if value is None or value > most:
            raise ValueError(
                f"the client's {setting} is {value} s; a hung request must end before a lease does: "
                f"give it Config({setting}=...) of at most {most} s"
            )


def check_items(client: Any, items: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what is no list of items of a TransactWriteItems.

    Raises:
        InvalidLockRequest: says which parameter is wrong.
    """
    model = getattr(client.meta, "service_model", None)
    if model is None:
        return
    shape = model.operation_model("TransactWriteItems").input_shape
    report = ParamValidator().validate({"TransactItems": items}, shape)
    if report.has_errors():
        raise InvalidLockRequest("items", f"{len(items)} items", report.generate_report())


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The request failed in a way that may pass.

    Attributes:
        perhaps_applied: False when it is certain that nothing was written.
    """

    perhaps_applied: bool


_NOT_APPLIED = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "Throttling",
        "TransactionConflictException",
        "ReplicatedWriteConflictException",
    }
)
# The callback task has timed out, or its execution has ended: nobody waits for the answer.
_TASK_IS_GONE = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})
_EXECUTION_IS_UNKNOWN = "ExecutionDoesNotExist"
_TRANSIENT_REASONS = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})
_NOT_SENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
_BROKEN_OFF = (HTTPClientError, IncompleteReadError, SSLError)
_UNUSABLE = (NoCredentialsError, PartialCredentialsError, NoRegionError)


def meaning(error: BotoCoreError | ClientError | InconclusiveAnswer) -> Refusal | TryAgain | TableError:
    """What an error of the SDK says about the request that raised it."""
    if isinstance(error, ClientError):
        return _meaning_of_answer(error)
    if isinstance(error, InconclusiveAnswer):
        return TryAgain(error.perhaps_applied)
    if isinstance(error, _NOT_SENT):
        return TryAgain(perhaps_applied=False)
    if isinstance(error, _BROKEN_OFF):
        return TryAgain(perhaps_applied=True)
    if isinstance(error, _UNUSABLE):
        return TableRefused(f"{error}: configure the AWS credentials and Region of this process")
    return TableRefused(str(error))


def _meaning_of_answer(error: ClientError) -> Refusal | TryAgain | TableError:
    response: Any = error.response
    code = response.get("Error", {}).get("Code", "")
    if code == "ConditionalCheckFailedException":
        return Refusal((True,), (response.get("Item"),))
    if code == "TransactionCanceledException":
        reasons = response.get("CancellationReasons", [])
        codes = [reason.get("Code") for reason in reasons]
        if "ConditionalCheckFailed" in codes:
            refused = tuple(code == "ConditionalCheckFailed" for code in codes)
            return Refusal(refused, tuple(reason.get("Item") or None for reason in reasons))
        if _TRANSIENT_REASONS.intersection(codes):
            return TryAgain(perhaps_applied=False)
        return TableRefused(f"the transaction was cancelled: {', '.join(map(str, codes))}")
    if code in _TASK_IS_GONE or code == _EXECUTION_IS_UNKNOWN:
        return Refusal((True,), (None,))
    if code in _NOT_APPLIED:
        return TryAgain(perhaps_applied=False)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500 or code == "TransactionInProgressException" or _has_broken_off(response):
        return TryAgain(perhaps_applied=True)
    if code == "ResourceNotFoundException":
        return TableNotFound("there is no table of that name in this account and Region")
    return TableRefused(f"{code}: {response.get('Error', {}).get('Message', '')}")


def _has_broken_off(response: Any) -> bool:
    """Whether an error's reply ends before its end: the SDK hands on what has come of it as the message."""
    error, head = response.get("Error", {}), response.get("ResponseMetadata", {})
    message = error.get("Message", "")
    if error.get("Code") != str(head.get("HTTPStatusCode")) or message[:1] not in ("", "{"):
        return False
    return len(message.encode()) < int(head.get("HTTPHeaders", {}).get("content-length", 0))


def date_ms(response: Any) -> int | None:
    """The service's Date in a reply or an error's reply, in milliseconds since the epoch."""
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    date = headers.get("date")
    return int(parsedate_to_datetime(date).timestamp()) * 1_000 if date else None
