"""docs/waiting.md has the defaults of the code, side by side."""

import re
from typing import Any

import click
import pytest
from kit.pages import defaults, rows, text
from ticketlock_cdk import TicketLock

from ticketlock import LockClient, RecordWaitExceeded
from ticketlock.cli import _commands, _exits
from ticketlock.client._pace import _LONGEST_BEHIND
from ticketlock.workflow._lock_request import _FIELDS

PAGE = "docs/waiting.md"


def told(heading: str, row: str) -> list[str]:
    (cells,) = [cells for first, *cells in rows(PAGE, heading) if first == row]
    return cells


@pytest.fixture(scope="module")
def first_table() -> dict[str, list[str]]:
    before = text(PAGE).partition("\n## ")[0]
    cells = [[each.strip() for each in line.strip("|").split("|")] for line in before.splitlines() if line[:1] == "|"]
    return {name: others for name, *others in cells}


def option(command: str, name: str) -> Any:
    (found,) = [each for each in _commands._ticketlock.commands[command].params if each.name == name]
    assert isinstance(found, click.Option)
    return found


def test_the_spellings_are_those_of_the_code(first_table: dict[str, list[str]]) -> None:
    workflow, python, command = (each.strip("`") for each in first_table["spelling"])
    assert workflow in _FIELDS
    assert python in defaults(LockClient)
    assert all(command in option(name, "wait").opts for name in ("run", "acquire"))


def test_the_defaults_of_python_and_of_the_command_are_those_of_the_code(first_table: dict[str, list[str]]) -> None:
    _, python, command = first_table["default"]
    assert float(python) == defaults(LockClient)["record_wait"]
    assert {option(name, "wait").default for name in ("run", "acquire")} == {float(command)}


def test_the_defaults_of_a_deployment_are_those_of_the_construct(first_table: dict[str, list[str]]) -> None:
    default = first_table["default"][0].strip('`"')
    constructed = defaults(TicketLock.__init__)
    assert constructed["default_record_wait"] == default
    assert f"{constructed['poll'].to_seconds():g} s" == told("What is not the record wait", "`poll` of a deployment")[1]


def test_the_other_durations_are_those_of_the_code() -> None:
    heading = "What is not the record wait"
    lease = told(heading, "lease (`lease`, `--lease`)")[1]
    assert lease == f"{defaults(LockClient)['lease']} s" == f"{option('run', 'lease').default:g} s"
    shortest_s, longest_s = defaults(LockClient)["check_every"]
    assert told(heading, "`check_every` of a client")[1] == f"{shortest_s * 1_000:g} ms and {longest_s:g} s"
    page = " ".join(text(PAGE).split())
    assert f"then every {longest_s:g} s at the latest" in page
    assert f"every {longest_s * _LONGEST_BEHIND:g} s at the latest" in page


def test_the_page_has_how_a_wait_ends(first_table: dict[str, list[str]]) -> None:
    workflow, python, command = first_table["when it is over"]
    assert f"`{RecordWaitExceeded.__name__}`" in workflow
    assert f"`{RecordWaitExceeded.__name__}`" in python
    assert issubclass(RecordWaitExceeded, TimeoutError)
    assert re.findall(r"\d+", command) == [str(_exits.WAIT_IS_OVER)]
