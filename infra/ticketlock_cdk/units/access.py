"""Permissions of processes that run units, of readers beside them, and of the sweeper (docs/permissions.md).

A transaction needs the permission of each of its actions:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from ticketlock.units._records import OPEN
from ticketlock_cdk.either_stack import at_synthesis, either_stack
from ticketlock_cdk.lock import Grantee, beside, to_each
from ticketlock_cdk.nag import acknowledge_wildcard
from ticketlock_cdk.policies import MOST_MANAGED, Policies, Room
from ticketlock_cdk.tables import LONGEST_KEY_ARN, TO_READ, TO_WRITE, let_read, let_use, longest_arn, may_have_indexes

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
QUERY_INDEXES = ("dynamodb:Query",)
SWEEP_RECORDS = (
    "dynamodb:BatchGetItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
)
LIST_OPEN_UNITS = ("dynamodb:Scan",)
SHOW_OPEN_UNITS = ("dynamodb:BatchGetItem",)
ROLL_BACK_SAVED = ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem")
FINISH_ITEMS = ("dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem")

_INDEXES = "/index/*"
# Of the 10,240 characters of a role: the rest is for the units table, its key, the logs and a network.
_INLINE = 6_000


def let_list_open(function: lambda_.Function, table: dynamodb.ITable) -> None:
    """Let a function find the open units, by the units table's index."""
    resources = [f"{table.table_arn}/index/{OPEN}"]
    function.add_to_role_policy(iam.PolicyStatement(actions=list(LIST_OPEN_UNITS), resources=resources))


def let_show_open(function: lambda_.Function, table: dynamodb.ITable) -> None:
    """Let a function read the open units, and no items in the tables of users."""
    let_list_open(function, table)
    function.add_to_role_policy(iam.PolicyStatement(actions=list(SHOW_OPEN_UNITS), resources=[table.table_arn]))
    if table.encryption_key is not None:
        let_read(function, table.encryption_key)


class Finishing:
    """Lets the sweeper finish the items of tables.

    The policies are in the units' stack: so functions there, and in other stacks, may use the tables of a stack that
    knows nothing of units. Where the tables' stack waits for the units' stack, they are in the tables' stack.

    Args:
        units: the construct.
        role: the sweeper's.
    """

    def __init__(self, units: Construct, role: iam.IRole) -> None:
        self._units = units
        self._role = role
        self._policies = Policies(role, "FinishItems", Room(inline=_INLINE, managed=MOST_MANAGED))

    def let(self, table: dynamodb.ITable, name: str) -> None:
        """Allow it for one table.

        Args:
            table: the table.
            name: what gives it, for the message.

        Raises:
            ValueError: the role has no room for one more.
        """
        place = either_stack(self._units, "Finish", beside(self._units, Stack.of(table)))
        finish = self._policies.with_room(place, FINISH_ITEMS, table.node.path, longest_arn(table))
        key = table.encryption_key
        use = () if key is None else self._policies.with_room(place, TO_WRITE, key.node.path, LONGEST_KEY_ARN)
        if not finish or (key is not None and not use):
            raise ValueError(
                f"{name} is {table.node.path}, for which the role {self._role.node.path} has no room in its inline "
                f"policies and {MOST_MANAGED} managed policies; allowed: fewer tables for one TransactionTables"
            )
        for policy in finish:
            policy.add_statements(iam.PolicyStatement(actions=list(FINISH_ITEMS), resources=[table.table_arn]))
        for policy in use:
            assert key is not None
            let_use(policy, key, TO_WRITE)


class Granting:
    """Grants to those who run units, and to those who read beside them.

    Args:
        units: the construct.
        own: the units table.
    """

    def __init__(self, units: Construct, own: dynamodb.ITable) -> None:
        self._own = own
        self._without_indexes: dict[str, tuple[dynamodb.ITable, list[Callable[[], None]]]] = {}
        at_synthesis(units, self._grant_new_indexes)

    def units(self, grantee: Grantee, tables: Sequence[dynamodb.ITable]) -> iam.Grant:
        """Let a principal run units over these tables.

        Raises:
            ValueError: the principal's policies have no room for them.
        """
        return self._grant(grantee, RUN_UNITS, TO_WRITE, tables)

    def reads(self, grantee: Grantee, tables: Sequence[dynamodb.ITable]) -> iam.Grant:
        """Let a principal read items of these tables despite the marks of units.

        Raises:
            ValueError: the principal's policies have no room for them.
        """
        return self._grant(grantee, READ_BESIDE_UNITS, TO_READ, tables)

    def _grant(
        self,
        grantee: Grantee,
        actions: Sequence[str],
        of_keys: Sequence[str],
        tables: Sequence[dynamodb.ITable],
    ) -> iam.Grant:
        grants = [_on_table(grantee, actions, of_keys, table) for table in (self._own, *tables)]
        for table in tables:
            if may_have_indexes(table):
                _on_indexes(grantee, table)
            else:
                _, later = self._without_indexes.setdefault(table.node.path, (table, []))
                later.append(partial(_on_indexes, grantee, table))
        return reduce(lambda one, other: one.combine(other), grants)

    def _grant_new_indexes(self) -> None:
        """An index may be added to a table after it was granted."""
        for path, (table, grants) in list(self._without_indexes.items()):
            if may_have_indexes(table):
                for grant in grants:
                    grant()
                del self._without_indexes[path]


def _on_table(grantee: Grantee, actions: Sequence[str], of_keys: Sequence[str], table: dynamodb.ITable) -> iam.Grant:
    grant = to_each(
        grantee.room_for(actions, table, longest_arn(table)),
        lambda room: iam.Grant.add_to_principal(grantee=room, actions=list(actions), resource_arns=[table.table_arn]),
    )
    key = table.encryption_key
    if key is None:
        return grant
    rooms = grantee.room_for(of_keys, key, LONGEST_KEY_ARN)
    return grant.combine(to_each(rooms, lambda room: let_use(room, key, of_keys)))


def _on_indexes(grantee: Grantee, table: dynamodb.ITable) -> None:
    arn = f"{table.table_arn}{_INDEXES}"
    for room in grantee.room_for(QUERY_INDEXES, table, longest_arn(table) + len(_INDEXES)):
        iam.Grant.add_to_principal(grantee=room, actions=list(QUERY_INDEXES), resource_arns=[arn])
        if isinstance(room, iam.Policy | iam.ManagedPolicy):
            acknowledge_wildcard(room, "indexes", arn)
