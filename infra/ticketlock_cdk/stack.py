"""The ready-made stack: a TicketLock with settings from the CDK's context, and two examples to try it with."""

from collections.abc import Sequence
from typing import Any

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from constructs import Construct

from ticketlock_cdk.examples import example_function, example_workflow
from ticketlock_cdk.settings import RecordWait
from ticketlock_cdk.ticket_lock import TicketLock


class TicketlockStack(Stack):
    """A TicketLock with two examples as targets.

    Reads the context (``cdk deploy -c name=value``, or cdk.json):

    - ``targets``: further targets, ARNs with commas between them;
    - ``lease``, ``poll``: seconds;
    - ``default_record_wait``: seconds, or ``Infinity``;
    - ``removal_policy``: ``retain`` or ``destroy``.

    Raises:
        ValueError: a setting cannot be read, or is out of its bounds; names it.
    """

    def __init__(self, scope: Construct, id: str, **stack_properties: Any) -> None:
        super().__init__(scope, id, **stack_properties)
        workflow = example_workflow(self, "Example")
        function = example_function(self, "ExampleFunction")
        lock = TicketLock(
            self,
            "TicketLock",
            lease=self._duration("lease", 60),
            poll=self._duration("poll", 5),
            default_record_wait=self._record_wait(),
            targets=[workflow, function, *self._more_targets()],
            removal_policy=self._removal_policy(),
        )
        CfnOutput(self, "TableName", value=lock.table.table_name)
        CfnOutput(self, "StateMachineArn", value=lock.state_machine.state_machine_arn)
        CfnOutput(self, "ExampleTargetArn", value=workflow.state_machine_arn)
        CfnOutput(self, "ExampleFunctionArn", value=function.function_arn)

    def _duration(self, name: str, default: int) -> Duration:
        value = self.node.try_get_context(name)
        return Duration.millis(1_000 * _number(name, default if value is None else value, "a number of seconds"))

    def _record_wait(self) -> RecordWait:
        name = "default_record_wait"
        value = self.node.try_get_context(name)
        if value is None or value == "Infinity":
            return "Infinity"
        return Duration.millis(1_000 * _number(name, value, 'a number of seconds from 0 on, or "Infinity"'))

    def _more_targets(self) -> Sequence[str]:
        value = self.node.try_get_context("targets") or []
        arns = value.split(",") if isinstance(value, str) else value
        return [arn.strip() for arn in arns if arn.strip()]

    def _removal_policy(self) -> RemovalPolicy:
        value = self.node.try_get_context("removal_policy") or "retain"
        policies = {"retain": RemovalPolicy.RETAIN, "destroy": RemovalPolicy.DESTROY}
        if value not in policies:
            raise ValueError(f"removal_policy is {value!r}; allowed: {' or '.join(policies)}")
        return policies[value]


def _number(name: str, value: Any, allowed: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1
    # Not NaN, not infinite, not negative: the rest is for the construct to judge.
    if not 0 <= number < float("inf"):
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")
    return number
