"""An engine and the evaluator, asked the same, and how the engines differ from AWS's documentation."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError
from kit.engines import Engine

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import ExpressionInvalid, ItemInvalid, canonical_item

KEY = {"pk": {"S": "order-42"}, "sk": {"S": "default/"}}

_ATTRIBUTE = re.compile(r"(?<![:#\w])[a-z]\w*(?![\w(])")

Answer = Any
"""Whether a condition is true, an item, what is shown of one; or one of these two."""


@dataclass(frozen=True)
class Refused:
    """The request is refused."""

    why: str


@dataclass(frozen=True)
class Broken:
    """The engine answers with an exception of its own."""

    why: str


@dataclass(frozen=True)
class Answers:
    """What was answered to a request about an item."""

    request: dict[str, Any]
    item: dict[str, Any]
    ours: Answer
    theirs: Answer

    def are_alike(self) -> bool:
        """Whether both are the same; of refusals the reasons may differ."""
        return isinstance(self.theirs, type(self.ours)) and (isinstance(self.ours, Refused) or self.ours == self.theirs)


class Beside:
    """Asks the evaluator, and an engine that stores the item first."""

    def __init__(self, engine: Engine) -> None:
        self._client = engine.client()
        self._table = {"TableName": engine.table_name}

    def ask(self, item: dict[str, Any], request: dict[str, Any]) -> Answers:
        """Both answers to a condition, an update or a projection."""
        stored = canonical_item({**item, **KEY})
        self._client.put_item(**self._table, Item=stored)
        asked = {**self._table, "Key": KEY, **request}
        if "ConditionExpression" in request:
            found = _theirs(lambda: bool(self._client.put_item(**self._table, Item=stored, **request)))
        elif "UpdateExpression" in request:
            asked["ReturnValues"] = "ALL_NEW"
            found = _theirs(lambda: canonical_item(self._client.update_item(**asked)["Attributes"]))
        else:
            asked["ConsistentRead"] = True
            found = _theirs(lambda: canonical_item(self._client.get_item(**asked).get("Item", {})))
        return Answers(request, stored, ours(request, stored), found)


def with_names(request: dict[str, Any]) -> dict[str, Any]:
    """The same request, with a ``#name`` for each attribute."""
    names: dict[str, str] = {}

    def named(attribute: re.Match[str]) -> str:
        names[f"#{attribute[0]}"] = attribute[0]
        return f"#{attribute[0]}"

    texts = {kind: _ATTRIBUTE.sub(named, text) for kind, text in request.items() if kind.endswith("Expression")}
    return {**request, **texts, **({"ExpressionAttributeNames": names} if names else {})}


def ours(request: dict[str, Any], stored: dict[str, Any]) -> Answer:
    try:
        expressions = Expressions(request)
        if "ConditionExpression" in request:
            return expressions.condition_holds(stored)
        if "UpdateExpression" in request:
            return ItemUpdate(expressions, tuple(KEY)).applied_to(stored, KEY)
        return expressions.projected(stored)
    except (ExpressionInvalid, ItemInvalid) as error:
        return Refused(error.message)


def _theirs(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        if code == "ConditionalCheckFailedException":
            return False
        return Refused(message) if code == "ValidationException" else Broken(f"{code}: {message}")
    except (AssertionError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        return Broken(repr(error))


# How the engines differ from the documentation, so far as expressions of the tests meet it.


@dataclass(frozen=True)
class Differences:
    """How an engine differs from the documentation.

    Attributes:
        accepts: what it does not refuse, by words of the refusal.
        refuses: what it refuses without need, by words of its refusal.
        equates_absent: whether an attribute that is not there equals another one.
        confuses_elements: whether expressions of elements of a list mean others of them.
        begins_bytes_otherwise: whether ``begins_with`` is something else of bytes.
        breaks: whether it answers some expressions with an exception of its own.
    """

    accepts: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    equates_absent: bool = False
    confuses_elements: bool = False
    begins_bytes_otherwise: bool = False
    breaks: bool = False

    def explain(self, found: Answers) -> bool:
        """Whether answers that are not alike are no news."""
        text = next(iter(found.request.values()))
        return (
            (isinstance(found.ours, Refused) and any(words in found.ours.why for words in self.accepts))
            or (isinstance(found.theirs, Refused) and any(words in found.theirs.why for words in self.refuses))
            or (isinstance(found.theirs, Broken) and self.breaks)
            or (self.equates_absent and "ConditionExpression" in found.request and absent(text, found.item) > 1)
            or (self.confuses_elements and "ConditionExpression" not in found.request and "[" in text)
            or (self.begins_bytes_otherwise and "begins_with" in text and "'B':" in repr(found.request))
        )


_UNCHECKED = (
    "must be distinct",
    "Incorrect operand type",
    "Invalid attribute type name",
    "The BETWEEN operator requires",
)
DIFFERENCES = {
    "moto": Differences(
        begins_bytes_otherwise=True,
        accepts=(*_UNCHECKED, "document paths", "invalid for update"),
        refuses=("invalid for update",),
        equates_absent=True,
        confuses_elements=True,
        breaks=True,
    ),
    "ministack": Differences(
        accepts=(*_UNCHECKED, "document paths", "invalid for update", "incorrect data type"),
        refuses=("operator or function: begins_with",),
        equates_absent=True,
        confuses_elements=True,
    ),
    "dynoxide": Differences(accepts=_UNCHECKED),
}


def absent(text: str, item: dict[str, Any]) -> int:
    """How many different paths of a condition lead nowhere."""
    paths = set(re.findall(r"(?<![:\w.\]])[a-z]+(?:\.[a-z]+|\[\d\])*(?![\w(])", text))
    checks = [Expressions({"ConditionExpression": f"attribute_not_exists({path})"}) for path in paths]
    return sum(check.condition_holds(item) for check in checks)
