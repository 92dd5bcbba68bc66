"""A DynamoDB that checks requests against a policy, by AWS's pages; the emulators check no conditions.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from botocore.exceptions import ClientError
from kit.awaited import Sending

from ticketlock.testing import MemoryDynamoDB

Statement = Mapping[str, Any]
Context = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Asked:
    """One action that a request needs, and the condition keys that DynamoDB provides for it."""

    action: str
    context: Context = field(default_factory=dict)


def asked_by(operation: str, parameters: Mapping[str, Any]) -> Iterator[Asked]:
    """What a call of a client needs; a transaction needs the action of each of its writes."""
    if operation == "transact_write_items":
        for item in parameters["TransactItems"]:
            ((kind, one),) = item.items()
            action = "ConditionCheckItem" if kind == "ConditionCheck" else f"{kind}Item"
            yield Asked(f"dynamodb:{action}", {"dynamodb:LeadingKeys": [_leading_key(one)]})
        return
    context: dict[str, Sequence[str]] = {}
    if operation != "scan":
        context["dynamodb:LeadingKeys"] = [_leading_key(parameters)]
    if names := _attributes(parameters):
        context["dynamodb:Attributes"] = sorted(names)
    if "Select" in parameters:
        context["dynamodb:Select"] = [parameters["Select"]]
    yield Asked("dynamodb:" + operation.title().replace("_", ""), context)


# No value (:me), nothing nested (a.b, a[0]), no function (size(a)): a name, or the placeholder of one (#me).
_NAME = re.compile(r"(?<![:#\w.\[])(#\w+|[A-Za-z_]\w*)(?!\w|\s*\()")
_WORDS = frozenset({"ADD", "AND", "BETWEEN", "DELETE", "IN", "NOT", "OR", "REMOVE", "SET"})
_OLD_PARAMETERS = ("AttributesToGet", "AttributeUpdates", "Expected", "KeyConditions", "QueryFilter", "ScanFilter")


def _attributes(parameters: Mapping[str, Any]) -> set[str]:
    """The attributes that a request accesses: those at the top level that any of its parameters names."""
    aliases = parameters.get("ExpressionAttributeNames", {})
    expressions = [text for name, text in parameters.items() if name.endswith("Expression")]
    named = {aliases.get(name, name) for text in expressions for name in _NAME.findall(text)}
    others = (set(parameters.get(name, ())) for name in ("Key", "Item", *_OLD_PARAMETERS))
    return named.union(*others) - _WORDS


def _leading_key(parameters: Mapping[str, Any]) -> str:
    found = parameters.get("Key") or parameters.get("Item")
    key = found["pk"] if found else parameters["ExpressionAttributeValues"][":partition"]
    return str(key["S"])


def allows(statements: Sequence[Statement], asked: Asked) -> bool:
    """Whether a statement allows it; our policies have no Deny."""
    return any(
        asked.action in listed(statement["Action"])
        and all(
            _holds(operator, values, asked.context.get(key))
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
        for statement in statements
    )


def _holds(operator: str, allowed: Any, given: Sequence[str] | None) -> bool:
    patterns = listed(allowed)
    match operator:
        case "Null":
            return (given is None) == (patterns == ["true"])
        # Without values it is true.
        case "ForAllValues:StringLike":
            return all(any(_like(value, each) for each in patterns) for value in given or ())
        case "ForAllValues:StringNotLike":
            return not any(_like(value, each) for value in given or () for each in patterns)
        case "ForAllValues:StringEquals":
            return set(given or ()) <= set(patterns)
        case "StringEquals":
            return given is not None and given[0] in patterns
    raise NotImplementedError(operator)


def _like(value: str, pattern: str) -> bool:
    parts = (".*" if sign == "*" else "." if sign == "?" else re.escape(sign) for sign in pattern)
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def listed(value: Any) -> list[str]:
    """One text, or several, of a policy."""
    return value if isinstance(value, list) else [value]


class Guarded(Sending):
    """A client of a DynamoDB in memory with these permissions, and no others.

    Attributes:
        refused: what was refused.
    """

    def __init__(self, memory: MemoryDynamoDB, statements: Sequence[Statement]) -> None:
        def call(operation: str, parameters: Mapping[str, Any]) -> Any:
            missing = [each for each in asked_by(operation, parameters) if not allows(statements, each)]
            self.refused += missing
            if missing:
                raise _denied(operation, missing[0].action)
            return getattr(memory, operation)(**parameters)

        super().__init__(memory, call)
        self.refused: list[Asked] = []


def _denied(operation: str, action: str) -> ClientError:
    error: Any = {"Code": "AccessDeniedException", "Message": f"User is not authorized to perform: {action}"}
    metadata: Any = {"HTTPStatusCode": 400, "HTTPHeaders": {"date": formatdate(usegmt=True)}}
    return ClientError({"Error": error, "ResponseMetadata": metadata}, operation)
