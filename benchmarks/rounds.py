"""What the benchmarks share: a deployed stack, a round of executions, the gaps between tasks, state transitions."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
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

# The emulator starts a worker for each: more than ten a second would overload a small machine.
START_EVERY_S = 0.12
# It starts one for every call that finds none idle. On a busy machine that slows all of them down, until each takes
# longer than its function may, is ended and called again, and none of them ever starts.
ASKING_AT_MOST = 12
_WARM_UP_EVERY_S = 0.25
_POLL_EVERY_S = 0.1


@contextmanager
def deployed(
    way: str, *, poll_s: int, proxy: CountingProxy | None = None
) -> Iterator[tuple["SFNClient", Mapping[str, str]]]:
    """Our stack in a cloud of its own, with one kind of hand-over: Step Functions, and the stack's outputs.

    Args:
        way: ``callback`` or ``poll``.
        poll_s: the longest sleep of the first in line.
        proxy: through which the lock's functions send their requests.
    """
    # The functions have the emulator's environment.
    environment = {} if proxy is None else {f"AWS_ENDPOINT_URL_{name}": proxy.url for name in ("DYNAMODB", "SFN")}
    with Emulator(env=environment) as emulator:
        if proxy is not None:
            proxy.lead_to(emulator.endpoint)
        outputs = deploy(emulator, context={"hand_over": way, "poll": f"{poll_s}", "removal_policy": "destroy"})
        yield boto3.client("stepfunctions", **client_arguments(emulator.endpoint)), outputs


def starter(client: "SFNClient", outputs: Mapping[str, str], entity: str, work_s: float) -> Callable[[int], str]:
    """Starts the execution of a number, from 0 on, on that entity, and returns its ARN; its task is our function."""
    task = {"functionArn": outputs["ExampleFunctionArn"], "input": {"seconds": work_s}}
    return lambda number: start(client, outputs["StateMachineArn"], f"{entity}-{number + 1:02}", entity, task)


def run_round(
    client: "SFNClient",
    begin: Callable[[int], str],
    executions: int,
    *,
    every_s: float,
    timeout_s: float,
    asking_at_most: int | None = None,
) -> dict[str, Execution]:
    """Start executions at a steady pace, and wait until all have ended, however they end.

    Args:
        client: Step Functions.
        begin: starts the execution of a number, from 0 on, and returns its ARN.
        executions: how many.
        every_s: from one start to the next.
        timeout_s: for the starts, and once more for the ends.
        asking_at_most: the next start waits while so many are still in their first state; None for a steady pace.

    Returns:
        Each by its ARN, in the order of the starts.

    Raises:
        LocalCloudError: one is still running after that time.
    """
    began = time.monotonic()
    arns: list[str] = []
    asking: list[str] = []
    for number in range(executions):
        time.sleep(max(0.0, began + number * every_s - time.monotonic()))
        while asking_at_most is not None and len(asking) >= asking_at_most:
            asking = [arn for arn in asking if _is_asking(client, arn)]
            if time.monotonic() > began + timeout_s:
                raise LocalCloudError(f"{len(arns)} of {executions} executions are started after {timeout_s:.0f} s")
            if len(asking) >= asking_at_most:
                time.sleep(_POLL_EVERY_S)
        arns.append(begin(number))
        asking.append(arns[-1])
    wait_for_all(client, arns, timeout_s=timeout_s)
    return {arn: observe(client, arn) for arn in arns}


def warm_up(client: "SFNClient", begin: Callable[[int], str], executions: int, *, timeout_s: float) -> None:
    """Let the emulator start the functions' workers, a few at a time: each wave uses those of the one before.

    Raises:
        LocalCloudError: one of the executions did not succeed in time.
    """
    done = 0
    for wave in (1, 4, executions):
        first = done

        def following(number: int, first: int = first) -> str:
            return begin(first + number)

        runs = run_round(
            client,
            following,
            wave,
            every_s=_WARM_UP_EVERY_S,
            timeout_s=timeout_s,
            asking_at_most=ASKING_AT_MOST,
        )
        succeeded(runs)
        done += wave


def _is_asking(client: "SFNClient", arn: str) -> bool:
    events = client.get_execution_history(executionArn=arn, maxResults=20)["events"]
    return not any(event["type"].endswith("StateExited") or event["type"] == "ExecutionFailed" for event in events)


def succeeded(runs: dict[str, Execution]) -> dict[str, Execution]:
    """The same executions.

    Raises:
        LocalCloudError: one of them did not succeed.
    """
    if failures := unsuccessful(runs.values()):
        raise LocalCloudError("; ".join(failures))
    return runs


def gaps_s(runs: Sequence[Execution]) -> list[float]:
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


def history(client: "SFNClient", arn: str) -> list[Mapping[str, Any]]:
    """An execution's events, oldest first."""
    pages = client.get_paginator("get_execution_history").paginate(executionArn=arn)
    return [event for page in pages for event in page["events"]]


def transitions(events: Iterable[Mapping[str, Any]]) -> int:
    """The state transitions that AWS bills, as far as the events show them.

    Each try of a task is one, since retries are billed: https://aws.amazon.com/step-functions/pricing/. Of the states
    inside a Parallel the emulator shows only the tasks: the caller adds the others.
    """
    kinds = [event["type"] for event in events]
    steps = [kind for kind in kinds if kind.endswith("StateEntered") and kind != "TaskStateEntered"]
    return len(steps) + kinds.count("TaskScheduled")
