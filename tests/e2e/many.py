"""A CDK app: one lock, and a hundred state machines that are attached to it, of which the last has a fragment."""

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from ticketlock_cdk import TicketLock

MACHINES = 100

app = App()
stack = Stack(app, "TicketlockMany")
lock = TicketLock(stack, "Lock", removal_policy=RemovalPolicy.DESTROY)
role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
for number in range(MACHINES - 1):
    nothing = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, f"Nothing{number}"))
    lock.attach(sfn.StateMachine(stack, f"Workflow{number}", role=role, definition_body=nothing))
look = sfn.Wait(stack, "Look", time=sfn.WaitTime.seconds_path("$.seconds"))
fragment = lock.serialize(stack, "Ship", look, entity="$.entity")
last = sfn.StateMachine(stack, "Last", definition_body=sfn.DefinitionBody.from_chainable(fragment))
lock.attach(last)
CfnOutput(stack, "TableName", value=lock.table.table_name)
CfnOutput(stack, "StateMachineArn", value=last.state_machine_arn)
app.synth()
