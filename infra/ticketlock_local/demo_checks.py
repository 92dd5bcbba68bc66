"""What the demo proves: exclusion, fencing, order, success, and that nothing is left."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ticketlock import LockState
from ticketlock_local.executions import Execution


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found wrong.

    Attributes:
        failures: promises that were broken.
        slips: turns that the order allows to be lost: one for each waiter.
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
        executions: all of them, ended.
        left: each entity's lock, as it stands in the table afterwards.
    """
    runs = list(executions)
    slips: list[str] = []
    failures = unsuccessful(runs)
    for alone in by_entity(runs).values():
        failures += overlaps(alone) + stale_tokens(alone)
        for passed_over, times in overtakings(alone).items():
            text = f"{passed_over} was overtaken {times} {'time' if times == 1 else 'times'} in {alone[0].entity}"
            (slips if times == 1 else failures).append(text)
    failures += [text for entity, state in left.items() for text in leftovers(entity, state)]
    return Verdict(tuple(failures), tuple(slips))


def by_entity(executions: Iterable[Execution]) -> dict[str, list[Execution]]:
    """Group them, as their entities come; each group in the order of its holds, and last who never held."""
    groups: dict[str, list[Execution]] = {}
    for run in executions:
        groups.setdefault(run.entity, []).append(run)
    return {entity: sorted(runs, key=_hold_order) for entity, runs in groups.items()}


def unsuccessful(executions: Iterable[Execution]) -> list[str]:
    """Name the executions that did not succeed, or did not return when their work ran."""
    return [
        f"{run.name} ended as {run.status} {run.error}".rstrip()
        for run in executions
        if run.status != "SUCCEEDED" or None in (run.work_started_ms, run.work_ended_ms)
    ]


def overlaps(executions: Sequence[Execution]) -> list[str]:
    """Name the works of one entity that ran at the same time, by their own clocks."""
    works = sorted(
        (run.work_started_ms, run.work_ended_ms, run.name)
        for run in executions
        if run.work_started_ms is not None and run.work_ended_ms is not None
    )
    found = []
    # The one that ends last so far: a long work can overlap more than its successor.
    for index, (started, _, name) in enumerate(works[1:], start=1):
        _, last_end, last = max(works[:index], key=lambda work: work[1])
        if started < last_end:
            found.append(f"{name} and {last} overlapped by {last_end - started} ms")
    return found


def stale_tokens(executions: Sequence[Execution]) -> list[str]:
    """Name the holds whose fencing token is not greater than that of the hold before."""
    holds = sorted((run for run in executions if run.work_started_ms is not None), key=_work_order)
    return [
        f"{later.name} worked after {earlier.name}, but its fencing token {later.fencing_token} is not greater"
        for earlier, later in pairwise(holds)
        if (later.fencing_token or 0) <= (earlier.fencing_token or 0)
    ]


def overtakings(executions: Sequence[Execution]) -> Counter[str]:
    """Count for each execution how many with a later ticket held before it did."""
    holds = [
        (run.ticket, run.name)
        for run in sorted(executions, key=_hold_order)
        if run.fencing_token is not None and run.ticket is not None
    ]
    found: Counter[str] = Counter()
    for index, (ticket, name) in enumerate(holds):
        times = sum(ahead > ticket for ahead, _ in holds[:index])
        if times:
            found[name] = times
    return found


def leftovers(entity: str, state: LockState) -> list[str]:
    """Name what is left of a lock that nobody uses any more, besides its counters."""
    if state.item is None:
        return [f"{entity} has no lock item in the table"]
    counts = {
        "holder": max(state.item.held, len(state.item.holders)),
        "queue row": len(state.rows),
        "waiter counted": state.item.waiting,
    }
    return [f"{entity}: left over, {what}: {count}" for what, count in counts.items() if count]


def _hold_order(run: Execution) -> tuple[bool, int, int, str]:
    return run.fencing_token is None, run.fencing_token or 0, run.started_ms, run.name


def _work_order(run: Execution) -> int:
    return run.work_started_ms or 0
