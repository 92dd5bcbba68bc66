"""An order: each product is reserved by one execution at a time, then the customer is charged.

Two fragments of one lock, in two namespaces: one in a Map, over one function; one over a chain of two states.
"""

from typing import Any

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct
from order_functions import CHARGE, RESERVE
from ticketlock_cdk import AlarmThresholds, TicketLock


class OrdersStack(Stack):
    """The workflow ``OrderWorkflow``, its functions, its table, and the lock that it uses."""

    def __init__(self, scope: Construct, id: str, **stack_properties: Any) -> None:
        super().__init__(scope, id, **stack_properties)
        self._shop = dynamodb.TableV2(
            self,
            "Shop",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            # An example leaves nothing behind.
            removal_policy=RemovalPolicy.DESTROY,
        )
        lock = TicketLock(
            self,
            "Lock",
            lease=Duration.seconds(30),
            poll=Duration.seconds(2),
            removal_policy=RemovalPolicy.DESTROY,
            dashboard=True,
            alarms=True,
            alarm_thresholds=AlarmThresholds(record_waits_exceeded=10),
        )
        workflow = sfn.StateMachine(
            self,
            "OrderWorkflow",
            definition_body=sfn.DefinitionBody.from_chainable(self._reserve(lock).next(self._charge(lock))),
            tracing_enabled=True,
        )
        lock.attach(workflow)
        CfnOutput(self, "OrderWorkflowArn", value=workflow.state_machine_arn)
        CfnOutput(self, "LockTableName", value=lock.table.table_name)
        CfnOutput(self, "ListLocks", value=lock.list_command)
        CfnOutput(self, "ShopTableName", value=self._shop.table_name)

    def _reserve(self, lock: TicketLock) -> sfn.Map:
        """Reserve each product, one reservation at a time in ticket order; different products in parallel."""
        each = sfn.Map(
            self,
            "EachItem",
            items_path="$.items",
            item_selector={
                "sku.$": "$$.Map.Item.Value.sku",
                "quantity.$": "$$.Map.Item.Value.quantity",
                "seconds.$": "$.secondsAnItem",
            },
            result_path="$.reserved",
        )
        reserve = lock.serialize(
            self,
            "ReserveItem",
            self._function("Reserve", RESERVE),
            entity="$.sku",
            namespace="products",
            lock_path="$.lock",
        )
        return each.item_processor(reserve)

    def _charge(self, lock: TicketLock) -> sfn.IChainable:
        """Charge one order at a time for each customer; an order that would wait for over a minute is postponed."""
        charge = tasks.LambdaInvoke(
            self,
            "ChargeCustomer",
            lambda_function=self._function("Charge", CHARGE),
            payload_response_only=True,
            result_path="$.receipt",
        )
        notify = sfn.Pass(
            self,
            "TellReceipt",
            parameters={
                "orderId.$": "$.orderId",
                "reserved.$": "$.reserved",
                "receipt.$": "$.receipt",
                "fencingToken.$": "$.lock.fencingToken",
            },
        )
        locked = lock.serialize(
            self,
            "Payment",
            charge.next(notify),
            entity="$.customer",
            namespace="customers",
            record_wait=Duration.minutes(1),
            lock_path="$.lock",
        ).to_single_state()
        locked.add_catch(
            sfn.Pass(self, "PutOff", parameters={"orderId.$": "$.orderId", "putOff": True}),
            errors=["RecordWaitExceeded"],
            result_path="$.failure",
        )
        return locked

    def _function(self, id: str, code: str) -> lambda_.Function:
        function = lambda_.Function(
            self,
            id,
            code=lambda_.Code.from_inline(code),
            handler="index.handler",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            timeout=Duration.seconds(20),
            environment={"TABLE_NAME": self._shop.table_name},
        )
        self._shop.grant(function, "dynamodb:UpdateItem")
        return function
