"""The CDK app: one ready-made stack, which cdk-nag checks whenever it is synthesised."""

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks
from ticketlock_cdk import TicketlockStack

app = App()
TicketlockStack(app, "Ticketlock", description="Workflows that run one at a time for each entity, in arrival order")
Validations.of(app).add_plugins(AwsSolutionsChecks(app))
app.synth()
