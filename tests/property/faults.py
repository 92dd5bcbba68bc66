"""The faults of the simulated world."""

from dataclasses import dataclass

from botocore.exceptions import ClientError
from property.chance import Chance

ON_A_REQUEST = ("request_lost", "throttled", "conflict", "reply_lost", "late", "twice", "torn")
ON_A_MACHINE = ("crash", "pause", "freeze", "jump")
ONLY_ON_WRITES = ("conflict", "late", "twice")
ONLY_ON_READS = ("torn",)
LEAVE_A_COPY = ("late", "twice")
READS = ("query", "get_item")
ON_ANYTHING = (*ON_A_MACHINE, "expire")
PAUSES_MS = (500, 3_000, 30_000, 70_000)
JUMPS_MS = (0, 90_000, -90_000, 240_000)
SKEWS_MS = (0, 450, -450)
"""By how much the clock of the server that replies is off."""
TIMED_OUT_MS = 2_000
"""How long a sender waits for an answer that does not come."""
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
LATEST_MS = 5 * 60_000
"""AWS refuses a request that arrives more than so much later than the time with which it was signed."""
_LATE_BY_MS = (100, 1_000, 10_000, 60_000, LATEST_MS)


@dataclass
class Faults:
    """How often each fault is injected, in thousandths of the choices; all 0 is a world without faults.

    Attributes:
        request_lost: a request never arrives.
        reply_lost: it is applied, and its sender gets no answer.
        late: it is applied after its sender gave it up.
        twice: it is applied, and a copy of it arrives later.
        torn: a Query is not a snapshot: some of its items are in their old state, some in a newer one.
        throttled, conflict: it is refused, and may be repeated.
        crash: a machine is gone for ever.
        pause: it pauses, for up to three and a half leases; its clocks continue.
        freeze: it pauses together with its local clock.
        jump: its wall clock is set.
        expire: TTL deletes what it may.
    """

    request_lost: int = 0
    reply_lost: int = 0
    late: int = 0
    twice: int = 0
    torn: int = 0
    throttled: int = 0
    conflict: int = 0
    crash: int = 0
    pause: int = 0
    freeze: int = 0
    jump: int = 0
    expire: int = 0

    def __post_init__(self) -> None:
        self._sums: dict[tuple[str, ...], int] = {
            names: sum(getattr(self, name) for name in names) for names in (ON_A_REQUEST, ON_ANYTHING)
        }

    def which(self, names: tuple[str, ...], chance: Chance) -> str | None:
        """Draw one of these faults, mostly none; the simplest choice is none."""
        drawn = chance.pick(1_000) if self._sums[names] else 0
        if not 0 < drawn <= self._sums[names]:
            return None
        for name in names:
            drawn -= getattr(self, name)
            if drawn <= 0:
                return name
        return None


def may_befall(fault: str, operation: str) -> bool:
    """Whether the fault can affect a request of this operation."""
    if operation in READS:
        return fault not in ONLY_ON_WRITES and (fault not in ONLY_ON_READS or operation == "query")
    return fault not in ONLY_ON_READS


def drawn_lateness_ms(chance: Chance) -> float:
    """By how much a copy is late: mostly by a moment, at most by five minutes."""
    return _LATE_BY_MS[chance.pick(len(_LATE_BY_MS))] * (1 + chance.pick(10)) / 10


def answered(code: str, operation: str) -> ClientError:
    """A reply with an error."""
    # Without a Date: the driver must work without one here.
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)
