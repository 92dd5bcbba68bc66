"""The network between the machines of the simulated world of units and the service: requests, and late copies."""

from collections import Counter
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from property.chance import Chance
from property.clocks import TrueTime
from property.faults import LATEST_MS, TIMED_OUT_MS, answered, drawn_lateness_ms
from property.units.calls import (
    TRANSACTIONS,
    WRITES,
    Beside,
    conflict,
    finished_by,
    in_short,
    is_a_plain_insert,
    may_be_refused,
)
from property.units.checker import Key, UnitChecker
from property.units.faults import ON_A_REQUEST, ONLY_ON_WRITES, Faults
from property.units.machines import Machine, Pending
from property.units.service import AtWork, Service

from ticketlock.wire._actions import Call


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
        if self.time.now_ms - copy.signed_ms <= LATEST_MS:
            self.checker.notes(f"a late copy arrives of {in_short(copy.call)}")
            self.service.performs(copy.call, None)

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
