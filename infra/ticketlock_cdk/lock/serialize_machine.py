"""The state machines: the serialised workflow, and the one that continues its long waits and holds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.lock.access import let_invoke, let_nest, let_write_sessions
from ticketlock_cdk.lock.definition import continue_definition, serialize_definition
from ticketlock_cdk.lock.lock_functions import LockFunctions
from ticketlock_cdk.lock.settings import Settings
from ticketlock_cdk.lock.targets import Target, executions_arn
from ticketlock_cdk.machine_logs import machine_log_group
from ticketlock_cdk.nag import acknowledge_wildcard


class SerializeMachine(Construct):
    """The serialised workflow: one task at a time for each entity.

    Attributes:
        state_machine: the workflow, a Standard state machine.
        continues: the machine whose executions continue long waits and holds.
        substitutions: the values of the definition's placeholders.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable,
        functions: LockFunctions,
        settings: Settings,
        targets: Sequence[Target],
        retired_targets: Sequence[Target],
        log_retention: logs.RetentionDays,
        removal_policy: RemovalPolicy,
        encryption_key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, id)
        self._logging: dict[str, Any] = {
            "retention": log_retention,
            "removal_policy": removal_policy,
            "encryption_key": encryption_key,
        }
        steps = ("CheckPosition", "WaitForWakeUp", "Heartbeat")
        going_on = {f"{step}Arn": functions.arns[step] for step in steps}
        self.continues = self._machine("Continue", continue_definition(settings), going_on)
        let_invoke(self.continues, [arn for step in steps for arn in functions.called_by_machines[step]])
        continues_arn = self.continues.state_machine_arn
        definition = serialize_definition(settings, [target.arn for target in targets])
        known = {
            "TakeTicketArn": functions.arns["TakeTicket"],
            "ReleaseArn": functions.arns["Release"],
            **going_on,
            "ContinueArn": continues_arn,
            "TableName": table.table_name,
        }
        written = json.dumps(definition)
        self.substitutions: Mapping[str, str] = {name: known[name] for name in known if f"${{{name}}}" in written}
        self.state_machine = self._machine("StateMachine", definition, self.substitutions)
        # More than the current definition needs: executions keep the one that they began with, and its targets.
        admitted = [*targets, *retired_targets]
        # Exactly the ARNs that are invoked: a target with a version or an alias is allowed only as such.
        invoked = [each.arn for each in admitted if each.kind == "function"]
        steps_of_its_own = [arn for arns in functions.called_by_machines.values() for arn in arns]
        let_invoke(self.state_machine, [*steps_of_its_own, *invoked])
        let_write_sessions(self.state_machine, table)
        nested = [(each.machine_arn, each.executions_arn(Stack.of(self))) for each in admitted if each.machine_arn]
        let_nest(self.state_machine, [*nested, (continues_arn, executions_arn(Stack.of(self), continues_arn))])

    def _machine(self, id: str, definition: Mapping[str, Any], substitutions: Mapping[str, str]) -> sfn.StateMachine:
        # json.dumps, not Stack.to_json_string: that loses every null on its way through jsii, and null means something
        # here. The tokens among the targets are ARNs, which need no escaping.
        machine = sfn.StateMachine(
            self,
            id,
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(json.dumps(definition)),
            definition_substitutions={"Partition": Aws.PARTITION, **substitutions},
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=machine_log_group(self, "Logs" if id == "StateMachine" else f"{id}Logs", **self._logging),
                level=sfn.LogLevel.ALL,
                # The work's input and output are the user's, and a task token allows anyone to answer for the task.
                include_execution_data=False,
            ),
        )
        resource = machine.node.default_child
        assert isinstance(resource, sfn.CfnStateMachine)
        # cfn-lint judges the text before its substitutions: ${Partition} is no ARN to it. E1101 is its own failure
        # to say where in a Parallel that is.
        resource.add_metadata("cfn-lint", {"config": {"ignore_checks": ["E1101", "E3601"]}})
        acknowledge_wildcard(machine, reason="X-Ray and the delivery of logs name no resources.")
        return machine
