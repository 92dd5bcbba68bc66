"""A simulated world of units: the real steps and the real driver, many machines, and a scheduler that decides.

Between any two moments of a request, and between any two steps of a transaction inside the service, anybody else may go
on, time may pass, and something may fail. Nothing waits: a schedule of days takes milliseconds.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from property.chance import Chance
from property.clocks import TrueTime
from property.faults import SKEWS_MS
from property.units.machines import Machine, Pending, Strand
from property.units.mishaps import (
    A_DAY_MS,
    IN_AN_OUTAGE,
    JUMPS_MS,
    NONE,
    ON_A_REQUEST,
    ON_A_TRANSACTION,
    ON_ANYTHING,
    ONLY_ON_WRITES,
    OUTAGES_MS,
    OVERSLEPT_MS,
    PAUSES_MS,
    Mishaps,
)
from property.units.witness import Commit, Key, Record, UnitWitness, Value

from ticketlock._expressions._schemas import Schema
from ticketlock.errors import TableError
from ticketlock.testing import InSteps, MemoryDynamoDB
from ticketlock.units._marks import Marks
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.wire._actions import Actions, Call, Fork, Sleep
from ticketlock.wire._driver import Driver

UNITS, LOCKS = "units", "locks"
TABLES: Mapping[str, tuple[str, ...]] = {
    UNITS: ("unit", "row"),
    "accounts": ("id",),
    "lines": ("pk", "sk"),
    LOCKS: ("pk",),
}
MARKS = Marks("_tlu")
ELEMENTS = "list"

_TRANSACTIONS = frozenset({"transact_write_items", "transact_get_items"})
WRITES = frozenset({"put_item", "update_item", "delete_item", "transact_write_items"})
_COMMITS = frozenset({"transact_write_items"})
_TIMED_OUT_MS = 2_000
# AWS refuses a request that arrives more than five minutes after the time it was signed with:
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
_LATEST_MS = 5 * 60_000
_LATE_BY_MS = (100, 1_000, 10_000, 60_000, _LATEST_MS)
# By then the service has recovered what it was at work on.
_LONGEST_AT_WORK_MS = 5_000


@dataclass(frozen=True, slots=True)
class Beside(Call):
    """A call of somebody who writes beside units."""

    record: Record | None = None
    token: int | None = None


@dataclass(eq=False)
class AtWork:
    """A transaction that the service goes on with.

    Attributes:
        pending: of whoever waits for its answer; None where nobody does.
        taken: how many steps it has taken.
    """

    call: Call
    which: InSteps
    pending: Pending | None
    began_ms: float
    taken: int = 0
    commit: Commit | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """A copy of a request that is still to arrive."""

    call: Call
    signed_ms: float
    arrives_ms: float


@dataclass
class UnitsWorld:
    """Everything there is; ``go`` lets one thing happen.

    Attributes:
        keys: the items that units use.
        is_append_only: whether nothing is deleted, or put in the place of what stands there.
        cuts_are_whole: whether one request reads whatever is read together.
        in_steps: whether others go on between two steps of a transaction; None for either, drawn for each.
        struck: how many times what went wrong.
    """

    chance: Chance
    mishaps: Mishaps
    keys: list[Key]
    is_append_only: bool
    cuts_are_whole: bool = True
    in_steps: bool | None = None
    time: TrueTime = field(default_factory=TrueTime)

    def __post_init__(self) -> None:
        self.memory = MemoryDynamoDB(lock_table=None, clock=self.time)
        if self.in_steps is None:
            self.memory.comes_next = lambda left: self.chance.pick(left) if left > 1 else 0
        for name, keys in TABLES.items():
            self._create(name, keys)
        # What was sent is not asked for: it would only grow.
        self.tables = Tables(UNITS)
        for name in ("accounts", "lines"):
            described: Any = self.memory.describe_table(TableName=name)["Table"]
            self.tables._known[name] = UnitTable(name, Schema.described(described))
        self.witness = UnitWitness(self.keys, self.is_append_only)
        self.machines: list[Machine] = []
        self.at_work: list[AtWork] = []
        self.late: list[Late] = []
        self.numbers = 0
        self.scripts: dict[str, Callable[[UnitsWorld, Machine], Actions[None]]] = {}
        self._now: Any = None
        self.calm_since_ms: float = inf
        self.struck: Counter[str] = Counter()

    def _create(self, name: str, keys: tuple[str, ...]) -> None:
        self.memory.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": key, "KeyType": role} for key, role in zip(keys, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        if name == UNITS:
            self.memory.update_time_to_live(
                TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiresAt"}
            )

    # Who and what there is.

    def add(
        self, name: str, script: Callable[["UnitsWorld", Machine], Actions[None]], rate: float | None = None
    ) -> Machine:
        """Another machine, which does as the script says.

        Args:
            rate: how fast its local clock goes; None for clocks of any kind.
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

    def jitter(self) -> float:
        return self.chance.pick(8) / 8 if not self.mishaps.are_none else 0.5

    def new_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def table_of(self, key: Key) -> UnitTable:
        return self.tables._known[key[0]]

    @staticmethod
    def key_of(key: Key) -> dict[str, str]:
        return {"id": key[1]} if key[0] == "accounts" else {"pk": "p", "sk": key[1]}

    def stored(self, key: Key) -> dict[str, Any] | None:
        """An item as it stands there."""
        table = self.memory._service.tables[key[0]]
        return table.get((key[1], "") if key[0] == "accounts" else ("p", key[1]))

    def head(self, unit: str) -> dict[str, Any] | None:
        """A unit's head as it stands there."""
        return self.memory._service.tables[UNITS].get((unit, "head"))

    def final(self) -> dict[Key, Value]:
        """What stands in the items."""
        found: dict[Key, Value] = {}
        for key in self.keys:
            item = self.stored(key)
            found[key] = None if item is None or MARKS.is_placeholder(item) else elements(item)
        return found

    # What happens.

    @property
    def is_over(self) -> bool:
        """Whether nobody has anything left to do."""
        return not self.at_work and not any(machine.strands for machine in self.machines)

    def go(self) -> bool:
        """Let one thing happen; False when nobody has anything left to do, and nothing is left to arrive."""
        due = self._first_due() if self.late else None
        if due is not None:
            self.late_one_arrives(due)
        elif self.is_over and not self.late:
            return False
        elif not self._something_fails():
            ready: list[Any] = [
                (machine, strand) for machine in self.machines if machine.strands for strand in machine.ready()
            ]
            ready += self.at_work
            if not ready or self.chance.pick(12) == 11:
                self.let_time_pass([1, 5, 20, 100, 700][self.chance.pick(5)] if ready else 0)
            else:
                # Mostly one goes on for a while: else hardly anything is whole between two steps of another one.
                if self._now not in ready or self.chance.pick(4) == 3:
                    self._now = ready[self.chance.pick(len(ready))]
                self.go_on(self._now)
        return True

    def _first_due(self) -> int | None:
        return next((at for at, copy in enumerate(self.late) if copy.arrives_ms <= self.time.now_ms), None)

    def go_on(self, who: Any) -> None:
        """Let a machine's strand go on, or a transaction in the service."""
        self.witness.step += 1
        if isinstance(who, AtWork):
            self._work_goes_on(who)
        else:
            self._strand_goes_on(*who)

    def calm(self) -> None:
        """From here on nothing fails any more."""
        self.mishaps, self.time.skew_ms = NONE, 0
        self.calm_since_ms = self.time.now_ms
        for machine in self.machines:
            machine.paused_until_ms = min(machine.paused_until_ms, self.time.now_ms)
            machine.outage_until_ms = 0
            machine.read_at_ms = min(machine.read_at_ms, self.time.now_ms)

    def let_time_pass(self, ms: float = 0) -> None:
        """So long; or, with 0, until somebody is ready or a copy arrives."""
        self.witness.step += 1
        if ms == 0:
            ready_at = [machine.ready_at_ms() for machine in self.machines if not machine.is_over]
            until_ms = min([*ready_at, *(copy.arrives_ms for copy in self.late)], default=inf)
            ms = max(1, until_ms - self.time.now_ms)
        self.time.now_ms += ms
        while self.at_work and self.at_work[0].began_ms < self.time.now_ms - _LONGEST_AT_WORK_MS:
            self._work_goes_on(self.at_work[0])
        if not self.mishaps.are_none:
            # The next reply comes from a server whose clock is another one.
            self.time.skew_ms = SKEWS_MS[self.chance.pick(len(SKEWS_MS))]

    def _strand_goes_on(self, machine: Machine, strand: Strand) -> None:
        pending = strand.pending
        if pending is None:
            self._resume(machine, strand)
        elif pending.is_over:
            self._resume(machine, strand, pending.answer, pending.error)
        elif self.time.now_ms - pending.signed_ms > _LATEST_MS:
            self.struck["signature expired"] += 1
            self._fails(pending, _answered("InvalidSignatureException", pending.call.operation))
        elif not self._befalls(machine, pending):
            self.struck["ended by another"] += self._is_of_another(machine, pending.call)
            self._perform(pending.call, pending)

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

    def _perform(self, call: Call, pending: Pending | None) -> None:
        """The service receives a request."""
        client: Any = self.memory
        if call.operation in _TRANSACTIONS:
            which = client.in_steps(call.operation, **call.parameters)
            work = AtWork(call, which, pending, self.time.now_ms)
            self.at_work.append(work)
            if pending is not None:
                pending.is_at_work = True
            if not (self.chance.pick(2) if self.in_steps is None else self.in_steps):
                while work in self.at_work:
                    self._work_goes_on(work, quietly=True)
            return
        answer, error = None, None
        try:
            answer = getattr(client, call.operation)(**call.parameters)
        except ClientError as refused:
            error = refused
        if pending is not None:
            pending.is_over, pending.answer, pending.error = True, answer, error
        if error is None and call.operation in WRITES:
            self._sees_write(call)

    def _work_goes_on(self, work: AtWork, *, quietly: bool = False) -> None:
        """One step of a transaction inside the service."""
        goes_on = work.which.step()
        work.taken += 1
        is_write = work.which.operation == "TransactWriteItems"
        if is_write and goes_on and work.taken == len(work.call.parameters["TransactItems"]) + 1:
            unit = _written_by(work.call)
            if unit is not None:
                work.commit = self.witness.sees_commit(unit, inf)
        if is_write and work.taken > len(work.call.parameters["TransactItems"]) + 1:
            self._sees_heads(work.call)
        if not goes_on:
            self.at_work.remove(work)
            if work.commit is not None:
                work.commit.visible_at = self.witness.step
            self._answers(work)
        elif not quietly and self.mishaps.which(ON_A_TRANSACTION, self.chance) and work.pending is not None:
            self.witness.tells(f"{work.which.operation} is abandoned by its sender")
            self.struck["abandoned"] += 1
            self._fails(work.pending, ReadTimeoutError(endpoint_url="world"))
            work.pending = None

    @staticmethod
    def _answers(work: AtWork) -> None:
        answer, error = None, None
        try:
            answer = work.which.finish()
        except ClientError as refused:
            error = refused
        if work.pending is not None:
            work.pending.is_over, work.pending.answer, work.pending.error = True, answer, error

    def _sees_write(self, call: Call) -> None:
        if isinstance(call, Beside):
            if call.record is not None:
                self.witness.sees_commit(call.record.id, self.witness.step)
                self.struck["written beside units"] += 1
            if call.token is not None:
                self.witness.token = max(self.witness.token, call.token)
        elif call.parameters["TableName"] == UNITS:
            self._sees_head(call.parameters)

    def _sees_heads(self, call: Call) -> None:
        for action in call.parameters["TransactItems"]:
            for asked in action.values():
                if asked["TableName"] == UNITS:
                    self._sees_head(asked)

    def _sees_head(self, asked: Mapping[str, Any]) -> None:
        key = asked.get("Key") or asked["Item"]
        if key["row"]["S"] != "head":
            return
        unit = key["unit"]["S"]
        head = self.head(unit)
        state = None if head is None else head["state"]["S"]
        if state == "committed" and unit not in self.witness.committed:
            self.witness.sees_commit(unit, self.witness.step)
        lease = asked.get("ExpressionAttributeValues", {}).get(":seen_lease")
        if head is not None and state == "rolledBack" and "finalMs" in asked.get("UpdateExpression", ""):
            by = head["by"]["S"] if "by" in head else None
            self.witness.sees_rollback(unit, by, int(lease["N"]) - self.time.now_ms if lease is not None else None)

    # What fails.

    def _fails(self, pending: Pending, error: Any) -> None:
        pending.is_over, pending.answer, pending.error = True, None, error
        if isinstance(error, ReadTimeoutError):
            self.time.now_ms += _TIMED_OUT_MS

    def _befalls(self, machine: Machine, pending: Pending) -> bool:
        fault = self.mishaps.which(ON_A_REQUEST, self.chance)
        call = pending.call
        if machine.outage_until_ms > self.time.now_ms:
            fault = machine.outage
        if fault in ONLY_ON_WRITES and call.operation not in WRITES:
            fault = "reply_lost" if machine.outage_until_ms > self.time.now_ms else None
        if fault is None:
            return False
        if fault == "conflict" and call.operation not in (WRITES | _TRANSACTIONS):
            return False
        if fault == "refused" and not _may_be_refused(call):
            return False
        self.befalls(fault, machine, pending)
        return True

    def befalls(self, fault: str, machine: Machine, pending: Pending, late_by_ms: float | None = None) -> None:
        """One of the faults of requests befalls one that a machine has on its way.

        Args:
            late_by_ms: after which time the copy that it leaves arrives; None for any.
        """
        call = pending.call
        self.struck[fault] += 1
        self.witness.tells(f"{machine.name}'s {_told(call)}: {fault}")
        if fault == "request_lost":
            self._fails(pending, ConnectTimeoutError(endpoint_url="world"))
        elif fault == "throttled":
            self._fails(pending, _answered("ThrottlingException", call.operation))
        elif fault == "conflict":
            self._fails(pending, _conflict(call))
        elif fault == "refused":
            self._fails(pending, _answered("ValidationException", call.operation))
        elif fault == "reply_lost":
            self._perform(call, None)
            self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        else:
            if late_by_ms is None:
                late_by_ms = _LATE_BY_MS[self.chance.pick(len(_LATE_BY_MS))] * (1 + self.chance.pick(10)) / 10
            # Signed when it was sent.
            self.late.append(Late(call, pending.signed_ms, self.time.now_ms + late_by_ms))
            if fault != "late":
                self._perform(call, pending if fault == "doubled" else None)
            if fault != "doubled":
                self._fails(pending, ReadTimeoutError(endpoint_url="world"))

    def _is_half_way(self, machine: Machine) -> bool:
        """Whether its unit is committed, and not finished."""
        own = [each for each in self.witness.records.values() if each.machine == machine.name and each.told is None]
        return any(each.id in self.witness.committed and self.head(each.id) is not None for each in own)

    def _is_of_another(self, machine: Machine, call: Call) -> bool:
        """Whether it ends or finishes what another machine has begun."""
        asked = call.parameters
        if call.operation not in WRITES - _TRANSACTIONS or isinstance(call, Beside):
            return False
        unit = asked.get("ExpressionAttributeValues", {}).get(":unit", asked.get("Key", {}).get("unit", {}))
        record = self.witness.records.get(unit.get("S", ""))
        return record is not None and record.machine != machine.name

    def late_one_arrives(self, which: int) -> None:
        """A copy of a request arrives after everybody has forgotten it."""
        self.witness.step += 1
        copy = self.late.pop(which)
        if self.time.now_ms - copy.signed_ms <= _LATEST_MS:
            self.witness.tells(f"a late copy arrives of {_told(copy.call)}")
            self._perform(copy.call, None)

    def _something_fails(self) -> bool:
        fault = self.mishaps.which(ON_ANYTHING, self.chance)
        if fault is None:
            return False
        self.witness.step += 1
        victims = [each for each in self.machines if not each.is_over]
        awake = [each for each in victims if each.paused_until_ms <= self.time.now_ms]
        if fault == "overslept":
            victims = [each for each in awake if any(strand.repeats is not None for strand in each.strands)]
        elif fault == "half_way":
            victims = [each for each in awake if self._is_half_way(each)]
        if fault == "expire" or victims:
            self.struck[fault] += 1
        if fault == "expire":
            self.memory.expire()
        elif victims:
            self._strikes(fault, victims[self.chance.pick(len(victims))])
        return True

    def _strikes(self, fault: str, victim: Machine) -> None:
        told = fault
        if fault == "jump":
            off_ms = JUMPS_MS[self.chance.pick(len(JUMPS_MS))]
            victim.set_wall(off_ms)
            told = f"its wall clock is off by {off_ms} ms"
        elif fault == "crash":
            self._crashes(victim)
        elif fault == "outage":
            victim.outage = IN_AN_OUTAGE[self.chance.pick(len(IN_AN_OUTAGE))]
            ms = OUTAGES_MS[self.chance.pick(len(OUTAGES_MS))]
            victim.outage_until_ms, told = self.time.now_ms + ms, f"{victim.outage} for {ms} ms"
        else:
            choices = OVERSLEPT_MS if fault == "overslept" else PAUSES_MS
            ms = choices[self.chance.pick(len(choices))]
            self.struck["asleep for days"] += ms > A_DAY_MS
            self.struck["token forgotten"] += fault == "overslept" and any(
                each.is_unanswered and each.repeats is not None and each.repeats.operation in _COMMITS
                for each in victim.strands
            )
            (victim.freeze if fault == "freeze" else victim.pause)(ms)
            told = f"{fault} for {ms} ms"
        self.witness.tells(f"{victim.name}: {told}")

    def _crashes(self, victim: Machine) -> None:
        """A machine is gone; what it has sent may arrive, and another one may go on in its place."""
        for strand in victim.strands:
            pending = strand.pending
            if pending is not None and not pending.is_over and not pending.is_at_work and self.chance.pick(2):
                self._perform(pending.call, None)
        self.crash(victim)
        if self.chance.pick(3) < 2 and len(self.machines) < 9:
            self.add(f"{victim.name}'", self.scripts[victim.name])

    def crash(self, victim: Machine) -> None:
        """A machine is gone; its transactions in the service go on."""
        for work in self.at_work:
            if any(work.pending is strand.pending for strand in victim.strands):
                work.pending = None
        victim.crash()


def elements(item: Mapping[str, Any]) -> Value:
    """The list in an item as the low-level API has it."""
    return tuple(int(each["N"]) for each in item[ELEMENTS]["L"])


def _written_by(call: Call) -> str | None:
    """The unit that a transaction decides, if it does: natively, or by its head."""
    for action in call.parameters["TransactItems"]:
        for asked in action.values():
            if asked["TableName"] == UNITS and "#state = :committed" in asked.get("UpdateExpression", ""):
                return str(asked["Key"]["unit"]["S"])
            if asked["TableName"] not in (UNITS, LOCKS):
                unit = asked.get("ExpressionAttributeValues", {}).get(":unit") or asked.get("Item", {}).get(
                    MARKS.version
                )
                if unit is not None and MARKS.mark not in asked.get("Item", {}):
                    return str(unit["S"])
    token = str(call.parameters.get("ClientRequestToken"))
    heads = any(
        asked["TableName"] == UNITS and asked.get("Key", {}).get("row", {}).get("S") == "head"
        for action in call.parameters["TransactItems"]
        for asked in action.values()
    )
    return token if len(token) == 26 and not heads else None


def _may_be_refused(call: Call) -> bool:
    """Whether it has contents that the service may not like; what comes after a unit's decision has not."""
    asked = call.parameters
    if call.operation == "put_item":
        return asked["TableName"] == UNITS or MARKS.mark in asked["Item"]
    is_mark = call.operation == "update_item" and asked.get("UpdateExpression") == "SET #mark = :mark"
    return (is_mark or call.operation in _COMMITS) and not isinstance(call, Beside)


def _told(call: Call) -> str:
    asked = call.parameters
    if "TransactItems" in asked:
        return f"{call.operation} of {len(asked['TransactItems'])}"
    key = asked.get("Key") or asked.get("Item", {})
    return f"{call.operation} of {asked.get('TableName')} {[part.get('S') for part in list(key.values())[:2]]}"


def _conflict(call: Call) -> ClientError:
    if call.operation not in _TRANSACTIONS:
        return _answered("TransactionConflictException", call.operation)
    error = _answered("TransactionCanceledException", call.operation)
    response: Any = error.response
    response["CancellationReasons"] = [
        {"Code": "TransactionConflict" if at == 0 else "None"} for at in range(len(call.parameters["TransactItems"]))
    ]
    return error


def _answered(code: str, operation: str) -> ClientError:
    # Without a Date: the driver has to do without one here.
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)
