"""Executions on the emulator: a deployed stack, a round of them, the gaps between their tasks, state transitions."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
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
# How many executions warm the emulator up together, before all of them do.
_FIRST_WAVES = (1, 4)
_WARM_UP_EVERY_S = 0.25
_POLL_EVERY_S = 0.1

SLIPS_ALLOWED = 1
"""A grant in progress may miss a row that is written during its poll: it overtakes that waiter, once."""

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

    def start_execution(self, name: str, entity: str, task: Mapping[str, Any]) -> str:
        """Start an execution of our lock. Returns its ARN."""
        return start(self.client, self.outputs["StateMachineArn"], name, entity, task)

    def starter(self, entity: str, work_s: float, *, each: int | None = None) -> Begin:
        """Starts executions on one entity; with ``each``, after so many on the next one."""

        def begin(number: int) -> str:
            group, place = divmod(number, each) if each else (0, number)
            name = f"{entity}-{group + 1:02}" if each else entity
            return self.start_execution(f"{name}-{place + 1:02}", name, self.task(work_s))

        return begin

    def run_all(
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
        numbers = count()

        def begin_next(_number_in_wave: int) -> str:
            return begin(next(numbers))

        for wave in (*_FIRST_WAVES, executions):
            runs = self.run_all(
                begin_next, wave, every_s=_WARM_UP_EVERY_S, timeout_s=timeout_s, asking_at_most=ASKING_AT_MOST
            )
            succeeded(runs)

    def history(self, arn: str) -> list[Mapping[str, Any]]:
        """An execution's events, oldest first."""
        pages = self.client.get_paginator("get_execution_history").paginate(executionArn=arn)
        return [event for page in pages for event in page["events"]]

    def transitions_of(self, arns: Iterable[str]) -> int:
        """The state transitions of executions, as far as their histories show them."""
        return sum(billed_transitions(self.history(arn)) for arn in arns)

    def _is_asking(self, arn: str) -> bool:
        kinds = [event["type"] for event in self.history(arn)]
        return not any(kind.endswith("StateExited") or kind == "ExecutionFailed" for kind in kinds)


@contextmanager
def deployed(hand_over: str | None = None, *, app: Path | None = None) -> Iterator[Cloud]:
    """A stack in a cloud of its own: ours, by default or with one kind of hand-over, or another app's."""
    with Emulator() as emulator:
        context = {"removal_policy": "destroy"}
        if hand_over is not None:
            context |= {"hand_over": hand_over, "poll": f"{POLL_S}"}
        outputs = deploy(emulator, context=context) if app is None else deploy(emulator, app=app)
        yield Cloud(emulator, boto3.client("stepfunctions", **client_arguments(emulator.endpoint)), outputs)


def succeeded(runs: dict[str, Execution]) -> dict[str, Execution]:
    """The same executions; it is a LocalCloudError if one of them did not succeed."""
    if failures := unsuccessful(runs.values()):
        raise LocalCloudError("; ".join(failures))
    return runs


def gaps_s(runs: Iterable[Execution]) -> list[float]:
    """The time from each task's end to the next one's start on the same entity, in the order of the holds.

    A task that has not returned its times has no gap on either side: its hold would count as one.
    """
    return [
        (after.work_started_ms - before.work_ended_ms) / 1_000
        for held in by_entity(runs).values()
        for before, after in pairwise(held)
        if before.work_ended_ms is not None and after.work_started_ms is not None
    ]


def took_s(runs: Sequence[Execution]) -> float:
    """From the first start to the last task's end; 0 if none has ended."""
    began_ms = min(run.started_ms for run in runs)
    ends_ms = (run.work_ended_ms for run in runs if run.work_ended_ms is not None)
    return (max(ends_ms, default=began_ms) - began_ms) / 1_000


def keeps_order(runs: Sequence[Execution]) -> bool:
    """Whether later tickets overtook no waiter more often than the order allows."""
    return max(overtakings(runs).values(), default=0) <= SLIPS_ALLOWED


def billed_transitions(events: Iterable[Mapping[str, Any]]) -> int:
    """The state transitions that AWS bills, as far as the events show them.

    Each try of a task is one, since retries are billed: https://aws.amazon.com/step-functions/pricing/. Of the states
    inside a Parallel the emulator shows only the tasks: the caller adds the others.
    """
    kinds = [event["type"] for event in events]
    steps = [kind for kind in kinds if kind.endswith("StateEntered") and kind != "TaskStateEntered"]
    return len(steps) + kinds.count("TaskScheduled")
