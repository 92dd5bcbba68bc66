"""What executions of the serialised workflow show of the lock's promises: the checks of the demo and the benchmarks.

They are for exclusive locks. ``tests/kit/lock_model.py`` judges shared ones too, and processes that are killed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ticketlock import LockState
from ticketlock_local.demo.executions import Execution


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
    failures = [*unsuccessful(runs), *overlaps(runs)]
    slips: list[str] = []
    for alone in by_entity(runs).values():
        failures += _fencing(_granted(alone))
        for waiter, surely, perhaps in _overtaken(alone):
            if surely:
                failures.append(f"no overtaking: {_told(waiter)} was overtaken by {_listed(surely)}, though {_ITS_ROW}")
            elif perhaps:
                slips.append(f"{_told(waiter)} was overtaken by {_listed(perhaps)}, perhaps while {_ITS_ROW}")
    for entity, state in left.items():
        failures += _left(entity, state)
    return Verdict(tuple(failures), tuple(slips))


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
    found = []
    for alone in by_entity(executions).values():
        before: Execution | None = None
        for run in sorted((run for run in _granted(alone) if run.work_ended_ms is not None), key=_granted_ms):
            if before is not None and _ended_ms(before) > _granted_ms(run):
                together_ms = min(_ended_ms(run), _ended_ms(before)) - _granted_ms(run)
                beside = f"held {run.entity} beside {_told(before)}, for {together_ms} ms"
                found.append(f"exclusion: {_told(run)} {beside}")
            before = run if before is None else max(before, run, key=_ended_ms)
    return found


def overtakings(executions: Iterable[Execution]) -> Counter[str]:
    """Count for each execution how many others of its entity with a later ticket held the lock before it."""
    found: Counter[str] = Counter()
    for alone in by_entity(executions).values():
        tickets = [(run.name, run.ticket) for run in _granted(alone) if run.ticket is not None]
        for place, (name, ticket) in enumerate(tickets):
            if times := sum(earlier > ticket for _, earlier in tickets[:place]):
                found[name] = times
    return found


_ITS_ROW = "its row was in the queue"


def _granted(alone: Sequence[Execution]) -> list[Execution]:
    """The executions of one entity that were granted its lock, in the order of the grants; of another lock's only the
    work may be known.
    """
    known = (run for run in alone if (run.granted_ms, run.work_started_ms) != (None, None))
    return [run for run in known if run.fencing_token is not None]


def _fencing(granted: Sequence[Execution]) -> Iterator[str]:
    """Every grant's token is greater than that of every earlier grant."""
    for one, other in pairwise(granted):
        if one.fencing_token == other.fencing_token:
            yield f"fencing: {_told(one)} and {_told(other)} were granted the same token"
    for place, one in enumerate(granted[:-1]):
        other = min(granted[place + 1 :], key=_granted_ms)
        if (one.polled_ms or 0) > _granted_ms(other):
            yield f"fencing: {_told(one)} was granted after {_told(other)}, whose token is greater"


def _overtaken(alone: Sequence[Execution]) -> Iterator[tuple[Execution, list[Execution], list[Execution]]]:
    """Each waiter that later tickets may have overtaken: what overtook it against the promise, and what may have.

    A grant in progress may miss a row that is written during its poll: it overtakes that row, once.
    """
    granted = _granted(alone)
    for waiter in alone:
        if waiter.ticket is None:
            continue
        earlier = granted[: granted.index(waiter)] if waiter in granted else granted
        passed_at_poll, surely, perhaps = [], [], []
        after_ms = 0
        for grant in earlier:
            # The grant was made after its poll began and after the grant before it was known, and before its answer.
            after_ms = max(after_ms, grant.polled_ms or 0)
            if grant.ticket is None or grant.ticket > waiter.ticket:
                if _stood(waiter, grant.polled_ms or 0, _granted_ms(grant)):
                    passed_at_poll.append(grant)
                elif _stood(waiter, after_ms, _granted_ms(grant)):
                    surely.append(grant)
                if any(since < _granted_ms(grant) and after_ms <= until for since, until in waiter.standings):
                    perhaps.append(grant)
            after_ms = max(after_ms, _granted_ms(grant))
        against = [*passed_at_poll, *(surely if len(surely) > 1 else ())]
        yield waiter, against, perhaps


def _stood(waiter: Execution, from_ms: int, until_ms: int) -> bool:
    """Whether its row was certainly in the queue between the two times."""
    return any(since < from_ms and until_ms < until for since, until in waiter.standings)


def _left(entity: str, state: LockState) -> Iterator[str]:
    """After all executions have ended, there is no holder and no waiter."""
    if state.item is None:
        yield f"nothing left: {entity} has no lock item in the table"
        return
    held = max(state.item.held, len(state.item.holders))
    for what, count in {"holder": held, "queue row": len(state.rows), "waiter counted": state.item.waiting}.items():
        if count:
            yield f"nothing left: {entity}: {what}: {count}"


def _hold_order(run: Execution) -> tuple[bool, int, int, str]:
    return run.fencing_token is None, run.fencing_token or 0, run.started_ms, run.name


def _granted_ms(run: Execution) -> int:
    return run.granted_ms if run.granted_ms is not None else run.work_started_ms or 0


def _ended_ms(run: Execution) -> int:
    return run.work_ended_ms or 0


def _told(run: Execution) -> str:
    return run.name if run.fencing_token is None else f"{run.name} (token {run.fencing_token})"


def _listed(runs: Iterable[Execution]) -> str:
    return ", ".join(map(_told, runs))
