"""A CDK app: one stack with two locks that are set otherwise than the ready-made stack's, and three targets."""

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_
from ticketlock_cdk import HandOver, TicketLock
from ticketlock_cdk.examples import example_function, example_workflow

_SLEEPS = """\
import time


def handler(event, _context):
    # The work of this function is to last.
    time.sleep(event["seconds"])
    print("slept for", event["lock"]["owner"])
"""

app = App()
stack = Stack(app, "TicketlockBeside")
workflow = example_workflow(stack, "Example", encryption_key=None)
function = example_function(stack, "ExampleFunction", encryption_key=None)
# It may sleep for longer than the shorter lease.
sleeper = lambda_.Function(
    stack,
    "Sleeper",
    code=lambda_.Code.from_inline(_SLEEPS),
    handler="index.handler",
    runtime=lambda_.Runtime.PYTHON_3_14,
    timeout=Duration.seconds(30),
)
CfnOutput(stack, "ExampleTargetArn", value=workflow.state_machine_arn)
CfnOutput(stack, "ExampleFunctionArn", value=function.function_arn)
CfnOutput(stack, "ExampleSleeperArn", value=sleeper.function_arn)
for name, hand_over, lease_s in (("Polling", HandOver.POLL, 60), ("ShortLease", HandOver.CALLBACK, 10)):
    lock = TicketLock(
        stack,
        name,
        hand_over=hand_over,
        lease=Duration.seconds(lease_s),
        poll=Duration.seconds(1),
        targets=[workflow, function, sleeper],
        removal_policy=RemovalPolicy.DESTROY,
    )
    CfnOutput(stack, f"{name}TableName", value=lock.table.table_name)
    CfnOutput(stack, f"{name}StateMachineArn", value=lock.state_machine.state_machine_arn)
app.synth()
