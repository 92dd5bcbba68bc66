"""A CDK app: the tables and the sweeper of units of work, over two tables of a user's."""

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from ticketlock_cdk import TransactionTables

ID, PK = (dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING) for name in ("id", "pk"))
SK = dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.NUMBER)

app = App()
stack = Stack(app, "TicketlockUnits")
tables = {
    "accounts": dynamodb.Table(stack, "Accounts", partition_key=ID, removal_policy=RemovalPolicy.DESTROY),
    "lines": dynamodb.Table(stack, "Lines", partition_key=PK, sort_key=SK, removal_policy=RemovalPolicy.DESTROY),
}
units = TransactionTables(
    stack,
    "Units",
    data_tables=list(tables.values()),
    # The tests call the sweeper.
    sweep_every=Duration.days(1),
    removal_policy=RemovalPolicy.DESTROY,
    alarms=True,
)
for name, table in {"units": units.table, **tables}.items():
    CfnOutput(stack, name, value=table.table_name)
CfnOutput(stack, "sweeper", value=units.sweeper.function_name)
app.synth()
