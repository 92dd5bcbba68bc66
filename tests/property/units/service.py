"""DynamoDB in the simulated world of units, and the network between it and the machines: requests, and late copies.

The service performs transactions step by step, and the checker sees each commit.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from property.chance import Chance
from property.clocks import TrueTime
from property.faults import LATEST_MS, TIMED_OUT_MS, answered, drawn_lateness_ms
from property.units.calls import (
    MARKS,
    TRANSACTIONS,
    UNITS,
    WRITES,
    Beside,
    conflict,
    create_tables,
    elements,
    finished_by,
    finished_together,
    in_short,
    is_a_plain_insert,
    may_be_refused,
    written_by,
)
from property.units.checker import Commit, Key, UnitChecker, Value
from property.units.machines import ON_A_REQUEST, ONLY_ON_WRITES, Faults, Machine, Pending

from ticketlock.testing import InSteps, MemoryDynamoDB
from ticketlock.units._records._rows import NAME
from ticketlock.wire._actions import Call


@dataclass(eq=False)
class AtWork:
    """A transaction that the service is performing.

    Attributes:
        pending: the request of a sender that waits for the answer; None if none waits.
        taken: how many steps it has taken.
    """

    call: Call
    which: InSteps
    pending: Pending | None
    began_ms: float
    taken: int = 0
    commit: Commit | None = None


@dataclass
class Service:
    """The tables, and the transactions in progress.

    Attributes:
        in_steps: whether other machines may continue between two steps of a transaction; None to draw that each time.
        struck: how often each fault was injected.
        refuses: for which units it refuses to give an item its new value, whoever asks.
        at_work: transactions that have begun and are not over, in the order in which they began.
    """

    chance: Chance
    time: TrueTime
    checker: UnitChecker
    struck: Counter[str]
    in_steps: bool | None
    refuses: set[tuple[str, Key]] = field(default_factory=set)
    at_work: list[AtWork] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = MemoryDynamoDB(lock_table=None, clock=self.time)
        # Time to live and plain writers write by it, also where the requests of units are recorded.
        self.others = self.memory
        if self.in_steps is None:
            self.memory.comes_next = lambda left: self.chance.pick(left) if left > 1 else 0
        create_tables(self.memory)

    # The contents of the tables.

    def stored(self, key: Key) -> dict[str, Any] | None:
        """An item as it is stored."""
        table = self.memory._service.tables[key[0]]
        return table.get((key[1], "") if key[0] == "accounts" else ("p", key[1]))

    def head(self, unit: str) -> dict[str, Any] | None:
        """A unit's head as it is stored."""
        return self.memory._service.tables[UNITS].get((unit, "head"))

    def final(self) -> dict[Key, Value]:
        """The contents of the items that units use."""
        found: dict[Key, Value] = {}
        for key in self.checker.keys:
            item = self.stored(key)
            found[key] = None if item is None or MARKS.is_placeholder(item) else elements(item)
        return found

    def time_to_live(self) -> None:
        """Now and then one row whose time is over is deleted: that is no fault, and may happen at any moment."""
        now_s = self.memory._service.wall_ms // 1_000
        over = [row for row in self.memory.items(UNITS) if "expiresAt" in row and int(row["expiresAt"]["N"]) < now_s]
        if not over or self.chance.pick(3) != 2:
            return
        row = over[self.chance.pick(len(over))]
        try:
            self.others.delete_item(TableName=UNITS, Key={name: row[name] for name in ("unit", "row")})
        except ClientError:
            # A transaction has it.
            return
        self.struck["deleted by time to live"] += 1
        if row["row"]["S"] == "receipt":
            self.struck["a receipt deleted"] += 1
            self.checker.sees_receipt_deleted(row["unit"]["S"].removeprefix(NAME))

    # Requests.

    def performs(self, call: Call, pending: Pending | None) -> None:
        """Receive a request.

        Args:
            pending: the request of a sender that waits for the answer; None if none waits.
        """
        client: Any = self.others if isinstance(call, Beside) else self.memory
        if call.operation in TRANSACTIONS:
            if self.refuses.intersection(finished_together(call)):
                if pending is not None:
                    pending.is_over, pending.error = True, answered("ValidationException", call.operation)
                return
            which = client.in_steps(call.operation, **call.parameters)
            work = AtWork(call, which, pending, self.time.now_ms)
            self.at_work.append(work)
            if pending is not None:
                pending.is_at_work = True
            if not (self.chance.pick(2) if self.in_steps is None else self.in_steps):
                while work in self.at_work:
                    self.takes_a_step(work)
            return
        answer, error = None, None
        try:
            if self._refuses(call):
                raise answered("ValidationException", call.operation)
            answer = getattr(client, call.operation)(**call.parameters)
        except ClientError as refused:
            error = refused
        if pending is not None:
            pending.is_over, pending.answer, pending.error = True, answer, error
        if error is None and call.operation in WRITES:
            self._sees_write(call)

    def _refuses(self, call: Call) -> bool:
        """Whether it refuses the contents of a write; sometimes it takes them later, as after an index was deleted."""
        finished = finished_by(call)
        if finished not in self.refuses:
            return False
        if self.chance.pick(12) == 11:
            self.refuses.remove(finished)
            return False
        return True

    def takes_a_step(self, work: AtWork) -> bool:
        """Perform one step of a transaction. Returns whether steps are left."""
        is_under_way = work.which.step()
        work.taken += 1
        is_write = work.which.operation == "TransactWriteItems"
        if is_write and is_under_way and work.taken == len(work.call.parameters["TransactItems"]) + 1:
            unit = written_by(work.call)
            if unit is not None:
                work.commit = self.checker.sees_commit(unit, inf)
        if is_write and work.taken > len(work.call.parameters["TransactItems"]) + 1:
            self._sees_heads(work.call)
        if not is_under_way:
            self.at_work.remove(work)
            if work.commit is not None:
                work.commit.visible_at = self.checker.step
            self._answers(work)
        return is_under_way

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
                self.checker.sees_commit(call.record.id, self.checker.step)
                self.struck["written beside units"] += 1
            if call.token is not None:
                self.checker.token = max(self.checker.token, call.token)
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
        if head is not None and "coordinator" in head:
            saved_by, coordinator = head["attempt"]["S"], head["coordinator"]["S"]
            owner = head["owner"]["S"] if "owner" in head else None
            if asked.get("ExpressionAttributeValues", {}).get(":ended") == {"S": "rolledBack"} == head["state"]:
                name = self.checker.records[saved_by].name
                receipt = self.memory._service.tables[UNITS].get((f"{NAME}{name}", "receipt"))
                self.checker.sees_own_end(coordinator, saved_by, has_receipt=receipt is not None)
            self.checker.saves.sees(self.checker, unit, saved_by, coordinator, state=str(state), owner=owner)
        elif state == "committed" and unit not in self.checker.committed:
            self.checker.sees_commit(unit, self.checker.step)
        lease = asked.get("ExpressionAttributeValues", {}).get(":seen_lease")
        if head is not None and state == "rolledBack" and "finalMs" in asked.get("UpdateExpression", ""):
            by = head["by"]["S"] if "by" in head else None
            self.checker.sees_rollback(unit, by, int(lease["N"]) - self.time.now_ms if lease is not None else None)


@dataclass(frozen=True, slots=True)
class Late:
    """A copy of a request that will arrive later."""

    call: Call
    signed_ms: float
    arrives_ms: float


@dataclass
class Network:
    """Carries requests to the service, loses them, and lets copies of them arrive.

    Attributes:
        struck: how often each fault was injected.
        late: copies that will arrive later.
        told: the machines that were told that the service refuses what a unit of theirs writes to an item, and whether
            they know that no earlier attempt was applied.
    """

    chance: Chance
    time: TrueTime
    checker: UnitChecker
    struck: Counter[str]
    service: Service
    late: list[Late] = field(default_factory=list)
    told: dict[tuple[str, str], bool] = field(default_factory=dict)
    _unanswered: set[tuple[str, str, Key]] = field(default_factory=set)

    def carries(self, machine: Machine, pending: Pending, faults: Faults) -> None:
        """Deliver a request of a machine, or inject a fault into it."""
        operation = pending.call.operation
        if self.time.now_ms - pending.signed_ms > LATEST_MS:
            self.struck["signature expired"] += 1
            self._fails(pending, answered("InvalidSignatureException", operation))
            return
        fault = self._drawn(machine, pending.call, faults)
        if fault is not None:
            self.befalls(fault, machine, pending)
        else:
            self.struck["ended by another"] += self._is_of_another(machine, pending.call)
            self._performs(machine, pending)

    def _performs(self, machine: Machine, pending: Pending) -> None:
        self.service.performs(pending.call, pending)
        finished = finished_by(pending.call)
        if finished is not None and "ValidationException" in str(pending.error):
            who, is_sure = (machine.name, finished[0]), (machine.name, *finished) not in self._unanswered
            self.told[who] = self.told.get(who, False) or is_sure

    def _drawn(self, machine: Machine, call: Call, faults: Faults) -> str | None:
        fault, is_cut_off = faults.which(ON_A_REQUEST, self.chance), machine.outage_until_ms > self.time.now_ms
        if is_cut_off:
            fault = machine.outage
        if fault in ONLY_ON_WRITES and call.operation not in WRITES:
            return "reply_lost" if is_cut_off else None
        if fault == "conflict" and call.operation not in (WRITES | TRANSACTIONS):
            return None
        if fault in ("twice", "duplicated") and is_a_plain_insert(call):
            # Once the item is deleted, no condition refuses the second copy.
            return "reply_lost"
        if fault == "refused" and not may_be_refused(call):
            return None
        if fault == "refused for good" and finished_by(call) is None:
            return None
        return fault

    def befalls(self, fault: str, machine: Machine, pending: Pending, after_ms: float | None = None) -> None:
        """Inject a fault into a request that a machine has sent.

        Args:
            after_ms: when the copy that it leaves arrives; None to draw that.
        """
        call, finished = pending.call, finished_by(pending.call)
        self.struck[fault] += 1
        self.checker.notes(f"{machine.name}'s {in_short(call)}: {fault}")
        if fault == "request_lost":
            self._fails(pending, ConnectTimeoutError(endpoint_url="world"))
        elif fault == "throttled":
            self._fails(pending, answered("ThrottlingException", call.operation))
        elif fault == "conflict":
            self._fails(pending, conflict(call))
        elif fault == "refused":
            self._fails(pending, answered("ValidationException", call.operation))
        elif fault == "refused for good":
            assert finished is not None
            self.service.refuses.add(finished)
            self._performs(machine, pending)
        elif fault == "reply_lost":
            self.service.performs(call, None)
            self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        else:
            if after_ms is None:
                after_ms = drawn_lateness_ms(self.chance)
            # With the signature of the time when it was sent.
            self.late.append(Late(call, pending.signed_ms, self.time.now_ms + after_ms))
            if fault != "late":
                self.service.performs(call, pending if fault == "duplicated" else None)
            if fault != "duplicated":
                self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        if finished is not None and isinstance(pending.error, ReadTimeoutError):
            self._unanswered.add((machine.name, *finished))

    def first_due(self) -> int | None:
        """The copy that arrives now; None if none does."""
        return next((at for at, copy in enumerate(self.late) if copy.arrives_ms <= self.time.now_ms), None)

    def late_one_arrives(self, which: int) -> None:
        """A copy of a request arrives long after its sender has given it up."""
        self.checker.step += 1
        copy = self.late.pop(which)
        self._arrives_late(copy.call, copy.signed_ms)

    def outlives_its_sender(self, pending: Pending) -> None:
        """What a crashed machine had sent arrives."""
        self._arrives_late(pending.call, pending.signed_ms)

    def _arrives_late(self, call: Call, signed_ms: float) -> None:
        """A request arrives that nobody waits for: it is refused once its signature is too old."""
        if self.time.now_ms - signed_ms <= LATEST_MS:
            self.checker.notes(f"nobody waits for {in_short(call)}, and it arrives")
            self.service.performs(call, None)

    def abandons(self, work: AtWork) -> None:
        """The sender of a transaction stops waiting for its answer, and the service continues it."""
        if work.pending is not None:
            self.checker.notes(f"{work.which.operation} is abandoned by its sender")
            self.struck["abandoned"] += 1
            self._fails(work.pending, ReadTimeoutError(endpoint_url="world"))
            work.pending = None

    def _fails(self, pending: Pending, error: BotoCoreError | ClientError) -> None:
        pending.is_over, pending.answer, pending.error = True, None, error
        if isinstance(error, ReadTimeoutError):
            self.time.now_ms += TIMED_OUT_MS

    def _is_of_another(self, machine: Machine, call: Call) -> bool:
        """Whether it ends or finishes a unit of another machine."""
        asked = call.parameters
        if call.operation not in WRITES - TRANSACTIONS or isinstance(call, Beside):
            return False
        unit = asked.get("ExpressionAttributeValues", {}).get(":unit", asked.get("Key", {}).get("unit", {}))
        record = self.checker.records.get(unit.get("S", ""))
        return record is not None and record.machine != machine.name
