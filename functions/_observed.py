"""What every handler shares: one client for each container, one log line and one set of metrics for each step.

Lambda imports it when it initialises a function: it makes the clients, and connects to the table, before the first
event. https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html
"""

import os
import random
from collections.abc import Callable, Mapping
from functools import cache, wraps
from importlib import import_module
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from ticketlock import LockLost
from ticketlock.workflow import Step, Workflow

Handler = Callable[[Mapping[str, Any], Any], Mapping[str, Any]]

logger = Logger()


@cache
def workflow() -> Workflow:
    """The workflow on this function's table; the clients live as long as the container."""
    return Workflow.over(os.environ["TABLE_NAME"])


def _initialise() -> None:
    """Make the clients and the first connection; with SnapStart, a new connection after each restore.

    https://docs.aws.amazon.com/lambda/latest/dg/snapstart-runtime-hooks-python.html
    """
    # https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
    if "AWS_LAMBDA_FUNCTION_NAME" not in os.environ:
        return
    workflow().prepare()
    if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start":
        # Only managed runtimes have this module.
        hooks = import_module("snapshot_restore_py")
        hooks.register_before_snapshot(workflow().disconnect)
        hooks.register_after_restore(_after_restoration)


def _after_restoration() -> None:
    # Otherwise all environments of one snapshot would draw the same jitter.
    random.seed()
    workflow().prepare()


def observed(step: Callable[[Mapping[str, Any]], Step]) -> Handler:
    """Make a Lambda handler of a step: it returns the step's reply, logs its keys, and emits its metrics."""

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
        # Of a durable execution, or else of a workflow's.
        return str(event["detail"].get("durableExecutionArn") or event["detail"]["executionArn"])
    return str(event.get("execution") or event["turn"]["session"]["execution"])


def _count(values: Mapping[str, float]) -> None:
    if not values:
        return
    metrics = EphemeralMetrics(namespace="ticketlock")
    for name, value in values.items():
        is_time = name.endswith(("Time", "Age"))
        metrics.add_metric(name, unit=MetricUnit.Milliseconds if is_time else MetricUnit.Count, value=value)
    metrics.flush_metrics()


_initialise()
