"""What an update expression makes of an item."""

import itertools

from ticketlock._expressions._errors import ExpressionInvalid, ItemInvalid
from ticketlock._expressions._expressions import Expressions, value_at
from ticketlock._expressions._tree import IfNotExists, Path, Source, Sum
from ticketlock._expressions._tree import Value as Placeholder
from ticketlock._expressions._values import Item, Value, copy_of, copy_of_item, total

Steps = tuple[str, ...]


class ItemUpdate:
    """An update, ready for any item.

    Args:
        expressions: of the request; without an update among them it only makes sure that the item is there.
        key_names: the attributes of the table's key.

    Raises:
        ExpressionInvalid: it would change the key, or two of its paths overlap.
    """

    def __init__(self, expressions: Expressions, key_names: tuple[str, ...]) -> None:
        update = expressions.update
        self._expressions = expressions
        self._assignments = [(expressions.steps(path), source) for path, source in update.assignments] if update else []
        self._removals = [expressions.steps(path) for path in update.removals] if update else []
        paths = [*(steps for steps, _ in self._assignments), *self._removals]
        self.paths = {steps[0] for steps in paths}
        for steps in paths:
            if steps[0] in key_names:
                raise ExpressionInvalid(
                    "One or more parameter values were invalid: "
                    f"Cannot update attribute {steps[0]}. This attribute is part of the key"
                )
        for one, other in itertools.combinations(paths, 2):
            shorter = min(len(one), len(other))
            if one[:shorter] == other[:shorter]:
                raise ExpressionInvalid(
                    "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite "
                    f"one of these paths; path one: {_written(one)}, path two: {_written(other)}"
                )

    def applied_to(self, item: Item | None, key: Item) -> Item | None:
        """The item afterwards; None where there was none, and only removals came.

        All that the expression reads, it reads of the item as it was.

        Raises:
            ItemInvalid: an attribute that is needed is missing, or of another type.
        """
        if item is None and self._removals and not self._assignments:
            return None
        values = [copy_of(self._value(source, item)) for _, source in self._assignments]
        after = copy_of_item(item if item is not None else key)
        for steps in self._removals:
            _parent(after, steps).pop(steps[-1], None)
        for (steps, _), value in zip(self._assignments, values, strict=True):
            _parent(after, steps)[steps[-1]] = value
        return after

    def _value(self, source: Source, item: Item | None) -> Value:
        match source:
            case Placeholder():
                return self._expressions.value(source)
            case IfNotExists(path, otherwise):
                found = value_at(item, self._expressions.steps(path))
                return found if found is not None else self._value(otherwise, item)
            case Sum(left, right, negative):
                return total(self._value(left, item), self._value(right, item), negative=negative)
            case Path():
                found = value_at(item, self._expressions.steps(source))
                if found is None:
                    raise ItemInvalid("The provided expression refers to an attribute that does not exist in the item")
                return found


def _parent(item: Item, steps: Steps) -> Item:
    """The map that the last step is a member of."""
    above = value_at(item, steps[:-1])
    if above is None or "M" not in above:
        raise ItemInvalid("The document path provided in the update expression is invalid for update")
    parent: Item = above["M"]
    return parent


def _written(steps: Steps) -> str:
    return f"[{', '.join(steps)}]"
