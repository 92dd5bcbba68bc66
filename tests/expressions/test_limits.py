"""The limits of expressions that DynamoDB documents: just below, at and above each.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters
"""

from typing import Any

import pytest
from expressions.asked import expressions, nested

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._values import ExpressionInvalid, canonical_item


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ConditionExpression", "a <{spaces}b"),
        ("FilterExpression", "a <{spaces}b"),
        ("UpdateExpression", "SET{spaces}a = b"),
        ("ProjectionExpression", "a,{spaces}b"),
    ],
)
def test_an_expression_has_4096_bytes(kind: str, text: str) -> None:
    def of_bytes(size: int) -> Expressions:
        return Expressions({kind: text.format(spaces=" " * (size - len(text) + len("{spaces}")))})

    of_bytes(4_095)
    of_bytes(4_096)
    with pytest.raises(ExpressionInvalid, match=f"Invalid {kind}: Expression size .*; expression size: 4097"):
        of_bytes(4_097)


@pytest.mark.parametrize(
    ("beginning", "further", "operators"),
    [("a<b ", "or a<b ", 2), ("a<b ", "and contains(a,b) ", 2), ("a<b ", "or not a<b ", 3), ("NOT a<b", " OR a=b", 2)],
)
def test_a_condition_has_300_operators_and_functions(beginning: str, further: str, operators: int) -> None:
    def with_operators(count: int) -> Expressions:
        first = len([word for word in beginning.split() if word])
        times, left = divmod(count - first, operators)
        return expressions({}, ConditionExpression="NOT " * left + beginning + further * times)

    with_operators(299)
    with_operators(300)
    with pytest.raises(ExpressionInvalid, match="contains too many operators; operator count: 301"):
        with_operators(301)


def test_an_update_has_300_operators_and_functions() -> None:
    def with_operators(count: int) -> Expressions:
        sums = [f"a{number}=b+c" for number in range(count)]
        return expressions({}, UpdateExpression="SET " + ",".join(sums))

    with_operators(299)
    with_operators(300)
    with pytest.raises(ExpressionInvalid, match=r"Invalid UpdateExpression: .*operator count: 301"):
        with_operators(301)


def test_a_condition_may_be_nested_as_deep_as_300_operators_go() -> None:
    assert expressions({}, ConditionExpression="NOT (" * 298 + "a <> b" + ")" * 298).condition_holds(None)
    assert expressions({}, ConditionExpression="a<b " + "or (a<>b " * 149 + ")" * 149).condition_holds(None)


def test_one_of_has_100_choices() -> None:
    def with_choices(count: int) -> Expressions:
        values: dict[str, Any] = {f"v{number}": number for number in range(count)}
        return expressions(values, ConditionExpression=f"a IN ({','.join(f':{name}' for name in values)})")

    with_choices(99)
    with_choices(100)
    with pytest.raises(ExpressionInvalid, match=r"IN operator is provided with too many operands; .* operands: 101"):
        with_choices(101)


def test_a_path_has_32_steps() -> None:
    expressions({}, ProjectionExpression="a" + ".b" * 30)
    expressions({}, ProjectionExpression="a" + ".b" * 15 + "[1]" * 16)
    with pytest.raises(ExpressionInvalid, match="document path has too many nesting levels; nesting levels: 33"):
        expressions({}, ProjectionExpression="a" + ".b" * 16 + "[1]" * 16)


def test_a_value_has_32_levels() -> None:
    def with_levels(levels: int) -> None:
        value = nested(levels)
        request = {"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v": value}}
        Expressions(request)
        canonical_item({"a": value})

    with_levels(31)
    with_levels(32)
    with pytest.raises(ExpressionInvalid, match="nested levels beyond supported limit for key :v"):
        with_levels(33)
    with pytest.raises(ExpressionInvalid, match="nested levels beyond supported limit"):
        canonical_item({"a": nested(33)})


def test_a_placeholder_has_255_bytes() -> None:
    def of_bytes(size: int) -> Expressions:
        name = "n" * (size - 1)
        return expressions({name: 1}, {name: "a"}, ConditionExpression=f"#{name} = :{name}")

    of_bytes(254)
    of_bytes(255)
    with pytest.raises(ExpressionInvalid, match="contains a key that is too long; size of key: 256"):
        of_bytes(256)


def test_an_attribute_s_name_has_65535_bytes() -> None:
    def of_bytes(size: int) -> Expressions:
        return expressions({}, {"n": "n" * size}, ProjectionExpression="#n")

    of_bytes(65_534)
    of_bytes(65_535)
    with pytest.raises(ExpressionInvalid, match="longer than 65535 bytes for key #n"):
        of_bytes(65_536)


def test_an_element_has_a_number_up_to_the_largest_of_32_bits() -> None:
    expressions({}, ProjectionExpression="a[2147483646], a[2147483647]")
    with pytest.raises(ExpressionInvalid, match="List index is not within the allowable range"):
        expressions({}, ProjectionExpression="a[2147483648]")
