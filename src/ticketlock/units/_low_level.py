"""A unit with the low-level API's parameters and replies: the steps, and the client for threads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import boolean, text
from ticketlock._expressions._evaluated import Branch, Expressions, branched, members_shown
from ticketlock._expressions._values import Attributes, copy_of_item
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._queries import QueryArguments
from ticketlock.units._statements import StatementKind, StatementRequest
from ticketlock.units._tables import NAME_BYTES, UnitTable
from ticketlock.units._unit_of_work import UnitOfWork
from ticketlock.units._values import LOW_LEVEL, REFUSED, Phrase, expression, refused
from ticketlock.wire._item_requests import MOST_TOGETHER
from ticketlock.wire._requests import ForkingSteps

Reply = dict[str, Any]
Parameters = Mapping[str, Any]

_NAMES, _VALUES = "ExpressionAttributeNames", "ExpressionAttributeValues"
_PROJECTION = ("ProjectionExpression", _NAMES)
_CONDITION = ("ConditionExpression", _NAMES, _VALUES, "ReturnValues")
_OLD = ("NONE", "ALL_OLD")
_ANY = (*_OLD, "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW")

_QUERY_WORDS = {
    "key_condition": "KeyConditionExpression",
    "filter": "FilterExpression",
    "index": "IndexName",
    "after": "ExclusiveStartKey",
    "limit": "Limit",
    "forward": "ScanIndexForward",
}


@dataclass(frozen=True, slots=True)
class _Shape:
    """The parameters of an operation that units accept, and what it can be asked to return."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    returns: tuple[str, ...] = ()

    def check(self, given: Parameters) -> None:
        """Refuse missing and unknown parameters, and wrong flags; other values are checked where they are used."""
        known = (*self.required, *self.optional)
        for name in given:
            if name not in known:
                raise InvalidUnitRequest(name, given[name], f"no such parameter: {self.name} of a unit has {known}")
        for name in self.required:
            if given.get(name) is None:
                raise InvalidUnitRequest(name, None, f"a parameter that {self.name} needs")
        text("TableName", given["TableName"], NAME_BYTES, InvalidUnitRequest)
        boolean("ConsistentRead", given.get("ConsistentRead", True), InvalidUnitRequest)
        if given.get("ReturnValues", "NONE") not in self.returns and "ReturnValues" in given:
            raise InvalidUnitRequest("ReturnValues", given["ReturnValues"], f"one of {', '.join(self.returns)}")


_GET = _Shape("get_item", ("TableName", "Key"), ("ConsistentRead", *_PROJECTION))
_PUT = _Shape("put_item", ("TableName", "Item"), _CONDITION, _OLD)
_UPDATE = _Shape("update_item", ("TableName", "Key", "UpdateExpression"), _CONDITION, _ANY)
_DELETE = _Shape("delete_item", ("TableName", "Key"), _CONDITION, _OLD)
_QUERY = _Shape(
    "query",
    ("TableName", "KeyConditionExpression"),
    (
        "IndexName",
        "FilterExpression",
        *_PROJECTION,
        _VALUES,
        "ExclusiveStartKey",
        "Limit",
        "ScanIndexForward",
        "Select",
        "ConsistentRead",
    ),
)
_GET_OF_SEVERAL = _Shape("Get of transact_get_items", ("TableName", "Key"), _PROJECTION)


class LowLevelUnitOfWork:
    """A unit of work with the low-level API's parameters."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work

    def get_item(self, given: Parameters) -> ForkingSteps[Reply]:
        (reply,) = yield from self._get([given], _GET)
        return reply

    def transact_get_items(self, given: Parameters) -> ForkingSteps[Reply]:
        for name in given:
            if name != "TransactItems":
                raise InvalidUnitRequest(name, given[name], "no such parameter: a unit's has TransactItems")
        wanted = given.get("TransactItems")
        if not isinstance(wanted, list | tuple) or not 1 <= len(wanted) <= MOST_TOGETHER:
            raise InvalidUnitRequest("TransactItems", wanted, f"a list of 1 to {MOST_TOGETHER}")
        for each in wanted:
            if not isinstance(each, Mapping) or set(each) != {"Get"} or not isinstance(each["Get"], Mapping):
                raise InvalidUnitRequest("TransactItems", each, '{"Get": {"TableName": ..., "Key": ...}}')
        return {"Responses": (yield from self._get([each["Get"] for each in wanted], _GET_OF_SEVERAL))}

    def _get(self, wanted: Iterable[Parameters], shape: _Shape) -> ForkingSteps[list[Reply]]:
        projections, keys = [], []
        for each in wanted:
            shape.check(each)
            projections.append(_projection(each))
            keys.append(((yield from self._unit_of_work.table(each["TableName"])), each["Key"]))
        found = yield from self._unit_of_work.get(keys, None, LOW_LEVEL)
        return [
            {} if item is None else {"Item": projection.projected(item)}
            for item, projection in zip(found, projections, strict=True)
        ]

    def query(self, given: Parameters) -> ForkingSteps[Reply]:
        _QUERY.check(given)
        table = yield from self._unit_of_work.table(given["TableName"])
        _check_selected(table, given)
        found = yield from self._unit_of_work.query(table, _query(given), None)
        reply: Reply = {"Count": len(found.items), "ScannedCount": found.read}
        if given.get("Select") != "COUNT":
            reply["Items"] = found.items
        if found.last_key is not None:
            reply["LastEvaluatedKey"] = found.last_key
        return reply

    def put_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return (yield from self._evaluate("put", given, _PUT))

    def update_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return (yield from self._evaluate("update", given, _UPDATE))

    def delete_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return (yield from self._evaluate("delete", given, _DELETE))

    def _evaluate(self, kind: StatementKind, given: Parameters, shape: _Shape) -> ForkingSteps[Reply]:
        shape.check(given)
        table = yield from self._unit_of_work.table(given["TableName"])
        request = StatementRequest(
            kind,
            table,
            given[shape.required[1]],
            condition=expression("ConditionExpression", given.get("ConditionExpression")),
            values=given.get(_VALUES),
            names=given.get(_NAMES, {}),
            update=given.get("UpdateExpression"),
            python=LOW_LEVEL,
        )
        before, after = yield from self._unit_of_work.evaluate(request)
        return _returned(given, before, after)


def _query(given: Parameters) -> QueryArguments:
    texts = {
        name: expression(name, given.get(name))
        for name in ("KeyConditionExpression", "FilterExpression", "ProjectionExpression")
    }
    start = given.get("ExclusiveStartKey")
    return QueryArguments(
        key_condition=Phrase(texts["KeyConditionExpression"], {}, {}),
        filter=Phrase(texts["FilterExpression"], {}, {}),
        values=LOW_LEVEL.values(given.get(_VALUES)),
        names=LOW_LEVEL.names(given.get(_NAMES, {})),
        index=given.get("IndexName"),
        after=None if start is None else LOW_LEVEL.item("ExclusiveStartKey", start),
        is_forward=given.get("ScanIndexForward", True),
        most_read=given.get("Limit"),
        is_one_page=True,
        projection=texts["ProjectionExpression"],
        words=_QUERY_WORDS,
    )


def _check_selected(table: UnitTable, given: Parameters) -> None:
    """Refuse a selection that contradicts the query, or that an index cannot return."""
    index = next((each for each in table.schema.indexes if each.name == given.get("IndexName")), None)
    if index is not None and not index.is_local and given.get("ConsistentRead") is True:
        raise InvalidUnitRequest("ConsistentRead", True, f"false: the global index {index.name!r} is read eventually")
    if given.get("ProjectionExpression") is not None:
        allowed = ["SPECIFIC_ATTRIBUTES"]
    else:
        has_all = index is None or index.projected is None
        allowed = ["COUNT", *["ALL_ATTRIBUTES"] * has_all, *["ALL_PROJECTED_ATTRIBUTES"] * (index is not None)]
    if "Select" in given and given["Select"] not in allowed:
        raise InvalidUnitRequest("Select", given["Select"], f"one of {', '.join(allowed)}, or left out")


def _projection(given: Parameters) -> Expressions:
    expression("ProjectionExpression", given.get("ProjectionExpression"))
    LOW_LEVEL.names(given.get(_NAMES, {}))
    try:
        return Expressions({name: given[name] for name in _PROJECTION if name in given})
    except REFUSED as error:
        raise refused("ProjectionExpression", given.get("ProjectionExpression"), error) from error


def _returned(given: Parameters, before: Attributes | None, after: Attributes | None) -> Reply:
    """What the statement was asked to return, without the attributes of units."""
    asked = given.get("ReturnValues", "NONE")
    if asked == "NONE":
        return {}
    item = before if asked.endswith("OLD") else after
    if item is None:
        return {}
    if asked.startswith("ALL"):
        return {"Attributes": copy_of_item(item)}
    updated = copy_of_item(members_shown(item, _updated(given)))
    return {"Attributes": updated} if updated else {}


def _updated(given: Parameters) -> Branch:
    parameters = {name: given[name] for name in ("ConditionExpression", "UpdateExpression") if name in given}
    expressions = Expressions({**parameters, **{name: given[name] for name in (_NAMES, _VALUES) if given.get(name)}})
    paths = expressions.update.paths if expressions.update is not None else ()
    return branched("UpdateExpression", tuple(map(expressions.steps, paths)))


class UnitClient:
    """A unit with methods of ``boto3.client("dynamodb")``, for code that already has the low-level API's parameters.

    Tables are given by name, items and keys in AttributeValues. ``ConsistentRead`` has no effect: the unit's isolation
    decides. Each method lists the parameters that it accepts; any other one, such as those that
    expressions have replaced (``Expected``, ``AttributeUpdates``, ``ConditionalOperator``), is refused by name.

    Every method raises ``InvalidUnitRequest``, ``TableNotFound`` and what the corresponding method of the unit raises.
    A condition that does not hold raises ``ConditionFailed`` at once.
    """

    def __init__(self, low_level: LowLevelUnitOfWork, perform: Callable[[ForkingSteps[Reply]], Reply]) -> None:
        self._low_level = low_level
        self._perform = perform

    def get_item(self, **parameters: Any) -> Reply:
        """An item, with the unit's own writes.

        Args:
            parameters: ``TableName``, ``Key``; ``ProjectionExpression``, ``ExpressionAttributeNames``,
                ``ConsistentRead``.

        Returns:
            ``{"Item": ...}``, or ``{}`` if there is none.
        """
        return self._perform(self._low_level.get_item(parameters))

    def transact_get_items(self, **parameters: Any) -> Reply:
        """Up to 100 items of one instant.

        Args:
            parameters: ``TransactItems``: a list of ``{"Get": {...}}`` with ``TableName``, ``Key``,
                ``ProjectionExpression`` and ``ExpressionAttributeNames``.

        Returns:
            ``{"Responses": [...]}``, in the order of the items; ``{}`` for an item that does not exist.
        """
        return self._perform(self._low_level.transact_get_items(parameters))

    def query(self, **parameters: Any) -> Reply:
        """A page of the items of one partition of a table or an index, with the unit's own writes; see ``Unit.query``.

        Args:
            parameters: ``TableName``, ``KeyConditionExpression``; ``IndexName``, ``FilterExpression``,
                ``ProjectionExpression``, ``ExpressionAttributeNames``, ``ExpressionAttributeValues``,
                ``ExclusiveStartKey``, ``Limit``, ``ScanIndexForward``, ``Select`` and ``ConsistentRead``, which a
                global index refuses if it is true.

        Returns:
            ``{"Items": [...], "Count": ..., "ScannedCount": ...}``, and ``LastEvaluatedKey`` if there may be more.
            Pending inserts of other units are not counted.
        """
        return self._perform(self._low_level.query(parameters))

    def put_item(self, **parameters: Any) -> Reply:
        """Put an item; it replaces the item with the same key, if there is one.

        Args:
            parameters: ``TableName``, ``Item``; ``ConditionExpression``, ``ExpressionAttributeNames``,
                ``ExpressionAttributeValues``, ``ReturnValues`` (``NONE``, ``ALL_OLD``).

        Returns:
            ``{"Attributes": ...}`` if they were asked for and there are any, else ``{}``.
        """
        return self._perform(self._low_level.put_item(parameters))

    def update_item(self, **parameters: Any) -> Reply:
        """Update an item, or create it if it does not exist.

        Args:
            parameters: ``TableName``, ``Key``, ``UpdateExpression``; ``ConditionExpression``,
                ``ExpressionAttributeNames``, ``ExpressionAttributeValues``, ``ReturnValues`` (``NONE``, ``ALL_OLD``,
                ``UPDATED_OLD``, ``ALL_NEW``, ``UPDATED_NEW``).

        Returns:
            As for ``put_item``.
        """
        return self._perform(self._low_level.update_item(parameters))

    def delete_item(self, **parameters: Any) -> Reply:
        """Delete an item, if there is one.

        Args:
            parameters: ``TableName``, ``Key``; the others as for ``put_item``, and so is the reply.
        """
        return self._perform(self._low_level.delete_item(parameters))
