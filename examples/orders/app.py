"""The CDK app of the example."""

from aws_cdk import App
from orders_stack import OrdersStack

app = App()
OrdersStack(app, "Orders", description="Orders whose steps run one at a time for each product and each customer")
app.synth()
