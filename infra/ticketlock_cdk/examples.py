"""Two small targets to try a TicketLock with: a workflow and a function."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.machine_logs import machine_log_group
from ticketlock_cdk.nag import acknowledge, acknowledge_wildcard

_FAILED = "ExampleFailed"
_FUNCTION = f"""\
import time


class {_FAILED}(Exception):
    pass


def handler(event, _context):
    started = time.time()
    time.sleep(max(float(event.get("seconds", 1)), 0))
    print("slept for", event["lock"]["entity"])
    if "fail" in event:
        raise {_FAILED}(event["fail"])
    return {{"startedMs": int(started * 1000), "endedMs": int(time.time() * 1000), "lock": event["lock"]}}
"""


def example_workflow(
    scope: Construct, id: str, *, encryption_key: kms.IKey | None, tracing: bool = True
) -> sfn.StateMachine:
    """A workflow that waits for the ``seconds`` of its input, 1 if it has none, and returns its input.

    With ``fail`` in its input, a text, it fails with that as the cause instead.
    """
    returned = sfn.Pass(scope, f"{id}Returns", state_name="Return", comment="The output is the input.")
    failed = sfn.Fail(
        scope,
        f"{id}Fails",
        state_name="FailAsAsked",
        comment="Stands for work that fails.",
        error=_FAILED,
        cause_path="$.fail",
    )
    end = sfn.Choice(scope, f"{id}Ends", state_name="FailOrReturn", comment="It fails if the input says so.")
    end.when(sfn.Condition.is_present("$.fail"), failed).otherwise(returned)
    asked = sfn.Wait(
        scope,
        f"{id}Waits",
        state_name="WaitAsAsked",
        comment="Stands for work that takes its time.",
        time=sfn.WaitTime.seconds_path("$.seconds"),
    )
    one_second = sfn.Wait(
        scope,
        f"{id}WaitsOneSecond",
        state_name="WaitOneSecond",
        comment="Stands for work that takes its time.",
        time=sfn.WaitTime.duration(Duration.seconds(1)),
    )
    choice = sfn.Choice(scope, f"{id}Chooses", state_name="HowLong", comment="How long, if the input says so.")
    choice.when(sfn.Condition.is_present("$.seconds"), asked.next(end)).otherwise(one_second.next(end))
    machine = sfn.StateMachine(
        scope,
        id,
        comment="An example of a workflow that runs under the lock.",
        definition_body=sfn.DefinitionBody.from_chainable(choice),
        tracing_enabled=tracing,
        logs=sfn.LogOptions(
            destination=machine_log_group(
                scope,
                f"{id}Logs",
                retention=logs.RetentionDays.ONE_WEEK,
                removal_policy=RemovalPolicy.DESTROY,
                encryption_key=encryption_key,
            ),
            level=sfn.LogLevel.ALL,
        ),
    )
    acknowledge_wildcard(machine, "services")
    if not tracing:
        acknowledge(machine, "SF2", "StepFunctionStateMachineXray")
    return machine


def example_function(
    scope: Construct, id: str, *, encryption_key: kms.IKey | None, tracing: bool = True
) -> lambda_.Function:
    """A function that sleeps for the ``seconds`` of its input, and returns when, and under which lock.

    As every function it may run for 15 minutes. With ``fail`` in its input, a text, it raises an error with that
    message instead.
    """
    log_group = logs.LogGroup(
        scope,
        f"{id}Logs",
        retention=logs.RetentionDays.ONE_WEEK,
        removal_policy=RemovalPolicy.DESTROY,
        encryption_key=encryption_key,
    )
    role = iam.Role(scope, f"{id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    log_group.grant_write(role)
    acknowledge_wildcard(role, "services")
    function = lambda_.Function(
        scope,
        id,
        code=lambda_.Code.from_inline(_FUNCTION),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_14,
        architecture=lambda_.Architecture.ARM_64,
        memory_size=128,
        timeout=Duration.minutes(15),
        tracing=lambda_.Tracing.ACTIVE if tracing else lambda_.Tracing.DISABLED,
        log_group=log_group,
        role=role,
    )
    of_tracing = () if tracing else ("LambdaTracing",)
    acknowledge(function, "LambdaConcurrency", "LambdaDLQ", "LambdaInsideVPC", *of_tracing)
    return function
