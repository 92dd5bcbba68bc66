"""Bursts: the error names of throttled starts, and the clean-up after many stopped executions."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import ClientError
from e2e.aws.checked import Checked, NotSeen, assumes, entity

_QUOTAS = "https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html"
_NESTED = "https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html"
_EVENTS = "https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html"
# https://docs.aws.amazon.com/step-functions/latest/dg/state-map-inline.html: an inline Map runs 40 at a time.
_A_MAP = 40
_THREADS = 20


def _wanted(checked: Checked) -> int:
    if not checked.burst_starts:
        raise NotSeen("bursts were switched off")
    return checked.burst_starts


@assumes(
    assumed="the names are among those that the definition retries",
    link=_NESTED,
    emulator_lacks="it does not throttle",
)
def test_the_errors_of_throttled_nested_starts_are_retried(checked: Checked) -> tuple[bool, str]:
    """Start many nested executions at once, without a retry."""
    wanted = _wanted(checked)
    arns = [
        checked.step_functions.start_execution(
            stateMachineArn=checked.outputs["StartsManyArn"],
            input=json.dumps({"items": list(range(min(_A_MAP, wanted - begun)))}),
        )["executionArn"]
        for begun in range(0, wanted, _A_MAP)
    ]
    errors: Counter[str] = Counter()
    for arn in arns:
        end = checked.ended(arn, 180.0)
        if end.status != "SUCCEEDED":
            raise NotSeen(f"{arn} ended as {end.status} {end.error}")
        errors.update(each["error"] for each in end.output if each["error"])
    if not errors:
        raise NotSeen(f"{wanted} starts at once, none throttled; --burst-starts asks for more ({_QUOTAS})")
    text = ", ".join(f"{name} {count} times" for name, count in errors.items())
    return errors.keys() <= _retried(checked), f"{text}, of {wanted} starts"


def _retried(checked: Checked) -> set[str]:
    """The error names that the checked definition retries where it starts nested work."""
    machine = checked.step_functions.describe_state_machine(stateMachineArn=checked.outputs["StateMachineArn"])
    [work, _] = json.loads(machine["definition"])["States"]["Hold"]["Branches"]
    return {name for retrier in work["States"]["StartExecution"]["Retry"] for name in retrier["ErrorEquals"]}


@assumes(
    assumed="the clean-up frees every lock, none is left to its lease; no dead letter",
    link=_EVENTS,
    emulator_lacks="its events arrive at once and are never lost",
)
def test_a_burst_of_stops_leaves_no_dead_letter_and_no_lock(checked: Checked) -> tuple[bool, str]:
    """Stop many holders at once, and wait for the clean-up."""
    wanted = _wanted(checked)
    names = [entity("burst") for _ in range(wanted)]
    with ThreadPoolExecutor(_THREADS) as pool:
        holders = list(pool.map(lambda name: _patiently(lambda: checked.nest(name, 120)), names))
        for name, arn in zip(names, holders, strict=True):
            checked.wait_until_held(name, arn)
        began = time.monotonic()
        list(pool.map(lambda arn: _patiently(lambda: _stop(checked, arn)), holders))
    checked.wait_until(lambda: all(not _is_held(checked, name) for name in names), "every hold to be over", 180.0)
    took_s = time.monotonic() - began
    sqs, url = checked.client("sqs"), checked.outputs["DeadLetterQueueUrl"]
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    letters = int(answer["Attributes"]["ApproximateNumberOfMessages"])
    left = sum(not checked.is_free(name) for name in names)
    over = f"{wanted} holds over {took_s:.0f} s after the first stop"
    return (letters, left) == (0, 0), f"{over}, {left} by the end of the lease; {letters} dead letters"


def _is_held(checked: Checked, name: str) -> bool:
    state = checked.lock(name)
    return state.item is not None and any(each.lease_until_ms > state.now.likely_ms for each in state.item.holders)


def _stop(checked: Checked, arn: str) -> str:
    checked.step_functions.stop_execution(executionArn=arn)
    return arn


def _patiently(request: Callable[[], str]) -> str:
    """Repeat a request until it is not throttled; the SDK would give up sooner."""
    deadline = time.monotonic() + 120.0
    while True:
        try:
            return request()
        except ClientError as error:
            if "Throttl" not in error.response["Error"]["Code"] or time.monotonic() > deadline:
                raise
            time.sleep(1.0)
