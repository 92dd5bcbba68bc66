"""The results in docs/proof.md: the figures of one commit that ``make proof`` writes into proof.json, and what was
searched of random schedules alone, which searched.jsonl keeps.
"""

import json
from pathlib import Path

_FILE = Path(__file__).with_suffix(".json")
_SEARCHED = Path(__file__).with_name("searched.jsonl")


def results(file: Path = _FILE) -> str:
    """The commit, and a row for each part of the proof: its title and its figures."""
    told = json.loads(file.read_text())
    rows = [
        f"Commit `{told['commit']}`, in {told['seconds'] / 60:.0f} minutes with `WORKERS={told['workers']}`:",
        "",
        "| part | figures |",
        "|---|---|",
    ]
    for title, figures in told["figures"].items():
        rows.append(f"| {title} | {'; '.join(f'{name} **{figure}**' for name, figure in figures.items())} |")
    return "\n".join(rows)


def searched(file: Path = _SEARCHED) -> str:
    """A row for each range of seeds: the world, a commit with the code that was searched, and what was found."""
    rows = ["| world | commit | seeds | schedules | steps | broken |", "|---|---|---|---|---|---|"]
    for line in filter(None, file.read_text().splitlines()):
        told = json.loads(line)
        found = told["found"]
        seeds = f"{told['from']:,} to {told['to'] - 1:,}"
        counted = f"**{found['schedules']:,}** | **{found['steps']:,}** | **{len(found['broken'])}**"
        rows.append(f"| {told['world']} | `{told['commit'][:8]}` | {seeds} | {counted} |")
    return "\n".join(rows)
