"""What is used of AWS's SDK for durable functions, all of it public.

https://github.com/aws/aws-durable-execution-sdk-python
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from ticketlock._checks import text
from ticketlock.errors import InvalidLockRequest, TableError

_NEEDED = "3.0.0 or newer of aws-durable-execution-sdk-python, as `pip install ticketlock[durable]` brings it"

try:
    from aws_durable_execution_sdk_python import __version__ as _version
    from aws_durable_execution_sdk_python.config import CallbackConfig, ChildConfig, Duration, StepConfig
    from aws_durable_execution_sdk_python.exceptions import (
        CallbackError,
        ExecutionError,
        InvocationError,
        OrphanedChildException,
        StepError,
        SuspendExecution,
        TimedSuspendExecution,
    )
    from aws_durable_execution_sdk_python.retries import RetryDecision
    from aws_durable_execution_sdk_python.serdes import ExtendedTypeSerDes, JsonSerDes, SerDes, SerDesContext
    from aws_durable_execution_sdk_python.types import DurableContext, StepContext
except ImportError as error:
    raise ImportError(f"ticketlock.durable needs {_NEEDED}: {error}") from error

if int(_version.partition(".")[0]) < 3:
    raise ImportError(f"ticketlock.durable needs {_NEEDED}")

__all__ = [
    "CallbackConfig",
    "CallbackError",
    "DurableContext",
    "Duration",
    "ExecutionError",
    "InvocationError",
    "OrphanedChildException",
    "StepConfig",
    "StepContext",
    "StepError",
    "SuspendExecution",
    "TimedSuspendExecution",
]

_NAME_CHARACTERS = 256
# The longest suffix of an operation's name, with the number of a turn.
_FOR_ENDINGS = 24
_RETRIES = 8
_LONGEST_RETRY_S = 60
_ID_DIGITS = 24
_NOT_SHOWN = re.compile(r"[^\x20-\x7e]")


def check_context(context: Any) -> None:
    """Refuse what is no context of a durable function.

    Raises:
        InvalidLockRequest: it is none.
    """
    if not hasattr(context, "execution_context") or not hasattr(context, "run_in_child_context"):
        allowed = (
            "the context of a durable function: the second argument of a handler with @durable_execution, or the "
            "context that a branch gets"
        )
        raise InvalidLockRequest("context", repr(context), allowed)


def operation_name(entity: str, name: str | None) -> str:
    """The beginning of the names of a hold's operations: what Lambda takes, and shows, for any entity.

    Raises:
        InvalidLockRequest: ``name`` is none that Lambda takes.
    """
    most = _NAME_CHARACTERS - _FOR_ENDINGS
    if name is None:
        return as_shown(f"lock {entity}")[:most]
    check_name(name, most)
    return name


def as_shown(name: str) -> str:
    """A name that Lambda takes, of any text."""
    return quote(name, safe=" !#$&()*+,-./:;<=>?@[]^_{|}~")[:_NAME_CHARACTERS]


def check_name(name: str, most: int = _NAME_CHARACTERS) -> None:
    """Refuse a name that Lambda does not take.

    https://docs.aws.amazon.com/lambda/latest/api/API_OperationUpdate.html
    """
    text("name", name, most)
    if _NOT_SHOWN.search(name):
        raise InvalidLockRequest("name", name, "printable ASCII characters: Lambda takes no others")


def is_cut_off(context: Any) -> bool:
    """Whether Lambda takes no more operations of this invocation: the execution is paused, or has failed at a quota."""
    # An error here would take the place of the suspension, and fail the execution.
    return bool(getattr(getattr(context, "state", None), "is_checkpoint_token_revoked", False))


class _OfOperation(SerDes[str]):
    """Tells the id of its operation: a virtual child context is never checkpointed, but its result is serialised."""

    def serialize(self, _value: str, serdes_context: SerDesContext) -> str:
        return serdes_context.operation_id

    def deserialize(self, data: str, _context: SerDesContext) -> str:
        return data


def operation_id(context: Any) -> str:
    """An identity that is the same at each replay, and of no other operation of the execution."""
    config: ChildConfig[str] = ChildConfig(is_virtual=True, serdes=_OfOperation())
    found: str = context.run_in_child_context(lambda _: "", config=config)
    return found[:_ID_DIGITS]


def _patiently(error: Exception, attempt: int) -> RetryDecision:
    wait = Duration.from_seconds(min(_LONGEST_RETRY_S, 2**attempt))
    return RetryDecision(should_retry=isinstance(error, TableError) and attempt <= _RETRIES, delay=wait)


# Without the SDK's own retries: a bug would keep the lock for minutes.
OURS: StepConfig = StepConfig(retry_strategy=_patiently, serdes=JsonSerDes(), sub_type="TicketLock")
"""Of the steps that ask the lock table."""


class OrLost(SerDes[Any]):
    """A step's result, or why its lock was lost.

    Args:
        inner: for the result; None for the SDK's own.
    """

    def __init__(self, inner: SerDes[Any] | None) -> None:
        # The class ships no type for its making.
        of_the_sdk: Callable[[], SerDes[Any]] = ExtendedTypeSerDes
        self._inner = inner if inner is not None else of_the_sdk()

    def serialize(self, value: Any, serdes_context: SerDesContext) -> str:
        """As an object of JSON; the result as its own serialisation."""
        if "lost" in value:
            return json.dumps(value)
        return json.dumps({"done": self._inner.serialize(value["done"], serdes_context)})

    def deserialize(self, data: str, serdes_context: SerDesContext) -> Any:
        """The reverse."""
        found = json.loads(data)
        # The SDK takes None for a result without data.
        if found.get("done") is None:
            return found
        return {"done": self._inner.deserialize(found["done"], serdes_context)}


def with_outcome(config: StepConfig | None) -> StepConfig:
    """A step's configuration, for a body whose result is told apart from a loss."""
    given = config if config is not None else StepConfig()
    return replace(given, serdes=OrLost(given.serdes))


def raised_again(failed: StepError, errors: Callable[[str], type[Exception] | None]) -> Exception:
    """The error of ours that a step of ours has failed with, or the step's own."""
    kind = errors(failed.error_type.rpartition(".")[2]) if failed.error_type.startswith("ticketlock.") else None
    return failed if kind is None else kind(failed.message or "")
