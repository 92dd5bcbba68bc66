"""What an expression demands of the request's values, checked before any item is read."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from ticketlock._expressions._values import ORDERED_TYPES, TYPES, Value, order_of

COUNTED = frozenset({"S", "B", "SS", "NS", "BS", "L", "M"})
"""The types that have a size."""
SETS = frozenset({"SS", "NS", "BS"})
_LONG_NAMES = {"S": "STRING", "N": "NUMBER", "B": "BINARY", "BOOL": "BOOLEAN", "L": "LIST", "M": "MAP"}


@dataclass(frozen=True, slots=True)
class OfTypes:
    """A value must have one of these types.

    Attributes:
        where: whose operand it is, in the words of messages.
        in_full: whether messages have the type's full name.
    """

    value: str
    kinds: frozenset[str]
    where: str
    in_full: bool = False

    def complaint(self, values: Mapping[str, Value]) -> str | None:
        """What is wrong, or None."""
        (kind,) = values[self.value]
        if kind in self.kinds:
            return None
        named = _LONG_NAMES.get(kind, kind) if self.in_full else kind
        return f"Incorrect operand type for operator or function; {self.where}, operand type: {named}"


@dataclass(frozen=True, slots=True)
class NamesType:
    """A value must be the name of a type."""

    value: str

    def complaint(self, values: Mapping[str, Value]) -> str | None:
        """What is wrong, or None."""
        ((kind, name),) = values[self.value].items()
        if kind == "S" and name not in TYPES:
            return f"Invalid attribute type name found; type: {name}, valid types: {{{','.join(TYPES)}}}"
        return None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Two values must have one type, and the second must not be below the first."""

    low: str
    high: str

    def complaint(self, values: Mapping[str, Value]) -> str | None:
        """What is wrong, or None."""
        low, high = values[self.low], values[self.high]
        if low.keys() != high.keys():
            why = "same data type for lower and upper bounds"
        elif low.keys() <= ORDERED_TYPES and order_of(low) > order_of(high):
            why = "upper bound to be greater than or equal to lower bound"
        else:
            return None
        bounds = f"lower bound operand: {_written(low)}, upper bound operand: {_written(high)}"
        return f"The BETWEEN operator requires {why}; {bounds}"


Demand = OfTypes | NamesType | Bounds


def _written(value: Value) -> str:
    ((kind, content),) = value.items()
    text = base64.b64encode(content).decode() if kind == "B" else content
    return f"AttributeValue: {{{kind}:{text}}}"
