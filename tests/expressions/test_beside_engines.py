"""The evaluator beside the engines: random expressions on random items have the same answer from both.

Where an engine differs from AWS's documentation, `test_where_engines_differ.py` shows it; what of it random expressions
meet is left out here.
"""

from collections import Counter
from typing import Any

import pytest
from expressions.beside import DIFFERENCES, Answers, Beside, Differences, ours, with_names
from expressions.written import conditions, items, projections, updates, written
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kit.engines import Engine, engine_names, first_on

pytestmark = pytest.mark.shows("DynamoDB's statements")

FEW, MANY = 40, 400
LATER = pytest.mark.verify("a minute: forty of them are in `make test`")
EXAMPLES = pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=LATER)])
_ENGINES = first_on("memory", engine_names())
ON_EACH_ENGINE = pytest.mark.parametrize(
    ("engine", "examples"),
    [
        *((*each.values, FEW) for each in _ENGINES if not each.marks),
        *(pytest.param(*each.values, MANY, marks=LATER) for each in _ENGINES),
    ],
    indirect=["engine"],
)


def compared(engine: Engine, strategy: Any, kind: str, examples: int) -> Counter[str]:
    """How often both answered what: a test asks that each answer occurs often enough to have been compared."""
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


@EXAMPLES
@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("ConditionExpression", conditions), ("UpdateExpression", updates()), ("ProjectionExpression", projections)],
)
def test_each_attribute_may_be_written_as_a_name(kind: str, strategy: Any, examples: int) -> None:
    @settings(max_examples=examples, derandomize=True, database=None, phases=[Phase.generate])
    @given(items(), strategy.map(lambda pieces: written(kind, pieces)))
    def each(item: Any, request: Any) -> None:
        found = Answers(request, item, ours(request, item), ours(with_names(request), item))
        assert found.are_alike(), found

    each()


@ON_EACH_ENGINE
def test_a_condition_is_true_of_the_same_items(engine: Engine, examples: int) -> None:
    answers = compared(engine, conditions, "ConditionExpression", examples)
    assert min(answers["True"], answers["False"]) > examples / 20


@ON_EACH_ENGINE
def test_an_update_makes_the_same_of_an_item(engine: Engine, examples: int) -> None:
    answers = compared(engine, updates(), "UpdateExpression", examples)
    assert min(answers["item"], answers["Refused"]) > examples / 10


@ON_EACH_ENGINE
def test_a_projection_shows_the_same_of_an_item(engine: Engine, examples: int) -> None:
    answers = compared(engine, projections, "ProjectionExpression", examples)
    assert answers["item"] > examples / 4
