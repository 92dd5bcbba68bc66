"""What can become of a request, and the service's own ways to say no."""

from enum import Enum
from time import gmtime, strftime
from typing import Any

_AT_WORK = "Transaction is ongoing for the item"
# "In most cases, a request must reach AWS within five minutes of the time stamp in the request":
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
_SIGNATURE_VALID_S = 300

Failure = dict[str, Any]
"""An error's reply, as the SDK hands it on."""
Reason = dict[str, Any]
"""Why a transaction is cancelled, as far as one of its items goes."""


class Fault(Enum):
    """What becomes of one request.

    Attributes:
        REQUEST_LOST: it is not applied; there was no connection.
        REPLY_LOST: it is applied, or refused, and nobody hears of it: the time to read the reply is over.
        THROTTLED: it is not applied; there were too many.
        CONFLICT: it is not applied; a transaction was at work on the same item. Meets the next write, or the next
            transaction that reads.
        SIGNATURE_EXPIRED: it is not applied; it arrived more than five minutes after it was signed.
        TOKEN_FORGOTTEN: if it was applied before, it is applied again: the service has forgotten the token of its
            transaction, as it does after ten minutes. Meets the next TransactWriteItems.
    """

    REQUEST_LOST = "the request is lost"
    REPLY_LOST = "the reply is lost"
    THROTTLED = "the request is throttled"
    CONFLICT = "the request conflicts with a transaction"
    SIGNATURE_EXPIRED = "the request's signature has expired"
    TOKEN_FORGOTTEN = "the transaction's token is forgotten"


class Refused(Exception):
    """The service answers with an error.

    Attributes:
        code, message: the error's.
        more: further members of the reply.
    """

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.more = more

    def failure(self) -> Failure:
        """The reply, without what every reply has."""
        return {"Error": {"Code": self.code, "Message": self.message}, "message": self.message, **self.more}


def invalid(message: str) -> Refused:
    """The request itself is wrong."""
    return Refused("ValidationException", message)


def cancelled(reasons: list[Reason]) -> Refused:
    """A transaction that is not applied, with one reason a write."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return Refused("TransactionCanceledException", message, CancellationReasons=reasons)


def throttled() -> Refused:
    """Too many requests."""
    return Refused("ThrottlingException", "Rate of requests exceeds the allowed throughput.")


def conflict() -> Refused:
    """A transaction is at work on the item of a write."""
    return Refused("TransactionConflictException", _AT_WORK)


def conflict_reason() -> Reason:
    """Another transaction is at work on an item of a transaction."""
    return {"Code": "TransactionConflict", "Message": _AT_WORK}


def signature_expired(now_s: int) -> Refused:
    """The request came a second too late, as DynamoDB says it (https://github.com/aws/aws-sdk-js-v3/issues/7605).

    Args:
        now_s: the service's time, seconds since the epoch.
    """
    signed, oldest, now = (_basic(now_s - ago_s) for ago_s in (_SIGNATURE_VALID_S + 1, _SIGNATURE_VALID_S, 0))
    message = f"Signature expired: {signed} is now earlier than {oldest} ({now} - 5 min.)"
    return Refused("InvalidSignatureException", message)


def _basic(at_s: int) -> str:
    return strftime("%Y%m%dT%H%M%SZ", gmtime(at_s))
