"""The specifications in spec/: every promise holds in each model, and no condition can be left out."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import FunctionType, ModuleType

import pytest
from property.specs.histories import WORLDS, Histories, Step, recorded
from property.specs.models import LONGEST, MODELS, TABLES, Needed
from property.specs.tlc import SPECIFICATIONS, Model, check, is_here

from ticketlock.locks import _conditions as of_locks
from ticketlock.units._records import _conditions as of_units

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


@pytest.mark.parametrize(
    ("code", "modules"), [(of_locks, ("LockTable", "Permits", "Session")), (of_units, ("UnitTables",))]
)
def test_each_condition_of_the_code_is_specified(code: ModuleType, modules: Sequence[str]) -> None:
    stated = {name for name, text in vars(code).items() if isinstance(text, str) and text and name.isupper()}
    made = {name.upper() for name, value in vars(code).items() if isinstance(value, FunctionType)}
    assert stated | made == {each.condition for module in modules for each in TABLES[module][1]}


@pytest.mark.parametrize("model", [each for each in MODELS if each not in LONGEST], ids=lambda model: model.name)
@pytest.mark.timeout(1_200)
class TestEveryState:
    pytestmark = with_tlc

    def test_every_promise_holds_in_every_state_that_is_searched(self, model: Model) -> None:
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


@pytest.mark.timeout(600)
class TestHistories:
    pytestmark = with_tlc

    @pytest.mark.parametrize("world", WORLDS)
    def test_each_step_of_a_simulated_history_is_one_of_the_specification(self, world: str) -> None:
        with ProcessPoolExecutor(2) as pool:
            histories = recorded(world, 200, pool)
        assert [result.trace for result in map(check, histories.models()) if result.broken is not None] == []

    @pytest.mark.parametrize("world", WORLDS)
    @pytest.mark.parametrize(
        ("changed", "broken"),
        [
            (lambda step: {"requires": step["requires"] - {"KNOWN_FORMAT"}}, "StatesTheSame"),
            (lambda step: {"requires": step["requires"] | {"NO_SUCH_ROW"}}, "StatesTheSame"),
            (lambda _: {"isApplied": False}, "AllowsTheSame"),
            (lambda step: {"left": step["found"]}, "LeavesTheSame"),
        ],
    )
    def test_a_step_that_states_allows_or_does_something_else_is_none_of_the_specification(
        self, world: str, changed: Callable[[Step], Step], broken: str
    ) -> None:
        module, of_seed = WORLDS[world]
        steps, constants = of_seed(1)
        step = next(step for step in steps if step["isApplied"] and "KNOWN_FORMAT" in step["requires"])
        histories = Histories(module)
        histories.note([{**step, **changed(step)}], constants)
        assert [check(model).broken for model in histories.models()] == [broken]
