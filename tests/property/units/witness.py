"""What the simulated world of units knows, and no process does: at which step each unit was committed.

It keeps a model beside the tables: at the step at which a unit is committed, everything that it has read has to stand
in the model as it was read, and what it writes is written there. So each read is judged by the states that there were
while it went on; in the end the tables are what the model is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from kit.histories import Outcome, Transaction, anomalies
from kit.invariants import Broken
from property.units.saves import Saves

Key = tuple[str, str]
"""The name of a table, and an item in it."""
Value = tuple[int, ...] | None
"""The elements of an item's list; None where there is no item."""

NOT_COMMITTED = frozenset(
    {
        "ConditionFailed",
        "ItemTooLarge",
        "LockLost",
        "RequestNotApplied",
        "TableRefused",
        "UnitChanged",
        "UnitConflict",
        "UnitContended",
        "UnitRolledBack",
        "UnitTooLarge",
        "given up",
        "rolled back",
        "saved",
    }
)
"""Whoever is told one of these has written nothing, and will not."""
COMMITTED, REPEATED, SAVED = "committed", "repeated", "saved"
CLOCKS_DIFFER_MS = 1_000
"""The clocks of the service's servers."""


@dataclass(eq=False)
class Record:
    """One unit, or one write beside units, as whoever runs it knows it.

    Attributes:
        id: its name in what it writes.
        number: the element that it appends.
        began, told_at: at which steps it began, and was told its end.
        seen: what it has read, and is to be checked for.
        missed: what was not in a range that it has read, and is to be checked for: it may read that again.
        writes: what is to stand in the items that it writes; by key.
        blind: keys to which the service appends its element.
        name: for exactly once.
        knows_name_at: the step at which it knew what had become of its name.
        fence: the token that it is under.
        told: how it ended, as far as it was told.
        is_plain: whether it is a write beside units.
        machine: the name of that which runs it.
        born_ms: when its first try began, by that machine's wall clock.
        saved_as: the id of the unit that it has saved, or goes on with.
    """

    id: str
    number: int
    began: int
    began_ms: float = 0
    seen: dict[Key, Value] = field(default_factory=dict)
    missed: set[Key] = field(default_factory=set)
    writes: dict[Key, Value] = field(default_factory=dict)
    blind: set[Key] = field(default_factory=set)
    name: str | None = None
    knows_name_at: int | None = None
    fence: int | None = None
    told: str | None = None
    told_at: float = inf
    is_plain: bool = False
    is_gone: bool = False
    machine: str = ""
    born_ms: int = 0
    saved_as: str | None = None

    @property
    def age(self) -> tuple[int, str]:
        """The oldest unit is the least."""
        return self.born_ms, self.id

    @property
    def is_read_only(self) -> bool:
        """Whether it changes nothing: then nothing tells that it was committed."""
        return not self.blind and not any(self.is_change(key) for key in self.writes) and self.name is None

    @property
    def has_read(self) -> Mapping[Key, Value]:
        """Everything that it has read, and is to be checked for."""
        return {**dict.fromkeys(self.missed), **self.seen}

    def is_change(self, key: Key) -> bool:
        """Whether the item is written: to delete what is not there changes nothing."""
        return not (self.writes[key] is None and self.seen.get(key, ()) is None)


@dataclass(eq=False)
class Commit:
    """That a unit was committed.

    Attributes:
        at: at which step.
        visible_at: at which step the service had changed the last item; until then a plain read may see what stood
            there before.
        state: of all items, afterwards.
    """

    record: Record | None
    at: int
    visible_at: float
    state: Mapping[Key, Value]


@dataclass
class UnitWitness:
    """Sees everything, and judges it.

    Attributes:
        step: how many there were.
        commits: in their order; the first is the beginning.
        log: what has happened.
        token: the last fencing token that was granted.
    """

    keys: Sequence[Key]
    is_append_only: bool
    step: int = 0
    log: list[str] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    committed: dict[str, Commit] = field(default_factory=dict)
    names: dict[str, Record] = field(default_factory=dict)
    given_up: list[tuple[str, int, int]] = field(default_factory=list)
    rolled_back: set[str] = field(default_factory=set)
    cuts: list[Transaction] = field(default_factory=list)
    token: int = 0
    aborts: int = 0
    saves: Saves = field(default_factory=Saves)

    def __post_init__(self) -> None:
        self.commits.append(Commit(None, 0, 0, dict.fromkeys(self.keys)))

    @property
    def state(self) -> Mapping[Key, Value]:
        """What stands in the items, once everything is finished."""
        return self.commits[-1].state

    def tells(self, what: str) -> None:
        self.log.append(f"{self.step}: {what}")

    def begins(self, record: Record) -> Record:
        self.records[record.id] = record
        return record

    # Commits.

    def sees_commit(self, unit: str, visible_at: float) -> Commit | None:
        """A unit is committed in this step; judged at once."""
        record = self.records.get(unit)
        if record is None:
            raise Broken(f"atomicity: {unit} was committed, and nobody has begun it")
        if unit in self.committed:
            raise Broken(f"atomicity: {unit} was committed twice")
        self.tells(
            f"{unit} is committed: reads {_short(record.has_read)}, writes {_short(record.writes)} {record.blind}"
        )
        if record.told in NOT_COMMITTED:
            raise Broken(f"told: {unit} was told {record.told} at {record.told_at}, and is committed now")
        if record.saved_as is not None:
            self.saves.sees_commit(record.saved_as, unit)
        if unit in self.rolled_back or record.saved_as in self.rolled_back:
            raise Broken(f"told: {unit} was told to be rolled back, and is committed now")
        for key, value in (*dict.fromkeys(record.missed).items(), *record.seen.items()):
            if self.state[key] != value:
                raise Broken(f"serialisable: {unit} saw {value} in {key}, and is committed over {self.state[key]}")
        if record.fence is not None and record.fence != self.token:
            raise Broken(f"fence: {unit} is committed under token {record.fence}, after the grant of {self.token}")
        if record.name is not None:
            self._sees_name(record, record.name)
        state = dict(self.state)
        state.update(record.writes)
        for key in record.blind:
            state[key] = (*(state[key] or ()), record.number)
        commit = Commit(record, self.step, visible_at, state)
        self.commits.append(commit)
        self.committed[unit] = commit
        return commit

    def _sees_name(self, record: Record, name: str) -> None:
        if name in self.names:
            raise Broken(f"exactly once: {record.id} and {self.names[name].id} are committed under the name {name}")
        for each, asked_at, told_at in self.given_up:
            if each == name and record.knows_name_at is not None and record.knows_name_at < asked_at:
                raise Broken(f"told: {name} was told at {told_at} to be rolled back, and {record.id} is committed")
        self.names[name] = record

    # Ends.

    def sees_end(self, record: Record, told: str) -> None:
        """Whoever runs a unit is told its end."""
        record.told, record.told_at = told, self.step
        self.tells(f"{record.id} is told: {told}")
        self.aborts += told != COMMITTED
        if told in NOT_COMMITTED and record.id in self.committed:
            raise Broken(f"told: {record.id} is told {told}, and was committed at {self.committed[record.id].at}")
        if told == REPEATED and record.name not in self.names:
            raise Broken(f"exactly once: {record.id} is told that {record.name} was used, and it was not")
        if told != COMMITTED:
            return
        if record.is_read_only:
            if any(record.seen.get(key) is not None for key in record.missed):
                raise Broken(f"serialisable: {record.id} is committed, and has missed what it has seen: {record.seen}")
            if record.has_read:
                self.sees_cut(record.id, record.has_read, record.began, is_one_instant=True, kind="serialisable")
        elif record.id not in self.committed:
            raise Broken(f"told: {record.id} is told that it is committed, and it is not")

    def sees_outcome(self, told: str, asked_at: int, *, name: str | None = None, unit: str | None = None) -> None:
        """Somebody has asked what became of a unit or a name."""
        self.tells(f"outcome of {name or unit}: {told}")
        if name is not None:
            if told == "COMMITTED" and name not in self.names:
                raise Broken(f"told: the name {name} is told to be committed, and it is not")
            if told == "ROLLED_BACK":
                self.given_up.append((name, asked_at, self.step))
                # What was committed before is told.
                if name in self.names and self.committed[self.names[name].id].visible_at < asked_at:
                    raise Broken(f"told: the name {name} is told to be rolled back, and it was committed")
        if unit is not None:
            is_committed = unit in self.committed or unit in self.saves.committed
            if told == "COMMITTED" and not is_committed:
                raise Broken(f"told: {unit} is told to be committed, and it is not")
            if told == "ROLLED_BACK":
                self.rolled_back.add(unit)
                if is_committed:
                    raise Broken(f"told: {unit} is told to be rolled back, and it is committed")

    def sees_rollback(self, unit: str, by: str | None, lease_left_ms: float | None) -> None:
        """A unit is rolled back: by itself, by an older one, or because its lease is over; the oldest by nobody else.

        Args:
            lease_left_ms: how long its lease would have run still, where that is the reason.
        """
        victim = self.records.get(unit)
        if victim is None:
            raise Broken(f"atomicity: {unit} is rolled back, and nobody has begun it")
        if lease_left_ms is not None and lease_left_ms > CLOCKS_DIFFER_MS:
            raise Broken(f"alive: {unit} is rolled back, and its lease runs for another {lease_left_ms:.0f} ms")
        if by is None:
            return
        other = self.records.get(by)
        if other is None or other.age > victim.age:
            raise Broken(f"order: {unit}, born at {victim.born_ms}, is rolled back by {by}, which is younger")

    # Reads.

    def sees_cut(
        self, who: str, found: Mapping[Key, Value], began: int, *, is_one_instant: bool, kind: str = "cuts"
    ) -> None:
        """A read that has just ended: of one instant, or item by item, of states that there were meanwhile."""
        if len(found) == 1 or not is_one_instant:
            for key, value in found.items():
                if not any(state[key] == value for state in self._states(began, key)):
                    raise Broken(f"committed reads: {who} saw {value} in {key}: {self._history(key, began)}")
            return
        if not any(all(state[key] == value for key, value in found.items()) for state in self._states(began)):
            told = {key: self._history(key, began) for key in found}
            raise Broken(f"{kind}: {who} saw {_short(found)}: no state since {began}: {told}")

    def sees_uncommitted(self, who: str, key: Key, value: Value) -> None:
        """A read of what stands there: committed at some time, if perhaps not the newest."""
        if not any(commit.state[key] == value for commit in self.commits):
            raise Broken(f"dirty: {who} saw {value} in {key}, which was never committed")

    def _states(self, began: int, key: Key | None = None) -> list[Mapping[Key, Value]]:
        first = 0
        for at, commit in enumerate(self.commits):
            changes = key is None or at == 0 or commit.state[key] != self.commits[at - 1].state[key]
            if (commit.at if key is None else commit.visible_at) <= began and changes:
                first = at
        return [commit.state for commit in self.commits[first:]]

    def _history(self, key: Key, began: int) -> str:
        told = [f"{commit.state[key]} from {commit.at}" for commit in self.commits]
        return f"since {began}, of {', '.join(told[-6:])}"

    def sees_plain_read(self, who: str, found: Mapping[Key, Value], began: int) -> None:
        """For the history: a cut is a transaction that only reads."""
        if self.is_append_only and len(found) > 1:
            reads = {_named(key): value for key, value in found.items()}
            self.cuts.append(Transaction(id=f"{who} at {began}", begin=began, end=self.step, reads=reads))

    # In the end.

    def judges_history(self, final: Mapping[Key, Value]) -> None:
        """What was read and appended, judged without what only this world knows."""
        if not self.is_append_only:
            return
        history = list(self.cuts)
        for record in self.records.values():
            if record.saved_as is not None and record.id not in self.committed:
                # All that go on with one unit append its element: one of them, if any, is committed.
                continue
            reads: dict[str, Value] = {_named(key): value for key, value in record.has_read.items()}
            keys = {key for key in (*record.writes, *record.blind) if key in record.blind or record.is_change(key)}
            appends = {_named(key): record.number for key in keys}
            outcome: Outcome = "unknown"
            if record.told == COMMITTED:
                outcome = "committed"
            elif record.told in NOT_COMMITTED:
                outcome = "aborted"
            # A unit that reads one item and nothing else is not checked: a single read may see half a transaction.
            if outcome == "committed" and not appends and len(reads) < 2:
                continue
            end = max(record.began, min(record.told_at, self.step))
            transaction = Transaction(
                id=record.id, begin=record.began, end=end, outcome=outcome, reads=reads, appends=appends
            )
            history.append(transaction)
        last = {_named(key): value for key, value in final.items()}
        history.append(Transaction(id="the last", begin=self.step + 1, end=self.step + 2, reads=last))
        found = anomalies(history)
        if found:
            raise Broken(f"history: {found[0]}")

    def judges_end(self, final: Mapping[Key, Value]) -> None:
        """What the tables hold is what was committed."""
        for key, value in final.items():
            if value != self.state[key]:
                raise Broken(f"atomicity: {key} is {value}, and {self.state[key]} was committed")


def _named(key: Key) -> str:
    return "/".join(key)


def _short(found: Mapping[Key, Any]) -> str:
    return ", ".join(f"{key[1]}={list(value) if value is not None else None}" for key, value in found.items())
