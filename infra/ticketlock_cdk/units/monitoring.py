"""Metrics, alarms and the dashboard of units of work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, Names, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from ticketlock_cdk.either_stack import either_stack, scopes_of
from ticketlock_cdk.lock.grants import beside
from ticketlock_cdk.monitoring import (
    ALL,
    MOST,
    Alarms,
    AlarmSettings,
    Metrics,
    check_thresholds,
    errors_of,
    graph,
    logged,
    new_dashboard,
    throttles_of,
)

_PERIOD = Duration.minutes(5)
_OLDEST_OPEN_UNIT = Duration.minutes(15)

_UNITS = 'docs/runbook.md, "Units of work"'
_CONFLICTS = 'docs/units.md, "Conflicts"'
_SWEEPING = 'docs/units.md, "Sweeping"'
_DEAD_LETTERS = 'docs/operations.md, "A message in a dead-letter queue"'
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


def list_command(table: dynamodb.ITable) -> str:
    """The command that lists the open units of a units table, the oldest first."""
    return f"ticketlock units ls --units-table {table.table_name} --region {table.env.region}"


class UnitsAlarms(Alarms):
    """The alarms of units: the first ones, and those of what is added to a TransactionTables later."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        metrics: UnitsMetrics,
        sweeper: lambda_.IFunction,
        table: dynamodb.ITable,
        dead_letter_queue: sqs.IQueue,
        sweep_every: Duration,
        thresholds: UnitsAlarmThresholds,
        alarm_actions: Sequence[cloudwatch.IAlarmAction],
    ) -> None:
        super().__init__(scope, id, alarm_actions=alarm_actions)
        self._thresholds = thresholds
        self._table = table
        self._look = list_command(table)
        # Long enough that each period has a pass.
        period = sweep_every if sweep_every.to_minutes() > _PERIOD.to_minutes() else _PERIOD
        self._watch_units(metrics, period)
        self._watch_sweeper(metrics, sweeper, sweep_every, period)
        self.add(
            "DeadLetters",
            AlarmSettings(
                metric=dead_letter_queue.metric_approximate_number_of_messages_visible(
                    period=_PERIOD, statistic=cloudwatch.Stats.MAXIMUM
                ),
                threshold=thresholds.dead_letters,
                says="Units of an ended execution were not rolled back, or the sweeper could not be started.",
                command=self._look,
                page=_DEAD_LETTERS,
            ),
        )
        self.add("Conflicts", self._conflicts(table))
        for what in ("Read", "Write"):
            self.add(
                f"Table{what}Throttles",
                throttles_of(table, what, thresholds.table_throttles, command=self._look, page=_SCALE),
            )

    def _watch_units(self, metrics: UnitsMetrics, period: Duration) -> None:
        thresholds, look = self._thresholds, self._look
        self.add(
            "OldestOpenUnit",
            AlarmSettings(
                metric=metrics.metric_oldest_open_unit_age(period=period),
                threshold=thresholds.oldest_open_unit.to_milliseconds(),
                says="A unit has been open for long, or cannot be finished.",
                command=look,
                page=_UNITS,
            ),
        )
        self.add(
            "CommittedUnfinished",
            AlarmSettings(
                metric=metrics.metric_committed_unfinished(period=period),
                threshold=thresholds.committed_unfinished,
                says="An item of a committed unit could not get its new value: plain readers see the old one.",
                command=look,
                page=_UNITS,
                datapoints=MOST,
            ),
        )
        self.add(
            "RefusedItems",
            AlarmSettings(
                metric=metrics.metric_refused_items(period=period),
                threshold=thresholds.refused_items,
                says="DynamoDB refuses an item's new value: an operator has to correct it, or to drop it.",
                command=look,
                page=_UNITS,
            ),
        )
        self.add(
            "RolledBackByOthers",
            AlarmSettings(
                metric=metrics.metric_rolled_back_by_others(period=period),
                threshold=thresholds.rolled_back_by_others,
                says="Leases of units expire: their processes crash, or are paused.",
                command=look,
                page=_UNITS,
                datapoints=MOST,
            ),
        )

    def _watch_sweeper(
        self, metrics: UnitsMetrics, sweeper: lambda_.IFunction, sweep_every: Duration, period: Duration
    ) -> None:
        thresholds, look = self._thresholds, self._look
        passes = {"period": sweep_every, "statistic": cloudwatch.Stats.SAMPLE_COUNT}
        self.add(
            "SweeperSilent",
            AlarmSettings(
                # Each pass emits it when it ends.
                metric=metrics.metric_stopped_sweeps(**passes),
                threshold=1,
                says="No pass of the sweeper has ended in three of its intervals.",
                command=look,
                page=_SWEEPING,
                datapoints=ALL,
                is_silence=True,
            ),
        )
        self.add(
            "SweepsStopped",
            AlarmSettings(
                metric=metrics.metric_stopped_sweeps(period=period, statistic=cloudwatch.Stats.MINIMUM),
                threshold=1,
                says="Pass after pass of the sweeper runs out of time: more is left than it can finish.",
                command=look,
                page=_SWEEPING,
                datapoints=ALL,
            ),
        )
        self.add(
            "SweeperErrors",
            AlarmSettings(
                metric=sweeper.metric_errors(period=period),
                threshold=thresholds.sweeper_errors,
                says="Passes of the sweeper fail.",
                command=look,
                page=_SWEEPING,
                datapoints=MOST,
            ),
        )
        self.add(
            "SweeperThrottles",
            AlarmSettings(
                metric=sweeper.metric_throttles(period=period),
                threshold=thresholds.sweeper_throttles,
                says="Lambda throttles the sweeper: the account's concurrency is used up, or a pass takes too long.",
                command=look,
                page=_SWEEPING,
                datapoints=ALL,
            ),
        )

    def watch_roll_back(self, function: lambda_.IFunction) -> None:
        """Watch the function that rolls back the units of ended executions."""
        percent = self._thresholds.roll_back_error_percent
        self.add("RollBackErrors", errors_of(function, "RollBack", percent, command=self._look, page=_UNITS))

    def watch_conflicts(self, units: Construct, table: dynamodb.ITable) -> None:
        """Watch a table of the user's for conflicts; the alarm of one in another stack is in either of the two."""
        id, place = Names.node_unique_id(table.node), either_stack(self, "Conflicts", beside(units, Stack.of(table)))
        if place is self:
            self.add(f"Conflicts-{id}", self._conflicts(table))
            return
        for scope in scopes_of(place):
            self.add_in(scope, id, self._conflicts(table))

    def _conflicts(self, table: dynamodb.ITable) -> AlarmSettings:
        # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
        return AlarmSettings(
            metric=table.metric("TransactionConflict", period=_PERIOD, statistic=cloudwatch.Stats.SUM),
            threshold=self._thresholds.conflicts,
            says=f"Many transactions meet others on items of the table {table.table_name}.",
            command=self._look,
            page=_CONFLICTS,
            datapoints=MOST,
        )


class UnitsMonitoring:
    """The alarms and the dashboard of a TransactionTables, if it has them, also of what is added to it later.

    Attributes:
        alarms: the alarms by name; empty without alarms.
        dashboard: the dashboard; None without one.
    """

    def __init__(
        self,
        units: Construct,
        *,
        metrics: UnitsMetrics,
        sweeper: lambda_.Function,
        table: dynamodb.ITable,
        dead_letter_queue: sqs.IQueue,
        sweep_every: Duration,
        alarms: bool,
        thresholds: UnitsAlarmThresholds,
        alarm_actions: Sequence[cloudwatch.IAlarmAction],
        dashboard: bool,
    ) -> None:
        self._units = units
        self._alarms: UnitsAlarms | None = None
        self.alarms: Mapping[str, cloudwatch.Alarm] = {}
        self.dashboard: cloudwatch.Dashboard | None = None
        if alarms:
            self._alarms = UnitsAlarms(
                units,
                "Alarms",
                metrics=metrics,
                sweeper=sweeper,
                table=table,
                dead_letter_queue=dead_letter_queue,
                sweep_every=sweep_every,
                thresholds=thresholds,
                alarm_actions=alarm_actions,
            )
            self.alarms = self._alarms.by_name
        if dashboard:
            self.dashboard = units_dashboard(
                units,
                "Dashboard",
                metrics=metrics,
                sweeper=sweeper,
                table=table,
                dead_letter_queue=dead_letter_queue,
                alarms=self._alarms,
            )

    def watch_table(self, table: dynamodb.ITable) -> None:
        """Watch a table of the user's."""
        if self._alarms is not None:
            self._alarms.watch_conflicts(self._units, table)

    def watch_roll_back(self, function: lambda_.IFunction) -> None:
        """Watch the function that rolls back the units of ended executions."""
        if self._alarms is not None:
            self._alarms.watch_roll_back(function)


def units_dashboard(
    scope: Construct,
    id: str,
    *,
    metrics: UnitsMetrics,
    sweeper: lambda_.Function,
    table: dynamodb.ITable,
    dead_letter_queue: sqs.IQueue,
    alarms: Alarms | None,
) -> cloudwatch.Dashboard:
    """A dashboard of the units in one units table, as its sweeper sees them."""
    return new_dashboard(
        scope,
        id,
        alarms=alarms,
        rows=[
            [logged("Open units", [sweeper], _OPEN_UNITS)],
            [
                graph("Oldest open unit (ms)", [metrics.metric_oldest_open_unit_age(label="age")]),
                graph(
                    "Units",
                    [
                        metrics.metric_open_units(label="read again by the next pass"),
                        metrics.metric_committed_unfinished(label="committed, not finished"),
                        metrics.metric_refused_items(label="items that DynamoDB refuses"),
                    ],
                ),
                graph(
                    "Swept",
                    [
                        metrics.metric_rolled_back_by_others(label="rolled back"),
                        metrics.metric_rolled_back_with_executions(label="rolled back with executions"),
                        metrics.metric_finished_items(label="items finished"),
                        metrics.metric_closed_units(label="records closed"),
                    ],
                ),
            ],
            [
                graph(
                    "Passes",
                    [
                        sweeper.metric_invocations(label="begun"),
                        metrics.metric_stopped_sweeps(label="continued by the next"),
                        sweeper.metric_errors(label="failed"),
                        sweeper.metric_throttles(label="refused"),
                        dead_letter_queue.metric_approximate_number_of_messages_visible(label="dead letters"),
                    ],
                ),
                graph("Durations, longest (ms)", [sweeper.metric_duration(statistic=cloudwatch.Stats.MAXIMUM)]),
                graph(
                    "Table capacity",
                    [table.metric_consumed_read_capacity_units(), table.metric_consumed_write_capacity_units()],
                ),
            ],
            [
                graph("Conflicts, of each table of the Region", [_conflicts_of_each_table()]),
                graph(
                    "Throttles of the units table",
                    [
                        table.metric(f"{what}ThrottleEvents", statistic=cloudwatch.Stats.SUM, label=label)
                        for what, label in (("Read", "reads"), ("Write", "writes"))
                    ],
                ),
            ],
        ],
    )


def _conflicts_of_each_table() -> cloudwatch.MathExpression:
    """By a search: a table in another stack may not be named here, and units may write tables that nobody named."""
    search = "SEARCH('{AWS/DynamoDB,TableName} MetricName=\"TransactionConflict\"', 'Sum', 300)"
    return cloudwatch.MathExpression(expression=search, label="", period=_PERIOD)
