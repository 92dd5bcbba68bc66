"""What a marked unit is about to write, as it stands in its rows until every item has it: a redo log."""

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
"""What the head itself takes in: up to here it costs no more than the head alone."""

_PIECE_BYTES = 350 * 1_024


@dataclass(frozen=True, slots=True)
class Entry:
    """What becomes of one item.

    Attributes:
        table, key: which.
        key_name: the first attribute of its key.
        kind: the whole item is put; some attributes are changed; it is deleted; only its mark is taken off.
        assigned: the attributes to set, or the whole item of a put.
        removed: the attributes to take away.
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
        """The item after it, from what stands in it while it is marked; without our attributes."""
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
    """Entries in pieces that fit into rows."""
    told = [
        [each.table, each.key_name, each.kind, _told(each.key), _told(each.assigned), list(each.removed)]
        for each in entries
    ]
    whole = zlib.compress(json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode())
    return [whole[begin : begin + _PIECE_BYTES] for begin in range(0, len(whole), _PIECE_BYTES)]


def unpacked(pieces: Sequence[bytes]) -> list[Entry]:
    """The entries of all pieces, in their order."""
    told = json.loads(zlib.decompress(b"".join(pieces)))
    return [
        Entry(table, _read(key), key_name, kind, _read(assigned), tuple(removed))
        for table, key_name, kind, key, assigned, removed in told
    ]


def _told(item: Item) -> dict[str, Any]:
    return {name: _value_told(value) for name, value in item.items()}


def _value_told(value: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "B":
        return {"B": base64.b64encode(bytes(content)).decode()}
    if kind == "BS":
        return {"BS": [base64.b64encode(bytes(each)).decode() for each in content]}
    if kind == "M":
        return {"M": _told(content)}
    if kind == "L":
        return {"L": [_value_told(each) for each in content]}
    return {kind: content}


def _read(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value_read(value) for name, value in told.items()}


def _value_read(told: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, content),) = told.items()
    if kind == "B":
        return {"B": base64.b64decode(content)}
    if kind == "BS":
        return {"BS": [base64.b64decode(each) for each in content]}
    if kind == "M":
        return {"M": _read(content)}
    if kind == "L":
        return {"L": [_value_read(each) for each in content]}
    return {kind: content}
