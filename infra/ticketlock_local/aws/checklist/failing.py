"""Work that fails, times out or is stopped: what comes back, and whether the lock is free."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock.workflow._failures import execution_arn, work_name
from ticketlock_local.aws.checking import check
from ticketlock_local.aws.deployed import Deployed, details, entity, in_state
from ticketlock_local.aws.names import ERROR
from ticketlock_local.aws.seen import NotSeen

_NESTED = "https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html"
_ERRORS = "https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html"


@dataclass(frozen=True, slots=True)
class _Failed:
    """An execution whose work did not succeed.

    Attributes:
        error: the execution's error.
        caught: the error of the task that ran the work; empty if the history does not have it.
        cause: the cause of that error, as an object; empty if it is not one.
        is_free: whether the lock was free afterwards.
    """

    error: str
    caught: str
    cause: Mapping[str, Any]
    is_free: bool


def _of_nested(deployed: Deployed, output: str) -> _Failed:
    name = entity("failing")
    arn = deployed.start(name, {"stateMachineArn": deployed.outputs[output]})
    return _ended(deployed, name, arn)


def _fails(deployed: Deployed) -> _Failed:
    return _of_nested(deployed, "FailsArn")


def _times_out(deployed: Deployed) -> _Failed:
    return _of_nested(deployed, "TimesOutArn")


def _is_stopped(deployed: Deployed) -> _Failed:
    name = entity("stopped-work")
    arn = deployed.nest(name, 60)
    token = deployed.until_held(name, arn)
    work = execution_arn(deployed.outputs["WaitsArn"], work_name(arn, token))
    deployed.wait_for(lambda: _runs(deployed, work), f"the start of {work}")
    deployed.step_functions.stop_execution(executionArn=work, error="Stopped", cause="by the checklist")
    return _ended(deployed, name, arn)


def _raises(deployed: Deployed) -> _Failed:
    name = entity("raising")
    return _ended(deployed, name, deployed.start(name, {"functionArn": deployed.outputs["RaisesArn"]}))


def _runs(deployed: Deployed, arn: str) -> bool | None:
    try:
        return bool(deployed.step_functions.describe_execution(executionArn=arn)["status"] == "RUNNING")
    except deployed.step_functions.exceptions.ExecutionDoesNotExist:
        return None


def _ended(deployed: Deployed, name: str, arn: str) -> _Failed:
    end = deployed.ended(arn)
    if end["status"] != "FAILED":
        raise NotSeen(f"the execution ended as {end['status']}, and its work was to fail")
    is_free = deployed.is_free(name)
    events = in_state(deployed.history(arn), "StartExecution", "InvokeFunction")
    caught = [details(event) for event in events if event["type"] in ("TaskFailed", "TaskTimedOut")]
    last = caught[-1] if caught else {}
    return _Failed(end.get("error", ""), last.get("error", ""), _object(last.get("cause", "")), is_free)


def _object(cause: str) -> Mapping[str, Any]:
    try:
        found = json.loads(cause)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _returned(failed: _Failed, status: str) -> tuple[bool, str]:
    if not failed.caught:
        raise NotSeen(f"the history has no failure of the task; the execution failed with {failed.error}")
    what = f"{failed.caught}, Status {failed.cause.get('Status')}; the cause has {', '.join(failed.cause) or 'nothing'}"
    return (failed.caught, failed.cause.get("Status")) == ("States.TaskFailed", status), what


def _freed(failed: _Failed, *errors: str) -> tuple[bool, str]:
    free = "the lock is free" if failed.is_free else "THE LOCK IS NOT FREE"
    return failed.error in errors and failed.is_free, f"{failed.error}; {free}"


_NOT_UNWRAPPED = "it passes a nested execution's own error on; AWS says States.TaskFailed"
_NO_TIME_OUT = "it does not end executions at their own time-outs"


@check(
    assumed="States.TaskFailed, and a cause with Status FAILED",
    link=_NESTED,
    emulator_lacks=_NOT_UNWRAPPED,
)
def a_nested_execution_that_fails_says_so_in_the_cause(deployed: Deployed) -> tuple[bool, str]:
    """Checks the task that ran the work."""
    return _returned(deployed.once(_fails), "FAILED")


@check(assumed=f"the execution's error is {ERROR}, the work's own; the lock is free", link=_ERRORS)
def a_nested_execution_that_fails_frees_the_lock(deployed: Deployed) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(deployed.once(_fails), ERROR)


@check(
    assumed="States.TaskFailed, and a cause with Status TIMED_OUT",
    link=_NESTED,
    emulator_lacks=_NO_TIME_OUT,
)
def a_nested_execution_that_times_out_says_so_in_the_cause(deployed: Deployed) -> tuple[bool, str]:
    """Checks the task that ran the work."""
    return _returned(deployed.once(_times_out), "TIMED_OUT")


@check(
    assumed="Work.Timeout, or Work.TaskFailed if the work's own error is not passed on; the lock is free",
    link=_ERRORS,
    emulator_lacks=_NO_TIME_OUT,
)
def a_nested_execution_that_times_out_frees_the_lock(deployed: Deployed) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(deployed.once(_times_out), "Work.Timeout", "Work.TaskFailed")


@check(
    assumed="States.TaskFailed, and a cause with Status ABORTED",
    link=_NESTED,
    emulator_lacks=_NOT_UNWRAPPED,
)
def a_nested_execution_that_is_stopped_says_so_in_the_cause(deployed: Deployed) -> tuple[bool, str]:
    """Checks the task that ran the work."""
    return _returned(deployed.once(_is_stopped), "ABORTED")


@check(
    assumed="the execution's error is Stopped, as the stop named it; the lock is free",
    link=_ERRORS,
    emulator_lacks=_NOT_UNWRAPPED,
)
def a_nested_execution_that_is_stopped_frees_the_lock(deployed: Deployed) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(deployed.once(_is_stopped), "Stopped")


@check(
    assumed=f"the execution's error is {ERROR}, the name of the exception; the lock is free",
    link="https://docs.aws.amazon.com/lambda/latest/dg/python-exceptions.html",
    emulator_lacks="every exception has one name there",
)
def a_function_that_raises_frees_the_lock(deployed: Deployed) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(deployed.once(_raises), ERROR)
