"""The state machine, and what it may call."""

import json
from collections.abc import Sequence

from aws_cdk import Aws, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.definition import serialize_definition
from ticketlock_cdk.lock_functions import LockFunctions
from ticketlock_cdk.machine_logs import machine_log_group
from ticketlock_cdk.settings import Settings
from ticketlock_cdk.targets import Target


class SerializeMachine(Construct):
    """The serialised workflow: one task at a time for each entity.

    Attributes:
        state_machine: a Standard one.
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
        log_retention: logs.RetentionDays,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, id)
        definition = serialize_definition(
            lease_s=settings.lease_s,
            poll_s=settings.poll_s,
            default_record_wait=settings.default_record_wait,
            targets=[target.arn for target in targets],
        )
        own_functions = {
            "TakeTicketArn": functions.take_ticket.function_arn,
            "CheckPositionArn": functions.check_position.function_arn,
            "HeartbeatArn": functions.heartbeat.function_arn,
            "ReleaseArn": functions.release.function_arn,
        }
        # json.dumps, not Stack.to_json_string: that loses every null on its way through jsii, and null means something
        # here. The tokens among the targets are ARNs, which need no escaping.
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(json.dumps(definition)),
            definition_substitutions={
                "Partition": Aws.PARTITION,
                "TableName": table.table_name,
                **own_functions,
            },
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=machine_log_group(self, "Logs", retention=log_retention, removal_policy=removal_policy),
                level=sfn.LogLevel.ALL,
                # The work's input and output are the user's, and with a task's token anybody may answer for it.
                include_execution_data=False,
            ),
        )
        function_arns = [*own_functions.values(), *(target.arn for target in targets if target.kind == "function")]
        machines = [target for target in targets if target.kind == "stateMachine"]
        for statement in (
            # The very ARNs that are called: a target with a version or an alias is allowed as that alone.
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=function_arns),
            self._leave_to_lease(table),
            *(self._nested_executions(machines) if machines else ()),
        ):
            self.state_machine.add_to_role_policy(statement)
        if table.encryption_key is not None:
            table.encryption_key.grant_encrypt_decrypt(self.state_machine)
        self._let_answer(functions)

    def _leave_to_lease(self, table: dynamodb.ITable) -> iam.PolicyStatement:
        """The one write of the machine itself, in its state LeaveToHeartbeat: sessions, never a lock.

        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
        """
        return iam.PolicyStatement(
            actions=["dynamodb:UpdateItem"],
            resources=[table.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["session#*"]}},
        )

    def _nested_executions(self, machines: Sequence[Target]) -> Sequence[iam.PolicyStatement]:
        """What running a nested execution to its end needs.

        A version or an alias is authorised by its state machine's ARN.
        https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
        https://docs.aws.amazon.com/step-functions/latest/dg/auth-version-alias.html
        """
        stack = Stack.of(self)
        return (
            iam.PolicyStatement(
                actions=["states:StartExecution"], resources=[machine.machine_arn for machine in machines]
            ),
            iam.PolicyStatement(
                actions=["states:DescribeExecution", "states:StopExecution"],
                resources=[machine.executions_arn(stack) for machine in machines],
            ),
            iam.PolicyStatement(
                actions=["events:DescribeRule", "events:PutRule", "events:PutTargets"],
                resources=[
                    stack.format_arn(
                        service="events",
                        resource="rule",
                        resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule",
                    )
                ],
            ),
        )

    def _let_answer(self, functions: LockFunctions) -> None:
        """Let the heartbeat and the release answer the callback task of this machine.

        In a policy of its own: the functions wait for the policies of their roles, the machine for the functions, and
        this one for the machine. In the roles' own policies it would close a circle that cannot be deployed. The
        resource is the one that the CDK's own ``grant_task_response`` names.
        """
        policy = iam.Policy(
            self,
            "AnswerHeartbeat",
            statements=[
                iam.PolicyStatement(
                    actions=["states:SendTaskFailure", "states:SendTaskSuccess"],
                    resources=[self.state_machine.state_machine_arn],
                )
            ],
        )
        for function in (functions.heartbeat, functions.release):
            assert function.role is not None
            policy.attach_to_role(function.role)
