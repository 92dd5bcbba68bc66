"""Document paths, and whether several of them overlap or conflict."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from ticketlock._expressions._errors import ExpressionInvalid
from ticketlock._expressions._values import Item, Value

Step = str | int
Steps = tuple[Step, ...]
"""The steps of a path: names of attributes and of members of maps, indexes of elements of lists."""


def value_at(item: Item | None, steps: Iterable[Step]) -> Value | None:
    """The value at the end of a path; None if there is none."""
    value: Value = {"M": item if item is not None else {}}
    for step in steps:
        if isinstance(step, str):
            members = value.get("M")
            if members is None or step not in members:
                return None
            value = members[step]
        else:
            elements = value.get("L")
            if elements is None or step >= len(elements):
                return None
            value = elements[step]
    return value


def written(steps: Steps) -> str:
    """A path as messages show it."""
    return f"[{', '.join(step if isinstance(step, str) else f'[{step}]' for step in steps)}]"


@dataclass(slots=True)
class Branch:
    """Paths with the same beginning: how they continue, and the first of them."""

    first: int = 0
    ends: bool = False
    further: dict[Step, "Branch"] = field(default_factory=dict)


@lru_cache(maxsize=1_024)
def branched(kind: str, paths: tuple[Steps, ...]) -> Branch:
    """All paths as one tree, which must not be changed.

    Raises:
        ExpressionInvalid: two paths overlap, or use one value as a map and as a list.
    """
    root = Branch()
    for number, steps in enumerate(paths):
        place = root
        for step in steps:
            if place.ends:
                raise _clash(kind, "overlap", paths[place.first], steps)
            for other, branch in place.further.items():
                if isinstance(other, str) != isinstance(step, str):
                    raise _clash(kind, "conflict", paths[branch.first], steps)
                break
            place = place.further.setdefault(step, Branch(number))
        if place.ends or place.further:
            raise _clash(kind, "overlap", paths[place.first], steps)
        place.ends = True
    return root


def _clash(kind: str, how: str, one: Steps, other: Steps) -> ExpressionInvalid:
    return ExpressionInvalid(
        f"Invalid {kind}: Two document paths {how} with each other; must remove or rewrite one of these paths; "
        f"path one: {written(one)}, path two: {written(other)}"
    )


def shown(value: Value, branch: Branch) -> Value | None:
    """The values at the ends of the branch, in their maps and lists; None if there are none.

    The selected elements of a list are kept in its order.
    """
    if branch.ends:
        return value
    if "M" in value:
        members = members_shown(value["M"], branch)
        return {"M": members} if members else None
    found = []
    elements = value.get("L", ())
    for step in sorted(step for step in branch.further if isinstance(step, int) and step < len(elements)):
        element = shown(elements[step], branch.further[step])
        if element is not None:
            found.append(element)
    return {"L": found} if found else None


def members_shown(members: Item, branch: Branch) -> Item:
    """The same for an item or the members of a map."""
    found: Item = {}
    for step, further in branch.further.items():
        if isinstance(step, str) and step in members:
            value = shown(members[step], further)
            if value is not None:
                found[step] = value
    return found
