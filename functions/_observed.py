"""What every handler shares: one client a container, one log line and one set of metrics a step."""

import os
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from ticketlock import LockTable
from ticketlock.workflow import Step, Workflow

Handler = Callable[[Mapping[str, Any], Any], Mapping[str, Any]]

logger = Logger(service="ticketlock")
metrics = Metrics(namespace="ticketlock", service="ticketlock")


@cache
def workflow() -> Workflow:
    """The workflow over this function's table; clients live as long as the container."""
    return Workflow(LockTable(os.environ["TABLE_NAME"], step_functions=boto3.client("stepfunctions")))


def observed(step: Callable[[Mapping[str, Any]], Step]) -> Handler:
    """Make a handler of a step: its reply is the step's, its keys go to the log, its metrics to CloudWatch."""

    @wraps(step)
    @metrics.log_metrics
    def handler(event: Mapping[str, Any], _context: Any) -> Mapping[str, Any]:
        done = step(event)
        for name, value in done.metrics.items():
            is_time = name.endswith("Time")
            metrics.add_metric(name, unit=MetricUnit.Milliseconds if is_time else MetricUnit.Count, value=value)
        execution = event.get("execution") or event["turn"]["claim"]["owner"]
        logger.info(step.__name__, extra={"execution": execution, **done.keys})
        return done.reply

    return handler
