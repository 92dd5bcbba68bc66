"""Stopped executions: the event, the clean-up, and a redrive."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from ticketlock_local.aws.checking import check
from ticketlock_local.aws.deployed import Deployed, entity
from ticketlock_local.aws.names import LEASE_S
from ticketlock_local.aws.seen import NotSeen
from ticketlock_local.demo.executions import observe

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


def _stopped(deployed: Deployed) -> _Stopped:
    name = entity("stopped")
    holder = deployed.nest(name, 3 * LEASE_S)
    deployed.until_held(name, holder)
    waiter = deployed.sleep(name)
    deployed.wait_for(lambda: _rows(deployed, name) == (waiter,), "a place in the queue")
    behind = deployed.sleep(name)
    deployed.wait_for(lambda: _rows(deployed, name) == (waiter, behind), "another row in the queue")
    began = time.monotonic()
    deployed.step_functions.stop_execution(executionArn=waiter, error="Stopped", cause="by the checklist")
    deployed.wait_for(lambda: _rows(deployed, name) == (behind,), "the row of the stopped waiter to go")
    row_gone_s = time.monotonic() - began
    deployed.step_functions.stop_execution(executionArn=holder, error="Stopped", cause="by the checklist")
    stopped_ms = deployed.ended(holder)["stopDate"].timestamp() * 1_000
    deployed.ended(behind)
    held_ms = observe(deployed.step_functions, behind).held_from_ms
    if held_ms is None:
        raise NotSeen(f"{behind} never held the lock")
    return _Stopped(holder, waiter, _details(deployed, holder, waiter), row_gone_s, (held_ms - stopped_ms) / 1_000)


def _rows(deployed: Deployed, name: str) -> tuple[str, ...]:
    return tuple(row.owner for row in deployed.lock(name).rows)


def _details(deployed: Deployed, *arns: str) -> Mapping[str, Mapping[str, Any]]:
    """EventBridge's events of these executions, which a rule of the stack sends to a queue."""
    sqs, url = deployed.account.client("sqs"), deployed.outputs["EndsQueueUrl"]
    found: dict[str, Mapping[str, Any]] = {}

    def all_told() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2).get("Messages", []):
            detail = json.loads(message["Body"])["detail"]
            found[detail["executionArn"]] = detail
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return all(arn in found for arn in arns)

    deployed.wait_for(all_told, "the events of the stopped executions", 60.0)
    return found


def _told(detail: Mapping[str, Any]) -> tuple[bool, str]:
    there = [f"{name} {detail[name]!r}" for name in ("status", "error", "redriveCount") if name in detail]
    as_assumed = (detail.get("status"), detail.get("error"), detail.get("redriveCount")) == ("ABORTED", "Stopped", 0)
    return as_assumed, f"{', '.join(there)}; all of it: {', '.join(sorted(detail))}"


@check(assumed="the detail has status ABORTED, error and redriveCount 0", link=_EVENTS, emulator_lacks=_OF_ITS_OWN)
def the_event_of_a_stopped_holder_tells_error_and_redrives(deployed: Deployed) -> tuple[bool, str]:
    """Read the events. Without redriveCount the clean-up uses stopDate."""
    stopped = deployed.once(_stopped)
    return _told(stopped.details[stopped.holder])


@check(assumed="the detail has status ABORTED, error and redriveCount 0", link=_EVENTS, emulator_lacks=_OF_ITS_OWN)
def the_event_of_a_stopped_waiter_tells_error_and_redrives(deployed: Deployed) -> tuple[bool, str]:
    """Reads what EventBridge brought."""
    stopped = deployed.once(_stopped)
    return _told(stopped.details[stopped.waiter])


@check(
    assumed=f"well before the lease of {LEASE_S} s is over: within {LEASE_S // 2} s",
    link=_EVENTS,
    emulator_lacks="its events come at once",
)
def the_clean_up_removes_a_stopped_waiter_before_its_lease_ends(deployed: Deployed) -> tuple[bool, str]:
    """Measure from the stop until the row was gone."""
    delay_s = deployed.once(_stopped).row_gone_s
    return delay_s < LEASE_S / 2, f"{delay_s:.1f} s"


@check(
    assumed=f"well before the lease of {LEASE_S} s is over: within {LEASE_S // 2} s",
    link=_EVENTS,
    emulator_lacks="its events come at once",
)
def the_next_in_line_holds_soon_after_a_holder_was_stopped(deployed: Deployed) -> tuple[bool, str]:
    """Measure from the stop to the next hold; the nested work is stopped in between."""
    delay_s = deployed.once(_stopped).handed_over_s
    return delay_s < LEASE_S / 2, f"{delay_s:.1f} s"


@check(
    assumed="it fails again, with LockLost; its lock is free",
    link=_REDRIVE,
    emulator_lacks="it redrives no execution as AWS does",
)
def a_redriven_hold_fails_with_lock_lost(deployed: Deployed) -> tuple[bool, str]:
    """Redrive an execution that was stopped while it held, after the clean-up."""
    name = entity("redriven")
    arn = deployed.nest(name, 3 * LEASE_S)
    deployed.until_held(name, arn)
    deployed.step_functions.stop_execution(executionArn=arn)
    deployed.wait_for(lambda: deployed.is_free(name), "the lock of the stopped execution to be free")
    try:
        deployed.step_functions.redrive_execution(executionArn=arn)
    except ClientError as error:
        raise NotSeen(f"it was not redriven: {error}") from error
    end = deployed.ended(arn, 3 * LEASE_S)
    free = "the lock is not held" if deployed.is_free(name) else "THE LOCK IS HELD"
    return end.get("error") == "LockLost" and deployed.is_free(name), f"{end['status']} {end.get('error')}; {free}"
