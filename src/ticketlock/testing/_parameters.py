"""The parameters of requests. Any other one is an error: a test must not pass because one was ignored."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from botocore.exceptions import ParamValidationError

_PLACEHOLDERS = ("ExpressionAttributeNames", "ExpressionAttributeValues")
_CONDITION = ("ConditionExpression", *_PLACEHOLDERS, "ReturnValuesOnConditionCheckFailure")
_PAGE = ("Limit", "ExclusiveStartKey", "ConsistentRead", "FilterExpression", "ProjectionExpression", "Select")

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "PutItem": ("TableName", "Item"),
    "UpdateItem": ("TableName", "Key"),
    "DeleteItem": ("TableName", "Key"),
    "GetItem": ("TableName", "Key"),
    "Query": ("TableName", "KeyConditionExpression"),
    "Scan": ("TableName",),
    "TransactWriteItems": ("TransactItems",),
    "TransactGetItems": ("TransactItems",),
    "BatchGetItem": ("RequestItems",),
    "KeysAndAttributes": ("Keys",),
    "BatchWriteItem": ("RequestItems",),
    "CreateTable": ("TableName", "AttributeDefinitions", "KeySchema"),
    "DescribeTable": ("TableName",),
    "UpdateTable": ("TableName", "VectorIndexUpdates"),
    "DeleteTable": ("TableName",),
    "DescribeTimeToLive": ("TableName",),
    "UpdateTimeToLive": ("TableName", "TimeToLiveSpecification"),
    # Of an action of a transaction.
    "Put": ("TableName", "Item"),
    "Update": ("TableName", "Key", "UpdateExpression"),
    "Delete": ("TableName", "Key"),
    "ConditionCheck": ("TableName", "Key", "ConditionExpression"),
    "TransactGetItem": ("Get",),
    "Get": ("TableName", "Key"),
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "PutItem": (*_CONDITION, "ReturnValues"),
    "UpdateItem": (*_CONDITION, "ReturnValues", "UpdateExpression"),
    "DeleteItem": (*_CONDITION, "ReturnValues"),
    "GetItem": ("ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"),
    "KeysAndAttributes": ("ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"),
    "Query": (*_PAGE, *_PLACEHOLDERS, "ScanIndexForward"),
    "Scan": (*_PAGE, *_PLACEHOLDERS, "Segment", "TotalSegments"),
    "TransactWriteItems": ("ClientRequestToken",),
    "CreateTable": ("BillingMode", "VectorIndexes"),
    "UpdateTable": ("AttributeDefinitions",),
    "Put": _CONDITION,
    "Update": _CONDITION,
    "Delete": _CONDITION,
    "ConditionCheck": _CONDITION,
    "Get": ("ProjectionExpression", "ExpressionAttributeNames"),
}
_CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "PutItem": {"ReturnValues": ("NONE", "ALL_OLD")},
    "UpdateItem": {"ReturnValues": ("NONE", "ALL_OLD", "ALL_NEW")},
    "DeleteItem": {"ReturnValues": ("NONE", "ALL_OLD")},
}
_CHOICES_OF_ALL: Mapping[str, tuple[str, ...]] = {
    "ReturnValuesOnConditionCheckFailure": ("NONE", "ALL_OLD"),
    "Select": ("ALL_ATTRIBUTES", "SPECIFIC_ATTRIBUTES", "COUNT"),
}


@cache
def _asked(operation: str) -> tuple[tuple[str, ...], frozenset[str], Mapping[str, tuple[str, ...]]]:
    """The required and the optional parameters of an operation, and the choices for the values of some."""
    required = _REQUIRED[operation]
    known = frozenset({*required, *_OPTIONAL.get(operation, ())})
    return required, known, {**_CHOICES_OF_ALL, **_CHOICES.get(operation, {})}


def check(operation: str, parameters: Mapping[str, Any]) -> None:
    """Refuse missing and unknown parameters.

    Raises:
        ParamValidationError: a parameter is missing.
        NotImplementedError: a parameter, or its value, is not known.
    """
    required, known, choices = _asked(operation)
    for missing in (name for name in required if name not in parameters):
        raise ParamValidationError(report=f'Missing required parameter in input: "{missing}"')
    if not parameters.keys() <= known:
        name = min(parameters.keys() - known)
        raise NotImplementedError(f"MemoryDynamoDB does not know the parameter {name} of {operation}")
    for name, value in parameters.items():
        if name in choices and value not in choices[name]:
            raise NotImplementedError(f"MemoryDynamoDB does not know {name}={value!r} of {operation}")
