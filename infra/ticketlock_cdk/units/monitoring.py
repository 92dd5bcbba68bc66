"""Metrics, alarms and the dashboard of units of work."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from ticketlock_cdk.monitoring import DASHBOARD_SPAN, Metrics, check_age, check_threshold, graph, new_alarm

_LEAST_PERIOD_MINUTES = 5
_OLDEST_OPEN_UNIT = Duration.minutes(15)


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
        dead_letters: messages in the dead-letter queue: passes that failed, or did not start, and events of ended
            executions.

    Raises:
        ValueError: one of them is below 1; names it.
    """

    oldest_open_unit: Duration = _OLDEST_OPEN_UNIT
    committed_unfinished: int = 1
    refused_items: int = 1
    rolled_back_by_others: int = 1
    sweeper_errors: int = 1
    sweeper_throttles: int = 1
    dead_letters: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            check = check_age if field.name == "oldest_open_unit" else check_threshold
            check(field.name, getattr(self, field.name))


class UnitsAlarms(Construct):
    """The alarms.

    Attributes:
        by_name: each alarm by the name of what it watches, such as ``OldestOpenUnit`` or ``SweeperErrors``.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        metrics: UnitsMetrics,
        sweeper: lambda_.IFunction,
        dead_letter_queue: sqs.IQueue,
        sweep_every: Duration,
        thresholds: UnitsAlarmThresholds,
        alarm_actions: Sequence[cloudwatch.IAlarmAction],
    ) -> None:
        super().__init__(scope, id)
        # Long enough that each period has a pass.
        period = Duration.minutes(max(_LEAST_PERIOD_MINUTES, math.ceil(sweep_every.to_minutes())))
        watched: Sequence[tuple[str, cloudwatch.IMetric, float, str]] = [
            (
                "OldestOpenUnit",
                metrics.metric_oldest_open_unit_age(period=period),
                thresholds.oldest_open_unit.to_milliseconds(),
                "A unit has been open for long, or cannot be finished.",
            ),
            (
                "CommittedUnfinished",
                metrics.metric_committed_unfinished(period=period),
                thresholds.committed_unfinished,
                "An item of a committed unit could not get its new value: plain readers see the old one.",
            ),
            (
                "RefusedItems",
                metrics.metric_refused_items(period=period),
                thresholds.refused_items,
                "DynamoDB refuses an item's new value: an operator has to correct it, or to drop it.",
            ),
            (
                "RolledBackByOthers",
                metrics.metric_rolled_back_by_others(period=period),
                thresholds.rolled_back_by_others,
                "Leases of units expired: their processes crashed, or were paused.",
            ),
            (
                "SweeperErrors",
                sweeper.metric_errors(period=period),
                thresholds.sweeper_errors,
                "Passes of the sweeper fail.",
            ),
            (
                "SweeperThrottles",
                sweeper.metric_throttles(period=period),
                thresholds.sweeper_throttles,
                "Lambda throttles the sweeper: there is no concurrency left, or a pass takes too long.",
            ),
            (
                "DeadLetters",
                dead_letter_queue.metric_approximate_number_of_messages_visible(
                    period=period, statistic=cloudwatch.Stats.MAXIMUM
                ),
                thresholds.dead_letters,
                "Passes of the sweeper, or rollbacks of ended executions' units, failed, or did not start.",
            ),
        ]
        self.by_name: Mapping[str, cloudwatch.Alarm] = {
            name: new_alarm(self, name, metric, threshold, description, alarm_actions)
            for name, metric, threshold, description in watched
        }


def units_dashboard(
    scope: Construct,
    id: str,
    *,
    metrics: UnitsMetrics,
    sweeper: lambda_.IFunction,
    table: dynamodb.ITable,
    dead_letter_queue: sqs.IQueue,
    alarms: Sequence[cloudwatch.IAlarm],
) -> cloudwatch.Dashboard:
    """A dashboard of the units in one units table, as its sweeper sees them."""
    status = [[cloudwatch.AlarmStatusWidget(alarms=list(alarms), width=24, height=3)]] if alarms else []
    return cloudwatch.Dashboard(
        scope,
        id,
        default_interval=DASHBOARD_SPAN,
        widgets=[
            *status,
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
        ],
    )
