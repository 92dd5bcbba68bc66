"""What of ours stands in the items of users: the version, which stays, and the mark of a unit that is not finished."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ticketlock._checks import text
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._ids import is_id
from ticketlock.wire._attributes import Item

INSERT = "insert"
"""The kind of the mark in an item that is not there yet."""

_PREFIX_BYTES = 16
"""With a longer one both attributes would not fit the room that is left for them in an item."""
_PARTS_A_PATH = ".[]"


MarkKind = Literal["write", "insert", "read"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The name of a unit in an item that it is about to write.

    Attributes:
        unit: its id.
        kind: the item is written; it was not there, and what stands there only holds its place; it was only read.
    """

    unit: str
    kind: MarkKind

    def attribute(self) -> dict[str, Any]:
        """As it stands in the item."""
        return {"M": {"unit": {"S": self.unit}, "kind": {"S": self.kind}}}


@dataclass(frozen=True, slots=True)
class Marks:
    """The names of our attributes.

    Attributes:
        prefix: what they begin with, and no attribute of a user may.
    """

    prefix: str

    def __post_init__(self) -> None:
        text("prefix", self.prefix, _PREFIX_BYTES, InvalidUnitRequest)
        if set(self.prefix) & set(_PARTS_A_PATH):
            raise InvalidUnitRequest("prefix", self.prefix, f"none of {_PARTS_A_PATH}, which part the steps of a path")

    @property
    def version(self) -> str:
        """The unit that wrote the item last."""
        return f"{self.prefix}Version"

    @property
    def mark(self) -> str:
        """The unit that is about to write it."""
        return f"{self.prefix}Mark"

    def version_in(self, item: Item | None) -> str | None:
        """The same of an item that need not be there."""
        return None if item is None else self.version_of(item)

    def is_by(self, item: Item | None, unit: str) -> bool:
        """Whether this unit wrote an item last, whatever others have written into it."""
        return item is not None and item.get(self.version) == {"S": unit}

    def mark_of(self, item: Item) -> "Mark | None":
        """The mark in an item; None where there is none.

        Raises:
            InvalidUnitRequest: the attribute is somebody else's.
        """
        found = item.get(self.mark)
        if found is None:
            return None
        fields: Any = found.get("M", {})
        unit, kind = (fields.get(name, {}).get("S", "") for name in ("unit", "kind"))
        if not is_id(str(unit)) or kind not in get_args(MarkKind):
            raise InvalidUnitRequest("prefix", self.prefix, f"one that no item uses: {self.mark} is {dict(found)}")
        return Mark(unit, kind)

    def names(self, key_names: tuple[str, ...]) -> Mapping[str, str]:
        """What the placeholders of the conditions stand for."""
        return {"#version": self.version, "#mark": self.mark, "#key": key_names[0]}

    def version_of(self, item: Item) -> str | None:
        """The id of the unit that wrote an item last; None where none has.

        Raises:
            InvalidUnitRequest: the attribute is somebody else's.
        """
        found = item.get(self.version)
        if found is None:
            return None
        if not is_id(str(found.get("S", ""))):
            raise InvalidUnitRequest("prefix", self.prefix, f"one that no item uses: {self.version} is {dict(found)}")
        return str(found["S"])

    def check_item(self, item: Item) -> None:
        """Refuse an item with attributes that begin as ours do, and are somebody else's.

        Raises:
            InvalidUnitRequest: names one of them.
        """
        self.version_of(item)
        for name, value in item.items():
            if name.startswith(self.prefix) and name not in (self.version, self.mark):
                raise InvalidUnitRequest("prefix", self.prefix, f"one that no item uses: {name} is {dict(value)}")

    def without(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """An item as its users know it."""
        return {name: value for name, value in item.items() if not name.startswith(self.prefix)}

    def is_placeholder(self, item: Mapping[str, Any]) -> bool:
        """Whether an item, in Python or AttributeValues, only holds the place of one that is not there yet."""
        mark = item.get(self.mark)
        if not isinstance(mark, Mapping) or self.version in item:
            return False
        fields = mark.get("M", mark)
        return isinstance(fields, Mapping) and fields.get("kind") in (INSERT, {"S": INSERT})

    def check_free_of_ours(self, field: str, names: Any) -> None:
        """Refuse attributes of a user's that are called as ours."""
        for name in names:
            if name.startswith(self.prefix):
                raise InvalidUnitRequest(field, name, f"an attribute that does not begin with {self.prefix}")
