"""Machines that do several things at once, each with its own clocks; and the faults that they meet.

A machine that has ``overslept`` paused between two attempts of a write, for longer than the service remembers the token
of a transaction; one that is ``half_way`` pauses when its unit is committed, but not finished. The service refuses the
contents of a ``refused`` request, which a unit sends before it is committed; and it refuses ``for good`` what a
committed unit writes to an item, until an operator corrects that, or the service takes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from property import clocks
from property.chance import Chance

from ticketlock.wire._actions import Actions, Call
from ticketlock.wire._driver import Driver


@dataclass(eq=False)
class Pending:
    """A request that was sent.

    Attributes:
        call: the request.
        signed_ms: when it was signed.
        is_at_work: whether the service is performing it, step by step.
        is_over: whether it is answered, or will never be.
    """

    call: Call
    signed_ms: float
    is_at_work: bool = False
    is_over: bool = False
    answer: Any = None
    error: BotoCoreError | ClientError | None = None


@dataclass(eq=False)
class Strand:
    """One sequence of actions of a machine.

    Attributes:
        parent, at: the strand that waits for it, and the position of its result there.
        repeats: while it sleeps before it sends a write again: that write.
        is_unanswered: whether an earlier attempt of it may have been applied.
        left: how many of the strands that it waits for are not over.
        results: of those strands, in order.
    """

    actions: Actions[Any]
    parent: "Strand | None" = None
    at: int = 0
    pending: Pending | None = None
    wakes_at_ms: float = 0
    repeats: Call | None = None
    is_unanswered: bool = False
    left: int = 0
    results: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Machine(clocks.Machine):
    """One machine.

    Attributes:
        strands: what it is about to do, in parallel.
        outage, outage_until_ms: the fault that each of its requests gets, until then.
    """

    strands: list[Strand] = field(default_factory=list)
    driver: Driver = field(init=False)
    outage: str = ""
    outage_until_ms: float = 0

    def crash(self) -> None:
        self.strands.clear()

    @property
    def is_over(self) -> bool:
        return not self.strands

    def ready(self) -> list[Strand]:
        """The strands that may continue now."""
        now_ms = self.time.now_ms
        if not self.strands or self.paused_until_ms > now_ms:
            return []
        return [
            each
            for each in self.strands
            if not each.left
            and (
                each.wakes_at_ms <= now_ms
                if each.pending is None
                else each.pending.is_over or not each.pending.is_at_work
            )
        ]

    def ready_at_ms(self) -> float:
        """When one of its strands may continue, if nothing else happens."""
        wakes = [each.wakes_at_ms if each.pending is None else 0 for each in self.strands if not each.left]
        return max(self.paused_until_ms, min(wakes, default=0))


ON_A_REQUEST = (
    "request_lost",
    "reply_lost",
    "late",
    "twice",
    "throttled",
    "conflict",
    "duplicated",
    "refused",
    "refused for good",
)
ON_ANYTHING = ("crash", "pause", "freeze", "jump", "outage", "overslept", "half_way")
ON_A_TRANSACTION = ("abandoned",)
ONLY_ON_WRITES = ("late", "twice", "duplicated")

RATES = {
    "request_lost": 10,
    "reply_lost": 20,
    "late": 20,
    "twice": 15,
    "throttled": 8,
    "conflict": 10,
    "crash": 3,
    "pause": 4,
    "freeze": 1,
    "jump": 1,
    "abandoned": 15,
    "outage": 2,
    "refused": 3,
    "refused for good": 6,
    "overslept": 4,
    "half_way": 6,
}
"""How often each is injected, in thousandths of the choices, if it is possible."""

A_DAY_MS = 24 * 3_600_000
PAUSES_MS = (500, 3_000, 30_000, 70_000, 4 * 60_000, 11 * 60_000, 3 * 3_600_000, 26 * 3_600_000, 3 * A_DAY_MS)
OVERSLEPT_MS = PAUSES_MS[5:]
OUTAGES_MS = (3_000, 12_000, 30_000, 90_000)
IN_AN_OUTAGE = ("request_lost", "reply_lost", "late", "throttled")
JUMPS_MS = (0, 90_000, -90_000, 240_000)

BESIDE = (
    "token forgotten",
    "signature expired",
    "asleep for days",
    "written beside units",
    "ended by another",
    "sweep cut short",
    "swept on by another",
    "corrected",
    "deleted by time to live",
    "a receipt deleted",
)
"""Events that are not drawn: they result from faults, from the cast, and from time."""
STRIKES = (*RATES, *BESIDE)
"""All of them: a search in which one of them never occurs has not tested it."""


class Faults:
    """How often each fault is injected, in thousandths of the choices."""

    def __init__(self, rates: Mapping[str, int]) -> None:
        self.rates = dict(rates)
        self._sums: dict[tuple[str, ...], int] = {
            names: sum(self.rates.get(name, 0) for name in names)
            for names in (ON_A_REQUEST, ON_ANYTHING, ON_A_TRANSACTION)
        }

    @property
    def are_none(self) -> bool:
        """Whether no fault is injected."""
        return not any(self.rates.values())

    def which(self, names: tuple[str, ...], chance: Chance) -> str | None:
        """Draw one of these faults, mostly none; the simplest choice is none."""
        drawn = chance.pick(1_000) if self._sums[names] else 0
        if not 0 < drawn <= self._sums[names]:
            return None
        for name in names:
            drawn -= self.rates.get(name, 0)
            if drawn <= 0:
                return name
        return None


NONE = Faults({})


def mixed(chance: Chance) -> Faults:
    """Some faults never, some at their rate, some often: all of them at once would hide bugs. Or none at all."""
    if chance.pick(8) == 0:
        return NONE
    return Faults({name: rate * [1, 0, 5][chance.pick(3)] for name, rate in RATES.items()})
