"""The operations that the service in memory has, their parameters, and the values that these may have.

The table of docs/python.md is generated from this.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session

from ticketlock.testing._refusals import Refused, invalid

_PLACEHOLDERS = ("ExpressionAttributeNames", "ExpressionAttributeValues")
_CONDITION = ("ConditionExpression", *_PLACEHOLDERS, "ReturnValuesOnConditionCheckFailure")
_BILL = ("ReturnConsumedCapacity", "ReturnItemCollectionMetrics")
_PAGE = (
    "ReturnConsumedCapacity",
    "IndexName",
    "Limit",
    "ExclusiveStartKey",
    "ConsistentRead",
    "FilterExpression",
    "ProjectionExpression",
    "Select",
    *_PLACEHOLDERS,
)
SETTINGS = (
    "BillingMode",
    "DeletionProtectionEnabled",
    "OnDemandThroughput",
    "ProvisionedThroughput",
    "SSESpecification",
    "StreamSpecification",
    "TableClass",
    "WarmThroughput",
)
"""Of a table: they change no answer to reads and writes."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "BatchGetItem": ("RequestItems",),
    "BatchWriteItem": ("RequestItems",),
    "CreateTable": ("TableName", "AttributeDefinitions", "KeySchema"),
    "DeleteItem": ("TableName", "Key"),
    "DeleteTable": ("TableName",),
    "DescribeContinuousBackups": ("TableName",),
    "DescribeTable": ("TableName",),
    "DescribeTimeToLive": ("TableName",),
    "GetItem": ("TableName", "Key"),
    "ListTables": (),
    "ListTagsOfResource": ("ResourceArn",),
    "PutItem": ("TableName", "Item"),
    "Query": ("TableName",),
    "Scan": ("TableName",),
    "TagResource": ("ResourceArn", "Tags"),
    "TransactGetItems": ("TransactItems",),
    "TransactWriteItems": ("TransactItems",),
    "UntagResource": ("ResourceArn", "TagKeys"),
    "UpdateContinuousBackups": ("TableName", "PointInTimeRecoverySpecification"),
    "UpdateItem": ("TableName", "Key"),
    "UpdateTable": ("TableName",),
    "UpdateTimeToLive": ("TableName", "TimeToLiveSpecification"),
}
"""The operations, with the parameters that they need."""
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "BatchGetItem": ("ReturnConsumedCapacity",),
    "BatchWriteItem": _BILL,
    "CreateTable": (*SETTINGS, "GlobalSecondaryIndexes", "LocalSecondaryIndexes", "Tags", "VectorIndexes"),
    "DeleteItem": (*_CONDITION, *_BILL, "ReturnValues"),
    "GetItem": ("ConsistentRead", "ExpressionAttributeNames", "ProjectionExpression", "ReturnConsumedCapacity"),
    "ListTables": ("ExclusiveStartTableName", "Limit"),
    "ListTagsOfResource": ("NextToken",),
    "PutItem": (*_CONDITION, *_BILL, "ReturnValues"),
    "Query": (*_PAGE, "KeyConditionExpression", "ScanIndexForward"),
    "Scan": (*_PAGE, "Segment", "TotalSegments"),
    "TransactGetItems": ("ReturnConsumedCapacity",),
    "TransactWriteItems": (*_BILL, "ClientRequestToken"),
    "UpdateItem": (*_CONDITION, *_BILL, "ReturnValues", "UpdateExpression"),
    "UpdateTable": (*SETTINGS, "AttributeDefinitions", "GlobalSecondaryIndexUpdates", "VectorIndexUpdates"),
}
"""Their other parameters."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "ReturnConsumedCapacity": ("INDEXES", "TOTAL", "NONE"),
    "ReturnItemCollectionMetrics": ("SIZE", "NONE"),
    "ReturnValues": ("ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"),
    "ReturnValuesOnConditionCheckFailure": ("ALL_OLD", "NONE"),
    "ScalarAttributeType": ("B", "N", "S"),
    "Select": ("SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"),
}
"""In the order in which the service lists them."""
_LEAST = {"Limit": 1, "Segment": 0, "TotalSegments": 1}
_MOST = {"Segment": 999_999, "TotalSegments": 1_000_000}
_NAME = re.compile(r"[a-zA-Z0-9_.-]+")

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/"
"""How the ARNs of all tables begin."""


@cache
def service_model() -> Any:
    """DynamoDB's API, as the SDK describes it."""
    return botocore.session.get_session().get_service_model("dynamodb")


def shape_of(operation: str) -> Any:
    """The shape of the parameters of an operation, or of a structure within."""
    model = service_model()
    return model.operation_model(operation).input_shape if operation in REQUIRED else model.shape_for(operation)


def bare_name(name: str) -> str:
    """The name of a table that is given by its name or its ARN."""
    return name.removeprefix(ARN)


def not_known(what: str) -> NotImplementedError:
    """What is raised for a part of the API that the service in memory does not have."""
    return NotImplementedError(f"MemoryDynamoDB does not know {what}")


@cache
def known_of(operation: str) -> frozenset[str]:
    """The parameters of an operation that are known here."""
    return frozenset((*REQUIRED[operation], *OPTIONAL.get(operation, ())))


def check_known(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse an operation, and parameters of DynamoDB's, that are not known here."""
    if operation not in REQUIRED:
        raise not_known(operation)
    for name in sorted(parameters.keys() - known_of(operation)):
        if name in shape_of(operation).members:
            raise not_known(f"the parameter {name} of {operation}")


def check_values(parameters: Mapping[str, Any], operation: str | None = None) -> None:
    """Refuse what the service refuses whatever it has stored: of an operation on items, or of a structure within."""
    if "TableName" in parameters:
        check_name("tableName", parameters["TableName"], least=1)
    if not parameters.keys().isdisjoint(_CHOICES):
        _refuse_all(
            _said(_camel(name), _one_of(choices), parameters[name])
            for name, choices in _CHOICES.items()
            if name in parameters and parameters[name] not in choices
        )
    for name, least in _LEAST.items():
        if name in parameters:
            value = parameters[name]
            if value < least:
                if operation == "Query":
                    raise constraint(name, _at_least("value", least))
                raise constraint(_camel(name), _at_least("value", least), value)
            if name in _MOST and value > _MOST[name]:
                raise constraint(_camel(name), _at_most("value", _MOST[name]), value)


def check_count(where: str, count: int, most: int, *shown: Any) -> None:
    """Refuse no elements, or too many.

    Args:
        shown: the elements, if the service repeats them.
    """
    if count < 1:
        raise constraint(where, _at_least("length", 1), *shown)
    if count > most:
        raise constraint(where, _at_most("length", most), *shown)


def check_placeholders(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse names and values of placeholders if there is no expression that could have them."""
    expressions = [name for name in shape_of(operation).members if name.endswith("Expression")]
    with_values = [name for name in expressions if name != "ProjectionExpression"]
    wrong = "can only be specified when using expressions"
    if "ExpressionAttributeNames" in parameters and parameters.keys().isdisjoint(expressions):
        raise invalid(f"ExpressionAttributeNames {wrong}")
    if "ExpressionAttributeValues" in parameters and parameters.keys().isdisjoint(with_values):
        missing = f"{' and '.join(with_values)} {'is' if len(with_values) == 1 else 'are'} null"
        raise invalid(f"ExpressionAttributeValues {wrong}: {missing}")


def check_members(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse values that the SDK sends, and whose length, pattern or choice the service refuses."""
    _refuse_all(_broken(shape_of(operation), parameters, ""))


def _refuse_all(broken: Iterable[str]) -> None:
    """Tell all that is wrong, in one error."""
    found = list(broken)
    if found:
        counted = f"{len(found)} validation error{'s' if len(found) > 1 else ''} detected"
        raise invalid(f"{counted}: {'; '.join(found)}")


def _broken(shape: Any, value: Any, where: str) -> Iterator[str]:
    """What is wrong with a value, in the words of the service."""
    limits = shape.metadata
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if name in value:
                yield from _broken(member, value[name], f"{where}.{_camel(name)}".lstrip("."))
    elif shape.type_name == "list":
        for number, member in enumerate(value, 1):
            yield from _broken(shape.member, member, f"{where}.{number}.member")
    choices = _CHOICES.get(shape.name) or tuple(getattr(shape, "enum", ()))
    if choices and value not in choices:
        yield _said(where, _one_of(choices), value)
    kind = "length" if shape.type_name in ("list", "string") else "value"
    if kind == "length" or shape.type_name in ("integer", "long"):
        size = len(value) if kind == "length" else value
        if size < limits.get("min", size):
            yield _said(where, _at_least(kind, limits["min"]), value)
        if size > limits.get("max", size):
            yield _said(where, _at_most(kind, limits["max"]), value)
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        yield _said(where, f"satisfy regular expression pattern: {limits['pattern']}", value)


def check_name(where: str, name: str, least: int = 3, *, may_be_foreign: bool = True) -> None:
    """Refuse what cannot be the name, or the ARN, of a table.

    Args:
        least: its least length. https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
        may_be_foreign: whether it may be the ARN of a table elsewhere.
    """
    bare = bare_name(name)
    if may_be_foreign and bare.startswith("arn:"):
        return
    if len(bare) < least:
        raise constraint(where, _at_least("length", least), name)
    if len(bare) > 255:
        raise constraint(where, _at_most("length", 255), name)
    if not _NAME.fullmatch(bare):
        raise constraint(where, f"satisfy regular expression pattern: {_NAME.pattern}", name)


def constraint(where: str, must: str, *shown: Any) -> Refused:
    """A value does not satisfy a constraint.

    Args:
        shown: the value, if the service repeats it.
    """
    return invalid(f"1 validation error detected: {_said(where, must, *shown)}")


def _said(where: str, must: str, *shown: Any) -> str:
    value = "".join(f"'{each}' " for each in shown)
    return f"Value {value}at '{where}' failed to satisfy constraint: Member must {must}"


def _at_least(kind: str, least: int) -> str:
    return f"have {kind} greater than or equal to {least}"


def _at_most(kind: str, most: int) -> str:
    return f"have {kind} less than or equal to {most}"


def _one_of(choices: tuple[str, ...]) -> str:
    return f"satisfy enum value set: [{', '.join(choices)}]"


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]
