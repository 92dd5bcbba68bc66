"""The table: a new one, or a given one; and a key of the user's, which encrypts everything that is stored."""

import pytest
from aws_cdk import App, Fn, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Annotations, Match
from ticketlock_cdk import TicketLock

PK = dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING)
SK = dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING)


@pytest.fixture
def table(typical):
    return typical.synthesised.one(typical.lock.table)


def test_the_keys_of_the_table_are_two_strings(table):
    assert table["Properties"]["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    assert {each["AttributeType"] for each in table["Properties"]["AttributeDefinitions"]} == {"S"}


def test_time_to_live_deletes_expired_items(table):
    assert table["Properties"]["TimeToLiveSpecification"] == {"AttributeName": "expiresAt", "Enabled": True}


def test_the_table_can_be_restored_to_any_moment(table):
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_the_table_is_billed_on_demand(table):
    assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"


def test_the_table_outlives_its_stack(table):
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert table["Properties"]["DeletionProtectionEnabled"] is True


def test_the_table_is_no_global_one(table):
    assert table["Type"] == "AWS::DynamoDB::Table"


@pytest.mark.verify("a stack of its own, synthesised")
def test_the_table_goes_with_the_stack_if_asked_to(stack, synthesise):
    lock = TicketLock(stack, "Lock", removal_policy=RemovalPolicy.DESTROY)
    table = synthesise(stack).one(lock.table)
    assert table["DeletionPolicy"] == "Delete"
    assert table["Properties"]["DeletionProtectionEnabled"] is False


@pytest.mark.verify("a stack of its own, synthesised")
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


@pytest.mark.verify("a stack of its own, synthesised")
def test_an_imported_table_is_used(stack, synthesise):
    given = dynamodb.Table.from_table_name(stack, "Given", "locks")
    lock = TicketLock(stack, "Lock", table=given)
    found = synthesise(stack)
    assert found.of_type("AWS::DynamoDB::Table") == {}
    assert found.function(lock.release)["Environment"]["Variables"]["TABLE_NAME"] == "locks"


@pytest.mark.verify("a stack of its own, synthesised")
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


@pytest.mark.parametrize(("attribute", "shown"), [(None, "no time to live"), ("ttl", "time to live on ttl")])
@pytest.mark.parametrize("kind", [dynamodb.Table, dynamodb.TableV2])
def test_a_given_table_without_time_to_live_is_refused(kind, attribute, shown, stack):
    given = kind(stack, "Given", partition_key=PK, sort_key=SK, time_to_live_attribute=attribute)
    with pytest.raises(ValueError, match="allowed: time to live on expiresAt") as refused:
        TicketLock(stack, "Lock", table=given)
    assert str(refused.value).startswith(f"table Test/Given has {shown}; ")


@pytest.mark.verify("a stack of its own, synthesised")
def test_a_given_table_with_replicas_brings_a_warning(outdir):
    stack = Stack(App(outdir=outdir), "Test", env={"region": "eu-west-1", "account": "123456789012"})
    replicas = [dynamodb.ReplicaTableProps(region="eu-central-1")]
    given = dynamodb.TableV2(
        stack, "Given", partition_key=PK, sort_key=SK, time_to_live_attribute="expiresAt", replicas=replicas
    )
    TicketLock(stack, "Lock", table=given)
    Annotations.from_stack(stack).has_warning("/Test/Lock", Match.string_like_regexp("use one lock in one Region only"))


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("table", ["locks", "arn:aws:dynamodb:eu-west-1:123456789012:table/locks"])
def test_an_existing_table_can_be_named(table, stack, synthesise):
    lock = TicketLock(stack, "Lock", table=table)
    found = synthesise(stack)
    assert found.of_type("AWS::DynamoDB::Table") == {}
    assert found.function(lock.release)["Environment"]["Variables"]["TABLE_NAME"] == "locks"
    [resource] = {str(one["Resource"]) for one in found.statements(lock.release) if "dynamodb:" in str(one["Action"])}
    assert "table/locks" in resource


@pytest.mark.parametrize(
    "table",
    ["", "ab", "a name", "arn:aws:sqs:eu-west-1:123456789012:queue", f"{'x' * 256}", 42, None],
    ids=str,
)
def test_anything_but_a_table_is_refused(table, stack):
    if table is None:
        table = sqs.Queue(stack, "Queue")
    with pytest.raises(ValueError, match=r"allowed: a table as a construct, the name of one .* its ARN") as refused:
        TicketLock(stack, "Lock", table=table)
    assert str(refused.value).startswith("table is ")


def test_a_table_that_is_known_only_at_deploy_time_is_refused(stack):
    with pytest.raises(ValueError, match=r"known only at deploy time; .*import it by Table.from_table_name"):
        TicketLock(stack, "Lock", table=Fn.import_value("TheTable"))


# A key of the user's: it encrypts everything that is stored, and all principals that need it may use it.


KEY_ARN = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000"


@pytest.fixture
def key_arn(everything):
    return {"Fn::GetAtt": [everything.synthesised.id_of(everything.key), "Arn"]}


@pytest.fixture
def of_service(everything):
    """The key policy's statements for services."""
    policy = everything.synthesised.one(everything.key)["Properties"]["KeyPolicy"]
    return [one for one in policy["Statement"] if "Service" in one["Principal"]]


@pytest.mark.verify("stacks of its own, each synthesised")
def test_a_key_encrypts_the_table(everything, key_arn):
    table = everything.synthesised.one(everything.lock.table)["Properties"]
    assert table["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key_arn}


@pytest.mark.verify("stacks of its own, each synthesised")
def test_a_key_encrypts_every_log_group(everything, key_arn):
    groups = everything.synthesised.of_type("AWS::Logs::LogGroup")
    assert groups
    assert all(group["KmsKeyId"] == key_arn for group in groups.values())


@pytest.mark.verify("stacks of its own, each synthesised")
def test_every_step_and_every_machine_may_use_the_key(everything):
    for user in (*everything.functions, everything.lock.state_machine):
        actions = {
            action
            for one in everything.synthesised.statements(user)
            for action in one["Action"]
            if action.startswith("kms:")
        }
        assert {"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"} <= actions
        assert not [action for action in actions if "*" in action]


@pytest.mark.verify("stacks of its own, each synthesised")
def test_a_key_encrypts_every_queue(everything, key_arn):
    queues = everything.synthesised.of_type("AWS::SQS::Queue")
    assert queues
    assert all(queue["KmsMasterKeyId"] == key_arn for queue in queues.values())


@pytest.mark.verify("stacks of its own, each synthesised")
def test_the_clean_up_may_use_the_key_to_send_a_dead_letter(everything, key_arn):
    [sends] = [
        one
        for one in everything.synthesised.statements(everything.lock.clean_up)
        if len(one["Action"]) == 2 and one["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    ]
    assert sends["Resource"] == key_arn


@pytest.mark.verify("stacks of its own, each synthesised")
def test_the_keys_policy_lets_the_rules_of_this_account_use_it(of_service):
    [events] = [one for one in of_service if one["Principal"]["Service"] == "events.amazonaws.com"]
    assert events["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    [pattern] = events["Condition"]["ArnLike"].values()
    assert list(events["Condition"]["ArnLike"]) == ["aws:SourceArn"]
    assert pattern["Fn::Join"][1][-2:] == [{"Ref": "AWS::AccountId"}, ":rule/*"]


@pytest.mark.verify("stacks of its own, each synthesised")
def test_the_keys_policy_lets_no_other_service_use_it(of_service):
    assert len(of_service) == 2


@pytest.mark.verify("stacks of its own, each synthesised")
def test_the_keys_policy_lets_the_logs_of_this_account_and_region_use_it(of_service):
    [logs] = [one for one in of_service if one["Principal"]["Service"] != "events.amazonaws.com"]
    assert logs["Principal"]["Service"]["Fn::Join"][1] == ["logs.", {"Ref": "AWS::Region"}, ".amazonaws.com"]
    [pattern] = logs["Condition"]["ArnLike"].values()
    assert list(logs["Condition"]["ArnLike"]) == ["kms:EncryptionContext:aws:logs:arn"]
    assert {"Ref": "AWS::AccountId"} in pattern["Fn::Join"][1]
    assert {"Ref": "AWS::Region"} in pattern["Fn::Join"][1]
    assert not [action for action in logs["Action"] if "*" in action]


@pytest.mark.verify("stacks of its own, each synthesised")
def test_without_a_key_nothing_names_one(typical):
    assert "KmsKeyId" not in str(typical.synthesised.template)
    assert "kms:" not in str(typical.synthesised.template)


@pytest.mark.verify("stacks of its own, each synthesised")
def test_an_imported_key_brings_a_warning_since_its_policy_is_not_ours(stack: Stack):
    TicketLock(stack, "Lock", encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))
    for user, path in (("CloudWatch Logs", "/Test/Lock"), ("EventBridge", "/Test/Lock/CleanUp")):
        message = Match.string_like_regexp(f"its policy must let {user} use it")
        Annotations.from_stack(stack).has_warning(path, message)


@pytest.mark.verify("stacks of its own, each synthesised")
def test_an_imported_key_is_used_all_the_same(stack, synthesise):
    lock = TicketLock(stack, "Lock", encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))
    found = synthesise(stack)
    assert found.one(lock.table)["Properties"]["SSESpecification"]["KMSMasterKeyId"] == KEY_ARN
    assert {group["KmsKeyId"] for group in found.of_type("AWS::Logs::LogGroup").values()} == {KEY_ARN}
