"""The ready-made stack: a TicketLock with settings from the CDK's context, and two example targets until it has others.

With ``transactions`` in the context it has a TransactionTables, too.
"""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Annotations, CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.context import Context
from ticketlock_cdk.ended_executions import UNQUALIFIED, is_named_by_events
from ticketlock_cdk.examples import example_function, example_workflow
from ticketlock_cdk.lock import TicketLock
from ticketlock_cdk.managed_policies import use_managed_policies
from ticketlock_cdk.units import TransactionTables

_COUNTS = ("permits", "polls_an_execution", "beats_an_execution", "memory_size")


class TicketlockStack(Stack):
    """A TicketLock, with two examples as targets if it is given none.

    Reads the context (``cdk deploy -c name=value``, or cdk.json):

    - ``targets``: ARNs with commas between them;
    - ``examples``: ``true`` or ``false``: the two examples as targets; by default if no ``targets`` are given;
    - ``retired_targets``: likewise; only executions that were accepted before may run them;
    - ``lease``, ``row_lease``, ``poll``: seconds;
    - ``default_record_wait``: seconds, or ``Infinity``;
    - ``permits``: a whole number;
    - ``hand_over``: ``callback`` or ``poll``;
    - ``heartbeat``: ``true`` or ``false``; with ``false`` optionally ``work_timeout``: seconds;
    - ``polls_an_execution``, ``beats_an_execution``: whole numbers;
    - ``table_name``: an existing table, by its name or its ARN;
    - ``removal_policy``: ``retain`` or ``destroy``;
    - ``log_retention``: days, or ``infinite``; ``log_level``: ``all``, ``error``, ``fatal`` or ``off``;
    - ``tracing``: ``true`` or ``false``;
    - ``encryption_key``: the ARN of a KMS key;
    - ``vpc_id``, ``subnet_ids`` (with commas), ``security_group_ids`` (with commas): a network for the functions;
    - ``memory_size``: MB; ``architecture``: ``arm64`` or ``x86_64``; ``snap_start``: ``true`` or ``false``;
    - ``clean_up_concurrency``: a whole number, or ``none``; if a number is given, the functions of a TransactionTables
      reserve concurrency, too;
    - ``permissions_boundary``: the name or the ARN of a managed policy, for every role;
    - ``managed_policies``: ``true`` or ``false``: managed policies in place of inline ones;
    - ``dashboard``, ``dashboard_live``, ``alarms``: ``true`` or ``false``;
    - ``alarm_topic``: the ARN of an SNS topic;
    - ``alarm_thresholds``: such as ``lost_leases=2,oldest_waiter=1800``;
    - ``transactions``: ``true`` or ``false``: a TransactionTables beside it, with the same settings, and with ``true``
      ``data_tables``: names or ARNs with commas between them, ``sweep_every``: seconds, and ``workflows``: the ARNs of
      state machines whose executions save units, with commas between them.

    Settings that are not given have the construct's defaults.

    Raises:
        ValueError: a setting cannot be read, or is out of its bounds; the message names it.
    """

    def __init__(self, scope: Construct, id: str, **stack_properties: Any) -> None:
        super().__init__(scope, id, **stack_properties)
        context = Context(self.node)
        key_arn, topic_arn = context.text("encryption_key"), context.text("alarm_topic")
        key = None if key_arn is None else kms.Key.from_key_arn(self, "EncryptionKey", key_arn)
        targets = context.texts("targets")
        tracing = context.flag("tracing", default=True)
        has_examples = context.flag("examples", default=not targets)
        examples = self._examples(key, tracing=tracing) if has_examples else {}
        # For the lock, and for the constructs beside it.
        common: Mapping[str, Any] = {
            "removal_policy": context.removal_policy("removal_policy"),
            "log_retention": context.retention("log_retention"),
            "encryption_key": key,
            "architecture": context.architecture("architecture"),
            "tracing": tracing,
            "dashboard": context.flag("dashboard", default=False),
            "dashboard_live": context.flag("dashboard_live", default=False),
            "alarms": context.flag("alarms", default=False),
            "alarm_topic": None if topic_arn is None else sns.Topic.from_topic_arn(self, "AlarmTopic", topic_arn),
            **self._network(context),
        }
        clean_up_concurrency = context.bound("clean_up_concurrency")
        lock = TicketLock(
            self,
            "TicketLock",
            table=context.text("table_name"),
            default_record_wait=context.record_wait("default_record_wait"),
            hand_over=context.hand_over("hand_over"),
            heartbeat=context.flag("heartbeat", default=True),
            targets=[*examples.values(), *targets],
            retired_targets=context.texts("retired_targets"),
            snap_start=context.flag("snap_start", default=False),
            log_level=context.log_level("log_level"),
            clean_up_concurrency=clean_up_concurrency,
            alarm_thresholds=context.alarm_thresholds("alarm_thresholds"),
            **_numbers(context),
            **common,
        )
        reserves = clean_up_concurrency is not None
        units = _transaction_tables(self, context, common, reserve_concurrency=reserves)
        self._set_permissions_boundary(context.text("permissions_boundary"))
        if context.flag("managed_policies", default=False):
            use_managed_policies(self)
        CfnOutput(self, "TableName", value=lock.table.table_name)
        CfnOutput(self, "ListLocks", value=lock.list_command)
        CfnOutput(self, "StateMachineArn", value=lock.state_machine.state_machine_arn)
        for name, target in examples.items():
            arn = target.function_arn if isinstance(target, lambda_.Function) else target.state_machine_arn
            CfnOutput(self, name, value=arn)
        if units is not None:
            CfnOutput(self, "UnitsTableName", value=units.table.table_name)
            CfnOutput(self, "ListUnits", value=units.list_command)
            CfnOutput(self, "SweeperName", value=units.sweeper.function_name)

    def _examples(self, key: kms.IKey | None, *, tracing: bool) -> Mapping[str, sfn.StateMachine | lambda_.Function]:
        """The examples, by the outputs that have their ARNs."""
        return {
            "ExampleTargetArn": example_workflow(self, "Example", encryption_key=key, tracing=tracing),
            "ExampleFunctionArn": example_function(self, "ExampleFunction", encryption_key=key, tracing=tracing),
        }

    def _network(self, context: Context) -> Mapping[str, Any]:
        vpc_id = context.text("vpc_id")
        ids = {name: context.texts(name) for name in ("subnet_ids", "security_group_ids")}
        if vpc_id is None:
            for name, given in ids.items():
                if given:
                    raise ValueError(f"{name} is {list(given)!r} and vpc_id is not given; allowed: with a vpc_id")
            return {}
        # A lookup would need credentials at synth; without it the network's subnets are unknown.
        if not ids["subnet_ids"]:
            raise ValueError(
                f"vpc_id is {vpc_id!r} and subnet_ids is not given; allowed: with at least one of subnet_ids"
            )
        subnets = [
            ec2.Subnet.from_subnet_id(self, f"Subnet{number}", subnet_id)
            for number, subnet_id in enumerate(ids["subnet_ids"])
        ]
        for subnet in subnets:
            Annotations.of(subnet).acknowledge_warning(
                "@aws-cdk/aws-ec2:noSubnetRouteTableId", "Nothing here asks for a route table."
            )
        return {
            "vpc": ec2.Vpc.from_vpc_attributes(self, "Vpc", vpc_id=vpc_id, availability_zones=self.availability_zones),
            "vpc_subnets": ec2.SubnetSelection(subnets=subnets),
            "security_groups": [
                ec2.SecurityGroup.from_security_group_id(self, f"SecurityGroup{number}", group_id)
                for number, group_id in enumerate(ids["security_group_ids"])
            ],
        }

    def _set_permissions_boundary(self, boundary: str | None) -> None:
        if boundary is None:
            return
        from_arn = boundary.startswith("arn:")
        iam.PermissionsBoundary.of(self).apply(
            iam.ManagedPolicy.from_managed_policy_arn(self, "Boundary", boundary)
            if from_arn
            else iam.ManagedPolicy.from_managed_policy_name(self, "Boundary", boundary)
        )


def _transaction_tables(
    stack: Stack, context: Context, common: Mapping[str, Any], *, reserve_concurrency: bool
) -> TransactionTables | None:
    own = {"data_tables": context.texts("data_tables"), "sweep_every": context.seconds("sweep_every")}
    given: dict[str, Any] = {name: value for name, value in own.items() if value}
    workflows = context.texts("workflows")
    if context.flag("transactions", default=False):
        memory_size = context.whole_number("memory_size")
        if memory_size is not None:
            given["memory_size"] = memory_size
        made = TransactionTables(stack, "Transactions", reserve_concurrency=reserve_concurrency, **given, **common)
        for number, arn in enumerate(workflows):
            made.attach(_workflow(made, number, arn))
        return made
    for name in [*given, *(["workflows"] if workflows else [])]:
        raise ValueError(f"{name} is given and transactions is not; allowed: {name} together with transactions=true")
    return None


def _workflow(units: TransactionTables, number: int, arn: str) -> sfn.IStateMachine:
    if not is_named_by_events(arn):
        raise ValueError(f"workflows[{number}] is {arn!r}; allowed: {UNQUALIFIED}")
    return sfn.StateMachine.from_state_machine_arn(units, f"Workflow{number}", arn)


def _numbers(context: Context) -> Mapping[str, Any]:
    durations = {name: context.seconds(name) for name in ("lease", "row_lease", "poll", "work_timeout")}
    counts = {name: context.whole_number(name) for name in _COUNTS}
    # Settings that are not given keep the construct's defaults.
    return {name: value for name, value in (durations | counts).items() if value is not None}
