"""The files of the diagrams, and their expected content."""

from collections.abc import Mapping

from ticketlock_local.checkout import ROOT
from ticketlock_local.diagrams.bars import Figures, bars
from ticketlock_local.diagrams.drawing import drawing
from ticketlock_local.diagrams.hand_over import Recording, hand_overs
from ticketlock_local.diagrams.machine import graphs_of
from ticketlock_local.diagrams.ticket import LIFE

DEFINITION = ROOT / "statemachines" / "serialize.asl.json"
FIGURES = ROOT / "docs" / "figures"
"""The figures for the charts: a benchmark's ``--save`` writes them."""
HAND_OVER = FIGURES / "recorded" / "hand-over.json"
"""The recording that ``benchmarks/hand_over.py --save`` writes."""


def files() -> Mapping[str, str]:
    """The content of each file under ``docs``."""
    machine = graphs_of(DEFINITION)
    names = ", ".join(node.name for node in machine[0].nodes)
    charts = {f"{path.stem}.svg": bars(Figures.load(path)) for path in sorted(FIGURES.glob("*.json"))}
    return charts | {
        "hand-over.svg": hand_overs(Recording.load(HAND_OVER)),
        "life-of-a-ticket.svg": drawing(
            "The life of a ticket",
            "From no ticket to holding at once or by way of numbered and waiting, and how each state ends.",
            [LIFE],
        ),
        "state-machine.svg": drawing(
            "The state machine", f"Its states: {names}; and those of the two branches of Hold.", machine
        ),
    }


def write() -> int:
    """Write all files."""
    for name, content in files().items():
        (ROOT / "docs" / name).write_text(content)
        print(f"docs/{name}")
    return 0
