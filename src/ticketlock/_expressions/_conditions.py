"""From a condition's text to its tree.

    condition   = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation    = NOT negation | "(" condition ")" | predicate
    predicate   = function | operand comparator operand | operand BETWEEN operand AND operand
                | operand IN "(" operand { "," operand } ")"
    operand     = path | value | "size" "(" path ")" | "(" operand ")"

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html
"""

from dataclasses import dataclass, field

from ticketlock._expressions._demands import COUNTED, Bounds, NamesType
from ticketlock._expressions._operands import CONDITION_FUNCTIONS, Operands
from ticketlock._expressions._tree import (
    BeginsWith,
    Between,
    Comparison,
    Condition,
    Contains,
    Either,
    Every,
    Exists,
    Not,
    OfType,
    OneOf,
    Operand,
    Path,
    Size,
    Placeholder,
)
from ticketlock._expressions._values import ORDERED_TYPES

MAX_CHOICES = 100
"""The operands of one IN.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters
"""

_COMPARATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_BEHIND_AN_OPERAND = _COMPARATORS | {"BETWEEN", "IN"}
_BEGINNINGS = frozenset({"S", "B"})


@dataclass
class _Group:
    """The conditions read so far between two parentheses: lists joined by AND, within a list joined by OR."""

    negative: bool = False
    either: list[list[Condition]] = field(default_factory=lambda: [[]])

    def whole(self) -> Condition:
        each = [every[0] if len(every) == 1 else Every(tuple(every)) for every in self.either]
        found = each[0] if len(each) == 1 else Either(tuple(each))
        return _negated(found) if self.negative else found


def _negated(condition: Condition) -> Condition:
    return condition.condition if isinstance(condition, Not) else Not(condition)


class Conditions(Operands):
    """Parses a condition without recursion, since 4 KB may be nested deeper than Python's stack."""

    def condition(self) -> Condition:
        """Parse the condition that begins here."""
        outer: list[_Group] = []
        group = _Group()
        while True:
            negative = False
            while self.took_word("NOT"):
                self.note_operator()
                negative = not negative
            if self.next == "(" and not self._is_operand():
                if self.is_doubled(self.at):
                    raise self.redundant()
                self.at += 1
                outer.append(group)
                group = _Group(negative)
                continue
            found = self._predicate()
            group.either[-1].append(_negated(found) if negative else found)
            while outer and self.took(")"):
                found, group = group.whole(), outer.pop()
                group.either[-1].append(found)
            if self.took_word("AND"):
                self.note_operator()
            elif self.took_word("OR"):
                self.note_operator()
                group.either.append([])
            elif outer:
                raise self.unexpected()
            else:
                return group.whole()

    def _is_operand(self) -> bool:
        """Whether the parenthesis that opens here contains an operand, not a condition."""
        return self.tokens[min(self.closings[self.at] + 1, len(self.tokens) - 1)].upper() in _BEHIND_AN_OPERAND

    def _predicate(self) -> Condition:
        if self.is_call() and self.next != "size":
            name = self.next
            found = self._function()
            if self.next.upper() in _BEHIND_AN_OPERAND:
                raise self.misplaced(name)
            return found
        left = self._operand()
        operator = self.next.upper()
        if operator not in _BEHIND_AN_OPERAND:
            if isinstance(left, Size):
                raise self.misplaced("size")
            raise self.unexpected()
        self.note_operator()
        self.at += 1
        if operator == "BETWEEN":
            return self._between(left)
        if operator == "IN":
            return self._one_of(left)
        right = self._operand()
        self.demand_distinct(operator, left, (right,))
        if operator not in ("=", "<>"):
            self._demand_order(operator, left, right)
        return Comparison(operator, left, right)

    def _between(self, operand: Operand) -> Condition:
        low = self._operand()
        if not self.took_word("AND"):
            raise self.unexpected()
        high = self._operand()
        self.demand_distinct("BETWEEN", operand, (low, high))
        self._demand_order("BETWEEN", operand, low, high)
        if isinstance(low, Placeholder) and isinstance(high, Placeholder):
            self.demands.append(Bounds(low.name, high.name))
        return Between(operand, low, high)

    def _one_of(self, operand: Operand) -> Condition:
        self.must("(")
        choices = self.listed(self._operand)
        self.must(")")
        if len(choices) > MAX_CHOICES:
            raise self.wrong(f"The IN operator is provided with too many operands; number of operands: {len(choices)}")
        self.demand_distinct("IN", operand, choices)
        return OneOf(operand, tuple(choices))

    def _demand_order(self, operator: str, *operands: Operand) -> None:
        for operand in operands:
            self.demand_types(operand, ORDERED_TYPES, operator)

    def _function(self) -> Condition:
        name = self.called(CONDITION_FUNCTIONS)
        if name.endswith("_exists"):
            (path,) = self.arguments(name, self._operand, 1)
            return Exists(self._as_path(path, name), name == "attribute_exists")
        first, second = self.arguments(name, self._operand, 2)
        if name == "attribute_type":
            return self._of_type(self._as_path(first, name), second)
        self.demand_distinct(name, first, (second,))
        if name == "contains":
            return Contains(first, second)
        for operand in (first, second):
            self.demand_types(operand, _BEGINNINGS, name)
            if isinstance(operand, Size):
                raise self._of_wrong_type(name, "N")
        return BeginsWith(first, second)

    def _as_path(self, operand: Operand, function: str) -> Path:
        if not isinstance(operand, Path):
            raise self.needs_path(function)
        return operand

    def _of_type(self, path: Path, kind: Operand) -> Condition:
        if not isinstance(kind, Placeholder):
            raise self._of_wrong_type(
                "attribute_type", "N" if isinstance(kind, Size) else "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}"
            )
        self.demand_types(kind, frozenset({"S"}), "attribute_type")
        self.demands.append(NamesType(kind.name))
        return OfType(path, kind)

    def _of_wrong_type(self, function: str, kind: str) -> Exception:
        return self.wrong(
            f"Incorrect operand type for operator or function; operator or function: {function}, operand type: {kind}"
        )

    def _operand(self) -> Operand:
        return self.bracketed(self._bare_operand)

    def _bare_operand(self) -> Operand:
        if self.is_call():
            name = self.called(("size",))
            (counted,) = self.arguments(name, self._path_or_value, 1)
            self.demand_types(counted, COUNTED, name)
            return Size(counted)
        return self._path_or_value()

    def _path_or_value(self) -> Path | Placeholder:
        if self.next.startswith(":"):
            return self.value()
        if self.is_call():
            self.called(())
        return self.path()
