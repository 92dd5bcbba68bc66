"""docs/runbook.md is correct: its commands are run on locks as in the page, in this process."""

import re
from collections.abc import Iterator

import pytest
from cli.pages import comparable, examples
from click.testing import CliRunner
from kit.pages import blocks, text

from ticketlock import LockClient, LockName, create_table
from ticketlock.cli import _commands
from ticketlock.cli._local import serving
from ticketlock.locks._items import Session
from ticketlock.locks._outcomes import Claim, Position
from ticketlock.testing import MemoryDynamoDB
from ticketlock.workflow._turn import PARKS_PER_POLL

PAGE = "docs/runbook.md"
HOLDER, WORKFLOW, WAITER = (
    "web-3:4711/0f9c",
    "arn:aws:states:eu-west-1:123456789012:execution:Serialize:order-42-b",
    "web-5:812/77ab",
)
TICKET = "1795404737005"
HOUR_MS = 3_600_000


@pytest.fixture
def ticket(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The locks of the page, and the ticket of the last in line."""
    for name, value in {"ACCESS_KEY_ID": "local", "SECRET_ACCESS_KEY": "local", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("TICKETLOCK_TABLE", "locks")
    with serving(MemoryDynamoDB(lock_table=None), port=0) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        create_table("locks")
        with LockClient("locks") as locks:
            for entity in ("order-42", "order-43"):
                locks.acquire(entity).release()
            locks.table.set_limit(LockName("order-43"), 0)
            for owner in (HOLDER, WORKFLOW, WAITER):
                session = Session(owner, "serialize") if owner is WORKFLOW else None
                found = locks.table.take_ticket(Claim(LockName("order-42"), owner, HOUR_MS, session=session), None)
            assert isinstance(found, Position)
            yield found.place.ticket


def without_times(printed: str) -> str:
    return comparable(re.sub(r"\d+(\.\d+)? (s|min|h)\b", "0 s", printed))


def test_each_command_prints_what_the_page_says(ticket: int) -> None:
    listed = [example for block in blocks(PAGE, "console") for example in examples(block)]
    assert len(listed) == 7
    for example in listed:
        _, *words = example.command.replace(TICKET, str(ticket)).split()
        done = CliRunner().invoke(_commands._ticketlock, words)
        assert (example.command, without_times(done.output)) == (example.command, without_times(example.prints))


def test_each_command_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"ticketlock ([a-z-]+)", text(PAGE)))
    assert named <= set(_commands._ticketlock.commands) | {"import"}


def test_the_history_of_a_waiting_execution_has_the_counted_events() -> None:
    assert PARKS_PER_POLL == 10
    assert "After ten times the execution passes" in " ".join(text(PAGE).split())
