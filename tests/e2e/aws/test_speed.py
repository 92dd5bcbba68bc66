"""What an execution costs, and how fast a lock goes from one to the next."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from e2e.aws.checked import Checked, NotSeen, assumes, entity
from ticketlock_local.demo.executions import Execution

_UNCONTENDED = 5
_LINE = 5
# Metrics are by the minute, and some arrive later:
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/publishingMetrics.html
_METRICS_COME_WITHIN_S = 420.0
_INIT = re.compile(r"Init Duration: ([\d.]+) ms")
_DURATION = re.compile(r"\tDuration: ([\d.]+) ms")
_MEMORY = re.compile(r"Memory Size: (\d+) MB")
_PRICING = "https://aws.amazon.com/step-functions/pricing/"
_REPORT = "https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-view.html"
_CONSUMED = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html"


def _line(checked: Checked) -> Sequence[Execution]:
    """Some executions on one entity, in the order of their work."""
    name = entity("line")
    first = checked.sleep(name, 4)
    checked.wait_until_held(name, first)
    behind = [checked.sleep(name) for _ in range(_LINE)]
    for arn in (first, *behind):
        checked.ended(arn)
    runs = [checked.story(arn) for arn in (first, *behind)]
    return sorted(runs, key=lambda run: run.work_started_ms or 0)


def _cold(checked: Checked) -> Sequence[Execution]:
    """The first two executions of all, with cold functions."""
    name = entity("cold")
    first = checked.sleep(name, 4)
    checked.wait_until_held(name, first)
    second = checked.sleep(name)
    for arn in (first, second):
        checked.ended(arn)
    return [checked.story(arn) for arn in (first, second)]


@dataclass(frozen=True, slots=True)
class _Alone:
    """Executions that did not wait, in minutes without other writes to the table.

    Attributes:
        arns: theirs.
        since, until: the minutes, from the beginning of the first to the end of the last.
    """

    arns: Sequence[str]
    since: datetime
    until: datetime


def _alone(checked: Checked) -> _Alone:
    checked.once(_line)
    _begin_a_minute(checked)
    since = _minute(datetime.now(UTC))
    arns = [checked.sleep(entity("alone")) for _ in range(_UNCONTENDED)]
    for arn in arns:
        if checked.ended(arn).status != "SUCCEEDED":
            raise NotSeen(f"{arn} did not succeed")
    until = _minute(datetime.now(UTC)) + timedelta(minutes=1)
    _begin_a_minute(checked)
    return _Alone(arns, since, until)


def _begin_a_minute(checked: Checked) -> None:
    """CloudWatch counts by the minute."""
    if checked.account.is_aws:
        time.sleep(61 - datetime.now(UTC).second)


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def _gaps_s(runs: Sequence[Execution]) -> list[float]:
    gaps = [
        (then.work_started_ms - before.work_ended_ms) / 1_000
        for before, then in pairwise(runs)
        if then.work_started_ms is not None and before.work_ended_ms is not None
    ]
    if len(gaps) != len(runs) - 1:
        raise NotSeen("an execution did not succeed: " + ", ".join(f"{run.name} {run.error}" for run in runs))
    return gaps


@assumes(
    assumed="the works of the first two executions are at most 5 s apart",
    emulator_lacks="its processes start and run differently from Lambda's",
)
def test_a_cold_hand_over_takes_at_most_five_seconds(checked: Checked) -> tuple[bool, str]:
    """Measure the very first executions."""
    [gap_s] = _gaps_s(checked.once(_cold))
    return gap_s <= 5, f"{gap_s:.2f} s"


@assumes(
    assumed="two works of a line are 0.4 to 0.8 s apart, at most 1.5 s",
    emulator_lacks="its processes start and run differently from Lambda's",
)
def test_a_warm_hand_over_takes_less_than_a_second_and_a_half(checked: Checked) -> tuple[bool, str]:
    """Measure a queue of executions, without the first gap."""
    gaps = _gaps_s(checked.once(_line))[1:]
    return max(gaps) <= 1.5, "gaps of " + ", ".join(f"{gap:.2f}" for gap in gaps) + " s"


@assumes(
    assumed="7 transitions by its history, one of them the work's own; what is billed, the next bill says",
    link=_PRICING,
    emulator_lacks="it does not tell every state inside a Parallel",
)
def test_an_uncontended_execution_makes_seven_transitions(checked: Checked) -> tuple[bool, str]:
    """Count the states entered and each attempt of a task, since retries are billed."""
    arns = checked.once(_alone).arns
    counts = []
    for arn in arns:
        kinds = [event["type"] for event in checked.history(arn)]
        entered = [kind for kind in kinds if kind.endswith("StateEntered") and kind != "TaskStateEntered"]
        counts.append(len(entered) + kinds.count("TaskScheduled"))
    return set(counts) == {7}, f"{sorted(set(counts))} in {len(counts)} executions"


@assumes(
    assumed="6 write units each, by CloudWatch's ConsumedWriteCapacityUnits",
    link=_CONSUMED,
    emulator_lacks="it has no such metrics",
)
def test_an_uncontended_execution_consumes_six_write_units(checked: Checked) -> tuple[bool, str]:
    """Wait for CloudWatch, whose metrics come some minutes later."""
    alone = checked.once(_alone)
    arns, cloudwatch = alone.arns, checked.client("cloudwatch")

    def write_units() -> float | None:
        points: Sequence[Mapping[str, Any]] = cloudwatch.get_metric_statistics(
            Namespace="AWS/DynamoDB",
            MetricName="ConsumedWriteCapacityUnits",
            Dimensions=[{"Name": "TableName", "Value": checked.outputs["TableName"]}],
            StartTime=alone.since,
            EndTime=alone.until,
            Period=60,
            Statistics=["Sum"],
        )["Datapoints"]
        return sum(point["Sum"] for point in points) if points else None

    patience_s = _METRICS_COME_WITHIN_S if checked.account.is_aws else 0.0
    units = checked.wait_for(write_units, "CloudWatch to report the table's write units", patience_s)
    return units / len(arns) == 6, f"{units:g} in {len(arns)} executions, {units / len(arns):g} each"


@assumes(
    assumed="init and first call of TakeTicket take at most 5 s together",
    link=_REPORT,
    emulator_lacks="its REPORT lines have no init",
)
def test_the_report_lines_tell_what_a_cold_call_takes(checked: Checked) -> tuple[bool, str]:
    """Read the lines that Lambda itself logs for a function."""
    checked.once(_cold)

    def reports() -> list[str] | None:
        lines = [_told(line) for line in checked.messages("take_ticket")]
        return [line for line in lines if line] or None

    lines = checked.wait_for(reports, "REPORT lines", 60.0 if checked.account.is_aws else 0.0)
    cold = [line for line in lines if _INIT.search(line)]
    if not cold:
        raise NotSeen(f"{len(lines)} REPORT lines, none with an init")
    init_ms, first_ms = (_number(pattern, cold[0]) for pattern in (_INIT, _DURATION))
    warm = sorted(_number(_DURATION, line) for line in lines if not _INIT.search(line))
    middle = f"{warm[len(warm) // 2]:.0f} ms" if warm else "none"
    memory = f"{_number(_MEMORY, cold[0]):.0f} MB"
    return init_ms + first_ms <= 5_000, f"{memory}: init {init_ms:.0f} ms, first call {first_ms:.0f} ms, warm {middle}"


def _told(line: str) -> str:
    """A REPORT line, whichever format the function logs in."""
    if line.startswith("REPORT "):
        return line
    if '"platform.report"' not in line:
        return ""
    metrics = json.loads(line)["record"]["metrics"]
    init = f"\tInit Duration: {metrics['initDurationMs']} ms" if "initDurationMs" in metrics else ""
    return f"REPORT\tDuration: {metrics['durationMs']} ms\tMemory Size: {metrics['memorySizeMB']} MB{init}"


def _number(pattern: re.Pattern[str], line: str) -> float:
    found = pattern.search(line)
    if found is None:
        raise NotSeen(f"{line!r} has no {pattern.pattern!r}")
    return float(found[1])
