"""The CDK app: one ready-made stack, which cdk-nag checks whenever it is synthesised."""

import os

# Before the CDK's runtime starts Node: which version that is, is no matter of this stack. As in the Makefile.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "true")

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks
from ticketlock_cdk import TicketlockStack

app = App()
TicketlockStack(app, "Ticketlock", description="Workflows that run one at a time for each entity, in arrival order")
Validations.of(app).add_plugins(AwsSolutionsChecks(app))
app.synth()
