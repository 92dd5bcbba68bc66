"""The DynamoDB in memory, where the contract that runs on it does not look."""

import threading
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError

from ticketlock import Claim, Grant, LockLost, LockName, LockTable, OutcomeUnknown, Position, RequestNotApplied
from ticketlock._sdk import check_client, date_ms
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

KEY = {"pk": {"S": "order-42"}, "sk": {"S": "default/"}}
LOCKS = {"TableName": "locks"}
LEASE_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryDynamoDB:
    return MemoryDynamoDB(clock=clock)


def table_on(memory: MemoryDynamoDB, clock: ManualClock) -> LockTable:
    return LockTable("locks", client=memory.client, clocks=clock, sleep=clock.sleep)


def put(memory: MemoryDynamoDB, sk: str = "default/", **attributes: Any) -> None:
    memory.put_item(**LOCKS, Item={**KEY, "sk": {"S": sk}, **attributes})


def update(memory: MemoryDynamoDB, expression: str, condition: str | None = None, **values: int | str) -> Any:
    """UpdateItem with numbers and texts; the attributes afterwards, without the key."""
    request: dict[str, Any] = {**LOCKS, "Key": KEY, "UpdateExpression": expression, "ReturnValues": "ALL_NEW"}
    if condition is not None:
        request["ConditionExpression"] = condition
    if values:
        request["ExpressionAttributeValues"] = {f":{name}": wire(value) for name, value in values.items()}
    found = memory.update_item(**request).get("Attributes", {})
    return {name: value for name, value in found.items() if name not in KEY}


def wire(value: int | str) -> dict[str, str]:
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


def holds(memory: MemoryDynamoDB, condition: str, **values: int | str) -> bool:
    """Whether a condition is true of the item that stands there."""
    given = {f":{name}": wire(value) for name, value in values.items()}
    try:
        memory.transact_write_items(
            TransactItems=[
                {
                    "ConditionCheck": {
                        **LOCKS,
                        "Key": KEY,
                        "ConditionExpression": condition,
                        **({"ExpressionAttributeValues": given} if given else {}),
                    }
                }
            ]
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "TransactionCanceledException":
            raise
        return False
    return True


def refused(do: Any, *arguments: Any, **more: Any) -> str:
    """What the service says to a request that is wrong."""
    with pytest.raises(ClientError) as caught:
        do(*arguments, **more)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return caught.value.response["Error"]["Message"]


# Conditions.


@pytest.mark.parametrize(
    ("condition", "true"),
    [
        ("attribute_exists(one)", True),
        ("attribute_not_exists(one)", False),
        ("attribute_exists(nest.twig)", True),
        ("attribute_exists(nest.leaf)", False),
        ("attribute_exists(one.twig)", False),
        ("one < two", True),
        ("two < one", False),
        ("one <= one2 AND one >= one2 AND one = one2", True),
        ("one = ten", False),
        ("two < ten", True),
        ("one < txt", False),
        ("one > txt", False),
        ("one <> txt", True),
        ("begins_with(txt, sk)", False),
        ("NOT one = two AND NOT (one > two OR two > ten)", True),
        ("one = two OR one = one2 AND two < ten", True),
        ("(one = two OR one = one2) AND ten < two", False),
    ],
)
def test_a_condition_says_what_it_says_in_dynamodb(memory: MemoryDynamoDB, condition: str, true: bool) -> None:
    numbers: Any = {name: {"N": text} for name, text in (("one", "1"), ("one2", "1.0"), ("two", "2"), ("ten", "10"))}
    put(memory, **numbers, txt={"S": "text"}, nest={"M": {"twig": {"N": "7"}}})
    assert holds(memory, condition) is true


def test_a_comparison_with_what_is_not_there_is_false_and_only_unequal_is_true(memory: MemoryDynamoDB) -> None:
    put(memory, here={"N": "1"})
    for operator in ("=", "<", "<=", ">", ">="):
        assert not holds(memory, f"gone {operator} :one", one=1)
        assert not holds(memory, f"here {operator} gone")
        assert not holds(memory, f"gone {operator} away")
    assert holds(memory, "gone <> :one AND gone <> away AND here <> gone", one=1)
    assert not holds(memory, "begins_with(gone, :text)", text="t")


def test_equal_values_are_equal_however_they_are_written(memory: MemoryDynamoDB) -> None:
    put(
        memory,
        a={"M": {"n": {"N": "1e2"}, "s": {"SS": ["x", "y"]}}},
        b={"M": {"s": {"SS": ["y", "x"]}, "n": {"N": "100.0"}}},
    )
    assert holds(memory, "a = b")


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "The expression can not be empty"),
        ("a = ", 'Syntax error; token: "<EOF>"'),
        ("a b", 'Syntax error; token: "b"'),
        ("a = :one)", 'Syntax error; token: ")"'),
        ("(a = :one", 'Syntax error; token: "<EOF>"'),
        ("a ! :one", 'Syntax error; token: "!"'),
        ("_a = :one", 'Syntax error; token: "_"'),
        ("a = :one AND", 'Syntax error; token: "<EOF>"'),
        ("((a = :one))", "redundant parentheses"),
        ("owner = :one", "Attribute name is a reserved keyword; reserved keyword: owner"),
        ("a.format = :one", "reserved keyword: format"),
        ("Attribute_Exists(a)", "Invalid function name; function: Attribute_Exists"),
        ("attribute_exists(:one)", "requires a document path"),
        ("a = a", "The first operand must be distinct"),
        ("a = :two", "not defined; attribute value: :two"),
        ("#a = :one", "not defined; attribute name: #a"),
        ("attribute_exists(a)", "unused in expressions: keys: {:one}"),
        ("begins_with(a, :one)", "Incorrect operand type for operator or function"),
    ],
)
def test_a_wrong_condition_is_refused_with_the_reason(memory: MemoryDynamoDB, condition: str, why: str) -> None:
    request = {**LOCKS, "Key": KEY, "ConditionExpression": condition}
    assert why in refused(memory.delete_item, **request, ExpressionAttributeValues={":one": {"N": "1"}})


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("a BETWEEN :one AND :one", "BETWEEN"),
        ("a IN (:one)", "IN"),
        ("size(a) = :one", "size"),
        ("contains(a, :one)", "contains"),
        ("a[0] = :one", "an element of a list"),
    ],
)
def test_what_is_left_out_of_conditions_says_so(memory: MemoryDynamoDB, condition: str, what: str) -> None:
    with pytest.raises(NotImplementedError, match=f"does not know {what} in a ConditionExpression"):
        update(memory, "SET b = :one", condition, one=1)


# Updates.


def test_an_update_reads_the_item_as_it_was(memory: MemoryDynamoDB) -> None:
    put(memory, a={"N": "1"}, b={"N": "2"}, c={"N": "3"})
    after = update(memory, "SET a = b, b = a + c, d = if_not_exists(e, c) - a REMOVE c")
    assert after == {"a": {"N": "2"}, "b": {"N": "4"}, "d": {"N": "2"}}


def test_a_default_may_be_another_attribute_or_another_default(memory: MemoryDynamoDB) -> None:
    put(memory, a={"N": "1"})
    assert update(memory, "SET b = if_not_exists(x, a), c = if_not_exists(x, if_not_exists(y, :two))", two=2) == {
        "a": {"N": "1"},
        "b": {"N": "1"},
        "c": {"N": "2"},
    }


def test_a_member_of_a_map_is_set_and_removed_beside_the_others(memory: MemoryDynamoDB) -> None:
    put(memory, m={"M": {"a": {"N": "1"}, "b": {"N": "2"}}})
    assert update(memory, "SET m.a = :nine, m.c = m.b REMOVE m.b, m.never", nine=9) == {
        "m": {"M": {"a": {"N": "9"}, "c": {"N": "2"}}}
    }


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("SET a = :one, a = :one", "Two document paths overlap with each other"),
        ("SET a.b = :one, a = :one", "path one: [a, b], path two: [a]"),
        ("SET a.b = :one REMOVE a", "overlap"),
        ("SET fresh.twig = :one", "The document path provided in the update expression is invalid for update"),
        ("SET txt.twig = :one", "invalid for update"),
        ("SET a = b + :one", "refers to an attribute that does not exist in the item"),
        ("SET a = txt + :one", "incorrect data type"),
        ("SET pk = :one", "Cannot update attribute pk. This attribute is part of the key"),
        ("SET a = :one SET b = :one", 'The "SET" section can only be used once'),
        ("SET a = :one + :one + :one", 'Syntax error; token: "+"'),
        ("SET a = if_not_exists(:one, :one)", "requires a document path"),
        ("SET a = if_not_exists(a, :one + :one)", 'Syntax error; token: "+"'),
        ("SET a = max(a, :one)", "Invalid function name; function: max"),
        ("SET a = :one REMOVE", 'Syntax error; token: "<EOF>"'),
        ("a = :one", 'Syntax error; token: "a"'),
    ],
)
def test_a_wrong_update_is_refused_with_the_reason_and_changes_nothing(
    memory: MemoryDynamoDB, expression: str, why: str
) -> None:
    put(memory, txt={"S": "text"})
    before = memory.items()
    assert why in refused(update, memory, expression, one=1)
    assert memory.items() == before


def test_a_refused_condition_comes_before_an_update_that_does_not_fit(memory: MemoryDynamoDB) -> None:
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        update(memory, "SET fresh.twig = :one", "attribute_exists(pk)", one=1)


def test_removals_alone_do_not_bring_an_item_about(memory: MemoryDynamoDB) -> None:
    assert update(memory, "REMOVE a, b.c") == {}
    assert memory.items() == []


@pytest.mark.parametrize("expression", ["ADD a :one", "SET a = list_append(a, :one)", "SET a[0] = :one"])
def test_what_is_left_out_of_updates_says_so(memory: MemoryDynamoDB, expression: str) -> None:
    with pytest.raises(NotImplementedError, match="MemoryDynamoDB does not know"):
        update(memory, expression, one=1)


# Numbers.


def test_38_digits_are_counted_exactly(memory: MemoryDynamoDB) -> None:
    huge = 10**38 - 2
    assert update(memory, "SET a = :huge + :one", huge=huge, one=1)["a"] == {"N": str(huge + 1)}
    assert holds(memory, "a > :huge", huge=huge)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1" * 39, "more than 38 significant digits"),
        ("1e126", "magnitude larger"),
        ("1e-131", "magnitude smaller"),
        ("NaN", "cannot be converted to a numeric value"),
        ("1_000", "cannot be converted to a numeric value"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(memory: MemoryDynamoDB, text: str, why: str) -> None:
    assert why in refused(put, memory, a={"N": text})


def test_a_sum_that_does_not_fit_is_refused_and_not_rounded(memory: MemoryDynamoDB) -> None:
    put(memory, a={"N": "9" * 38})
    assert "38 significant digits" in refused(update, memory, "SET a = a + :two", two=2)


@pytest.mark.parametrize(
    ("text", "shown"), [("1.50", "1.5"), ("-0", "0"), ("1E3", "1000"), ("007", "7"), (".5", "0.5")]
)
def test_a_number_is_shown_without_needless_digits(memory: MemoryDynamoDB, text: str, shown: str) -> None:
    put(memory, a={"N": text})
    assert memory.get_item(**LOCKS, Key=KEY)["Item"]["a"] == {"N": shown}


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


def test_a_filter_hides_what_was_read_all_the_same(memory: MemoryDynamoDB) -> None:
    for index in range(4):
        put(memory, f"{index}", n={"N": str(index)})
    page = memory.scan(
        **LOCKS, FilterExpression="n >= :two", ExpressionAttributeValues={":two": {"N": "2"}}, Select="COUNT"
    )
    assert (page["Count"], page["ScannedCount"], "Items" in page) == (2, 4, False)


def test_nobody_can_change_what_is_stored_but_by_a_request(memory: MemoryDynamoDB) -> None:
    mine: Any = {**KEY, "m": {"M": {"a": {"S": "stored"}}}}
    memory.put_item(**LOCKS, Item=mine)
    mine["m"]["M"]["a"]["S"] = "changed"
    memory.get_item(**LOCKS, Key=KEY)["Item"]["m"]["M"]["a"]["S"] = "changed"
    memory.items()[0]["m"]["M"]["a"]["S"] = "changed"
    assert memory.get_item(**LOCKS, Key=KEY)["Item"]["m"]["M"]["a"]["S"] == "stored"


def pages_of(read: Any, request: dict[str, Any]) -> list[Any]:
    pages = [read(**request)]
    while "LastEvaluatedKey" in pages[-1]:
        pages.append(read(**request, ExclusiveStartKey=pages[-1]["LastEvaluatedKey"]))
    return pages


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
def test_a_key_that_is_none_is_refused(memory: MemoryDynamoDB, key: Any) -> None:
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


def test_a_table_of_ones_own_may_do_without_a_sort_key(memory: MemoryDynamoDB) -> None:
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


def test_faults_are_waited_out(memory: MemoryDynamoDB, clock: ManualClock) -> None:
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


def test_a_lock_can_be_taken_away_underneath_its_holder(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    table = table_on(memory, clock)
    claim = Claim(LockName("order-42"), "me", LEASE_MS)
    grant = table.take_ticket(claim, None)
    assert isinstance(grant, Grant)
    assert memory.delete_all("order-42") == 1
    with pytest.raises(LockLost):
        table.renew(claim, grant.fencing_token)


def test_time_to_live_deletes_what_is_long_over(memory: MemoryDynamoDB, clock: ManualClock) -> None:
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


def test_many_threads_count_without_losing_one(memory: MemoryDynamoDB) -> None:
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


def test_a_suspended_machine_has_both_clocks_go_on_and_a_frozen_one_only_its_wall(clock: ManualClock) -> None:
    began = clock.read()
    clock.suspend(60)
    assert (clock.read().local_ms - began.local_ms, clock.read().wall_ms - began.wall_ms) == (60_000, 60_000)
    clock.freeze(60)
    assert (clock.read().local_ms - began.local_ms, clock.read().wall_ms - began.wall_ms) == (60_000, 120_000)


def test_time_does_not_go_back(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
