"""The true time of the simulated world; and machines, whose clocks differ from it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from ticketlock.client._acquire import Wait
from ticketlock.wire._actions import Actions, Call
from ticketlock.wire._table_time import Reading

BEGIN_MS = 1_800_000_000_000


@dataclass
class TrueTime:
    """The time of the table, which does not drift; its servers' clocks differ by less than a second."""

    now_ms: float = BEGIN_MS
    skew_ms: int = 0

    def read(self) -> Reading:
        return Reading(0, int(self.now_ms + self.skew_ms))


@dataclass
class Pending:
    """A request that was sent.

    Attributes:
        first: for a Query that is not a snapshot: what it would have returned when it began.
        began: the step at which it began.
        is_being_applied: whether the service is applying it, item by item, and has not answered yet.
    """

    call: Call
    applied: bool = False
    answer: Any = None
    error: BotoCoreError | ClientError | None = None
    first: Any = None
    began: int | None = None
    is_being_applied: bool = False


class Poll(NamedTuple):
    """A read of the lock.

    Attributes:
        step: when it began.
        is_snapshot: whether all that it returned was true at one moment.
    """

    step: int = 0
    is_snapshot: bool = True


NO_POLL = Poll()


@dataclass
class Machine:
    """One machine's clocks, and what it is about to do.

    Attributes:
        rate: how fast its local clock runs.
        wall_is_off_ms: by how much its wall clock is wrong.
        polled: its last read of the lock.
        answered_tasks: its callback tasks that were answered.
        frozen_at_ms, set_back_at_ms: when it was last frozen, and its wall clock set back.
        unheard: how many of its requests may have been applied without an answer.
        copies: how many of its requests have left a copy that may arrive later.
        wait: its wait for a lock, as a client's.
        conflict_at_ms: when a request of it last conflicted with one of another machine.
        backs_off: whether its last request did: it sleeps, and sends it again.
    """

    time: TrueTime
    name: str
    rate: float
    wall_is_off_ms: float
    local_ms: float = 5_000_000
    read_at_ms: float = BEGIN_MS
    actions: Actions[None] | None = None
    pending: Pending | None = None
    wakes_at_ms: float = 0
    paused_until_ms: float = 0
    polled: Poll = NO_POLL
    waits_for_task: str | None = None
    answered_tasks: set[str] = field(default_factory=set)
    frozen_at_ms: float = 0
    set_back_at_ms: float = 0
    unheard: int = 0
    copies: int = 0
    wait: Wait | None = None
    conflict_at_ms: float = 0
    backs_off: bool = False

    def read(self) -> Reading:
        self._go_on()
        return Reading(int(self.local_ms), int(self.time.now_ms + self.wall_is_off_ms))

    def owners(self) -> Iterator[str]:
        """Owners of its acquisitions, one after the other."""
        return (f"{self.name}/{number}" for number in itertools.count(1))

    def pause(self, ms: float) -> None:
        """Do nothing for a while; the clocks continue."""
        self.paused_until_ms = max(self.paused_until_ms, self.time.now_ms + ms)

    def freeze(self, ms: float) -> None:
        """Pause together with the local clock."""
        self._go_on()
        self.frozen_at_ms = self.time.now_ms
        self.read_at_ms += ms
        self.paused_until_ms = max(self.paused_until_ms, self.read_at_ms)

    def set_wall(self, is_off_ms: float) -> None:
        """Set its wall clock."""
        if is_off_ms < self.wall_is_off_ms:
            self.set_back_at_ms = self.time.now_ms
        self.wall_is_off_ms = is_off_ms

    def answered(self, task_token: str) -> None:
        """One of its callback tasks is answered: if it waits for that task, it continues."""
        self.answered_tasks.add(task_token)
        if self.waits_for_task == task_token:
            self.wakes_at_ms = min(self.wakes_at_ms, self.time.now_ms)

    def woken(self) -> None:
        """A release has woken it: if it sleeps between two polls, it continues."""
        self.wakes_at_ms = min(self.wakes_at_ms, self.time.now_ms)

    def crash(self) -> None:
        self.actions = None

    def is_ready(self) -> bool:
        """Whether it may continue now."""
        if self.actions is None or self.paused_until_ms > self.time.now_ms:
            return False
        if self.pending is not None:
            return not self.pending.is_being_applied
        return self.wakes_at_ms <= self.time.now_ms

    def ready_at_ms(self) -> float:
        """When it may continue if nothing else happens, and nothing is applied for it."""
        if self.pending is not None and self.pending.is_being_applied:
            return inf
        return max(self.paused_until_ms, self.wakes_at_ms if self.pending is None else 0)

    @property
    def is_over(self) -> bool:
        return self.actions is None

    @property
    def unclear(self) -> int:
        """How many of its requests may be applied without its knowledge, or once more."""
        return self.unheard + self.copies

    def _go_on(self) -> None:
        now_ms = self.time.now_ms
        if now_ms > self.read_at_ms:
            self.local_ms += (now_ms - self.read_at_ms) * self.rate
            self.read_at_ms = now_ms
