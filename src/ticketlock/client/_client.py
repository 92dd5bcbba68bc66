"""Locks for Python code: ``LockClient`` for threads. Its twin for tasks is ``ticketlock.aio``."""

import atexit
import functools
import inspect as signatures
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from ticketlock.client._acquire import acquire, leave
from ticketlock.client._base_lease import Due
from ticketlock.client._heartbeat import Keeper
from ticketlock.client._holdings import Asking, to_release
from ticketlock.client._lease import Lease, LeaseGroup
from ticketlock.client._wait import WaitEnded
from ticketlock.client._wishes import Asked, Seconds, Wishes, entity_of, rest_s, signature_of
from ticketlock.errors import (
    ClientClosed,
    InvalidLockRequest,
    LockLost,
    PermitsMismatch,
    RecordWaitExceeded,
    TableError,
    TicketLockError,
    UnsupportedFormat,
)
from ticketlock.locks._inspect import LockSummary
from ticketlock.locks._lock_table import LockTable
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import Grant, LockState, Position
from ticketlock.locks._protocol import Contender
from ticketlock.wire._clocks import Clocks, SystemClocks
from ticketlock.wire._requests import Steps

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

_log = logging.getLogger("ticketlock")
_log.addHandler(logging.NullHandler())

_WAITERS_LEAVE_WITHIN_S = 2.0

P = ParamSpec("P")
R = TypeVar("R")


class LockClient:
    """Locks in one table, for one process and any number of threads.

    It is not for a forked child, which has to make its own.

    Args:
        table_name: a lock table; ``create_table`` makes one.
        client: a DynamoDB client of your own: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        step_functions: a Step Functions client: then workflows that wait are called as soon as a lock is free.
        namespace: of locks that are named without one.
        lease: how long a lock outlives a holder that does not renew it, in seconds or as a ``timedelta``.
        record_wait: how long to wait for a lock at most; ``math.inf`` for ever.
        owner_name: what operators see beside a lock; host and process otherwise.
        heartbeat: whether leases are renewed at half their time, in the background.
        check_every: the shortest and the longest sleep between two looks of the first in line.
        clocks, sleep: where the time comes from, and how to wait; of the machine unless a test says otherwise.

    Raises:
        InvalidLockRequest: a setting is out of its bounds.
        ValueError: the DynamoDB client is not usable; says why.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: "DynamoDBClient | None" = None,
        step_functions: "SFNClient | None" = None,
        namespace: str = "default",
        lease: Seconds = 60,
        record_wait: Seconds = 60,
        owner_name: str | None = None,
        heartbeat: bool = True,
        check_every: tuple[Seconds, Seconds] = (0.005, 0.4),
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._clocks = clocks if clocks is not None else SystemClocks()
        self._asking: Asking[Lease] = Asking(
            namespace=namespace, lease=lease, record_wait=record_wait, owner_name=owner_name, check_every=check_every
        )
        self._table = LockTable(
            table_name,
            client=client,
            step_functions=step_functions,
            clocks=self._clocks,
            sleep=sleep if sleep is not None else time.sleep,
        )
        self._then_call = step_functions is not None
        self._heartbeat = heartbeat
        self._sleep = sleep
        self._closing = threading.Event()
        self._waiters: set[int] = set()
        self._waiter_left = threading.Condition()
        self._keeper = Keeper(self._clocks, self._tend)
        _clients.add(self)

    @property
    def table(self) -> LockTable:
        """The table, for the protocol's own verbs."""
        return self._table

    def lock(self, entity: str | LockName, namespace: str | None = None) -> LockName:
        """The name of a lock, in the client's namespace unless told otherwise."""
        return self._asking.lock(entity, namespace)

    def acquire(
        self,
        entity: str | LockName,
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        lease: Seconds | None = None,
        data: str | None = None,
        permits: int = 1,
        shared: bool = False,
        reentrant: bool = False,
        heartbeat: bool | None = None,
        owner: str | None = None,
        on_lost: Callable[[Lease], object] | None = None,
        on_danger: Callable[[Lease], object] | None = None,
        danger: Seconds | None = None,
        on_wait: Callable[[Position], object] | None = None,
    ) -> Lease:
        """Wait for a lock in arrival order, and hold it.

        Args:
            entity: what to lock: 1 to 1,024 bytes of text, or a ``LockName``.
            namespace: lets several independent locks exist on one entity.
            record_wait: how long to wait at most; 0 fails at once when anybody holds or queues; ``math.inf``.
            lease: how long the lock outlives a holder that does not renew it.
            data: up to 256 bytes that are shown beside the holder.
            permits: how many may hold the lock at once; all its users say the same number.
            shared: hold it together with others who share it; nobody who waits for it alone is overtaken.
            reentrant: hold it once more, if this thread holds it already.
            heartbeat: whether it is renewed in the background.
            owner: the identity of this acquisition, if you have one: a repeated call with it gets the same grant. What
                is broken off then leaves the grant, which others may have, to its lease.
            on_lost: called once, on a thread of its own, if the lock is lost before it is released.
            on_danger: called once, on a thread of its own, when the deadline comes near because renewals fail.
            danger: how near that is; a quarter of the lease otherwise. The heartbeat keeps it beyond half of it.
            on_wait: called after each look that found the lock taken, with the position in the queue.

        Raises:
            RecordWaitExceeded: the turn did not come in time; the queue is left.
            AlreadyHeld: this thread holds it already.
            InvalidLockRequest: an argument is out of its bounds; nothing was written.
            PermitsMismatch, UnsupportedFormat: the lock exists with another limit, or in a newer format.
            ClientClosed: the client was closed, or belongs to another process.
            TableError: the table could not be used.
        """
        wishes = Wishes(record_wait, lease, data, permits, shared, owner, danger)
        asked = self._asking.ask(self._asking.lock(entity, namespace), wishes)
        self._asking.check_usable()
        # Not its number, which the next thread may get.
        caller = threading.current_thread()
        held = self._asking.held_by(caller, asked, reentrant=reentrant)
        if held is not None:
            return held
        grant = self._acquire(asked, on_wait)
        made = Lease(
            self._table.table_name,
            asked.claim,
            grant,
            self._clocks,
            has_own_identity=asked.has_own_identity,
            heartbeat=self._heartbeat if heartbeat is None else heartbeat,
            on_lost=on_lost,
            on_danger=on_danger,
            danger_ms=asked.danger_ms,
        )
        try:
            return self._keep(made, caller)
        except BaseException:
            made._give_back()
            raise

    def try_acquire(self, entity: str | LockName, **more: Any) -> Lease | None:
        """Take a lock if it is free; None if anybody holds it or waits for it.

        Args:
            entity: what to lock.
            more: as in ``acquire``, but for ``record_wait``.
        """
        try:
            return self.acquire(entity, record_wait=0, **more)
        except RecordWaitExceeded:
            return None

    def acquire_all(
        self,
        entities: Iterable[str | LockName],
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        **more: Any,
    ) -> LeaseGroup:
        """Hold several locks together: taken in one order by all callers, so that they do not wait for each other.

        Args:
            entities: what to lock.
            record_wait: for all of them together.
            more: as in ``acquire``.

        Raises:
            RecordWaitExceeded: not all of them could be had in time; those that were are released, the last one first,
                or with ``owner`` left to their leases.
        """
        wait_ms = self._asking.wait_ms(record_wait)
        began_ms = self._clocks.read().local_ms
        leases: list[Lease] = []
        try:
            for lock in self._asking.in_one_order(entities, namespace):
                rest = rest_s(wait_ms, self._clocks.read().local_ms - began_ms)
                leases.append(self.acquire(lock, record_wait=rest, **more))
        except BaseException:
            LeaseGroup(leases)._give_back()
            raise
        return LeaseGroup(leases)

    def serialized(
        self, key: str | Callable[..., str], *, lease_as: str | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a function, for example a Lambda handler: its calls run one at a time per entity.

        Args:
            key: names the entity: a callable that is given the call's arguments, or a template with the names of the
                function's parameters, such as ``"order-{order_id}"``.
            lease_as: the keyword argument in which the function gets its ``Lease``, if it wants it.
            options: as in ``acquire``.

        Raises:
            TypeError: at once, for a coroutine function: ``ticketlock.aio`` has the client for those.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if signatures.iscoroutinefunction(function):
                raise TypeError(f"{function.__qualname__} is a coroutine function: use ticketlock.aio.LockClient")
            if signatures.isgeneratorfunction(function) or signatures.isasyncgenfunction(function):
                raise TypeError(
                    f"{function.__qualname__} is a generator function, and begins after its call: use acquire"
                )
            signature = signature_of(function, lease_as)

            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                entity = entity_of(key, signature, args, kwargs)
                with self.acquire(entity, **options) as lease:
                    if lease_as is not None:
                        kwargs[lease_as] = lease
                    return function(*args, **kwargs)

            return call

        return decorate

    def resume(
        self,
        entity: str | LockName,
        owner: str,
        *,
        namespace: str | None = None,
        lease: Seconds | None = None,
        heartbeat: bool = False,
    ) -> Lease:
        """Go on with a lock that another process has taken with a known ``owner``, renewing it.

        Raises:
            LockLost: this owner does not hold it any more.
        """
        self._asking.check_usable()
        lock = self._asking.lock(entity, namespace)
        claim, grant = self._table.resume(lock, owner, self._asking.lease_ms(lease))
        made = Lease(
            self._table.table_name,
            claim,
            grant,
            self._clocks,
            has_own_identity=False,
            heartbeat=heartbeat,
            on_lost=None,
            on_danger=None,
            danger_ms=None,
        )
        return self._keep(made, owner)

    def inspect(self, entity: str | LockName, *, namespace: str | None = None) -> LockState:
        """Read a lock, its holders and its whole queue."""
        self._asking.check_usable()
        return self._table.inspect(self._asking.lock(entity, namespace))

    def list(self) -> Iterator[LockSummary]:
        """The locks of the table, in no order; reads the whole table."""
        self._asking.check_usable()
        return self._table.list_locks()

    def close(self) -> None:
        """Release what is held still, and end the heartbeat; waiters of this client get ``ClientClosed``.

        Where the table is out of reach it gives up after some seconds; what is left ends by itself.
        """
        if self._asking._pid != os.getpid():
            return
        leases = self._asking.close(self._clocks.read())
        self._closing.set()
        for lease in to_release(leases, self._clocks, self._forget):
            lease.release(best_effort=True)
        # The process may end after this, and whoever is in the queue then is in others' way for a lease.
        with self._waiter_left:
            self._waiter_left.wait_for(lambda: self._waiters <= {threading.get_ident()}, _WAITERS_LEAVE_WITHIN_S)
        self._keeper.close()
        _clients.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The parts.

    def _acquire(self, asked: Asked, on_wait: Callable[[Position], object] | None) -> Grant:
        claim = asked.claim
        waits = self._asking.waits(asked, on_wait, self._clocks.read().local_ms)

        def steps(me: Contender) -> Steps[Grant]:
            return acquire(
                me,
                asked.record_wait_ms,
                waits.pace,
                then_call=self._then_call,
                on_wait=waits,
                jitter=random.random,
                others_wait=waits.expects_others,
            )

        caller = threading.get_ident()
        with self._waiter_left:
            self._waiters.add(caller)
        try:
            grant = self._table.contend(claim, steps, sleep=self._nap)
        except WaitEnded as ended:
            self._leave(asked)
            raise ended.error from None
        except (InvalidLockRequest, PermitsMismatch, RecordWaitExceeded, UnsupportedFormat):
            raise
        except BaseException:
            self._leave(asked)
            raise
        finally:
            with self._waiter_left:
                self._waiters.discard(caller)
                self._waiter_left.notify_all()
        self._asking.remembered.waited(waits, self._clocks.read().local_ms)
        return grant

    def _nap(self, seconds: float) -> None:
        if self._sleep is not None:
            self._sleep(seconds)
            over = self._closing.is_set()
        else:
            over = self._closing.wait(seconds)
        if over:
            raise ClientClosed("the client was closed while it waited")

    def _leave(self, asked: Asked) -> None:
        try:
            only_the_place = not asked.has_own_identity
            self._table.contend(
                asked.claim, lambda me: leave(me, then_call=self._then_call, only_the_place=only_the_place)
            )
        except TicketLockError as error:
            _log.warning("a place in the queue of %r was not given up, and ends by itself: %s", asked.claim.lock, error)

    def _keep(self, made: Lease, caller: object) -> Lease:
        made._client = self
        self._asking.keep(caller, made)
        if made._is_watched():
            try:
                self._keeper.watch(made)
            except RuntimeError:
                # No thread can be started: a lock that nobody renews is not handed out.
                self._forget(made)
                raise
        _log.debug("acquired %r", made)
        return made

    def _renew(self, lease: Lease) -> None:
        try:
            grant = self._table.renew(lease._claim, lease.fencing_token)
        except LockLost as lost:
            self._lose(lease, str(lost))
            raise
        lease._renewed(grant)
        _log.debug("renewed %r", lease)

    def _release(self, lease: Lease, data_left: str | None) -> None:
        was = lease._mark_released()
        if was == "still held" or was == "released":
            return
        self._keeper.forget(lease)
        try:
            released = self._table.release(lease._claim, lease._grant, data_left=data_left)
        except LockLost:
            self._asking.drop(lease)
            raise lease._lost() from None
        except BaseException:
            # It may be tried again, by `close` as well.
            lease._state = "lost" if was == "lost" else "unreleased"
            self._asking.drop_what_is_over(self._clocks.read())
            raise
        finally:
            self._keeper.settle()
        self._asking.drop(lease)
        self._asking.remembered.released(lease.lock, released, self._clocks.read().local_ms)
        if was == "lost" or released.lease_was_over:
            raise lease._lost()
        _log.debug("released %r", lease)

    def _forget(self, lease: Lease) -> None:
        self._keeper.forget(lease)
        self._asking.drop(lease)
        self._keeper.settle()

    def _tend(self, lease: Lease, due: Due) -> None:
        if due == "renew":
            try:
                self._renew(lease)
            except LockLost:
                pass
            except TableError as error:
                _log.warning("%r was not renewed, and will be tried again: %s", lease, error)
            finally:
                if lease._renewing:
                    lease._not_renewed(self._clocks.read())
        elif due == "danger":
            _log.warning("%r comes near its end", lease)
            self._tell(lease, "danger")
        else:
            self._lose(lease, "its lease has ended, and it could not be renewed")

    def _lose(self, lease: Lease, why: str) -> None:
        if not lease._mark_lost():
            return
        _log.error("%r is lost: %s", lease, why)
        self._tell(lease, "lost")
        self._keeper.forget(lease)
        self._asking.drop(lease)

    def _tell(self, lease: Lease, what: Any) -> None:
        callback = lease._callbacks[what]
        if callback is None:
            return

        def tell() -> None:
            if lease._state == "released":
                return
            try:
                callback(lease)
            except Exception:
                _log.exception("on_%s of %r failed", what, lease)

        try:
            threading.Thread(target=tell, name=f"ticketlock-on-{what}", daemon=True).start()
        except RuntimeError as error:
            _log.error("nobody could be told on_%s of %r: %s", what, lease, error)


_clients: weakref.WeakSet[LockClient] = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    for client in list(_clients):
        client.close()
