"""What a marked unit is about to write, in rows of its record until every item is finished: a redo log."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ticketlock._expressions._values import Item as Attributes
from ticketlock.wire._attributes import Item

Kind = Literal["put", "change", "delete", "unmark"]

INLINE_BYTES = 3 * 1_024
"""How much the head itself holds: up to this size it costs no more write units than an empty head."""

_PIECE_BYTES = 350 * 1_024


@dataclass(frozen=True, slots=True)
class Entry:
    """What a unit does to one item.

    Attributes:
        table, key: which item.
        key_name: the first attribute of its key.
        kind: put the whole item; change some attributes; delete it; or only remove its mark.
        assigned: the attributes to set, or the whole item of a put.
        removed: the attributes to remove.
    """

    table: str
    key: Item
    key_name: str
    kind: Kind
    assigned: Item
    removed: tuple[str, ...] = ()

    def is_of(self, table: str, key: Item) -> bool:
        """Whether it is about this item."""
        return (self.table, self.key) == (table, key)

    def applied_to(self, image: Attributes | None) -> Attributes | None:
        """The item's new value, computed from the item while it is marked; without our attributes."""
        if self.kind == "unmark":
            return image
        if self.kind == "delete":
            return None
        before = {} if self.kind == "put" or image is None else image
        kept = {name: value for name, value in before.items() if name not in self.removed}
        return {**kept, **_plain(self.assigned)}


def _plain(item: Item) -> Attributes:
    return {name: dict(value) for name, value in item.items()}


def packed(entries: Sequence[Entry]) -> list[bytes]:
    """Encode entries as pieces that fit into rows."""
    return in_pieces(
        [
            [each.table, each.key_name, each.kind, item_told(each.key), item_told(each.assigned), list(each.removed)]
            for each in entries
        ]
    )


def unpacked(pieces: Sequence[bytes]) -> list[Entry]:
    """Decode the entries in all pieces, in order."""
    return [
        Entry(table, item_read(key), key_name, kind, item_read(assigned), tuple(removed))
        for table, key_name, kind, key, assigned, removed in of_pieces(pieces)
    ]


def in_pieces(value: Any) -> list[bytes]:
    """Encode JSON as pieces that fit into rows."""
    whole = zlib.compress(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    return [whole[begin : begin + _PIECE_BYTES] for begin in range(0, len(whole), _PIECE_BYTES)]


def of_pieces(pieces: Sequence[bytes]) -> Any:
    """Decode the JSON in all pieces, in order."""
    return json.loads(zlib.decompress(b"".join(pieces)))


def item_told(item: Mapping[str, Any]) -> dict[str, Any]:
    """Encode AttributeValues as JSON."""
    return {name: _value_told(value) for name, value in item.items()}


def _value_told(value: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "B":
        return {"B": base64.b64encode(bytes(content)).decode()}
    if kind == "BS":
        return {"BS": [base64.b64encode(bytes(each)).decode() for each in content]}
    if kind == "M":
        return {"M": item_told(content)}
    if kind == "L":
        return {"L": [_value_told(each) for each in content]}
    return {kind: content}


def item_read(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Decode AttributeValues from JSON."""
    return {name: _value_read(value) for name, value in encoded.items()}


def _value_read(encoded: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, content),) = encoded.items()
    if kind == "B":
        return {"B": base64.b64decode(content)}
    if kind == "BS":
        return {"BS": [base64.b64decode(each) for each in content]}
    if kind == "M":
        return {"M": item_read(content)}
    if kind == "L":
        return {"L": [_value_read(each) for each in content]}
    return {kind: content}
