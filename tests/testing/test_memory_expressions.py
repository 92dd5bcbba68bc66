"""The DynamoDB in memory: conditions, updates and numbers that the contract does not test."""

import pytest
from botocore.exceptions import ClientError
from testing.memory_requests import KEY, LOCKS, holds, put, refused, update

from ticketlock.testing import MemoryDynamoDB

# Conditions.


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


def test_removals_alone_do_not_create_an_item(memory: MemoryDynamoDB) -> None:
    assert update(memory, "REMOVE a, b.c") == {}
    assert memory.items() == []


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


def test_a_null_is_true(memory: MemoryDynamoDB) -> None:
    put(memory, a={"NULL": True})
    assert "Null attribute value types must have the value of true" in refused(put, memory, a={"NULL": False})
