"""What executions of the serialised workflow show of the lock's promises: the checks of the demo and the benchmarks."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ticketlock import LockState
from ticketlock_local.demo import promises
from ticketlock_local.demo.executions import Execution
from ticketlock_local.demo.promises import Acquisition, Outcome, Standing


@dataclass(frozen=True, slots=True)
class Verdict:
    """The broken promises.

    Attributes:
        failures: promises that were broken; each begins with the promise's name.
        slips: waiters that may have been overtaken, once each, as the order allows.
    """

    failures: tuple[str, ...]
    slips: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every promise was kept."""
        return not self.failures


def judge(executions: Iterable[Execution], left: Mapping[str, LockState]) -> Verdict:
    """Check everything.

    Args:
        executions: all executions, after their ends.
        left: each entity's lock in the table afterwards.
    """
    runs = list(executions)
    asked = [_acquisition(run) for run in runs]
    return Verdict((*unsuccessful(runs), *promises.broken(asked, left)), tuple(promises.slips(asked)))


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
    """Name the executions of one entity that relied on its lock at the same time, from the grant to the work's end."""
    groups = promises.by_entity(map(_acquisition, executions))
    return [text for alone in groups.values() for text in promises.exclusion(alone)]


def overtakings(executions: Iterable[Execution]) -> Counter[str]:
    """Count for each execution how many others of its entity with a later ticket held the lock before it."""
    return promises.overtakings(map(_acquisition, executions))


def _acquisition(run: Execution) -> Acquisition:
    # Of another lock's only the work may be known.
    granted_ms = (
        None if run.fencing_token is None else run.work_started_ms if run.granted_ms is None else run.granted_ms
    )
    outcome: Outcome = "applied" if granted_ms is not None else "unknown"
    # Without a grant it may have left the queue after its last poll.
    last_ms = run.standings[-1][0] if run.standings and granted_ms is None else None
    return Acquisition(
        process=run.name,
        entity=run.entity,
        outcome=outcome,
        invoked_ms=run.started_ms,
        polled_ms=run.started_ms if run.polled_ms is None else run.polled_ms,
        granted_ms=granted_ms,
        ticket=run.ticket,
        fencing_token=run.fencing_token,
        standings=tuple(
            Standing(since_ms, until_ms if last_ms is None else min(until_ms, last_ms))
            for since_ms, until_ms in run.standings
        ),
        held_until_ms=run.work_ended_ms,
        shared=run.shared,
        permits=run.permits,
        is_over=run.status != "RUNNING",
    )


def _hold_order(run: Execution) -> tuple[bool, int, int, str]:
    return run.fencing_token is None, run.fencing_token or 0, run.started_ms, run.name
