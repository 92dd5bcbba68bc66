"""A CDK app: two tables of a user's in a stack of data, and in the app's stack what runs units over them."""

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from ticketlock_cdk import TransactionTables

ID, PK = (dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING) for name in ("id", "pk"))
SK = dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.NUMBER)

app = App()
data, stack = Stack(app, "TicketlockUnitsData"), Stack(app, "TicketlockUnits")
tables = {
    "accounts": dynamodb.Table(data, "Accounts", partition_key=ID, removal_policy=RemovalPolicy.DESTROY),
    "lines": dynamodb.Table(data, "Lines", partition_key=PK, sort_key=SK, removal_policy=RemovalPolicy.DESTROY),
}
tables["lines"].add_global_secondary_index(
    index_name="bySk", partition_key=SK, projection_type=dynamodb.ProjectionType.KEYS_ONLY
)
on_call, inbox = sns.Topic(stack, "OnCall"), sqs.Queue(stack, "Inbox")
on_call.add_subscription(subscriptions.SqsSubscription(inbox))
units = TransactionTables(
    stack,
    "Units",
    data_tables=list(tables.values()),
    # The tests call the sweeper.
    sweep_every=Duration.days(1),
    removal_policy=RemovalPolicy.DESTROY,
    alarms=True,
    alarm_topic=on_call,
)
worker = iam.Role(stack, "Worker", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
units.grant_units(worker)
for name, table in {"units": units.table, **tables}.items():
    CfnOutput(stack, name, value=table.table_name)
CfnOutput(stack, "sweeper", value=units.sweeper.function_name)
CfnOutput(stack, "worker", value=worker.role_arn)
CfnOutput(stack, "inbox", value=inbox.queue_url)
app.synth()
