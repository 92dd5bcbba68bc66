"""What all suites share: the emulator, started once for each session, a table in memory, the fixtures of
tests/kit/fixtures, and how workers share the tests.
"""

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from ticketlock_local.engines.emulator import Emulator

from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.wire import _heartbeat
from ticketlock.wire._for_tasks import _heartbeat as _heartbeat_of_tasks

# No test may reach an account, or use a profile's settings, by accident; a test that needs an endpoint names it.
_NO_ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
if "TICKETLOCK_TEST_ENDPOINT" not in os.environ:
    os.environ |= _NO_ACCOUNT
# Before the first import of the CDK, which starts Node.
os.environ |= {
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20",
    "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "true",
}

# How long a heartbeat sleeps at most: it cannot be told that a test has moved its clock.
_heartbeat._LONGEST_WAIT_S = _heartbeat_of_tasks._LONGEST_SLEEP_S = 0.1

# Modules with assertions that several suites use: without these names pytest rewrites only those of test modules.
pytest.register_assert_rewrite("kit.sentences")
# Before the fixtures, which import them: pytest rewrites the assertions of a plugin only before its first import.
pytest_plugins = [
    "kit.kept",
    "kit.injected",
    "kit.fixtures.engines",
    "kit.fixtures.clients",
    "kit.fixtures.commands",
    "kit.fixtures.units",
    "ticketlock.testing.pytest_fixtures",
]

# On a busy machine an example may take longer than Hypothesis' deadline: that is no failure.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


@pytest.fixture(scope="session", autouse=True)
def no_signal_is_ignored() -> None:
    """Under nohup, or after ``&``, some signals are ignored; programs that a test starts would inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            # A program that is started inherits an ignored signal, but no handler.
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryDynamoDB:
    return MemoryDynamoDB(clock=clock)


# `pytest --numprocesses`: each worker is a process with a session, so with an emulator, of its own.

# Tests with long waits begin first, beside searches, which wait for nothing; short tests fill the end. Folders that are
# not named come last.
_LONGEST = (
    "e2e",
    "packaging",
    "property/units",
    "e2e/aws",
    "tools",
    "property/specs",
    "property",
    "infra",
    "workflow/interpreted",
    "client",
    "units",
    "expressions",
    "workflow",
    "locks",
    "wire",
    "cli",
    "report",
)
_OF_THEIR_OWN = (
    "tests/property/specs/test_specifications.py",
    "tests/property/units/test_schedules.py",
    "tests/tools/test_benchmarks.py",
    "tests/units/test_interrupted.py",
    "tests/units/test_matrix.py",
)
# They deploy what no other test uses, or nothing.
_WITHOUT_THE_DEPLOYMENTS = tuple(f"tests/e2e/test_{name}.py" for name in ("aws", "aws_checking", "aws_runs", "example"))
_ORDER = tuple(f"tests/{name}" for name in _LONGEST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests of a worker; without workers they keep their own order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place(_folder(item.nodeid)))


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected, and stays, from the garbage collector: a fifth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests in one worker that share something expensive."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # ships no types

    config.option.loadscopereorder = False
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = _shares_of_few if config.option.markexpr.startswith("not verify") else _shares
    return scheduler


def _shares_of_few(nodeid: str) -> str:
    """In `make test`, tests that need the CDK stay together: starting it takes longer than their waits."""
    return "tests/infra" if _folder(nodeid) == "tests/workflow/interpreted" else _shares(nodeid)


def _shares(nodeid: str) -> str:
    """The group of a test: one worker runs all of it."""
    folder, file = _folder(nodeid), nodeid.partition("::")[0]
    # They wait, or search, for long, and have nothing in common.
    if folder in ("tests/workflow/interpreted", "tests/wire") or file in _OF_THEIR_OWN:
        return nodeid
    # The CDK's Node process, and its assembly; deployments.
    if folder in ("tests/infra", "tests/e2e", "tests/e2e/aws") and file not in _WITHOUT_THE_DEPLOYMENTS:
        return folder
    return file  # an engine's table


def _folder(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/")[0]


def _place(folder: str) -> int:
    return _ORDER.index(folder) if folder in _ORDER else len(_ORDER)
