"""What a Query asks of keys: one partition, and a range of its sort key.

A key of a global index has up to four attributes for the partition and four for the sort order. A Query has an equation
for each of the former, and conditions for the first ones of the latter: equations, but for the last, which may be a
range.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.KeyConditionExpressions.html
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.DesignPattern.MultiAttributeKeys.html
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ticketlock._expressions._evaluated import Expressions, written
from ticketlock._expressions._grammar import BeginsWith, Between, Comparison, Condition, Every, Path, Placeholder
from ticketlock._expressions._values import ExpressionInvalid, Value

_WRONG_TYPE = "One or more parameter values were invalid: Condition parameter type does not match schema type"
_UNSUPPORTED = "Query key condition not supported"

Kinds = Mapping[str, str]
"""Types by the names of attributes, in the order of a key."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The items that a Query asks for.

    Attributes:
        partition: the values of the attributes of their partition key, in its order.
        bounds: the conditions on the first attributes of their sort key, in its order; none for the whole partition.
        limits: the values in these conditions, with their attributes.
    """

    partition: tuple[Value, ...]
    bounds: tuple[Condition, ...]
    limits: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """One condition on one attribute.

    Attributes:
        values: those that it compares with.
        is_equation: whether it allows one value only.
    """

    condition: Condition
    values: tuple[Placeholder, ...]
    is_equation: bool


def key_range(partition: Kinds, sort: Kinds, expressions: Expressions) -> KeyRange:
    """What the key condition of a Query asks for.

    Args:
        partition, sort: the attributes of the partition key and, where there is one, of the sort key.

    Raises:
        ExpressionInvalid: it is none that these keys answer.
    """
    kinds = {**partition, **sort}
    parts: dict[str, _Part] = {}
    others: list[str] = []
    for condition in _conditions_in(expressions.key_condition):
        path, part = _part(condition)
        steps = expressions.steps(path)
        name = str(steps[0])
        if len(steps) > 1:
            raise ExpressionInvalid(f"{_UNSUPPORTED}: {written(steps)} is not in the key")
        if name not in kinds:
            others.append(name)
            continue
        if name in parts:
            raise ExpressionInvalid("KeyConditionExpressions must only contain one condition per key")
        for value in part.values:
            if kinds[name] not in expressions.value(value):
                raise ExpressionInvalid(_WRONG_TYPE)
        parts[name] = part
    # A condition on another attribute is taken for one on the first attribute of the key that has none.
    for name in kinds if others else partition:
        if name not in parts:
            raise ExpressionInvalid(f"Query condition missed key schema element: {name}")
    if others:
        raise ExpressionInvalid(f"{_UNSUPPORTED}: [{others[0]}] is not in the key")
    for name in partition:
        if not parts[name].is_equation:
            raise ExpressionInvalid(f"{_UNSUPPORTED}: {name} is in the partition key, which has to be equal to a value")
    values = tuple(expressions.value(parts[name].values[0]) for name in partition)
    limits = ((name, expressions.value(value)) for name in sort if name in parts for value in parts[name].values)
    return KeyRange(values, tuple(_bounds(list(sort), parts)), tuple(limits))


def _bounds(sort: list[str], parts: Mapping[str, _Part]) -> Iterator[Condition]:
    """The conditions on a sort key: on its first attributes, of which only the last may be in a range."""
    asked = [name for name in sort if name in parts]
    for name, first in zip(asked, sort, strict=False):
        if name != first:
            raise ExpressionInvalid(
                f"{_UNSUPPORTED}: a condition on {name} needs one on {first}, which comes before it"
            )
        if name != asked[-1] and not parts[name].is_equation:
            raise ExpressionInvalid(f"{_UNSUPPORTED}: {name} is in a range, and {asked[-1]} comes after it")
        yield parts[name].condition


def _conditions_in(condition: Condition | None) -> Iterator[Condition]:
    if isinstance(condition, Every):
        for each in condition.conditions:
            yield from _conditions_in(each)
    elif condition is not None:
        yield condition


def _part(condition: Condition) -> tuple[Path, _Part]:
    match condition:
        case Comparison(("=" | "<" | "<=" | ">" | ">=") as sign, Path() as path, Placeholder() as value) | Comparison(
            ("=" | "<" | "<=" | ">" | ">=") as sign, Placeholder() as value, Path() as path
        ):
            return path, _Part(condition, (value,), sign == "=")
        case BeginsWith(Path() as path, Placeholder() as value):
            return path, _Part(condition, (value,), False)
        case Between(Path() as path, Placeholder() as low, Placeholder() as high):
            return path, _Part(condition, (low, high), False)
        case _:
            raise ExpressionInvalid("Invalid operator used in KeyConditionExpression")
