"""The CDK app of the example."""

from aws_cdk import App
from transfer_stack import TransferStack

app = App()
TransferStack(app, "Transfer", description="Transfers of money that are written once, under a lock")
app.synth()
