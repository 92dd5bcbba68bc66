"""An execution that ended without its last steps, and the clean-up after it."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from kit.promises import stored
from kit.step_functions import Callback, TaskService
from kit.world import LEASE_MS, Process, World

from ticketlock import Grant, LockName, LockState, Place, Position, Released
from ticketlock.locks._hand_over import await_wake_up
from ticketlock.locks._items import Holder, Row, Session
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import Item
from ticketlock.wire._requests import Steps
from ticketlock.workflow._clean_up import CleanedUp, clean_up
from ticketlock.workflow._session import beat, finish, note_continuation

LATE_MS = LEASE_MS + 4_000
"""By then a lease that is written now has ended, by any process's clock."""


def parking(place: Place, session: Session, token: str) -> Callable[[Contender], Steps[Position | None]]:
    """The steps of a waiter that parks with this task token, and stays parked until its turn may have come."""
    return lambda me: await_wake_up(me, place, session, token, park_number=0, may_stay=lambda _: True)


class Execution:
    """An execution of the serialised workflow: its steps, each in a process of its own, and the clean-up after it.

    Attributes:
        nested: whether its task is a nested execution; otherwise a function.
        grant, place: what its first step found.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        lock: LockName,
        *,
        nested: bool = True,
        service: TaskService | None = None,
        name: str = "execution",
    ) -> None:
        self.processes = processes
        self.nested = nested
        self.service = service if service is not None else TaskService()
        self.session = Session(f"arn:aws:states:us-east-1:123456789012:execution:serialize:{uuid.uuid4()}", name)
        self.claim = processes[0].claim(lock, self.session.execution, session=self.session, noted_in=self.session)
        self._used = 0
        for process in processes:
            process.sent.clear()

    def holds(self) -> "Execution":
        self.grant = self._process().granted(self.claim)
        return self

    def waits(self) -> "Execution":
        self.place = self._process().queued(self.claim).place
        return self

    def parks(self, token: str = "wake-up") -> "Execution":
        self._steps(parking(self.place, self.session, token)).run()
        return self

    def polls(self) -> Grant | Position:
        found = self.late_poll().run().result
        assert found is not None
        if isinstance(found, Position):
            self.place = found.place
        return found

    def late_poll(self) -> Callback[Grant | Position]:
        return self._steps(lambda me: me.check_turn(self.place, None))

    def beats(self, number: int, token: str = "beat") -> Callback[Grant]:
        return self._steps(lambda me: beat(me, self.grant, self.session, token, number))

    def finishes(self) -> Callback[Released]:
        return self._steps(lambda me: finish(me, self.grant, self.session))

    def continues_in(self, execution: str, count: int = 1) -> "Execution":
        self._steps(lambda me: note_continuation(me, self.session, execution, count)).run()
        return self

    def cleans_up(self, stopped_at_ms: int | None = None) -> Callback[CleanedUp]:
        at_ms = stopped_at_ms if stopped_at_ms is not None else self.processes[0].world.now_ms
        return self._steps(lambda me: clean_up(me, self.session, at_ms, self.work_of))

    def cleaned_up(self, stopped_at_ms: int | None = None) -> CleanedUp:
        return self.cleans_up(stopped_at_ms).to_the_end()

    def work_of(self, fencing_token: int) -> str | None:
        return f"work-{fencing_token}" if self.nested else None

    def rows(self) -> list[Row]:
        return [row for row in self._inspected().rows if row.owner == self.claim.owner]

    def holder(self) -> Holder | None:
        item = self._inspected().item
        return item.holder(self.claim.owner) if item is not None else None

    def waiting(self) -> int:
        item = self._inspected().item
        return item.waiting if item is not None else 0

    def is_stopped(self) -> bool:
        process = self.processes[0]
        table = process.world.engine.table_name
        item = process.client.get_item(TableName=table, Key=self.session.key(), ConsistentRead=True).get("Item", {})
        return "stoppedToken" in item

    def stored(self) -> list[Item]:
        """The lock item and the queue, attribute by attribute."""
        process = self.processes[0]
        return stored(process.client, process.world.engine.table_name, self.claim.lock.entity)

    def _inspected(self) -> LockState:
        return self.processes[0].table.inspect(self.claim.lock)

    def _process(self) -> Process:
        self._used += 1
        return self.processes[self._used % len(self.processes)]

    def _steps(self, verb: Any) -> Callback[Any]:
        return Callback(self._process(), self.claim, verb, self.service)


def gets_the_lock_when_the_lease_is_over(world: World, successor: Execution) -> bool:
    """Not before, and then at the next poll."""
    world.advance(LEASE_MS // 2)
    too_early = successor.polls()
    world.advance(LATE_MS - LEASE_MS // 2)
    return isinstance(too_early, Position) and isinstance(successor.polls(), Grant)
