"""Errors of ``unit.client``: each is one of ours, and also of the class that the SDK's client raises in its place.

botocore makes the classes of a client's errors at run time, one set for each session, so ours are made for them.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from botocore.exceptions import ClientError

from ticketlock._expressions import ExpressionInvalid, ItemInvalid
from ticketlock.errors import InvalidUnitRequest, ItemTooLarge, TicketLockError


def as_of_client(
    error: TicketLockError, exceptions: Any, operation: str, response: Mapping[str, Any]
) -> TicketLockError:
    """The error with the service's reply.

    Args:
        error: ours; its class and attributes stay, and its message follows the client's.
        exceptions: of the SDK's client.
        operation: its name in the API, for example ``PutItem``.
        response: the parsed reply; its code decides the client's class.
    """
    code, message = response["Error"]["Code"], response["Error"].get("Message", "")
    ours = str(error)
    message_of_ours = ours if ours.startswith(message) else f"{message}: {ours}"
    attributes = {**vars(error), "response": response, "operation_name": operation}
    args = (f"An error occurred ({code}) when calling the {operation} operation: {message_of_ours}",)
    return _made(type(error), exceptions.from_code(code), args, attributes)


def invalid(error: TicketLockError, *, is_update: bool) -> str | None:
    """What DynamoDB would say of a request, or of a new value, that it refuses as invalid; None of another error."""
    if isinstance(error, ItemTooLarge) and error.phase == "statement":
        return f"Item size{' to update' if is_update else ''} has exceeded the maximum allowed size"
    if not isinstance(error, InvalidUnitRequest) or error.is_of_units:
        return None
    cause = error.__cause__
    return cause.message if isinstance(cause, ExpressionInvalid | ItemInvalid) else str(error)


def _made(ours: Any, theirs: Any, args: tuple[object, ...], attributes: Mapping[str, Any]) -> TicketLockError:
    kind = _both(ours, theirs)
    error: TicketLockError = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


@lru_cache
def _both(ours: Any, theirs: Any) -> Any:
    # The name is also an error name of state machines.
    named = {"__module__": ours.__module__, "__qualname__": ours.__qualname__, "__doc__": ours.__doc__}
    return type(ours.__name__, (ours, theirs), {**named, "__reduce__": _reduced})


def _reduced(error: TicketLockError) -> tuple[object, ...]:
    # As botocore's own: another process has other classes, and only their base is the same.
    return _made, (type(error).__bases__[0], ClientError, error.args, vars(error))
