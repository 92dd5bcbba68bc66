"""A transaction that a test performs one step at a time."""

import threading
from collections.abc import Callable, Generator
from typing import Any

from botocore.exceptions import ClientError

from ticketlock.testing._tables import Reply
from ticketlock.testing._faults import Refused



class InSteps:
    """A transaction that the service has received and performs step by step; ``MemoryDynamoDB.in_steps`` makes it.

    A TransactWriteItems of n actions has 2n + 1 steps: n check one condition each and reserve its item, one decides,
    and n change one item each. A TransactGetItems of n items has 2n: n read one each, and n check whether it has
    changed. A transaction that is refused ends earlier.

    It does not need its sender: it belongs to the service, and is in ``MemoryDynamoDB.ongoing`` until it is over.

    Attributes:
        operation: ``"TransactWriteItems"`` or ``"TransactGetItems"``.
        is_over: whether the service has finished it: all is applied or read, or it is refused.
    """

    def __init__(
        self,
        operation: str,
        lock: threading.RLock,
        steps: Generator[None, None, Reply],
        *,
        ends: Callable[["InSteps"], None],
        replies: Callable[[int, Reply], tuple[int, Reply]],
    ) -> None:
        self.operation = operation
        self.is_over = False
        self._lock = lock
        self._steps = steps
        self._ends = ends
        self._replies = replies
        self._outcome: tuple[int, Reply] = (0, {})

    def step(self) -> bool:
        """Perform one step; False if it is over."""
        with self._lock:
            if self.is_over:
                return False
            try:
                next(self._steps)
            except StopIteration as end:
                self._is_done(200, end.value)
            except Refused as refused:
                self._is_done(400, refused.failure())
            except BaseException:
                # An operation that the service does not know is not a reply of the service.
                self._is_done(500, {})
                raise
            return not self.is_over

    def finish(self) -> Any:
        """Perform all steps that are left, and return its reply as the client's method does.

        Raises:
            ClientError: it is refused.
            ReadTimeoutError: it has met the fault that its reply is lost.
        """
        with self._lock:
            while self.step():
                pass
            status, reply = self._replies(*self._outcome)
        if status >= 300:
            error: Any = reply
            raise ClientError(error, self.operation)
        return reply

    def _is_done(self, status: int, reply: Reply) -> None:
        self._outcome = status, reply
        self.is_over = True
        self._ends(self)
