"""The metrics that the functions emit, as CDK metrics.

The TicketLocks in an account share the namespace; the dimension ``service`` distinguishes them. The entity is not a
dimension, since each combination of dimensions is billed as a separate metric:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html
"""

from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch

from ticketlock_cdk.monitoring import Metrics


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
