"""The tables that units write to, with the names and types of their keys."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import boolean, text
from ticketlock._expressions import MAX_ITEM_BYTES, Attributes, ItemInvalid, ItemTooBig, Schema, check_item, check_key
from ticketlock.errors import InvalidUnitRequest, ItemTooLarge, OutcomeUnknown, RequestNotApplied
from ticketlock.units._words._values import PYTHON
from ticketlock.wire import DescribeTable, ForkingSteps, Moment, Pause, Reply, raise_if_foreign

NAME_BYTES = 1_024
"""The longest name of a table, which may be an ARN."""
DESCRIPTION_LASTS_MS = 5 * 60_000
"""How old the description of a table may be when a unit begins to write to it by marks."""
VERSION_BYTES = 64
"""Room in an item for our attribute that stays: its name, and the id of the unit that wrote the item last."""

_log = logging.getLogger("ticketlock")


@dataclass(slots=True, repr=False, eq=False)
class UnitTable:
    """A table, as ``Units.table`` knows it.

    Attributes:
        name: its name.
        schema: its keys, and those of its indexes, with their types; replaced when the table is described again.
        is_guarded: whether queries detect inserts of other units.
        described_ms: when it was described last, by the local clock.
    """

    name: str
    schema: Schema
    is_guarded: bool = False
    described_ms: int = 0

    def __repr__(self) -> str:
        """Its name: an error that shows a table needs no more."""
        return f"<{'guarded ' if self.is_guarded else ''}UnitTable {self.name!r}>"

    @property
    def key_names(self) -> tuple[str, ...]:
        """The attributes of its key."""
        return self.schema.key_names

    def key_of(self, field: str, given: Attributes) -> Attributes:
        """The key within an item or a key, in canonical form.

        Raises:
            InvalidUnitRequest: an attribute of the key is missing, of another type, empty, or too long.
        """
        for each in self.schema.keys:
            if each.name not in given:
                names = ", ".join(map(repr, given)) or "nothing"
                reason = f"{each} {self.name!r} is {each.name!r}, and {field} has {names}"
                raise InvalidUnitRequest(f"{field}.{each.name}", None, f"a value of type {each.kind}", reason)
            try:
                check_key(given, each, self.name)
            except ItemInvalid as error:
                raise InvalidUnitRequest(f"{field}.{each.name}", given.get(each.name), error.message) from error
        return {name: given[name] for name in self.key_names}

    def key_alone(self, field: str, given: Attributes) -> Attributes:
        """A key that is given without other attributes.

        Raises:
            InvalidUnitRequest: as for ``key_of``; or there are other attributes.
        """
        key = self.key_of(field, given)
        if len(given) > len(key):
            raise InvalidUnitRequest(field, sorted(given), f"the key of {self.name} and nothing else: {list(key)}")
        return key

    def check_item(self, item: Attributes, phase: str, room_bytes: int) -> None:
        """Refuse an item that DynamoDB would refuse with ``room_bytes`` bytes of our attributes in it.

        Each local index may repeat them, and its entries count with the item.

        Raises:
            InvalidUnitRequest: its contents do not fit the table, or an index.
            ItemTooLarge: it is too large.
        """
        try:
            check_item(item, self.schema, MAX_ITEM_BYTES - room_bytes * (1 + len(self.schema.local_indexes)))
        except ItemInvalid as error:
            key = PYTHON.to_caller({name: item[name] for name in self.key_names if name in item})
            if isinstance(error, ItemTooBig):
                raise ItemTooLarge(
                    f"the item {key} of {self.name} has no room for what units add: {error.message}", phase
                ) from error
            raise InvalidUnitRequest(
                "item", key, f"what the table {self.name} and its indexes accept ({error.message})"
            ) from error


ItemKey = Mapping[str, Any]
Pairs = Iterable[tuple[UnitTable, Mapping[str, Any]]]
"""Items or keys of several tables, each with its table."""


class Tables:
    """The tables of one ``Units``, each known by one name."""

    def __init__(self, units_table: str) -> None:
        self._units_table = units_table
        self._known: dict[str, UnitTable] = {}
        self._arns: dict[str, str] = {}

    def table(self, given: str, field: str = "name", guarded: Any = None) -> ForkingSteps[UnitTable]:
        """A table by its name or its ARN: the same object for both, since units identify items by their tables' names.

        Args:
            field: the caller's name for it.
            guarded: whether it is guarded; None: as in the first call, and there not.
        """
        if guarded is not None:
            boolean("guarded", guarded, InvalidUnitRequest)
        text(field, given, NAME_BYTES, InvalidUnitRequest)
        is_arn = given.startswith("arn:")
        name = given.rpartition(":table/")[2] if is_arn else given
        if name not in self._known:
            reply: Reply = yield DescribeTable(name)
            description: Any = reply.item
            # If another thread asks for it meanwhile, both get the same object.
            self._arns.setdefault(name, description.get("TableArn", ""))
            schema = Schema.described(description)
            if guarded and schema.local_indexes:
                allowed = "a table without local secondary indexes: inserts into a guarded one are committed by marks"
                raise InvalidUnitRequest("guarded", guarded, allowed)
            self._known.setdefault(name, UnitTable(name, schema, bool(guarded), reply.now.local_ms))
        if is_arn and given != self._arns[name]:
            allowed = f"a table of the client's own account and Region, where {name} is {self._arns[name]}"
            raise InvalidUnitRequest(field, given, allowed, is_of_units=True)
        if self._units_table in (name, self._arns[name]):
            allowed = "a table of yours: this one is the units' own"
            raise InvalidUnitRequest(field, given, allowed, is_of_units=True)
        known = self._known[name]
        if guarded is not None and guarded != known.is_guarded:
            allowed = (
                f"{known.is_guarded}, as in the first call of `table` for {name}: "
                "`guarded` must be the same in every `table(...)` call of a `Units`"
            )
            raise InvalidUnitRequest("guarded", guarded, allowed)
        return known

    def describe_again(self, tables: Iterable[UnitTable]) -> ForkingSteps[None]:
        """Describe those of these tables again whose description is old: an index may have been added since.

        Without an answer the old description stays: marked commits do not depend on DynamoDB's control plane.
        """
        # Guards are in the units table, which has no indexes.
        own = {id(table): table for table in tables if self._known.get(table.name) is table}
        now: Moment = (yield Pause(0)).now
        for table in own.values():
            if now.local_ms - table.described_ms < DESCRIPTION_LASTS_MS:
                continue
            table.described_ms = now.local_ms
            try:
                reply: Reply = yield DescribeTable(table.name)
            except (RequestNotApplied, OutcomeUnknown) as error:
                raise_if_foreign(error)
                _log.warning("the indexes of %s may be others by now: %s", table.name, error)
                continue
            described: Any = reply.item
            schema = Schema.described(described)
            if schema.keys != table.schema.keys:
                raise InvalidUnitRequest("table", table.name, "a table with the key that it had at its first use")
            table.schema = schema

    def check_own(self, table: Any) -> UnitTable:
        """Refuse everything but what ``Units.table`` of the same ``Units`` has returned."""
        if not isinstance(table, UnitTable) or self._known.get(table.name) is not table:
            wanted = f'units.table("{table}")' if isinstance(table, str) else "what its `table(...)` has returned"
            raise InvalidUnitRequest("table", table, f"a table of this Units: {wanted}")
        return table
