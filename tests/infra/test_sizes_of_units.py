"""Policies that grow with data tables stay within AWS's sizes, with the longest names in any Region.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""

import json

import pytest
from aws_cdk import App, Environment, Fn, NestedStack, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from ticketlock_cdk import TransactionTables
from ticketlock_cdk.tables import longest_arn

INLINE = {iam.Role: 10_240, iam.User: 2_048, iam.Group: 5_120}
MANAGED = 6_144
MOST_MANAGED = 10
# With the longest names, and a key of its own for each table.
MOST_TABLES = 153
MOST_OF_A_ROLE, MOST_OF_A_USER, MOST_OF_A_GROUP = 64, 60, 61
# The longest of each.
PARTITION, REGION, ACCOUNT = "aws-us-gov", "us-isof-south-1", "123456789012"
LONGEST_NAME = 255
MANY = pytest.mark.verify("a stack with hundreds of tables")
ID = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)


@pytest.fixture
def far(outdir):
    return Stack(App(outdir=outdir), "Far", env=Environment(region=REGION, account=ACCOUNT))


def encrypted_table(stack, number):
    """A table with the longest name and a key of its own."""
    key = kms.Key.from_key_arn(stack, f"Key{number}", f"arn:{PARTITION}:kms:{REGION}:{ACCOUNT}:key/{number:x>36}")
    name = f"{number:t>{LONGEST_NAME}}"
    return dynamodb.Table.from_table_attributes(stack, f"Table{number}", table_name=name, encryption_key=key)


def sizes(found, principal):
    """The characters of the inline policies of a principal, all together, and of each of its managed policies."""
    me = {"Ref": found.id_of(principal)}
    inline, managed = (
        [
            len(resolved(found, policy["PolicyDocument"]))
            for policy in found.of_type(f"AWS::IAM::{kind}").values()
            if any(me in policy.get(kinds, ()) for kinds in ("Roles", "Users", "Groups"))
        ]
        for kind in ("Policy", "ManagedPolicy")
    )
    return sum(inline), managed


def resolved(found, document):
    def text(value):
        if isinstance(value, dict) and not any(key == "Ref" or key.startswith("Fn::") for key in value):
            return {key: text(inner) for key, inner in value.items()}
        return [text(inner) for inner in value] if isinstance(value, list) else found.text(value)

    return json.dumps(text(document), separators=(",", ":")).replace("<AWS::Partition>", PARTITION)


def refused_after(grant, stack):
    """Grant one table after the other; returns how many were, and the message of the refusal."""
    number = 0
    while True:
        try:
            grant(encrypted_table(stack, number))
        except ValueError as error:
            return number, str(error)
        number += 1


@MANY
def test_as_many_tables_as_the_sweepers_role_has_room_for_are_swept_and_one_more_is_refused_by_name(far, synthesise):
    vpc = ec2.Vpc.from_vpc_attributes(
        far, "Vpc", vpc_id="vpc-1", availability_zones=["a"], private_subnet_ids=["subnet-1"]
    )
    units = TransactionTables(far, "Units", encryption_key=kms.Key(far, "Key"), vpc=vpc)

    def swept(table):
        # A grantee each, which has room.
        units.grant_units(iam.User(table, "User"), table)

    number, message = refused_after(swept, far)
    assert number == MOST_TABLES
    role = "Far/Units/Sweeper/FunctionRole"
    assert message.startswith(f"tables[0] is Far/Table{number}, for which the role {role} has no room in its inline ")
    assert "allowed: fewer tables for one TransactionTables" in message
    inline, managed = sizes(synthesise(far), units.sweeper.role)
    assert inline <= INLINE[iam.Role]
    assert max(managed) <= MANAGED
    assert len(managed) == MOST_MANAGED


@MANY
@pytest.mark.parametrize(
    ("kind", "most"), [(iam.Role, MOST_OF_A_ROLE), (iam.User, MOST_OF_A_USER), (iam.Group, MOST_OF_A_GROUP)]
)
def test_as_many_tables_as_a_grantee_has_room_for_are_granted_and_one_more_is_refused_by_name(
    kind, most, far, synthesise
):
    units = TransactionTables(far, "Units")
    more = {"assumed_by": iam.ServicePrincipal("ecs-tasks.amazonaws.com")} if kind is iam.Role else {}
    grantee = kind(far, "Grantee", **more)
    number, message = refused_after(lambda table: units.grant_units(grantee, table), far)
    assert number == most
    assert message.startswith("grantee is Far/Grantee, which has no room for Far/")
    assert "allowed: fewer resources for one role, user or group" in message
    inline, managed = sizes(synthesise(far), grantee)
    # The rest is for other policies of the grantee.
    assert inline <= INLINE[kind] / 2
    assert max(managed) <= MANAGED
    assert len(managed) == MOST_MANAGED - 2


@MANY
def test_all_grants_to_one_principal_have_its_room_together(far, synthesise):
    grantee = iam.Role(far, "Grantee", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    units, others = (TransactionTables(far, name) for name in ("Units", "Others"))

    def grant(table):
        units.grant_units(grantee, table)
        units.grant_reads(grantee, table)
        others.grant_units(grantee, table)
        # What was granted takes no more room.
        units.grant_units(grantee, table)

    number, message = refused_after(grant, far)
    assert number < MOST_OF_A_ROLE / 3
    assert message.startswith("grantee is Far/Grantee, which has no room for Far/")
    inline, managed = sizes(synthesise(far), grantee)
    assert inline <= INLINE[iam.Role]
    assert max(managed) <= MANAGED
    assert len(managed) == MOST_MANAGED - 2


def test_a_name_that_is_made_at_deploy_time_gets_as_much_room_as_it_may_need(far):
    """``Far-Made``, the hash in the logical id, and what CloudFormation adds."""
    before = len(f"arn:{PARTITION}:dynamodb:{REGION}:{ACCOUNT}:table/")
    made = dynamodb.Table(far, "Made", partition_key=ID)
    named = dynamodb.TableV2(far, "Named", partition_key=ID, table_name="accounts")
    nested = dynamodb.Table(NestedStack(far, "Nested"), "Made", partition_key=ID)
    imported = dynamodb.Table.from_table_arn(far, "Imported", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/orders")
    token = dynamodb.Table.from_table_name(far, "Token", Fn.import_value("Orders"))
    assert longest_arn(made) - before == len("Far-Made12345678-") + 14
    assert longest_arn(named) - before == len("accounts")
    assert longest_arn(imported) - before == len("orders")
    assert longest_arn(nested) - before == longest_arn(token) - before == LONGEST_NAME
