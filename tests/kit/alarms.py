"""What the tests of both constructs' alarms share: what an alarm watches, and whether it says what to do."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ticketlock.cli._commands import _ticketlock

ONE, MOST, ALL = (1, 1), (3, 5), (3, 3)
"""How many datapoints must be at the threshold, of how many."""

_ROOT = Path(__file__).parents[2]
_PAGES = ("docs/runbook.md", "docs/operations.md", "docs/units.md", "docs/units-table.md")
_SECTIONS = {
    f'{page}, "{heading}"'
    for page in _PAGES
    for heading in re.findall(r"^#+ (.+)$", (_ROOT / page).read_text(), re.MULTILINE)
}
_DESCRIPTION = re.compile(r"(?P<path>[^:]+): .+\. Type: ticketlock (?P<command>.+) - and read (?P<page>docs/.+)")
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
_LONGEST_DESCRIPTION = 1_024
_LONGEST_TABLE_NAME, _LONG_PATH, _LONGEST_REGION = 255, 200, 20


def watched_by(alarm: Mapping[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """The properties of an alarm: namespace, dimension, metric or expression, statistic, threshold, period in seconds
    and datapoints; and the value of its dimension.
    """
    datapoints = (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"])
    if "Metrics" not in alarm:
        [dimension] = alarm["Dimensions"]
        metric = (alarm["Namespace"], dimension["Name"], alarm["MetricName"], alarm["Statistic"])
        return (*metric, alarm["Threshold"], alarm["Period"], datapoints), dimension["Value"]
    rate, *counts = alarm["Metrics"]
    assert [each["MetricStat"]["Metric"].pop("MetricName") for each in counts] == ["Errors", "Invocations"]
    # Both of one function, in one period.
    [both] = {json.dumps(each["MetricStat"]) for each in counts}
    stat = json.loads(both)
    [dimension] = stat["Metric"]["Dimensions"]
    expression = re.sub(r"errorsOf\w+", "errors", re.sub(r"callsOf\w+", "calls", rate["Expression"]))
    metric = (stat["Metric"]["Namespace"], dimension["Name"], expression, stat["Stat"])
    return (*metric, alarm["Threshold"], stat["Period"], datapoints), dimension["Value"]


def assert_says_what_to_do(description: str, path: str, option: str) -> None:
    """Check a description: it names the construct, a command as one types it, and a section of a page.

    Args:
        description: with ``<logical id>`` in place of what is known only at deploy time.
        path: the construct's.
        option: the command's option with the table's name.
    """
    said = _DESCRIPTION.fullmatch(description)
    assert said is not None, description
    assert said["path"] == path
    assert said["page"] in _SECTIONS, said["page"]
    assert f"{option} --region <AWS::Region>" in said["command"]
    parse(said["command"])
    assert len(description) + _LONGEST_TABLE_NAME + _LONG_PATH + _LONGEST_REGION < _LONGEST_DESCRIPTION


def parse(command: str) -> None:
    """Parse a command without its first word, and do not run it.

    Raises:
        click.UsageError: there is no such command, or it has no such option.
    """
    found: click.Command = _ticketlock
    words = shlex.split(command)
    context = click.Context(found)
    while isinstance(found, click.Group):
        _, found, words = found.resolve_command(context, words)  # type: ignore[assignment]
    found.make_context(found.name, words)
