"""Metrics, alarms and the dashboard of units of work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, Names, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_

from ticketlock_cdk.either_stack import either_stack, scopes_of
from ticketlock_cdk.lock import beside
from ticketlock_cdk.monitoring import (
    ALL,
    MOST,
    PERIOD,
    AlarmRow,
    Metrics,
    Monitoring,
    check_thresholds,
    errors_of,
    logged,
)

_OLDEST_OPEN_UNIT = Duration.minutes(15)

_UNITS = 'docs/runbook.md, "Units of work"'
_CONFLICTS = 'docs/units.md, "Conflicts"'
_ALARMS = 'docs/units-table.md, "Metrics and alarms"'
_SCALE = 'docs/operations.md, "How far units scale"'

# Of each pass two lines for a unit that could not be finished, and one for a unit that is pending.
_OPEN_UNITS = """\
parse @message "the unit *, *, is still open, begun * s ago" as old, in_state, age_s
| parse @message "the unit * is left to the next sweep: *" as left, why
| fields coalesce(old, left) as unit, age_s * 1 as seconds
| filter ispresent(unit)
| stats max(seconds) as begun_s_ago, sortsLast(in_state) as state, sortsLast(why) as not_finished_since,
  max(@timestamp) as last_pass by unit
| sort begun_s_ago desc
| limit 20
"""


class UnitsMetrics(Metrics):
    """The metrics of one TransactionTables.

    Each method takes the options of ``aws_cloudwatch.Metric``, such as ``period`` and ``statistic``.
    """

    def metric_oldest_open_unit_age(self, **options: Any) -> cloudwatch.Metric:
        """Milliseconds since the start of the oldest unit that is pending or could not be finished; the maximum."""
        return self.metric("OldestOpenUnitAge", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})

    def metric_committed_unfinished(self, **options: Any) -> cloudwatch.Metric:
        """Committed units with an item that a pass could not finish; the maximum of one pass."""
        return self.metric("CommittedUnfinished", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})

    def metric_refused_items(self, **options: Any) -> cloudwatch.Metric:
        """Items of committed units whose new value DynamoDB refuses; the maximum of one pass."""
        return self.metric("RefusedItems", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})

    def metric_rolled_back_by_others(self, **options: Any) -> cloudwatch.Metric:
        """Units that the sweeper rolled back because their lease had expired."""
        return self.metric("RolledBackByOthers", **options)

    def metric_open_units(self, **options: Any) -> cloudwatch.Metric:
        """Units that the next pass reads again; the maximum of one pass."""
        return self.metric("OpenUnits", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})

    def metric_finished_items(self, **options: Any) -> cloudwatch.Metric:
        """Items to which the sweeper wrote their new value, or from which it removed a mark."""
        return self.metric("FinishedItems", **options)

    def metric_closed_units(self, **options: Any) -> cloudwatch.Metric:
        """Records of units that may be deleted."""
        return self.metric("ClosedUnits", **options)

    def metric_rolled_back_with_executions(self, **options: Any) -> cloudwatch.Metric:
        """Saved units that were rolled back since the execution of a workflow had ended without them."""
        return self.metric("RolledBackWithExecutions", **options)

    def metric_stopped_sweeps(self, **options: Any) -> cloudwatch.Metric:
        """Passes that ran out of time; the next pass continued them."""
        return self.metric("StoppedSweeps", **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsAlarmThresholds:
    """The value, within five minutes or the time between two sweeps, from which on each alarm fires.

    Attributes:
        oldest_open_unit: how long ago the oldest unit was begun that is running or could not be finished; saved ones do
            not count.
        committed_unfinished: committed units with an item that could not be finished.
        refused_items: items of committed units whose new value DynamoDB refuses.
        rolled_back_by_others: units whose processes had crashed, or were paused for a lease.
        sweeper_errors: failed passes.
        sweeper_throttles: passes that Lambda throttled.
        roll_back_error_percent: how many calls of the function that ``attach`` adds fail, in percent: 1 to 100.
        dead_letters: messages in the dead-letter queue: events of ended executions that failed, and passes that could
            not be started.
        conflicts: requests for items of one table that DynamoDB refused since another transaction had the item.
        table_throttles: reads, or writes, of the units table that DynamoDB refused within a minute.

    Raises:
        ValueError: one of them is out of its bounds; names it.
    """

    oldest_open_unit: Duration = _OLDEST_OPEN_UNIT
    committed_unfinished: int = 1
    refused_items: int = 1
    rolled_back_by_others: int = 1
    sweeper_errors: int = 1
    sweeper_throttles: int = 1
    roll_back_error_percent: int = 5
    dead_letters: int = 1
    conflicts: int = 100
    table_throttles: int = 1

    def __post_init__(self) -> None:
        check_thresholds(self)


@dataclass(eq=False, kw_only=True)
class UnitsMonitoring(Monitoring):
    """The alarms and the dashboard of the units in one units table, also of what is added to its construct later.

    Args:
        thresholds: those of the alarms.
        sweeper: the function.
        sweep_every: how often it runs.
    """

    metrics: UnitsMetrics
    thresholds: UnitsAlarmThresholds
    sweeper: lambda_.Function
    sweep_every: Duration
    shows = "units"

    @property
    def list_command(self) -> str:
        """The command that lists the open units of the table, the oldest first."""
        return self.command("units ls --units-table")

    def alarm_rows(self) -> Mapping[str, AlarmRow]:
        """The table of the alarms, by what they watch."""
        metrics, at, sweeper = self.metrics, self.thresholds, self.sweeper
        # Long enough that each period has a pass.
        period = self.sweep_every if self.sweep_every.to_minutes() > PERIOD.to_minutes() else PERIOD
        count, least = cloudwatch.Stats.SAMPLE_COUNT, cloudwatch.Stats.MINIMUM
        return {
            "OldestOpenUnit": AlarmRow(
                metrics.metric_oldest_open_unit_age(period=period),
                at.oldest_open_unit.to_milliseconds(),
                "A unit has been open for long, or cannot be finished.",
                _UNITS,
            ),
            "CommittedUnfinished": AlarmRow(
                metrics.metric_committed_unfinished(period=period),
                at.committed_unfinished,
                "An item of a committed unit could not get its new value: plain readers see the old one.",
                _UNITS,
                MOST,
            ),
            "RefusedItems": AlarmRow(
                metrics.metric_refused_items(period=period),
                at.refused_items,
                "DynamoDB refuses an item's new value: an operator has to correct it, or to drop it.",
                _UNITS,
            ),
            "RolledBackByOthers": AlarmRow(
                metrics.metric_rolled_back_by_others(period=period),
                at.rolled_back_by_others,
                "Leases of units expire: their processes crash, or are paused.",
                _UNITS,
                MOST,
            ),
            "SweeperSilent": AlarmRow(
                # Each pass emits it when it ends.
                metrics.metric_stopped_sweeps(period=self.sweep_every, statistic=count),
                1,
                "No pass of the sweeper has ended in three of its intervals.",
                _ALARMS,
                ALL,
                is_silence=True,
            ),
            "SweepsStopped": AlarmRow(
                metrics.metric_stopped_sweeps(period=period, statistic=least),
                1,
                "Pass after pass of the sweeper runs out of time: more is left than it can finish.",
                _ALARMS,
                ALL,
            ),
            "SweeperErrors": AlarmRow(
                sweeper.metric_errors(period=period),
                at.sweeper_errors,
                "Passes of the sweeper fail.",
                _ALARMS,
                MOST,
            ),
            "SweeperThrottles": AlarmRow(
                sweeper.metric_throttles(period=period),
                at.sweeper_throttles,
                "Lambda throttles the sweeper: the account's concurrency is used up, or a pass takes too long.",
                _ALARMS,
                ALL,
            ),
            "DeadLetters": self.dead_letters(
                at.dead_letters,
                "Units of an ended execution were not rolled back, or the sweeper could not be started.",
            ),
            "Conflicts": self._conflicts(self.table),
            **dict(self.throttle_rows(at.table_throttles, _SCALE)),
        }

    def watch_roll_back(self, function: lambda_.IFunction) -> None:
        """Watch the function that rolls back the units of ended executions."""
        if self.has_alarms:
            percent = self.thresholds.roll_back_error_percent
            self.add("RollBackErrors", errors_of(function, "RollBack", percent, _UNITS))

    def watch_table(self, table: dynamodb.ITable) -> None:
        """Watch a table of the user's for conflicts; the alarm of one in another stack is in either of the two."""
        if not self.has_alarms:
            return
        id, there = Names.node_unique_id(table.node), beside(self.construct, Stack.of(table))
        place = either_stack(self.scope, "Conflicts", there)
        if place is self.scope:
            self.add(f"Conflicts-{id}", self._conflicts(table))
            return
        for scope in scopes_of(place):
            self.add_in(scope, id, self._conflicts(table))

    def _conflicts(self, table: dynamodb.ITable) -> AlarmRow:
        # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
        metric = table.metric("TransactionConflict", period=PERIOD, statistic=cloudwatch.Stats.SUM)
        says = f"Many transactions meet others on items of the table {table.table_name}."
        return AlarmRow(metric, self.thresholds.conflicts, says, _CONFLICTS, MOST)

    def log_query(self) -> cloudwatch.LogQueryWidget:
        """The units that are open, the oldest first."""
        return logged("Open units", [self.sweeper], _OPEN_UNITS)

    def graphs(self) -> Sequence[Mapping[str, Sequence[cloudwatch.IMetric]]]:
        """The table of the graphs of the units, as the sweeper sees them."""
        metrics, sweeper, longest = self.metrics, self.sweeper, cloudwatch.Stats.MAXIMUM
        return [
            {
                "Oldest open unit (ms)": [metrics.metric_oldest_open_unit_age(label="age")],
                "Units": [
                    metrics.metric_open_units(label="read again by the next pass"),
                    metrics.metric_committed_unfinished(label="committed, not finished"),
                    metrics.metric_refused_items(label="items that DynamoDB refuses"),
                ],
                "Swept": [
                    metrics.metric_rolled_back_by_others(label="rolled back"),
                    metrics.metric_rolled_back_with_executions(label="rolled back with executions"),
                    metrics.metric_finished_items(label="items finished"),
                    metrics.metric_closed_units(label="records closed"),
                ],
            },
            {
                "Passes": [
                    sweeper.metric_invocations(label="begun"),
                    metrics.metric_stopped_sweeps(label="continued by the next"),
                    sweeper.metric_errors(label="failed"),
                    sweeper.metric_throttles(label="refused"),
                    self.dead_letter_queue.metric_approximate_number_of_messages_visible(label="dead letters"),
                ],
                "Durations, longest (ms)": [sweeper.metric_duration(statistic=longest)],
                "Table capacity": self.capacity(),
            },
            {
                "Conflicts, of each table of the Region": [_conflicts_of_each_table()],
                "Throttles of the units table": self.throttle_metrics("reads", "writes"),
            },
        ]


def _conflicts_of_each_table() -> cloudwatch.MathExpression:
    """By a search: a table in another stack may not be named here, and units may write tables that nobody named."""
    search = "SEARCH('{AWS/DynamoDB,TableName} MetricName=\"TransactionConflict\"', 'Sum', 300)"
    return cloudwatch.MathExpression(expression=search, label="", period=PERIOD)
