"""What can become of a request, and the service's own ways to say no."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

_AT_WORK = "Transaction is ongoing for the item"

Failure = dict[str, Any]
"""An error's reply, as the SDK hands it on."""


class Fault(Enum):
    """What becomes of one request.

    Attributes:
        REQUEST_LOST: it is not applied; there was no connection.
        REPLY_LOST: it is applied, or refused, and nobody hears of it: the time to read the reply is over.
        THROTTLED: it is not applied; there were too many.
        CONFLICT: it is not applied; a transaction was at work on the same item. Meets the next write.
    """

    REQUEST_LOST = "the request is lost"
    REPLY_LOST = "the reply is lost"
    THROTTLED = "the request is throttled"
    CONFLICT = "the request conflicts with a transaction"


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


def cancelled(reasons: list[dict[str, Any]]) -> Refused:
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


def conflicts(at_work: Sequence[bool]) -> Refused:
    """Another transaction is at work on items of a transaction: on which of them."""
    conflict = {"Code": "TransactionConflict", "Message": _AT_WORK}
    return cancelled([conflict if each else {"Code": "None"} for each in at_work])
