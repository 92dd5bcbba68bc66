"""What a failed task's error says about the work: has it certainly ended, and what was its own error?

The lock may be freed early only if the work has certainly ended. After a time-out, or a failure of a service in
between, a function or an execution may still be running.

Shapes: https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html and
https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
"""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Literal

WorkKind = Literal["function", "execution", "chain", "concurrent"]
"""One function, one nested execution; states one after the other, or several at the same time."""

_CLOSED = frozenset({"FAILED", "TIMED_OUT", "ABORTED", "SUCCEEDED"})

# The work ended without an error of its own, or was never started.
_ENDED_BY_NAME = frozenset(
    {
        "Lambda.Unknown",
        "Lambda.TooManyRequestsException",
        "Lambda.ResourceNotFoundException",
        "Lambda.ResourceNotReadyException",
        "Lambda.CodeArtifactUserPendingException",
        "Lambda.SnapStartNotReadyException",
        "Lambda.InvalidRequestContentException",
        "Lambda.RequestTooLargeException",
        "Sandbox.Timedout",
        "States.DataLimitExceeded",
        "States.QueryEvaluationError",
    }
)
# This try did not start the execution. An earlier one, whose answer was lost, may have.
_START_REFUSED = frozenset(
    {
        "StepFunctions.ExecutionLimitExceeded",
        "StepFunctions.ExecutionLimitExceededException",
        "StepFunctions.InvalidExecutionInputException",
        "StepFunctions.KmsAccessDeniedException",
        "StepFunctions.KmsInvalidStateException",
        "StepFunctions.KmsThrottlingException",
        "StepFunctions.StateMachineDoesNotExistException",
        "StepFunctions.StateMachineDeletingException",
    }
)

# The call failed before the service answered, or with an error that is not in the service's model.
_ON_THE_WAY = (".SdkClientException", ".AWSStepFunctionsException")


def execution_arn(state_machine: str, name: str) -> str:
    """The ARN of the named execution of a state machine, a version or an alias of it."""
    arn, partition, service, region, account, _, machine, *_ = state_machine.split(":")
    return ":".join((arn, partition, service, region, account, "execution", machine, name))


def short_hash(owner: str, digits: int = 8) -> str:
    """A hash that identifies an owner without its name."""
    return hashlib.sha256(owner.encode()).hexdigest()[:digits]


def work_name(owner: str, fencing_token: int) -> str:
    """The name of the nested execution that is the work of one grant: however often it is started, there is only
    one.
    """
    return f"lock-{short_hash(owner, 32)}-{fencing_token}"


def waiting_name(owner: str, continuation: int) -> str:
    """The name of the first, second, ... continuation of a wait."""
    return f"wait-{short_hash(owner, 32)}-{continuation}"


def holding_name(owner: str, fencing_token: int, beats: int) -> str:
    """The name of the continuation of a heartbeat after so many beats."""
    return f"hold-{short_hash(owner, 32)}-{fencing_token}-{beats}"


@dataclass(frozen=True, slots=True)
class WorkFailure:
    """A failure as a Catch passes it: an error name, a cause, and the kind of work that failed."""

    error: str
    cause: str
    kind: WorkKind

    @classmethod
    def parse(cls, caught: Any, kind: WorkKind) -> "WorkFailure":
        """Read what a Catch wrote: ``{"Error": str or null, "Cause": str or null}``, after work of this kind."""
        return cls(str(caught.get("Error") or ""), str(caught.get("Cause") or ""), kind)

    def work_has_ended(self) -> bool:
        """Whether the protected work has certainly ended: it returned an error of its own, is closed, or never
        began.
        """
        if self.kind == "concurrent":
            # One branch failed; others may still be running.
            return False
        if self.error in _ENDED_BY_NAME:
            return True
        cause = self._cause_object()
        if self.kind == "execution":
            # If the description does not say so, perhaps because it was cut off, the caller asks Step Functions.
            return cause.get("Status") in _CLOSED
        if self.kind == "chain":
            if cause.get("Status") in _CLOSED:
                # A state ran a nested execution until it closed.
                return True
            if not self.error.startswith(("States.", "Lambda.")) and not self.error.endswith(_ON_THE_WAY):
                # A function's own error, a service's refusal, or a Fail state.
                return True
        return "errorType" in cause or "errorMessage" in cause

    def start_was_refused(self) -> bool:
        """Whether an execution that the service does not know was never started."""
        return self.error in _START_REFUSED

    def to_report(self) -> "WorkFailure":
        """The failure of the work itself: a nested execution's own error and cause, if they were passed.

        A Fail state may not use a name that begins with ``States.``, which the States Language reserves
        (https://states-language.net/spec.html#error-names): ``States.Timeout`` is reported as ``Work.Timeout``, and a
        failure without a name, as SendTaskFailure may send it, as ``Work.TaskFailed``.
        """
        child = self._cause_object()
        has_own = child.get("Status") in _CLOSED and isinstance(child.get("Error"), str)
        own = WorkFailure.parse(child, self.kind) if has_own else self
        if own.error and not own.error.startswith("States."):
            return own
        return replace(own, error="Work." + (own.error.removeprefix("States.") or "TaskFailed"))

    def _cause_object(self) -> dict[str, Any]:
        try:
            cause = json.loads(self.cause)
        except ValueError:
            return {}
        return cause if isinstance(cause, dict) else {}
