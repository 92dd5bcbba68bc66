"""The dashboard of a TicketLock: first what its users notice, then its parts."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.lock.metrics import LockMetrics
from ticketlock_cdk.monitoring import DASHBOARD_SPAN, graph


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
