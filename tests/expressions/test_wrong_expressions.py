"""What is wrong for every item is refused before an item is read, in DynamoDB's words."""

import contextlib
from typing import Any

import pytest
from expressions.asked import expressions, wire, with_values
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._values import ExpressionInvalid

KINDS = [
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
    "UpdateExpression",
]
VALUES: dict[str, Any] = {
    ":n": {"N": "1"},
    ":two": {"N": "2"},
    ":s": {"S": "text"},
    ":b": {"B": b"\x01"},
    ":l": {"L": []},
    ":ss": {"SS": ["x"]},
    ":yes": {"BOOL": True},
    ":none": {"NULL": True},
}


def complaint(kind: str, text: str) -> str:
    """The reason for which an expression is refused, asked with those of the values that it uses."""
    with pytest.raises(ExpressionInvalid) as caught:
        Expressions(with_values(kind, text, VALUES))
    assert caught.value.message == str(caught.value)
    assert caught.value.message.startswith(f"Invalid {kind}: ")
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "The expression can not be empty;"),
        ("a", 'Syntax error; token: "<EOF>", near: "a"'),
        ("a = :n)", 'Syntax error; token: ")", near: ":n )"'),
        ("a IN ()", 'Syntax error; token: ")"'),
        ("a BETWEEN :n OR :two", 'Syntax error; token: "OR"'),
        ("a[:n] = :n", 'Syntax error; token: ":n"'),
        ("a[-1] = :n", 'Syntax error; token: "-"'),
        ("a[01] = :n", 'Syntax error; token: "01"'),
        ("a. = :n", 'Syntax error; token: "="'),
        ("((a = :n))", "The expression has redundant parentheses;"),
        ("((a)) = :n", "redundant parentheses"),
        ("b = :n AND NOT ((a = :n OR a = :two))", "redundant parentheses"),
        ("(" * 4_096, 'Syntax error; token: "<EOF>"'),
        ("(" * 2_046 + "a<b" + ")" * 2_046, "redundant parentheses"),
        ("a[2147483648] = :n", "List index is not within the allowable range; index: [2147483648]"),
        ("name = :n", "Attribute name is a reserved keyword; reserved keyword: name"),
        ("a.Name = :n", "reserved keyword: Name"),
        ("a < " + "f(" * 1_000 + "b" + ")" * 1_000, "Invalid function name; function: f"),
        ("Size(a) = :n", "Invalid function name; function: Size"),
        ("size(a)", "The function is not allowed to be used this way in an expression; function: size"),
        ("size(size(a)) = :n", "not allowed to be used this way in an expression; function: size"),
        ("attribute_exists(a) < :n", "not allowed to be used this way in an expression; function: attribute_exists"),
        ("if_not_exists(a, b) = :n", "The function is not allowed in a condition expression; function: if_not_exists"),
        ("size(a, b) = :n", "operator or function: size, number of operands: 2"),
        ("contains(a)", "Incorrect number of operands for operator or function; operator or function: contains"),
        ("attribute_exists(:s)", "requires a document path; operator or function: attribute_exists"),
        ("attribute_not_exists(size(a))", "requires a document path; operator or function: attribute_not_exists"),
        ("attribute_type(a, b)", "operator or function: attribute_type, operand type: {NS,SS,L,BS,N,M,B,BOOL,NULL,S}"),
        ("attribute_type(a, :n)", "operator or function: attribute_type, operand type: N"),
        ("attribute_type(a, :s)", "Invalid attribute type name found; type: text, valid types: {B,NULL,SS,"),
        ("a < :l", "Incorrect operand type for operator or function; operator or function: <, operand type: L"),
        (":yes >= a", "operator or function: >=, operand type: BOOL"),
        ("a BETWEEN :l AND :l", "operator or function: BETWEEN, operand type: L"),
        (
            "a BETWEEN :two AND :n",
            (
                "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; "
                "lower bound operand: AttributeValue: {N:2}, upper bound operand: AttributeValue: {N:1}"
            ),
        ),
        (
            "a BETWEEN :n AND :b",
            (
                "The BETWEEN operator requires same data type for lower and upper bounds; "
                "lower bound operand: AttributeValue: {N:1}, upper bound operand: AttributeValue: {B:AQ==}"
            ),
        ),
        ("size(:n) = :n", "operator or function: size, operand type: N"),
        ("begins_with(a, :n)", "operator or function: begins_with, operand type: N"),
        ("begins_with(:l, a)", "operator or function: begins_with, operand type: L"),
        ("begins_with(size(a), :s)", "operator or function: begins_with, operand type: N"),
        ("a = a", "The first operand must be distinct from the remaining operands for this operator or function; "),
        ("contains(a[1].b, a[1].b)", "operator: contains, first operand: [a, [1], b]"),
        ("a IN (b, a)", "operator: IN, first operand: [a]"),
        ("a = :gone", "An expression attribute value used in expression is not defined; attribute value: :gone"),
        ("#gone = b", "An expression attribute name used in the document path is not defined; attribute name: #gone"),
    ],
)
def test_a_wrong_condition_is_refused_with_the_reason(text: str, why: str) -> None:
    assert why in complaint("ConditionExpression", text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("INVALID SYNTAX HERE", 'Syntax error; token: "INVALID", near: "INVALID SYNTAX"'),
        ("SET :n = a", 'Syntax error; token: ":n"'),
        ("SET a = :n + :n + :n", 'Syntax error; token: "+"'),
        ("SET a = (b + :n) + :n", 'Syntax error; token: "+"'),
        ("SET a = if_not_exists(a, :n + :n)", 'Syntax error; token: "+"'),
        ("ADD a b", 'Syntax error; token: "b"'),
        ("REMOVE a b", 'Syntax error; token: "b"'),
        ("SET a = ((b))", "redundant parentheses"),
        ("SET a = ((b + :n))", "redundant parentheses"),
        ("ADD a :n REMOVE b ADD c :n", 'The "ADD" section can only be used once in an update expression;'),
        ("SET a = max(b, :n)", "Invalid function name; function: max"),
        ("SET a = LIST_APPEND(b, :l)", "Invalid function name; function: LIST_APPEND"),
        ("SET a = size(b)", "The function is not allowed in an update expression; function: size"),
        ("SET a = list_append(list_append(b, c), d)", "not allowed to be used this way"),
        ("SET a = list_append(b)", "operator or function: list_append, number of operands: 1"),
        ("SET a = if_not_exists(b)", "operator or function: if_not_exists, number of operands: 1"),
        ("SET a = if_not_exists(b, c, d)", "operator or function: if_not_exists, number of operands: 3"),
        ("SET a = if_not_exists(:n, b)", "requires a document path; operator or function: if_not_exists"),
        ("SET a = if_not_exists(b, b)", "operator: if_not_exists, first operand: [b]"),
        (
            "SET a = :s + :n",
            "Incorrect operand type for operator or function; operator or function: +, operand type: S",
        ),
        ("SET a = list_append(b, :n)", "operator or function: list_append, operand type: N"),
        ("ADD a :s", "Incorrect operand type for operator or function; operator: ADD, operand type: STRING"),
        ("DELETE a :n", "operator: DELETE, operand type: NUMBER"),
        ("SET a = :gone", "attribute value: :gone"),
        ("REMOVE #gone", "attribute name: #gone"),
        ("SET a = :n REMOVE a", "Two document paths overlap with each other; must remove or rewrite one of these"),
        ("ADD a.b.c :n DELETE a.b :ss", "path one: [a, b, c], path two: [a, b]"),
        ("REMOVE a[1][1], a[1]", "path one: [a, [1], [1]], path two: [a, [1]]"),
        ("SET a.b = :n, a[1] = :n", "Two document paths conflict with each other; must remove or rewrite one of these"),
        ("ADD a.b.c :n REMOVE a.b[2]", "conflict with each other; must remove or rewrite"),
    ],
)
def test_a_wrong_update_is_refused_with_the_reason(text: str, why: str) -> None:
    assert why in complaint("UpdateExpression", text)


def test_paths_are_compared_by_what_their_names_stand_for() -> None:
    with pytest.raises(ExpressionInvalid, match="overlap"):
        expressions({"v": 1}, {"a": "x", "b": "x"}, UpdateExpression="SET #a = :v, #b = :v")
    with pytest.raises(ExpressionInvalid, match="distinct"):
        expressions({}, {"a": "x"}, ConditionExpression="#a = x")
    expressions({"v": 1}, {"a": "x.y", "b": "x"}, UpdateExpression="SET #a = :v, #b.y = :v")


@pytest.mark.parametrize(
    ("names", "values", "why"),
    [
        ({}, None, "ExpressionAttributeNames must not be empty"),
        (None, {}, "ExpressionAttributeValues must not be empty"),
        ({"a": "x"}, None, 'ExpressionAttributeNames contains invalid key: Syntax error; key: "a"'),
        ({"#": "x"}, None, 'invalid key: Syntax error; key: "#"'),
        ({"#a-b": "x"}, None, 'invalid key: Syntax error; key: "#a-b"'),
        ({"#a": ""}, None, "ExpressionAttributeNames contains invalid value: Empty attribute name for key #a"),
        (None, {"v": wire(1)}, 'ExpressionAttributeValues contains invalid key: Syntax error; key: "v"'),
        (
            None,
            {":v": {"N": "x"}},
            "ExpressionAttributeValues contains invalid value: The parameter cannot be converted",
        ),
        (None, {":v": {"SS": []}}, "ExpressionAttributeValues contains invalid value: .*may not be empty for key :v"),
        ({"#idle": "x"}, None, "Value provided in ExpressionAttributeNames unused in expressions: keys: {#idle}"),
        (None, {":b": wire(1), ":a": wire(1)}, "ExpressionAttributeValues unused in expressions: keys: {:a, :b}"),
    ],
)
def test_wrong_placeholders_are_refused_with_the_reason(names: Any, values: Any, why: str) -> None:
    request: dict[str, Any] = {"ConditionExpression": "a < b"}
    if names is not None:
        request["ExpressionAttributeNames"] = names
    if values is not None:
        request["ExpressionAttributeValues"] = values
    with pytest.raises(ExpressionInvalid, match=why):
        Expressions(request)


_WORDS = (
    "( ( ) ) [ ] , . 0 1 a b m #n :v :v AND OR NOT IN BETWEEN = <> < + - SET REMOVE ADD DELETE size( contains( ' _ é "
    "attribute_exists( attribute_type( begins_with( if_not_exists( list_append( 99999999999"
)


@settings(max_examples=300, derandomize=True, database=None)
@given(
    st.sampled_from(KINDS),
    st.lists(st.sampled_from(_WORDS.split(" ")), min_size=1, max_size=12),
    st.sampled_from(["", " "]),
)
def test_every_text_is_an_expression_or_refused(kind: str, words: list[str], between: str) -> None:
    request = {
        kind: between.join(words),
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":v": wire(1)},
    }
    # Any other error fails.
    with contextlib.suppress(ExpressionInvalid):
        Expressions(request)


@pytest.mark.parametrize(
    "parameters",
    [
        {"ConditionExpression": None},
        {"ConditionExpression": 1},
        {"ConditionExpression": b"a = b"},
        {"ConditionExpression": "#n = b", "ExpressionAttributeNames": {"#n": 1}},
        {"ConditionExpression": "#n = b", "ExpressionAttributeNames": [("#n", "a")]},
        {"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v": 1}},
        {"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v": {"M": {1: {"S": "x"}}}}},
        {"ConditionExpression": "a = :v", "ExpressionAttributeValues": {1: {"S": "x"}}},
        {"ConditionExpression": "a = :v", "ExpressionAttributeValues": [":v"]},
    ],
)
def test_what_is_no_text_or_map_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ExpressionInvalid, match=r"text|map|datatype"):
        Expressions(parameters)
