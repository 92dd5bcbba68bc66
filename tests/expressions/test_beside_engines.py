"""The evaluator beside the engines: random expressions on random items have the same answer from both.

Where an engine differs from AWS's documentation, `test_where_engines_differ.py` shows it; what of it random expressions
meet is left out here.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from expressions.beside import Answers, Beside, Broken, Refused
from expressions.written import conditions, items, projections, updates, written
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kit.engines import Engine

from ticketlock._expressions._evaluated import Expressions

pytestmark = pytest.mark.shows("DynamoDB's statements")

EXAMPLES = [40, pytest.param(600, marks=pytest.mark.verify("a minute: forty of them are in `make test`"))]


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


def compared(engine: Engine, strategy: Any, kind: str, examples: int) -> Counter[str]:
    """How often both answered what."""
    beside, differences = Beside(engine), DIFFERENCES.get(engine.name, Differences())
    answers: Counter[str] = Counter()
    requests: st.SearchStrategy[Any] = strategy.map(lambda pieces: written(kind, pieces))
    # The seed is fixed, so a failure can be repeated everywhere; it is shown unshrunk: shrinking takes minutes.
    chosen = settings(max_examples=examples, derandomize=True, database=None, phases=[Phase.generate])

    @chosen
    @given(items(), requests)
    def each(item: Any, request: Any) -> None:
        found = beside.ask(item, request)
        if found.are_alike():
            answers["item" if isinstance(found.ours, dict) else str(found.ours).partition("(")[0]] += 1
        else:
            assert differences.explain(found), found

    each()
    return answers


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_condition_is_true_of_the_same_items(engine: Engine, examples: int) -> None:
    answers = compared(engine, conditions, "ConditionExpression", examples)
    assert min(answers["True"], answers["False"]) > examples / 20


@pytest.mark.parametrize("examples", EXAMPLES)
def test_an_update_makes_the_same_of_an_item(engine: Engine, examples: int) -> None:
    answers = compared(engine, updates(), "UpdateExpression", examples)
    assert min(answers["item"], answers["Refused"]) > examples / 10


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_projection_shows_the_same_of_an_item(engine: Engine, examples: int) -> None:
    answers = compared(engine, projections, "ProjectionExpression", examples)
    assert answers["item"] > examples / 4
