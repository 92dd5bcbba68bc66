"""A unit with the methods of the low-level API, for threads."""

from collections.abc import Callable
from typing import Any

from ticketlock.units._low_level import LowLevelVerbs, Reply
from ticketlock.wire._requests import ForkingSteps


class UnitClient:
    """A unit with methods of ``boto3.client("dynamodb")``, for code that already has the low-level API's parameters.

    Tables are given by name, items and keys in AttributeValues. ``ConsistentRead`` has no effect: the unit's isolation
    decides. Each method lists the parameters that it accepts; any other one, such as those that
    expressions have replaced (``Expected``, ``AttributeUpdates``, ``ConditionalOperator``), is refused by name.

    Every method raises ``InvalidUnitRequest``, ``TableNotFound`` and what the corresponding method of the unit raises.
    A condition that does not hold raises ``ConditionFailed`` at once.
    """

    def __init__(self, verbs: LowLevelVerbs, follow: Callable[[ForkingSteps[Reply]], Reply]) -> None:
        self._verbs = verbs
        self._follow = follow

    def get_item(self, **parameters: Any) -> Reply:
        """An item, with the unit's own writes.

        Args:
            parameters: ``TableName``, ``Key``; ``ProjectionExpression``, ``ExpressionAttributeNames``,
                ``ConsistentRead``.

        Returns:
            ``{"Item": ...}``, or ``{}`` if there is none.
        """
        return self._follow(self._verbs.get_item(parameters))

    def transact_get_items(self, **parameters: Any) -> Reply:
        """Up to 100 items of one instant.

        Args:
            parameters: ``TransactItems``: a list of ``{"Get": {...}}`` with ``TableName``, ``Key``,
                ``ProjectionExpression`` and ``ExpressionAttributeNames``.

        Returns:
            ``{"Responses": [...]}``, in the order of the items; ``{}`` for an item that does not exist.
        """
        return self._follow(self._verbs.transact_get_items(parameters))

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
        return self._follow(self._verbs.query(parameters))

    def put_item(self, **parameters: Any) -> Reply:
        """Put an item; it replaces the item with the same key, if there is one.

        Args:
            parameters: ``TableName``, ``Item``; ``ConditionExpression``, ``ExpressionAttributeNames``,
                ``ExpressionAttributeValues``, ``ReturnValues`` (``NONE``, ``ALL_OLD``).

        Returns:
            ``{"Attributes": ...}`` if they were asked for and there are any, else ``{}``.
        """
        return self._follow(self._verbs.put_item(parameters))

    def update_item(self, **parameters: Any) -> Reply:
        """Update an item, or create it if it does not exist.

        Args:
            parameters: ``TableName``, ``Key``, ``UpdateExpression``; ``ConditionExpression``,
                ``ExpressionAttributeNames``, ``ExpressionAttributeValues``, ``ReturnValues`` (``NONE``, ``ALL_OLD``,
                ``UPDATED_OLD``, ``ALL_NEW``, ``UPDATED_NEW``).

        Returns:
            As for ``put_item``.
        """
        return self._follow(self._verbs.update_item(parameters))

    def delete_item(self, **parameters: Any) -> Reply:
        """Delete an item, if there is one.

        Args:
            parameters: ``TableName``, ``Key``; the others as for ``put_item``, and so is the reply.
        """
        return self._follow(self._verbs.delete_item(parameters))
