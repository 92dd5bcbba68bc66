"""The state machine is drawn from its definition, and docs/how-it-works.md says what the code says."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from kit.pages import ROOT, text
from tables.state_machine import DEFINITION, flowcharts

from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.locks._writes import JOIN_DEADLINE_MS
from ticketlock.workflow._turn import FIRST_BEATS, FIRST_POLLS

PAGE = "docs/how-it-works.md"
# What a page leaves to a picture on a phone, and the smallest letters there.
PHONE_PX, LETTERS_PX = 350, 8


def states_of(states: dict[str, Any]) -> set[str]:
    inner = [branch["States"] for state in states.values() for branch in state.get("Branches", ())]
    return set(states).union(*map(states_of, inner))


def test_the_picture_of_the_demo_can_be_read_on_a_phone() -> None:
    picture = ElementTree.parse(ROOT / "docs" / "demo.svg").getroot()
    scale = min(1.0, PHONE_PX / float(picture.attrib["width"]))
    sizes = [float(size) for each in picture.iter() if (size := each.get("font-size"))]
    assert min(sizes) * scale >= LETTERS_PX


def test_every_state_of_the_definition_is_drawn_and_in_the_page() -> None:
    names = states_of(json.loads(DEFINITION.read_text())["States"])
    assert {name for name in names if name not in flowcharts()} == set()
    assert {name for name in names if f"`{name}`" not in text(PAGE)} == set()


def test_a_definition_that_leads_elsewhere_is_drawn_otherwise(tmp_path: Path) -> None:
    definition = json.loads(DEFINITION.read_text())
    definition["States"]["TakeTicket"]["Next"] = "CheckPosition"
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(definition))
    differing = set(flowcharts(changed).splitlines()) - set(flowcharts().splitlines())
    assert differing == {"  TakeTicket --> CheckPosition"}


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    told = " ".join(text(PAGE).lower().split())
    assert f"within {JOIN_DEADLINE_MS // 1_000} s of the ticket" in told
    assert f"and {EXPIRY_MARGIN_MS // 1_000} s more" in told
    assert f"after {FIRST_POLLS} polls" in told
    assert f"after {FIRST_BEATS} heartbeats" in told
