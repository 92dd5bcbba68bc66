"""Metrics, alarms and the dashboard of a lock table."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_stepfunctions as sfn

from ticketlock_cdk.lock.lock_functions import LockFunctions
from ticketlock_cdk.monitoring import (
    MINUTE,
    MOST,
    PERIOD,
    AlarmRow,
    Metrics,
    Monitoring,
    check_thresholds,
    error_rate,
    errors_of,
    logged,
)

_OLDEST_WAITER = Duration.minutes(15)

_WHO_WAITS = 'docs/runbook.md, "Who holds the lock, and who is stuck"'
_TOO_SLOW = 'docs/runbook.md, "The queue moves, but too slowly"'
_NO_ONE_TAKES_IT = 'docs/runbook.md, "Free, but no one takes it"'
_WORKFLOWS = 'docs/runbook.md, "Workflows"'
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


@dataclass(eq=False, kw_only=True)
class LockMonitoring(Monitoring):
    """The alarms and the dashboard of a lock, its functions, its state machines and its table.

    Args:
        thresholds: those of the alarms.
        functions: its functions.
        machines: its state machines.
        longest_parking: after this time a parked waiter polls.
    """

    metrics: LockMetrics
    thresholds: AlarmThresholds
    functions: LockFunctions
    machines: Sequence[sfn.IStateMachine]
    longest_parking: Duration
    shows = "locks"

    @property
    def list_command(self) -> str:
        """The command that shows the busy locks of the table, the stuck ones first."""
        return self.command("top --table")

    def alarm_rows(self) -> Mapping[str, AlarmRow]:
        """The table of the alarms, by what they watch."""
        metrics, at = self.metrics, self.thresholds
        return {
            "LostLeases": AlarmRow(
                metrics.metric_lost_leases(period=PERIOD),
                at.lost_leases,
                "A lease ended before its work did: the work was stopped, or ended too late.",
                _WORKFLOWS,
            ),
            "RecordWaitsExceeded": AlarmRow(
                metrics.metric_record_waits_exceeded(period=PERIOD),
                at.record_waits_exceeded,
                "Executions give up waiting for their turn.",
                _TOO_SLOW,
                MOST,
            ),
            "OldestWaiter": AlarmRow(
                metrics.metric_oldest_waiter_age(period=_period_of_polls(self.longest_parking)),
                at.oldest_waiter.to_milliseconds(),
                "The first in line has waited for long: the holder is slow, or the queue is too long.",
                _WHO_WAITS,
            ),
            "DeadLetters": self.dead_letters(
                at.dead_letters, "The clean-up after an execution failed: its lock is left to the end of its lease."
            ),
            **dict(self._of_functions()),
            **dict(self._of_machines()),
            **dict(self.throttle_rows(at.table_throttles, _SCALE, self._check)),
        }

    @property
    def _check(self) -> str:
        return self.command("doctor --table")

    def _of_functions(self) -> Iterator[tuple[str, AlarmRow]]:
        percent, calls = self.thresholds.function_error_percent, self.thresholds.function_throttles
        for each in self.functions.all:
            name = each.node.id
            yield f"{name}Errors", errors_of(each, name, percent, _NO_ONE_TAKES_IT, self._check)
            if each not in self.functions.bounded:
                says = f"Lambda throttles the function {name}: the account's concurrency is used up."
                metric = each.metric_throttles(period=MINUTE)
                yield f"{name}Throttles", AlarmRow(metric, calls, says, _NO_ONE_TAKES_IT, MOST)

    def _of_machines(self) -> Iterator[tuple[str, AlarmRow]]:
        for each in self.machines:
            name = each.node.id
            says = f"Step Functions delays transitions of {name}: the account's quota is used up."
            # Its statistic is the sum: https://docs.aws.amazon.com/step-functions/latest/dg/procedure-cw-metrics.html
            metric = each.metric_throttled(period=MINUTE)
            yield f"{name}ExecutionThrottled", AlarmRow(metric, self.thresholds.execution_throttles, says, _SCALE, MOST)

    def log_query(self) -> cloudwatch.LogQueryWidget:
        """The tickets that wait, the oldest first."""
        polling = [each for each in self.functions.all if each.node.id in _POLLING]
        return logged("Oldest waiters", polling, _OLDEST_WAITERS)

    def graphs(self) -> Sequence[Mapping[str, Sequence[cloudwatch.IMetric]]]:
        """The table of the graphs of a lock, its state machines, its functions and its table."""
        metrics, functions, queue = self.metrics, self.functions.all, self.dead_letter_queue
        p99, spread = cloudwatch.Stats.p(99), (cloudwatch.Stats.p(50), cloudwatch.Stats.p(99), cloudwatch.Stats.MAXIMUM)
        waits = [metrics.metric_wait_time(statistic=each, label=f"waited, {each}") for each in spread]
        holds = [metrics.metric_hold_time(statistic=each, label=f"held, {each}") for each in spread]
        return [
            {
                "Grants": [metrics.metric_grants(label="grants")],
                "Waiting (ms)": [*waits, metrics.metric_oldest_waiter_age(label="oldest waiter")],
                "Holding (ms)": holds,
            },
            {
                "Leases": [
                    metrics.metric_lost_leases(label="lost"),
                    metrics.metric_takeovers(label="taken over"),
                    metrics.metric_abandoned_holds(label="left to their end"),
                    metrics.metric_holds_left_to_lease(label="left to their end by the clean-up"),
                ],
                "Gave up, and cleaned up": [
                    metrics.metric_record_waits_exceeded(label="record waits exceeded"),
                    metrics.metric_cleaned_up_places(label="places left"),
                    metrics.metric_cleaned_up_holds(label="locks freed"),
                    queue.metric_approximate_number_of_messages_visible(label="clean-ups that failed"),
                ],
                "Executions": [
                    metric
                    for machine in self.machines
                    for metric in (
                        machine.metric_started(),
                        machine.metric_succeeded(),
                        machine.metric_failed(),
                        machine.metric_aborted(),
                        machine.metric_timed_out(),
                        machine.metric_throttled(),
                    )
                ],
            },
            {
                "Function calls": [each.metric_invocations() for each in functions],
                "Function errors (%)": [error_rate(each) for each in functions],
                "Function durations, p99 (ms)": [each.metric_duration(statistic=p99) for each in functions],
            },
            {
                "Throttles": [
                    *(each.metric_throttles() for each in functions),
                    *self.throttle_metrics("reads of the table", "writes of the table"),
                ],
                "Table capacity": self.capacity(),
                # A failed condition is normal: it tells the protocol that another owner was first.
                "Conditions refused": [self.table.metric_conditional_check_failed_requests()],
            },
        ]


def _period_of_polls(longest_parking: Duration) -> Duration:
    """A period long enough for one poll: a parked front waiter emits nothing until it polls.

    In whole minutes, as alarms need, and a day at most: with a lease of more than two days some periods have no poll.
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
    """
    minutes = 1 + math.ceil(longest_parking.to_seconds() / 60)
    return Duration.minutes(min(24 * 60, max(int(PERIOD.to_minutes()), minutes)))
