"""The table: a new one, or a given one."""

import pytest
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match
from ticketlock_cdk import TicketLock

PK = dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING)
SK = dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING)


@pytest.fixture
def table(typical):
    return typical.synthesised.one(typical.lock.table)


def test_the_keys_are_two_strings(table):
    assert table["Properties"]["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    assert {each["AttributeType"] for each in table["Properties"]["AttributeDefinitions"]} == {"S"}


def test_what_is_over_deletes_itself(table):
    assert table["Properties"]["TimeToLiveSpecification"] == {"AttributeName": "expiresAt", "Enabled": True}


def test_it_can_be_restored_to_any_moment(table):
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_it_is_paid_on_demand(table):
    assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"


def test_it_outlives_its_stack(table):
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert table["Properties"]["DeletionProtectionEnabled"] is True


def test_it_is_no_global_table(table):
    assert table["Type"] == "AWS::DynamoDB::Table"


def test_it_goes_with_the_stack_if_asked_to(stack, synthesise):
    lock = TicketLock(stack, "Lock", removal_policy=RemovalPolicy.DESTROY)
    table = synthesise(stack).one(lock.table)
    assert table["DeletionPolicy"] == "Delete"
    assert table["Properties"]["DeletionProtectionEnabled"] is False


@pytest.mark.parametrize("kind", [dynamodb.Table, dynamodb.TableV2])
def test_a_given_table_is_used_and_granted(kind, stack, synthesise):
    given = kind(stack, "Given", partition_key=PK, sort_key=SK, time_to_live_attribute="expiresAt")
    lock = TicketLock(stack, "Lock", table=given)
    found = synthesise(stack)
    assert lock.table is given
    assert not [id for id in found.of_type("AWS::DynamoDB::Table") if id != found.id_of(given)]
    for function in (lock.take_ticket, lock.check_position, lock.heartbeat, lock.release):
        assert found.function(function)["Environment"]["Variables"]["TABLE_NAME"] == {"Ref": found.id_of(given)}
        granted = [one for one in found.statements(function) if "dynamodb:" in str(one["Action"])]
        assert [one["Resource"] for one in granted] == [{"Fn::GetAtt": [found.id_of(given), "Arn"]}]


def test_an_imported_table_is_used(stack, synthesise):
    given = dynamodb.Table.from_table_name(stack, "Given", "locks")
    lock = TicketLock(stack, "Lock", table=given)
    found = synthesise(stack)
    assert found.of_type("AWS::DynamoDB::Table") == {}
    assert found.function(lock.release)["Environment"]["Variables"]["TABLE_NAME"] == "locks"


def test_a_given_table_with_a_key_of_its_own_can_be_read_and_written(stack, synthesise):
    key = kms.Key(stack, "Key")
    given = dynamodb.Table(
        stack, "Given", partition_key=PK, sort_key=SK, time_to_live_attribute="expiresAt", encryption_key=key
    )
    lock = TicketLock(stack, "Lock", table=given)
    found = synthesise(stack)
    for user in (lock.take_ticket, lock.check_position, lock.heartbeat, lock.release, lock.state_machine):
        assert "kms:Decrypt" in str(list(found.statements(user)))


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ({"partition_key": PK}, "pk (HASH, S)"),
        ({"partition_key": SK, "sort_key": PK}, "sk (HASH, S), pk (RANGE, S)"),
        (
            {"partition_key": PK, "sort_key": dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.NUMBER)},
            "pk (HASH, S), sk (RANGE, N)",
        ),
    ],
)
@pytest.mark.parametrize("kind", [dynamodb.Table, dynamodb.TableV2])
def test_a_given_table_with_other_keys_is_refused(kind, keys, shown, stack):
    given = kind(stack, "Given", **keys)
    with pytest.raises(ValueError, match="table Test/Given has the keys") as refused:
        TicketLock(stack, "Lock", table=given)
    assert shown in str(refused.value)
    assert "allowed: the partition key pk and the sort key sk" in str(refused.value)


def test_a_given_table_that_keeps_what_is_over_brings_a_warning(stack: Stack):
    given = dynamodb.Table(stack, "Given", partition_key=PK, sort_key=SK)
    TicketLock(stack, "Lock", table=given)
    Annotations.from_stack(stack).has_warning("/Test/Lock", Match.string_like_regexp("no time to live on expiresAt"))
