"""The results in docs/proof.md, from the figures of one commit that ``make proof`` writes into proof.json."""

import json
from pathlib import Path

_FILE = Path(__file__).with_suffix(".json")


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
