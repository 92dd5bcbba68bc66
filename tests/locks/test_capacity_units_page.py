"""The table of capacity units in ``docs/engines.md`` agrees with the rules; no engine is needed for that."""

from pathlib import Path

import pytest
from kit.capacity_units import OTHERS, Billed, MeteredWorld, Step, figure, life_of_a_lock
from kit.engines import Engine

pytestmark = pytest.mark.parametrize("engine", ["memory"], indirect=True)


def test_the_page_has_the_counted_units(engine: Engine) -> None:
    lives = [list(life_of_a_lock(MeteredWorld(engine), others)) for others in (0, OTHERS)]
    counted = [
        [alone.name, *(figure(each.by_rule for each in sent) for sent in (*by_kind(alone), *by_kind(among_others)))]
        for alone, among_others in zip(*lives, strict=True)
    ]
    page = (Path(__file__).parents[2] / "docs/engines.md").read_text()
    _, _, table = page.partition("| step |")
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines] == counted


def by_kind(step: Step) -> tuple[list[Billed], list[Billed], list[Billed]]:
    return step.writes, step.refused, step.reads
