"""Values and conditions of Python in the words of TLA+."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32


class ModelValue(str):
    """A name that stands for itself, unequal to all other values."""


class Values:
    """Values in TLA+.

    Attributes:
        operators: one for each kind of records, which makes such a record and spares the names of its fields; each with
            its definition.
    """

    def __init__(self) -> None:
        self.operators: dict[str, str] = {}

    def told(self, value: Any) -> str:
        """A value. A mapping whose keys are text is a record; None is unequal to all other values."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, ModelValue):
            return str(value)
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, frozenset):
            return f"{{{','.join(sorted(map(self.told, value)))}}}"
        if isinstance(value, tuple):
            return f"<<{','.join(map(self.told, value))}>>"
        if not isinstance(value, dict):
            return str(value)
        if value and all(isinstance(name, str) for name in value):
            return f"{self._operator(value)}({','.join(map(self.told, value.values()))})"
        pairs = (f"{self.told(name)}:>{self.told(each)}" for name, each in value.items())
        return f"({'@@'.join(pairs)})" if value else "<<>>"

    def _operator(self, names: Iterable[str]) -> str:
        arguments = ",".join(f"{name}_" for name in names)
        operator = f"R{crc32(arguments.encode())}"
        fields = ",".join(f"{name}|->{name}_" for name in names)
        self.operators[operator] = f"{operator}({arguments}) == [{fields}]"
        return operator


class Conditions:
    """The conditions of the code, by their texts."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        # The longest first: one may begin with another.
        either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._next = re.compile(rf"(?:\(({either})\)|({either}))(?: AND |$)")
        self._known: dict[str, frozenset[str]] = {}

    def named_in(self, text: str) -> frozenset[str]:
        """The names of the conditions that an expression requires together."""
        if text not in self._known:
            found, at = set[str](), 0
            while at < len(text):
                match = self._next.match(text, at)
                assert match is not None, f"no condition of the code: {text[at:]}"
                found.add(self._names[match[1] or match[2]])
                at = match.end()
            self._known[text] = frozenset(found)
        return self._known[text]
