"""A lock client whose every operation is recorded."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from botocore.exceptions import ClientError
from kit.lock_history import Recorder, Recording

from ticketlock import Lease, LockClient, LockLost, Position, RecordWaitExceeded, RequestNotApplied


def process_name(pid: int) -> str:
    return f"process {pid}"


class RecordedLocks:
    """A client for one process, with recorded operations."""

    def __init__(self, locks: LockClient, recorder: Recorder) -> None:
        self._locks = locks
        self._recorder = recorder

    def acquire(self, entity: str, *, shared: bool = False, permits: int = 1, **options: Any) -> "RecordedLease":
        asking = self._recorder.begin("acquire", entity, shared=shared, permits=permits)
        waiting = _Waiting(self._recorder, asking)
        try:
            lease = self._locks.acquire(entity, shared=shared, permits=permits, on_wait=waiting, **options)
        except RecordWaitExceeded as error:
            asking.tell("refused", error=repr(error))
            raise
        except BaseException as error:
            asking.tell("unknown", error=repr(error))
            raise
        asking.tell(
            "applied",
            ticket=lease._grant.ticket,
            fencing_token=lease.fencing_token,
            polled_ms=waiting.polled_ms,
            until_ms=lease._deadline.local_ms,
        )
        return RecordedLease(self._recorder, asking, lease)


class RecordedLease:
    """A held lock with recorded operations; released at the end of ``with``, lost or not."""

    def __init__(self, recorder: Recorder, asking: Recording, lease: Lease) -> None:
        self.lease = lease
        self._recorder = recorder
        self._asking = asking

    def check(self) -> bool:
        """Whether the holder may rely on the lock; if it may, that is recorded."""
        # With the time before the check: a process that is suspended in between gets False.
        now_ms = self._recorder.now_ms()
        is_held = self.lease.is_held()
        if is_held:
            self._asking.tell("holds", local_ms=now_ms)
        return is_held

    def update(self, found: int, write: Callable[[int], object]) -> bool:
        """Write one more than was found. Returns whether that was applied."""
        updating = self._recorder.begin("update", self._asking.entity, of=self._asking.operation, found=found)
        try:
            write(found + 1)
        except (LockLost, RequestNotApplied, ClientError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            updating.tell("refused", error=repr(error))
            return False
        updating.tell("applied")
        return True

    def release(self) -> None:
        self.check()
        releasing = self._recorder.begin("release", self._asking.entity, of=self._asking.operation)
        try:
            self.lease.release()
        except LockLost as error:
            releasing.tell("refused", error=repr(error))
            raise
        releasing.tell("applied")

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(LockLost):
            self.release()


class _Waiting:
    """Follows a wait.

    Attributes:
        polled_ms: after the last poll that found another owner's turn; None before there was one.
    """

    def __init__(self, recorder: Recorder, asking: Recording) -> None:
        self.polled_ms: int | None = None
        self._recorder = recorder
        self._asking = asking
        self._ticket_and_lease: tuple[int, int] | None = None

    def __call__(self, seen: Position) -> None:
        place = seen.place
        if self._ticket_and_lease == (place.ticket, place.lease_until_ms):
            self._asking.tell("polls")
        else:
            self._ticket_and_lease = place.ticket, place.lease_until_ms
            until_ms = seen.now.local_of(place.lease_until_ms)
            self._asking.tell("stands", ticket=place.ticket, until_ms=until_ms)
        self.polled_ms = self._recorder.now_ms()
