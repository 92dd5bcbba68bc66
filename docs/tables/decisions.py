"""The list of docs/decisions/README.md, from the titles of the decisions."""

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "decisions"


def listed() -> str:
    """A row for each decision: its number, and its title as a link."""
    rows = ["| | decision |", "|---|---|"]
    for file in sorted(_FOLDER.glob("0*.md")):
        number, title = file.read_text().splitlines()[0].removeprefix("# ").split(". ", 1)
        rows.append(f"| {number} | [{title}]({file.name}) |")
    return "\n".join(rows)
