"""What a Query asks of keys: one partition, and of the sort key at most one condition.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.KeyConditionExpressions.html
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._expressions import Expressions
from ticketlock._expressions._paths import Steps, written
from ticketlock._expressions._tree import BeginsWith, Between, Comparison, Condition, Every, Path, Value
from ticketlock._expressions._values import Value as Found

_WRONG_TYPE = "One or more parameter values were invalid: Condition parameter type does not match schema type"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The items that a Query asks for.

    Attributes:
        partition: the value of their partition key.
        bound: the condition on their sort key; None for none.
    """

    partition: Found
    bound: Condition | None


def key_range(key_names: Sequence[str], key_kinds: Sequence[str], expressions: Expressions) -> KeyRange:
    """What the key condition of a Query asks for.

    Args:
        key_names, key_kinds: the partition key's attribute and type and, where there is one, the sort key's.
        expressions: those of the request.

    Raises:
        ExpressionInvalid: it is none that these keys answer.
    """
    condition = expressions.key_condition
    partition: Found | None = None
    bound: Condition | None = None
    for part in condition.conditions if isinstance(condition, Every) else (condition,):
        match part:
            case Comparison("=", Path() as path, Value() as value) | Comparison(
                "=", Value() as value, Path() as path
            ) if path.steps == tuple(key_names[:1]):
                partition = _of_kind(key_kinds[0], expressions, value)
                continue
            case (
                Comparison(("=" | "<" | "<=" | ">" | ">="), Path() as path, Value() as value)
                | Comparison(("=" | "<" | "<=" | ">" | ">="), Value() as value, Path() as path)
                | BeginsWith(Path() as path, Value() as value)
            ):
                values: tuple[Value, ...] = (value,)
            case Between(Path() as path, Value() as low, Value() as high):
                values = (low, high)
            case _:
                raise ExpressionInvalid("Invalid operator used in KeyConditionExpression")
        _check_sort_key(key_names, path.steps, bound)
        for each in values:
            _of_kind(key_kinds[1], expressions, each)
        bound = part
    if partition is None:
        raise ExpressionInvalid(f"Query condition missed key schema element: {key_names[0]}")
    return KeyRange(partition, bound)


def _check_sort_key(key_names: Sequence[str], steps: Steps, bound: Condition | None) -> None:
    if not steps or steps != tuple(key_names[1:]):
        raise ExpressionInvalid(f"Query key condition not supported: {written(steps)} is not the sort key")
    if bound is not None:
        raise ExpressionInvalid("KeyConditionExpressions must only contain one condition per key")


def _of_kind(kind: str, expressions: Expressions, value: Value) -> Found:
    found = expressions.value(value)
    if kind not in found:
        raise ExpressionInvalid(_WRONG_TYPE)
    return found
