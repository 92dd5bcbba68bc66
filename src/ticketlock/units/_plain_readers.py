"""For plain readers of tables that units write: items without the attributes of units, and no pending inserts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boto3.dynamodb.conditions import Attr, ConditionBase

from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._marks import INSERT, Marks
from ticketlock.units._values import PYTHON


@dataclass(frozen=True, slots=True)
class Visible:
    """The filter of a Query or a Scan that leaves out pending inserts of units.

    Attributes:
        condition: for boto3's Table resource: ``FilterExpression=units.VISIBLE.condition``, with ``&`` beside a filter
            of your own.
        parameters: for the low-level API, ``**units.VISIBLE.parameters``: ``FilterExpression``,
            ``ExpressionAttributeNames`` and ``ExpressionAttributeValues``, to be merged with your own.
    """

    condition: ConditionBase
    parameters: Mapping[str, Any]


def visible(marks: Marks) -> Visible:
    """The filter for these marks."""
    is_whole = Attr(marks.version).exists() | Attr(marks.mark).not_exists()
    condition = is_whole | Attr(f"{marks.mark}.kind").ne(INSERT)
    phrase = PYTHON.condition(condition)
    parameters = {
        "FilterExpression": phrase.text,
        "ExpressionAttributeNames": dict(phrase.names),
        "ExpressionAttributeValues": dict(phrase.values),
    }
    return Visible(condition, parameters)


def clean(marks: Marks, item: Any) -> dict[str, Any] | None:
    """An item without our attributes; None for the placeholder of a pending insert.

    Raises:
        InvalidUnitRequest: ``item`` is no mapping.
    """
    if not isinstance(item, Mapping) or not all(isinstance(name, str) for name in item):
        raise InvalidUnitRequest("item", item, "a mapping of attribute names to values")
    return None if marks.is_placeholder(item) else marks.without(item)
