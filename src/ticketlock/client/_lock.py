"""A lock that is made once, and entered again and again: what other libraries call a lock."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar, Unpack

from ticketlock._checks import Seconds
from ticketlock.client._arguments import AcquireOptions
from ticketlock.client._blocks import Block, being_left
from ticketlock.client._lease import Lease
from ticketlock.locks import LockName, LockState

E = TypeVar("E")


class LocksOfThreads(Protocol):
    """A client, as a lock uses it."""

    def _here(self) -> Any: ...


class NamedLock(LockName):
    """The name of a lock with what it is acquired with; equal to the plain name."""

    # An exit stack that has entered it is told by a weak reference.
    __slots__ = ("__weakref__", "_options", "_record_wait")
    _options: dict[str, Any]
    _record_wait: Seconds | None

    def __init__(self, name: LockName, record_wait: Seconds | None, options: Mapping[str, Any]) -> None:
        super().__init__(name.entity, name.namespace)
        object.__setattr__(self, "_options", dict(options))
        object.__setattr__(self, "_record_wait", record_wait)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LockName) and (self.entity, self.namespace) == (other.entity, other.namespace)

    __hash__ = LockName.__hash__

    def __reduce__(self) -> tuple[type[LockName], tuple[str, str]]:
        # What another process gets is the name.
        return LockName, (self.entity, self.namespace)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} of a lock cannot be set: its options are given when it is made, or to acquire()")

    # Type checkers are to see which attributes there are.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The error of an attribute that is not there: those of a lease are what other libraries' locks have."""
            of_lease = f"; acquire() returns a lease, which has {name}" if hasattr(Lease, name) else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{of_lease}")

    @property
    def name(self) -> LockName:
        """The name alone."""
        return LockName(self.entity, self.namespace)


class Lock(NamedLock):
    """A lock, made once by ``LockClient.lock``. Each ``with`` acquires it, and its end releases it; any number of
    threads may use it at once. It may be used wherever a ``LockName`` is taken.

    In a forked child it acquires with a client that is made there at the first use.
    """

    __slots__ = ("_client", "_entered")
    _client: LocksOfThreads
    _entered: list[Block]

    def __init__(
        self, client: LocksOfThreads, name: LockName, record_wait: Seconds | None, options: Mapping[str, Any]
    ) -> None:
        super().__init__(name, record_wait, options)
        object.__setattr__(self, "_client", client)
        object.__setattr__(self, "_entered", [])

    def acquire(
        self, *, record_wait: Seconds | None = None, owner: str | None = None, **options: Unpack[AcquireOptions[Lease]]
    ) -> Lease:
        """Wait for it, and hold it until the lease is released; see ``LockClient.acquire``.

        Args:
            record_wait, owner, options: as in ``LockClient.acquire``; they come before the options that it was made
                with.
        """
        wait = self._record_wait if record_wait is None else record_wait
        given = {**self._options, **options}
        lease: Lease = self._client._here().acquire(self.name, record_wait=wait, owner=owner, **given)
        return lease

    def try_acquire(self, *, owner: str | None = None, **options: Unpack[AcquireOptions[Lease]]) -> Lease | None:
        """Take it if it is free; return None if it has a holder or a waiter."""
        given = {**self._options, **options}
        lease: Lease | None = self._client._here().try_acquire(self.name, owner=owner, **given)
        return lease

    def locked(self) -> bool:
        """Whether anybody holds it, in any process: somebody's lease has not expired. Reads the table."""
        return is_locked(self._client._here().inspect(self.name))

    def __enter__(self) -> Lease:
        lease = self.acquire()
        block = lease._begin()
        try:
            self._entered.append(block)
        except BaseException as error:
            lease.__exit__(type(error), error, None, block)
            raise
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        block = taken_out(self._entered, lambda each: each)
        if block is None:
            raise RuntimeError(f"the lock on {self.entity!r} was not entered")
        lease: Lease = block.lease
        lease.__exit__(kind, error, traceback, block)


def taken_out(entered: list[E], block_of: Callable[[E], Block]) -> E | None:
    """Remove what is being left here from all that was entered; None if there is none."""
    while True:
        # Copied in one step: other threads enter and leave at the same time.
        every = {block_of(each): each for each in list(entered)}
        block = being_left(every)
        if block is None:
            return None
        with suppress(ValueError):
            entered.remove(every[block])
            return every[block]


def is_locked(state: LockState) -> bool:
    """Whether a lock has a holder whose lease has not expired, as far as table time is known."""
    holders = state.item.holders if state.item is not None else ()
    return any(holder.lease_until_ms > state.now.earliest_ms for holder in holders)
