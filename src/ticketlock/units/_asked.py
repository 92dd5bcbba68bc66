"""What a query asks for: a range of one partition of a table or an index, checked. No I/O, no clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ticketlock._checks import boolean, text, whole_number
from ticketlock._expressions._errors import ItemInvalid
from ticketlock._expressions._expressions import Expressions
from ticketlock._expressions._key_conditions import KeyRange, key_range
from ticketlock._expressions._schemas import Index, KeyAttribute, check_key
from ticketlock._expressions._values import Item as Attributes
from ticketlock._expressions._values import order_of
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._marks import Marks
from ticketlock.units._tables import UnitTable
from ticketlock.units._values import PYTHON, Phrase, expressions_in, refusing
from ticketlock.wire._attributes import Item

MOST_ITEMS = 2**31 - 1

_NAME_BYTES = 255
"""The longest name of an index."""

_PYTHON = {name: name for name in ("key_condition", "filter", "index", "after", "limit", "forward")}


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a query, in AttributeValues.

    Attributes:
        key_condition, filter: each with its own placeholders, if it was made from an object.
        values, names: what the placeholders of the expressions stand for.
        index: the name of an index; None for the table.
        after: the key after which the query begins, or an item with that key; None for the beginning.
        is_forward: in the order of the sort keys; otherwise in reverse order.
        most_shown: the most items to return; None for all.
        most_read: the most items to read; None for no bound.
        is_one_page: whether the query stops where one reply of DynamoDB would end.
        projection: which attributes are returned; None for all.
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
    projection: str | None = None
    words: Mapping[str, str] = field(default_factory=lambda: _PYTHON)

    def parameters(self) -> dict[str, Any]:
        """As parameters of the low-level API."""
        phrases = (self.key_condition, self.filter)
        given: dict[str, Any] = {
            "KeyConditionExpression": self.key_condition.text,
            "FilterExpression": self.filter.text,
            "ProjectionExpression": self.projection,
            "ExpressionAttributeNames": {**self.names, **phrases[0].names, **phrases[1].names},
            "ExpressionAttributeValues": {**self.values, **phrases[0].values, **phrases[1].values},
        }
        return {name: each for name, each in given.items() if each}


def in_python(
    key_condition: Any, filter: Any, values: Any, names: Any, index: Any, after: Any, limit: Any, forward: Any
) -> Given:
    """The arguments of a caller who uses Python values.

    Raises:
        InvalidUnitRequest: names the argument.
    """
    return Given(
        key_condition=PYTHON.condition(key_condition, "key_condition", of_keys=True),
        filter=PYTHON.condition(filter, "filter"),
        values=PYTHON.values(values),
        names=PYTHON.names(names),
        index=index,
        after=None if after is None else PYTHON.item("after", after),
        is_forward=forward,
        most_shown=limit,
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A query that was checked.

    Attributes:
        given: the caller's arguments.
        table, index: where to read; no index for the table itself.
        keys: those of the table or of the index, the attributes of the partition key first.
        parameters: its expressions, as in the low-level API.
        expressions: the same, parsed.
        range: which items.
        after: the key after which the query begins, without other attributes.
    """

    given: Given
    table: UnitTable
    index: Index | None
    keys: tuple[KeyAttribute, ...]
    parameters: Mapping[str, Any]
    expressions: Expressions
    range: KeyRange
    after: Attributes | None

    def covers(self, item: Attributes) -> bool:
        """Whether an item is in the range."""
        return (
            all(key.name in item for key in self.keys)
            and tuple(item[key.name] for key in self.keys if key.role == "HASH") == self.range.partition
            and all(self.expressions.holds(bound, item) for bound in self.range.bounds)
        )

    def position(self, item: Attributes) -> Any:
        """Where an item is in the range; items of an index may share a position."""
        return tuple(order_of(item[key.name])[1] for key in self.keys if key.role == "RANGE")

    def start_key(self, item: Attributes) -> Attributes:
        """The key of an item, as the start key of what follows it."""
        return {name: item[name] for name in _start_names(self.table, self.index)}


def asked(table: UnitTable, given: Given, marks: Marks) -> Asked:
    """Check a query.

    Raises:
        InvalidUnitRequest: names the field that is wrong.
    """
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
    with refusing("query", expressions_in(parameters)):
        expressions = Expressions(parameters)
        found = key_range(_kinds(keys, "HASH"), _kinds(keys, "RANGE"), expressions)
    marks.check_free_of_ours(words["filter"], expressions.filters_by)
    for key in keys:
        if key.name in expressions.filters_by:
            allowed = f"attributes that are no keys: conditions on keys go into {words['key_condition']}"
            raise InvalidUnitRequest(words["filter"], key.name, allowed)
    checked = Asked(given, table, index, keys, parameters, expressions, found, None)
    return checked if given.after is None else replace(checked, after=_after(checked, given.after))


def _kinds(keys: tuple[KeyAttribute, ...], role: str) -> dict[str, str]:
    return {key.name: key.kind for key in keys if key.role == role}


def _index(table: UnitTable, given: Given) -> Index:
    said = given.words["index"]
    name = text(said, given.index, _NAME_BYTES, InvalidUnitRequest)
    known = {index.name: index for index in table.schema.indexes}
    if name not in known:
        raise InvalidUnitRequest(said, name, f"an index of {table.name}: {', '.join(sorted(known)) or 'it has none'}")
    return known[name]


def _after(checked: Asked, given: Attributes) -> Attributes:
    """The start key within an item or a key.

    Raises:
        InvalidUnitRequest: the key is missing, or outside the range of the query.
    """
    said, table = checked.given.words["after"], checked.table
    for key in (*table.schema.keys, *checked.keys):
        try:
            check_key(given, key, table.name)
        except ItemInvalid as error:
            raise InvalidUnitRequest(f"{said}.{key.name}", given.get(key.name), error.message) from error
    if not checked.covers(given):
        raise InvalidUnitRequest(said, PYTHON.back(given), "a key, or an item, in the range of the query")
    return checked.start_key(given)


def _start_names(table: UnitTable, index: Index | None) -> tuple[str, ...]:
    """The attributes of a start key."""
    if index is None:
        return table.key_names
    return (*table.key_names, *(key.name for key in index.keys if key.name not in table.key_names))
