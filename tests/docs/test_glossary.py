"""docs/glossary.md: the names that it gives are names of the code, of the table and of the definition."""

import json
import re
from collections import Counter

import pytest
from kit.pages import ROOT, text

PAGE = "docs/glossary.md"
COLUMNS = {"Python": 2, "table": 3, "workflow": 4}


def source(*folders: str) -> str:
    return "\n".join(path.read_text() for folder in folders for path in sorted(ROOT.glob(folder)))


def names(column: str) -> set[str]:
    """What stands in backticks in a column."""
    lines = [line.strip("|").split("|") for line in text(PAGE).splitlines() if line[:1] == "|"]
    cells = [cells[COLUMNS[column]] for cells in lines if len(cells) > COLUMNS[column]]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


WHERE = {
    "Python": ("src/ticketlock/**/*.py", "infra/ticketlock_cdk/**/*.py"),
    "table": ("src/ticketlock/locks/*.py", "src/ticketlock/workflow/*.py", "src/ticketlock/units/*.py"),
    "workflow": ("statemachines/*.json", "src/ticketlock/workflow/*.py"),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_each_name_is_one_of_the_code(column: str) -> None:
    code = source(*WHERE[column])
    words = {word for name in names(column) for word in re.findall(r"[A-Za-z_]+", name)}
    known = set(re.findall(r"[A-Za-z_]+", code)) | {"statemachines", "asl", "json"}
    assert len(words) > 10
    assert words - known - {"tlu", "_tlu"} == set(), "the glossary gives names that the code does not have"


def test_the_states_that_it_names_are_in_the_definition() -> None:
    definition = (ROOT / "statemachines" / "serialize.asl.json").read_text()
    states = [name for name in names("workflow") if re.fullmatch(r"([A-Z][a-z]+){1,3}\??", name)]
    assert states
    assert [name for name in states if json.dumps(name) not in definition] == [], "no state has this name"


def test_no_term_is_defined_twice() -> None:
    cells = re.findall(r"^\| ([^|]+) \|", text(PAGE), re.MULTILINE)
    terms = Counter(term for cell in cells if cell != "term" for term in cell.split(", "))
    assert len(terms) > 40
    assert [term for term, times in terms.items() if times > 1] == [], "one term, one row"
