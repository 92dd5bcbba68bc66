"""Executions that fail, time out, are stopped or redriven: what is said of them, and that the lock is free soon."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError
from e2e.aws.checked import ERROR, LEASE_S, Checked, NotSeen, assumes, details, entity, in_state

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


Failing = Callable[[Checked], _Failed]
_NOT_UNWRAPPED = "it passes a nested execution's own error on; AWS says States.TaskFailed"
_NO_TIME_OUT = "it does not end executions at their own time-outs"


def _tells(failing: Failing, status: str, emulator_lacks: str) -> Callable[..., None]:
    """The test that the task that ran the work fails by this name, with the work's status in its cause."""

    @assumes(
        assumed=f"States.TaskFailed, and a cause with Status {status}", link=_NESTED, emulator_lacks=emulator_lacks
    )
    def observe(checked: Checked) -> tuple[bool, str]:
        failed = checked.once(failing)
        if not failed.caught:
            raise NotSeen(f"the history has no failure of the task; the execution failed with {failed.error}")
        found, names = failed.cause.get("Status"), ", ".join(failed.cause) or "nothing"
        what = f"{failed.caught}, Status {found}; the cause has {names}"
        return (failed.caught, found) == ("States.TaskFailed", status), what

    return observe


def _frees(
    failing: Failing, *errors: str, assumed: str, link: str = _ERRORS, emulator_lacks: str = ""
) -> Callable[..., None]:
    """The test that the execution fails with one of these errors, and the lock is free."""

    @assumes(assumed=f"{assumed}; the lock is free", link=link, emulator_lacks=emulator_lacks)
    def observe(checked: Checked) -> tuple[bool, str]:
        failed = checked.once(failing)
        free = "the lock is free" if failed.is_free else "THE LOCK IS NOT FREE"
        return failed.error in errors and failed.is_free, f"{failed.error}; {free}"

    return observe


test_a_nested_execution_that_fails_says_so_in_the_cause = _tells(_fails, "FAILED", _NOT_UNWRAPPED)
test_a_nested_execution_that_fails_frees_the_lock = _frees(
    _fails, ERROR, assumed=f"the execution's error is {ERROR}, the work's own"
)
test_a_nested_execution_that_times_out_says_so_in_the_cause = _tells(_times_out, "TIMED_OUT", _NO_TIME_OUT)
test_a_nested_execution_that_times_out_frees_the_lock = _frees(
    _times_out,
    "Work.Timeout",
    "Work.TaskFailed",
    assumed="Work.Timeout, or Work.TaskFailed if the work's own error is not passed on",
    emulator_lacks=_NO_TIME_OUT,
)
test_a_nested_execution_that_is_stopped_says_so_in_the_cause = _tells(_is_stopped, "ABORTED", _NOT_UNWRAPPED)
test_a_nested_execution_that_is_stopped_frees_the_lock = _frees(
    _is_stopped,
    "Stopped",
    assumed="the execution's error is Stopped, as the stop named it",
    emulator_lacks=_NOT_UNWRAPPED,
)
test_a_function_that_raises_frees_the_lock = _frees(
    _raises,
    ERROR,
    assumed=f"the execution's error is {ERROR}, the name of the exception",
    link="https://docs.aws.amazon.com/lambda/latest/dg/python-exceptions.html",
    emulator_lacks="every exception has one name there",
)


_EVENTS = "https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html"
_REDRIVE = "https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html"
_OF_ITS_OWN = "its events differ from AWS's"


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A holder and the waiter behind it, stopped one after the other, and a third execution behind both.

    Attributes:
        holder, waiter: their ARNs.
        details: the details of their events, by ARN.
        row_gone_s: from the stop of the waiter until its row was gone.
        handed_over_s: from the stop of the holder to the hold of the third execution.
    """

    holder: str
    waiter: str
    details: Mapping[str, Mapping[str, Any]]
    row_gone_s: float
    handed_over_s: float


def _stopped(checked: Checked) -> _Stopped:
    name = entity("stopped")
    holder = checked.nest(name, 3 * LEASE_S)
    checked.wait_until_held(name, holder)
    waiter = checked.sleep(name)
    checked.wait_until_queued(name, waiter)
    behind = checked.sleep(name)
    checked.wait_until_queued(name, waiter, behind)
    began = time.monotonic()
    checked.step_functions.stop_execution(executionArn=waiter, error="Stopped", cause="by the checklist")
    checked.wait_until_queued(name, behind)
    row_gone_s = time.monotonic() - began
    checked.step_functions.stop_execution(executionArn=holder, error="Stopped", cause="by the checklist")
    checked.ended(holder)
    stopped_ms = checked.described(holder)["stopDate"].timestamp() * 1_000
    checked.ended(behind)
    held_ms = checked.story(behind).held_from_ms
    if held_ms is None:
        raise NotSeen(f"{behind} never held the lock")
    told = {arn: checked.ends_told(arn)[0] for arn in (holder, waiter)}
    return _Stopped(holder, waiter, told, row_gone_s, (held_ms - stopped_ms) / 1_000)


def _tells_of(stopped: Callable[[_Stopped], str]) -> Callable[..., None]:
    """The test that the event of one that was stopped tells error and redrives: without, the clean-up uses stopDate."""

    @assumes(
        assumed="the detail has status ABORTED, error and redriveCount 0", link=_EVENTS, emulator_lacks=_OF_ITS_OWN
    )
    def observe(checked: Checked) -> tuple[bool, str]:
        found = checked.once(_stopped)
        detail = found.details[stopped(found)]
        there = [f"{name} {detail[name]!r}" for name in ("status", "error", "redriveCount") if name in detail]
        as_assumed = (detail.get("status"), detail.get("error"), detail.get("redriveCount")) == (
            "ABORTED",
            "Stopped",
            0,
        )
        return as_assumed, f"{', '.join(there)}; all of it: {', '.join(sorted(detail))}"

    return observe


def _is_soon(delay_s: Callable[[_Stopped], float]) -> Callable[..., None]:
    """The test that the clean-up does something well before the lease is over."""

    @assumes(
        assumed=f"well before the lease of {LEASE_S} s is over: within {LEASE_S // 2} s",
        link=_EVENTS,
        emulator_lacks="its events come at once",
    )
    def observe(checked: Checked) -> tuple[bool, str]:
        took_s = delay_s(checked.once(_stopped))
        return took_s < LEASE_S / 2, f"{took_s:.1f} s"

    return observe


test_the_event_of_a_stopped_holder_tells_error_and_redrives = _tells_of(lambda stopped: stopped.holder)
test_the_event_of_a_stopped_waiter_tells_error_and_redrives = _tells_of(lambda stopped: stopped.waiter)
test_the_clean_up_removes_a_stopped_waiter_before_its_lease_ends = _is_soon(lambda stopped: stopped.row_gone_s)
test_the_next_in_line_holds_soon_after_a_holder_was_stopped = _is_soon(lambda stopped: stopped.handed_over_s)


@assumes(
    assumed="it fails again, with LockLost; its lock is free",
    link=_REDRIVE,
    emulator_lacks="it redrives no execution as AWS does",
)
def test_a_redriven_hold_fails_with_lock_lost(checked: Checked) -> tuple[bool, str]:
    """Redrive an execution that was stopped while it held, after the clean-up."""
    name = entity("redriven")
    arn = checked.nest(name, 3 * LEASE_S)
    checked.wait_until_held(name, arn)
    checked.step_functions.stop_execution(executionArn=arn)
    checked.wait_until(lambda: checked.is_free(name), "the lock of the stopped execution to be free")
    try:
        checked.step_functions.redrive_execution(executionArn=arn)
    except ClientError as error:
        raise NotSeen(f"it was not redriven: {error}") from error
    end, is_free = checked.ended(arn, 3 * LEASE_S), checked.is_free(name)
    free = "the lock is not held" if is_free else "THE LOCK IS HELD"
    return end.error == "LockLost" and is_free, f"{end.status} {end.error}; {free}"
