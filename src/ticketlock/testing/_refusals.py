"""The errors that the service answers with."""

from functools import cache
from time import gmtime, strftime
from typing import Any

import botocore.session
from botocore.errorfactory import ClientExceptionsFactory
from botocore.exceptions import ClientError

_AT_WORK = "Transaction is ongoing for the item"
# "In most cases, a request must reach AWS within five minutes of the time stamp in the request":
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
_SIGNATURE_VALID_S = 300

ErrorResponse = dict[str, Any]
"""The reply of an error, as the SDK returns it."""
Reason = dict[str, Any]
"""The reason, for one of its items, why a transaction is cancelled."""


class Refused(Exception):
    """The service answers with an error.

    Attributes:
        code, message: those of the error.
        more: further members of the reply.
    """

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.more = more

    def failure(self) -> ErrorResponse:
        """The reply, without the parts that every reply has."""
        return {"Error": {"Code": self.code, "Message": self.message}, "message": self.message, **self.more}


@cache
def exceptions() -> Any:
    """The classes of a client's errors."""
    model = botocore.session.get_session().get_service_model("dynamodb")
    return ClientExceptionsFactory().create_client_exceptions(model)


def error_of(reply: Any, operation: str) -> ClientError:
    """What a client raises for the reply of an error."""
    error: ClientError = exceptions().from_code(reply.get("Error", {}).get("Code"))(reply, operation)
    return error


def invalid(message: str) -> Refused:
    """The request itself is invalid."""
    return Refused("ValidationException", message)


class Mismatched(Refused):
    """A key or an item does not match its table: alone an error, in a transaction the reason of its cancellation."""


def mismatched(message: str) -> Refused:
    """The key or the item of a request does not match its table."""
    return Mismatched("ValidationException", message)


def cancelled(reasons: list[Reason]) -> Refused:
    """A transaction that is not applied, with one reason for each write."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return Refused("TransactionCanceledException", message, CancellationReasons=reasons)


def throttled() -> Refused:
    """Too many requests."""
    return Refused("ThrottlingException", "Rate of requests exceeds the allowed throughput.")


def throughput_exceeded() -> Refused:
    """Too many requests for a table's provisioned capacity."""
    message = (
        "The level of configured provisioned throughput for the table was exceeded. Consider increasing your "
        "provisioning level with the UpdateTable API."
    )
    return Refused("ProvisionedThroughputExceededException", message)


def access_denied(action: str, table: str) -> Refused:
    """The caller may not do this to the table."""
    message = (
        f"User: arn:aws:iam::123456789012:user/test is not authorized to perform: dynamodb:{action} on resource: "
        f"arn:aws:dynamodb:us-east-1:123456789012:table/{table} because no identity-based policy allows the "
        f"dynamodb:{action} action"
    )
    return Refused("AccessDeniedException", message)


def server_error() -> Refused:
    """The service itself has failed; its reply has the status 500."""
    return Refused("InternalServerError", "Internal server error")


def conflict() -> Refused:
    """A transaction is in progress on the item of a write."""
    return Refused("TransactionConflictException", _AT_WORK)


def conflict_reason() -> Reason:
    """Another transaction is in progress on an item of a transaction."""
    return {"Code": "TransactionConflict", "Message": _AT_WORK}


def signature_expired(now_s: int) -> Refused:
    """The request arrived a second too late, in DynamoDB's words (https://github.com/aws/aws-sdk-js-v3/issues/7605).

    Args:
        now_s: the service's time, seconds since the epoch.
    """
    signed, oldest, now = (_basic(now_s - ago_s) for ago_s in (_SIGNATURE_VALID_S + 1, _SIGNATURE_VALID_S, 0))
    message = f"Signature expired: {signed} is now earlier than {oldest} ({now} - 5 min.)"
    return Refused("InvalidSignatureException", message)


def _basic(at_s: int) -> str:
    return strftime("%Y%m%dT%H%M%SZ", gmtime(at_s))
