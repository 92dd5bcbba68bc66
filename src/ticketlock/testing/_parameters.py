"""The operations that the service in memory has, their parameters, and the values that these may have.

The table of docs/python.md is generated from this.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.exceptions import ParamValidationError
from botocore.validate import ParamValidator

from ticketlock.testing._refusals import invalid

_PLACEHOLDERS = ("ExpressionAttributeNames", "ExpressionAttributeValues")
_CONDITION = ("ConditionExpression", *_PLACEHOLDERS, "ReturnValuesOnConditionCheckFailure")
_BILL = ("ReturnConsumedCapacity", "ReturnItemCollectionMetrics")
_PROJECTION = ("ProjectionExpression", "ExpressionAttributeNames")
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
    "Query": ("TableName", "KeyConditionExpression"),
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
    "GetItem": ("ConsistentRead", *_PROJECTION, "ReturnConsumedCapacity"),
    "ListTables": ("ExclusiveStartTableName", "Limit"),
    "ListTagsOfResource": ("NextToken",),
    "PutItem": (*_CONDITION, *_BILL, "ReturnValues"),
    "Query": (*_PAGE, "ScanIndexForward"),
    "Scan": (*_PAGE, "Segment", "TotalSegments"),
    "TransactGetItems": ("ReturnConsumedCapacity",),
    "TransactWriteItems": (*_BILL, "ClientRequestToken"),
    "UpdateItem": (*_CONDITION, *_BILL, "ReturnValues", "UpdateExpression"),
    "UpdateTable": (*SETTINGS, "AttributeDefinitions", "GlobalSecondaryIndexUpdates", "VectorIndexUpdates"),
}
"""Their other parameters."""
_WITHIN: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "KeysAndAttributes": (("Keys",), ("ConsistentRead", *_PROJECTION)),
    "PutRequest": (("Item",), ()),
    "DeleteRequest": (("Key",), ()),
    "Put": (("TableName", "Item"), _CONDITION),
    "Update": (("TableName", "Key", "UpdateExpression"), _CONDITION),
    "Delete": (("TableName", "Key"), _CONDITION),
    "ConditionCheck": (("TableName", "Key", "ConditionExpression"), _CONDITION),
    "TransactGetItem": (("Get",), ()),
    "Get": (("TableName", "Key"), _PROJECTION),
}
"""The same of structures within parameters."""
_SETTLED_BY_THE_MODEL = frozenset(
    operation for operation in REQUIRED if operation.endswith(("Table", "Tables", "Resource", "Backups", "ToLive"))
)
"""The operations on tables: they are few, so that their parameters are checked in full."""

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("ConsistentRead", "ScanIndexForward"), bool),
    **dict.fromkeys(("Limit", "Segment", "TotalSegments"), int),
    **dict.fromkeys(("ExclusiveStartKey", "Get", "Item", "Key", "RequestItems", *_PLACEHOLDERS), dict),
    **dict.fromkeys(("Keys", "TransactItems"), (list, tuple)),
}
"""Of what type a parameter of an operation on items is; all others are texts."""
_OLD = ("ALL_OLD", "NONE")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "ReturnConsumedCapacity": ("INDEXES", "NONE", "TOTAL"),
    "ReturnItemCollectionMetrics": ("NONE", "SIZE"),
    "ReturnValues": ("ALL_NEW", "ALL_OLD", "NONE", "UPDATED_NEW", "UPDATED_OLD"),
    "ReturnValuesOnConditionCheckFailure": _OLD,
    "Select": ("ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "COUNT", "SPECIFIC_ATTRIBUTES"),
}
_LEAST = {"Limit": 1, "Segment": 0, "TotalSegments": 1}
_MOST = {"Segment": 999_999, "TotalSegments": 1_000_000}
_OF_LENGTH = ("Invalid length", "Invalid value")
_NAME = re.compile(r"[a-zA-Z0-9_.-]+")


@cache
def service_model() -> Any:
    """DynamoDB's API, as the SDK describes it."""
    return botocore.session.get_session().get_service_model("dynamodb")


def not_known(what: str) -> NotImplementedError:
    """What is raised for a part of the API that the service in memory does not have."""
    return NotImplementedError(f"MemoryDynamoDB does not know {what}")


@cache
def _asked(shape: str) -> tuple[tuple[str, ...], Mapping[str, type | tuple[type, ...]]]:
    """The required parameters of an operation, or members of a structure; and the types of all."""
    required, optional = _WITHIN.get(shape) or (REQUIRED[shape], OPTIONAL.get(shape, ()))
    return required, {name: _KINDS.get(name, str) for name in (*required, *optional)}


def check(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse what the SDK would not send, and parameters that are not known here.

    Args:
        operation: as the API names it; or a structure within its parameters.

    Raises:
        ParamValidationError: a parameter is missing, has another type, or is none of DynamoDB's.
        NotImplementedError: the service in memory does not know the operation, or the parameter.
    """
    if operation not in REQUIRED and operation not in _WITHIN:
        raise not_known(operation)
    required, kinds = _asked(operation)
    for name in required:
        if name not in parameters:
            raise ParamValidationError(report=f'Missing required parameter in input: "{name}"')
    if not parameters.keys() <= kinds.keys():
        raise _unknown(operation, min(parameters.keys() - kinds.keys()))
    of_tables = operation in _SETTLED_BY_THE_MODEL
    for name, value in parameters.items():
        if not of_tables and (not isinstance(value, kinds[name]) or (value is True and kinds[name] is int)):
            raise ParamValidationError(
                report=f"Invalid type for parameter {name}, value: {value}, type: {type(value)}, "
                f"valid types: {kinds[name]}"
            )
    if of_tables:
        check_types(operation, parameters)


def _unknown(operation: str, name: str) -> Exception:
    if operation in REQUIRED and name not in service_model().operation_model(operation).input_shape.members:
        return ParamValidationError(report=f'Unknown parameter in input: "{name}"')
    return not_known(f"the parameter {name} of {operation}")


def check_types(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse what the SDK would not send, down to the values within values; the service refuses wrong lengths."""
    report = ParamValidator().validate(parameters, service_model().operation_model(operation).input_shape)
    found = [each for each in report.generate_report().splitlines() if not each.startswith(_OF_LENGTH)]
    if found:
        raise ParamValidationError(report="\n".join(found))


def check_values(parameters: Mapping[str, Any]) -> None:
    """Refuse what the service refuses whatever it has stored: of an operation on items, or of a structure within."""
    if "TableName" in parameters:
        check_name("tableName", parameters["TableName"], least=1)
    for name, choices in _CHOICES.items():
        if name in parameters and parameters[name] not in choices:
            raise _constraint(_camel(name), parameters[name], f"satisfy enum value set: [{', '.join(choices)}]")
    for name, least in _LEAST.items():
        if name in parameters:
            if parameters[name] < least:
                raise _constraint(_camel(name), parameters[name], f"have value greater than or equal to {least}")
            if name in _MOST and parameters[name] > _MOST[name]:
                raise _constraint(_camel(name), parameters[name], f"have value less than or equal to {_MOST[name]}")


def check_members(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse values that the SDK sends, and whose length, pattern or choice the service refuses."""
    found = list(_broken(service_model().operation_model(operation).input_shape, parameters, ""))
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
    choices = list(getattr(shape, "enum", ()))
    if choices and value not in choices:
        yield _said(where, value, f"satisfy enum value set: [{', '.join(choices)}]")
    if shape.type_name in ("list", "string"):
        if len(value) < limits.get("min", 0):
            yield _said(where, value, f"have length greater than or equal to {limits['min']}")
        if len(value) > limits.get("max", len(value)):
            yield _said(where, value, f"have length less than or equal to {limits['max']}")
    elif shape.type_name in ("integer", "long"):
        if value < limits.get("min", value):
            yield _said(where, value, f"have value greater than or equal to {limits['min']}")
        if value > limits.get("max", value):
            yield _said(where, value, f"have value less than or equal to {limits['max']}")
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        yield _said(where, value, f"satisfy regular expression pattern: {limits['pattern']}")


def check_name(where: str, name: str, least: int = 3) -> None:
    """Refuse what cannot be the name of a table.

    Args:
        least: its least length. https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
    """
    if name.startswith("arn:"):
        return
    if len(name) < least:
        raise _constraint(where, name, f"have length greater than or equal to {least}")
    if len(name) > 255:
        raise _constraint(where, name, "have length less than or equal to 255")
    if not _NAME.fullmatch(name):
        raise _constraint(where, name, f"satisfy regular expression pattern: {_NAME.pattern}")


def _constraint(where: str, value: Any, must: str) -> Exception:
    return invalid(f"1 validation error detected: {_said(where, value, must)}")


def _said(where: str, value: Any, must: str) -> str:
    return f"Value '{value}' at '{where}' failed to satisfy constraint: Member must {must}"


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]
