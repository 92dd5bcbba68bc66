"""What goes wrong in the simulated world."""

from dataclasses import dataclass

ON_A_REQUEST = ("request_lost", "throttled", "conflict", "reply_lost", "late", "twice")
ON_A_MACHINE = ("crash", "pause", "freeze", "jump")
PAUSES_MS = (500, 3_000, 30_000, 70_000)
JUMPS_MS = (0, 90_000, -90_000, 240_000)


@dataclass
class Faults:
    """How often what goes wrong, in thousandths of the choices; all 0 is a world without faults.

    Attributes:
        request_lost: a request never arrives.
        reply_lost: it is applied, and nobody hears of it.
        late: it is applied after its sender gave it up.
        twice: it is applied, and a copy of it arrives later.
        throttled, conflict: it is refused, and may be repeated.
        crash: a machine is gone for ever.
        pause: it stands still, for up to three leases and a half; its clocks go on.
        freeze: it stands still together with its local clock.
        jump: somebody sets its wall clock.
        expire: time to live deletes whatever it may.
    """

    request_lost: int = 0
    reply_lost: int = 0
    late: int = 0
    twice: int = 0
    throttled: int = 0
    conflict: int = 0
    crash: int = 0
    pause: int = 0
    freeze: int = 0
    jump: int = 0
    expire: int = 0
