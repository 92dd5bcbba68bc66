"""Executions on the emulator: a deployed stack, a round of them, the gaps between their tasks, state transitions."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from counting_proxy import CountingProxy
from ticketlock_local.cloud.deploy import client_arguments, deploy, start, wait_for_all
from ticketlock_local.demo.checks import by_entity, overtakings, unsuccessful
from ticketlock_local.demo.executions import Execution, observe
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import LocalCloudError

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

POLL_S = 1
"""The longest sleep of the first in line."""
TIMEOUT_S = 240.0
# The emulator starts a worker for every call that finds none idle. On a busy machine that slows all of them down, until
# each takes longer than its function may, is ended and called again, and none of them ever starts.
ASKING_AT_MOST = 12
_WARM_UP_EVERY_S = 0.25
_POLL_EVERY_S = 0.1

Begin = Callable[[int], str]
"""Starts the execution of a number, from 0 on, and returns its ARN."""


@dataclass(frozen=True)
class Cloud:
    """A stack in an emulator of its own, its outputs, and a client of Step Functions."""

    emulator: Emulator
    client: "SFNClient"
    outputs: Mapping[str, str]

    def task(self, work_s: float) -> Mapping[str, Any]:
        """Our example function, as the task of an execution."""
        return {"functionArn": self.outputs["ExampleFunctionArn"], "input": {"seconds": work_s}}

    def start(self, name: str, entity: str, task: Mapping[str, Any]) -> str:
        """Start an execution of our lock. Returns its ARN."""
        return start(self.client, self.outputs["StateMachineArn"], name, entity, task)

    def starter(self, entity: str, work_s: float, *, each: int | None = None) -> Begin:
        """Starts executions on one entity; with ``each``, after so many on the next one."""

        def begin(number: int) -> str:
            group, place = divmod(number, each) if each else (0, number)
            name = f"{entity}-{group + 1:02}" if each else entity
            return self.start(f"{name}-{place + 1:02}", name, self.task(work_s))

        return begin

    def round(
        self,
        begin: Begin,
        executions: int,
        *,
        every_s: float,
        timeout_s: float = TIMEOUT_S,
        asking_at_most: int | None = None,
    ) -> dict[str, Execution]:
        """Start executions at a steady pace, and wait until all have ended, however they end.

        Args:
            begin: starts one.
            executions: how many.
            every_s: from one start to the next.
            timeout_s: for the starts, and once more for the ends; then one that still runs is a LocalCloudError.
            asking_at_most: the next start waits while so many are still in their first state.

        Returns:
            Each by its ARN, in the order of the starts.
        """
        began = time.monotonic()
        arns: list[str] = []
        asking: list[str] = []
        for number in range(executions):
            time.sleep(max(0.0, began + number * every_s - time.monotonic()))
            while asking_at_most is not None and len(asking) >= asking_at_most:
                asking = [arn for arn in asking if self._is_asking(arn)]
                if time.monotonic() > began + timeout_s:
                    raise LocalCloudError(f"{len(arns)} of {executions} executions are started after {timeout_s:.0f} s")
                if len(asking) >= asking_at_most:
                    time.sleep(_POLL_EVERY_S)
            arns.append(begin(number))
            asking.append(arns[-1])
        wait_for_all(self.client, arns, timeout_s=timeout_s)
        return {arn: observe(self.client, arn) for arn in arns}

    def warm_up(self, begin: Begin, executions: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Let the emulator start the functions' workers, a few at a time: each wave uses those of the one before."""
        first = 0
        for wave in (1, 4, executions):
            runs = self.round(
                lambda number, first=first: begin(first + number),  # type: ignore[misc]
                wave,
                every_s=_WARM_UP_EVERY_S,
                timeout_s=timeout_s,
                asking_at_most=ASKING_AT_MOST,
            )
            succeeded(runs)
            first += wave

    def history(self, arn: str) -> list[Mapping[str, Any]]:
        """An execution's events, oldest first."""
        pages = self.client.get_paginator("get_execution_history").paginate(executionArn=arn)
        return [event for page in pages for event in page["events"]]

    def transitions(self, arns: Iterable[str]) -> int:
        """The state transitions of executions, as far as their histories show them."""
        return sum(transitions(self.history(arn)) for arn in arns)

    def _is_asking(self, arn: str) -> bool:
        events = self.client.get_execution_history(executionArn=arn, maxResults=20)["events"]
        return not any(event["type"].endswith("StateExited") or event["type"] == "ExecutionFailed" for event in events)


@contextmanager
def deployed(
    context: Mapping[str, str] | None = None, *, app: Path | None = None, proxy: CountingProxy | None = None
) -> Iterator[Cloud]:
    """A stack in a cloud of its own: ours, or another app's; its functions send their requests through the proxy."""
    # The functions have the emulator's environment.
    environment = {} if proxy is None else {f"AWS_ENDPOINT_URL_{name}": proxy.url for name in ("DYNAMODB", "SFN")}
    with Emulator(env=environment) as emulator:
        if proxy is not None:
            proxy.lead_to(emulator.endpoint)
        ours = {"removal_policy": "destroy", **(context or {})}
        outputs = deploy(emulator, context=ours) if app is None else deploy(emulator, app=app)
        yield Cloud(emulator, boto3.client("stepfunctions", **client_arguments(emulator.endpoint)), outputs)


def handed_over_by(way: str) -> Mapping[str, str]:
    """The context of our stack with one kind of hand-over, ``callback`` or ``poll``."""
    return {"hand_over": way, "poll": f"{POLL_S}"}


def succeeded(runs: dict[str, Execution]) -> dict[str, Execution]:
    """The same executions; it is a LocalCloudError if one of them did not succeed."""
    if failures := unsuccessful(runs.values()):
        raise LocalCloudError("; ".join(failures))
    return runs


def gaps_s(runs: Iterable[Execution]) -> list[float]:
    """The time from each task's end to the next one's start on the same entity, in the order of the holds."""
    gaps = []
    for held in by_entity(runs).values():
        works = [(run.work_started_ms or 0, run.work_ended_ms or 0) for run in held]
        gaps += [(started - ended) / 1_000 for (_, ended), (started, _) in pairwise(works)]
    return gaps


def took_s(runs: Sequence[Execution]) -> float:
    """From the first start to the last task's end."""
    return (max(run.work_ended_ms or 0 for run in runs) - min(run.started_ms for run in runs)) / 1_000


def keeps_ticket_order(runs: Sequence[Execution]) -> bool:
    """Whether no waiter was overtaken, except for the one slip that the order allows each."""
    return max(overtakings(runs).values(), default=0) <= 1


def transitions(events: Iterable[Mapping[str, Any]]) -> int:
    """The state transitions that AWS bills, as far as the events show them.

    Each try of a task is one, since retries are billed: https://aws.amazon.com/step-functions/pricing/. Of the states
    inside a Parallel the emulator shows only the tasks: the caller adds the others.
    """
    kinds = [event["type"] for event in events]
    steps = [kind for kind in kinds if kind.endswith("StateEntered") and kind != "TaskStateEntered"]
    return len(steps) + kinds.count("TaskScheduled")
