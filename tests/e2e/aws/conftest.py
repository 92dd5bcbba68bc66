"""The stack of the checks: that of `make aws`, or one on an emulator of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from e2e.aws.account import Account
from e2e.aws.checked import IN_ACCOUNT, Checked, line_of, table
from e2e.aws.own_stack import OwnStack
from rich.console import Console
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.emulator import Emulator

# The first ones need cold functions, and the last one deletes the stack.
_ORDER = ("speed", "beats", "failing", "transactions", "units", "grants", "encrypted", "bursts", "leaving")
_FOLDER = Path(__file__).parent
_BURST_STARTS = 3
# The width of the table if the output is not a terminal.
_WIDTH = 160


@pytest.fixture(scope="session")
def checked(request: pytest.FixtureRequest) -> Iterator[Checked]:
    """The deployed stack; on the emulator, which enforces no roles, it is deleted at the end."""
    plugin = request.config.pluginmanager.get_plugin(IN_ACCOUNT)
    if plugin is not None:
        yield plugin.checked
        return
    with Emulator() as emulator:
        arguments: dict[str, Any] = {**client_arguments(emulator.endpoint)}
        endpoint = arguments.pop("endpoint_url")
        account = Account.of(boto3.Session(**arguments), endpoint)
        stack = OwnStack(account)
        try:
            yield Checked(account, stack, stack.deploy(), _BURST_STARTS, must_answer=True)
        finally:
            assert stack.delete() == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the checks into their order, wherever they are among the tests."""
    places = [place for place, item in enumerate(items) if item.path.parent == _FOLDER]
    checks = sorted((items[place] for place in places), key=lambda item: _ORDER.index(item.path.stem[5:]))
    for place, item in zip(places, checks, strict=True):
        items[place] = item


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table: what is assumed, and what was seen."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    lines = [line for report in reports if isinstance(report, pytest.TestReport) and (line := line_of(report))]
    if lines:
        Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH).print(table(lines))
