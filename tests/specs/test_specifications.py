"""The specifications in spec/: every promise holds in each model, and no condition can be left out."""

import re

import pytest
from specs.models import TABLES, WHOLE, Needed
from specs.tlc import SPECIFICATIONS, Model, check, is_here

from ticketlock.locks import _conditions as of_locks
from ticketlock.units import _conditions as of_units

with_tlc = [
    pytest.mark.verify("TLC searches for some minutes"),
    pytest.mark.skipif(not is_here(), reason="TLC needs Java, and Maven, which installs it"),
]


def named_in(module: str) -> set[str]:
    """The conditions that a specification says the meaning of."""
    text = (SPECIFICATIONS / f"{module}.tla").read_text()
    return set(re.findall(r'\bc = "(\w+)"', text)) | set(re.findall(r'"(\w+)" \\notin Without', text))


@pytest.mark.parametrize("module", TABLES)
def test_each_condition_of_a_specification_is_one_of_the_code_and_has_a_variant_without_it(module: str) -> None:
    names = named_in(module)
    assert names == {each.condition for each in TABLES[module][1]}
    code = of_units if module == "UnitTables" else of_locks
    assert [name for name in names if not (hasattr(code, name) or hasattr(code, name.lower()))] == []


def test_each_condition_of_locks_is_specified() -> None:
    code = {name for name, text in vars(of_locks).items() if isinstance(text, str) and name.isupper()}
    specified = {each.condition for module in ("LockTable", "Permits", "Session") for each in TABLES[module][1]}
    assert code | {"EXPIRED_HOLDER_AS_SEEN"} == specified


@pytest.mark.parametrize("model", WHOLE, ids=lambda model: model.name)
@pytest.mark.timeout(1_200)
class TestEveryState:
    pytestmark = with_tlc

    def test_every_promise_holds_in_every_state_of_a_model(self, model: Model) -> None:
        result = check(model, workers=2)
        assert result.broken is None, result.trace


@pytest.mark.parametrize(
    "needed", [each for _, conditions in TABLES.values() for each in conditions], ids=lambda each: each.condition
)
@pytest.mark.timeout(600)
class TestLeftOut:
    pytestmark = with_tlc

    def test_without_a_condition_a_promise_is_broken(self, needed: Needed) -> None:
        assert check(needed.model, needed.condition).broken == needed.breaks
