"""The page of the threat model, beside what it names."""

import json
import re
from pathlib import Path
from typing import Any

from kit.pages import ROOT, text

HERE = Path(__file__).parent
PAGE = text("docs/threat-model.md")


def test_each_test_of_this_folder_shows_a_claim_of_the_page() -> None:
    ours = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in ours if name not in PAGE} == set()


def claims() -> list[str]:
    """The rows, the list entries and the paragraphs of the page, each with the sentence that leads it in."""
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    # The text before the first heading is an introduction.
    _, *sections = re.split(r"^## .*$", prose, flags=re.MULTILINE)
    found, lead = [], ""
    for block in (each for section in sections for each in re.split(r"\n{2,}", section.strip())):
        parts = block.splitlines()[2:] if block.startswith("|") else re.split(r"\n(?=- |\d\. )", block)
        found += [lead + part for part in parts]
        lead = block if block.endswith(":") else ""
    return found


def test_each_claim_of_the_page_names_a_test_or_another_page() -> None:
    found = claims()
    assert len(found) > 40
    assert [claim for claim in found if not re.search(r"`(tests/|test_)\w+|\]\(https://", claim)] == []


def states() -> Any:
    return json.loads((ROOT / "statemachines/serialize.asl.json").read_text())["States"]


def test_a_stranger_who_fails_the_task_of_a_heartbeat_stops_the_work() -> None:
    hold = states()["Hold"]
    (beat,) = (branch["States"]["Heartbeat"] for branch in hold["Branches"] if "Heartbeat" in branch["States"])

    def retries(error: str) -> int:
        rule = next(each for each in beat["Retry"] if {error, "States.ALL"} & set(each["ErrorEquals"]))
        attempts: int = rule["MaxAttempts"]
        return attempts

    assert (retries("LockLost"), retries("Anything")) == (0, 6)
    # Nothing else is caught, so the branch fails, and with it the others.
    assert [error for each in beat["Catch"] for error in each["ErrorEquals"]] == ["ContinueHolding"]


def test_a_stranger_who_fails_the_task_of_a_parked_waiter_makes_it_poll() -> None:
    for parked in ("WaitForWakeUp", "WaitForWakeUpBriefly"):
        assert {each["Next"] for each in states()[parked]["Catch"]} <= {"CheckPosition", "WaitForTurn"}
    assert states()["WaitForTurn"]["Next"] == "CheckPosition"
