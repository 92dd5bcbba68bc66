"""Queries of a unit: the items of a range at the requested level of isolation, merged with the unit's own writes.

A query reads page by page. Other units may be committed between the pages, and between the items of one page. The
commit checks each item that a ``SERIALIZABLE`` query has come to, also if the filter has left it out. It detects items
that others have inserted only in a guarded table, whose guard the query reads. What the unit has read before, for
example as absent by ``prefetch``, has to be in the pages as it was read: the guard does not show an older insert.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ticketlock._checks import boolean, text, whole_number
from ticketlock._expressions import (
    Attributes,
    Expressions,
    Index,
    ItemInvalid,
    KeyAttribute,
    KeyRange,
    canonical_item,
    check_key,
    key_range,
    order_of,
)
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._records import Marks
from ticketlock.units._statements._reading import (
    SERIALIZABLE,
    UNCOMMITTED,
    Isolation,
    Reader,
    Wanted,
    image_of,
    is_as_seen,
)
from ticketlock.units._statements._work import ItemState, Work, conflict
from ticketlock.units._words import PYTHON, REFUSED, Phrase, UnitTable, check_apart, refused_expressions
from ticketlock.wire import MOST_TOGETHER, ForkingSteps, Item, Query, Reply

MOST_ITEMS = 2**31 - 1

_NAME_BYTES = 255
"""The longest name of an index."""

_INVALID = "One or more parameter values were invalid"

_PYTHON = {name: name for name in ("key_condition", "filter", "index", "after", "limit", "forward")}


@dataclass(frozen=True, slots=True)
class QueryArguments:
    """The arguments of a query, in AttributeValues.

    Attributes:
        is_forward: in the order of the sort keys; otherwise in reverse order.
        most_shown: the most items to return; None for all.
        most_read: the most items to read; None for no bound.
        is_one_page: whether the query stops where one reply of DynamoDB would end.
        selects_all: whether it asks for all attributes of the items, also for those that the index does not have.
        words: the caller's names for these arguments, by our names.
    """

    key_condition: Phrase
    filter: Phrase
    values: Item
    names: Mapping[str, str]
    index: Any
    after: Attributes | None
    is_forward: Any
    most_shown: Any = None
    most_read: Any = None
    is_one_page: bool = False
    selects_all: bool = False
    projection: str | None = None
    words: Mapping[str, str] = field(default_factory=lambda: _PYTHON)

    def parameters(self) -> dict[str, Any]:
        phrases = (self.key_condition, self.filter)
        given: dict[str, Any] = {
            "KeyConditionExpression": self.key_condition.text,
            "FilterExpression": self.filter.text,
            "ProjectionExpression": self.projection,
            "ExpressionAttributeNames": {**self.names, **phrases[0].names, **phrases[1].names},
            "ExpressionAttributeValues": {**self.values, **phrases[0].values, **phrases[1].values},
        }
        return {name: each for name, each in given.items() if each}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """A query as a caller with Python values has given it. It is checked and converted by the unit's steps.

    The attributes are the arguments of ``Unit.query``.
    """

    key_condition: Any
    filter: Any = None
    values: Any = None
    names: Any = None
    index: Any = None
    after: Any = None
    limit: Any = None
    forward: Any = True

    def arguments(self) -> QueryArguments:
        key_condition = PYTHON.condition(self.key_condition, "key_condition", of_keys=True)
        filter_by = PYTHON.condition(self.filter, "filter")
        values, names = PYTHON.values(self.values), PYTHON.names(self.names)
        check_apart(names, values, key_condition, filter_by)
        return QueryArguments(
            key_condition=key_condition,
            filter=filter_by,
            values=values,
            names=names,
            index=self.index,
            after=None if self.after is None else PYTHON.item("after", self.after),
            is_forward=self.forward,
            most_shown=self.limit,
        )


@dataclass(frozen=True, slots=True)
class PartitionQuery:
    """A query that was checked.

    Attributes:
        table, index: where to read; no index for the table itself.
        keys: those of the table or of the index, the attributes of the partition key first.
        is_fetched: whether each item is read from the table, because the local index does not have all that is asked
            for.
        after: the key after which the query begins, without other attributes.
    """

    given: QueryArguments
    table: UnitTable
    index: Index | None
    keys: tuple[KeyAttribute, ...]
    parameters: Mapping[str, Any]
    expressions: Expressions
    range: KeyRange
    after: Attributes | None
    is_fetched: bool = False

    @property
    def has_whole_items(self) -> bool:
        """Whether it shows items with all attributes, before its projection."""
        return self.index is None or self.index.projected is None or self.is_fetched

    def covers(self, item: Attributes) -> bool:
        return (
            all(key.name in item for key in self.keys)
            and tuple(item[key.name] for key in self.keys if key.role == "HASH") == self.range.partition
            and all(self.expressions.holds(bound, item) for bound in self.range.bounds)
        )

    @property
    def is_of_one_item(self) -> bool:
        """Whether the range has one item at most: the table has no sort key. DynamoDB refuses to continue after it."""
        return self.index is None and len(self.keys) == len(self.range.partition)

    def position(self, item: Attributes) -> Any:
        """Where an item is in the range; items of an index may share a position."""
        return tuple(order_of(item[key.name])[1] for key in self.keys if key.role == "RANGE")

    def start_key(self, item: Attributes) -> Attributes | None:
        """The key of an item, as the start key of what follows it; None if nothing can follow it."""
        if self.is_of_one_item:
            return None
        return {name: item[name] for name in (*self.table.key_names, *(key.name for key in self.keys))}


def asked(table: UnitTable, given: QueryArguments, marks: Marks) -> PartitionQuery:
    words = given.words
    if given.key_condition.text is None:
        raise InvalidUnitRequest(words["key_condition"], None, "a condition on the partition key, at least")
    boolean(words["forward"], given.is_forward, InvalidUnitRequest)
    for limit in (given.most_shown, given.most_read):
        if limit is not None:
            whole_number(words["limit"], limit, 1, MOST_ITEMS, InvalidUnitRequest)
    index = None if given.index is None else _index(table, given)
    keys = table.schema.keys if index is None else index.keys
    parameters = given.parameters()
    try:
        expressions = Expressions(parameters)
        found = key_range(_kinds(keys, "HASH"), _kinds(keys, "RANGE"), expressions)
    except REFUSED as error:
        raise refused_expressions("query", parameters, error) from error
    marks.check_free_of_ours(words["filter"], expressions.filters_by)
    for key in keys:
        if key.name in expressions.filters_by:
            allowed = f"attributes that are no keys: conditions on keys go into {words['key_condition']}"
            raise InvalidUnitRequest(words["filter"], key.name, allowed)
    is_fetched = index is not None and _has_to_be_fetched(index, expressions, given)
    checked = PartitionQuery(given, table, index, keys, parameters, expressions, found, None, is_fetched)
    return checked if given.after is None else replace(checked, after=_after(checked, given.after))


def _kinds(keys: tuple[KeyAttribute, ...], role: str) -> dict[str, str]:
    return {key.name: key.kind for key in keys if key.role == role}


def _index(table: UnitTable, given: QueryArguments) -> Index:
    said = given.words["index"]
    name = text(said, given.index, _NAME_BYTES, InvalidUnitRequest)
    known = {index.name: index for index in table.schema.indexes}
    if name not in known:
        raise InvalidUnitRequest(said, name, f"an index of {table.name}: {', '.join(sorted(known)) or 'it has none'}")
    return known[name]


def _has_to_be_fetched(index: Index, expressions: Expressions, given: QueryArguments) -> bool:
    """Whether the items have more than the index that the query asks for.

    DynamoDB reads that from the table if the index is local, and refuses it otherwise. A filter sees only what the
    index has.
    """
    words, has = given.words, ", ".join(sorted(index.key_names | (index.projected or frozenset())))
    allowed = f"the attributes that the index {index.name!r} has: {has}; get the items by their keys for others"
    missing = index.lacks(expressions.filters_by)
    if missing:
        reason = f"{_INVALID}: Secondary index {index.name} does not project one or more filter attributes: "
        raise InvalidUnitRequest(words["filter"], missing, allowed, f"{reason}[{', '.join(missing)}]")
    missing = index.lacks(expressions.projects)
    if missing and not index.is_local:
        reason = f"{_INVALID}: Global secondary index {index.name} does not project [{', '.join(missing)}]"
        raise InvalidUnitRequest(words["projection"], missing, allowed, reason)
    return bool(missing) or (given.selects_all and index.projected is not None)


def _after(checked: PartitionQuery, given: Attributes) -> Attributes | None:
    said, table = checked.given.words["after"], checked.table
    for key in (*table.schema.keys, *checked.keys):
        try:
            check_key(given, key, table.name)
        except ItemInvalid as error:
            raise InvalidUnitRequest(f"{said}.{key.name}", given.get(key.name), error.message) from error
    if not checked.covers(given):
        raise InvalidUnitRequest(said, PYTHON.to_caller(given), "a key, or an item, in the range of the query")
    return checked.start_key(given)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a query.

    Attributes:
        items: those that the filter accepts, without our attributes, in order.
        read: how many items of the range the query has read, before the filter.
        last_key: the key after which there may be more items; None at the end of the range.
    """

    items: list[Attributes]
    read: int
    last_key: Attributes | None


@dataclass(frozen=True, slots=True)
class _Row:
    """An item in the range.

    Attributes:
        place: what the unit knows of it.
        image: as it is returned.
        seen: as it was read, with our attributes; None for the unit's own image, or if nothing is to be remembered.
    """

    place: ItemState
    image: Attributes
    seen: Item | None = None


@dataclass(frozen=True, slots=True)
class Querying:
    """One query of one unit.

    Args:
        level: what it may see. Below ``SERIALIZABLE`` for an index.
        work: what the unit has read and is about to write; the query adds what it returns.
        approach: called with the items that the unit is about to use, before it remembers them.
        is_repeated: whether the unit is repeated: then what it has read need not be as it was.
    """

    _asked: PartitionQuery
    _level: Isolation
    _work: Work
    _reading: Reader
    _approach: Callable[[Sequence[ItemState]], None]
    _is_repeated: bool = False

    def steps(self) -> ForkingSteps[Found]:
        given, shown, read = self._asked.given, list[Attributes](), 0
        if given.after is not None and self._asked.is_of_one_item:
            return Found([], 0, None)
        own, first = self._own()
        after = self._asked.after
        while True:
            limit = self._limit(len(shown), read)
            reply: Reply = yield self._request(after, limit)
            rows = yield from self._rows([canonical_item(dict(item)) for item in reply.items if item is not None])
            if first is not None:
                # At one position the table's items come before the unit's own: earlier pages returned them.
                rows = [row for row in rows if self._position(row) != self._position(first)]
            after = None if reply.last_key is None else self._asked.start_key(canonical_item(dict(reply.last_key)))
            for row in self._merged(rows, own, after):
                self._keep(row)
                read += 1
                if self._asked.expressions.shows(row.image):
                    shown.append(self._asked.expressions.projected(row.image))
                if read == given.most_read or len(shown) == given.most_shown:
                    return Found(shown, read, self._asked.start_key(row.image))
            is_whole_page = limit is None or len(reply.items) < limit or self._asked.is_fetched
            # A page that ended before `first` would be continued by what comes before it.
            is_behind = first is not None and after is not None and self._position(first) == self._asked.position(after)
            if after is None or (given.is_one_page and is_whole_page and not is_behind):
                return Found(shown, read, after)

    def _limit(self, shown: int, read: int) -> int | None:
        """How many items the next page needs at most; None if that depends on a filter."""
        given = self._asked.given
        if self._asked.is_fetched:
            # What one request reads from the table then.
            return min(MOST_TOGETHER, given.most_read or MOST_TOGETHER)
        if given.most_read is not None:
            return int(given.most_read) - read
        if given.most_shown is not None and given.filter.text is None:
            return int(given.most_shown) - shown
        return None

    def _request(self, after: Attributes | None, limit: int | None) -> Query:
        asked, parameters = self._asked, self._asked.parameters
        is_local = asked.index is None or asked.index.is_local
        return Query(
            asked.table.name,
            parameters["KeyConditionExpression"],
            parameters.get("ExpressionAttributeNames", {}),
            parameters.get("ExpressionAttributeValues", {}),
            index=asked.index.name if asked.index is not None else None,
            after=after,
            limit=limit,
            is_forward=asked.given.is_forward,
            is_consistent=is_local and self._level is not UNCOMMITTED,
        )

    # The table's items.

    def _rows(self, items: Sequence[Attributes]) -> ForkingSteps[list[_Row]]:
        """A page without pending inserts and deleted items; items that the unit has read are shown as its images.

        Raises:
            UnitConflict: at ``SERIALIZABLE``: the page has items otherwise than the unit has read them before.
        """
        changed: list[ItemState] = []
        rows: list[_Row | None] = []
        marked: dict[int, Wanted] = {}
        for item in items:
            self._work.marks.check_item(item)
            place = self._work.place(self._asked.table, {name: item[name] for name in self._asked.table.key_names})
            image = image_of(item, self._work.marks)
            is_known = self._is_known(place)
            if (not is_known or self._level is SERIALIZABLE) and self._is_to_be_asked_for(item):
                marked[len(rows)] = Wanted(place.table, place.key)
                rows.append(_Row(place, item))
            elif is_known:
                changed += [] if self._is_as_read(place, item) else [place]
                rows.append(self._in_place(place, item))
            else:
                rows.append(None if image is None else _Row(place, image, item))
        if marked:
            read = self._reading.serializable if self._level is SERIALIZABLE else self._reading.committed
            # In a page the placeholder of a large item is small. A query does not promise that its items are of one
            # instant, so each is read by itself.
            wanted = list(marked.values())
            if self._asked.is_fetched and self._level is UNCOMMITTED:
                found: Sequence[Item | None] = yield from self._reading.eventually(wanted)
            else:
                found = yield from read(wanted, together=False)
            for at, whole in zip(marked, found, strict=True):
                image, row = image_of(whole, self._work.marks), rows[at]
                assert row is not None
                if self._is_known(row.place):
                    changed += [] if self._is_as_read(row.place, whole) else [row.place]
                    rows[at] = None
                elif image is None or self._has_moved(row.image, image):
                    rows[at] = None
                else:
                    rows[at] = _Row(row.place, self._entry(image), whole)
        if changed:
            raise conflict(changed)
        return [row for row in rows if row is not None]

    def _has_moved(self, entry: Attributes, image: Attributes) -> bool:
        """Whether an item has another place in the index since its entry was read. Other pages may have it."""
        return self._asked.is_fetched and self._index_key(entry) != self._index_key(image)

    def _is_as_read(self, place: ItemState, item: Item | None) -> bool:
        """Whether an item that the unit has read may be in a page like this: at ``SERIALIZABLE`` only as it was read.

        If it was absent, the unit would show nothing of it.
        """
        is_any_state = self._level is not SERIALIZABLE or self._is_repeated
        return is_any_state or is_as_seen(item, place.seen, self._work.marks)

    def _is_to_be_asked_for(self, item: Attributes) -> bool:
        """Whether the page has less of the item than it shows, or the item may be older than the last commit."""
        index = self._asked.index
        if index is None:
            return self._level is not UNCOMMITTED and self._work.marks.mark_of(item) is not None
        if self._asked.is_fetched:
            return True
        # A new item has only its key yet, and such an index may contain it without the mark.
        is_of_the_key = {key.name for key in index.keys} <= set(self._asked.table.key_names)
        return is_of_the_key and index.projected is not None and self._work.marks.mark not in index.projected

    def _entry(self, image: Attributes) -> Attributes:
        index = self._asked.index
        return image if index is None or self._asked.is_fetched else index.entry_of(image)

    # The unit's own.

    def _own(self) -> tuple[list[_Row], _Row | None]:
        """The unit's images in the range that are merged into the pages, in reverse order.

        Also the image after which the query continues; None if it continues after an item of the table.
        """
        mine = [
            _Row(place, self._entry(place.image))
            for place in self._work.places.values()
            if place.table is self._asked.table and self._is_laid_over(place)
            if place.image is not None and self._asked.covers(place.image)
        ]
        mine.sort(key=self._order, reverse=self._asked.given.is_forward)
        start = self._asked.after
        if start is None:
            return mine, None
        at = next((at for at, row in enumerate(mine) if self._asked.start_key(row.image) == start), None)
        if at is not None:
            return mine[:at], mine[at] if self._asked.index is not None else None
        return [row for row in mine if not self._comes_before(row, start) and not self._is_the_end(row, start)], None

    def _is_known(self, place: ItemState) -> bool:
        """Whether the unit's image is shown, and not what was found. Below ``SERIALIZABLE`` the table's is newer.

        An index may be older than what the commit checks. Of what the unit was not shown it checks nothing.
        """
        if self._level is SERIALIZABLE:
            return place.is_read
        return place.is_written or (self._asked.index is not None and place.is_read and place.is_checked)

    def _is_laid_over(self, place: ItemState) -> bool:
        """Whether the unit decides the item's position. In an index, an item that keeps its key stays in place."""
        if self._asked.index is None:
            return self._is_known(place)
        return place.is_written and self._index_key(place.before) != self._index_key(place.image)

    def _in_place(self, place: ItemState, item: Attributes) -> _Row | None:
        """The unit's image at the item's position in an index; None for a table, where `_own` has all of them."""
        index = self._asked.index
        if index is None or place.image is None or self._is_laid_over(place):
            return None
        is_there = self._asked.covers(place.image) and self._index_key(place.image) == self._index_key(item)
        return _Row(place, self._entry(place.image)) if is_there else None

    def _index_key(self, image: Attributes | None) -> list[Any]:
        return [] if image is None else [image.get(key.name) for key in self._asked.keys]

    def _order(self, row: _Row) -> tuple[Any, ...]:
        key = tuple(order_of(row.image[name])[1] for name in self._asked.table.key_names)
        return (self._position(row), key)

    def _position(self, row: _Row) -> Any:
        return self._asked.position(row.image)

    def _merged(self, rows: Sequence[_Row], own: list[_Row], end: Attributes | None) -> list[_Row]:
        """A page merged with the unit's images, in order; the images are removed from ``own``.

        Args:
            own: the unit's images, in reverse order.
            end: the last key of the page; None for the last page.
        """
        found = list[_Row]()
        for row in rows:
            while own and self._comes_before(own[-1], row.image):
                found.append(own.pop())
            found.append(row)
        # At one position the table's items come first; those of an index may continue on the next page.
        while own and (end is None or self._comes_before(own[-1], end) or self._is_the_end(own[-1], end)):
            found.append(own.pop())
        return found

    def _comes_before(self, row: _Row, item: Attributes) -> bool:
        here, there = self._position(row), self._asked.position(item)
        return bool(here < there if self._asked.given.is_forward else here > there)

    def _is_the_end(self, row: _Row, end: Attributes) -> bool:
        return self._asked.index is None and self._position(row) == self._asked.position(end)

    # What the unit remembers.

    def _keep(self, row: _Row) -> None:
        """Remember a returned item: at SERIALIZABLE the unit commits only while it is unchanged."""
        place = row.place
        if self._level is SERIALIZABLE:
            if not place.is_read:
                self._approach([place])
                # The items of a page are not of one instant.
                self._work.reads += 1
                place.before = place.image = row.image
                place.is_read, place.seen, place.read_number = True, row.seen, self._work.reads
            place.is_checked, place.glimpse = True, None
        elif not self._is_known(place) and self._asked.has_whole_items:
            place.glimpse = (row.image,)
