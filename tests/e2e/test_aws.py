"""The command `make aws` on an emulator: it asks, ends and deletes. Its checks are the tests of `tests/e2e/aws`."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import boto3
import psutil
import pytest
from e2e.aws.own_stack import PREFIX
from kit.places import until
from ticketlock_local.cloud.deploy import client_arguments, client_environment
from ticketlock_local.engines.emulator import Emulator

pytestmark = [
    pytest.mark.verify("deploys and waits for minutes; tests no part of the product"),
    pytest.mark.timeout(1_800),
]

_ACCOUNT = "000000000000"
# Options of the user's own, which must not lead the checks away from the account.
_OWN = {"PYTEST_ADDOPTS": "--numprocesses 2 -x"}
_DEPLOYED_WITHIN_S = 240.0


@pytest.fixture(scope="module")
def place() -> Iterator[Emulator]:
    """An emulator of its own: it enforces no roles, and has no other stacks."""
    with Emulator() as emulator:
        yield emulator


def start(place: Emulator, *arguments: str, checks: str = "") -> "subprocess.Popen[str]":
    main = f"main({list(arguments)}, _FOLDER / {checks!r})"
    return subprocess.Popen(
        [sys.executable, "-c", f"from e2e.aws.__main__ import _FOLDER, main; raise SystemExit({main})"],
        env={**os.environ, **client_environment(place.endpoint), "PYTHONPATH": os.pathsep.join(sys.path), **_OWN},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left(place: Emulator) -> list[str]:
    """The stacks and buckets that runs have made and not deleted."""
    arguments = client_arguments(place.endpoint)
    stacks = boto3.client("cloudformation", **arguments).describe_stacks()["Stacks"]
    # By a name that none of the typed overloads is for.
    make: Any = boto3.client
    buckets = make("s3", **arguments).list_buckets()["Buckets"]
    names = [stack["StackName"] for stack in stacks if stack["StackStatus"] != "DELETE_COMPLETE"]
    return [name for name in (*names, *(bucket["Name"] for bucket in buckets)) if name.startswith(PREFIX)]


def test_a_run_prints_its_lines_and_a_table_leaves_nothing_and_fails_if_something_was_not_seen(
    place: Emulator,
) -> None:
    process = start(place, "--yes", "--account", _ACCOUNT, checks="test_leaving.py")
    printed, _ = process.communicate()
    assert process.returncode == 2, printed
    assert "[1/2] the stack is deleted while one waits and one holds: not seen, an emulator: it deletes at" in printed
    assert "[2/2] nothing of the stack is left: as assumed, nothing is left" in printed
    assert "as assumed: nothing is left" in printed.rpartition("[2/2]")[2]
    assert "Nothing that this run made is left." in printed
    assert f"THIS WAS NOT AWS but {place.endpoint}" in printed
    assert left(place) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [([], "not a terminal"), (["--yes", "--account", "123456789012"], "nothing was made")],
    ids=["it cannot ask", "another account"],
)
def test_without_an_agreement_for_this_account_nothing_is_made(place: Emulator, arguments: list[str], why: str) -> None:
    process = start(place, *arguments)
    printed, _ = process.communicate()
    assert (process.returncode, why in printed) == (1, True), printed
    assert left(place) == []


def test_a_run_that_is_interrupted_while_it_deploys_leaves_nothing(place: Emulator) -> None:
    process = start(place, "--yes", "--account", _ACCOUNT, "--no-bursts")
    deadline = time.monotonic() + _DEPLOYED_WITHIN_S
    while not left(place):
        assert time.monotonic() < deadline, "it made nothing"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == 130, printed
    assert left(place) == []
    [stack] = re.findall(r"makes    the stack (\S+),", printed)
    until(
        lambda: not any(stack in str(each.info["cmdline"]) for each in psutil.process_iter(["cmdline"])),
        "its processes' end",
    )
