"""What a marked unit is about to write, in rows of its record until every item is finished: a redo log."""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, get_args

from ticketlock._expressions import Attributes
from ticketlock.units._records._rows import FORMAT, FORMAT_ATTRIBUTE, Misshapen, check_contents, fields, foreign_row
from ticketlock.wire import Item

EntryKind = Literal["put", "change", "delete", "unmark"]

INLINE_BYTES = 3 * 1_024
"""How much the head itself holds: up to this size it costs no more write units than an empty head."""

_PIECE_BYTES = 350 * 1_024
_TOGETHER_BYTES = 2 * 1_024 * 1_024
MOST_BYTES = 8 * 1_024 * 1_024
"""What was compressed together has so many bytes at most: a reader refuses more. One item of 400 KB has up to half."""
_TABLE = attrgetter("table")
_ENTRY = ("table", "keyName", "kind", "key", "assigned", "removed")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a unit does to one item.

    Attributes:
        key_name: the first attribute of its key.
        kind: put the whole item; change some attributes; delete it; or only remove its mark.
        assigned: the attributes to set, or the whole item of a put.
        removed: the attributes to remove.
    """

    table: str
    key: Item
    key_name: str
    kind: EntryKind
    assigned: Item
    removed: tuple[str, ...] = ()

    def is_of(self, table: str, key: Item) -> bool:
        return (self.table, self.key) == (table, key)

    def applied_to(self, image: Attributes | None) -> Attributes | None:
        """The item's new value, computed from the item while it is marked; without our attributes."""
        if self.kind == "unmark":
            return image
        if self.kind == "delete":
            return None
        before = {} if self.kind == "put" or image is None else image
        kept = {name: value for name, value in before.items() if name not in self.removed}
        return kept | {name: dict(value) for name, value in self.assigned.items()}


def by_table(entries: Iterable[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    for table, of_table in groupby(sorted(entries, key=_TABLE), _TABLE):
        yield table, list(of_table)


@dataclass(frozen=True, slots=True)
class Packed:
    """Encoded entries, and for each entry the number of the first piece that it needs."""

    pieces: list[bytes]
    first_pieces: list[int]


def packed(entries: Sequence[Entry]) -> Packed:
    """Encode entries as pieces that fit into rows.

    So many entries as are surely small enough together are compressed together, in one piece or in several consecutive
    ones: a reader needs no others to decode them.
    """
    pieces, first_pieces = list[bytes](), list[int]()
    together, size = list[str](), 0
    for entry in entries:
        encoded = _json_of(_entry_told(entry))
        if together and size + len(encoded) > _TOGETHER_BYTES:
            pieces += _cut(_entries_json(together))
            together, size = [], 0
        together.append(encoded)
        first_pieces.append(len(pieces))
        size += len(encoded)
    return Packed(pieces + _cut(_entries_json(together)), first_pieces)


class Unpacking:
    """Decodes the pieces of a row one after the other, and holds only those that were compressed together.

    Every method raises UnsupportedFormat if a newer version wrote a piece, and InvalidUnitRequest if no unit has.
    """

    def __init__(self, row: Item) -> None:
        self._row = row
        self._begin()

    def _begin(self) -> None:
        self._stream = zlib.decompressobj()
        self._json = bytearray()
        self._is_between = True

    def feed(self, piece: bytes) -> list[Entry] | None:
        """Decode one more piece; None if those that follow belong to the same entries."""
        try:
            return self._fed(piece)
        except (AttributeError, LookupError, TypeError, ValueError, zlib.error) as error:
            raise foreign_row(self._row, error) from error

    def _fed(self, piece: bytes) -> list[Entry] | None:
        self._is_between = False
        self._json += self._stream.decompress(piece, MOST_BYTES + 1 - len(self._json))
        if len(self._json) > MOST_BYTES:
            raise Misshapen(f"whose contents have more than {MOST_BYTES} bytes")
        if not self._stream.eof:
            return None
        encoded = fields(check_contents(json.loads(self._json), self._row), ("entries",))
        self._begin()
        return [_entry_read(fields(each, _ENTRY)) for each in encoded["entries"]]

    def check_end(self) -> None:
        if not self._is_between:
            early = Misshapen("whose contents end too early")
            raise foreign_row(self._row, early) from early


def _entry_told(entry: Entry) -> dict[str, Any]:
    return {
        "table": entry.table,
        "keyName": entry.key_name,
        "kind": entry.kind,
        "key": encode_item(entry.key),
        "assigned": encode_item(entry.assigned),
        "removed": list(entry.removed),
    }


def _entry_read(encoded: Mapping[str, Any]) -> Entry:
    if encoded["kind"] not in get_args(EntryKind):
        raise Misshapen(f"whose 'kind' is {encoded['kind']!r}")
    key, assigned = decode_item(encoded["key"]), decode_item(encoded["assigned"])
    return Entry(encoded["table"], key, encoded["keyName"], encoded["kind"], assigned, tuple(encoded["removed"]))


def in_pieces(encoded: Mapping[str, Any]) -> list[bytes]:
    return _cut(_json_of({FORMAT_ATTRIBUTE: FORMAT, **encoded}))


def _entries_json(entries: Sequence[str]) -> str:
    return f'{{"{FORMAT_ATTRIBUTE}":{FORMAT},"entries":[{",".join(entries)}]}}'


def _json_of(encoded: Any) -> str:
    return json.dumps(encoded, ensure_ascii=False, separators=(",", ":"))


def _cut(text: str) -> list[bytes]:
    whole = zlib.compress(text.encode())
    return [whole[begin : begin + _PIECE_BYTES] for begin in range(0, len(whole), _PIECE_BYTES)]


def of_pieces(pieces: Sequence[bytes], row: Item) -> Mapping[str, Any]:
    """Decode the mapping in all pieces, in order."""
    return check_contents(json.loads(zlib.decompress(b"".join(pieces))), row)


def encode_item(item: Mapping[str, Any]) -> dict[str, Any]:
    return _each(item, lambda content: base64.b64encode(bytes(content)).decode())


def decode_item(encoded: Mapping[str, Any]) -> dict[str, Any]:
    return _each(encoded, base64.b64decode)


def _each(item: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy of AttributeValues with all bytes converted."""
    return {name: _value(value, convert) for name, value in item.items()}


def _value(value: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "B":
        return {"B": convert(content)}
    if kind == "BS":
        return {"BS": [convert(each) for each in content]}
    if kind == "M":
        return {"M": _each(content, convert)}
    if kind == "L":
        return {"L": [_value(each, convert) for each in content]}
    return {kind: content}
