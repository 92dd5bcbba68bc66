"""`make aws` against an emulator: the same command that checks AWS, and what does not pass there."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import psutil
import pytest
from kit.places import until
from ticketlock_local.aws.checklist.order import CHECKS
from ticketlock_local.aws.names import PREFIX
from ticketlock_local.aws.seen import Verdict
from ticketlock_local.cloud.deploy import client_arguments, client_environment
from ticketlock_local.engines.emulator import Emulator

pytestmark = [
    pytest.mark.verify("deploys and waits for minutes; tests no part of the product"),
    pytest.mark.timeout(1_800),
]

_ACCOUNT = "000000000000"
_DEPLOYED_WITHIN_S = 240.0
_LINE = re.compile(r"\[\d+/\d+\] (?P<sentence>[^:]+): (?P<verdict>as assumed|otherwise|not seen), (?P<what>.*)")


@pytest.fixture(scope="module")
def place() -> Iterator[Emulator]:
    """An emulator of its own: it enforces no roles, and has no other stacks."""
    with Emulator() as emulator:
        yield emulator


def start(place: Emulator, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ticketlock_local.aws", *arguments],
        env={**os.environ, **client_environment(place.endpoint)},
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


@dataclass(frozen=True)
class Run:
    """A run that has ended: its exit code, what it printed, and its lines by their sentences."""

    code: int
    printed: str

    @property
    def verdicts(self) -> dict[str, str]:
        return {found["sentence"]: found["verdict"] for found in _LINE.finditer(self.printed)}


@pytest.fixture(scope="module")
def run(place: Emulator) -> Run:
    process = start(place, "--yes", "--account", _ACCOUNT, "--burst-starts", "3")
    printed, _ = process.communicate()
    return Run(process.returncode, printed)


def test_every_line_of_the_checklist_is_checked(run: Run) -> None:
    assert list(run.verdicts) == [check.sentence for check in CHECKS], run.printed


def test_what_the_emulator_lacks_is_not_seen(run: Run) -> None:
    lacking = {check.sentence for check in CHECKS if check.emulator_lacks}
    assert len(lacking) > 20
    assert {run.verdicts[sentence] for sentence in lacking} == {Verdict.NOT_SEEN}, run.printed


def test_what_it_has_is_as_assumed(run: Run) -> None:
    having = [check.sentence for check in CHECKS if not check.emulator_lacks]
    assert {sentence: run.verdicts[sentence] for sentence in having} == dict.fromkeys(having, Verdict.AS_ASSUMED), (
        run.printed
    )


def test_a_run_in_which_something_was_not_seen_fails(run: Run) -> None:
    assert run.code == 2, run.printed


def test_it_says_that_this_was_not_aws(run: Run, place: Emulator) -> None:
    assert f"THIS WAS NOT AWS but {place.endpoint}" in run.printed


def test_nothing_of_it_is_left(run: Run, place: Emulator) -> None:
    assert "Nothing of this run is left." in run.printed
    assert left(place) == []


def test_it_makes_nothing_if_it_cannot_ask(place: Emulator) -> None:
    process = start(place)
    printed, _ = process.communicate()
    assert process.returncode == 1
    assert "not a terminal" in printed
    assert left(place) == []


def test_it_makes_nothing_in_another_account_than_the_one_that_is_named(place: Emulator) -> None:
    process = start(place, "--yes", "--account", "123456789012")
    printed, _ = process.communicate()
    assert process.returncode == 1
    assert "nothing was made" in printed
    assert left(place) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_run_that_is_interrupted_while_it_deploys_leaves_nothing(place: Emulator, number: signal.Signals) -> None:
    process = start(place, "--yes", "--account", _ACCOUNT, "--no-bursts")
    deadline = time.monotonic() + _DEPLOYED_WITHIN_S
    while not left(place):
        assert time.monotonic() < deadline, "it made nothing"
        time.sleep(0.05)
    process.send_signal(number)
    printed, _ = process.communicate()
    assert process.returncode == 130, printed
    assert left(place) == []
    [stack] = re.findall(r"makes    the stack (\S+),", printed)
    until(
        lambda: not any(stack in str(each.info["cmdline"]) for each in psutil.process_iter(["cmdline"])),
        "its processes' end",
    )
