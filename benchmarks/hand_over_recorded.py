"""One round of executions that hand over to each other, with every request, for the picture in the docs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from counting_proxy import CountingProxy, counting_proxy
from rounds import deployed, history, run_round, starter, succeeded, warm_up
from ticketlock_local.diagrams.hand_over import Execution, Recording, Run
from ticketlock_local.errors import LocalCloudError

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

EXECUTIONS = 3
WORK_S = 1.5
START_EVERY_S = 0.3
POLL_S = 1

# More than take part: a function that starts in the round would be part of the picture.
_WARM_UP = 10
_TIMEOUT_S = 240.0


def recorded() -> Recording:
    """Both ways, each in a cloud of its own.

    Raises:
        LocalCloudError: an execution failed, or the lock went from one to another in another order than they came.
    """
    with counting_proxy() as proxy:
        runs = [_recorded(way, f"hand_over={way}{more}", proxy) for way, more in _WAYS.items()]
    note = (
        f"{EXECUTIONS} executions on one entity, {WORK_S} s of work each, in the deployed stack on an emulator. "
        "Each dot is a request of the lock's functions."
    )
    return Recording(note, runs)


_WAYS: Mapping[str, str] = {"callback": "", "poll": f", poll={POLL_S}"}


def _recorded(way: str, name: str, proxy: CountingProxy) -> Run:
    with deployed(way, poll_s=POLL_S, proxy=proxy) as (client, outputs):
        warm_up(client, starter(client, outputs, "warm-up", 0.3), _WARM_UP, timeout_s=_TIMEOUT_S)
        begin = starter(client, outputs, "recorded", WORK_S)
        proxy.counts()
        runs = succeeded(run_round(client, begin, EXECUTIONS, every_s=START_EVERY_S, timeout_s=_TIMEOUT_S))
        requests = proxy.passed()
        polls = {arn: _polls_ms(client, arn) for arn in runs}
    origin_ms = min(run.started_ms for run in runs.values())
    executions = [
        Execution(
            run.started_ms - origin_ms,
            [at_ms - origin_ms for at_ms in polls[arn]],
            ((run.work_started_ms or 0) - origin_ms, (run.work_ended_ms or 0) - origin_ms),
        )
        for arn, run in runs.items()
    ]
    if executions != sorted(executions, key=lambda each: each.work):
        raise LocalCloudError(f"{name}: the tasks did not run in the order of the starts")
    return Run(name, executions, [(request.at_ms - origin_ms, request.operation) for request in requests])


def _polls_ms(client: "SFNClient", arn: str) -> list[int]:
    return [
        round(event["timestamp"].timestamp() * 1_000)
        for event in history(client, arn)
        if event.get("stateEnteredEventDetails", {}).get("name") == "CheckPosition"
    ]
