"""Bookings: a workflow whose states add to one unit of work, which the last one commits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct
from ticketlock_cdk import TransactionTables, code_with_ticketlock

_FUNCTION = Path(__file__).with_name("function")
STATES = ("take_seat", "take_room", "pay", "let_go")
# Errors that a retry of the same state cannot repair.
_FOR_GOOD = ["ConditionFailed", "UnitConflict", "UnitForgotten", "UnitRolledBack"]


class BookingStack(Stack):
    """The workflow ``BookingWorkflow``, its functions, its tables, and the units' table."""

    def __init__(self, scope: Construct, id: str, **stack_properties: Any) -> None:
        super().__init__(scope, id, **stack_properties)
        # An example leaves nothing behind.
        destroy = RemovalPolicy.DESTROY
        self._offers, self._travellers, self._bookings = (
            dynamodb.TableV2(
                self,
                name,
                partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
                removal_policy=destroy,
            )
            for name in ("Offers", "Travellers", "Bookings")
        )
        self._units = TransactionTables(
            self, "Units", data_tables=[self._offers, self._travellers, self._bookings], removal_policy=destroy
        )
        functions = self._functions()
        workflow = sfn.StateMachine(
            self,
            "BookingWorkflow",
            definition_body=sfn.DefinitionBody.from_chainable(booking(self, functions)),
            timeout=Duration.hours(1),
            tracing_enabled=True,
        )
        # If an execution is stopped or times out, none of its states runs any more: this rolls its unit back.
        self._units.attach(workflow)
        assert self._units.roll_back is not None
        for name, value in {
            "BookingWorkflowArn": workflow.state_machine_arn,
            "BookingsTableName": self._bookings.table_name,
            "OffersTableName": self._offers.table_name,
            "TravellersTableName": self._travellers.table_name,
            "UnitsTableName": self._units.table.table_name,
            "ListUnits": self._units.list_command,
            "RollBackName": self._units.roll_back.function_name,
            **{f"Function{name.replace('_', '')}": function.function_name for name, function in functions.items()},
        }.items():
            CfnOutput(self, name, value=value)

    def _functions(self) -> Mapping[str, lambda_.Function]:
        code = code_with_ticketlock(self, _FUNCTION)
        made = {name: self._function(name, code) for name in STATES}
        for function in made.values():
            self._units.grant_units(function)
        return made

    def _function(self, name: str, code: lambda_.Code) -> lambda_.Function:
        id = name.title().replace("_", "") + "Function"
        return lambda_.Function(
            self,
            id,
            code=code,
            handler=f"booking.{name}",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=512,
            timeout=Duration.seconds(30),
            log_group=logs.LogGroup(self, f"{id}Logs", removal_policy=RemovalPolicy.DESTROY),
            environment={
                "BOOKINGS_TABLE": self._bookings.table_name,
                "OFFERS_TABLE": self._offers.table_name,
                "TRAVELLERS_TABLE": self._travellers.table_name,
                "UNITS_TABLE": self._units.table.table_name,
            },
        )


def booking(scope: Construct, functions: Mapping[str, lambda_.IFunction]) -> sfn.IChainable:
    """The states: a seat, a room, the price; and what is done if one of them fails.

    Args:
        functions: by the names of ``STATES``.
    """

    def state(name: str, function: str, result_path: str) -> sfn.TaskStateBase:
        made = tasks.LambdaInvoke(
            scope,
            name,
            lambda_function=functions[function],
            payload=sfn.TaskInput.from_object(
                {
                    "execution": sfn.JsonPath.execution_id,
                    # After a redrive the owner of the units is another one, since the first owner has ended.
                    "redrives": sfn.JsonPath.number_at("$$.Execution.RedriveCount"),
                    "trip": sfn.JsonPath.object_at("$.trip"),
                    **({} if function == "take_seat" else {"unit": sfn.JsonPath.string_at("$.unit")}),
                }
            ),
            payload_response_only=True,
            result_path=result_path,
            task_timeout=sfn.Timeout.duration(Duration.seconds(60)),
            retry_on_service_exceptions=False,
        )
        made.add_retry(errors=_FOR_GOOD, max_attempts=0)
        return made.add_retry(interval=Duration.seconds(1), backoff_rate=2, max_attempts=3)

    nothing = sfn.JsonPath.DISCARD
    take_seat, take_room = state("TakeSeat", "take_seat", "$.unit"), state("TakeRoom", "take_room", "$.unit")
    pay = state("Pay", "pay", nothing)
    not_booked = sfn.Fail(scope, "NotBooked", error_path="$.failure.Error", cause_path="$.failure.Cause")
    give_up = state("GiveUp", "let_go", nothing).next(not_booked)
    # After a redrive the unit is rolled back already; after a conflict, another booking has changed one of the items.
    begin_again = state("BeginAgain", "let_go", nothing).next(take_seat)
    for each in (take_room, pay):
        each.add_catch(begin_again, errors=["UnitRolledBack", "UnitConflict"], result_path=nothing)
        each.add_catch(give_up, result_path="$.failure")
    return take_seat.next(take_room).next(pay)
