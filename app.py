"""The CDK app: one ready-made stack."""

from aws_cdk import App
from ticketlock_cdk import TicketlockStack

app = App()
TicketlockStack(app, "Ticketlock", description="Workflows that run one at a time for each entity, in arrival order")
app.synth()
