"""``unit.client``: a unit with the methods of boto3's client, for threads."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import botocore.session
from botocore.exceptions import OperationNotPageableError
from botocore.paginate import Paginator

from ticketlock.units._like_boto3._low_level import LowLevelUnitOfWork, Reply
from ticketlock.wire import ForkingSteps

_A_PLAIN_CLIENT = "a plain client: it is no part of a unit"
METHODS_IN_PLACE_OF: Mapping[str, str] = {
    "batch_execute_statement": "batch_get_item or batch_write_item",
    "execute_statement": "the methods for items, or query",
    "execute_transaction": "transact_get_items or transact_write_items",
    "scan": "query, or a plain client with units.VISIBLE and units.clean",
    "search_vectors": "a plain client with units.clean",
}
"""The methods about items that a unit's client does not have, and what to use; for all others a plain client."""


@cache
def _of_queries() -> tuple[Any, Any]:
    """How botocore reads a query page by page, and its model of the operation."""
    session = botocore.session.get_session()
    pages = session.get_paginator_model("dynamodb").get_paginator("Query")
    return pages, session.get_service_model("dynamodb").operation_model("Query")


class UnitClientFace:
    """The client of a unit of one of the two faces.

    Attributes:
        exceptions: those of the SDK's client that the ``Units`` uses, with the classes of its session's clients.
    """

    def __init__(self, low_level: LowLevelUnitOfWork) -> None:
        self._low_level = low_level

    @property
    def exceptions(self) -> Any:
        """The classes of the errors."""
        return self._low_level.sdk.client.exceptions

    def can_paginate(self, operation_name: str) -> bool:
        """Whether ``get_paginator`` has one for a method."""
        return operation_name == "query"

    def _pages(self, operation_name: str) -> tuple[Any, Any]:
        if not self.can_paginate(operation_name):
            raise OperationNotPageableError(operation_name=operation_name)
        return _of_queries()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say what to use in place of a method that units do not have."""
            raise AttributeError(
                f"a unit's client has no {name!r}; use {METHODS_IN_PLACE_OF.get(name, _A_PLAIN_CLIENT)}",
                name=name,
                obj=self,
            )


class UnitClient(UnitClientFace):
    """A unit with methods of ``boto3.client("dynamodb")``, for code that already has the low-level API's parameters.

    Tables are given by name, items and keys in AttributeValues. ``ConsistentRead`` has no effect: the unit's isolation
    decides. Each method lists the parameters that it accepts; any other one is refused by name, with what to use.

    ``ReturnConsumedCapacity`` (``NONE``, ``TOTAL``) tells the read units that the call itself took, by DynamoDB's
    account: 0 if the unit had the items. What the commit will take is not in it. In each reply ``ResponseMetadata`` has
    the unit's id as ``RequestId``; no request need have been sent.

    Every method raises ``InvalidUnitRequest``, and what the corresponding method of the unit raises. What DynamoDB
    would refuse is also an error of the SDK's client, with its ``response``: ``ConditionFailed`` is a
    ``ConditionalCheckFailedException``, ``InvalidUnitRequest`` and ``ItemTooLarge`` have the code
    ``ValidationException``, ``TableNotFound`` is a ``ResourceNotFoundException``, and another ``TableError``, while the
    unit may continue, is what the service has answered. What only units refuse is ``InvalidUnitRequest`` alone.
    Unpickled they are a ``botocore.exceptions.ClientError``.
    """

    def __init__(self, low_level: LowLevelUnitOfWork, perform: Callable[[ForkingSteps[Reply]], Reply]) -> None:
        super().__init__(low_level)
        self._perform = perform

    def get_paginator(self, operation_name: str) -> "Paginator[Any]":
        """A paginator of botocore's: of ``query``.

        Raises:
            botocore.exceptions.OperationNotPageableError: a unit has no paginator for it.
        """
        # The stubs of botocore take the method for text.
        query: Any = self.query
        return Paginator(query, *self._pages(operation_name))

    def get_item(self, **parameters: Any) -> Reply:
        """An item, with the unit's own writes.

        Args:
            parameters: ``TableName``, ``Key``; ``ProjectionExpression``, ``ExpressionAttributeNames``,
                ``ConsistentRead``, ``ReturnConsumedCapacity``.

        Returns:
            ``{"Item": ...}``, or ``{}`` if there is none.
        """
        return self._perform(self._low_level.get_item(parameters))

    def batch_get_item(self, **parameters: Any) -> Reply:
        """Up to 100 items of one instant, of any tables.

        Args:
            parameters: ``RequestItems``: for each table ``Keys``; ``ProjectionExpression``,
                ``ExpressionAttributeNames``, ``ConsistentRead``. ``ReturnConsumedCapacity``.

        Returns:
            ``{"Responses": {table: [...]}, "UnprocessedKeys": {}}``: those that exist, in the order of the keys.
        """
        return self._perform(self._low_level.batch_get_item(parameters))

    def transact_get_items(self, **parameters: Any) -> Reply:
        """Up to 100 items of one instant.

        Args:
            parameters: ``TransactItems``: a list of ``{"Get": {...}}`` with ``TableName``, ``Key``,
                ``ProjectionExpression`` and ``ExpressionAttributeNames``. ``ReturnConsumedCapacity``.

        Returns:
            ``{"Responses": [...]}``, in the order of the items; ``{}`` for an item that does not exist.
        """
        return self._perform(self._low_level.transact_get_items(parameters))

    def query(self, **parameters: Any) -> Reply:
        """A page of the items of one partition of a table or an index, with the unit's own writes; see ``Unit.query``.

        Args:
            parameters: ``TableName``, ``KeyConditionExpression``; ``IndexName``, ``FilterExpression``,
                ``ProjectionExpression``, ``ExpressionAttributeNames``, ``ExpressionAttributeValues``,
                ``ExclusiveStartKey``, ``Limit``, ``ScanIndexForward``, ``Select``, ``ReturnConsumedCapacity`` and
                ``ConsistentRead``, which a global index refuses if it is true.

        Returns:
            ``{"Items": [...], "Count": ..., "ScannedCount": ...}``, and ``LastEvaluatedKey`` if there may be more.
            Pending inserts of other units are not counted. What a local index does not project is read from the table,
            100 items a page; a global index refuses it.
        """
        return self._perform(self._low_level.query(parameters))

    def put_item(self, **parameters: Any) -> Reply:
        """Put an item; it replaces the item with the same key, if there is one.

        Args:
            parameters: ``TableName``, ``Item``; ``ConditionExpression``, ``ExpressionAttributeNames``,
                ``ExpressionAttributeValues``, ``ReturnValues`` (``NONE``, ``ALL_OLD``),
                ``ReturnValuesOnConditionCheckFailure`` (the same), ``ReturnConsumedCapacity``,
                ``ReturnItemCollectionMetrics`` (``NONE``).

        Returns:
            ``{"Attributes": ...}`` if they were asked for and there are any, else nothing.
        """
        return self._perform(self._low_level.put_item(parameters))

    def update_item(self, **parameters: Any) -> Reply:
        """Update an item, or create it if it does not exist.

        Args:
            parameters: ``TableName``, ``Key``; ``UpdateExpression`` (without it, an existing item stays as it is),
                ``ConditionExpression``, ``ExpressionAttributeNames``, ``ExpressionAttributeValues``, ``ReturnValues``
                (``NONE``, ``ALL_OLD``, ``UPDATED_OLD``, ``ALL_NEW``, ``UPDATED_NEW``), and the others as for
                ``put_item``.

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

    def batch_write_item(self, **parameters: Any) -> Reply:
        """Put and delete up to 25 items of any tables, without conditions: all of them, or none if an error is raised.

        Args:
            parameters: ``RequestItems``: for each table a list of ``{"PutRequest": {"Item": ...}}`` and
                ``{"DeleteRequest": {"Key": ...}}``. ``ReturnConsumedCapacity``.

        Returns:
            ``{"UnprocessedItems": {}}``.
        """
        return self._perform(self._low_level.batch_write_item(parameters))

    def transact_write_items(self, **parameters: Any) -> Reply:
        """Up to 100 statements on one item each: the unit takes all of them, or none if an error is raised.

        Args:
            parameters: ``TransactItems``: a list of ``Put``, ``Update``, ``Delete`` and ``ConditionCheck``, each with
                ``TableName`` and the expressions of its kind, and ``ReturnValuesOnConditionCheckFailure``.
                ``ReturnConsumedCapacity``.

        Raises:
            ConditionFailed: also a ``TransactionCanceledException``, whose ``CancellationReasons`` has one entry for
                each statement. Its ``table`` and ``key`` are those of the first one that failed.
            InvalidUnitRequest, ItemTooLarge: also a ``TransactionCanceledException``, if the first statement that
                failed is an update which does not fit its item.
        """
        return self._perform(self._low_level.transact_write_items(parameters))
