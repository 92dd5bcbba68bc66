"""The DynamoDB in memory: behaviour that the contract does not test."""

import threading
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError
from testing.memory_requests import KEY, LOCKS, pages_of, put, refused, table_on, update

from ticketlock import Claim, Grant, LockLost, LockName, OutcomeUnknown, Position, RequestNotApplied
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB
from ticketlock.wire._sdk import check_client, date_ms

LEASE_MS = 60_000


# Transactions.


def test_a_transaction_is_applied_as_a_whole_or_not_at_all(memory: MemoryDynamoDB) -> None:
    put(memory, "here")
    write = {"Put": {**LOCKS, "Item": {**KEY, "sk": {"S": "new"}}}}
    check = {
        "ConditionCheck": {
            **LOCKS,
            "Key": {**KEY, "sk": {"S": "here"}},
            "ConditionExpression": "attribute_not_exists(pk)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }
    with pytest.raises(ClientError) as caught:
        memory.transact_write_items(TransactItems=[write, check])
    response: Any = caught.value.response
    first, second = response["CancellationReasons"]
    assert (first["Code"], second["Code"]) == ("None", "ConditionalCheckFailed")
    assert second["Item"] == {**KEY, "sk": {"S": "here"}}
    assert [item["sk"]["S"] for item in memory.items()] == ["here"]


def test_an_update_in_a_transaction_that_does_not_fit_cancels_it(memory: MemoryDynamoDB) -> None:
    wrong = {"Update": {**LOCKS, "Key": KEY, "UpdateExpression": "SET a = b"}}
    with pytest.raises(ClientError, match=r"TransactionCanceledException.*\[ValidationError\]"):
        memory.transact_write_items(TransactItems=[wrong])


def test_a_transaction_touches_no_item_twice(memory: MemoryDynamoDB) -> None:
    write = {"Delete": {**LOCKS, "Key": KEY}}
    assert "multiple operations on one item" in refused(memory.transact_write_items, TransactItems=[write, write])


def test_a_transaction_with_the_token_of_one_that_was_applied_is_not_applied_again(memory: MemoryDynamoDB) -> None:
    put(memory, a={"N": "1"})
    step = {"Update": {**LOCKS, "Key": KEY, "UpdateExpression": "SET a = a + a"}}
    for _ in range(3):
        memory.transact_write_items(TransactItems=[step], ClientRequestToken="once")
    assert memory.items()[0]["a"] == {"N": "2"}


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
    for key in keys:
        memory.put_item(**LOCKS, Item=key)
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
    keys = [{**KEY, "sk": {"S": sk}} for sk in ("two", "none", "one")]
    found: Any = memory.batch_get_item(RequestItems={"locks": {"Keys": keys, "ConsistentRead": True}})
    assert sorted(item["sk"]["S"] for item in found["Responses"]["locks"]) == ["one", "two"]
    assert found["UnprocessedKeys"] == {}


def test_a_batch_names_no_key_twice_and_not_more_than_a_hundred(memory: MemoryDynamoDB) -> None:
    many = [{**KEY, "sk": {"S": f"{number}"}} for number in range(101)]
    assert "duplicates" in refused(memory.batch_get_item, RequestItems={"locks": {"Keys": [KEY, KEY]}})
    assert "Too many" in refused(memory.batch_get_item, RequestItems={"locks": {"Keys": many}})
    assert "or no items" in refused(memory.batch_get_item, RequestItems={"locks": {"Keys": []}})


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


@pytest.mark.parametrize(
    "more", [{"ReturnConsumedCapacity": "TOTAL"}, {"ReturnValues": "UPDATED_NEW"}, {"Expected": {}}]
)
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


@pytest.mark.parametrize(
    "key", [{"pk": KEY["pk"]}, {**KEY, "more": KEY["pk"]}, {**KEY, "sk": {"N": "1"}}, {**KEY, "sk": {"S": ""}}]
)
def test_an_invalid_key_is_refused(memory: MemoryDynamoDB, key: Any) -> None:
    refused(memory.get_item, **LOCKS, Key=key)


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
    memory.create_table(
        TableName="orders",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    memory.put_item(TableName="orders", Item={"id": {"S": "42"}})
    assert memory.describe_table(TableName="orders")["Table"]["ItemCount"] == 1
    assert memory.describe_time_to_live(TableName="orders")["TimeToLiveDescription"]["TimeToLiveStatus"] == "DISABLED"
    memory.delete_table(TableName="orders")
    with pytest.raises(KeyError, match="orders"):
        memory.items("orders")


# As a client of ticketlock.


def test_ticketlock_takes_it_for_a_client(memory: MemoryDynamoDB) -> None:
    check_client(memory.client)


def test_a_lost_request_is_not_applied(memory: MemoryDynamoDB) -> None:
    memory.faults.append(Fault.REQUEST_LOST)
    with pytest.raises(Exception, match="timeout"):
        put(memory)
    assert memory.items() == []


def test_a_lost_reply_is_to_a_request_that_was_applied(memory: MemoryDynamoDB) -> None:
    memory.faults.extend([None, Fault.REPLY_LOST])
    put(memory, "first")
    with pytest.raises(Exception, match="timeout"):
        put(memory, "second")
    assert len(memory.items()) == 2


def test_faults_are_retried(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    table = table_on(memory, clock)
    memory.faults.extend([Fault.CONFLICT, Fault.THROTTLED, Fault.REQUEST_LOST, Fault.REPLY_LOST])
    assert isinstance(table.take_ticket(Claim(LockName("order-42"), "me", LEASE_MS), None), Grant)
    assert not memory.faults
    (item,) = memory.items()
    assert item["held"] == {"N": "1"}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.REQUEST_LOST, RequestNotApplied),
        (Fault.THROTTLED, RequestNotApplied),
        (Fault.CONFLICT, RequestNotApplied),
        (Fault.REPLY_LOST, OutcomeUnknown),
    ],
)
def test_an_outage_is_given_up_on(memory: MemoryDynamoDB, clock: ManualClock, fault: Fault, error: type) -> None:
    table = table_on(memory, clock)
    table.now()
    claim = Claim(LockName("order-42"), "me", LEASE_MS)
    with memory.outage(fault), pytest.raises(error):
        table.take_ticket(claim, None)
    assert isinstance(table.take_ticket(claim, None), Grant)


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

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


# Clocks.


def test_time_passes_on_every_machine_and_walls_differ(clock: ManualClock) -> None:
    other = clock.another_machine(wall_is_off_s=-300)
    before, there = clock.read(), other.read()
    assert there.wall_ms == before.wall_ms - 300_000
    clock.sleep(1.5)
    assert (clock.read().local_ms - before.local_ms, other.read().local_ms - there.local_ms) == (1_500, 1_500)
    other.set_wall(7)
    assert (other.read().wall_ms, other.read().local_ms - there.local_ms) == (7, 1_500)
    assert clock.read().wall_ms == before.wall_ms + 1_500


def test_both_clocks_of_a_suspended_machine_continue_and_only_the_wall_clock_of_a_frozen_one(
    clock: ManualClock,
) -> None:
    began = clock.read()
    clock.suspend(60)
    assert (clock.read().local_ms - began.local_ms, clock.read().wall_ms - began.wall_ms) == (60_000, 60_000)
    clock.freeze(60)
    assert (clock.read().local_ms - began.local_ms, clock.read().wall_ms - began.wall_ms) == (60_000, 120_000)


def test_time_does_not_go_back(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
