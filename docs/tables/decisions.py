"""The list of docs/decisions/README.md, from the titles of the decisions."""

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "decisions"


def listed() -> str:
    """A line for each decision: its number and its title, as a link."""
    titles = {file.name: file.read_text().splitlines()[0] for file in sorted(_FOLDER.glob("0*.md"))}
    return "\n".join(f"- [{title.removeprefix('# ').replace('. ', ': ', 1)}]({name})" for name, title in titles.items())
