"""Roll back the units that an execution of a workflow has saved, after it failed, timed out or was stopped."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from botocore.config import Config

from ticketlock.units import Units, unit_owner
from ticketlock.wire import knows_its_run, run_that_ended

logger = Logger()


@cache
def units() -> Units:
    """The units on this function's table; the client lives as long as the container."""
    return Units(os.environ["TABLE_NAME"])


@cache
def step_functions() -> Any:
    """A client for Step Functions, which only events that do not know their run need."""
    return boto3.client("stepfunctions", config=Config(connect_timeout=3, read_timeout=10))


def _described(execution: str) -> Mapping[str, Any]:
    """The description of an execution, without its input and output; empty if it is forgotten."""
    client = step_functions()
    try:
        found: Mapping[str, Any] = client.describe_execution(executionArn=execution, includedData="METADATA_ONLY")
    except client.exceptions.ExecutionDoesNotExist:
        return {}
    return found


def handler(event: Mapping[str, Any], _context: Any) -> Mapping[str, Any]:
    """See ``Units.end_owner``: each event ends one run of its execution; a late or duplicate event changes nothing."""
    ended = event["detail"]
    execution = ended["executionArn"]
    run = run_that_ended(ended, {} if knows_its_run(ended) else _described(execution))
    owner = unit_owner(execution, run)
    rolled_back = units().end_owner(owner)
    metrics = EphemeralMetrics(namespace="ticketlock")
    metrics.add_metric("RolledBackWithExecutions", unit=MetricUnit.Count, value=len(rolled_back))
    metrics.flush_metrics()
    result = {"owner": owner, "status": ended["status"], "rolled_back": rolled_back}
    logger.info("roll_back", extra=result)
    return result
