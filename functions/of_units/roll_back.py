"""Roll back the units that an execution of a workflow has saved, after it failed, timed out or was stopped."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from ticketlock.units import Units, unit_owner

logger = Logger()


@cache
def units() -> Units:
    """The units on this function's table; the client lives as long as the container."""
    return Units(os.environ["TABLE_NAME"])


def handler(event: Mapping[str, Any], _context: Any) -> Mapping[str, Any]:
    """See ``Units.end_owner``: each event ends one run of its execution; a late or duplicate event changes nothing."""
    ended = event["detail"]
    owner = unit_owner(ended["executionArn"], ended.get("redriveCount", 0))
    rolled_back = units().end_owner(owner)
    metrics = EphemeralMetrics(namespace="ticketlock")
    metrics.add_metric("RolledBackWithExecutions", unit=MetricUnit.Count, value=len(rolled_back))
    metrics.flush_metrics()
    result = {"owner": owner, "status": ended["status"], "rolled_back": rolled_back}
    logger.info("roll_back", extra=result)
    return result
