"""Metrics, alarms and the dashboard of a lock table.

Alarms have a period of five minutes (the oldest waiter's is longer if leases are long). Missing data does not breach:
without traffic the functions emit nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.monitoring import DASHBOARD_SPAN, Metrics, check_age, check_threshold, graph, new_alarm

_PERIOD = Duration.minutes(5)
_OLDEST_WAITER = Duration.minutes(15)


class LockMetrics(Metrics):
    """The metrics of one TicketLock.

    Each method takes the options of ``aws_cloudwatch.Metric``, such as ``period`` and ``statistic``.
    """

    def metric_grants(self, **options: Any) -> cloudwatch.Metric:
        """How often a lock was granted to an execution."""
        return self.metric("Grants", **options)

    def metric_takeovers(self, **options: Any) -> cloudwatch.Metric:
        """How many holders were replaced because their lease had expired."""
        return self.metric("TakenOver", **options)

    def metric_lost_leases(self, **options: Any) -> cloudwatch.Metric:
        """How often a step found that its lease had ended."""
        return self.metric("LostLeases", **options)

    def metric_abandoned_holds(self, **options: Any) -> cloudwatch.Metric:
        """How often a lock was kept until its lease ends, since its work may still be running."""
        return self.metric("AbandonedHolds", **options)

    def metric_cleaned_up_places(self, **options: Any) -> cloudwatch.Metric:
        """How many rows in queues the clean-up deleted for executions that had ended."""
        return self.metric("CleanedUpPlaces", **options)

    def metric_cleaned_up_holds(self, **options: Any) -> cloudwatch.Metric:
        """How many locks the clean-up freed for executions that had ended."""
        return self.metric("CleanedUpHolds", **options)

    def metric_holds_left_to_lease(self, **options: Any) -> cloudwatch.Metric:
        """How many locks the clean-up kept until their leases end, since their work may still be running."""
        return self.metric("HoldsLeftToLease", **options)

    def metric_record_waits_exceeded(self, **options: Any) -> cloudwatch.Metric:
        """How often the record wait ended before the execution got the lock."""
        return self.metric("RecordWaitsExceeded", **options)

    def metric_wait_time(self, **options: Any) -> cloudwatch.Metric:
        """Milliseconds from the ticket to the grant, emitted at the grant; by default the 99th percentile."""
        return self.metric("WaitTime", **{"statistic": cloudwatch.Stats.p(99), **options})

    def metric_hold_time(self, **options: Any) -> cloudwatch.Metric:
        """Milliseconds from the grant to the release, emitted at the release; by default the 99th percentile."""
        return self.metric("HoldTime", **{"statistic": cloudwatch.Stats.p(99), **options})

    def metric_oldest_waiter_age(self, **options: Any) -> cloudwatch.Metric:
        """Milliseconds since the ticket of a front waiter, emitted at each of its polls; by default the maximum."""
        return self.metric("OldestWaiterAge", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmThresholds:
    """The value, within five minutes, from which on each alarm fires.

    Attributes:
        lost_leases: leases that ended before their work did.
        record_waits_exceeded: executions that gave up waiting; raise it if that is normal for you.
        oldest_waiter: how long the first in line has waited.
        dead_letters: messages in the dead-letter queue: clean-ups that failed.
        function_errors: failed invocations of one function. Each is retried, so one or two do no harm.
        function_throttles: invocations of one function that Lambda refused.
        execution_throttles: transitions and retries of one state machine that Step Functions delayed.

    Raises:
        ValueError: one of them is below 1; names it.
    """

    lost_leases: int = 1
    record_waits_exceeded: int = 1
    oldest_waiter: Duration = _OLDEST_WAITER
    dead_letters: int = 1
    function_errors: int = 3
    function_throttles: int = 1
    execution_throttles: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            check = check_age if field.name == "oldest_waiter" else check_threshold
            check(field.name, value)


class LockAlarms(Construct):
    """The alarms.

    Attributes:
        by_name: each alarm by the name of what it watches, such as ``LostLeases`` or ``ReleaseErrors``.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        metrics: LockMetrics,
        functions: Sequence[lambda_.IFunction],
        bounded: Sequence[lambda_.IFunction],
        machines: Sequence[sfn.IStateMachine],
        dead_letter_queue: sqs.IQueue | None,
        thresholds: AlarmThresholds,
        alarm_actions: Sequence[cloudwatch.IAlarmAction],
        longest_parking: Duration,
    ) -> None:
        super().__init__(scope, id)
        self._actions = alarm_actions
        alarms = {
            "LostLeases": self._alarm(
                "LostLeases",
                metrics.metric_lost_leases(period=_PERIOD),
                thresholds.lost_leases,
                "A lease ended before its work did: the work was stopped, or ended too late.",
            ),
            "RecordWaitsExceeded": self._alarm(
                "RecordWaitsExceeded",
                metrics.metric_record_waits_exceeded(period=_PERIOD),
                thresholds.record_waits_exceeded,
                "Executions gave up waiting for their turn.",
            ),
            "OldestWaiter": self._alarm(
                "OldestWaiter",
                metrics.metric_oldest_waiter_age(period=_period_of_polls(longest_parking)),
                thresholds.oldest_waiter.to_milliseconds(),
                "The first in line has waited for long: the holder is slow, or the queue is too long.",
            ),
        }
        for function in functions:
            name = function.node.id
            alarms[f"{name}Errors"] = self._alarm(
                f"{name}Errors",
                function.metric_errors(period=_PERIOD),
                thresholds.function_errors,
                f"The function {name} fails.",
            )
            if function in bounded:
                continue
            alarms[f"{name}Throttles"] = self._alarm(
                f"{name}Throttles",
                function.metric_throttles(period=_PERIOD),
                thresholds.function_throttles,
                f"Lambda throttles the function {name}: there is no concurrency left.",
            )
        for machine in machines:
            name = f"{machine.node.id}ExecutionThrottled"
            alarms[name] = self._alarm(
                name,
                # Its statistic is the sum: https://docs.aws.amazon.com/step-functions/latest/dg/procedure-cw-metrics.html
                machine.metric_throttled(period=_PERIOD),
                thresholds.execution_throttles,
                f"Step Functions delays transitions of {machine.node.id}: the account's quota is used up.",
            )
        if dead_letter_queue is not None:
            alarms["DeadLetters"] = self._alarm(
                "DeadLetters",
                dead_letter_queue.metric_approximate_number_of_messages_visible(
                    period=_PERIOD, statistic=cloudwatch.Stats.MAXIMUM
                ),
                thresholds.dead_letters,
                "The clean-up after an execution failed: its lock is left to the end of its lease.",
            )
        self.by_name: Mapping[str, cloudwatch.Alarm] = alarms

    def _alarm(self, name: str, metric: cloudwatch.IMetric, threshold: float, description: str) -> cloudwatch.Alarm:
        return new_alarm(self, name, metric, threshold, description, self._actions)


def _period_of_polls(longest_parking: Duration) -> Duration:
    """A period long enough for one poll: a parked front waiter emits nothing until it polls.

    In whole minutes, as alarms need, and a day at most: with a lease of more than two days some periods have no poll.
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
    """
    minutes = 1 + math.ceil(longest_parking.to_seconds() / 60)
    return Duration.minutes(min(24 * 60, max(int(_PERIOD.to_minutes()), minutes)))


def lock_dashboard(
    scope: Construct,
    id: str,
    *,
    metrics: LockMetrics,
    functions: Sequence[lambda_.IFunction],
    machines: Sequence[sfn.IStateMachine],
    table: dynamodb.ITable,
    dead_letter_queue: sqs.IQueue | None,
    alarms: Sequence[cloudwatch.IAlarm],
) -> cloudwatch.Dashboard:
    """A dashboard of a lock, its state machines, its functions and its table."""
    status = [[cloudwatch.AlarmStatusWidget(alarms=list(alarms), width=24, height=3)]] if alarms else []
    p50, p99, longest = cloudwatch.Stats.p(50), cloudwatch.Stats.p(99), cloudwatch.Stats.MAXIMUM
    waits = [metrics.metric_wait_time(statistic=each, label=f"waited, {each}") for each in (p50, p99, longest)]
    holds = [metrics.metric_hold_time(statistic=each, label=f"held, {each}") for each in (p50, p99, longest)]
    dead_letters = (
        []
        if dead_letter_queue is None
        else [dead_letter_queue.metric_approximate_number_of_messages_visible(label="clean-ups that failed")]
    )
    return cloudwatch.Dashboard(
        scope,
        id,
        default_interval=DASHBOARD_SPAN,
        widgets=[
            *status,
            [
                graph("Grants", [metrics.metric_grants(label="grants")]),
                graph("Waiting (ms)", [*waits, metrics.metric_oldest_waiter_age(label="oldest waiter")]),
                graph("Holding (ms)", holds),
            ],
            [
                graph(
                    "Leases",
                    [
                        metrics.metric_lost_leases(label="lost"),
                        metrics.metric_takeovers(label="taken over"),
                        metrics.metric_abandoned_holds(label="left to their end"),
                        metrics.metric_holds_left_to_lease(label="left to their end by the clean-up"),
                    ],
                ),
                graph(
                    "Gave up, and cleaned up",
                    [
                        metrics.metric_record_waits_exceeded(label="record waits exceeded"),
                        metrics.metric_cleaned_up_places(label="places left"),
                        metrics.metric_cleaned_up_holds(label="locks freed"),
                        *dead_letters,
                    ],
                ),
                graph(
                    "Executions",
                    [
                        metric
                        for machine in machines
                        for metric in (
                            machine.metric_started(),
                            machine.metric_succeeded(),
                            machine.metric_failed(),
                            machine.metric_aborted(),
                            machine.metric_timed_out(),
                            machine.metric_throttled(),
                        )
                    ],
                ),
            ],
            [
                graph("Function calls", [each.metric_invocations() for each in functions]),
                graph(
                    "Function errors and throttles",
                    [metric for each in functions for metric in (each.metric_errors(), each.metric_throttles())],
                ),
                graph("Function durations, p99 (ms)", [each.metric_duration(statistic=p99) for each in functions]),
            ],
            [
                graph(
                    "Table capacity",
                    [table.metric_consumed_read_capacity_units(), table.metric_consumed_write_capacity_units()],
                ),
                # A failed condition is normal: it tells the protocol that another owner was first.
                graph("Conditions refused", [table.metric_conditional_check_failed_requests()]),
            ],
        ],
    )
