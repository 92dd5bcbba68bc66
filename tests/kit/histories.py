"""Checks histories of transactions that append to lists: could strictly serialisable ones have produced them?

Each element is appended to its list once, so that a read shows whose appends it saw, and in which order: the idea of
Elle (Kingsbury and Alvaro, 2020). From that follows the order of transactions: the writer of an element comes before
the writer of the next one (ww) and before each reader that saw it (wr), a reader that did not see it comes before its
writer (rw), and a transaction that had ended comes before those that began later (real time). The transactions are
strictly serialisable exactly if these edges form no cycle, and all reads of a list agree on its order.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import inf
from typing import Literal

Outcome = Literal["committed", "aborted", "unknown"]
Arrow = Literal["ww", "wr", "rw", "real time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction that has ended for its client.

    Attributes:
        begin, end: when it began and when its end was reported, by one clock; the end of an unknown one means nothing:
            it may be applied later, or never.
        reads: by key the elements that it saw; None and no elements both mean that there were none.
        appends: by key the element that it appended, at most one for each key.
        reads_own: the keys that it read after it had appended to them; it read the others before.
    """

    id: str
    begin: float
    end: float
    outcome: Outcome = "committed"
    reads: Mapping[str, Sequence[int] | None] = field(default_factory=dict)
    appends: Mapping[str, int] = field(default_factory=dict)
    reads_own: Collection[str] = ()

    @property
    def over_at(self) -> float:
        """By when it was applied, if it was."""
        return inf if self.outcome == "unknown" else self.end

    def saw(self, key: str) -> tuple[int, ...]:
        """The elements of a list that it saw."""
        return tuple(self.reads[key] or ())

    def saw_of_others(self, key: str) -> tuple[int, ...]:
        """The same, without its own elements."""
        return tuple(element for element in self.saw(key) if element != self.appends.get(key))


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that strictly serialisable transactions cannot show.

    Attributes:
        kind: its name.
        transactions: the ids of those that show it.
        text: one sentence.
    """

    kind: str
    transactions: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Edge:
    before: str
    after: str
    arrow: Arrow
    why: str


def anomalies(history: Sequence[Transaction]) -> list[Anomaly]:
    """The anomalies of a history; none exactly if strictly serialisable transactions could have produced it.

    Transactions that show one anomaly are not reported in a cycle as well.

    Raises:
        ValueError: two transactions have one id, two elements of a list are the same, or one ends before it begins.
    """
    writers = _writers(history)
    applied = _applied(history, writers)
    found = [
        *_dirty_reads(history, writers),
        *_garbage_reads(applied, writers),
        *_duplicates(applied),
        *_internal(applied),
        *_incompatible_orders(applied),
        *_lost_updates(applied),
        *_lost_appends(applied),
    ]
    return [*found, *_cycles(applied, writers, {id for anomaly in found for id in anomaly.transactions})]


def is_strictly_serialisable(history: Sequence[Transaction]) -> bool:
    """The same answer by trying every order, for up to about eight transactions.

    As in ``anomalies``, no transaction may have seen what another one aborted, not even an aborted one.
    """
    aborted = {(key, each.appends[key]): each for each in history if each.outcome == "aborted" for key in each.appends}
    for each in history:
        for key in each.reads:
            if any(aborted.get((key, element), each) is not each for element in each.saw(key)):
                return False
    return _has_an_order([each for each in history if each.outcome != "aborted"], {})


def _has_an_order(left: Sequence[Transaction], lists: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether these can run one after the other, starting from these lists."""
    if all(each.outcome == "unknown" for each in left):
        return True
    for each in left:
        others = [other for other in left if other is not each]
        if any(other.over_at < each.begin for other in others) or not _fits(each, lists):
            continue
        after = {key: (*lists.get(key, ()), element) for key, element in each.appends.items()}
        if _has_an_order(others, {**lists, **after}):
            return True
    return False


def _fits(each: Transaction, lists: Mapping[str, tuple[int, ...]]) -> bool:
    for key in each.reads:
        found = lists.get(key, ())
        may_see = [(*found, each.appends[key])] if key in each.appends else []
        if key not in each.reads_own or key not in each.appends:
            may_see.append(found)
        if each.saw(key) not in may_see:
            return False
    return True


Writers = Mapping[tuple[str, int], Transaction]


def _writers(history: Sequence[Transaction]) -> Writers:
    writers: dict[tuple[str, int], Transaction] = {}
    if len({each.id for each in history}) < len(history):
        raise ValueError("two transactions have one id")
    for each in history:
        if each.end < each.begin:
            raise ValueError(f"{each.id} ends before it begins")
        for key, element in each.appends.items():
            if (key, element) in writers:
                raise ValueError(
                    f"{writers[key, element].id} and {each.id} append {element} to {key}: which one is seen?"
                )
            writers[key, element] = each
    return writers


def _applied(history: Sequence[Transaction], writers: Writers) -> list[Transaction]:
    """Those that were applied: committed, or of unknown outcome and seen by a committed one."""
    applied = {each.id: each for each in history if each.outcome == "committed"}
    pending = deque(applied.values())
    while pending:
        each = pending.popleft()
        for key in each.reads:
            for element in each.saw(key):
                writer = writers.get((key, element))
                if writer is not None and writer.outcome == "unknown" and writer.id not in applied:
                    applied[writer.id] = writer
                    pending.append(writer)
    return [each for each in history if each.id in applied]


# Anomalies without a cycle.


def _dirty_reads(history: Iterable[Transaction], writers: Writers) -> Iterator[Anomaly]:
    for each in history:
        for key in each.reads:
            for element in each.saw(key):
                writer = writers.get((key, element), each)
                if writer is not each and writer.outcome == "aborted":
                    text = f"{each.id} saw {element} in {key}, which {writer.id} appended and aborted"
                    yield Anomaly("dirty read", (each.id, writer.id), text)


def _garbage_reads(applied: Iterable[Transaction], writers: Writers) -> Iterator[Anomaly]:
    for each in applied:
        for key in each.reads:
            for element in each.saw(key):
                if (key, element) not in writers:
                    text = f"{each.id} saw {element} in {key}, which no transaction appended"
                    yield Anomaly("garbage read", (each.id,), text)


def _duplicates(applied: Iterable[Transaction]) -> Iterator[Anomaly]:
    for each in applied:
        for key in each.reads:
            saw = each.saw(key)
            for element in sorted({element for element in saw if saw.count(element) > 1}):
                text = f"{each.id} saw {element} {saw.count(element)} times in {key}, where it was appended once"
                yield Anomaly("duplicate element", (each.id,), text)


def _internal(applied: Iterable[Transaction]) -> Iterator[Anomaly]:
    for each in applied:
        for key, own in each.appends.items():
            if key not in each.reads:
                continue
            saw = each.saw(key)
            if own in saw and saw[-1] != own:
                text = f"{each.id} saw {list(saw)} in {key} with its own {own} before elements of others"
                yield Anomaly("internal inconsistency", (each.id,), text)
            elif own not in saw and key in each.reads_own:
                text = f"{each.id} appended {own} to {key} and then saw {list(saw)} there"
                yield Anomaly("internal inconsistency", (each.id,), text)


def _by_key(applied: Iterable[Transaction]) -> Mapping[str, list[Transaction]]:
    """The transactions that read a list, by its key."""
    readers: dict[str, list[Transaction]] = defaultdict(list)
    for each in applied:
        for key in each.reads:
            readers[key].append(each)
    return readers


def _longest(key: str, readers: Iterable[Transaction]) -> Transaction:
    return max(readers, key=lambda each: len(each.saw(key)))


def _incompatible_orders(applied: Iterable[Transaction]) -> Iterator[Anomaly]:
    for key, readers in _by_key(applied).items():
        longest = _longest(key, readers)
        order = longest.saw(key)
        for each in readers:
            saw = each.saw(key)
            if saw != order[: len(saw)]:
                text = f"{each.id} saw {list(saw)} in {key}, and {longest.id} saw {list(order)}"
                yield Anomaly("incompatible orders", (each.id, longest.id), text)


def _lost_updates(applied: Iterable[Transaction]) -> Iterator[Anomaly]:
    for key, readers in _by_key(applied).items():
        same: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for each in readers:
            if key in each.appends:
                same[each.saw_of_others(key)].append(each.id)
        for saw, ids in same.items():
            if len(ids) > 1:
                text = f"{' and '.join(ids)} each saw {list(saw)} in {key} and appended to that"
                yield Anomaly("lost update", tuple(ids), text)


def _lost_appends(applied: Collection[Transaction]) -> Iterator[Anomaly]:
    readers = _by_key(applied)
    seen = {(key, element) for key, each in readers.items() for reader in each for element in reader.saw_of_others(key)}
    for each in applied:
        for key, element in each.appends.items():
            later = [reader for reader in readers.get(key, ()) if each.over_at < reader.begin]
            if later and (key, element) not in seen:
                text = f"{each.id} appended {element} to {key}, and not even {later[-1].id} saw it later"
                yield Anomaly("lost append", (each.id, later[-1].id), text)


# Cycles.

# By their last edge, and the edges that may lead back: Adya's names, the worst first.
_CIRCLES: Sequence[tuple[str, Arrow, tuple[Arrow, ...]]] = (
    ("G0", "ww", ("ww",)),
    ("G1c", "wr", ("ww", "wr")),
    ("G-single", "rw", ("ww", "wr")),
    ("G2", "rw", ("ww", "wr", "rw")),
    ("G0 in real time", "ww", ("ww", "real time")),
    ("G1c in real time", "wr", ("ww", "wr", "real time")),
    ("G-single in real time", "rw", ("ww", "wr", "real time")),
    ("G2 in real time", "rw", ("ww", "wr", "rw", "real time")),
)


def _cycles(applied: Sequence[Transaction], writers: Writers, named: set[str]) -> Iterator[Anomaly]:
    """Cycles that share no transaction with each other, or with the anomalies that were reported before."""
    edges = [*_of_lists(applied, writers), *_of_real_time(applied)]
    if not _has_a_cycle(edges):
        return
    for kind, last, back in _CIRCLES:
        ways: dict[str, list[_Edge]] = defaultdict(list)
        for edge in edges:
            if edge.arrow in back:
                ways[edge.before].append(edge)
        for edge in edges:
            if edge.arrow != last or edge.before in named:
                continue
            way = _way(ways, edge.after, edge.before, named)
            if way is not None:
                circle = [edge, *way]
                ids = tuple(each.before for each in circle)
                named.update(ids)
                yield Anomaly(kind, ids, ", ".join(each.why for each in circle))


def _has_a_cycle(edges: Iterable[_Edge]) -> bool:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for edge in edges:
        sorter.add(edge.after, edge.before)
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


def _way(ways: Mapping[str, Sequence[_Edge]], start: str, goal: str, barred: Collection[str]) -> list[_Edge] | None:
    """A shortest path that avoids the barred transactions."""
    if start in barred:
        return None
    came_by: dict[str, _Edge] = {}
    reached = deque([start])
    while reached:
        here = reached.popleft()
        if here == goal:
            way: list[_Edge] = []
            while here != start:
                way.append(came_by[here])
                here = came_by[here].before
            return way[::-1]
        for edge in ways.get(here, ()):
            if edge.after not in came_by and edge.after != start and edge.after not in barred:
                came_by[edge.after] = edge
                reached.append(edge.after)
    return None


def _of_lists(applied: Sequence[Transaction], writers: Writers) -> Iterator[_Edge]:
    """The order of transactions by what they saw, without edges that follow from others."""
    appended: dict[str, dict[int, Transaction]] = defaultdict(dict)
    for each in applied:
        for key, element in each.appends.items():
            appended[key][element] = each
    for key, readers in _by_key(applied).items():
        order = [element for element in _longest(key, readers).saw(key) if (key, element) in writers]
        by = appended[key]
        for one, other in pairwise(element for element in order if element in by):
            why = f"{by[one].id} appended {one} to {key} before {by[other].id} appended {other}"
            yield from _edge(by[one], by[other], "ww", why)
        unseen = [element for element in by if element not in order]
        for reader in readers:
            saw = reader.saw_of_others(key)
            if saw and saw[-1] in by:
                yield from _edge(by[saw[-1]], reader, "wr", f"{reader.id} saw {saw[-1]} of {by[saw[-1]].id} in {key}")
            missed = [element for element in order if element in by and element not in reader.saw(key)]
            for element in missed[:1] or unseen:
                why = f"{reader.id} did not see {element} of {by[element].id} in {key}"
                yield from _edge(reader, by[element], "rw", why)


def _edge(before: Transaction, after: Transaction, arrow: Arrow, why: str) -> Iterator[_Edge]:
    if before is not after:
        yield _Edge(before.id, after.id, arrow, why)


def _of_real_time(applied: Sequence[Transaction]) -> Iterator[_Edge]:
    """The order by real time: one had ended when the other began; without edges that follow from others."""
    for each in applied:
        before = [other for other in applied if other.over_at < each.begin]
        last_begin = max((other.begin for other in before), default=-inf)
        for other in before:
            if other.over_at >= last_begin:
                yield _Edge(other.id, each.id, "real time", f"{other.id} had ended when {each.id} began")
