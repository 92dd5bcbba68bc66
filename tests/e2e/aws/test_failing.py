"""Work that fails, times out or is stopped: what comes back, and whether the lock is free."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e2e.aws.checked import ERROR, Checked, NotSeen, assumes, details, entity, in_state

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


def _of_nested(checked: Checked, output: str) -> _Failed:
    name = entity("failing")
    arn = checked.start({"entity": name, "task": {"stateMachineArn": checked.outputs[output]}})
    return _ended(checked, name, arn)


def _fails(checked: Checked) -> _Failed:
    return _of_nested(checked, "FailsArn")


def _times_out(checked: Checked) -> _Failed:
    return _of_nested(checked, "TimesOutArn")


def _is_stopped(checked: Checked) -> _Failed:
    name = entity("stopped-work")
    arn = checked.nest(name, 60)
    checked.wait_until_held(name, arn)
    work = checked.nested(arn, name)
    checked.wait_until(lambda: _runs(checked, work), f"the start of {work}")
    checked.step_functions.stop_execution(executionArn=work, error="Stopped", cause="by the checklist")
    return _ended(checked, name, arn)


def _raises(checked: Checked) -> _Failed:
    name = entity("raising")
    arn = checked.start({"entity": name, "task": {"functionArn": checked.outputs["RaisesArn"]}})
    return _ended(checked, name, arn)


def _runs(checked: Checked, arn: str) -> bool:
    try:
        return bool(checked.described(arn)["status"] == "RUNNING")
    except checked.step_functions.exceptions.ExecutionDoesNotExist:
        return False


def _ended(checked: Checked, name: str, arn: str) -> _Failed:
    end = checked.ended(arn)
    if end.status != "FAILED":
        raise NotSeen(f"the execution ended as {end.status}, and its work was to fail")
    is_free = checked.is_free(name)
    events = in_state(checked.history(arn), "StartExecution", "InvokeFunction")
    caught = [details(event) for event in events if event["type"] in ("TaskFailed", "TaskTimedOut")]
    last = caught[-1] if caught else {}
    return _Failed(end.error, last.get("error", ""), _object(last.get("cause", "")), is_free)


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


@assumes(
    assumed="States.TaskFailed, and a cause with Status FAILED",
    link=_NESTED,
    emulator_lacks=_NOT_UNWRAPPED,
)
def test_a_nested_execution_that_fails_says_so_in_the_cause(checked: Checked) -> tuple[bool, str]:
    """Checks the task that ran the work."""
    return _returned(checked.once(_fails), "FAILED")


@assumes(assumed=f"the execution's error is {ERROR}, the work's own; the lock is free", link=_ERRORS)
def test_a_nested_execution_that_fails_frees_the_lock(checked: Checked) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(checked.once(_fails), ERROR)


@assumes(
    assumed="States.TaskFailed, and a cause with Status TIMED_OUT",
    link=_NESTED,
    emulator_lacks=_NO_TIME_OUT,
)
def test_a_nested_execution_that_times_out_says_so_in_the_cause(checked: Checked) -> tuple[bool, str]:
    """Checks the task that ran the work."""
    return _returned(checked.once(_times_out), "TIMED_OUT")


@assumes(
    assumed="Work.Timeout, or Work.TaskFailed if the work's own error is not passed on; the lock is free",
    link=_ERRORS,
    emulator_lacks=_NO_TIME_OUT,
)
def test_a_nested_execution_that_times_out_frees_the_lock(checked: Checked) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(checked.once(_times_out), "Work.Timeout", "Work.TaskFailed")


@assumes(
    assumed="States.TaskFailed, and a cause with Status ABORTED",
    link=_NESTED,
    emulator_lacks=_NOT_UNWRAPPED,
)
def test_a_nested_execution_that_is_stopped_says_so_in_the_cause(checked: Checked) -> tuple[bool, str]:
    """Checks the task that ran the work."""
    return _returned(checked.once(_is_stopped), "ABORTED")


@assumes(
    assumed="the execution's error is Stopped, as the stop named it; the lock is free",
    link=_ERRORS,
    emulator_lacks=_NOT_UNWRAPPED,
)
def test_a_nested_execution_that_is_stopped_frees_the_lock(checked: Checked) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(checked.once(_is_stopped), "Stopped")


@assumes(
    assumed=f"the execution's error is {ERROR}, the name of the exception; the lock is free",
    link="https://docs.aws.amazon.com/lambda/latest/dg/python-exceptions.html",
    emulator_lacks="every exception has one name there",
)
def test_a_function_that_raises_frees_the_lock(checked: Checked) -> tuple[bool, str]:
    """Checks the execution and the lock."""
    return _freed(checked.once(_raises), ERROR)
