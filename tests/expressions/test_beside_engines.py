"""The evaluator beside the engines: whatever is asked of both, random expressions on random items, has one answer.

Where an engine is known to differ from AWS's documentation, `_DIFFERENCES` says how; docs/engines.md tells it.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from expressions.written import conditions, items, projections, updates, written
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kit.engines import Engine

from ticketlock._expressions._errors import ExpressionInvalid, ItemInvalid
from ticketlock._expressions._expressions import Expressions
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import canonical_item

KEY = {"pk": {"S": "order-42"}, "sk": {"S": "default/"}}
EXAMPLES = [40, pytest.param(600, marks=pytest.mark.verify("a minute: forty of them are in `make test`"))]


@dataclass(frozen=True)
class Differences:
    """How an engine differs from the documentation.

    Attributes:
        accepts: what it does not refuse, by words of the refusal.
        refuses: what it refuses without need, by words of its refusal.
        equates_absent: whether an attribute that is not there equals another one.
        mixes_elements: whether elements of one list come in another order, or not side by side.
        breaks: whether it answers some expressions with an exception of its own.
    """

    accepts: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    equates_absent: bool = False
    mixes_elements: bool = False
    breaks: bool = False


_UNCHECKED = ("must be distinct", "Incorrect operand type", "Invalid attribute type name")
_DIFFERENCES = {
    "moto": Differences(
        accepts=(*_UNCHECKED, "document paths", "invalid for update"),
        refuses=("invalid for update",),
        equates_absent=True,
        mixes_elements=True,
        breaks=True,
    ),
    "ministack": Differences(
        accepts=(*_UNCHECKED, "document paths", "invalid for update", "incorrect data type"),
        refuses=("operator or function: begins_with",),
        equates_absent=True,
    ),
}


@dataclass(frozen=True)
class Refused:
    """The request is refused."""

    why: str


class Broken:
    """The engine did not get to an answer."""


Answer = Any


def ours(evaluate: Callable[[], Answer]) -> Answer:
    try:
        return evaluate()
    except (ExpressionInvalid, ItemInvalid) as error:
        return Refused(error.message)


def theirs(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        if code == "ConditionalCheckFailedException":
            return False
        assert code == "ValidationException", (code, message)
        return Refused(message)
    except (AttributeError, TypeError, ValueError, AssertionError, RecursionError, KeyError, IndexError) as error:
        return Broken() if "botocore" not in type(error).__module__ else error


class Beside:
    """Asks an engine and the evaluator the same.

    Attributes:
        answers: how often what was answered, to see that there was something to compare.
    """

    def __init__(self, engine: Engine) -> None:
        self._client = engine.client()
        self._table = {"TableName": engine.table_name}
        self._differs = _DIFFERENCES.get(engine.name, Differences())
        self.answers: Counter[str] = Counter()

    def condition(self, item: dict[str, Any], request: dict[str, Any]) -> None:
        stored = self._stored(item)
        mine = ours(lambda: Expressions(request).condition_holds(stored))
        found = theirs(lambda: bool(self._client.put_item(**self._table, Item=stored, **request)))
        if found != mine and self._differs.equates_absent and absent(request["ConditionExpression"], stored) > 1:
            return
        self._compare(mine, found, request, stored)

    def update(self, item: dict[str, Any], request: dict[str, Any]) -> None:
        stored = self._stored(item)
        mine = ours(lambda: ItemUpdate(Expressions(request), tuple(KEY)).applied_to(stored, KEY))
        asked = {**self._table, "Key": KEY, "ReturnValues": "ALL_NEW", **request}
        found = theirs(lambda: canonical_item(self._client.update_item(**asked)["Attributes"]))
        self._compare(mine, found, request, stored)

    def projection(self, item: dict[str, Any], request: dict[str, Any]) -> None:
        stored = self._stored(item)
        mine = ours(lambda: Expressions(request).projected(stored))
        asked = {**self._table, "Key": KEY, "ConsistentRead": True, **request}
        found = theirs(lambda: canonical_item(self._client.get_item(**asked).get("Item", {})))
        if self._differs.mixes_elements and request["ProjectionExpression"].count("[") > 1:
            return
        self._compare(mine, found, request, stored)

    def _stored(self, item: dict[str, Any]) -> dict[str, Any]:
        stored = canonical_item({**item, **KEY})
        self._client.put_item(**self._table, Item=stored)
        return stored

    def _compare(self, mine: Answer, found: Answer, request: dict[str, Any], item: dict[str, Any]) -> None:
        differs = self._differs
        if isinstance(found, Broken) and differs.breaks:
            return
        if isinstance(mine, Refused) and isinstance(found, Refused):
            self.answers["refused"] += 1
        elif (isinstance(mine, Refused) and any(words in mine.why for words in differs.accepts)) or (
            isinstance(found, Refused) and any(words in found.why for words in differs.refuses)
        ):
            return
        else:
            assert found == mine, (request, item)
            self.answers[str(mine) if isinstance(mine, bool) else "evaluated"] += 1


def absent(text: str, item: dict[str, Any]) -> int:
    """How many different paths of an expression lead nowhere."""
    paths = set(re.findall(r"(?<![:\w.\]])[a-z]+(?:\.[a-z]+|\[\d\])*(?![\w(])", text))
    checks = [Expressions({"ConditionExpression": f"attribute_not_exists({path})"}) for path in paths]
    return sum(check.condition_holds(item) for check in checks)


def for_each(strategy: Any, kind: str, examples: int, ask: Callable[[Any, Any], None]) -> None:
    requests: st.SearchStrategy[Any] = strategy.map(lambda pieces: written(kind, pieces))
    # What is found once is found again, by everybody; a failure is shown as it was met: shrinking takes minutes.
    chosen = settings(max_examples=examples, derandomize=True, database=None, phases=[Phase.generate])

    @chosen
    @given(items(), requests)
    def each(item: Any, request: Any) -> None:
        ask(item, request)

    each()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_condition_is_true_of_the_same_items(engine: Engine, examples: int) -> None:
    beside = Beside(engine)
    for_each(conditions, "ConditionExpression", examples, beside.condition)
    assert beside.answers["True"] > examples / 20
    assert beside.answers["False"] > examples / 20


@pytest.mark.parametrize("examples", EXAMPLES)
def test_an_update_makes_the_same_of_an_item(engine: Engine, examples: int) -> None:
    beside = Beside(engine)
    for_each(updates(), "UpdateExpression", examples, beside.update)
    assert beside.answers["evaluated"] > examples / 10
    assert beside.answers["refused"] > examples / 10


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_projection_shows_the_same_of_an_item(engine: Engine, examples: int) -> None:
    beside = Beside(engine)
    for_each(projections, "ProjectionExpression", examples, beside.projection)
    assert beside.answers["evaluated"] > examples / 4
