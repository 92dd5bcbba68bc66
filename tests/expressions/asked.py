"""What the tests ask of the evaluator, in Python's own values."""

import re
from typing import Any

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import canonical_item

Item = dict[str, dict[str, Any]]


def wire(value: Any) -> dict[str, Any]:
    """A value as an AttributeValue; one that is an AttributeValue already stays."""
    match value:
        case bool():
            return {"BOOL": value}
        case None:
            return {"NULL": True}
        case int():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case bytes():
            return {"B": value}
        case list():
            return {"L": [wire(each) for each in value]}
        case set():
            (kind,) = {next(iter(wire(each))) for each in value}
            return {f"{kind}S": [wire(each)[kind] for each in value]}
        case dict():
            return {"M": {name: wire(each) for name, each in value.items()}}
    raise TypeError(value)


def item_of(**attributes: Any) -> Item:
    return canonical_item({name: wire(value) for name, value in attributes.items()})


def expressions(values: dict[str, Any], names: dict[str, str] | None = None, **texts: str) -> Expressions:
    request: dict[str, Any] = dict(texts)
    if values:
        request["ExpressionAttributeValues"] = {f":{name}": wire(value) for name, value in values.items()}
    if names:
        request["ExpressionAttributeNames"] = {f"#{name}": stands_for for name, stands_for in names.items()}
    return Expressions(request)


def with_values(kind: str, text: str, values: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request: an expression, and those of the values that it uses."""
    used = {name: values[name] for name in re.findall(r":\w+", text) if name in values}
    return {kind: text, **({"ExpressionAttributeValues": used} if used else {})}


def holds(condition: str, item: Item | None = None, **values: Any) -> bool:
    return expressions(values, ConditionExpression=condition).condition_holds(item)


def updated(update: str, item: Item | None = None, **values: Any) -> Item | None:
    """The item afterwards, without its key."""
    key = item_of(pk="order-42")
    found = ItemUpdate(expressions(values, UpdateExpression=update), ("pk",)).applied_to(
        key | item if item is not None else None, key
    )
    return None if found is None else {name: value for name, value in found.items() if name != "pk"}


def projected(projection: str, item: Item) -> Item:
    return expressions({}, ProjectionExpression=projection).projected(item)


def nested(levels: int) -> dict[str, Any]:
    """A value of so many levels: a text in maps."""
    value: dict[str, Any] = {"S": "leaf"}
    for _ in range(levels - 1):
        value = {"M": {"n": value}}
    return value
