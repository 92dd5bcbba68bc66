"""Parses the parts of conditions, updates and projections: paths, values and function calls.

path = name { "." name | "[" number "]" }
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from ticketlock._expressions._demands import Demand, OfTypes
from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._reserved import RESERVED
from ticketlock._expressions._tokens import Kind, Tokens
from ticketlock._expressions._tree import Path, Placeholder

_MAX_STEPS = 32
_MAX_INDEX = 2**31 - 1

CONDITION_FUNCTIONS = frozenset(
    {"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"}
)
UPDATE_FUNCTIONS = frozenset({"if_not_exists", "list_append"})
_FUNCTIONS = CONDITION_FUNCTIONS | UPDATE_FUNCTIONS | {"size"}

T = TypeVar("T")


class Operands(Tokens):
    """Parses operands, and notes what they demand of the request.

    Attributes:
        demands, distinct: as in ``Parsed``.
    """

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(kind, text)
        self.demands: list[Demand] = []
        self.distinct: list[tuple[str, Path, tuple[Path, ...]]] = []

    def listed(self, one: Callable[[], T]) -> list[T]:
        """Parse a list separated by commas."""
        found = [one()]
        while self.took(","):
            found.append(one())
        return found

    def bracketed(self, one: Callable[[], T]) -> T:
        """Parse something that may be in a pair of parentheses."""
        opening = self.at
        if not self.took("("):
            return one()
        if self.is_doubled(opening):
            raise self.redundant()
        found = one()
        self.must(")")
        return found

    def value(self) -> Placeholder:
        """A ``:value``."""
        if not self.next.startswith(":"):
            raise self.unexpected()
        self.at += 1
        return Placeholder(self.tokens[self.at - 1])

    def path(self) -> Path:
        """A path."""
        steps: list[str | int] = [self._name()]
        while self.next in (".", "["):
            if self.took("."):
                steps.append(self._name())
            else:
                self.at += 1
                steps.append(self._index())
                self.must("]")
        if len(steps) > _MAX_STEPS:
            raise self.wrong(f"The document path has too many nesting levels; nesting levels: {len(steps)}")
        return Path(tuple(steps))

    def _name(self) -> str:
        name = self.next
        if not (name[:1].isalpha() or name.startswith("#")):
            raise self.unexpected()
        if name.upper() in RESERVED:
            raise self.wrong(f"Attribute name is a reserved keyword; reserved keyword: {name}")
        self.at += 1
        return name

    def _index(self) -> int:
        if not self.next.isdigit() or (self.next.startswith("0") and self.next != "0"):
            raise self.unexpected()
        self.at += 1
        digits = self.tokens[self.at - 1]
        if len(digits) > len(str(_MAX_INDEX)) or int(digits) > _MAX_INDEX:
            raise self.wrong(f"List index is not within the allowable range; index: [{digits}]")
        return int(digits)

    # Calls.

    def is_call(self) -> bool:
        """Whether a function's name comes next."""
        return self.next[:1].isalpha() and self.tokens[self.at + 1] == "("

    def called(self, allowed: Iterable[str]) -> str:
        """Parse the name of a function, which must be one of these."""
        name = self.next
        if name not in _FUNCTIONS:
            raise self.wrong(f"Invalid function name; function: {name}")
        if name not in allowed:
            raise self.misplaced(name)
        self.note_operator()
        self.at += 2
        return name

    def misplaced(self, name: str) -> ExpressionInvalid:
        """The function exists, but is not allowed here."""
        if self.kind == "UpdateExpression" and name not in UPDATE_FUNCTIONS:
            return self.wrong(f"The function is not allowed in an update expression; function: {name}")
        if self.kind != "UpdateExpression" and name in UPDATE_FUNCTIONS:
            return self.wrong(f"The function is not allowed in a condition expression; function: {name}")
        return self.wrong(f"The function is not allowed to be used this way in an expression; function: {name}")

    def arguments(self, function: str, one: Callable[[], T], count: int) -> list[T]:
        """Parse as many operands as the function takes, and the closing parenthesis."""
        found = self.listed(one)
        self.must(")")
        if len(found) != count:
            raise self.wrong_count(function, len(found))
        return found

    def wrong_count(self, function: str, count: int) -> ExpressionInvalid:
        """The function takes another number of operands."""
        return self.wrong(
            "Incorrect number of operands for operator or function; "
            f"operator or function: {function}, number of operands: {count}"
        )

    def needs_path(self, function: str) -> ExpressionInvalid:
        """The function takes an attribute, and was given something else."""
        return self.wrong(f"Operator or function requires a document path; operator or function: {function}")

    def demand_types(self, operand: object, kinds: frozenset[str], operator: str) -> None:
        """Demand that a value among the operands has one of these types."""
        if isinstance(operand, Placeholder):
            self.demands.append(OfTypes(operand.name, kinds, f"operator or function: {operator}"))

    def demand_distinct(self, operator: str, first: object, rest: Iterable[object]) -> None:
        """Demand that the first operand, if it is an attribute, differs from the others."""
        others = tuple(other for other in rest if isinstance(other, Path))
        if isinstance(first, Path) and others:
            self.distinct.append((operator, first, others))
