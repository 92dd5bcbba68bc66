"""Permissions of processes that run units, of readers beside them, and of the sweeper (docs/units.md).

A transaction needs the permission of each of its actions:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
"""

from collections.abc import Callable, Sequence

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from ticketlock_cdk.lock.grants import Grantee, beside
from ticketlock_cdk.tables import let_read, let_write

RUN_UNITS = (
    "dynamodb:BatchGetItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:DescribeTable",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
)
READ_BESIDE_UNITS = ("dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query")
SWEEP_RECORDS = (
    "dynamodb:BatchGetItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Scan",
    "dynamodb:UpdateItem",
)
ROLL_BACK_SAVED = ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem")
FINISH_ITEMS = ("dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem")


def grant_units(grantee: Grantee, tables: Sequence[dynamodb.ITable]) -> iam.Grant:
    """Let a principal run units over these tables, one of which is the units table."""
    return _grant(grantee, RUN_UNITS, tables, let_write)


def grant_reads(grantee: Grantee, tables: Sequence[dynamodb.ITable]) -> iam.Grant:
    """Let a principal read items despite the marks of units."""
    return _grant(grantee, READ_BESIDE_UNITS, tables, let_read)


def let_finish(units: Construct, role: iam.IRole, table: dynamodb.ITable) -> None:
    """Let the sweeper finish the items of a table, by a policy in the table's own stack.

    So this stack need not wait for that one, whose functions may need this stack's table.
    """
    stack = Stack.of(table)
    place = units if stack is Stack.of(units) else beside(units, stack)
    policy = place.node.try_find_child("FinishItems")
    if policy is None:
        policy = iam.Policy(place, "FinishItems", document=iam.PolicyDocument(minimize=True))
        policy.attach_to_role(role)
    assert isinstance(policy, iam.Policy)
    policy.add_statements(iam.PolicyStatement(actions=list(FINISH_ITEMS), resources=[table.table_arn]))
    if table.encryption_key is not None:
        let_write(policy, table.encryption_key)


def _grant(
    grantee: Grantee,
    actions: Sequence[str],
    tables: Sequence[dynamodb.ITable],
    let_use: Callable[[iam.IGrantable, kms.IKey], iam.Grant],
) -> iam.Grant:
    grant = iam.Grant.add_to_principal(
        grantee=grantee.grantable, actions=list(actions), resource_arns=[table.table_arn for table in tables]
    )
    for table in tables:
        if table.encryption_key is not None:
            grant = grant.combine(let_use(grantee.grantable, table.encryption_key))
    return grant
