"""What is assumed of Step Functions, beside histories that LocalStack's authors recorded on AWS: recorded.json.

A recording is named after the file, in tests/aws/services/stepfunctions/v2 of localstack/localstack, and the test whose
snapshot has it. Of some, ``HISTORIES`` has the types of the events, without the execution's own and those of other
states: tests derive the event budget from them, and compare the interpreter's.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_RECORDED: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
HISTORIES: Mapping[str, Sequence[str]] = {
    name: history["events"].split() for name, history in _RECORDED["histories"].items()
}


def assumptions() -> str:
    """A row for each assumption: the recordings that show it, and what none shows."""
    rows = [
        f"| {each['assumed']} | {', '.join(map(_named, each.get('seen', ())))} | {each.get('not seen', '')} |"
        for each in _RECORDED["assumptions"]
    ]
    return "\n".join(["| assumed | seen in | not seen |", "|---|---|---|", *rows])


def _named(recording: str) -> str:
    history = _RECORDED["histories"].get(recording)
    return f"`{history['recording'] if history else recording}`"
