"""The metrics that the sweeper emits in each of its passes, as the CDK has them.

A pass that ran out of time tells of what it has looked at; the next one goes on there.
"""

from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch

from ticketlock_cdk.monitoring import Metrics


class UnitsMetrics(Metrics):
    """The metrics of one TransactionTables.

    Each method takes the options of ``aws_cloudwatch.Metric``, such as ``period`` and ``statistic``.
    """

    def metric_oldest_open_unit_age(self, **options: Any) -> cloudwatch.Metric:
        """Milliseconds since the oldest unit was begun that is pending or could not be finished; the longest."""
        return self.metric("OldestOpenUnitAge", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})

    def metric_committed_unfinished(self, **options: Any) -> cloudwatch.Metric:
        """Committed units with an item that a pass could not finish; the most of one pass."""
        return self.metric("CommittedUnfinished", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})

    def metric_rolled_back_by_others(self, **options: Any) -> cloudwatch.Metric:
        """Units that the sweeper rolled back, since their lease was over."""
        return self.metric("RolledBackByOthers", **options)

    def metric_open_units(self, **options: Any) -> cloudwatch.Metric:
        """Units that are to be looked at again; the most of one pass."""
        return self.metric("OpenUnits", **{"statistic": cloudwatch.Stats.MAXIMUM, **options})

    def metric_finished_items(self, **options: Any) -> cloudwatch.Metric:
        """Items that the sweeper gave their new value, or took a mark off."""
        return self.metric("FinishedItems", **options)

    def metric_closed_units(self, **options: Any) -> cloudwatch.Metric:
        """Records of units that may be forgotten."""
        return self.metric("ClosedUnits", **options)

    def metric_stopped_sweeps(self, **options: Any) -> cloudwatch.Metric:
        """Passes that ran out of time, and were gone on with by the next."""
        return self.metric("StoppedSweeps", **options)
