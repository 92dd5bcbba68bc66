"""The promises of a FIFO lock with fencing tokens, checked on a history: one function each, which names what breaks it.

A history is judged from outside, as in Jepsen: of an operation we know when it was invoked, when its answer arrived,
and the answer. It took effect at one moment in between. An operation without an answer (its process was killed, or a
reply was lost) may have taken effect at any time after its invocation, or never. A refused one had no effect. In both
cases the waiter was in the queue until its last poll that found it there; after that it may have left, or been granted
the lock without learning it. So anything that this file reports is certainly broken, whenever the requests took effect.
"""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from ticketlock import LockState
from ticketlock.locks import MAX_HOLDERS

Outcome = Literal["applied", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A time during which a row was certainly in the queue, with a valid lease."""

    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """One process's acquisition of a lock, and its outcome; times are by one clock that all processes share.

    Attributes:
        process, entity: the process, and the entity that it asked for.
        outcome: whether it was granted.
        invoked_ms: when it asked.
        polled_ms: the poll that its grant is based on began after this.
        granted_ms: when the answer arrived; None if it has not.
        ticket: the last ticket that it received; None if it received none: then a grant came at once, with the newest
            ticket there was.
        fencing_token: that of its grant.
        standings: when its row with this ticket was certainly in the queue, unless it was granted the lock before.
        held_until_ms: the last moment at which it certainly relied on the lock; None if it never did.
        is_over: whether it has certainly left: it was refused, or the answer to its release is known.
    """

    process: str
    entity: str
    outcome: Outcome
    invoked_ms: int
    polled_ms: int
    granted_ms: int | None = None
    ticket: int | None = None
    fencing_token: int | None = None
    standings: tuple[Standing, ...] = ()
    held_until_ms: int | None = None
    shared: bool = False
    permits: int = 1
    is_over: bool = False

    def __str__(self) -> str:
        token = "" if self.fencing_token is None else f" (token {self.fencing_token})"
        return self.process + token

    def excludes(self, other: "Acquisition") -> bool:
        """Whether the two must never hold the lock together."""
        return self.shared != other.shared or (not self.shared and self.permits == 1)


def broken(acquisitions: Iterable[Acquisition], left: Mapping[str, LockState]) -> list[str]:
    """Name the promises that were broken; each sentence begins with the promise's name.

    Args:
        acquisitions: those of all processes that used the locks.
        left: each entity's lock in the table afterwards.
    """
    groups, failures = by_entity(acquisitions), []
    for alone in groups.values():
        failures += [*exclusion(alone), *fencing(alone), *no_overtaking(alone)]
    for entity, state in left.items():
        failures += nothing_left(entity, state, groups.get(entity, ()))
    return failures


def by_entity(acquisitions: Iterable[Acquisition]) -> dict[str, list[Acquisition]]:
    """Group them by entity."""
    groups: dict[str, list[Acquisition]] = {}
    for each in acquisitions:
        groups.setdefault(each.entity, []).append(each)
    return groups


# The promises. Each is about the acquisitions of one entity.


def exclusion(acquisitions: Iterable[Acquisition]) -> Iterator[str]:
    """At every moment at most ``permits`` owners rely on the lock, or any number that share it."""
    holding: list[Acquisition] = []
    holds = [each for each in acquisitions if each.granted_ms is not None and each.held_until_ms is not None]
    for later in sorted(holds, key=_granted_ms):
        holding = [each for each in holding if _held_until_ms(each) > _granted_ms(later)]
        others = [each for each in holding if each.excludes(later)]
        if not later.shared and len(holding) >= later.permits:
            others = holding
        if others:
            together_ms = min(_held_until_ms(later), max(map(_held_until_ms, others))) - _granted_ms(later)
            yield f"exclusion: {later} held {later.entity} beside {_listed(others)}, for {together_ms} ms"
        holding.append(later)


def fencing(acquisitions: Iterable[Acquisition]) -> Iterator[str]:
    """Every grant's token is greater than that of every earlier grant."""
    grants = _grants(acquisitions)
    for one, other in pairwise(grant.of for grant in grants):
        if one.fencing_token == other.fencing_token:
            yield f"fencing: {one} and {other} were granted the same token"
    seen: set[int] = set()
    for grant in grants:
        if grant.after_ms > _granted_ms(grant.of) and id(grant.bounded_by) not in seen:
            # A wrong token puts many grants in the wrong order; naming one is enough.
            seen.add(id(grant.bounded_by))
            yield f"fencing: {grant.bounded_by} was granted after {grant.of}, whose token is greater"


def no_overtaking(acquisitions: Iterable[Acquisition]) -> Iterator[str]:
    """No grant overtakes an owner whose valid row was in the queue at its poll, except owners that may hold the lock
    beside it.

    A grant in progress may miss a row that is written during its poll: it overtakes that row, once.
    """
    everybody = list(acquisitions)
    grants = _grants(everybody)
    passed: dict[int, list[Acquisition]] = {}
    for waiter, before in _passed(everybody, grants):
        for grant in before:
            if _stood(waiter, grant.of.polled_ms, grant.until_ms):
                passed.setdefault(grant.number, []).append(waiter)
        surely = [each.of for each in _excluding(waiter, before) if _stood(waiter, each.after_ms, each.until_ms)]
        if len(surely) > 1:
            yield f"no overtaking: {waiter} was overtaken by {_listed(surely)}, though its row was in the queue"
    for number, waiters in sorted(passed.items()):
        grant = grants[number]
        if not _fits_in(grant, waiters, grants):
            yield f"no overtaking: {grant.of} passed {_listed(waiters)}, in the queue when it polled"


def nothing_left(entity: str, state: LockState, acquisitions: Iterable[Acquisition]) -> Iterator[str]:
    """After all owners have left, there is no holder and no waiter; the leases of any that may not have left have
    ended.
    """
    if state.item is None:
        yield f"nothing left: {entity} has no lock item in the table"
        return
    holders, rows, waiting = state.item.holders, state.rows, state.item.waiting
    held = max(state.item.held, len(holders))
    if any(not each.is_over for each in acquisitions):
        now_ms = state.now.earliest_ms
        held = sum(holder.lease_until_ms >= now_ms for holder in holders)
        rows = tuple(row for row in rows if row.lease_until_ms >= now_ms)
        waiting = 0
    for what, count in {"holder": held, "queue row": len(rows), "waiter counted": waiting}.items():
        if count:
            yield f"nothing left: {entity}: {what}: {count}"


# Deviations that the order allows, and how close the order was to perfect.


def slips(acquisitions: Iterable[Acquisition]) -> list[str]:
    """Name the waiters that may have been overtaken by a grant that polled before their row was in the queue."""
    found = []
    for alone in by_entity(acquisitions).values():
        for waiter, before in _passed(alone, _grants(alone)):
            perhaps = [each.of for each in _excluding(waiter, before) if _may_have_stood(waiter, each)]
            if perhaps:
                found.append(f"{waiter} was overtaken by {_listed(perhaps)}, perhaps while its row was in the queue")
    return found


def overtakings(acquisitions: Iterable[Acquisition]) -> Counter[str]:
    """Count for each process how many with a later ticket were granted the lock before it, with a row or without."""
    found: Counter[str] = Counter()
    for alone in by_entity(acquisitions).values():
        tickets: list[int] = []
        for grant in _grants(alone):
            if grant.of.ticket is None:
                continue
            if times := len(tickets) - bisect_right(tickets, grant.of.ticket):
                found[grant.of.process] += times
            insort(tickets, grant.of.ticket)
    return found


@dataclass(frozen=True, slots=True)
class _Grant:
    """A granting write, with what is known of its moment.

    Attributes:
        number: its position in the order of tokens.
        after_ms: it was made after this.
        until_ms: it was made by then.
        bounded_by: the acquisition that shows ``after_ms``; its token is not greater.
    """

    number: int
    of: Acquisition
    after_ms: int
    until_ms: int
    bounded_by: Acquisition


def _grants(acquisitions: Iterable[Acquisition]) -> list[_Grant]:
    """The granting writes in the order of their tokens, which is that of their moments: each bounds the others."""
    granted = sorted(
        (each for each in acquisitions if each.granted_ms is not None and each.fencing_token is not None),
        key=lambda each: each.fencing_token or 0,
    )
    until_ms = list(accumulate(reversed([_granted_ms(each) for each in granted]), min))[::-1]
    grants: list[_Grant] = []
    # The last observed holder of each kind, shared or exclusive: any grant that it excludes was made later.
    held: dict[bool, Acquisition] = {}
    after_ms, bounded_by = -1, None
    for number, each in enumerate(granted):
        bounds = [(each.polled_ms, each)]
        bounds += [(_granted_ms(other), other) for other in held.values() if other.excludes(each)]
        latest_ms, latest = max(bounds, key=lambda bound: bound[0])
        if bounded_by is None or latest_ms > after_ms:
            after_ms, bounded_by = latest_ms, latest
        grants.append(_Grant(number, each, after_ms, until_ms[number], bounded_by))
        if each.held_until_ms is not None:
            held[each.shared] = max(held.get(each.shared, each), each, key=_granted_ms)
    return grants


def _passed(
    everybody: Sequence[Acquisition], grants: Sequence[_Grant]
) -> Iterator[tuple[Acquisition, Sequence[_Grant]]]:
    """Each waiter of the queue, granted or not, with the earlier grants of later tickets.

    Only grants that may have been made while it was in the queue.
    """
    own = {id(grant.of): grant.number for grant in grants}
    for waiter in everybody:
        if not waiter.standings or waiter.ticket is None:
            continue
        first = bisect_right(grants, min(each.from_ms for each in waiter.standings), key=lambda grant: grant.until_ms)
        last = bisect_right(grants, max(each.until_ms for each in waiter.standings), key=lambda grant: grant.after_ms)
        before = grants[first : min(last, own.get(id(waiter), last))]
        later = [grant for grant in before if grant.of.ticket is None or grant.of.ticket > waiter.ticket]
        if later:
            yield waiter, later


def _excluding(waiter: Acquisition, grants: Iterable[_Grant]) -> list[_Grant]:
    return [grant for grant in grants if grant.of.excludes(waiter)]


def _stood(waiter: Acquisition, after_ms: int, until_ms: int) -> bool:
    """Whether its row was certainly in the queue between the two times."""
    return any(standing.from_ms < after_ms and until_ms < standing.until_ms for standing in waiter.standings)


def _may_have_stood(waiter: Acquisition, grant: _Grant) -> bool:
    """Whether its row may have been in the queue at the moment of the grant."""
    return any(each.from_ms < grant.until_ms and grant.after_ms <= each.until_ms for each in waiter.standings)


def _fits_in(grant: _Grant, passed: Sequence[Acquisition], grants: Sequence[_Grant]) -> bool:
    """Whether there may have been room for the grant and for all that it overtook."""
    if any(each.shared != grant.of.shared for each in passed):
        return False
    held = sum(
        _granted_ms(other.of) <= grant.of.polled_ms and (other.of.held_until_ms or 0) >= grant.until_ms
        for other in grants[: grant.number]
    )
    return len(passed) < (MAX_HOLDERS if grant.of.shared else grant.of.permits) - held


def _granted_ms(acquisition: Acquisition) -> int:
    return acquisition.granted_ms or 0


def _held_until_ms(acquisition: Acquisition) -> int:
    return acquisition.held_until_ms or 0


def _listed(acquisitions: Iterable[Acquisition]) -> str:
    return ", ".join(map(str, acquisitions))
