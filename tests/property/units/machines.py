"""Machines that do several things at once, each with clocks of its own."""

from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from property import clocks

from ticketlock.wire._actions import Actions, Call
from ticketlock.wire._driver import Driver


@dataclass(eq=False)
class Pending:
    """A request on its way.

    Attributes:
        call: what was sent.
        signed_ms: when.
        is_at_work: whether the service goes on with it, step by step.
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
    """One course of actions of a machine.

    Attributes:
        parent, at: whose part it is, and which.
        repeats: while it sleeps before it sends a write again: which.
        is_unanswered: whether that may have been applied.
        left: how many parts of its own are not over.
        results: of those, in their order.
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
        strands: what it is about to do, side by side.
        outage, outage_until_ms: what becomes of each of its requests, until then.
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
        """Which of its strands may go on now."""
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
        """When one of its strands may go on, if nothing happens to it."""
        wakes = [each.wakes_at_ms if each.pending is None else 0 for each in self.strands if not each.left]
        return max(self.paused_until_ms, min(wakes, default=0))
