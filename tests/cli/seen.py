"""What tests see: of a lock in the table, of a command in their process, of a refusal, of a report on 80 columns."""

import os
import sys
from collections.abc import Mapping
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any
from unittest.mock import patch

from kit.command import Ended
from rich.console import Console, RenderableType

from ticketlock import LockClient
from ticketlock.cli import _commands

WRONG_WORDS = 2
"""The exit code of a command whose usage is shown."""
EXECUTION = (
    "arn:aws:states:eu-central-1:123456789012:execution:LockStateMachine0BC1E4B2-fN3q8Zr5xT1k:"
    "6f9d3d40-6a1c-4c1f-9a6e-6d2f5f0d9c11"
)
"""An owner that is too long for 80 columns."""


def held(locks: LockClient, entity: str) -> int:
    item = locks.inspect(entity).item
    return 0 if item is None else item.held


def waiters(locks: LockClient, entity: str) -> int:
    return len(locks.inspect(entity).rows)


def run_here(environment: Mapping[str, str], *arguments: str, text: str = "", **more: str) -> Ended:
    """Run the command in this process: without signals and a terminal it does the same, at once."""
    typed, *told = (TextIOWrapper(BytesIO(each), "utf-8") for each in (text.encode(), b"", b""))
    streams: dict[str, Any] = dict(zip(("stdin", "stdout", "stderr"), (typed, *told), strict=True))
    with (
        patch.dict(os.environ, {**environment, **more}),
        patch.multiple(sys, argv=["ticketlock", *arguments], **streams),
    ):
        code = _commands.run()
    for each in told:
        each.seek(0)
    return Ended(code, *(each.read() for each in told))


def is_refused(ended: Ended, exit_code: int, told: str = "") -> None:
    """It has printed nothing, and at the end of stderr a line of the command with this text."""
    assert (ended.exit_code, ended.out) == (exit_code, ""), ended
    # An unanswered question has no line break after it.
    last = ended.err.splitlines()[-1].rpartition("[y/N]: ")[2]
    assert last.startswith("ticketlock: "), ended
    assert told in last, ended
    assert ("Usage: ticketlock" in ended.err) == (exit_code == WRONG_WORDS), ended


def printed(report: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    with console.capture() as captured:
        console.print(report)
    return [line.rstrip() for line in captured.get().splitlines()]
