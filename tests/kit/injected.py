"""Reports at the end of a session how often each fault was injected, in all of its workers together."""

from collections import Counter
from typing import Any

import pytest

INJECTED = pytest.StashKey[Counter[str]]()
"""In a session's configuration: how many requests got each fault, by the fault's name."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[INJECTED] = Counter[str]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass a worker's counts to the session that has started it."""
    if hasattr(session.config, "workeroutput"):
        injected: Counter[str] = session.config.stash[INJECTED]
        session.config.workeroutput["injected"] = dict(injected)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add a worker's counts."""
    injected: Counter[str] = node.config.stash[INJECTED]
    injected.update(getattr(node, "workeroutput", {}).get("injected", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if injected := config.stash[INJECTED]:
        listed = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in injected.most_common())
        terminalreporter.write_line(f"fault injection: of {injected.total()} requests {listed}")
