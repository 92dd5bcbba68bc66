"""The docs show the diagrams as they are drawn today, from the definition or from saved figures of a benchmark.

docs/how-it-works.md says what the code says.
"""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from kit.pages import ROOT, text
from ticketlock_local.diagrams.files import DEFINITION, files
from ticketlock_local.diagrams.machine import graphs_of

from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.locks._writes import JOIN_DEADLINE_MS
from ticketlock.workflow._turn import FIRST_BEATS, FIRST_POLLS

PAGE = "docs/how-it-works.md"
ANEW = "stale: python -m ticketlock_local diagrams"
# What a page leaves to a picture on a phone, and the smallest letters there.
PHONE_PX, LETTERS_PX = 350, 8


def states_of(states: dict[str, Any]) -> set[str]:
    inner = [branch["States"] for state in states.values() for branch in state.get("Branches", ())]
    return set(states).union(*map(states_of, inner))


@pytest.mark.parametrize("name", files())
def test_a_diagram_is_as_it_is_drawn_today_and_a_page_shows_it(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == files()[name], ANEW
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"]({name})" in page.read_text()]


@pytest.mark.parametrize("name", ["demo.svg", "hand-over.svg", "units-beside-scalardb.svg"])
def test_a_picture_of_a_run_can_be_read_on_a_phone(name: str) -> None:
    picture = ElementTree.parse(ROOT / "docs" / name).getroot()
    scale = min(1.0, PHONE_PX / float(picture.attrib["width"]))
    sizes = [float(size) for each in picture.iter() if (size := each.get("font-size"))]
    assert min(sizes) * scale >= LETTERS_PX


def test_every_state_of_the_definition_is_in_the_diagram_and_in_the_page() -> None:
    names = states_of(json.loads(DEFINITION.read_text())["States"])
    drawn = set(re.findall(r">([^<>]+)</text>", files()["state-machine.svg"]))
    assert names <= drawn
    assert {name for name in names if f"`{name}`" not in text(PAGE)} == set()


def test_a_definition_that_leads_elsewhere_is_another_diagram(tmp_path: Path) -> None:
    definition = json.loads(DEFINITION.read_text())
    definition["States"]["TakeTicket"]["Next"] = "CheckPosition"
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(definition))
    first, *others = graphs_of(changed)
    told, *as_before = graphs_of(DEFINITION)
    assert set(first.edges) - set(told.edges) == {first.edges[0]}
    assert others == as_before


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    told = " ".join(text(PAGE).lower().split())
    assert f"within {JOIN_DEADLINE_MS // 1_000} s of the ticket" in told
    assert f"and {EXPIRY_MARGIN_MS // 1_000} s more" in told
    assert f"after {FIRST_POLLS} polls" in told
    assert f"after {FIRST_BEATS} heartbeats" in told
