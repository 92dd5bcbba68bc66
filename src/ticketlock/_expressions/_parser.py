"""From an expression's text to its tree: conditions, updates and projections.

Conditions:

    condition   = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation    = NOT negation | "(" condition ")" | predicate
    predicate   = function | operand comparator operand | operand BETWEEN operand AND operand
                | operand IN "(" operand { "," operand } ")"
    operand     = path | value | "size" "(" path ")" | "(" operand ")"

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html

Updates:

    update     = { SET assignment { "," assignment } | REMOVE path { "," path }
                 | ADD path value { "," path value } | DELETE path value { "," path value } }
    assignment = path "=" sum | path "=" "(" sum ")"
    sum        = source [ ( "+" | "-" ) source ]
    source     = path | value | "(" source ")" | "if_not_exists" "(" path "," source ")"
               | "list_append" "(" source "," source ")"

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html
"""

from dataclasses import dataclass, field
from functools import lru_cache

from ticketlock._expressions._grammar import (
    CONDITION_FUNCTIONS,
    COUNTED,
    END,
    SETS,
    UPDATE_FUNCTIONS,
    Append,
    BeginsWith,
    Between,
    Bounds,
    Comparison,
    Condition,
    Contains,
    Either,
    Every,
    Exists,
    ExpressionKind,
    IfNotExists,
    NamesType,
    Not,
    OfType,
    OfTypes,
    OneOf,
    Operand,
    Operands,
    Parsed,
    Path,
    Placeholder,
    Size,
    Source,
    Sum,
    Update,
)
from ticketlock._expressions._values import ORDERED_TYPES

MAX_CHOICES = 100
"""The operands of one IN.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters
"""

_COMPARATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_BEHIND_AN_OPERAND = _COMPARATORS | {"BETWEEN", "IN"}
_BEGINNINGS = frozenset({"S", "B"})

_NUMBER = frozenset({"N"})
_LIST = frozenset({"L"})
_WITHIN_A_FUNCTION = frozenset({"if_not_exists"})


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
            return self._of_type(first, second)
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

    def _of_type(self, operand: Operand, kind: Operand) -> Condition:
        if not isinstance(kind, Placeholder):
            raise self._of_wrong_type(
                "attribute_type", "N" if isinstance(kind, Size) else "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}"
            )
        self.demand_types(kind, frozenset({"S"}), "attribute_type")
        self.demands.append(NamesType(kind.name))
        return OfType(operand, kind)

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


class Changes(Operands):
    def update(self) -> Update:
        assignments: list[tuple[Path, Source]] = []
        removals: list[Path] = []
        counted: dict[str, list[tuple[Path, Placeholder]]] = {"ADD": [], "DELETE": []}
        seen: set[str] = set()
        while self.next != END:
            section = self.next.upper()
            if section not in ("SET", "REMOVE", "ADD", "DELETE"):
                raise self.unexpected()
            if section in seen:
                raise self.wrong(f'The "{section}" section can only be used once in an update expression;')
            seen.add(section)
            self.at += 1
            if section == "SET":
                assignments += self.listed(self._assignment)
            elif section == "REMOVE":
                removals += self.listed(self.path)
            else:
                counted[section] += self.listed(lambda: (self.path(), self.value()))
                kinds = SETS | _NUMBER if section == "ADD" else SETS
                for _, value in counted[section]:
                    self.demands.append(OfTypes(value.name, kinds, f"operator: {section}", in_full=True))
        return Update(tuple(assignments), tuple(removals), tuple(counted["ADD"]), tuple(counted["DELETE"]))

    def _assignment(self) -> tuple[Path, Source]:
        path = self.path()
        self.must("=")
        if self.next == "(" and self.tokens[self.closings[self.at] + 1 :][:1] not in (["+"], ["-"]):
            return path, self.bracketed(self._sum)
        return path, self._sum()

    def _sum(self) -> Source:
        left = self._source()
        operator = self.next
        if operator not in ("+", "-"):
            return left
        self.note_operator()
        self.at += 1
        right = self._source()
        for operand in (left, right):
            self.demand_types(operand, _NUMBER, operator)
        return Sum(left, right, operator == "-")

    def _source(self) -> Source:
        return self.bracketed(self._bare_source)

    def _bare_source(self, functions: frozenset[str] = UPDATE_FUNCTIONS) -> Source:
        """Parse a source without parentheses. Nested defaults are read without recursion: 4 KB hold 240 of them."""
        paths: list[Path] = []
        while self.is_call():
            name = self.called(functions)
            functions = _WITHIN_A_FUNCTION
            if name == "list_append":
                source: Source = self._append()
                break
            paths.append(self._path_with_default())
        else:
            source = self.value() if self.next.startswith(":") else self.path()
        for path in reversed(paths):
            if self.next == ",":
                raise self.wrong_count("if_not_exists", 3)
            self.must(")")
            self.demand_distinct("if_not_exists", path, (source,))
            source = IfNotExists(path, source)
        return source

    def _path_with_default(self) -> Path:
        if self.next.startswith(":") or self.is_call():
            raise self.needs_path("if_not_exists")
        path = self.path()
        if self.next == ")":
            raise self.wrong_count("if_not_exists", 1)
        self.must(",")
        return path

    def _append(self) -> Source:
        left, right = self.arguments("list_append", lambda: self._bare_source(_WITHIN_A_FUNCTION), 2)
        for operand in (left, right):
            self.demand_types(operand, _LIST, "list_append")
        return Append(left, right)


@lru_cache(maxsize=1_024)
def parse(kind: ExpressionKind, text: str) -> Parsed:
    reader: Operands
    tree: Condition | Update | tuple[Path, ...]
    if kind == "UpdateExpression":
        reader = changes = Changes(kind, text)
        tree = changes.update()
    elif kind == "ProjectionExpression":
        reader = Operands(kind, text)
        tree = tuple(reader.listed(reader.path))
    else:
        reader = conditions = Conditions(kind, text)
        tree = conditions.condition()
    if reader.next != END:
        raise reader.unexpected()
    placeholders: dict[str, set[str]] = {"#": set(), ":": set()}
    for token in reader.tokens:
        placeholders.get(token[:1], set()).add(token)
    names, values = frozenset(placeholders["#"]), frozenset(placeholders[":"])
    return Parsed(kind, tree, names, values, tuple(reader.paths), tuple(reader.demands), tuple(reader.distinct))
