"""The table: a new one, or a given one; and a key of the user's, which encrypts everything that is stored."""

from typing import Any

import pytest
from aws_cdk import App, Aws, Fn, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Annotations, Match
from kit.stacks import function, on_table
from ticketlock_cdk import TicketLock, TransactionTables

PK, SK, UNIT, ROW, OPEN = (
    dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING) for name in ("pk", "sk", "unit", "row", "open")
)
KEYS = {TicketLock: {"partition_key": PK, "sort_key": SK}, TransactionTables: {"partition_key": UNIT, "sort_key": ROW}}
INDEX = {"index_name": "open", "partition_key": OPEN, "projection_type": dynamodb.ProjectionType.KEYS_ONLY}


@pytest.mark.parametrize(
    ("kind", "partition_key", "sort_key", "indexes"),
    [
        (TicketLock, "pk", "sk", {}),
        (
            *(TransactionTables, "unit", "row"),
            {
                "GlobalSecondaryIndexes": [
                    {
                        "IndexName": "open",
                        "KeySchema": [{"AttributeName": "open", "KeyType": "HASH"}],
                        "Projection": {"ProjectionType": "KEYS_ONLY"},
                    }
                ]
            },
        ),
    ],
)
def test_the_table_has_its_keys_and_outlives_its_stack_and_every_mistake(
    kind, partition_key, sort_key, indexes, stack, synthesise
):
    made = kind(stack, "Made")
    table = synthesise(stack).one(made.table)
    # No global one.
    assert table["Type"] == "AWS::DynamoDB::Table"
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert table["Properties"] == {
        "KeySchema": [
            {"AttributeName": partition_key, "KeyType": "HASH"},
            {"AttributeName": sort_key, "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"}
            for name in (partition_key, sort_key, *(each["IndexName"] for found in indexes.values() for each in found))
        ],
        "TimeToLiveSpecification": {"AttributeName": "expiresAt", "Enabled": True},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "BillingMode": "PAY_PER_REQUEST",
        "DeletionProtectionEnabled": True,
        **indexes,
    }


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("kind", [TicketLock, TransactionTables])
def test_the_table_goes_with_the_stack_if_asked_to(kind, stack, synthesise):
    made = kind(stack, "Made", removal_policy=RemovalPolicy.DESTROY)
    table = synthesise(stack).one(made.table)
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
    for step in (lock.take_ticket, lock.check_position, lock.heartbeat, lock.release):
        assert found.function(step)["Environment"]["Variables"]["TABLE_NAME"] == {"Ref": found.id_of(given)}
        granted = [one for one in found.statements(step) if "dynamodb:" in str(one["Action"])]
        assert [one["Resource"] for one in granted] == [{"Fn::GetAtt": [found.id_of(given), "Arn"]}]


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("how", ["Table", "TableV2", "by its name"])
def test_a_given_units_table_is_used_swept_and_granted(how, stack, synthesise):
    keys = {**KEYS[TransactionTables], "time_to_live_attribute": "expiresAt"}
    given: Any = "restored"
    if how != "by its name":
        given = getattr(dynamodb, how)(stack, "Given", **keys)
        given.add_global_secondary_index(**INDEX)
    units = TransactionTables(stack, "Units", table=given)
    client = function(stack)
    units.grant_units(client)
    found = synthesise(stack)
    assert not [id for id in found.of_type("AWS::DynamoDB::Table") if id.startswith("Units")]
    assert (units.table is given) == (how != "by its name")
    arn = found.text(stack.resolve(units.table.table_arn))
    for user, suffix in ((units.sweeper, ""), (units.sweeper, "/index/open"), (client, "")):
        assert f"{arn}{suffix}" in {found.text(one["Resource"]) for one in found.statements(user)}


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
    ("made", "keys", "shown"),
    [
        (TicketLock, {"partition_key": PK}, "pk (HASH, S)"),
        (TicketLock, {"partition_key": SK, "sort_key": PK}, "sk (HASH, S), pk (RANGE, S)"),
        (
            TicketLock,
            {"partition_key": PK, "sort_key": dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.NUMBER)},
            "pk (HASH, S), sk (RANGE, N)",
        ),
        (TransactionTables, KEYS[TicketLock], "pk (HASH, S), sk (RANGE, S)"),
    ],
)
@pytest.mark.parametrize("kind", [dynamodb.Table, dynamodb.TableV2])
def test_a_given_table_with_other_keys_is_refused(kind, made, keys, shown, stack):
    given = kind(stack, "Given", **keys)
    with pytest.raises(ValueError, match="table Test/Given has the keys") as refused:
        made(stack, "Made", table=given)
    partition_key, sort_key = (key.name for key in KEYS[made].values())
    assert shown in str(refused.value)
    assert f"allowed: the partition key {partition_key} and the sort key {sort_key}" in str(refused.value)


@pytest.mark.parametrize(("attribute", "shown"), [(None, "no time to live"), ("ttl", "time to live on ttl")])
@pytest.mark.parametrize("kind", [dynamodb.Table, dynamodb.TableV2])
@pytest.mark.parametrize("made", [TicketLock, TransactionTables])
def test_a_given_table_without_time_to_live_is_refused(kind, made, attribute, shown, stack):
    given = kind(stack, "Given", **KEYS[made], time_to_live_attribute=attribute)
    with pytest.raises(ValueError, match="allowed: time to live on expiresAt") as refused:
        made(stack, "Made", table=given)
    assert str(refused.value).startswith(f"table Test/Given has {shown}; ")


@pytest.mark.parametrize(
    ("index", "shown"),
    [
        ({"index_name": "other"}, "no index open"),
        ({"partition_key": UNIT}, "an index open with the keys unit (HASH, S) and the projection KEYS_ONLY"),
        ({"sort_key": ROW}, "an index open with the keys open (HASH, S), row (RANGE, S) and the projection KEYS_ONLY"),
        (
            {"projection_type": dynamodb.ProjectionType.ALL},
            "an index open with the keys open (HASH, S) and the projection ALL",
        ),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)
@pytest.mark.parametrize("kind", [dynamodb.Table, dynamodb.TableV2])
def test_a_given_units_table_without_the_index_of_open_units_is_refused(kind, index, shown, stack):
    given = kind(stack, "Given", **KEYS[TransactionTables], time_to_live_attribute="expiresAt")
    given.add_global_secondary_index(**INDEX | index)
    with pytest.raises(ValueError, match="allowed: a global index open with the partition key open of ") as refused:
        TransactionTables(stack, "Units", table=given)
    assert str(refused.value).startswith(f"table Test/Given has {shown}; ")


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize(
    ("kind", "argument", "told"),
    [
        (TicketLock, lambda given: {"table": given}, "use one lock in one Region only"),
        (TransactionTables, lambda given: {"data_tables": [given]}, "run units in one Region only"),
    ],
)
def test_a_given_table_with_replicas_brings_a_warning(kind, argument, told, outdir):
    stack = Stack(App(outdir=outdir), "Test", env={"region": "eu-west-1", "account": "123456789012"})
    replicas = [dynamodb.ReplicaTableProps(region="eu-central-1")]
    given = dynamodb.TableV2(
        stack, "Given", partition_key=PK, sort_key=SK, time_to_live_attribute="expiresAt", replicas=replicas
    )
    kind(stack, "Made", **argument(given))
    Annotations.from_stack(stack).has_warning("/Test/Made", Match.string_like_regexp(told))


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize(
    ("kind", "argument"),
    [(TicketLock, lambda given: {"table": given}), (TransactionTables, lambda given: {"data_tables": [given]})],
)
def test_a_global_table_with_strong_consistency_is_refused_since_it_has_no_transactions(kind, argument, outdir):
    stack = Stack(App(outdir=outdir), "Test", env={"region": "eu-west-1", "account": "123456789012"})
    given = dynamodb.TableV2(
        stack,
        "Given",
        partition_key=PK,
        sort_key=SK,
        replicas=[dynamodb.ReplicaTableProps(region="eu-central-1")],
        witness_region="eu-west-3",
        multi_region_consistency=dynamodb.MultiRegionConsistency.STRONG,
    )
    with pytest.raises(ValueError, match=r"table Test/Given is a global table .* no transactions; allowed: a table of"):
        kind(stack, "Made", **argument(given))


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("kind", [TicketLock, TransactionTables])
def test_a_renamed_construct_keeps_the_table_whose_logical_id_it_is_told(kind, outdir, synthesise):
    def table_of(name, logical_id=None):
        stack = Stack(App(outdir=outdir), "Test")
        made: Any = kind(stack, name)
        if logical_id is not None:
            made.table.node.default_child.override_logical_id(logical_id)
        return synthesise(stack).of_type("AWS::DynamoDB::Table")

    [(logical_id, _)] = before = table_of("Lock").items()
    assert logical_id not in table_of("Locks")
    assert table_of("Locks", logical_id).items() == before


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("how", ["by its name", "by its ARN", "imported"])
def test_an_existing_table_can_be_named_or_imported(how, stack, synthesise):
    given: dict[str, Any] = {
        "by its name": "locks",
        "by its ARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/locks",
        "imported": dynamodb.Table.from_table_name(stack, "Given", "locks"),
    }
    lock = TicketLock(stack, "Lock", table=given[how])
    found = synthesise(stack)
    assert found.of_type("AWS::DynamoDB::Table") == {}
    assert found.function(lock.release)["Environment"]["Variables"]["TABLE_NAME"] == "locks"
    [resource] = {str(one["Resource"]) for one in found.statements(lock.release) if "dynamodb:" in str(one["Action"])}
    assert "table/locks" in resource


@pytest.mark.parametrize(
    "table",
    ["", "ab", "a name", "arn:aws:sqs:eu-west-1:123456789012:queue", "x" * 256, 42, sqs.Queue],
)
@pytest.mark.parametrize("made", [TicketLock, TransactionTables])
def test_anything_but_a_table_is_refused(made, table, stack):
    given: Any = table(stack, "Queue") if table is sqs.Queue else table
    with pytest.raises(ValueError, match=r"allowed: a table as a construct, the name of one .* its ARN") as refused:
        made(stack, "Made", table=given)
    assert str(refused.value).startswith("table is ")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("table", lambda table: {"table": table}), ("data_tables[0]", lambda table: {"data_tables": [table]})],
)
def test_the_resource_of_a_table_is_refused_with_how_to_import_it(name, settings, stack):
    keys, types = [{"attributeName": "pk", "keyType": "HASH"}], [{"attributeName": "pk", "attributeType": "S"}]
    table = dynamodb.CfnTable(stack, "Resource", key_schema=keys, attribute_definitions=types)
    with pytest.raises(ValueError, match=r"allowed: a construct with its attr_arn: Table.from_table_arn") as refused:
        TransactionTables(stack, "Units", **settings(table))
    assert str(refused.value).startswith(f"{name} is <")


def test_a_table_that_is_known_only_at_deploy_time_is_refused(stack):
    with pytest.raises(ValueError, match=r"known only at deploy time; .*import it by Table.from_table_name"):
        TicketLock(stack, "Lock", table=Fn.import_value("TheTable"))


# A table is where its functions are, in one Region and account: they find it by its name alone.


HERE = {"region": "eu-west-1", "account": "123456789012"}
ELSEWHERE = [
    ({**HERE, "region": "us-east-1"}, "in the Region us-east-1; allowed: the stack's own, eu-west-1"),
    ({**HERE, "account": "210987654321"}, "in the account 210987654321; allowed: the stack's own, 123456789012"),
]
GIVEN = [
    ("table", lambda here, table: TicketLock(here, "Lock", table=table)),
    ("table", lambda here, table: TransactionTables(here, "Units", table=table)),
    ("data_tables[0]", lambda here, table: TransactionTables(here, "Units", data_tables=[table])),
]
GRANTED = [
    ("tables[0]", lambda here, table: TransactionTables(here, "Units").grant_units(function(here), table)),
    ("tables[0]", lambda here, table: TransactionTables(here, "Units").grant_reads(function(here), table)),
]


def table_arn(region, account):
    return f"arn:aws:dynamodb:{region}:{account}:table/theirs"


@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
@pytest.mark.parametrize(("name", "give"), GIVEN)
def test_a_table_by_its_arn_of_another_account_or_region_is_refused(name, give, environment, message, outdir):
    here, arn = Stack(App(outdir=outdir), "Here", env=HERE), table_arn(**environment)
    with pytest.raises(ValueError, match="allowed: ") as refused:
        give(here, arn)
    assert str(refused.value) == f"{name} is {arn!r}, {message}"


@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
@pytest.mark.parametrize(("name", "give"), [*GIVEN, *GRANTED])
@pytest.mark.parametrize("how", ["imported", "of another stack"])
def test_a_construct_of_a_table_of_another_account_or_region_is_refused(how, name, give, environment, message, outdir):
    app = App(outdir=outdir)
    here, there = Stack(app, "Here", env=HERE), Stack(app, "There", env=environment)
    if how == "imported":
        # For the CDK it is in the stack's own environment.
        given = dynamodb.Table.from_table_arn(here, "Given", table_arn(**environment))
    else:
        given = dynamodb.Table(there, "Given", partition_key=PK, table_name="theirs")
    with pytest.raises(ValueError, match="allowed: ") as refused:
        give(here, given)
    assert str(refused.value) == f"{name} is {given.node.path}, {message}"


@pytest.mark.verify("stacks of its own")
@pytest.mark.parametrize("environment", [HERE, {}], ids=["known", "agnostic"])
@pytest.mark.parametrize(("name", "give"), [*GIVEN, *GRANTED])
@pytest.mark.parametrize("region", [Aws.REGION, "eu-west-1"], ids=["a token", "a name"])
def test_a_table_whose_account_or_region_is_known_only_at_deploy_time_is_accepted(
    region, name, give, environment, outdir
):
    here = Stack(App(outdir=outdir), "Here", env=environment)
    arn = table_arn(region, Aws.ACCOUNT_ID)
    give(here, arn if (name, give) in GIVEN else dynamodb.Table.from_table_arn(here, "Given", arn))


# A key of the user's: it encrypts everything that is stored, and all principals that need it may use it.


KEY_ARN = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000"


@pytest.mark.verify("stacks of its own, each synthesised")
def test_a_key_encrypts_the_table_every_log_and_every_queue_and_none_is_named_without_one(typical, everything):
    found = everything.synthesised
    key = {"Fn::GetAtt": [found.id_of(everything.key), "Arn"]}
    table = found.one(everything.lock.table)["Properties"]
    assert table["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key}
    for kind, attribute in (("AWS::Logs::LogGroup", "KmsKeyId"), ("AWS::SQS::Queue", "KmsMasterKeyId")):
        assert found.of_type(kind)
        assert all(each[attribute] == key for each in found.of_type(kind).values())
    assert "KmsKeyId" not in str(typical.synthesised.template)
    assert "kms:" not in str(typical.synthesised.template)


@pytest.mark.verify("stacks of its own, each synthesised")
def test_every_step_and_every_machine_may_use_the_key(everything):
    found, key = everything.synthesised, everything.key
    for user in (*everything.functions, everything.lock.state_machine):
        assert {"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"} <= on_table(found, user, key)
    # To send a dead letter.
    sends = [one["Action"] for one in found.statements(everything.lock.clean_up) if "kms:" in str(one["Action"])]
    assert ["kms:Decrypt", "kms:GenerateDataKey"] in sends


@pytest.mark.verify("stacks of its own, each synthesised")
def test_the_keys_policy_lets_the_rules_and_the_logs_of_this_account_use_it_and_no_other_service(everything):
    found = everything.synthesised
    policy = found.one(everything.key)["Properties"]["KeyPolicy"]
    of_services = {
        found.text(one["Principal"]["Service"]): one for one in policy["Statement"] if "Service" in one["Principal"]
    }
    events = of_services.pop("events.amazonaws.com")
    assert events["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert {key: found.text(pattern) for key, pattern in events["Condition"]["ArnLike"].items()} == {
        "aws:SourceArn": "arn:<AWS::Partition>:events:<AWS::Region>:<AWS::AccountId>:rule/*"
    }
    logs = of_services.pop("logs.<AWS::Region>.amazonaws.com")
    assert not [action for action in logs["Action"] if "*" in action]
    assert {key: found.text(pattern) for key, pattern in logs["Condition"]["ArnLike"].items()} == {
        "kms:EncryptionContext:aws:logs:arn": "arn:<AWS::Partition>:logs:<AWS::Region>:<AWS::AccountId>:*"
    }
    # Which reads what encrypted state machines log.
    delivery = of_services.pop("delivery.logs.amazonaws.com")
    assert delivery["Action"] == "kms:Decrypt"
    assert of_services == {}


@pytest.mark.verify("stacks of its own, each synthesised")
def test_an_imported_key_is_used_and_brings_a_warning_since_its_policy_is_not_ours(stack, synthesise):
    lock = TicketLock(stack, "Lock", encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))
    for user, path in (("CloudWatch Logs", "/Test/Lock"), ("EventBridge", "/Test/Lock/CleanUp")):
        message = Match.string_like_regexp(f"its policy must let {user} use it")
        Annotations.from_stack(stack).has_warning(path, message)
    found = synthesise(stack)
    assert found.one(lock.table)["Properties"]["SSESpecification"]["KMSMasterKeyId"] == KEY_ARN
    assert {group["KmsKeyId"] for group in found.of_type("AWS::Logs::LogGroup").values()} == {KEY_ARN}


def imported_alias(stack):
    return kms.Alias.from_alias_name(stack, "Imported", "alias/mine")


def own_alias(stack):
    return kms.Alias(stack, "Own", alias_name="alias/own", target_key=kms.Key(stack, "Key"))


@pytest.mark.parametrize("kind", [TicketLock, TransactionTables])
@pytest.mark.parametrize("alias", [imported_alias, own_alias])
def test_an_alias_of_a_key_is_refused_since_logs_take_none(alias, kind, stack):
    with pytest.raises(
        ValueError, match=r"encryption_key is an alias.* allowed: the key itself, such as Key.from_look"
    ):
        kind(stack, "Made", encryption_key=alias(stack))


@pytest.mark.parametrize(
    "give",
    [
        lambda stack, table: TicketLock(stack, "Lock", table=table),
        lambda stack, table: TransactionTables(stack, "Units", data_tables=[table]),
        lambda stack, table: TransactionTables(stack, "Units").grant_reads(function(stack), table),
    ],
    ids=["table", "data_tables", "grant_reads"],
)
def test_a_table_whose_key_is_known_by_an_alias_alone_is_refused_if_nothing_would_be_granted(give, outdir):
    for is_granted in (False, True):
        flags = {"@aws-cdk/aws-kms:applyImportedAliasPermissionsToPrincipal": is_granted}
        stack = Stack(App(outdir=outdir, context=flags), "Test")
        table = dynamodb.Table(
            stack,
            "Table",
            partition_key=PK,
            sort_key=SK,
            time_to_live_attribute="expiresAt",
            encryption_key=imported_alias(stack),
        )
        if is_granted:
            give(stack, table)
            continue
        with pytest.raises(
            ValueError, match="the key Test/Imported is alias/mine, whose key is not known here, so tha"
        ):
            give(stack, table)
