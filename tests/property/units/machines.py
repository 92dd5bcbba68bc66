"""Machines that do several things at once, each with its own clocks."""

from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from property import clocks

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
