"""The DynamoDB in memory: what public code asks of a client, and tables that AWS refuses."""

import re
from typing import Any

import pytest
from botocore.exceptions import ClientError, OperationNotPageableError, WaiterError
from testing.memory_requests import KEY, LOCKS, put, refused

from ticketlock.testing import MemoryDynamoDB
from ticketlock.testing._parameters import OPTIONAL, REQUIRED, service_model

KEYS = [{"AttributeName": "pk", "KeyType": "HASH"}]
PK = [{"AttributeName": "pk", "AttributeType": "S"}]
TABLE: dict[str, Any] = {"TableName": "things", "KeySchema": KEYS, "AttributeDefinitions": PK}
ON_DEMAND: dict[str, Any] = {**TABLE, "BillingMode": "PAY_PER_REQUEST"}
BOTH = [*KEYS, {"AttributeName": "sk", "KeyType": "RANGE"}]


def kinds(*names: str) -> Any:
    return [{"AttributeName": name, "AttributeType": "S"} for name in names]


def index(*roles: tuple[str, str], name: str = "by-g", **projection: Any) -> Any:
    schema = [{"AttributeName": attribute, "KeyType": role} for attribute, role in roles or [("g", "HASH")]]
    return {"IndexName": name, "KeySchema": schema, "Projection": projection or {"ProjectionType": "ALL"}}


@pytest.mark.parametrize(("returns", "shown"), [("UPDATED_OLD", "1"), ("UPDATED_NEW", "2")])
def test_an_update_returns_what_it_has_changed(memory: MemoryDynamoDB, returns: str, shown: str) -> None:
    put(memory, n={"N": "1"}, other={"S": "x"})
    asked: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    found = memory.update_item(**LOCKS, Key=KEY, **asked, ReturnValues=returns)
    assert found["Attributes"] == {"n": {"N": shown}}


def test_writes_tell_their_units_of_table_and_indexes(memory: MemoryDynamoDB) -> None:
    memory.create_table(**{**ON_DEMAND, "AttributeDefinitions": kinds("pk", "g")}, GlobalSecondaryIndexes=[index()])
    item = {"pk": {"S": "a"}, "g": {"S": "b"}, "more": {"S": "x" * 1_500}}
    one = memory.put_item(TableName="things", Item=item, ReturnConsumedCapacity="INDEXES")["ConsumedCapacity"]
    assert (one["CapacityUnits"], one["Table"]["CapacityUnits"]) == (4, 2)
    assert one["GlobalSecondaryIndexes"]["by-g"]["CapacityUnits"] == 2
    update: Any = {"Key": {"pk": {"S": "a"}}, "UpdateExpression": "SET n = g"}
    one = memory.update_item(TableName="things", **update, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]
    assert one == {"TableName": "things", "CapacityUnits": 4.0}
    batch: Any = {"things": [{"PutRequest": {"Item": {"pk": {"S": "b"}}}}, {"PutRequest": {"Item": item}}]}
    several = memory.batch_write_item(RequestItems=batch, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]
    assert several == [{"TableName": "things", "CapacityUnits": 5.0}]
    key: Any = {"Key": {"pk": {"S": "b"}}}
    one = memory.delete_item(TableName="things", **key, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]
    assert one == {"TableName": "things", "CapacityUnits": 1.0}
    again = {"Put": {"TableName": "things", "Item": {**item, "g": {"S": "c"}}}}
    written = memory.transact_write_items(TransactItems=[again], ReturnConsumedCapacity="TOTAL")
    assert written["ConsumedCapacity"] == [{"TableName": "things", "CapacityUnits": 8.0, "WriteCapacityUnits": 8.0}]


@pytest.mark.parametrize(
    "setting",
    [
        {"ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}, "BillingMode": "PROVISIONED"},
        {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}},
        {"SSESpecification": {"Enabled": True}},
        {"TableClass": "STANDARD_INFREQUENT_ACCESS"},
        {"OnDemandThroughput": {"MaxReadRequestUnits": 5}},
        {"Tags": [{"Key": "team", "Value": "a"}]},
    ],
    ids=str,
)
def test_settings_that_change_no_answer_are_accepted(memory: MemoryDynamoDB, setting: Any) -> None:
    memory.create_table(**{**ON_DEMAND, **setting})
    memory.put_item(TableName="things", Item={"pk": {"S": "a"}})


def test_a_protected_table_is_not_deleted(memory: MemoryDynamoDB) -> None:
    memory.create_table(**ON_DEMAND, DeletionProtectionEnabled=True)
    assert "protected against deletion" in refused(memory.delete_table, TableName="things")
    memory.update_table(TableName="things", DeletionProtectionEnabled=False)
    memory.delete_table(TableName="things")


def test_tables_are_listed_tagged_and_waited_for(memory: MemoryDynamoDB) -> None:
    with pytest.raises(WaiterError):
        memory.get_waiter("table_exists").wait(TableName="things")
    memory.create_table(**ON_DEMAND)
    memory.get_waiter("table_exists").wait(TableName="things")
    assert memory.list_tables(Limit=1)["LastEvaluatedTableName"] == "locks"
    pages = memory.get_paginator("list_tables").paginate(PaginationConfig={"PageSize": 1})
    assert [page["TableNames"] for page in pages] == [["locks"], ["things"]]
    arn = memory.describe_table(TableName="things")["Table"]["TableArn"]
    memory.tag_resource(ResourceArn=arn, Tags=[{"Key": "team", "Value": "a"}])
    assert memory.list_tags_of_resource(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "a"}]
    memory.tag_resource(ResourceArn=arn, Tags=[{"Key": str(number), "Value": ""} for number in range(49)])
    assert len(memory.list_tags_of_resource(ResourceArn=arn)["Tags"]) == 50
    memory.put_item(TableName=arn, Item={"pk": {"S": "a"}})
    assert memory.get_item(TableName="things", Key={"pk": {"S": "a"}})["Item"] == {"pk": {"S": "a"}}


def test_each_operation_of_the_api_is_known_or_says_that_it_is_not(memory: MemoryDynamoDB) -> None:
    for method, operation in memory.meta.method_to_api_mapping.items():
        if operation not in REQUIRED:
            with pytest.raises(NotImplementedError, match=operation):
                getattr(memory, method)()
            continue
        shape = service_model().operation_model(operation).input_shape
        known = {*REQUIRED[operation], *OPTIONAL.get(operation, ())}
        assert set(shape.required_members) <= set(REQUIRED[operation])
        assert known <= shape.members.keys()
        for left in shape.members.keys() - known:
            with pytest.raises(NotImplementedError, match=left):
                getattr(memory, method)(**dict.fromkeys(REQUIRED[operation]), **{left: 1})


@pytest.mark.parametrize(
    "definition",
    [
        {"TableName": "ab"},
        {"TableName": "no!name"},
        {"TableName": "a" * 256},
        {"TableName": "arn:aws:dynamodb:us-east-1:123456789012:table/no!name"},
        {"TableName": "arn:aws:dynamodb:eu-west-1:999999999999:table/things"},
        {"TableName": "arn:things"},
        {"Tags": [{"Key": "team!", "Value": "a"}]},
        {"Tags": [{"Key": "team", "Value": "50%"}]},
        {"BillingMode": "SOMETIMES"},
        {"BillingMode": "PROVISIONED"},
        {"KeySchema": BOTH},
        {"AttributeDefinitions": kinds("pk", "sk")},
        {"GlobalSecondaryIndexes": []},
        {"AttributeDefinitions": kinds("pk", "g"), "GlobalSecondaryIndexes": [index(ProjectionType="INCLUDE")]},
        {"AttributeDefinitions": kinds("pk", "g"), "GlobalSecondaryIndexes": [index(ProjectionType="SOME")]},
        {
            "AttributeDefinitions": kinds("pk", "g"),
            "GlobalSecondaryIndexes": [index(ProjectionType="INCLUDE", NonKeyAttributes=["x", "x"])],
        },
        {"AttributeDefinitions": kinds("pk", "g"), "GlobalSecondaryIndexes": [index(NonKeyAttributes=["x"])]},
        {"AttributeDefinitions": kinds("pk", "g"), "GlobalSecondaryIndexes": [index(name="b!d")]},
        {"AttributeDefinitions": kinds("pk", "g"), "GlobalSecondaryIndexes": [index(), index()]},
        {"AttributeDefinitions": kinds("pk", "g"), "GlobalSecondaryIndexes": [index(("g", "RANGE"))]},
        {
            "AttributeDefinitions": kinds("pk", "g"),
            "GlobalSecondaryIndexes": [index(ProjectionType="ALL", NonKeyAttributes=["x"])],
        },
        {
            "AttributeDefinitions": kinds("pk", "g"),
            "LocalSecondaryIndexes": [index(("pk", "HASH"), ("g", "RANGE"))],
        },
        {
            "AttributeDefinitions": kinds("pk", "sk", "g"),
            "KeySchema": BOTH,
            "LocalSecondaryIndexes": [index(("sk", "HASH"), ("g", "RANGE"))],
        },
    ],
    ids=str,
)
def test_a_table_that_aws_refuses_is_refused(memory: MemoryDynamoDB, definition: Any) -> None:
    refused(memory.create_table, **{**ON_DEMAND, **definition})
    assert memory.list_tables()["TableNames"] == ["locks"]


@pytest.fixture
def indexed(memory: MemoryDynamoDB) -> MemoryDynamoDB:
    memory.create_table(
        **{**ON_DEMAND, "KeySchema": BOTH, "AttributeDefinitions": kinds("pk", "sk", "g")},
        GlobalSecondaryIndexes=[index(ProjectionType="KEYS_ONLY")],
        LocalSecondaryIndexes=[index(("pk", "HASH"), ("g", "RANGE"), name="local", ProjectionType="KEYS_ONLY")],
    )
    memory.put_item(TableName="things", Item={"pk": {"S": "a"}, "sk": {"S": "b"}, "g": {"S": "c"}, "x": {"S": "d"}})
    return memory


def query(memory: MemoryDynamoDB, name: str, key: str, **more: Any) -> Any:
    values = {":v": {"S": "c" if key == "g" else "a"}, **more.pop("values", {})}
    asked = {"KeyConditionExpression": f"{key} = :v", "ExpressionAttributeValues": values}
    return memory.query(TableName="things", IndexName=name, **asked, **more)


def changed(**change: Any) -> dict[str, Any]:
    return {"TableName": "things", "GlobalSecondaryIndexUpdates": [change]}


ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/things"
MISSING: dict[str, Any] = {"TableName": "none"}
RECOVERY = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
SCHEMA = "Schema:[SchemaElement: key{g:%s:HASH}]"


@pytest.mark.parametrize(
    ("operation", "asked", "why"),
    [
        (
            "update_table",
            {
                **changed(Create=index(name="by-number")),
                "AttributeDefinitions": [{"AttributeName": "g", "AttributeType": "N"}],
            },
            f"cannot be redefined.* Existing schema: {re.escape(SCHEMA % 'S')} New schema: {re.escape(SCHEMA % 'N')}",
        ),
        ("describe_continuous_backups", MISSING, "TableNotFoundException.*Table not found: none"),
        ("update_continuous_backups", {**MISSING, **RECOVERY}, "TableNotFoundException.*Table not found: none"),
        (
            "list_tags_of_resource",
            {"ResourceArn": "things"},
            "ValidationException.*ARNs must start with 'arn:': things",
        ),
        (
            "tag_resource",
            {"ResourceArn": f"{ARN}/index/by-g", "Tags": [{"Key": "a", "Value": "b"}]},
            f"ValidationException.*only table or stream is accepted. Provided resource arn: {ARN}/index/by-g",
        ),
        (
            "create_table",
            {name: value for name, value in ON_DEMAND.items() if name != "AttributeDefinitions"},
            r"ValidationException.*not defined in AttributeDefinitions. Keys: \[pk\], AttributeDefinitions: \[\]",
        ),
        ("create_table", {**ON_DEMAND, "AttributeDefinitions": [*PK, *PK]}, "Duplicate AttributeName.*: pk"),
        ("create_table", {**ON_DEMAND, "TableName": "x!", "BillingMode": "X"}, "at 'tableName' failed"),
        (
            "create_table",
            {**ON_DEMAND, "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "X"}]},
            r"ValidationException.*Member must satisfy enum value set: \[B, N, S\]",
        ),
    ],
)
def test_what_aws_refuses_of_a_table_is_refused(indexed: MemoryDynamoDB, operation: str, asked: Any, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        getattr(indexed, operation)(**asked)


def test_a_table_has_twenty_global_indexes_at_most(indexed: MemoryDynamoDB) -> None:
    more: Any = {"AttributeDefinitions": kinds("g")}
    for number in range(2, 21):
        indexed.update_table(**changed(Create=index(name=f"number-{number}")), **more)
    with pytest.raises(indexed.exceptions.LimitExceededException, match="exceeds per-table limit of 20"):
        indexed.update_table(**changed(Create=index(name="number-21")), **more)


def test_a_local_index_may_have_the_key_of_its_table(memory: MemoryDynamoDB) -> None:
    same = index(("pk", "HASH"), ("sk", "RANGE"), name="same")
    definition: Any = {**ON_DEMAND, "KeySchema": BOTH, "AttributeDefinitions": kinds("pk", "sk")}
    memory.create_table(**definition, LocalSecondaryIndexes=[same])
    item = {"pk": {"S": "a"}, "sk": {"S": "b"}}
    memory.put_item(TableName="things", Item=item)
    assert memory.scan(TableName="things", IndexName="same")["Items"] == [item]


def test_a_description_agrees_with_the_items_and_only_global_indexes_have_throughput(indexed: MemoryDynamoDB) -> None:
    told = indexed.describe_table(TableName="things")["Table"]
    assert told["BillingModeSummary"]["LastUpdateToPayPerRequestDateTime"] == told["CreationDateTime"]
    by_g, local = told["GlobalSecondaryIndexes"][0], told["LocalSecondaryIndexes"][0]
    assert [each["ItemCount"] for each in (told, by_g, local)] == [1, 1, 1]
    assert told["TableSizeBytes"] > by_g["IndexSizeBytes"] > 0
    assert ("ProvisionedThroughput" in by_g, "ProvisionedThroughput" in local) == (True, False)


def test_the_reply_to_a_deletion_has_no_definition(indexed: MemoryDynamoDB) -> None:
    told = indexed.describe_table(TableName="things")["Table"]
    left = indexed.delete_table(TableName="things")["TableDescription"]
    assert left["TableStatus"] == "DELETING"
    assert told.keys() - left.keys() == {
        *("AttributeDefinitions", "CreationDateTime", "GlobalSecondaryIndexes", "KeySchema", "LocalSecondaryIndexes")
    }


def test_a_definition_is_shared_neither_with_its_sender_nor_with_its_readers(memory: MemoryDynamoDB) -> None:
    sent: Any = index(ProjectionType="INCLUDE", NonKeyAttributes=["x"])
    memory.create_table(**{**ON_DEMAND, "AttributeDefinitions": kinds("pk", "g")}, GlobalSecondaryIndexes=[sent])

    def told() -> Any:
        return memory.describe_table(TableName="things")["Table"]["GlobalSecondaryIndexes"][0]

    sent["Projection"]["NonKeyAttributes"].append("y")
    told()["KeySchema"].clear()
    assert told()["Projection"]["NonKeyAttributes"] == ["x"]
    assert told()["KeySchema"] == [{"AttributeName": "g", "KeyType": "HASH"}]


def test_a_global_index_refuses_what_it_does_not_project_and_a_local_one_fetches_it(indexed: MemoryDynamoDB) -> None:
    assert "does not project [x]" in refused(query, indexed, "by-g", "g", ProjectionExpression="x")
    assert "Select type ALL_ATTRIBUTES" in refused(query, indexed, "by-g", "g", Select="ALL_ATTRIBUTES")
    assert query(indexed, "local", "pk", ProjectionExpression="x")["Items"] == [{"x": {"S": "d"}}]
    assert query(indexed, "local", "pk", Select="ALL_ATTRIBUTES")["Items"][0]["x"] == {"S": "d"}
    assert "x" not in query(indexed, "local", "pk")["Items"][0]


def test_a_filter_names_neither_keys_nor_what_the_index_lacks(indexed: MemoryDynamoDB) -> None:
    given = {"values": {":f": {"S": "d"}}}
    assert "non-primary key attributes" in refused(query, indexed, "by-g", "g", FilterExpression="g = :f", **given)
    given = {"values": {":f": {"S": "d"}}}
    assert "filter attributes: [x]" in refused(query, indexed, "local", "pk", FilterExpression="x = :f", **given)


@pytest.mark.parametrize(
    "more",
    [
        {"Select": "SPECIFIC_ATTRIBUTES"},
        {"Select": "COUNT", "ProjectionExpression": "x"},
        {"Select": "ALL_PROJECTED_ATTRIBUTES"},
        {"Select": "SOME"},
        {"ProjectionExpression": "pk.x"},
    ],
    ids=str,
)
def test_a_scan_that_says_two_things_is_refused(indexed: MemoryDynamoDB, more: Any) -> None:
    refused(indexed.scan, TableName="things", **more)


def test_a_wrong_key_is_the_reason_why_a_transaction_is_cancelled(memory: MemoryDynamoDB) -> None:
    wrong: Any = {"Delete": {**LOCKS, "Key": {"pk": KEY["pk"]}}}
    with pytest.raises(ClientError, match="TransactionCanceledException") as caught:
        memory.transact_write_items(TransactItems=[wrong, {"Put": {**LOCKS, "Item": KEY}}])
    response: Any = caught.value.response
    assert [each["Code"] for each in response["CancellationReasons"]] == ["ValidationError", "None"]
    assert memory.items() == []


def test_a_batch_leaves_what_exceeds_sixteen_megabytes_unprocessed(memory: MemoryDynamoDB) -> None:
    keys = [{"pk": {"S": "a"}, "sk": {"S": f"{number:02}"}} for number in range(60)]
    for key in keys:
        memory.put_item(**LOCKS, Item={**key, "much": {"S": "x" * 300 * 1_024}})
    found = memory.batch_get_item(RequestItems={"locks": {"Keys": keys}})
    left = found["UnprocessedKeys"]["locks"]["Keys"]
    assert 0 < len(left) < len(keys)
    assert len(found["Responses"]["locks"]) + len(left) == len(keys)


def test_an_attribute_has_a_name(memory: MemoryDynamoDB) -> None:
    for name in ("", "x" * 65_536):
        refused(memory.put_item, **LOCKS, Item={**KEY, name: {"S": "x"}})


def test_writes_to_a_table_with_local_indexes_tell_the_sizes_of_its_partitions(indexed: MemoryDynamoDB) -> None:
    asked: Any = {"ReturnItemCollectionMetrics": "SIZE"}
    told = [{"ItemCollectionKey": {"pk": {"S": "a"}}, "SizeEstimateRangeGB": [0.0, 1.0]}]
    key: Any = {"pk": {"S": "a"}, "sk": {"S": "b"}}
    things = {"TableName": "things"}
    for one in (
        indexed.put_item(**things, Item=key, **asked),
        indexed.update_item(**things, Key=key, UpdateExpression="SET x = pk", **asked),
        indexed.delete_item(**things, Key=key, **asked),
    ):
        assert [one["ItemCollectionMetrics"]] == told
    batch: Any = {"things": [{"PutRequest": {"Item": {**key, "sk": {"S": sk}}}} for sk in "xy"]}
    assert indexed.batch_write_item(RequestItems=batch, **asked)["ItemCollectionMetrics"] == {"things": told}
    action: Any = {"Delete": {**things, "Key": {**key, "sk": {"S": "x"}}}}
    assert indexed.transact_write_items(TransactItems=[action], **asked)["ItemCollectionMetrics"] == {"things": told}
    assert "ItemCollectionMetrics" not in indexed.put_item(**LOCKS, Item=KEY, **asked)


def test_a_client_pages_waits_and_closes(memory: MemoryDynamoDB) -> None:
    with memory:
        memory.create_table(**ON_DEMAND)
    keys = [{"pk": {"S": each}} for each in "abc"]
    for key in keys:
        memory.put_item(TableName="things", Item=key)
    pages = memory.get_paginator("scan").paginate(TableName="things", PaginationConfig={"PageSize": 2})
    assert sorted((item for page in pages for item in page["Items"]), key=str) == keys
    values = {":pk": KEY["pk"]}
    asked: Any = {**LOCKS, "KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": values}
    for sk in "xyz":
        put(memory, sk)
    limited = memory.get_paginator("query").paginate(**asked, PaginationConfig={"PageSize": 2, "MaxItems": 3})
    assert [len(page["Items"]) for page in limited] == [2, 1]
    with pytest.raises(WaiterError):
        memory.get_waiter("table_not_exists").wait(TableName="things")
    memory.delete_table(TableName="things")
    memory.get_waiter("table_not_exists").wait(TableName="things")
    memory.close()
    assert memory.list_tables()["TableNames"] == ["locks"]


def test_what_a_client_has_and_the_memory_lacks_says_so(memory: MemoryDynamoDB) -> None:
    assert (memory.can_paginate("list_backups"), memory.can_paginate("put_item")) == (True, False)
    with pytest.raises(OperationNotPageableError):
        memory.get_paginator("put_item")
    for ask, what in (
        (memory.get_paginator, "list_backups"),
        (memory.get_waiter, "export_completed"),
        (memory.generate_presigned_url, "get_item"),
        (memory.async_client.get_paginator, "scan"),
    ):
        with pytest.raises(NotImplementedError, match="does not know"):
            ask(what)
    with pytest.raises(NotImplementedError, match="does not know"):
        _ = memory.meta.events
