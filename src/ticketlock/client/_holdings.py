"""What a client asks for, checked and completed, and what it holds: common to threads and tasks. No I/O."""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ticketlock._checks import duration_ms, text
from ticketlock.client._base_lease import BaseLease
from ticketlock.client._known_locks import Remembered
from ticketlock.client._pace import Bounds
from ticketlock.client._wait import Waits
from ticketlock.client._wishes import Asked, Seconds, Wishes
from ticketlock.errors import AlreadyHeld, ClientClosed, InvalidLockRequest
from ticketlock.locks._claim import MAX_LEASE_MS, MIN_LEASE_MS, Claim
from ticketlock.locks._names import LockName, record_wait_ms
from ticketlock.locks._outcomes import Position
from ticketlock.wire._clocks import Clocks
from ticketlock.wire._table_time import Reading

L = TypeVar("L", bound=BaseLease)

_log = logging.getLogger("ticketlock")

_OWNER_NAME_BYTES = 512
_HOUR_MS = 3_600_000
# Less than one request is repeated for.
_FAILS_FOR_MS = 5_000


class Asking(Generic[L]):
    """A client's defaults, and what it holds.

    Args:
        namespace, lease, record_wait, owner_name, check_every: as the client was told.

    Attributes:
        owner_name: what operators see beside a lock.
        remembered: what it has learned of the locks it has used.
    """

    def __init__(
        self,
        *,
        namespace: str,
        lease: Seconds,
        record_wait: Seconds,
        owner_name: str | None,
        check_every: tuple[Seconds, Seconds],
    ) -> None:
        self._namespace = LockName("-", namespace).namespace
        self._lease_ms = duration_ms("lease", lease, MIN_LEASE_MS, MAX_LEASE_MS)
        self._record_wait_ms = record_wait_ms("record_wait", record_wait)
        shortest, longest = (duration_ms("check_every", each, 1, _HOUR_MS) for each in check_every)
        self.remembered = Remembered(Bounds(shortest, max(shortest, longest)))
        name = owner_name if owner_name is not None else f"{socket.gethostname()}:{os.getpid()}"
        self.owner_name = text("owner_name", name, _OWNER_NAME_BYTES)
        self._pid = os.getpid()
        self._closed = False
        self._mutex = threading.Lock()
        self._held: dict[tuple[LockName, object], list[L]] = {}

    def lock(self, entity: str | LockName, namespace: str | None) -> LockName:
        """The name of a lock."""
        if isinstance(entity, LockName):
            if namespace is not None:
                raise InvalidLockRequest("namespace", namespace, "nothing, beside a LockName")
            return entity
        return LockName(entity, self._namespace if namespace is None else namespace)

    def lease_ms(self, lease: Seconds | None) -> int:
        """A lease's length."""
        return self._lease_ms if lease is None else duration_ms("lease", lease, MIN_LEASE_MS, MAX_LEASE_MS)

    def wait_ms(self, record_wait: Seconds | None) -> int | None:
        """A record wait's length; None for ever."""
        return self._record_wait_ms if record_wait is None else record_wait_ms("record_wait", record_wait)

    def ask(self, lock: LockName, wishes: Wishes) -> Asked:
        """Check and complete one acquisition."""
        lease_ms = self.lease_ms(wishes.lease)
        claim = Claim(
            lock,
            wishes.owner if wishes.owner is not None else f"{self.owner_name}/{uuid.uuid4().hex}",
            lease_ms,
            permits=wishes.permits,
            data=wishes.data,
            shared=wishes.shared,
        )
        danger_ms = None if wishes.danger is None else duration_ms("danger", wishes.danger, 0, lease_ms)
        return Asked(claim, wishes.owner is None, self.wait_ms(wishes.record_wait), danger_ms)

    def check_usable(self) -> None:
        """Refuse a client that was closed, or copied into another process.

        Raises:
            ClientClosed: it was.
        """
        if self._pid != os.getpid():
            raise ClientClosed(
                f"the client was made in process {self._pid}, from which this one was forked: make another one here"
            )
        if self._closed:
            raise ClientClosed("the client was closed")

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    def held_by(self, caller: object, asked: Asked, *, reentrant: bool) -> L | None:
        """The lease of a caller that holds the lock already, and holds it once more now.

        Raises:
            AlreadyHeld: it holds it, and did not ask to hold it again.
        """
        with self._mutex:
            leases = [lease for lease in self._held.get((asked.claim.lock, caller), ()) if lease.is_held()]
        if not leases:
            return None
        if reentrant and leases[0].shared == asked.claim.shared and leases[0]._hold_again():
            return leases[0]
        # Released meanwhile, by another thread.
        if asked.claim.permits > 1 or not leases[0].is_held():
            return None
        raise AlreadyHeld(
            f"this thread or task holds {asked.claim.lock.entity!r} already, and would wait for itself: release it "
            "first, or ask with reentrant=True (shared, if it is held so)"
        )

    def keep(self, caller: object, lease: L) -> None:
        """Remember a lease.

        Raises:
            ClientClosed: the client was closed while it was acquired: somebody has to release it.
        """
        with self._mutex:
            if self._closed:
                raise ClientClosed("the client was closed")
            lease._caller = caller
            self._held.setdefault((lease.lock, caller), []).append(lease)

    def drop(self, lease: L) -> None:
        """Forget a lease."""
        with self._mutex:
            key = lease.lock, lease._caller
            others = [each for each in self._held.pop(key, ()) if each is not lease]
            if others:
                self._held[key] = others

    def drop_what_is_over(self, reading: Reading) -> None:
        """Forget those whose release has failed, and could free nothing any more."""
        with self._mutex:
            for key, leases in list(self._held.items()):
                left = [lease for lease in leases if not lease._has_nothing_to_free(reading)]
                if left:
                    self._held[key] = left
                else:
                    del self._held[key]

    def close(self, reading: Reading) -> list[L]:
        """Close it to further acquisitions.

        Returns:
            What is to be released still.
        """
        with self._mutex:
            self._closed = True
            every = (lease for leases in self._held.values() for lease in leases)
            return [lease for lease in every if not lease._has_nothing_to_free(reading)]

    def waits(self, asked: Asked, on_wait: Callable[[Position], object] | None, local_ms: int) -> Waits:
        """What an acquisition begins its wait with, as far as the waits before tell."""
        lock = asked.claim.lock
        # Then a first try would be in vain; but that of an owner who may have asked before finds what it has got.
        expects_others = asked.has_own_identity and self.remembered.others_wait(lock, local_ms)
        return Waits(lock, on_wait, self.remembered.pace(lock), expects_others=expects_others)

    def in_one_order(self, entities: Iterable[str | LockName], namespace: str | None) -> list[LockName]:
        """Names of several locks, in the order that all callers take them in.

        Raises:
            InvalidLockRequest: one is named twice, or none at all.
        """
        if isinstance(entities, str):
            raise InvalidLockRequest("entities", entities, "a list of entities")
        locks = sorted(
            (self.lock(each, None if isinstance(each, LockName) else namespace) for each in entities),
            key=lambda lock: (lock.entity.encode(), lock.namespace.encode()),
        )
        if not locks or len(set(locks)) < len(locks):
            raise InvalidLockRequest("entities", [lock.entity for lock in locks], "at least one, each once")
        return locks


def to_release(leases: Iterable[L], clocks: Clocks, forget: Callable[[L], None]) -> Iterator[L]:
    """Leases to release at last, one after the other, however often they are held.

    Args:
        forget: takes the rest, once those that could not be released have taken too long together.
    """
    failed_ms = 0
    for lease in leases:
        lease._holds = 1
        if failed_ms >= _FAILS_FOR_MS:
            _log.warning("%r was not released, and ends by itself: the table was out of reach for others", lease)
            lease._mark_released()
            forget(lease)
            continue
        began_ms = clocks.read().local_ms
        yield lease
        if lease._state == "unreleased":
            failed_ms += clocks.read().local_ms - began_ms
