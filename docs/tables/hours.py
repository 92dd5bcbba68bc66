"""What an hour of waiting costs, from the figures of its picture."""

from textwrap import fill

from ticketlock_local.diagrams.bars import Figures
from ticketlock_local.diagrams.files import FIGURES


def of_waiting() -> str:
    """The transitions and the price of a workflow that is woken, and of one that polls as the first in line."""
    figures = Figures.load(FIGURES / "hour-of-waiting.json")
    transitions, *_, dollars = ([bar.value for bar in group.bars] for group in figures.groups)
    told = (
        f"A workflow that waits for an hour makes {transitions[0]:,} state transitions if it is woken, and "
        f"{transitions[1]:,} if it polls as the first in line: 1,000 such hours cost ${dollars[0]} or ${dollars[1]} in "
        "us-east-1."
    )
    return fill(told, 120)
