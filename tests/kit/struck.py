"""What bad weather did to the requests of a session: told at its end, by all its workers together."""

from collections import Counter
from typing import Any

import pytest

STRUCK = pytest.StashKey[Counter[str]]()
"""Of a session's configuration: how many requests met what, by the names of the mishaps."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STRUCK] = Counter[str]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the session that has started this one, if this is a worker's."""
    if hasattr(session.config, "workeroutput"):
        struck: Counter[str] = session.config.stash[STRUCK]
        session.config.workeroutput["struck"] = dict(struck)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has told."""
    struck: Counter[str] = node.config.stash[STRUCK]
    struck.update(getattr(node, "workeroutput", {}).get("struck", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if struck := config.stash[STRUCK]:
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in struck.most_common())
        terminalreporter.write_line(f"bad weather: of {struck.total()} requests {told}")
