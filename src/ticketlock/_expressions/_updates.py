"""Applies update expressions to items."""

from typing import Any

from ticketlock._expressions._evaluated import Expressions, PathSteps, value_at
from ticketlock._expressions._grammar import Append, IfNotExists, Path, Placeholder, Source, Sum, Update
from ticketlock._expressions._values import (
    MAX_LEVELS,
    TOO_DEEP,
    WRONG_TYPE,
    Attributes,
    ExpressionInvalid,
    ItemInvalid,
    Value,
    copy_of,
    levels_of,
    total,
)

_NOTHING = Update()


class ItemUpdate:
    """An update, ready for any item.

    Args:
        expressions: those of the request; without an update, applying it only creates the item if it is missing.
        key_names: the attributes of the table's key.

    Attributes:
        paths: the names of the top-level attributes that it changes.

    Raises:
        ExpressionInvalid: it would change the key.
    """

    def __init__(self, expressions: Expressions, key_names: tuple[str, ...]) -> None:
        self._expressions = expressions
        self._update = expressions.update or _NOTHING
        self.paths = expressions.touches
        for name in self.paths:
            if name in key_names:
                raise ExpressionInvalid(
                    "One or more parameter values were invalid: "
                    f"Cannot update attribute {name}. This attribute is part of the key"
                )

    def applied_to(self, item: Attributes | None, key: Attributes) -> Attributes | None:
        """The item after the update; None if there was none, and the update sets and adds nothing.

        It shares the values that stay as they are with ``item``: none may be changed, only replaced.

        Everything that the expression reads, and every index of an element, refers to the item before the update.

        Raises:
            ItemInvalid: a needed attribute is missing, or has another type.
        """
        update, value_of, steps_of = self._update, self._expressions.value, self._expressions.steps
        takes_away = update.removals or update.deletions
        if item is None and takes_away and not update.assignments and not update.additions:
            return None
        new = {steps_of(path): self._value(source, item) for path, source in update.assignments}
        for path, value in update.additions:
            steps = steps_of(path)
            new[steps] = _added(value_at(item, steps), value_of(value))
        gone = [steps_of(path) for path in update.removals]
        for path, value in update.deletions:
            steps = steps_of(path)
            left = _without(value_at(item, steps), value_of(value))
            if left is None:
                gone.append(steps)
            else:
                new[steps] = left
        after = dict(item if item is not None else key)
        # What is changed in place is copied before.
        for top in {str(steps[0]) for steps in (*new, *gone) if len(steps) > 1}:
            if top in after:
                after[top] = copy_of(after[top])
        _change(after, new, gone)
        return after

    def _value(self, source: Source, item: Attributes | None) -> Value:
        match source:
            case Placeholder():
                return self._expressions.value(source)
            case Path():
                found = value_at(item, self._expressions.steps(source))
                if found is None:
                    raise ItemInvalid("The provided expression refers to an attribute that does not exist in the item")
                return found
            case Sum(left, right, negative):
                return total(self._value(left, item), self._value(right, item), negative=negative)
            case IfNotExists(path, otherwise):
                found = value_at(item, self._expressions.steps(path))
                return found if found is not None else self._value(otherwise, item)
            case Append(left, right):
                one, other = self._value(left, item), self._value(right, item)
                if "L" not in one or "L" not in other:
                    raise ItemInvalid(WRONG_TYPE)
                return {"L": [*one["L"], *other["L"]]}


def _added(found: Value | None, value: Value) -> Value:
    """What ADD makes of a value."""
    if found is None:
        return value
    if "N" in value:
        return total(found, value, negative=False)
    ((kind, members),) = value.items()
    if kind not in found:
        raise ItemInvalid(WRONG_TYPE)
    return {kind: sorted({*found[kind], *members})}


def _without(found: Value | None, value: Value) -> Value | None:
    """What DELETE leaves of a set; None if nothing is left."""
    if found is None:
        return None
    ((kind, members),) = value.items()
    if kind not in found:
        raise ItemInvalid(WRONG_TYPE)
    left = sorted(set(found[kind]) - set(members))
    return {kind: left} if left else None


def _change(after: Attributes, new: dict[PathSteps, Value], gone: list[PathSteps]) -> None:
    """Set and remove. All targets are found before any list changes its length."""
    places: list[tuple[Any, PathSteps, Value]] = [
        (after if len(steps) == 1 else _parent(after, steps), steps, value) for steps, value in new.items()
    ]
    emptied = [(after if len(steps) == 1 else _parent(after, steps), steps[-1]) for steps in gone]
    appended: dict[int, list[tuple[int, list[Any], Value]]] = {}
    for parent, steps, value in places:
        step = steps[-1]
        if len(steps) > 1 and len(steps) - 1 + levels_of(value) > MAX_LEVELS:
            raise ItemInvalid(TOO_DEEP)
        if isinstance(parent, list) and isinstance(step, int) and step >= len(parent):
            appended.setdefault(id(parent), []).append((step, parent, value))
        else:
            parent[step] = value
    removed: dict[int, tuple[list[Any], set[int]]] = {}
    for parent, step in emptied:
        if isinstance(parent, dict):
            parent.pop(str(step), None)
        elif isinstance(step, int) and step < len(parent):
            removed.setdefault(id(parent), (parent, set()))[1].add(step)
    for elements, numbers in removed.values():
        elements[:] = [element for number, element in enumerate(elements) if number not in numbers]
    for each in appended.values():
        for _, elements, value in sorted(each, key=lambda one: one[0]):
            elements.append(value)


def _parent(item: Attributes, steps: PathSteps) -> Any:
    """The map or the list that the last step leads into."""
    above = value_at(item, steps[:-1])
    kind = "M" if isinstance(steps[-1], str) else "L"
    if above is None or kind not in above:
        raise ItemInvalid("The document path provided in the update expression is invalid for update")
    return above[kind]
