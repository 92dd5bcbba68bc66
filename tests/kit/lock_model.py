"""Histories of locks, judged: the promises of ``ticketlock_local.demo.promises``, and counters under the locks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ticketlock_local.demo.checks import Verdict
from ticketlock_local.demo.promises import Acquisition, Outcome, broken, slips

from ticketlock import LockState


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One write of a counter: the value that was read, plus one.

    Attributes:
        found: the value that was read.
        sent_ms: when the write was sent.
    """

    process: str
    entity: str
    outcome: Outcome
    found: int
    sent_ms: int


@dataclass(frozen=True, slots=True)
class History:
    """The operations of a run's processes."""

    acquisitions: Sequence[Acquisition]
    updates: Sequence[Update] = ()


def judge(history: History, left: Mapping[str, LockState], counters: Mapping[str, int] | None = None) -> Verdict:
    """Check everything.

    Args:
        history: that of all processes that used the locks.
        left: each entity's lock in the table afterwards.
        counters: the values at the end of the counters that were updated, by entity.
    """
    failures = broken(history.acquisitions, left)
    for entity, value in (counters or {}).items():
        failures += no_lost_update(entity, [each for each in history.updates if each.entity == entity], value)
    return Verdict(tuple(failures), tuple(slips(history.acquisitions)))


def lease_runs(state: LockState) -> bool:
    """Whether a holder's or a waiter's lease may still be running."""
    leases = [row.lease_until_ms for row in state.rows]
    leases += [holder.lease_until_ms for holder in (state.item.holders if state.item is not None else ())]
    return any(until_ms >= state.now.earliest_ms for until_ms in leases)


def no_lost_update(entity: str, updates: Iterable[Update], value: int) -> Iterator[str]:
    """Every update that was applied is in the counter: no two found the same value, and none is missing at the end."""
    outcomes: Counter[Outcome] = Counter()
    by_found: dict[int, Update] = {}
    for update in sorted(updates, key=lambda update: update.sent_ms):
        outcomes[update.outcome] += 1
        if update.outcome != "applied":
            continue
        first = by_found.setdefault(update.found, update)
        if first is not update:
            yield f"no lost update: {first.process} and {update.process} both made {update.found + 1} of {update.found}"
    least, most = outcomes["applied"], outcomes["applied"] + outcomes["unknown"]
    if not least <= value <= most:
        yield f"no lost update: the counter of {entity} is {value} after {least} updates, and {most - least} unknown"
