"""The DynamoDB in memory: behaviour that the contract does not test."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError
from kit.units import make_table
from testing.memory_requests import KEY, LEASE_MS, LOCKS, key, pages_of, put, refused, table_on, update

from ticketlock import Claim, Grant, LockLost, LockName, Position
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire._sdk import checked_client, date_ms

# Expressions and numbers, which tests/expressions tests: what they are to a request.


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "The expression can not be empty"),
        ("(a = :one", 'Syntax error; token: "<EOF>"'),
        ("a ! :one", 'Syntax error; token: "!"'),
        ("_a = :one", 'Syntax error; token: "_"'),
        ("attribute_exists(a)", "unused in expressions: keys: {:one}"),
    ],
)
def test_a_wrong_condition_is_refused_with_the_reason(memory: MemoryDynamoDB, condition: str, why: str) -> None:
    request = {**LOCKS, "Key": KEY, "ConditionExpression": condition}
    assert why in refused(memory.delete_item, **request, ExpressionAttributeValues={":one": {"N": "1"}})


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("SET a = :one, a = :one", "Two document paths overlap with each other"),
        ("SET fresh.twig = :one", "The document path provided in the update expression is invalid for update"),
        ("SET pk = :one", "Cannot update attribute pk. This attribute is part of the key"),
        ("SET n = n + :one", "38 significant digits"),
    ],
)
def test_a_wrong_update_is_refused_with_the_reason_and_changes_nothing(
    memory: MemoryDynamoDB, expression: str, why: str
) -> None:
    put(memory, n={"N": "1e38"})
    before = memory.items()
    assert why in refused(update, memory, expression, one=1)
    assert memory.items() == before


def test_items_and_requests_can_be_read_as_python_values(memory: MemoryDynamoDB) -> None:
    memory.sent.clear()
    put(memory, n={"N": "1.5"}, b={"B": b"x"}, m={"M": {"tags": {"SS": ["a", "b"]}, "none": {"NULL": True}}})
    plain = {"pk": "order-42", "sk": "default/", "n": 1.5, "b": b"x", "m": {"tags": {"a", "b"}, "none": None}}
    assert memory.plain_items() == [plain]
    memory.transact_write_items(TransactItems=[{"Delete": {**LOCKS, "Key": KEY}}])
    assert [(sent.operation, sent.plain) for sent in memory.sent] == [
        ("PutItem", {**LOCKS, "Item": plain}),
        ("TransactWriteItems", {"TransactItems": [{"Delete": {**LOCKS, "Key": {"pk": "order-42", "sk": "default/"}}}]}),
    ]
    assert memory.sent[0].parameters["Item"]["n"] == {"N": "1.5"}


def test_an_update_reads_the_item_as_it_was(memory: MemoryDynamoDB) -> None:
    put(memory, a={"N": "1"}, b={"N": "2"}, c={"N": "3"})
    after = update(memory, "SET a = b, b = a + c, d = if_not_exists(e, c) - a REMOVE c")
    assert after == {"a": {"N": "2"}, "b": {"N": "4"}, "d": {"N": "2"}}


def test_a_refused_condition_comes_before_an_update_that_does_not_fit(memory: MemoryDynamoDB) -> None:
    with pytest.raises(memory.exceptions.ConditionalCheckFailedException):
        update(memory, "SET fresh.twig = :one", "attribute_exists(pk)", one=1)


def test_removals_alone_do_not_create_an_item(memory: MemoryDynamoDB) -> None:
    assert update(memory, "REMOVE a, b.c") == {}
    assert memory.items() == []


def test_a_number_is_stored_in_its_usual_form_and_one_that_does_not_fit_is_refused(memory: MemoryDynamoDB) -> None:
    put(memory, a={"N": "1.50"})
    assert "more than 38 significant digits" in refused(put, memory, a={"N": "1" * 39})
    assert memory.get_item(**LOCKS, Key=KEY)["Item"]["a"] == {"N": "1.5"}


# Reads.


def test_pages_follow_one_another_in_the_order_of_utf_8(memory: MemoryDynamoDB) -> None:
    sks = ["a/" + text for text in ("", "0", "9", "Z", "z", "é", "\uffff", "😀")]
    for sk in reversed(sks):
        put(memory, sk)
    put(memory, "a0")
    request: dict[str, Any] = {
        **LOCKS,
        "KeyConditionExpression": "pk = :pk AND begins_with(sk, :prefix)",
        "ExpressionAttributeValues": {":pk": KEY["pk"], ":prefix": {"S": "a/"}},
        "Limit": 3,
        "ProjectionExpression": "sk",
    }
    pages = pages_of(memory.query, request)
    assert [[item["sk"]["S"] for item in page["Items"]] for page in pages] == [sks[:3], sks[3:6], sks[6:]]
    assert pages[0]["Items"][0].keys() == {"sk"}


def test_a_page_ends_after_a_megabyte(memory: MemoryDynamoDB) -> None:
    for sk in ("a", "b", "c", "d", "e"):
        put(memory, sk, much={"S": "x" * 300_000})
    request = {**LOCKS, "KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": KEY["pk"]}}
    assert [page["Count"] for page in pages_of(memory.query, request)] == [4, 1]


def test_a_scan_finds_every_item_once_while_others_are_deleted(memory: MemoryDynamoDB) -> None:
    keys = [{"pk": {"S": f"order-{index}"}, "sk": {"S": sk}} for index in range(10) for sk in ("a", "b")]
    for each in keys:
        memory.put_item(**LOCKS, Item=each)
    found: list[Any] = []
    page = memory.scan(**LOCKS, Limit=3)
    while True:
        found += page["Items"]
        if "LastEvaluatedKey" not in page:
            break
        memory.delete_item(**LOCKS, Key=page["LastEvaluatedKey"])
        page = memory.scan(**LOCKS, Limit=3, ExclusiveStartKey=page["LastEvaluatedKey"])
    assert sorted(found, key=str) == sorted(keys, key=str)


def test_a_batch_finds_what_is_there_of_many_keys(memory: MemoryDynamoDB) -> None:
    put(memory, "one")
    put(memory, "two")
    keys = [key(sk) for sk in ("two", "none", "one")]
    found: Any = memory.batch_get_item(RequestItems={"locks": {"Keys": keys, "ConsistentRead": True}})
    assert sorted(item["sk"]["S"] for item in found["Responses"]["locks"]) == ["one", "two"]
    assert found["UnprocessedKeys"] == {}


def test_a_batch_names_no_key_twice_and_not_more_than_a_hundred(memory: MemoryDynamoDB) -> None:
    many = [key(number) for number in range(101)]
    assert "duplicates" in refused(memory.batch_get_item, RequestItems={"locks": {"Keys": [KEY, KEY]}})
    assert "less than or equal to 100" in refused(memory.batch_get_item, RequestItems={"locks": {"Keys": many}})


def test_a_filter_hides_what_was_read_all_the_same(memory: MemoryDynamoDB) -> None:
    for index in range(4):
        put(memory, f"{index}", n={"N": str(index)})
    page = memory.scan(
        **LOCKS, FilterExpression="n >= :two", ExpressionAttributeValues={":two": {"N": "2"}}, Select="COUNT"
    )
    assert (page["Count"], page["ScannedCount"], "Items" in page) == (2, 4, False)


def test_stored_items_change_only_by_requests(memory: MemoryDynamoDB) -> None:
    mine: Any = {**KEY, "m": {"M": {"a": {"S": "stored"}}}}
    memory.put_item(**LOCKS, Item=mine)
    mine["m"]["M"]["a"]["S"] = "changed"
    memory.get_item(**LOCKS, Key=KEY)["Item"]["m"]["M"]["a"]["S"] = "changed"
    memory.items()[0]["m"]["M"]["a"]["S"] = "changed"
    assert memory.get_item(**LOCKS, Key=KEY)["Item"]["m"]["M"]["a"]["S"] == "stored"


# Requests.


@pytest.mark.parametrize("more", [{"AttributeUpdates": {}}, {"ConditionalOperator": "AND"}, {"Expected": {}}])
def test_a_parameter_that_is_not_known_is_refused_and_not_ignored(memory: MemoryDynamoDB, more: Any) -> None:
    with pytest.raises(NotImplementedError, match=f"does not know .*{next(iter(more))}"):
        memory.update_item(**LOCKS, Key=KEY, **more)
    assert memory.items() == []


def test_a_parameter_that_is_missing_is_named(memory: MemoryDynamoDB) -> None:
    with pytest.raises(ParamValidationError, match="Key"):
        memory.get_item(**LOCKS)


def test_another_table_is_not_found(memory: MemoryDynamoDB) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        memory.get_item(TableName="another", Key=KEY)


@pytest.mark.parametrize("wrong", [{"pk": KEY["pk"]}, {**KEY, "more": KEY["pk"]}, {**KEY, "sk": {"N": "1"}}, key("")])
def test_an_invalid_key_is_refused(memory: MemoryDynamoDB, wrong: Any) -> None:
    refused(memory.get_item, **LOCKS, Key=wrong)


def test_an_item_that_is_too_large_is_refused(memory: MemoryDynamoDB) -> None:
    assert "Item size has exceeded" in refused(put, memory, much={"S": "x" * 410_000})


def test_every_reply_and_every_error_has_the_services_time(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    clock.advance(5.9)
    seconds = clock.wall_ms // 1_000 * 1_000
    assert date_ms(memory.get_item(**LOCKS, Key=KEY)) == seconds
    with pytest.raises(ClientError) as caught:
        memory.get_item(TableName="another", Key=KEY)
    assert date_ms(caught.value.response) == seconds


def test_a_users_own_table_need_not_have_a_sort_key(memory: MemoryDynamoDB) -> None:
    make_table(memory, "orders", {"id": "S"})
    memory.put_item(TableName="orders", Item={"id": {"S": "42"}})
    assert memory.describe_table(TableName="orders")["Table"]["ItemCount"] == 1
    assert memory.describe_time_to_live(TableName="orders")["TimeToLiveDescription"]["TimeToLiveStatus"] == "DISABLED"
    memory.delete_table(TableName="orders")
    with pytest.raises(KeyError, match="orders"):
        memory.items("orders")


# As a client of ticketlock.


def test_ticketlock_takes_it_for_a_client(memory: MemoryDynamoDB) -> None:
    checked_client(memory.client)


def test_a_lock_can_be_freed_under_its_holder(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    table = table_on(memory, clock)
    claim = Claim(LockName("order-42"), "me", LEASE_MS)
    grant = table.take_ticket(claim, None)
    assert isinstance(grant, Grant)
    assert memory.delete_all("order-42") == 1
    with pytest.raises(LockLost):
        table.renew(claim, grant.fencing_token)


def test_time_to_live_deletes_items_that_expired_long_ago(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    table = table_on(memory, clock)
    table.take_ticket(Claim(LockName("order-42"), "me", LEASE_MS), None)
    assert memory.expire() == 0
    clock.advance(30 * 24 * 3_600)
    assert memory.expire() == 1
    assert memory.items() == []


def test_the_requests_are_counted(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    table = table_on(memory, clock)
    table.now()
    memory.sent.clear()
    first, second = (Claim(LockName("order-42"), owner, LEASE_MS) for owner in ("first", "second"))
    table.take_ticket(first, None)
    assert isinstance(table.take_ticket(second, None), Position)
    assert [sent.operation for sent in memory.sent] == ["UpdateItem", "UpdateItem", "UpdateItem", "PutItem"]
    assert memory.sent[0].parameters["Key"] == KEY


def test_many_threads_increment_without_losing_one(memory: MemoryDynamoDB) -> None:
    put(memory, n={"N": "0"})

    def count() -> None:
        for _ in range(200):
            update(memory, "SET n = n + :one", one=1)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(count) for _ in range(4)]:
            done.result()
    assert memory.items()[0]["n"] == {"N": "800"}


# Behind a boto3 client.


def test_it_answers_for_a_boto3_client_and_its_resource(memory: MemoryDynamoDB) -> None:
    resource: Any = boto3.resource("dynamodb")
    client = resource.meta.client
    memory.serve(client)
    table = resource.Table("locks")
    table.put_item(Item={"pk": "order-42", "sk": "a", "n": 7, "raw": b"\x00\xff"})
    assert bytes(table.get_item(Key={"pk": "order-42", "sk": "a"})["Item"]["raw"]) == b"\x00\xff"
    assert memory.items()[0]["raw"] == {"B": b"\x00\xff"}
    with pytest.raises(client.exceptions.ConditionalCheckFailedException):
        table.delete_item(
            Key={"pk": "order-42", "sk": "a"}, ConditionExpression="n = :n", ExpressionAttributeValues={":n": 8}
        )
