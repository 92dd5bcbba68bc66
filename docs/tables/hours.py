"""What an hour of waiting costs, from saved figures."""

import json
from pathlib import Path
from textwrap import fill

_FIGURES = Path(__file__).parents[1] / "figures" / "hour-of-waiting.json"


def of_waiting() -> str:
    """The transitions and the price of a workflow that is woken, and of one that polls as the first in line."""
    groups = json.loads(_FIGURES.read_text())["groups"]
    transitions, *_, dollars = ([bar["value"] for bar in group["bars"]] for group in groups)
    told = (
        f"A workflow that waits for an hour makes {transitions[0]:,} state transitions if it is woken, and "
        f"{transitions[1]:,} if it polls as the first in line: 1,000 such hours cost ${dollars[0]} or ${dollars[1]} in "
        "us-east-1."
    )
    return fill(told, 120)
