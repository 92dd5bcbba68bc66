"""The dashboard of a TransactionTables: what is open, what the sweeper does, the function, the table."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from ticketlock_cdk.monitoring import DASHBOARD_SPAN, graph
from ticketlock_cdk.units.metrics import UnitsMetrics


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
