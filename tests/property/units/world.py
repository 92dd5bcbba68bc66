"""A simulated world of units: the real steps and the real driver, many machines, and a scheduler that decides.

Between any two moments of a request, and between any two steps of a transaction inside the service, another machine may
continue, time may pass, and a fault may be injected. Nothing waits: a schedule of days takes milliseconds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from botocore.exceptions import ReadTimeoutError
from property.chance import Chance
from property.clocks import TrueTime
from property.faults import SKEWS_MS
from property.units.calls import COMMITS, ELEMENTS, UNITS, WRITES, key_of
from property.units.checker import Key, Record, UnitChecker
from property.units.machines import (
    A_DAY_MS,
    IN_AN_OUTAGE,
    JUMPS_MS,
    NONE,
    ON_A_TRANSACTION,
    ON_ANYTHING,
    OUTAGES_MS,
    OVERSLEPT_MS,
    PAUSES_MS,
    Faults,
    Machine,
    Pending,
    Strand,
)
from property.units.service import AtWork, Network, Service

from ticketlock._expressions._schemas import Schema
from ticketlock.errors import TableError
from ticketlock.units._records._rows import TIME_CHECK
from ticketlock.units._statements._settings import NAMES_ARE_KEPT_S
from ticketlock.units._words._tables import Tables, UnitTable
from ticketlock.wire._actions import OURS, Actions, Fork, Sleep
from ticketlock.wire._driver import Driver

Script = Callable[["UnitsWorld", Machine], Actions[None]]
"""What a machine does."""

# The world performs the steps, and variants replace parts of them: their frames are in the units' own errors, too.
OURS.add(__name__.partition(".")[0])

# By then the service has recovered the transactions that it was performing.
_LONGEST_AT_WORK_MS = 5_000


@dataclass
class UnitsWorld:
    """All participants of a world; ``go`` lets one thing happen.

    Attributes:
        keys: the items that units use.
        is_append_only: whether no item is deleted or replaced.
        cuts_are_whole: whether one request reads all that is read together.
        in_steps: whether other machines may continue between two steps of a transaction; None to draw that each time.
        is_guarded: whether the table with ranges is guarded.
        names_kept_s: for how long units keep the receipts of names.
        struck: how often each fault was injected.
        done: how often each kind of read and statement was performed.
        saved: units as they were saved, by the id under which each coordinator writes.
        swept_by: who has begun the last sweep that had an end, by the number of its parts.
    """

    chance: Chance
    faults: Faults
    keys: list[Key]
    is_append_only: bool
    cuts_are_whole: bool = True
    in_steps: bool | None = None
    is_guarded: bool = False
    names_kept_s: int = NAMES_ARE_KEPT_S
    time: TrueTime = field(default_factory=TrueTime)

    def __post_init__(self) -> None:
        self.struck: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.checker = UnitChecker(self.keys, self.is_append_only, self.time, self.names_kept_s)
        self.service = Service(self.chance, self.time, self.checker, self.struck, self.in_steps)
        self.service.memory.index_delay.arrive = self._arrive
        self.network = Network(self.chance, self.time, self.checker, self.struck, self.service)
        # The list of sent requests is not used, and would only grow.
        self.tables = Tables(UNITS)
        for name in ("accounts", "lines"):
            described: Any = self.service.memory.describe_table(TableName=name)["Table"]
            is_guarded = self.is_guarded and name == "lines"
            self.tables._known[name] = UnitTable(name, Schema.described(described), is_guarded)
            self.tables._arns[name] = ""
        self.machines: list[Machine] = []
        self.numbers = 0
        self.saved: dict[str, Record] = {}
        self.swept_by: dict[int, str] = {}
        self.scripts: dict[str, Script] = {}
        self._now: Any = None
        self.calm_since_ms: float = inf

    # The participants.

    def add(self, name: str, script: Script, rate: float | None = None) -> Machine:
        """Add a machine that runs a script.

        Args:
            rate: how fast its local clock runs; None to draw its clocks.
        """
        wall_is_off_ms = 0
        if rate is None:
            rate = 1 + (self.chance.pick(9) - 4) / 4_000
            wall_is_off_ms = [0, 0, 0, 300, -300, 240_000, -240_000][self.chance.pick(7)]
        machine = Machine(self.time, name, rate, wall_is_off_ms)
        machine.driver = Driver(UNITS, TIME_CHECK, machine, 8_000, jitter=self.jitter)
        self.scripts[name] = script
        self.machines.append(machine)
        strand = Strand(script(self, machine))
        machine.strands.append(strand)
        self._resume(machine, strand)
        return machine

    def _arrive(self, pending: int) -> int:
        """How many of the pending changes of an index are in it before it is read."""
        if self.faults.are_none or self.in_steps is not None or not pending:
            return pending
        return self.chance.pick(pending + 1)

    def jitter(self) -> float:
        return self.chance.pick(8) / 8 if not self.faults.are_none else 0.5

    def new_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def marks_together(self) -> bool:
        """Whether the next unit is of a client that marks its items together; not by chance: that would cost one."""
        return self.numbers % 2 == 0

    def finishes_behind(self) -> bool:
        """Whether it is of a client that finishes units behind their callers."""
        return self.numbers % 4 >= 2

    def some(self, count: int) -> list[Key]:
        """Draw so many of the items."""
        left, found = list(self.keys), []
        for _ in range(count):
            found.append(left.pop(self.chance.pick(len(left))))
        return found

    def begin_with(self, key: Key) -> None:
        """An item of before, without a version, and with an empty list."""
        item: Any = {name: {"S": part} for name, part in key_of(key).items()} | {ELEMENTS: {"L": []}}
        self.service.others.put_item(TableName=key[0], Item=item)
        self.checker.begin_with(key)

    def table_of(self, key: Key) -> UnitTable:
        return self.tables._known[key[0]]

    # What happens.

    @property
    def is_over(self) -> bool:
        """Whether no machine has anything left to do."""
        return not self.service.at_work and not any(machine.strands for machine in self.machines)

    def go(self) -> bool:
        """Let one thing happen; False if no machine has anything left to do, and no copy will arrive."""
        due = self.network.first_due()
        if due is not None:
            self.network.late_one_arrives(due)
        elif self.is_over and not self.network.late:
            return False
        elif not self._something_fails():
            ready: list[Any] = [
                (machine, strand) for machine in self.machines if machine.strands for strand in machine.ready()
            ]
            ready += self.service.at_work
            if not ready or self.chance.pick(12) == 11:
                self.let_time_pass([1, 5, 20, 100, 700][self.chance.pick(5)] if ready else 0)
            else:
                # Mostly the same one continues for a while: else two steps of one would nearly always be apart.
                if self._now not in ready or self.chance.pick(4) == 3:
                    self._now = ready[self.chance.pick(len(ready))]
                self.go_on(self._now)
        return True

    def go_on(self, who: Any) -> None:
        """Continue a strand of a machine, or a transaction in the service."""
        self.checker.step += 1
        if isinstance(who, AtWork):
            self._work_continues(who)
        else:
            self._strand_continues(*who)

    def calm(self) -> None:
        """End fault injection."""
        self.faults, self.time.skew_ms = NONE, 0
        self.calm_since_ms = self.time.now_ms
        for machine in self.machines:
            machine.paused_until_ms = min(machine.paused_until_ms, self.time.now_ms)
            machine.outage_until_ms = 0
            machine.read_at_ms = min(machine.read_at_ms, self.time.now_ms)

    def let_time_pass(self, ms: float = 0) -> None:
        """Let so much time pass; or, with 0, until a machine is ready or a copy arrives."""
        self.checker.step += 1
        if ms == 0:
            ready_at = [machine.ready_at_ms() for machine in self.machines if not machine.is_over]
            until_ms = min([*ready_at, *(copy.arrives_ms for copy in self.network.late)], default=inf)
            ms = max(1, until_ms - self.time.now_ms)
        self.time.now_ms += ms
        while self.service.at_work and self.service.at_work[0].began_ms < self.time.now_ms - _LONGEST_AT_WORK_MS:
            self._work_continues(self.service.at_work[0])
        self.service.time_to_live()
        if not self.faults.are_none:
            # Another server, with another clock, sends the next reply.
            self.time.skew_ms = SKEWS_MS[self.chance.pick(len(SKEWS_MS))]

    def _strand_continues(self, machine: Machine, strand: Strand) -> None:
        pending = strand.pending
        if pending is None:
            self._resume(machine, strand)
        elif pending.is_over:
            self._resume(machine, strand, pending.answer, pending.error)
        else:
            self.network.carries(machine, pending, self.faults)

    def _work_continues(self, work: AtWork) -> None:
        if self.service.takes_a_step(work) and self.faults.which(ON_A_TRANSACTION, self.chance):
            self.network.abandons(work)

    # What is done.

    def _resume(self, machine: Machine, strand: Strand, answer: Any = None, error: BaseException | None = None) -> None:
        try:
            action = strand.actions.throw(error) if error is not None else strand.actions.send(answer)
        except StopIteration as end:
            self._ended(machine, strand, end.value)
            return
        except TableError as failed:
            if strand.parent is None:
                raise
            self._ended(machine, strand, failed)
            return
        was, strand.pending = strand.pending, None
        is_again = was is not None and error is not None and isinstance(action, Sleep)
        strand.repeats = was.call if is_again and was is not None and was.call.operation in WRITES else None
        strand.is_unanswered = isinstance(error, ReadTimeoutError)
        if isinstance(action, Sleep):
            strand.wakes_at_ms = self.time.now_ms + max(0.0, action.ms)
        elif isinstance(action, Fork):
            strand.left, strand.results = len(action.courses), [None] * len(action.courses)
            parts = [Strand(course, strand, at) for at, course in enumerate(action.courses)]
            machine.strands += parts
            for part in parts:
                self._resume(machine, part)
        else:
            strand.pending = Pending(action, self.time.now_ms)

    def _ended(self, machine: Machine, strand: Strand, result: Any) -> None:
        machine.strands.remove(strand)
        parent = strand.parent
        if parent is not None:
            parent.results[strand.at] = result
            parent.left -= 1
            if parent.left == 0:
                self._resume(machine, parent, parent.results)

    # Faults.

    def _is_half_way(self, machine: Machine) -> bool:
        """Whether its unit is committed, but not finished."""
        own = [each for each in self.checker.records.values() if each.machine == machine.name and each.reported is None]
        return any(each.id in self.checker.committed and self.service.head(each.id) is not None for each in own)

    def _something_fails(self) -> bool:
        fault = self.faults.which(ON_ANYTHING, self.chance)
        if fault is None:
            return False
        self.checker.step += 1
        victims = [each for each in self.machines if not each.is_over]
        awake = [each for each in victims if each.paused_until_ms <= self.time.now_ms]
        if fault == "overslept":
            victims = [each for each in awake if any(strand.repeats is not None for strand in each.strands)]
        elif fault == "half_way":
            victims = [each for each in awake if self._is_half_way(each)]
        if victims:
            self.struck[fault] += 1
            self._strikes(fault, victims[self.chance.pick(len(victims))])
        return True

    def _strikes(self, fault: str, victim: Machine) -> None:
        what = fault
        if fault == "jump":
            off_ms = JUMPS_MS[self.chance.pick(len(JUMPS_MS))]
            victim.set_wall(off_ms)
            what = f"its wall clock is off by {off_ms} ms"
        elif fault == "crash":
            self._crashes(victim)
        elif fault == "outage":
            victim.outage = IN_AN_OUTAGE[self.chance.pick(len(IN_AN_OUTAGE))]
            ms = OUTAGES_MS[self.chance.pick(len(OUTAGES_MS))]
            victim.outage_until_ms, what = self.time.now_ms + ms, f"{victim.outage} for {ms} ms"
        else:
            choices = OVERSLEPT_MS if fault == "overslept" else PAUSES_MS
            ms = choices[self.chance.pick(len(choices))]
            self.struck["asleep for days"] += ms > A_DAY_MS
            self.struck["token forgotten"] += fault == "overslept" and any(
                each.is_unanswered and each.repeats is not None and each.repeats.operation in COMMITS
                for each in victim.strands
            )
            (victim.freeze if fault == "freeze" else victim.pause)(ms)
            what = f"{fault} for {ms} ms"
        self.checker.notes(f"{victim.name}: {what}")

    def _crashes(self, victim: Machine) -> None:
        """A machine crashes; what it has sent may arrive, and another machine may resume its unit."""
        for strand in victim.strands:
            pending = strand.pending
            if pending is not None and not pending.is_over and not pending.is_at_work and self.chance.pick(2):
                self.network.outlives_its_sender(pending)
        self.crash(victim)
        if self.chance.pick(3) < 2 and len(self.machines) < 9:
            self.add(f"{victim.name}'", self.scripts[victim.name])

    def crash(self, victim: Machine) -> None:
        """A machine crashes; its transactions in the service continue."""
        for work in self.service.at_work:
            if any(work.pending is strand.pending for strand in victim.strands):
                work.pending = None
        victim.crash()
