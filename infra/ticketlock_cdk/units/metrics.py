"""The metrics that the sweeper emits in each of its passes, and one of ended executions, as CDK metrics.

A pass that ran out of time counts what it has read; the next one continues there.
"""

from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch

from ticketlock_cdk.monitoring import Metrics


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
