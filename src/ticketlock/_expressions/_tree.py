"""Expressions as trees: what the parser makes, and what conditions and updates are evaluated from.

Placeholders stay as they are written (``#name``, ``:value``): one tree serves all requests with the same text.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Path:
    """A way into an item: names or ``#names``, one for each level of maps."""

    steps: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.steps)


@dataclass(frozen=True, slots=True)
class Value:
    """A ``:value`` of the request."""

    name: str


Operand = Path | Value


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether there is an attribute; with ``wanted`` false, whether there is none."""

    path: Path
    wanted: bool


@dataclass(frozen=True, slots=True)
class BeginsWith:
    """Whether a string begins with another."""

    whole: Operand
    beginning: Operand


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and one of ``= <> < <= > >=``."""

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    condition: "Condition"


@dataclass(frozen=True, slots=True)
class Every:
    """All of several conditions."""

    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of several conditions."""

    conditions: tuple["Condition", ...]


Condition = Exists | BeginsWith | Comparison | Not | Every | Either


@dataclass(frozen=True, slots=True)
class IfNotExists:
    """An attribute where there is one, else another operand."""

    path: Path
    otherwise: "Source"


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of two operands, or their difference."""

    left: "Source"
    right: "Source"
    negative: bool


Source = Path | Value | IfNotExists | Sum


@dataclass(frozen=True, slots=True)
class Update:
    """What SET assigns and REMOVE takes away."""

    assignments: tuple[tuple[Path, Source], ...] = ()
    removals: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every path that it changes."""
        return (*(path for path, _ in self.assignments), *self.removals)


@dataclass(frozen=True, slots=True)
class Parsed:
    """An expression.

    Attributes:
        kind: the parameter's name, for messages.
        tree: the condition, the update, or the paths of a projection.
        placeholders: those that it uses.
    """

    kind: str
    tree: Condition | Update | tuple[Path, ...]
    placeholders: frozenset[str]
