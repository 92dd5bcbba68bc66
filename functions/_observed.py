"""What every handler shares: one client a container, one log line and one set of metrics a step."""

import os
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from ticketlock import LockLost
from ticketlock.workflow import Step, Workflow

Handler = Callable[[Mapping[str, Any], Any], Mapping[str, Any]]

logger = Logger()


@cache
def workflow() -> Workflow:
    """The workflow over this function's table; clients live as long as the container."""
    return Workflow.over(os.environ["TABLE_NAME"])


def observed(step: Callable[[Mapping[str, Any]], Step]) -> Handler:
    """Make a handler of a step: its reply is the step's, its keys go to the log, its metrics to CloudWatch."""

    @wraps(step)
    def handler(event: Mapping[str, Any], _context: Any) -> Mapping[str, Any]:
        execution = _execution(event)
        try:
            done = step(event)
        except LockLost as lost:
            _count({"LostLeases": 1})
            claim = event["turn"]["claim"]
            keys = {"entity": claim["entity"], "namespace": claim["namespace"], "lost": str(lost)}
            logger.error(step.__module__, extra={"execution": execution, **keys})
            raise
        _count(done.metrics)
        logger.info(step.__module__, extra={"execution": execution, **done.keys})
        return done.reply

    return handler


def _execution(event: Mapping[str, Any]) -> str:
    if "detail" in event:
        return str(event["detail"]["executionArn"])
    return str(event.get("execution") or event["turn"]["session"]["execution"])


def _count(values: Mapping[str, float]) -> None:
    if not values:
        return
    metrics = EphemeralMetrics(namespace="ticketlock")
    for name, value in values.items():
        is_time = name.endswith(("Time", "Age"))
        metrics.add_metric(name, unit=MetricUnit.Milliseconds if is_time else MetricUnit.Count, value=value)
    metrics.flush_metrics()
