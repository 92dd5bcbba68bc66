"""The invariant checker of the simulated world of units: it knows at which step each unit was committed.

It keeps a model beside the tables. At the step at which a unit is committed, everything that it has read must be in the
model as it was read, and then its writes are applied to the model. Each read is judged by the states of the model while
it was running; at the end the tables must equal the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from kit.histories import Outcome, Transaction, anomalies
from kit.invariants import Broken
from property.clocks import TrueTime

from ticketlock.units._statements._settings import NAMES_ARE_KEPT_S


@dataclass
class Saves:
    """Each saved unit, by the id under which it was saved.

    Attributes:
        coordinators: the id of the coordinator that has saved it last, and of the one that has resumed it since.
        committed: the id under which each was committed.
        savers: the coordinators that have saved a unit.
        ended: the owners whose end was reported.
        steps: the steps of each that were saved, with the coordinator that saved them.
    """

    coordinators: dict[str, tuple[str, str]] = field(default_factory=dict)
    committed: dict[str, str] = field(default_factory=dict)
    savers: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    _known: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def sees(self, checker: Any, unit: str, saved_by: str, coordinator: str, *, state: str, owner: str | None) -> None:
        """The record of a saved unit was written."""
        before, is_committed = self.coordinators.get(unit), state == "committed"
        now = (saved_by, coordinator, state)
        if owner in self.ended and state != "rolledBack" and now != self._known.get(unit):
            raise Broken(f"owner: {unit} is {state} by {coordinator}, and its owner {owner} has ended")
        self._known[unit] = now
        self.coordinators[unit] = (saved_by, coordinator)
        if before is not None and saved_by not in before:
            raise Broken(f"fork: {unit} is saved by {saved_by}, and {before[1]} has resumed it")
        if is_committed and unit not in self.committed:
            raise Broken(f"atomicity: the record of {unit} is committed, and no coordinator has committed it")
        if before is None or before[0] != saved_by:
            self.savers.add(saved_by)
            self._sees_step(unit, saved_by, checker.records[saved_by].step)
        if before != (saved_by, coordinator):
            checker.notes(f"{unit} is saved by {saved_by}, and {coordinator} resumes it")

    def _sees_step(self, unit: str, saved_by: str, step: str | None) -> None:
        """A coordinator has saved the unit with a step."""
        if step is None:
            return
        done = self.steps.setdefault(unit, {})
        if step in done:
            raise Broken(f"step: {unit} is saved by {saved_by} with the step {step!r}, which {done[step]} has saved")
        done[step] = saved_by

    def sees_refusal(self, coordinator: str) -> None:
        """A coordinator was told that another one has resumed its unit, so that nothing of it was written."""
        if coordinator in self.savers:
            raise Broken(f"outcomes: {coordinator} is told that nothing of it was saved, and it has saved the unit")

    def sees_repeated_step(self, unit: str, step: str | None) -> None:
        """A coordinator was told that its step has saved the unit already."""
        if step not in self.steps.get(unit, {}):
            raise Broken(f"step: {unit} is told to be saved with the step {step!r}, and it is not")

    def sees_commit(self, unit: str, coordinator: str) -> None:
        """A coordinator of a saved unit is committed."""
        if unit in self.committed:
            raise Broken(f"fork: {unit} is committed by {coordinator}, and was by {self.committed[unit]}")
        if self.coordinators.get(unit, ("", ""))[1] != coordinator:
            raise Broken(f"fork: {unit} is committed by {coordinator}: {self.coordinators.get(unit)} has resumed it")
        self.committed[unit] = coordinator


Key = tuple[str, str]
"""The name of a table, and an item in it."""
Value = tuple[int, ...] | None
"""The elements of an item's list; None if there is no item."""

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
"""A unit that ends with one of these errors has written nothing, and will write nothing."""
COMMITTED, REPEATED, SAVED = "committed", "repeated", "saved"
CLOCKS_DIFFER_MS = 1_000
"""By how much the clocks of the service's servers are off."""


@dataclass(eq=False)
class Record:
    """One unit, or one write of a plain writer, as the machine that runs it knows it.

    Attributes:
        id: the id under which it writes.
        number: the element that it appends.
        began, reported_at: the steps at which it began, and at which its end was reported to the machine.
        seen: what it has read, and the commit checks.
        asserted: keys of its checks: what it has seen there must hold at its commit.
        ends_at, ends_ms: the step at which its commit began, and when.
        resumed_from: the record of the coordinator that has saved it; None of a unit that was not resumed.
        missed: keys that were not in a range that it has read, and the commit checks: it may read them again.
        unseen: keys that were read for it, but not shown to it, with the step at which that began.
        writes: the new values of the items that it writes, by key.
        blind: keys to which the service appends its element.
        name: of which only one unit is committed.
        knows_name_at: the step at which it has learned the outcome of its name.
        fence: the token of the lock that it is under.
        reported: how it ended, as reported to the machine.
        is_plain: whether it is a write of a plain writer.
        machine: the name of the machine that runs it.
        born_ms: when its first try began, by that machine's wall clock.
        saved_as: the id of the saved unit that it has saved, or resumed.
        step: the step of the saved unit that it does.
        result: what its commit keeps for those who repeat it.
    """

    id: str
    number: int
    began: int
    began_ms: float = 0
    seen: dict[Key, Value] = field(default_factory=dict)
    asserted: set[Key] = field(default_factory=set)
    ends_at: int = 0
    ends_ms: float = 0
    resumed_from: "Record | None" = None
    missed: set[Key] = field(default_factory=set)
    unseen: dict[Key, int] = field(default_factory=dict)
    writes: dict[Key, Value] = field(default_factory=dict)
    blind: set[Key] = field(default_factory=set)
    name: str | None = None
    knows_name_at: int | None = None
    fence: int | None = None
    reported: str | None = None
    reported_at: float = inf
    is_plain: bool = False
    is_gone: bool = False
    machine: str = ""
    born_ms: int = 0
    saved_as: str | None = None
    step: str | None = None
    result: str | None = None

    @property
    def age(self) -> tuple[int, str]:
        """The oldest unit is the least."""
        return self.born_ms, self.id

    @property
    def reads_since(self) -> int:
        """The step since which it has read: of a resumed unit, from before it was saved."""
        return self.began if self.resumed_from is None else self.resumed_from.reads_since

    @property
    def is_read_only(self) -> bool:
        """Whether it changes nothing: then nothing shows that it was committed."""
        return not self.blind and not any(self.is_change(key) for key in self.writes) and self.name is None

    @property
    def has_read(self) -> Mapping[Key, Value]:
        """Everything that it has read, and the commit checks."""
        return {**dict.fromkeys(self.missed), **self.seen}

    def is_change(self, key: Key) -> bool:
        """Whether the item is written: to delete an item that does not exist changes nothing."""
        return not (self.writes[key] is None and self.seen.get(key, ()) is None)


@dataclass(eq=False)
class Commit:
    """The commit of a unit.

    Attributes:
        at: the step of the commit.
        visible_at: the step at which the service had changed the last item; until then a plain read may return an old
            value.
        state: of all items, after the commit.
    """

    record: Record | None
    at: int
    visible_at: float
    state: Mapping[Key, Value]


@dataclass
class UnitChecker:
    """Sees every commit and every read, and judges it.

    Attributes:
        step: how many steps there were.
        commits: in order; the first is the initial state.
        log: what has happened.
        token: the last fencing token that was granted.
        names_kept_s: for how long receipts of names are kept.
    """

    keys: Sequence[Key]
    is_append_only: bool
    time: TrueTime
    names_kept_s: int = NAMES_ARE_KEPT_S
    step: int = 0
    log: list[str] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    committed: dict[str, Commit] = field(default_factory=dict)
    names: dict[str, Record] = field(default_factory=dict)
    results: dict[str, list[tuple[int, str | None]]] = field(default_factory=dict)
    given_up: list[tuple[str, int, int, float]] = field(default_factory=list)
    receipts_deleted: dict[str, int] = field(default_factory=dict)
    first_used: dict[str, int] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)
    cuts: list[Transaction] = field(default_factory=list)
    token: int = 0
    aborts: int = 0
    saves: Saves = field(default_factory=Saves)

    def __post_init__(self) -> None:
        self.commits.append(Commit(None, 0, 0, dict.fromkeys(self.keys)))

    @property
    def state(self) -> Mapping[Key, Value]:
        """The contents of the items, once every commit is finished."""
        return self.commits[-1].state

    def notes(self, what: str) -> None:
        self.log.append(f"{self.step}: {what}")

    def begin_with(self, key: Key) -> None:
        """An item is there from the beginning, and nothing is in its list."""
        self.commits[0] = replace(self.commits[0], state={**self.commits[0].state, key: ()})

    def begins(self, record: Record) -> Record:
        self.records[record.id] = record
        return record

    # Commits.

    def sees_commit(self, unit: str, visible_at: float) -> Commit | None:
        """A unit is committed in this step; it is judged at once."""
        record = self.records.get(unit)
        if record is None:
            raise Broken(f"atomicity: {unit} was committed, and no machine has begun it")
        if unit in self.committed:
            raise Broken(f"atomicity: {unit} was committed twice")
        self.notes(
            f"{unit} is committed: reads {_short(record.has_read)}, writes {_short(record.writes)} {record.blind}"
        )
        if record.reported in NOT_COMMITTED:
            raise Broken(f"outcomes: {unit} ended as {record.reported} at {record.reported_at}, and is committed now")
        if record.saved_as is not None:
            self.saves.sees_commit(record.saved_as, unit)
        if unit in self.rolled_back or record.saved_as in self.rolled_back:
            raise Broken(f"outcomes: {unit} was reported as rolled back, and is committed now")
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
        if name in self.names and self._is_kept(self.names[name].ends_ms):
            raise Broken(f"exactly once: {record.id} and {self.names[name].id} are committed under the name {name}")
        for each, asked_at, reported_at, asked_ms in self.given_up:
            knows_at = record.knows_name_at
            if each == name and knows_at is not None and knows_at < asked_at and self._is_kept(asked_ms):
                raise Broken(
                    f"outcomes: {name} was reported as rolled back at {reported_at}, and {record.id} is committed"
                )
        self.names[name] = record
        self.results.setdefault(name, []).append((self.step, record.result))
        self.first_used.setdefault(name, self.step)

    def sees_result(self, who: str, name: str, told: str | None, since: int) -> None:
        """A machine was told the result of a name, which it has read since that step."""
        committed = self.results.get(name, [])
        ends = [at for at, _ in committed[1:]] + [inf]
        if not any(result == told and end >= since for (_, result), end in zip(committed, ends, strict=True)):
            raise Broken(f"one result: {who} is told {told} of {name}, and since {since} it has {committed}")

    def _is_kept(self, since_ms: float) -> bool:
        """Whether the receipt of what began then must still be there."""
        return self.time.now_ms <= since_ms + 1_000 * (self.names_kept_s - 1)

    def sees_receipt_deleted(self, name: str) -> None:
        """Time to live has deleted the receipt of a name."""
        self.receipts_deleted[name] = self.step
        self.notes(f"the receipt of {name} is deleted")

    def sees_own_end(self, coordinator: str, saved_by: str, *, has_receipt: bool) -> None:
        """A coordinator has rolled a saved unit back.

        Args:
            saved_by: who has saved it last.
            has_receipt: whether its name has a receipt.
        """
        record, saver = self.records[coordinator], self.records[saved_by]
        name = saver.name or ""
        if self.first_used.get(name, inf) <= (saver.knows_name_at or 0):
            # It was repeated, and is of no use any more.
            return
        # While it resumes the unit it knows of no other reason than the name.
        is_about_the_name = record.number == 0 and coordinator != saved_by
        if is_about_the_name and not has_receipt and self.receipts_deleted.get(name, -1) < record.began:
            raise Broken(f"kept: {record.saved_as} is rolled back by {coordinator}, and {name} has no receipt")

    # Ends.

    def sees_end(self, record: Record, end: str) -> None:
        """The end of a unit is reported to the machine that runs it."""
        record.reported, record.reported_at = end, self.step
        self.notes(f"{record.id} ends: {end}")
        self.aborts += end != COMMITTED
        if end in NOT_COMMITTED and record.id in self.committed:
            raise Broken(f"outcomes: {record.id} ends as {end}, and was committed at {self.committed[record.id].at}")
        if end == "UnitChanged":
            self.saves.sees_refusal(record.id)
        if end == REPEATED and record.name not in self.names:
            raise Broken(f"exactly once: {record.id} is repeated, and {record.name} was not used")
        if end != COMMITTED:
            return
        if record.is_read_only:
            if any(record.seen.get(key) is not None for key in record.missed):
                raise Broken(f"serialisable: {record.id} is committed, and has missed what it has seen: {record.seen}")
            if record.has_read:
                self.sees_cut(record.id, record.has_read, record.reads_since, is_one_instant=True, kind="serialisable")
            if record.asserted:
                self._holds_at_the_end(record)
        elif record.id not in self.committed:
            raise Broken(f"outcomes: {record.id} ends as committed, and is not")

    def sees_outcome(
        self,
        outcome: str,
        asked_at: int,
        *,
        name: str | None = None,
        unit: str | None = None,
        asked_ms: float = 0,
    ) -> None:
        """A machine has asked for the outcome of a unit or a name, since ``asked_ms``."""
        self.notes(f"outcome of {name or unit}: {outcome}")
        if name is not None:
            if outcome == "COMMITTED" and name not in self.names:
                raise Broken(f"outcomes: the name {name} is reported as committed, and it is not")
            if outcome == "ROLLED_BACK":
                self.given_up.append((name, asked_at, self.step, asked_ms))
                # The name was committed before.
                first = self.names.get(name)
                is_told = first is not None and self.committed[first.id].visible_at < asked_at
                if first is not None and is_told and self._is_kept(first.ends_ms):
                    raise Broken(f"outcomes: the name {name} is reported as rolled back, and it was committed")
        if unit is not None:
            is_committed = unit in self.committed or unit in self.saves.committed
            if outcome == "COMMITTED" and not is_committed:
                raise Broken(f"outcomes: {unit} is reported as committed, and it is not")
            if outcome == "ROLLED_BACK":
                self.rolled_back.add(unit)
                if is_committed:
                    raise Broken(f"outcomes: {unit} is reported as rolled back, and it is committed")

    def sees_result_of_saved(self, unit: str, told: str | None) -> None:
        """A machine was told the result of a committed unit; one that was not saved has none."""
        coordinator = self.saves.committed.get(unit)
        due = None if coordinator is None else self.records[coordinator].result
        if told != due:
            raise Broken(f"one result: {told} is told of {unit}, and {coordinator} has kept {due}")

    def sees_rollback(self, unit: str, by: str | None, lease_left_ms: float | None) -> None:
        """A unit is rolled back: by itself, by an older unit, or because its lease has ended.

        Args:
            lease_left_ms: how much of its lease was left, if the lease is the reason.
        """
        victim = self.records.get(unit)
        if victim is None:
            raise Broken(f"atomicity: {unit} is rolled back, and no machine has begun it")
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
        """A read has just ended: it must match one state, or item by item any states, of the time since it began."""
        if len(found) == 1 or not is_one_instant:
            for key, value in found.items():
                if not any(state[key] == value for state in self._states(began, key)):
                    raise Broken(f"committed reads: {who} saw {value} in {key}: {self._history(key, began)}")
            return
        if not any(all(state[key] == value for key, value in found.items()) for state in self._states(began)):
            history = {key: self._history(key, began) for key in found}
            raise Broken(f"{kind}: {who} saw {_short(found)}: no state since {began}: {history}")

    def _holds_at_the_end(self, record: Record) -> None:
        """What a unit that only reads has checked must hold at an instant of its commit, as of any other unit."""
        checked = {key: record.seen[key] for key in record.asserted}
        states = self._states(record.ends_at)
        if not any(all(state[key] == value for key, value in checked.items()) for state in states):
            raise Broken(f"checks: {record.id} is committed, and {_short(checked)} was over by {record.ends_at}")

    def sees_uncommitted(self, who: str, key: Key, value: Value) -> None:
        """An uncommitted read: its value must have been committed at some time."""
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
        history = [f"{commit.state[key]} from {commit.at}" for commit in self.commits]
        return f"since {began}, of {', '.join(history[-6:])}"

    def sees_plain_read(self, who: str, found: Mapping[Key, Value], began: int) -> None:
        """Note several items of one instant for the history, as a transaction that only reads."""
        if self.is_append_only and len(found) > 1:
            reads = {_named(key): value for key, value in found.items()}
            self.cuts.append(Transaction(id=f"{who} at {began}", begin=began, end=self.step, reads=reads))

    # At the end.

    def judges_history(self, final: Mapping[Key, Value]) -> None:
        """Judge what was read and appended, without what only this world knows."""
        if not self.is_append_only:
            return
        history = list(self.cuts)
        for record in self.records.values():
            if record.saved_as is not None and record.id not in self.committed:
                # All coordinators of one saved unit append its element; at most one of them is committed.
                continue
            reads: dict[str, Value] = {_named(key): value for key, value in record.has_read.items()}
            keys = {key for key in (*record.writes, *record.blind) if key in record.blind or record.is_change(key)}
            appends = {_named(key): record.number for key in keys}
            outcome: Outcome = "unknown"
            if record.reported == COMMITTED:
                outcome = "committed"
            elif record.reported in NOT_COMMITTED:
                outcome = "aborted"
            # A unit that reads one item and nothing else is not checked: a single read may see half of a transaction.
            if outcome == "committed" and not appends and len(reads) < 2:
                continue
            end = max(record.began, min(record.reported_at, self.step))
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
        """The tables must contain what was committed."""
        for key, value in final.items():
            if value != self.state[key]:
                raise Broken(f"atomicity: {key} is {value}, and {self.state[key]} was committed")


def _named(key: Key) -> str:
    return "/".join(key)


def _short(found: Mapping[Key, Any]) -> str:
    return ", ".join(f"{key[1]}={list(value) if value is not None else None}" for key, value in found.items())
