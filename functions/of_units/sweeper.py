"""A pass of the sweeper: finish, roll back and close the units of crashed processes, and report what is open."""

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from botocore.config import Config

from ticketlock.units import Swept, Units

PARTS = 4
# How many items of a unit are read, or written, at once.
REQUESTS_A_PART = 32
# After a mass failure: of the 3,000 that a partition serves, and far from what a new table serves.
READ_UNITS_PER_S = 1_000
# For the requests in progress when the time is over, their retries, and the log.
RESERVE_S = 20

logger = Logger()
# Which units are open for long, too: the dashboard lists them.
logging.getLogger("ticketlock").setLevel(logging.INFO)


@cache
def units() -> Units:
    """The units on this function's table; the client lives as long as the container."""
    config = Config(
        connect_timeout=1,
        read_timeout=2,
        parameter_validation=False,
        max_pool_connections=PARTS * REQUESTS_A_PART,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    client = boto3.client("dynamodb", config=config)
    return Units(os.environ["TABLE_NAME"], client=client)


def handler(_event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    """See ``Units.sweep``: it sweeps as long as the function's time allows; the next pass continues there."""
    left_s = context.get_remaining_time_in_millis() / 1_000 - RESERVE_S
    swept = units().sweep(parts=PARTS, timeout=max(0, left_s), read_units_per_s=READ_UNITS_PER_S)
    _emit(swept)
    result = asdict(swept)
    logger.info("sweeper", extra=result)
    return result


def _emit(swept: Swept) -> None:
    """Emit all metrics in each pass: without a zero an alarm would never end."""
    metrics = EphemeralMetrics(namespace="ticketlock")
    metrics.add_metric("OldestOpenUnitAge", unit=MetricUnit.Milliseconds, value=swept.oldest_ms)
    for name, count in (
        ("ClosedUnits", swept.closed),
        ("CommittedUnfinished", swept.unfinished),
        ("FinishedItems", swept.finished),
        ("OpenUnits", swept.open),
        ("RefusedItems", swept.refused),
        ("RolledBackByOthers", swept.rolled_back),
        ("StoppedSweeps", int(not swept.is_whole)),
    ):
        metrics.add_metric(name, unit=MetricUnit.Count, value=count)
    metrics.flush_metrics()
