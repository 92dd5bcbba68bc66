"""Metrics, alarms and the dashboard of a lock table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.monitoring import (
    MINUTE,
    MOST,
    Alarms,
    AlarmSettings,
    Metrics,
    check_thresholds,
    error_rate,
    errors_of,
    graph,
    logged,
    new_dashboard,
    throttles_of,
)

_PERIOD = Duration.minutes(5)
_OLDEST_WAITER = Duration.minutes(15)

_WHO_WAITS = 'docs/runbook.md, "First: who is stuck"'
_TOO_SLOW = 'docs/runbook.md, "The queue moves, but too slowly"'
_NO_ONE_TAKES_IT = 'docs/runbook.md, "Free, but no one takes it"'
_WORKFLOWS = 'docs/runbook.md, "Workflows"'
_DEAD_LETTERS = 'docs/operations.md, "A message in a dead-letter queue"'
_SCALE = 'docs/operations.md, "How far it scales"'

# Those whose log lines tell of waiters.
_POLLING = ("TakeTicket", "WaitForWakeUp", "CheckPosition")
# Of each ticket the time from its first line to its last one: of a longer wait as much as the query reads.
_OLDEST_WAITERS = """\
filter ispresent(ticket)
| fields toMillis(@timestamp) as logged_ms
| stats (max(logged_ms) - min(logged_ms)) / 1000 as waited_s, max(@timestamp) as polled,
  count(fencing_token) as granted, count(refused) as gave_up by namespace, entity, ticket
| filter granted = 0 and gave_up = 0
| sort waited_s desc
| limit 20
"""


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
    """The value from which on each alarm fires: within five minutes, or within one for what AWS's services count.

    Attributes:
        lost_leases: leases that ended before their work did.
        record_waits_exceeded: executions that gave up waiting; raise it if that is normal for you.
        oldest_waiter: how long the first in line has waited.
        dead_letters: messages in the dead-letter queue: clean-ups that failed.
        function_error_percent: how many of one function's calls fail, in percent: 1 to 100.
        function_throttles: calls of one function that Lambda refused.
        execution_throttles: transitions and retries of one state machine that Step Functions delayed.
        table_throttles: reads, or writes, of the table that DynamoDB refused.

    Raises:
        ValueError: one of them is out of its bounds; names it.
    """

    lost_leases: int = 1
    record_waits_exceeded: int = 1
    oldest_waiter: Duration = _OLDEST_WAITER
    dead_letters: int = 1
    function_error_percent: int = 5
    function_throttles: int = 1
    execution_throttles: int = 1
    table_throttles: int = 1

    def __post_init__(self) -> None:
        check_thresholds(self)


def list_command(table: dynamodb.ITable) -> str:
    """The command that shows the busy locks of a table, the stuck ones first."""
    return f"ticketlock top {_of(table)}"


def _of(table: dynamodb.ITable) -> str:
    return f"--table {table.table_name} --region {table.env.region}"


class LockAlarms(Alarms):
    """The alarms of a lock, its functions, its state machines and its table."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        metrics: LockMetrics,
        functions: Sequence[lambda_.IFunction],
        bounded: Sequence[lambda_.IFunction],
        machines: Sequence[sfn.IStateMachine],
        table: dynamodb.ITable,
        dead_letter_queue: sqs.IQueue,
        thresholds: AlarmThresholds,
        alarm_actions: Sequence[cloudwatch.IAlarmAction],
        longest_parking: Duration,
    ) -> None:
        super().__init__(scope, id, alarm_actions=alarm_actions)
        look, check = list_command(table), f"ticketlock doctor {_of(table)}"
        self.add(
            "LostLeases",
            AlarmSettings(
                metric=metrics.metric_lost_leases(period=_PERIOD),
                threshold=thresholds.lost_leases,
                says="A lease ended before its work did: the work was stopped, or ended too late.",
                command=look,
                page=_WORKFLOWS,
            ),
        )
        self.add(
            "RecordWaitsExceeded",
            AlarmSettings(
                metric=metrics.metric_record_waits_exceeded(period=_PERIOD),
                threshold=thresholds.record_waits_exceeded,
                says="Executions give up waiting for their turn.",
                command=look,
                page=_TOO_SLOW,
                datapoints=MOST,
            ),
        )
        self.add(
            "OldestWaiter",
            AlarmSettings(
                metric=metrics.metric_oldest_waiter_age(period=_period_of_polls(longest_parking)),
                threshold=thresholds.oldest_waiter.to_milliseconds(),
                says="The first in line has waited for long: the holder is slow, or the queue is too long.",
                command=look,
                page=_WHO_WAITS,
            ),
        )
        self.add(
            "DeadLetters",
            AlarmSettings(
                metric=dead_letter_queue.metric_approximate_number_of_messages_visible(
                    period=_PERIOD, statistic=cloudwatch.Stats.MAXIMUM
                ),
                threshold=thresholds.dead_letters,
                says="The clean-up after an execution failed: its lock is left to the end of its lease.",
                command=look,
                page=_DEAD_LETTERS,
            ),
        )
        for function in functions:
            name = function.node.id
            self.add(
                f"{name}Errors",
                errors_of(function, name, thresholds.function_error_percent, command=check, page=_NO_ONE_TAKES_IT),
            )
            if function in bounded:
                continue
            self.add(
                f"{name}Throttles",
                AlarmSettings(
                    metric=function.metric_throttles(period=MINUTE),
                    threshold=thresholds.function_throttles,
                    says=f"Lambda throttles the function {name}: the account's concurrency is used up.",
                    command=look,
                    page=_NO_ONE_TAKES_IT,
                    datapoints=MOST,
                ),
            )
        for machine in machines:
            self.add(
                f"{machine.node.id}ExecutionThrottled",
                AlarmSettings(
                    # Its statistic is the sum:
                    # https://docs.aws.amazon.com/step-functions/latest/dg/procedure-cw-metrics.html
                    metric=machine.metric_throttled(period=MINUTE),
                    threshold=thresholds.execution_throttles,
                    says=f"Step Functions delays transitions of {machine.node.id}: the account's quota is used up.",
                    command=look,
                    page=_SCALE,
                    datapoints=MOST,
                ),
            )
        for what in ("Read", "Write"):
            self.add(
                f"Table{what}Throttles",
                throttles_of(table, what, thresholds.table_throttles, command=check, page=_SCALE),
            )


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
    functions: Sequence[lambda_.Function],
    machines: Sequence[sfn.IStateMachine],
    table: dynamodb.ITable,
    dead_letter_queue: sqs.IQueue,
    alarms: Alarms | None,
) -> cloudwatch.Dashboard:
    """A dashboard of a lock, its state machines, its functions and its table."""
    p50, p99, longest = cloudwatch.Stats.p(50), cloudwatch.Stats.p(99), cloudwatch.Stats.MAXIMUM
    waits = [metrics.metric_wait_time(statistic=each, label=f"waited, {each}") for each in (p50, p99, longest)]
    holds = [metrics.metric_hold_time(statistic=each, label=f"held, {each}") for each in (p50, p99, longest)]
    return new_dashboard(
        scope,
        id,
        alarms=alarms,
        rows=[
            [logged("Oldest waiters", [each for each in functions if each.node.id in _POLLING], _OLDEST_WAITERS)],
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
                        dead_letter_queue.metric_approximate_number_of_messages_visible(label="clean-ups that failed"),
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
                graph("Function errors (%)", [error_rate(each) for each in functions]),
                graph("Function durations, p99 (ms)", [each.metric_duration(statistic=p99) for each in functions]),
            ],
            [
                graph(
                    "Throttles",
                    [
                        *(each.metric_throttles() for each in functions),
                        table.metric("ReadThrottleEvents", statistic=cloudwatch.Stats.SUM, label="reads of the table"),
                        table.metric(
                            "WriteThrottleEvents", statistic=cloudwatch.Stats.SUM, label="writes of the table"
                        ),
                    ],
                ),
                graph(
                    "Table capacity",
                    [table.metric_consumed_read_capacity_units(), table.metric_consumed_write_capacity_units()],
                ),
                # A failed condition is normal: it tells the protocol that another owner was first.
                graph("Conditions refused", [table.metric_conditional_check_failed_requests()]),
            ],
        ],
    )
