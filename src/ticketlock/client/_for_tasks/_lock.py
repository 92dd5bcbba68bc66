"""A lock for tasks that is made once, and entered again and again."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Unpack

from ticketlock._checks import Seconds
from ticketlock.client._arguments import AcquireOptions
from ticketlock.client._for_tasks._acquiring import Acquiring, Asking
from ticketlock.client._for_tasks._lease import Lease
from ticketlock.client._lock import NamedLock, is_locked
from ticketlock.locks import LockName, LockState


class LocksOfTasks(Protocol):
    """A client, as a lock uses it."""

    @property
    def acquire(self) -> Callable[..., Acquiring[Lease]]: ...

    @property
    def try_acquire(self) -> Callable[..., Asking[Lease | None]]: ...

    async def inspect(self, entity: LockName) -> LockState: ...


class Lock(NamedLock):
    """A lock, made once by ``LockClient.lock``; see ``ticketlock.Lock``. Any number of tasks may use it at once."""

    __slots__ = ("_client", "_entering")
    _client: LocksOfTasks
    _entering: Acquiring[Lease]

    def __init__(
        self, client: LocksOfTasks, name: LockName, record_wait: Seconds | None, options: Mapping[str, Any]
    ) -> None:
        super().__init__(name, record_wait, options)
        entering = client.acquire(name, record_wait=record_wait, **options)
        entering.may_stay_unused()
        object.__setattr__(self, "_client", client)
        object.__setattr__(self, "_entering", entering)

    def acquire(
        self, *, record_wait: Seconds | None = None, owner: str | None = None, **options: Unpack[AcquireOptions[Lease]]
    ) -> Acquiring[Lease]:
        """Wait for it, and hold it until the lease is released; see ``ticketlock.Lock.acquire``."""
        wait = self._record_wait if record_wait is None else record_wait
        return self._client.acquire(self.name, record_wait=wait, owner=owner, **{**self._options, **options})

    def try_acquire(
        self, *, owner: str | None = None, **options: Unpack[AcquireOptions[Lease]]
    ) -> Asking[Lease | None]:
        """Take it if it is free; return None if it has a holder or a waiter."""
        return self._client.try_acquire(self.name, owner=owner, **{**self._options, **options})

    async def locked(self) -> bool:
        """Whether anybody holds it, in any process: somebody's lease has not expired. Reads the table."""
        return is_locked(await self._client.inspect(self.name))

    async def __aenter__(self) -> Lease:
        return await self._entering.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._entering.__aexit__(kind, error, traceback)
