"""From an update's text to its tree.

    update     = { SET assignment { "," assignment } | REMOVE path { "," path }
                 | ADD path value { "," path value } | DELETE path value { "," path value } }
    assignment = path "=" sum | path "=" "(" sum ")"
    sum        = source [ ( "+" | "-" ) source ]
    source     = path | value | "(" source ")" | "if_not_exists" "(" path "," source ")"
               | "list_append" "(" source "," source ")"

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html
"""

from ticketlock._expressions._demands import SETS, OfTypes
from ticketlock._expressions._operands import UPDATE_FUNCTIONS, Operands
from ticketlock._expressions._tokens import END
from ticketlock._expressions._tree import Append, IfNotExists, Path, Source, Sum, Update, Placeholder

_NUMBER = frozenset({"N"})
_LIST = frozenset({"L"})
_WITHIN_A_FUNCTION = frozenset({"if_not_exists"})


class Changes(Operands):
    """Reads an update."""

    def update(self) -> Update:
        """Parse the update that begins here."""
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
                counted[section] += self.listed(self._path_and_value)
                kinds = SETS | _NUMBER if section == "ADD" else SETS
                for _, value in counted[section]:
                    self.demands.append(OfTypes(value.name, kinds, f"operator: {section}", in_full=True))
        return Update(tuple(assignments), tuple(removals), tuple(counted["ADD"]), tuple(counted["DELETE"]))

    def _path_and_value(self) -> tuple[Path, Placeholder]:
        return self.path(), self.value()

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
