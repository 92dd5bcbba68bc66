"""A unit with the low-level API's parameters and replies, as steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from botocore.exceptions import ClientError

from ticketlock._expressions import Attributes, Branch, Expressions, branched, copy_of_item, members_shown
from ticketlock.errors import ConditionFailed, InvalidUnitRequest, TableError, TableNotFound, TicketLockError
from ticketlock.units._like_boto3._client_errors import as_of_client, invalid
from ticketlock.units._like_boto3._client_parameters import (
    BATCH_GET,
    BATCH_WRITE,
    BATCH_WRITES,
    CREATE,
    DELETE,
    GET,
    ITEM_OF_REFUSAL,
    KEYS,
    MOST_IN_A_BATCH,
    NAMES,
    PROJECTION,
    PUT,
    QUERY,
    TRANSACT_GET,
    TRANSACT_GETS,
    TRANSACT_WRITE,
    TRANSACT_WRITES,
    UNITS,
    UPDATE,
    VALUES,
    Parameters,
    Shape,
    action_of,
    by_table,
    list_of,
)
from ticketlock.units._statements import MOST_ACTIONS, QueryArguments, StatementKind, StatementRequest
from ticketlock.units._unit_of_work import Evaluated, UnitOfWork
from ticketlock.units._words import LOW_LEVEL, REFUSED, Phrase, UnitTable, expression, refused
from ticketlock.wire import (
    MOST_TOGETHER,
    ForkingSteps,
    Get,
    GetMany,
    GetTogether,
    Query,
    Request,
    Together,
    raise_if_foreign,
)

Reply = dict[str, Any]

T = TypeVar("T")

_QUERY_WORDS = {
    "key_condition": "KeyConditionExpression",
    "filter": "FilterExpression",
    "index": "IndexName",
    "after": "ExclusiveStartKey",
    "limit": "Limit",
    "forward": "ScanIndexForward",
    "projection": "ProjectionExpression",
}


class SdkClient(Protocol):
    """What has the SDK's client, whose classes of errors are raised."""

    @property
    def client(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the client.

    Attributes:
        operation: its name in the API.
        tables: those that it names, by these names.
        consumed: what its reads took, as DynamoDB has told. Several threads may append to it.
    """

    operation: str
    given: Parameters
    tables: dict[str, UnitTable] = field(default_factory=dict)
    consumed: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def capacity(self) -> list[dict[str, Any]]:
        """The read units of each table that it names."""
        units = dict.fromkeys((table.name for table in self.tables.values()), 0.0)
        for each in self.consumed:
            if each["TableName"] in units:
                units[each["TableName"]] += float(each["CapacityUnits"])
        return [{"TableName": name, "CapacityUnits": units[table.name]} for name, table in self.tables.items()]

    def counted(self, steps: ForkingSteps[T]) -> ForkingSteps[T]:
        """The same steps, whose reads ask for the units that they take."""
        try:
            request = next(steps)
            while True:
                try:
                    reply = yield self._asking(request)
                except TableError as error:
                    raise_if_foreign(error)
                    request = steps.throw(error)
                else:
                    # Steps within have counted for themselves.
                    for each in reply if isinstance(request, Together) else [reply]:
                        self.consumed.extend(getattr(each, "consumed", ()))
                    request = steps.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def _asking(self, request: Any) -> Any:
        if isinstance(request, Get | GetMany | GetTogether | Query):
            return replace(request, asks_units=True)
        if isinstance(request, Together):
            asked = (
                self._asking(each) if isinstance(each, Request) else self.counted(each) for each in request.requests
            )
            return Together(tuple(asked))
        return request


class LowLevelUnitOfWork:
    """A unit of work with the low-level API's parameters."""

    def __init__(self, unit_of_work: UnitOfWork, sdk: SdkClient) -> None:
        self._unit_of_work = unit_of_work
        self.sdk = sdk

    def get_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("GetItem", given), self._get_item)

    def batch_get_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("BatchGetItem", given), self._batch_get_item)

    def transact_get_items(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("TransactGetItems", given), self._transact_get_items)

    def query(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("Query", given), self._query)

    def put_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("PutItem", given), lambda call: self._write(call, "put", PUT))

    def update_item(self, given: Parameters) -> ForkingSteps[Reply]:
        if "UpdateExpression" in given:
            return self._answer(_Call("UpdateItem", given), lambda call: self._write(call, "update", UPDATE))
        return self._answer(_Call("UpdateItem", given), lambda call: self._write(call, "create", CREATE))

    def delete_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("DeleteItem", given), lambda call: self._write(call, "delete", DELETE))

    def batch_write_item(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("BatchWriteItem", given), self._batch_write_item)

    def transact_write_items(self, given: Parameters) -> ForkingSteps[Reply]:
        return self._answer(_Call("TransactWriteItems", given), self._transact_write_items)

    def _answer(self, call: _Call, steps_of: Callable[[_Call], ForkingSteps[Reply]]) -> ForkingSteps[Reply]:
        """The reply with the parts that every reply has; or an error that is the client's, too, if it has one."""
        steps, is_asked = steps_of(call), call.given.get(UNITS) == "TOTAL"
        try:
            reply = yield from call.counted(steps) if is_asked else steps
        except TicketLockError as error:
            raise_if_foreign(error)
            as_of_the_service = self._as_told(call, error)
            if as_of_the_service is error:
                raise
            raise as_of_the_service from error
        if is_asked:
            of_one_table = "TableName" in call.given
            reply["ConsumedCapacity"] = call.capacity[0] if of_one_table else call.capacity
        return {**reply, **self._metadata(200)}

    def _metadata(self, status: int) -> Reply:
        unit = self._unit_of_work.terms.id
        metadata = {"RequestId": unit, "HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0}
        return {"ResponseMetadata": metadata}

    def _as_told(self, call: _Call, error: TicketLockError) -> TicketLockError:
        """The error as the service would have told it; the same one if that is only of units."""
        if isinstance(error, ClientError):
            return error
        message = invalid(error, is_update=call.operation == "UpdateItem")
        if message is not None:
            return self._refused(call, error, "ValidationException", message, {"message": message})
        cause = error.__cause__
        # What the service has answered to a read. After other errors the unit is over: no retry of the call helps. And
        # a table that was not found here is the units table.
        is_told = isinstance(error, TableError) and not isinstance(error, TableNotFound)
        if is_told and isinstance(cause, ClientError) and self._unit_of_work.state.is_open:
            return as_of_client(error, self.sdk.client.exceptions, call.operation, cause.response)
        return error

    def _refused(self, call: _Call, error: TicketLockError, code: str, message: str, more: Reply) -> TicketLockError:
        """The error with the reply of the service that it stands for."""
        response = {"Error": {"Code": code, "Message": message}, **more, **self._metadata(400)}
        return as_of_client(error, self.sdk.client.exceptions, call.operation, response)

    def _table(self, call: _Call, name: str) -> ForkingSteps[UnitTable]:
        try:
            table = yield from self._unit_of_work.table(name)
        except TableNotFound as error:
            raise_if_foreign(error)
            message = "Requested resource not found"
            raise self._refused(call, error, "ResourceNotFoundException", message, {"message": message}) from error
        call.tables[name] = table
        return table

    # Reading.

    def _get_item(self, call: _Call) -> ForkingSteps[Reply]:
        GET.check(call.given)
        (found,) = yield from self._get(call, [call.given], None)
        return {} if found is None else {"Item": found}

    def _batch_get_item(self, call: _Call) -> ForkingSteps[Reply]:
        BATCH_GET.check(call.given)
        wanted: list[Parameters] = []
        for name, where, given in by_table(call.given["RequestItems"]):
            KEYS.check(given, f"{where}.")
            keys = list_of(f"{where}.Keys", given["Keys"], MOST_TOGETHER)
            wanted += [{**given, "TableName": name, "Key": key} for key in keys]
        list_of("RequestItems", wanted, MOST_TOGETHER)
        found = yield from self._get(call, wanted, "RequestItems")
        responses: dict[str, list[Any]] = {name: [] for name in call.tables}
        for each, item in zip(wanted, found, strict=True):
            if item is not None:
                responses[each["TableName"]].append(item)
        return {"Responses": responses, "UnprocessedKeys": {}}

    def _transact_get_items(self, call: _Call) -> ForkingSteps[Reply]:
        TRANSACT_GET.check(call.given)
        actions = list_of("TransactItems", call.given["TransactItems"], MOST_TOGETHER)
        wanted = []
        for at, each in enumerate(actions):
            name, given = action_of(f"TransactItems[{at}]", each, TRANSACT_GETS)
            TRANSACT_GETS[name].check(given, f"TransactItems[{at}].{name}.")
            wanted.append(given)
        found = yield from self._get(call, wanted, "TransactItems")
        return {"Responses": [{} if item is None else {"Item": item} for item in found]}

    def _get(self, call: _Call, wanted: Sequence[Parameters], of_one_item_each: str | None) -> ForkingSteps[list[Any]]:
        """The items, as their projections show them; None for each that does not exist."""
        projections, keys = [], []
        for each in wanted:
            projections.append(_projection(each))
            keys.append(((yield from self._table(call, each["TableName"])), each["Key"]))
        found = yield from self._unit_of_work.get(keys, None, LOW_LEVEL, of_one_item_each=of_one_item_each)
        return [
            None if item is None else projection.projected(item)
            for item, projection in zip(found, projections, strict=True)
        ]

    def _query(self, call: _Call) -> ForkingSteps[Reply]:
        given = call.given
        QUERY.check(given)
        table = yield from self._table(call, given["TableName"])
        _check_selected(table, given)
        found = yield from self._unit_of_work.query(table, _query(given), None)
        reply: Reply = {"Count": len(found.items), "ScannedCount": found.read}
        if given.get("Select") != "COUNT":
            reply["Items"] = found.items
        if found.last_key is not None:
            reply["LastEvaluatedKey"] = found.last_key
        return reply

    # Writing.

    def _write(self, call: _Call, kind: StatementKind, shape: Shape) -> ForkingSteps[Reply]:
        shape.check(call.given)
        (found,) = yield from self._evaluate(call, [(kind, shape, call.given)])
        if isinstance(found.refused, ConditionFailed):
            reason = _reason(call.given, found)
            more = {"message": reason["Message"], **({"Item": reason["Item"]} if "Item" in reason else {})}
            code = "ConditionalCheckFailedException"
            raise self._refused(call, found.refused, code, reason["Message"], more)
        _check_fits([found])
        return _returned(call.given, found.before, found.after)

    def _batch_write_item(self, call: _Call) -> ForkingSteps[Reply]:
        BATCH_WRITE.check(call.given)
        writes: list[_StatementGiven] = []
        for name, where, each_given in by_table(call.given["RequestItems"]):
            for at, each in enumerate(list_of(where, each_given, MOST_IN_A_BATCH)):
                action, given = action_of(f"{where}[{at}]", each, BATCH_WRITES)
                kind, shape = BATCH_WRITES[action]
                shape.check(given, f"{where}[{at}].{action}.")
                writes.append((kind, shape, {**given, "TableName": name}))
        list_of("RequestItems", writes, MOST_IN_A_BATCH)
        _check_fits((yield from self._evaluate(call, writes)))
        return {"UnprocessedItems": {}}

    def _transact_write_items(self, call: _Call) -> ForkingSteps[Reply]:
        TRANSACT_WRITE.check(call.given)
        writes: list[_StatementGiven] = []
        for at, each in enumerate(list_of("TransactItems", call.given["TransactItems"], MOST_ACTIONS)):
            name, given = action_of(f"TransactItems[{at}]", each, TRANSACT_WRITES)
            kind, shape = TRANSACT_WRITES[name]
            shape.check(given, f"TransactItems[{at}].{name}.")
            writes.append((kind, shape, given))
        found = yield from self._evaluate(call, writes)
        # A new item is invalid whatever is stored. An update may only not fit the item, which is a reason to cancel.
        _check_fits([each for (kind, _, _), each in zip(writes, found, strict=True) if kind == "put"])
        failed = next((each.refused for each in found if each.refused is not None), None)
        if failed is not None:
            reasons = [_reason(given, each) for (_, _, given), each in zip(writes, found, strict=True)]
            codes = ", ".join(reason["Code"] for reason in reasons)
            message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
            more = {"Message": message, "CancellationReasons": reasons}
            raise self._refused(call, failed, "TransactionCanceledException", message, more)
        return {}

    def _evaluate(self, call: _Call, writes: "Sequence[_StatementGiven]") -> ForkingSteps[list[Evaluated]]:
        requests = []
        for at, (kind, shape, given) in enumerate(writes):
            table = yield from self._table(call, given["TableName"])
            request = StatementRequest(
                kind,
                table,
                given["Item" if "Item" in shape.required else "Key"],
                condition=expression("ConditionExpression", given.get("ConditionExpression")),
                values=given.get(VALUES),
                names=given.get(NAMES, {}),
                update=given.get("UpdateExpression"),
                python=LOW_LEVEL,
                at=at if "TransactItems" in call.given else None,
            )
            requests.append(request)
        name = "TransactItems" if "TransactItems" in call.given else "RequestItems"
        return (yield from self._unit_of_work.evaluate_together(requests, of_one_item_each=name))


_StatementGiven = tuple[StatementKind, Shape, Parameters]


def _check_fits(found: Sequence[Evaluated]) -> None:
    for each in found:
        if each.refused is not None and not isinstance(each.refused, ConditionFailed):
            raise each.refused


def _reason(given: Parameters, found: Evaluated) -> dict[str, Any]:
    """Why a statement cancels a transaction, in the service's words."""
    if found.refused is None:
        return {"Code": "None"}
    if not isinstance(found.refused, ConditionFailed):
        return {"Code": "ValidationError", "Message": invalid(found.refused, is_update=True)}
    reason: dict[str, Any] = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
    if given.get(ITEM_OF_REFUSAL) == "ALL_OLD" and found.before is not None:
        reason["Item"] = copy_of_item(found.before)
    return reason


def _query(given: Parameters) -> QueryArguments:
    texts = {
        name: expression(name, given.get(name))
        for name in ("KeyConditionExpression", "FilterExpression", "ProjectionExpression")
    }
    start = given.get("ExclusiveStartKey")
    return QueryArguments(
        key_condition=Phrase(texts["KeyConditionExpression"], {}, {}),
        filter=Phrase(texts["FilterExpression"], {}, {}),
        values=LOW_LEVEL.values(given.get(VALUES)),
        names=LOW_LEVEL.names(given.get(NAMES, {})),
        index=given.get("IndexName"),
        after=None if start is None else LOW_LEVEL.item("ExclusiveStartKey", start),
        is_forward=given.get("ScanIndexForward", True),
        most_read=given.get("Limit"),
        is_one_page=True,
        selects_all=given.get("Select") == "ALL_ATTRIBUTES",
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
        has_all = index is None or index.projected is None or index.is_local
        allowed = ["COUNT", *["ALL_ATTRIBUTES"] * has_all, *["ALL_PROJECTED_ATTRIBUTES"] * (index is not None)]
    if "Select" in given and given["Select"] not in allowed:
        raise InvalidUnitRequest("Select", given["Select"], f"one of {', '.join(allowed)}, or left out")


def _projection(given: Parameters) -> Expressions:
    expression("ProjectionExpression", given.get("ProjectionExpression"))
    LOW_LEVEL.names(given.get(NAMES, {}))
    try:
        return Expressions({name: given[name] for name in PROJECTION if name in given})
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
    expressions = Expressions({**parameters, **{name: given[name] for name in (NAMES, VALUES) if given.get(name)}})
    paths = expressions.update.paths if expressions.update is not None else ()
    return branched("UpdateExpression", tuple(map(expressions.steps, paths)))
