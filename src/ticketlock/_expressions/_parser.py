"""From an expression's text to its tree."""

from functools import lru_cache

from ticketlock._expressions._changes import Changes
from ticketlock._expressions._conditions import Conditions
from ticketlock._expressions._operands import Operands
from ticketlock._expressions._tokens import END, Kind
from ticketlock._expressions._tree import Condition, Parsed, Path, Update


@lru_cache(maxsize=1_024)
def parse(kind: Kind, text: str) -> Parsed:
    """Parse an expression to its tree.

    Raises:
        ExpressionInvalid: it cannot be parsed.
    """
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
    return Parsed(kind, tree, names, values, tuple(reader.demands), tuple(reader.distinct))
