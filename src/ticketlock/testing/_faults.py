"""What can become of a request, and the service's own ways to say no."""

from enum import Enum
from typing import Any

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


class ItemInvalid(Exception):
    """An update does not fit the item that it found: an error of its own, or the reason of a transaction's."""


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


def conflict(writes: int | None) -> Refused:
    """Another transaction is at work: said to a single write (None), or to a transaction of so many writes."""
    if writes is None:
        return Refused("TransactionConflictException", "Transaction is ongoing for the item")
    first = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
    return cancelled([first, *({"Code": "None"} for _ in range(writes - 1))])
