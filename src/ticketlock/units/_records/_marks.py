"""The attributes that units add to items: the version, which stays, and the mark of a unit that is not finished.

For plain readers: items without these attributes, and without pending inserts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from boto3.dynamodb.conditions import Attr, ConditionBase

from ticketlock._checks import text
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._records._record import UnitRecord, is_id
from ticketlock.units._records._rows import FORMAT_ATTRIBUTE, KEY
from ticketlock.units._words import PYTHON
from ticketlock.wire import Item, integer, number

DEFAULT_PREFIX = "_tlu"
"""The prefix if none is given. The signatures of ``Units`` write it out, since the reference shows them as they are."""

INSERT: Literal["insert"] = "insert"
"""The kind of mark in the placeholder of an item that does not exist yet."""

_PREFIX_BYTES = 16
"""With a longer prefix both attributes would not fit into the room that is reserved for them in an item."""
_IN_PATHS = ".[]"
"""They separate the steps of a path: a name with one of them would be read as several steps."""

_OF_GUARDS = (*KEY, FORMAT_ATTRIBUTE)
"""The attributes of a guard, which is an item of units too."""

MarkKind = Literal["write", "insert", "read"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a unit, in an item that the unit is about to write.

    Attributes:
        unit: its id.
        kind: ``write``; ``insert``, the item is only a placeholder; or ``read``, the unit has only read it.
        piece: the first row that tells what the unit writes to the item; None if the unit's head tells it, or if the
            unit has marked the item before it knew.
    """

    unit: str
    kind: MarkKind
    piece: int | None = None

    def attribute(self) -> dict[str, Any]:
        fields: Item = {"unit": {"S": self.unit}, "kind": {"S": self.kind}}
        return {"M": fields if self.piece is None else {**fields, "piece": number(self.piece)}}


@dataclass(frozen=True)
class Marks:
    """The names of our attributes, which begin with the prefix; no attribute of a user may begin so."""

    prefix: str

    def __post_init__(self) -> None:
        text("prefix", self.prefix, _PREFIX_BYTES, InvalidUnitRequest)
        if set(self.prefix) & set(_IN_PATHS):
            raise InvalidUnitRequest("prefix", self.prefix, "text without `.`, `[` and `]`")
        if any(name.startswith(self.prefix) for name in _OF_GUARDS):
            allowed = f"text with which none of {', '.join(_OF_GUARDS)} begins, the attributes of guards"
            raise InvalidUnitRequest("prefix", self.prefix, allowed)

    @classmethod
    def of(cls, head: UnitRecord) -> "Marks":
        """The names in the items of a unit, whatever the names of its reader: with others it would seem finished."""
        return cls(DEFAULT_PREFIX if head.prefix is None else head.prefix)

    @property
    def stored(self) -> str | None:
        """The prefix as the record of a unit stores it."""
        return None if self.prefix == DEFAULT_PREFIX else self.prefix

    @cached_property
    def version(self) -> str:
        """The name of the attribute with the id of the unit that wrote the item last."""
        return f"{self.prefix}Version"

    @cached_property
    def mark(self) -> str:
        """The name of the attribute with the mark of the unit that is about to write the item."""
        return f"{self.prefix}Mark"

    def version_in(self, item: Item | None) -> str | None:
        """The version of an item that may not exist."""
        return None if item is None else self.version_of(item)

    def is_by(self, item: Item | None, unit: str) -> bool:
        """Whether this unit wrote the item last, even if other writers have changed other attributes since."""
        return item is not None and item.get(self.version) == {"S": unit}

    def mark_of(self, item: Item) -> "Mark | None":
        """The mark in an item; None if it has none."""
        found = item.get(self.mark)
        if found is None:
            return None
        fields: Any = found.get("M", {})
        unit, kind = (fields.get(name, {}).get("S", "") for name in ("unit", "kind"))
        if not is_id(str(unit)) or kind not in get_args(MarkKind):
            raise self._used_by_others(self.mark, found)
        piece = fields.get("piece", {})
        return Mark(unit, kind, integer(piece) if "N" in piece else None)

    def names(self, key_names: tuple[str, ...]) -> Mapping[str, str]:
        return {"#version": self.version, "#mark": self.mark, "#key": key_names[0]}

    def version_of(self, item: Item) -> str | None:
        """The id of the unit that wrote an item last; None if none has."""
        found = item.get(self.version)
        if found is None:
            return None
        if not is_id(str(found.get("S", ""))):
            raise self._used_by_others(self.version, found)
        return str(found["S"])

    def check_item(self, item: Item) -> None:
        """Refuse an item with attributes that begin with our prefix and that no unit has written."""
        self.version_of(item)
        for name, value in item.items():
            if name.startswith(self.prefix) and name not in (self.version, self.mark):
                raise self._used_by_others(name, value)

    def _used_by_others(self, name: str, value: Mapping[str, Any]) -> InvalidUnitRequest:
        allowed = f"one that no item uses: {name} is {dict(value)}"
        return InvalidUnitRequest("prefix", self.prefix, allowed, is_of_units=True)

    def without(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in item.items() if not name.startswith(self.prefix)}

    def is_placeholder(self, item: Mapping[str, Any]) -> bool:
        """Whether an item, in Python values or AttributeValues, is only the placeholder of a pending insert."""
        mark = item.get(self.mark)
        if not isinstance(mark, Mapping) or self.version in item:
            return False
        fields = mark.get("M", mark)
        return isinstance(fields, Mapping) and fields.get("kind") in (INSERT, {"S": INSERT})

    def check_free_of_ours(self, field: str, names: Any) -> None:
        """Refuse names of a user's attributes that begin with our prefix."""
        for name in names:
            if name.startswith(self.prefix):
                allowed = f"an attribute that does not begin with {self.prefix}"
                raise InvalidUnitRequest(field, name, allowed, is_of_units=True)


@dataclass(frozen=True, slots=True)
class Visible:
    """The filter of a Query or a Scan that leaves out pending inserts of units.

    Attributes:
        condition: for boto3's Table resource: ``FilterExpression=units.VISIBLE.condition``, with ``&`` beside a filter
            of your own.
        parameters: for the low-level API, ``**units.VISIBLE.parameters``: ``FilterExpression``,
            ``ExpressionAttributeNames`` and ``ExpressionAttributeValues``, to be merged with your own.
    """

    condition: ConditionBase
    parameters: Mapping[str, Any]


def visible(marks: Marks) -> Visible:
    is_whole = Attr(marks.version).exists() | Attr(marks.mark).not_exists()
    condition = is_whole | Attr(f"{marks.mark}.kind").ne(INSERT)
    phrase = PYTHON.condition(condition)
    parameters = {
        "FilterExpression": phrase.text,
        "ExpressionAttributeNames": dict(phrase.names),
        "ExpressionAttributeValues": dict(phrase.values),
    }
    return Visible(condition, parameters)


def clean(marks: Marks, item: Any) -> dict[str, Any] | None:
    """An item without our attributes; None for the placeholder of a pending insert."""
    if not isinstance(item, Mapping) or not all(isinstance(name, str) for name in item):
        raise InvalidUnitRequest("item", item, "a mapping of attribute names to values")
    return None if marks.is_placeholder(item) else marks.without(item)
