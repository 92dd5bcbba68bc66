"""Who takes part, as the witness knows them: those who wait, and those who hold and what they believe."""

from dataclasses import dataclass
from math import inf
from typing import Protocol

from kit.invariants import UNCERTAINTY_MS, Belief
from property.clocks import Machine

LOCAL_CLOCK_IS_OFF_MS = 200
"""What a local clock gains in the longest record wait, rounded up."""


@dataclass
class Waiting:
    """An acquisition under way.

    Attributes:
        by_table_time: whether the record wait is counted by it, from the ticket on; else by the local clock, from the
            beginning on.
        poll_ms: the longest sleep of its pace when it is the first in line.
        met_somebody: whether somebody has held the lock, or stood in the queue, since it began.
    """

    owner: str
    since_ms: float
    record_wait_ms: int | None
    machine: Machine
    shared: bool
    by_table_time: bool
    poll_ms: float
    met_somebody: bool = False

    @property
    def clock_is_off_ms(self) -> float:
        """By how much the clock of its record wait is off at most, in all of it."""
        return 2 * UNCERTAINTY_MS if self.by_table_time else LOCAL_CLOCK_IS_OFF_MS


class Held(Protocol):
    """What a holder asks whether it holds the lock."""

    def is_held(self) -> bool:
        """Whether it may count on it at this moment."""
        ...


@dataclass(slots=True)
class Hold(Belief):
    """A belief: that of a lease, which goes by the holder's own clocks. They may be set, and one may stand still.

    Attributes:
        since_ms: when its acquisition began.
        lease: the client's own.
        over_ms: when its holder was gone, or began to release it.
    """

    machine: Machine
    since_ms: float
    lease: Held
    over_ms: float = inf

    def is_believed(self) -> bool:
        """Whether it believes now, and may be taken at its word.

        Not if its machine was frozen with its local clock, and its wall clock set back: then nothing tells it.
        """
        told_by_none = min(self.machine.frozen_at_ms, self.machine.set_back_at_ms) >= self.since_ms
        return not self.is_over and not told_by_none and self.lease.is_held()

    @property
    def is_over(self) -> bool:
        """Whether its holder believes nothing any more."""
        return self.over_ms < inf

    def ends(self) -> None:
        """Its holder is gone, or begins to release it."""
        self.over_ms = min(self.over_ms, self.machine.time.now_ms)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a grant came to its end in the table.

    Attributes:
        step, at_ms: the step at which it did, and the time.
        by: the machine whose request it was; empty of time to live, or of somebody who deleted the item.
        is_taken: whether a later grant has removed it, since its lease was over.
        is_freed: whether somebody freed it who may: its owner, or an operator by force. Then what others believe in
            who have the same grant is nobody's promise any more, but that they are told in the end.
    """

    step: int
    at_ms: float
    by: str
    is_taken: bool
    is_freed: bool
