"""The page of the threat model, beside what it names."""

import json
from pathlib import Path

from cli.pages import text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = text("threat-model.md")


def test_each_test_of_this_folder_shows_a_claim_of_the_page() -> None:
    ours = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in ours if name not in PAGE} == set()


def test_a_stranger_who_fails_the_task_of_a_parked_waiter_makes_it_look() -> None:
    states = json.loads((ROOT / "statemachines/serialize.asl.json").read_text())["States"]
    for parked in ("WaitForCall", "WaitForCallBriefly"):
        assert {each["Next"] for each in states[parked]["Catch"]} <= {"CheckPosition", "WaitForTurn"}
    assert states["WaitForTurn"]["Next"] == "CheckPosition"
