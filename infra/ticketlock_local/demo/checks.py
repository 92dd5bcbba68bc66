"""The demo's checks: the promises of a history, and that every execution succeeded."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from ticketlock import LockState
from ticketlock_local.demo.executions import Execution
from ticketlock_local.history import model
from ticketlock_local.history.model import Acquisition, Verdict
from ticketlock_local.history.record import Action, Event, Kind, history


def judge(executions: Iterable[Execution], left: Mapping[str, LockState]) -> Verdict:
    """Check everything.

    Args:
        executions: all executions, after their ends.
        left: each entity's lock in the table afterwards.
    """
    runs = list(executions)
    verdict = model.judge(history(event for run in runs for event in events(run)), left)
    return Verdict((*unsuccessful(runs), *verdict.failures), verdict.slips)


def by_entity(executions: Iterable[Execution]) -> dict[str, list[Execution]]:
    """Group them by entity; each group in the order of its holds, and last the executions that never held."""
    groups: dict[str, list[Execution]] = {}
    for run in executions:
        groups.setdefault(run.entity, []).append(run)
    return {entity: sorted(runs, key=_hold_order) for entity, runs in groups.items()}


def unsuccessful(executions: Iterable[Execution]) -> list[str]:
    """Name the executions that did not succeed, or whose output lacks the times of their work."""
    return [
        f"{run.name} ended as {run.status} {run.error}".rstrip()
        for run in executions
        if run.status != "SUCCEEDED" or None in (run.work_started_ms, run.work_ended_ms)
    ]


def overlaps(executions: Iterable[Execution]) -> list[str]:
    """Name the executions of one entity whose work ran at the same time, by the clocks of the work."""
    return [text for alone in _acquisitions(executions).values() for text in model.exclusion(alone)]


def overtakings(executions: Iterable[Execution]) -> Counter[str]:
    """Count for each execution how many others of its entity with a later ticket held the lock before it."""
    return sum((model.overtakings(alone) for alone in _acquisitions(executions).values()), Counter())


def events(run: Execution) -> list[Event]:
    """An execution as the events of a history, by the common clock of the service and its functions."""
    asking: _Operation = {"process": run.name, "operation": run.name, "action": "acquire", "entity": run.entity}
    releasing: _Operation = {**asking, "operation": f"{run.name}/release", "action": "release"}
    found = [_event(asking, "invoked", run.started_ms, shared=run.shared, permits=run.permits)]
    for standing in run.standings:
        found.append(_event(asking, "stands", standing.from_ms, ticket=run.ticket, until_ms=standing.until_ms))
    # Of other locks' executions only the work is known.
    granted_ms = run.granted_ms if run.granted_ms is not None else run.work_started_ms
    if run.fencing_token is not None and granted_ms is not None:
        numbers = {"ticket": run.ticket, "fencing_token": run.fencing_token, "polled_ms": run.polled_ms}
        found.append(_event(asking, "applied", granted_ms, **numbers))
    elif run.error.startswith("RecordWaitExceeded"):
        found.append(_event(asking, "refused", run.ended_ms or run.started_ms, error=run.error))
    if run.work_ended_ms is not None:
        found.append(_event(asking, "holds", run.work_ended_ms))
    if run.status == "SUCCEEDED" and run.held_until_ms is not None:
        found.append(_event(releasing, "invoked", run.work_ended_ms or run.held_until_ms, of=run.name))
        found.append(_event(releasing, "applied", run.held_until_ms))
    return found


class _Operation(TypedDict):
    process: str
    operation: str
    action: Action
    entity: str


def _event(operation: _Operation, kind: Kind, at_ms: int, **facts: Any) -> Event:
    return Event(**operation, kind=kind, local_ms=at_ms, wall_ms=at_ms, **facts)


def _acquisitions(executions: Iterable[Execution]) -> dict[str, list[Acquisition]]:
    return model.by_entity(history(event for run in executions for event in events(run)).acquisitions)


def _hold_order(run: Execution) -> tuple[bool, int, int, str]:
    return run.fencing_token is None, run.fencing_token or 0, run.started_ms, run.name
