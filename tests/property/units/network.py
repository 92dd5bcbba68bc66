"""What lies between the machines of the simulated world of units and the service: requests on their way, and copies."""

from collections import Counter
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from property.chance import Chance
from property.clocks import TrueTime
from property.faults import LATEST_MS, TIMED_OUT_MS, answered, drawn_lateness_ms
from property.units.calls import TRANSACTIONS, WRITES, Beside, conflict, in_short, may_be_refused
from property.units.machines import Machine, Pending
from property.units.mishaps import ON_A_REQUEST, ONLY_ON_WRITES, Mishaps
from property.units.service import AtWork, Service
from property.units.witness import UnitWitness

from ticketlock.wire._actions import Call


@dataclass(frozen=True, slots=True)
class Late:
    """A copy of a request that is still to arrive."""

    call: Call
    signed_ms: float
    arrives_ms: float


@dataclass
class Network:
    """Carries requests to the service, loses them, and lets copies of them arrive.

    Attributes:
        struck: how many times what went wrong.
        late: copies that are still to arrive.
    """

    chance: Chance
    time: TrueTime
    witness: UnitWitness
    struck: Counter[str]
    service: Service
    late: list[Late] = field(default_factory=list)

    def carries(self, machine: Machine, pending: Pending, mishaps: Mishaps) -> None:
        """A request of a machine goes on, or one of the mishaps befalls it."""
        operation = pending.call.operation
        if self.time.now_ms - pending.signed_ms > LATEST_MS:
            self.struck["signature expired"] += 1
            self._fails(pending, answered("InvalidSignatureException", operation))
            return
        fault = self._drawn(machine, pending.call, mishaps)
        if fault is not None:
            self.befalls(fault, machine, pending)
        else:
            self.struck["ended by another"] += self._is_of_another(machine, pending.call)
            self.service.performs(pending.call, pending)

    def _drawn(self, machine: Machine, call: Call, mishaps: Mishaps) -> str | None:
        fault, is_cut_off = mishaps.which(ON_A_REQUEST, self.chance), machine.outage_until_ms > self.time.now_ms
        if is_cut_off:
            fault = machine.outage
        if fault in ONLY_ON_WRITES and call.operation not in WRITES:
            return "reply_lost" if is_cut_off else None
        if fault == "conflict" and call.operation not in (WRITES | TRANSACTIONS):
            return None
        if fault == "refused" and not may_be_refused(call):
            return None
        return fault

    def befalls(self, fault: str, machine: Machine, pending: Pending, after_ms: float | None = None) -> None:
        """One of the faults of requests befalls one that a machine has on its way.

        Args:
            after_ms: after which time the copy that it leaves arrives; None for any.
        """
        call = pending.call
        self.struck[fault] += 1
        self.witness.tells(f"{machine.name}'s {in_short(call)}: {fault}")
        if fault == "request_lost":
            self._fails(pending, ConnectTimeoutError(endpoint_url="world"))
        elif fault == "throttled":
            self._fails(pending, answered("ThrottlingException", call.operation))
        elif fault == "conflict":
            self._fails(pending, conflict(call))
        elif fault == "refused":
            self._fails(pending, answered("ValidationException", call.operation))
        elif fault == "reply_lost":
            self.service.performs(call, None)
            self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        else:
            if after_ms is None:
                after_ms = drawn_lateness_ms(self.chance)
            # Signed when it was sent.
            self.late.append(Late(call, pending.signed_ms, self.time.now_ms + after_ms))
            if fault != "late":
                self.service.performs(call, pending if fault == "doubled" else None)
            if fault != "doubled":
                self._fails(pending, ReadTimeoutError(endpoint_url="world"))

    def first_due(self) -> int | None:
        """Which copy arrives now; None where none does."""
        return next((at for at, copy in enumerate(self.late) if copy.arrives_ms <= self.time.now_ms), None)

    def late_one_arrives(self, which: int) -> None:
        """A copy of a request arrives after everybody has forgotten it."""
        self.witness.step += 1
        copy = self.late.pop(which)
        if self.time.now_ms - copy.signed_ms <= LATEST_MS:
            self.witness.tells(f"a late copy arrives of {in_short(copy.call)}")
            self.service.performs(copy.call, None)

    def abandons(self, work: AtWork) -> None:
        """Whoever sent a transaction waits for its answer no longer, and it goes on."""
        if work.pending is not None:
            self.witness.tells(f"{work.which.operation} is abandoned by its sender")
            self.struck["abandoned"] += 1
            self._fails(work.pending, ReadTimeoutError(endpoint_url="world"))
            work.pending = None

    def _fails(self, pending: Pending, error: BotoCoreError | ClientError) -> None:
        pending.is_over, pending.answer, pending.error = True, None, error
        if isinstance(error, ReadTimeoutError):
            self.time.now_ms += TIMED_OUT_MS

    def _is_of_another(self, machine: Machine, call: Call) -> bool:
        """Whether it ends or finishes what another machine has begun."""
        asked = call.parameters
        if call.operation not in WRITES - TRANSACTIONS or isinstance(call, Beside):
            return False
        unit = asked.get("ExpressionAttributeValues", {}).get(":unit", asked.get("Key", {}).get("unit", {}))
        record = self.witness.records.get(unit.get("S", ""))
        return record is not None and record.machine != machine.name
