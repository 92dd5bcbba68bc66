"""Requests to who runs executions, Step Functions and Lambda: answer a callback, close an execution, describe one.

The callback of a durable execution of Lambda is answered by its id; what is stored begins with ``DURABLE``, so that a
token says which service it belongs to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ticketlock.errors import TableError
from ticketlock.wire._actions import Actions, BrokenReply, Call, HasEnded, Item, StillRunning
from ticketlock.wire._requests import Request

# Step Functions could not use the key of an encrypted execution, for the caller or at all.
_KEY_REFUSES = frozenset({"KmsAccessDeniedException", "KmsInvalidStateException"})
# What a client of an older boto3 raises for a parameter that it does not know, as it checks parameters or not.
_UNKNOWN_PARAMETER = ("KeyError", "ParamValidationError")
DURABLE = "durable:"
"""Begins the token of a durable execution's callback; its id follows."""
_WOKEN = b'"woken"'


@dataclass(frozen=True, slots=True)
class TaskAnswer(Request):
    """The answer to a callback task: success with an output, or failure with an error name and a cause.

    Refused if the task has ended. A durable execution's callback is only ever woken.

    Attributes:
        output: of a success, as JSON.
        patience_ms: for how long to retry at most; None for as long as the driver does.
    """

    may_write: ClassVar[bool] = True
    tells_time: ClassVar[bool] = False

    task_token: str
    error: str | None = None
    cause: str | None = None
    output: str = "{}"
    patience_ms: int | None = None

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The answer."""
        if self.task_token.startswith(DURABLE):
            woken = {"CallbackId": self.task_token.removeprefix(DURABLE), "Result": _WOKEN}
            return (yield from _asked_of_lambda("send_durable_execution_callback_success", woken))
        task = {"taskToken": self.task_token}
        if self.error is None:
            return (yield Call("stepfunctions", "send_task_success", {**task, "output": self.output}))
        answer = {"error": self.error, "cause": self.cause or ""}
        return (yield from _telling("send_task_failure", task, answer))

    def gives_up_after_ms(self, usual_ms: int) -> int:
        """At most its patience."""
        return usual_ms if self.patience_ms is None else min(usual_ms, self.patience_ms)

    def as_shown(self, error: TableError) -> TableError:
        """Without the token, which the service quotes in its refusal."""
        return type(error)(str(error).replace(self.task_token, "..."))


@dataclass(frozen=True, slots=True)
class Closing(Request):
    """Stop an execution, and wait until it is closed.

    Applied once it is seen closed; refused if there is no such execution. While it still runs, it is checked again.
    """

    tells_time: ClassVar[bool] = False

    execution: str

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """Describe it, and stop it unless it is closed already."""
        if not is_closed((yield from _describe(self.execution))):
            over = {"error": "Abandoned", "cause": "the execution that started it is over"}
            yield from _telling("stop_execution", {"executionArn": self.execution}, over)
            if not is_closed((yield from _describe(self.execution))):
                raise StillRunning()
        return {}


@dataclass(frozen=True, slots=True)
class Describing(Request):
    """Describe an execution: the reply's item; refused if there is no such execution.

    Attributes:
        execution: its ARN.
        with_input: whether to ask for its input, too: of an encrypted execution this needs the key.
    """

    tells_time: ClassVar[bool] = False

    execution: str
    with_input: bool = False

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The description."""
        return _describe(self.execution, with_input=self.with_input)

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The description, in the service's format."""
        return (answer,)


@dataclass(frozen=True, slots=True)
class DescribingDurable(Request):
    """Describe a durable execution: the reply's item; refused if Lambda does not know it, or not any more.

    https://docs.aws.amazon.com/lambda/latest/api/API_GetDurableExecution.html
    """

    tells_time: ClassVar[bool] = False

    execution: str

    def calls(self, _table: str, _identity: str) -> Actions[Any]:
        """The description; with a boto3 that cannot leave them out, input and result too."""
        named = {"DurableExecutionArn": self.execution}
        try:
            described = yield from _asked_of_lambda("get_durable_execution", {**named, "IncludeExecutionData": False})
        except Exception as error:
            if type(error).__name__ not in _UNKNOWN_PARAMETER:
                raise
            described = yield from _asked_of_lambda("get_durable_execution", named)
        if "Status" not in described:
            raise BrokenReply()
        return described

    def items(self, answer: Any) -> tuple[Item | None, ...]:
        """The description, in the service's format."""
        return (answer,)


def _asked_of_lambda(operation: str, parameters: Mapping[str, Any]) -> Actions[Any]:
    try:
        return (yield Call("lambda", operation, parameters))
    except Exception as error:
        # Of DynamoDB the same code means that a table is missing.
        if getattr(error, "response", {}).get("Error", {}).get("Code") == "ResourceNotFoundException":
            raise HasEnded from error
        raise


def _telling(operation: str, parameters: Mapping[str, Any], answer: Mapping[str, str]) -> Actions[Any]:
    """Call an operation that tells error and cause; without them if the execution's key refuses to encrypt them.

    https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskFailure.html
    https://docs.aws.amazon.com/step-functions/latest/apireference/API_StopExecution.html
    """
    try:
        return (yield Call("stepfunctions", operation, {**parameters, **answer}))
    except Exception as error:
        # Only the SDK's errors of a service have a response.
        if getattr(error, "response", {}).get("Error", {}).get("Code") not in _KEY_REFUSES:
            raise
    return (yield Call("stepfunctions", operation, parameters))


def is_closed(described: Mapping[str, Any]) -> bool:
    """Whether an execution has ended, by its description; a pending redrive counts as running."""
    return described["status"] in ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")


def _describe(execution: str, *, with_input: bool = False) -> Actions[Any]:
    # Without the data that a key may encrypt no permission on the key is needed:
    # https://docs.aws.amazon.com/step-functions/latest/apireference/API_DescribeExecution.html
    included = "ALL_DATA" if with_input else "METADATA_ONLY"
    asked = {"executionArn": execution, "includedData": included}
    described = yield Call("stepfunctions", "describe_execution", asked)
    if "status" not in described:
        raise BrokenReply()
    return described
