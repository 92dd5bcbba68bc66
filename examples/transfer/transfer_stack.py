"""A transfer: money moves between two accounts in a unit of work, while the workflow holds the giver's lock."""

from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct
from ticketlock_cdk import TicketLock, TransactionTables, code_with_ticketlock

_FUNCTION = Path(__file__).with_name("function")


class TransferStack(Stack):
    """The workflow ``TransferWorkflow``, its function, its accounts, the lock and the units' table."""

    def __init__(self, scope: Construct, id: str, **stack_properties: Any) -> None:
        super().__init__(scope, id, **stack_properties)
        # An example leaves nothing behind.
        destroy = RemovalPolicy.DESTROY
        self._accounts = dynamodb.TableV2(
            self,
            "Accounts",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            removal_policy=destroy,
        )
        self._receipts = sqs.Queue(self, "Receipts", removal_policy=destroy)
        self._lock = TicketLock(self, "Lock", poll=Duration.seconds(2), removal_policy=destroy)
        self._units = TransactionTables(self, "Units", data_tables=[self._accounts], removal_policy=destroy)
        function = self._function()
        workflow = sfn.StateMachine(
            self,
            "TransferWorkflow",
            definition_body=sfn.DefinitionBody.from_chainable(self._transfer(function)),
            tracing_enabled=True,
        )
        self._lock.attach(workflow)
        for name, value in {
            "TransferWorkflowArn": workflow.state_machine_arn,
            "TransferFunctionName": function.function_name,
            "LockTableName": self._lock.table.table_name,
            "ListLocks": self._lock.list_command,
            "UnitsTableName": self._units.table.table_name,
            "ListUnits": self._units.list_command,
            "AccountsTableName": self._accounts.table_name,
            "ReceiptsUrl": self._receipts.queue_url,
        }.items():
            CfnOutput(self, name, value=value)

    def _transfer(self, function: lambda_.Function) -> sfn.IChainable:
        """Run one transfer of each giver at a time, in the order of their tickets."""
        transfer = tasks.LambdaInvoke(
            self,
            "MoveMoney",
            lambda_function=function,
            # The function gets as data what its unit needs: the lock, and the parts of the unit's name.
            payload=sfn.TaskInput.from_object(
                {
                    "transfer": sfn.JsonPath.object_at("$.transfer"),
                    "lock": sfn.JsonPath.object_at("$.lock"),
                    "execution": sfn.JsonPath.execution_id,
                    "state": sfn.JsonPath.state_name,
                }
            ),
            payload_response_only=True,
            task_timeout=sfn.Timeout.duration(Duration.seconds(60)),
            retry_on_service_exceptions=False,
        )
        # A retry cannot succeed: a lost lock stays lost, and the giver does not get more money by waiting.
        transfer.add_retry(errors=["LockLost", "ConditionFailed"], max_attempts=0)
        # A function that timed out may still run: it commits the same unit, or none.
        transfer.add_retry(interval=Duration.seconds(1), backoff_rate=2, max_attempts=5)
        return self._lock.serialize(
            self, "Giver", transfer, entity="$.transfer.giver", namespace="accounts", lock_path="$.lock"
        )

    def _function(self) -> lambda_.Function:
        function = lambda_.Function(
            self,
            "Transfer",
            code=code_with_ticketlock(self, _FUNCTION),
            handler="transfer.handler",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=512,
            timeout=Duration.seconds(30),
            log_group=logs.LogGroup(self, "TransferLogs", removal_policy=RemovalPolicy.DESTROY),
            environment={
                "ACCOUNTS_TABLE": self._accounts.table_name,
                "LOCK_TABLE": self._lock.table.table_name,
                "RECEIPTS_URL": self._receipts.queue_url,
                "UNITS_TABLE": self._units.table.table_name,
            },
        )
        self._units.grant_units(function)
        self._lock.grant_fence(function)
        self._receipts.grant_send_messages(function)
        return function
