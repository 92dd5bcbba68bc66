"""One held lock of one execution."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from kit.step_functions import Callback
from kit.world import Process, World

from ticketlock import Grant, LockName
from ticketlock.locks._items import Session
from ticketlock.locks._protocol import Contender
from ticketlock.wire._requests import Steps
from ticketlock.workflow._session import LastBeat, abandon, beat, finish


class Hold:
    """One held lock of one execution, and the steps that its functions run, each in a process of its own."""

    def __init__(self, world: World, lock: LockName, processes: Sequence[Process] = ()) -> None:
        self.world = world
        self._processes = list(processes)
        self.owner = self._process()
        self.owner.sent.clear()
        self.claim = self.owner.claim(lock)
        self.grant: Grant = self.owner.granted(self.claim)
        self.session = Session(f"arn:aws:states:::execution:serialize:{uuid.uuid4()}", "serialize")

    def beat(self, number: int, token: str = "token", last: LastBeat | None = None) -> Callback[Any]:
        return self._steps(lambda me: beat(me, self.grant, self.session, token, number, last))

    def finish(self) -> Callback[Any]:
        return self._steps(self.finishes)

    def finishes(self, me: Contender) -> Steps[Any]:
        return finish(me, self.grant, self.session)

    def abandon(self) -> Callback[Any]:
        return self._steps(lambda me: abandon(me, self.grant, self.session))

    def is_free(self) -> bool:
        item = self.owner.table.inspect(self.claim.lock).item
        return item is not None and item.held == 0 and item.holders == ()

    def _steps(self, verb: Callable[[Contender], Steps[Any]]) -> Callback[Any]:
        return Callback(self._process(), self.claim, verb)

    def _process(self) -> Process:
        return self._processes.pop() if self._processes else self.world.process()
