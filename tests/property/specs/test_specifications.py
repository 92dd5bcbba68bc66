"""The specifications in spec/: every promise holds in each model, and no condition can be left out."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import FunctionType, ModuleType

import pytest
from property.specs.found import SEARCHES, Search, told
from property.specs.histories import WORLDS, Histories, Step, recorded
from property.specs.models import TABLES
from property.specs.tlc import SPECIFICATIONS, check, is_here

from ticketlock.locks import _conditions as of_locks
from ticketlock.units._records import _conditions as of_units

with_tlc = [
    pytest.mark.verify("starts TLC"),
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


def test_tlc_has_searched_each_model_as_it_is_now_and_has_found_what_is_promised() -> None:
    """Whole models keep every promise; without a condition the one that is named breaks. `make spec` searches all."""
    found = told()
    assert {name: (each["digest"], each["broken"]) for name, each in found.items()} == {
        each.name: (each.digest, each.breaks) for each in SEARCHES
    }, "make spec searches what has changed, and writes spec/found.json"


def _searched_again() -> list[Search]:
    """Of each specification the smallest search in which all holds, and the smallest that breaks a promise."""
    found = told()
    smallest: dict[tuple[str, bool], Search] = {}
    for each in sorted(SEARCHES, key=lambda each: found[each.name]["states"] if each.name in found else 0):
        smallest.setdefault((each.model.module, each.breaks is None), each)
    return list(smallest.values())


@pytest.mark.timeout(600)
class TestSearchedAgain:
    pytestmark = with_tlc

    @pytest.mark.parametrize("search", _searched_again(), ids=lambda search: search.name)
    def test_tlc_finds_what_is_told_of_it(self, search: Search) -> None:
        result, before = check(search.model, search.without), told()[search.name]
        assert (result.broken, result.states) == (before["broken"], before["states"]), result.trace


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
