"""The limits of expressions that DynamoDB documents: just below, at and above each.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from expressions.asked import nested, wire

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._values import ExpressionInvalid, canonical_item

Made = Callable[[int], dict[str, Any]]


class Limit(NamedTuple):
    """What a request may have at most, and the words with which more is refused."""

    most: int
    made: Made
    why: str


def text_of_bytes(kind: str, text: str) -> Made:
    return lambda size: {kind: text.replace("_", " " * (size - len(text) + 1))}


def condition_of_operators(beginning: str, further: str, operators: int) -> Made:
    def made(count: int) -> dict[str, Any]:
        times, left = divmod(count - len(beginning.split()), operators)
        return {"ConditionExpression": "NOT " * left + beginning + further * times}

    return made


def choices(count: int) -> dict[str, Any]:
    values = {f":v{number}": wire(number) for number in range(count)}
    return {"ConditionExpression": f"a IN ({','.join(values)})", "ExpressionAttributeValues": values}


def placeholder_of_bytes(size: int) -> dict[str, Any]:
    name = "n" * (size - 1)
    return {
        "ConditionExpression": f"#{name} = :{name}",
        "ExpressionAttributeNames": {f"#{name}": "a"},
        "ExpressionAttributeValues": {f":{name}": wire(1)},
    }


_OPERATORS = "contains too many operators; operator count: 301"
_TEXTS = {
    "ConditionExpression": "a <_b",
    "FilterExpression": "a <_b",
    "UpdateExpression": "SET_a = b",
    "ProjectionExpression": "a,_b",
}
LIMITS = {
    **{
        f"the bytes of a {kind}": Limit(
            4_096, text_of_bytes(kind, text), f"Invalid {kind}: Expression size .*; expression size: 4097"
        )
        for kind, text in _TEXTS.items()
    },
    "or": Limit(300, condition_of_operators("a<b ", "or a<b ", 2), _OPERATORS),
    "functions": Limit(300, condition_of_operators("a<b ", "and contains(a,b) ", 2), _OPERATORS),
    "or not": Limit(300, condition_of_operators("a<b ", "or not a<b ", 3), _OPERATORS),
    "not": Limit(300, condition_of_operators("NOT a<b", " OR a=b", 2), _OPERATORS),
    "the operators of an update": Limit(
        300,
        lambda count: {"UpdateExpression": "SET " + ",".join(f"a{number}=b+c" for number in range(count))},
        r"Invalid UpdateExpression: .*operator count: 301",
    ),
    "the choices of IN": Limit(100, choices, r"IN operator is provided with too many operands; .* operands: 101"),
    "the members of a path": Limit(
        32, lambda steps: {"ProjectionExpression": "a" + ".b" * (steps - 1)}, "too many nesting levels; .*: 33"
    ),
    "the members and elements of a path": Limit(
        32,
        lambda steps: {"ProjectionExpression": "a" + ".b" * (steps - 17) + "[1]" * 16},
        "document path has too many nesting levels; nesting levels: 33",
    ),
    "the levels of a value": Limit(
        32,
        lambda levels: {"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v": nested(levels)}},
        "nested levels beyond supported limit for key :v",
    ),
    "the bytes of a placeholder": Limit(255, placeholder_of_bytes, "a key that is too long; size of key: 256"),
    "the bytes of an attribute's name": Limit(
        65_535,
        lambda size: {"ProjectionExpression": "#n", "ExpressionAttributeNames": {"#n": "n" * size}},
        "longer than 65535 bytes for key #n",
    ),
    "the number of an element": Limit(
        2**31 - 1,
        lambda number: {"ProjectionExpression": f"a[{number}]"},
        "List index is not within the allowable range",
    ),
}


@pytest.mark.parametrize("what", LIMITS)
def test_an_expression_may_reach_its_limit_and_is_refused_beyond_it(what: str) -> None:
    limit = LIMITS[what]
    for allowed in (limit.most - 1, limit.most):
        Expressions(limit.made(allowed))
    with pytest.raises(ExpressionInvalid, match=limit.why):
        Expressions(limit.made(limit.most + 1))


def test_an_item_has_values_of_up_to_32_levels() -> None:
    canonical_item({"a": nested(31), "b": nested(32)})
    with pytest.raises(ExpressionInvalid, match="nested levels beyond supported limit"):
        canonical_item({"a": nested(33)})


@pytest.mark.parametrize("text", ["NOT (" * 298 + "a <> b" + ")" * 298, "a<b " + "or (a<>b " * 149 + ")" * 149])
def test_a_condition_may_be_nested_as_deep_as_300_operators_go(text: str) -> None:
    assert Expressions({"ConditionExpression": text}).condition_holds(None)
