"""A CDK app: a stack whose lock is polled for, unlike that of the ready-made stack."""

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from ticketlock_cdk import HandOver, TicketLock
from ticketlock_cdk.examples import example_function

app = App()
stack = Stack(app, "TicketlockBeside")
function = example_function(stack, "ExampleFunction", encryption_key=None)
lock = TicketLock(
    stack,
    "Polling",
    hand_over=HandOver.POLL,
    poll=Duration.seconds(1),
    targets=[function],
    removal_policy=RemovalPolicy.DESTROY,
)
CfnOutput(stack, "ExampleFunctionArn", value=function.function_arn)
CfnOutput(stack, "TableName", value=lock.table.table_name)
CfnOutput(stack, "StateMachineArn", value=lock.state_machine.state_machine_arn)
app.synth()
