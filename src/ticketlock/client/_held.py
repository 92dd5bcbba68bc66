"""Who holds: the leases of one client, by lock. No I/O."""

import threading
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Generic, TypeVar
from weakref import ref

from ticketlock.client._base_lease import BaseLease
from ticketlock.client._blocks import Caller
from ticketlock.client._waiters import LocalWaiters, WaitKey, without
from ticketlock.locks import LockName
from ticketlock.wire import Reading

L = TypeVar("L", bound=BaseLease)


class Held(Generic[L]):
    """The leases of one client.

    Args:
        identity: equal for all clients of one table.
        local_waiters: learn of each lease.
        keep_alive: told whether any lock is held, whenever that may have changed.
    """

    def __init__(
        self, identity: Callable[[], Hashable], local_waiters: LocalWaiters, keep_alive: Callable[[bool], object]
    ) -> None:
        self._identity_of_table, self._local_waiters, self._keep_alive = identity, local_waiters, keep_alive
        # Re-entrant: a signal handler that closes the client may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        self._leases: dict[LockName, tuple[L, ...]] = {}

    @cached_property
    def _identity(self) -> Hashable:
        return self._identity_of_table()

    def key(self, lock: LockName) -> WaitKey:
        """The key of a lock among all of this process."""
        return WaitKey(self._identity, lock)

    def all(self) -> list[L]:
        """All leases. Copied in one step: a signal handler that closes the client changes them too."""
        with self._mutex:
            return [lease for leases in list(self._leases.values()) for lease in leases]

    def of(self, lock: LockName) -> list[L]:
        """The leases of one lock."""
        with self._mutex:
            return list(self._leases.get(lock, ()))

    def keeps(self, lease: L) -> bool:
        """Whether a lease is among them."""
        return any(each is lease for each in self.of(lease.lock))

    def add(self, lease: L, who: object) -> None:
        """Remember a lease, which this task or thread has acquired."""
        with self._mutex:
            lease._acquired_by = ref(who)
            self._leases[lease.lock] = (*self._leases.get(lease.lock, ()), lease)
            self._keep_alive(True)
            self._local_waiters.takes(self.key(lease.lock), lease)

    def drop(self, lease: L) -> None:
        """Forget a lease."""
        with self._mutex:
            self._local_waiters.drops(self.key(lease.lock), lease)
            # Never remove the key in between: other leases of the lock must always be found.
            self._keep(lease.lock, without(lease, self._leases.get(lease.lock, ())))
            self._keep_alive(bool(self._leases))

    def drop_what_is_over(self, reading: Reading) -> None:
        """Forget leases whose release has failed and whose time has ended."""
        with self._mutex:
            for lock, leases in list(self._leases.items()):
                self._keep(lock, _with_something_to_free(leases, reading))
            self._keep_alive(bool(self._leases))

    def _keep(self, lock: LockName, leases: tuple[L, ...]) -> None:
        if leases:
            self._leases[lock] = leases
        else:
            self._leases.pop(lock, None)

    def around(self, caller: Caller, lock: LockName) -> list[L]:
        """The leases of the blocks that a caller is inside of, the innermost last."""
        held, leases = self.of(lock), [block.lease for block in caller.blocks]
        return [lease for lease in leases if any(lease is each for each in held)]

    def outside(self, caller: Caller, lock: LockName) -> list[L]:
        """The leases that a caller itself may have to release: it has acquired them, and no one is inside of a block of
        theirs; or it has entered a block, and its thread may do other work by now.
        """
        left_open = [block.lease for block in caller.left_open]
        return [
            lease
            for lease in self.of(lock)
            if (lease._acquired_by() is caller.who and not lease._blocks) or any(lease is each for each in left_open)
        ]

    def are_under_work_of_others(self, caller: Caller) -> bool:
        """Whether anybody but the caller is inside of a block."""
        own = [block.lease for block in caller.blocks]
        return any(lease._is_under_work() for lease in self.all() if not any(lease is each for each in own))


def _with_something_to_free(leases: tuple[L, ...], reading: Reading) -> tuple[L, ...]:
    return tuple([lease for lease in leases if not lease._has_nothing_to_free(reading)])
