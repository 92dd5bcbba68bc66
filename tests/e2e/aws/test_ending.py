"""Stopped executions: the event, the clean-up, and a redrive."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError
from e2e.aws.checked import LEASE_S, Checked, NotSeen, assumes, entity

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
    return _Stopped(holder, waiter, _details(checked, holder, waiter), row_gone_s, (held_ms - stopped_ms) / 1_000)


def _details(checked: Checked, *arns: str) -> Mapping[str, Mapping[str, Any]]:
    """EventBridge's events of these executions, which a rule of the stack sends to a queue."""
    sqs, url = checked.client("sqs"), checked.outputs["EndsQueueUrl"]
    found: dict[str, Mapping[str, Any]] = {}

    def all_told() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2).get("Messages", []):
            detail = json.loads(message["Body"])["detail"]
            found[detail["executionArn"]] = detail
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return all(arn in found for arn in arns)

    checked.wait_until(all_told, "the events of the stopped executions", 60.0)
    return found


def _told(detail: Mapping[str, Any]) -> tuple[bool, str]:
    there = [f"{name} {detail[name]!r}" for name in ("status", "error", "redriveCount") if name in detail]
    as_assumed = (detail.get("status"), detail.get("error"), detail.get("redriveCount")) == ("ABORTED", "Stopped", 0)
    return as_assumed, f"{', '.join(there)}; all of it: {', '.join(sorted(detail))}"


@assumes(assumed="the detail has status ABORTED, error and redriveCount 0", link=_EVENTS, emulator_lacks=_OF_ITS_OWN)
def test_the_event_of_a_stopped_holder_tells_error_and_redrives(checked: Checked) -> tuple[bool, str]:
    """Read the events. Without redriveCount the clean-up uses stopDate."""
    stopped = checked.once(_stopped)
    return _told(stopped.details[stopped.holder])


@assumes(assumed="the detail has status ABORTED, error and redriveCount 0", link=_EVENTS, emulator_lacks=_OF_ITS_OWN)
def test_the_event_of_a_stopped_waiter_tells_error_and_redrives(checked: Checked) -> tuple[bool, str]:
    """Reads what EventBridge brought."""
    stopped = checked.once(_stopped)
    return _told(stopped.details[stopped.waiter])


@assumes(
    assumed=f"well before the lease of {LEASE_S} s is over: within {LEASE_S // 2} s",
    link=_EVENTS,
    emulator_lacks="its events come at once",
)
def test_the_clean_up_removes_a_stopped_waiter_before_its_lease_ends(checked: Checked) -> tuple[bool, str]:
    """Measure from the stop until the row was gone."""
    delay_s = checked.once(_stopped).row_gone_s
    return delay_s < LEASE_S / 2, f"{delay_s:.1f} s"


@assumes(
    assumed=f"well before the lease of {LEASE_S} s is over: within {LEASE_S // 2} s",
    link=_EVENTS,
    emulator_lacks="its events come at once",
)
def test_the_next_in_line_holds_soon_after_a_holder_was_stopped(checked: Checked) -> tuple[bool, str]:
    """Measure from the stop to the next hold; the nested work is stopped in between."""
    delay_s = checked.once(_stopped).handed_over_s
    return delay_s < LEASE_S / 2, f"{delay_s:.1f} s"


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
    end = checked.ended(arn, 3 * LEASE_S)
    free = "the lock is not held" if checked.is_free(name) else "THE LOCK IS HELD"
    return end.error == "LockLost" and checked.is_free(name), f"{end.status} {end.error}; {free}"
