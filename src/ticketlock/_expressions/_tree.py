"""Expressions as trees: the parsers build them; conditions, projections and updates are evaluated on them.

Placeholders stay as they are written (``#name``, ``:value``): one tree serves all requests with the same text.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ticketlock._expressions._demands import Demand


@dataclass(frozen=True, slots=True)
class Path:
    """A document path: names or ``#names`` of attributes and members of maps, indexes of elements of lists."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A ``:value`` of the request."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an attribute: characters, bytes, members or elements."""

    operand: Path | Placeholder


Operand = Path | Placeholder | Size


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether an attribute exists; with ``wanted`` false, whether it does not."""

    path: Path
    wanted: bool


@dataclass(frozen=True, slots=True)
class OfType:
    """Whether an attribute has the type that a value names."""

    path: Path
    kind: Placeholder


@dataclass(frozen=True, slots=True)
class BeginsWith:
    """Whether a string, or bytes, begin with others."""

    whole: Operand
    beginning: Operand


@dataclass(frozen=True, slots=True)
class Contains:
    """Whether a string, bytes, a set or a list contains something."""

    whole: Operand
    part: Operand


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and one of ``= <> < <= > >=``."""

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    """Whether an operand is between two others, or one of them."""

    operand: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether an operand equals one of several others: ``IN``."""

    operand: Operand
    choices: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    condition: "Condition"


@dataclass(frozen=True, slots=True)
class Every:
    """Whether all of several conditions hold."""

    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Whether at least one of several conditions holds."""

    conditions: tuple["Condition", ...]


Condition = Exists | OfType | BeginsWith | Contains | Comparison | Between | OneOf | Not | Every | Either


@dataclass(frozen=True, slots=True)
class IfNotExists:
    """An attribute if it exists, else another operand."""

    path: Path
    otherwise: "Source"


@dataclass(frozen=True, slots=True)
class Append:
    """The elements of two lists, one after the other."""

    left: "Source"
    right: "Source"


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of two operands, or their difference."""

    left: "Source"
    right: "Source"
    negative: bool


Source = Path | Placeholder | IfNotExists | Append | Sum


@dataclass(frozen=True, slots=True)
class Update:
    """What SET assigns, REMOVE removes, ADD adds, and DELETE removes from sets."""

    assignments: tuple[tuple[Path, Source], ...] = ()
    removals: tuple[Path, ...] = ()
    additions: tuple[tuple[Path, Placeholder], ...] = ()
    deletions: tuple[tuple[Path, Placeholder], ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """All paths that it changes."""
        assigned = (path for path, _ in self.assignments)
        counted = (path for path, _ in (*self.additions, *self.deletions))
        return (*assigned, *self.removals, *counted)


@dataclass(frozen=True, slots=True)
class Parsed:
    """An expression.

    Attributes:
        kind: the parameter's name, for messages.
        tree: the condition, the update, or the paths of a projection.
        names, values: the ``#names`` and the ``:values`` that it uses.
        demands: what it demands of the values.
        distinct: operators, each with the path of its first operand and the paths that must differ from it.
    """

    kind: str
    tree: Condition | Update | tuple[Path, ...]
    names: frozenset[str]
    values: frozenset[str]
    demands: tuple[Demand, ...]
    distinct: tuple[tuple[str, Path, tuple[Path, ...]], ...]


def paths_in(tree: Any) -> Iterator[Path]:
    """All paths in a condition, an update, or a part of one."""
    if isinstance(tree, Path):
        yield tree
    elif isinstance(tree, tuple):
        for each in tree:
            yield from paths_in(each)
    elif is_dataclass(tree):
        for each in fields(tree):
            yield from paths_in(getattr(tree, each.name))
