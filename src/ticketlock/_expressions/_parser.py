"""From an expression's text to its tree: a recursive-descent parser, one method a rule of the grammar.

    condition  = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation   = NOT negation | "(" condition ")" | function | operand comparator operand
    update     = { SET assignment { "," assignment } | REMOVE path { "," path } }
    assignment = path "=" source [ ( "+" | "-" ) source ]
    projection = path { "," path }
    path       = name { "." name }

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from ticketlock._expressions._reserved import RESERVED
from ticketlock._expressions._tokens import END, Kind, Tokens
from ticketlock._expressions._tree import (
    BeginsWith,
    Comparison,
    Condition,
    Either,
    Every,
    Exists,
    IfNotExists,
    Not,
    Operand,
    Parsed,
    Path,
    Source,
    Sum,
    Update,
    Value,
)

_COMPARATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
# What DynamoDB has and this does not, by the token that gives it away.
_LEFT_OUT = frozenset({"BETWEEN", "IN", "ADD", "DELETE"})
_FUNCTIONS_LEFT_OUT = frozenset({"attribute_type", "contains", "size", "list_append"})

T = TypeVar("T")


@lru_cache(maxsize=1_024)
def parse(kind: Kind, text: str) -> Parsed:
    """The tree of an expression.

    Raises:
        ExpressionInvalid: it is none.
        NotImplementedError: DynamoDB would take it, and this does not.
    """
    return _Parser(kind, text).whole()


class _Parser(Tokens):
    def whole(self) -> Parsed:
        tree: Condition | Update | tuple[Path, ...]
        if self.kind == "UpdateExpression":
            tree = self._update()
        elif self.kind == "ProjectionExpression":
            tree = tuple(self._listed(self._path))
        else:
            tree = self._condition()
        if self.next != END:
            raise self.unexpected()
        return Parsed(self.kind, tree, frozenset(token for token in self.tokens if token[:1] in ("#", ":")))

    # Conditions.

    def _condition(self) -> Condition:
        conditions = [self._conjunction()]
        while self.took_word("OR"):
            conditions.append(self._conjunction())
        return conditions[0] if len(conditions) == 1 else Either(tuple(conditions))

    def _conjunction(self) -> Condition:
        conditions = [self._negation()]
        while self.took_word("AND"):
            conditions.append(self._negation())
        return conditions[0] if len(conditions) == 1 else Every(tuple(conditions))

    def _negation(self) -> Condition:
        if self.took_word("NOT"):
            return Not(self._negation())
        if self.took("("):
            began = self.at
            inner = self._condition()
            if self.tokens[began] == "(" and self.closing(began) == self.at - 1:
                raise self.wrong("The expression has redundant parentheses;")
            self.must(")")
            return inner
        if self._is_call():
            return self._function()
        left = self._operand()
        if self.next.upper() in _LEFT_OUT:
            raise self.left_out(self.next)
        operator = self.next
        if operator not in _COMPARATORS:
            raise self.unexpected()
        self.at += 1
        right = self._operand()
        if left == right:
            raise self.wrong(
                "The first operand must be distinct from the remaining operands for this operator or function; "
                f"operator: {operator}, first operand: [{left}]"
            )
        return Comparison(operator, left, right)

    def _function(self) -> Condition:
        name = self._call("attribute_exists", "attribute_not_exists", "begins_with")
        if name == "begins_with":
            whole = self._operand()
            self.must(",")
            found: Condition = BeginsWith(whole, self._operand())
        else:
            if self.next.startswith(":"):
                raise self.needs_path(name)
            found = Exists(self._path(), name == "attribute_exists")
        self.must(")")
        return found

    # Updates.

    def _update(self) -> Update:
        assignments: list[tuple[Path, Source]] = []
        removals: list[Path] = []
        seen: set[str] = set()
        while self.next != END:
            section = self.next.upper()
            if section in _LEFT_OUT:
                raise self.left_out(section)
            if section not in ("SET", "REMOVE"):
                raise self.unexpected()
            if section in seen:
                raise self.wrong(f'The "{section}" section can only be used once in an update expression;')
            seen.add(section)
            self.at += 1
            if section == "SET":
                assignments += self._listed(self._assignment)
            else:
                removals += self._listed(self._path)
        return Update(tuple(assignments), tuple(removals))

    def _assignment(self) -> tuple[Path, Source]:
        path = self._path()
        self.must("=")
        left = self._source()
        if self.next not in ("+", "-"):
            return path, left
        negative = self.next == "-"
        self.at += 1
        return path, Sum(left, self._source(), negative)

    def _source(self) -> Source:
        if not self._is_call():
            return self._operand()
        name = self._call("if_not_exists")
        if self.next.startswith(":") or self._is_call():
            raise self.needs_path(name)
        path = self._path()
        self.must(",")
        found = IfNotExists(path, self._source())
        self.must(")")
        return found

    # What both are made of.

    def _listed(self, one: Callable[[], T]) -> list[T]:
        found = [one()]
        while self.took(","):
            found.append(one())
        return found

    def _operand(self) -> Operand:
        if not self.next.startswith(":"):
            return self._path()
        self.at += 1
        return Value(self.tokens[self.at - 1])

    def _path(self) -> Path:
        steps = [self._name()]
        while self.took("."):
            steps.append(self._name())
        if self.next == "[":
            raise self.left_out("an element of a list")
        return Path(tuple(steps))

    def _name(self) -> str:
        name = self.next
        if not (name[:1].isalpha() or name.startswith("#")):
            raise self.unexpected()
        if name.upper() in RESERVED:
            raise self.wrong(f"Attribute name is a reserved keyword; reserved keyword: {name}")
        self.at += 1
        return name

    def _is_call(self) -> bool:
        return self.next[:1].isalpha() and self.tokens[self.at + 1] == "("

    def _call(self, *known: str) -> str:
        name = self.next
        if name in _FUNCTIONS_LEFT_OUT:
            raise self.left_out(name)
        if name not in known:
            raise self.wrong(f"Invalid function name; function: {name}")
        self.at += 2
        return name
