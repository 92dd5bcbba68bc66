"""Locks for Python code: ``LockClient`` for threads. Its twin for tasks is ``ticketlock.aio``."""

import atexit
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from ticketlock._checks import boolean
from ticketlock._decorating import Key, KeyOf
from ticketlock.client._holdings import Holdings
from ticketlock.client._latch import Latch
from ticketlock.client._lease import Lease, LeaseGroup
from ticketlock.client._lines import lines_of_this_process
from ticketlock.client._serialized import SERIALIZED, check_arguments
from ticketlock.client._under_way import UnderWay
from ticketlock.client._wait import WaitEnded, Waits
from ticketlock.client._wishes import Defaults, Seconds, Terms, Wishes, rest_s
from ticketlock.errors import ClientClosed, RecordWaitExceeded
from ticketlock.locks._inspect import LockSummary
from ticketlock.locks._items import Row
from ticketlock.locks._lock_table import LockTable
from ticketlock.locks._names import LockName
from ticketlock.locks._outcomes import Grant, LockState, Position
from ticketlock.wire._clocks import Clocks, SystemClocks
from ticketlock.wire._heartbeat import Due, Heartbeat

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

logging.getLogger("ticketlock").addHandler(logging.NullHandler())

P = ParamSpec("P")
R = TypeVar("R")


class LockClient:
    """Locks in one table, for one process and any number of threads.

    It is not for a forked child, which has to make its own, with a DynamoDB client of its own: there every call, of its
    ``table`` too, raises ``ClientClosed``.

    Args:
        table_name: a lock table; ``create_table`` makes one.
        client: a DynamoDB client of your own: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        step_functions: a Step Functions client: then workflows that wait are called as soon as a lock is free.
        namespace: of locks that are named without one.
        lease: how long a lock outlives a holder that does not renew it, in seconds or as a ``timedelta``.
        record_wait: how long to wait for a lock at most; ``math.inf`` for ever.
        owner_name: what operators see beside a lock; host and process otherwise.
        heartbeat: whether leases are renewed at half their time, in the background.
        check_every: the shortest and the longest sleep between two polls of the first in line; those behind sleep up to
            20 times the longest.
        clocks, sleep: where the time comes from, and how to wait; of the machine unless a test says otherwise.

    Raises:
        InvalidLockRequest: a setting is out of its bounds, no Region is set, or the client is a resource.
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
        self._defaults = Defaults(
            namespace=namespace,
            lease=lease,
            record_wait=record_wait,
            owner_name=owner_name,
            heartbeat=heartbeat,
            check_every=check_every,
        )
        self._table = LockTable(
            table_name,
            client=client,
            step_functions=step_functions,
            clocks=self._clocks,
            sleep=sleep if sleep is not None else time.sleep,
        )
        self._sleep = sleep
        self._closing = Latch()
        self._under_way = UnderWay(self._table)
        self._heartbeat: Heartbeat[Lease] = Heartbeat(self._clocks, self._tend)
        self._holdings: Holdings[Lease] = Holdings(
            self._table, self._heartbeat, self._clocks, self._defaults.bounds, lines_of_this_process()
        )
        _clients.add(self)

    @property
    def table(self) -> LockTable:
        """The table, for the protocol's own verbs."""
        return self._table

    def lock(self, entity: str | LockName, namespace: str | None = None) -> LockName:
        """The name of a lock, in the client's namespace unless told otherwise."""
        return self._defaults.lock(entity, namespace)

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
        wishes = Wishes(
            record_wait, lease, data, permits, shared, owner, heartbeat, on_lost, on_danger, danger, reentrant, on_wait
        )
        terms = self._defaults.ask(self.lock(entity, namespace), wishes)
        self._holdings.check_usable()
        # The Thread object: idents are reused.
        caller = threading.current_thread()
        try:
            held = self._table.drive(self._holdings.held_by(caller, terms, reentrant=reentrant))
            if held is not None:
                return held
            waits = self._holdings.waits(terms, on_wait)
            holding = self._under_way.acquisition(self._holdings.hold(caller, terms, waits, self._made))
            return self._table.drive(holding, sleep=functools.partial(self._nap, waits))
        except BaseException as error:
            self._under_way.release(self._holdings.take_back(caller, terms.claim))
            if isinstance(error, WaitEnded):
                raise error.error from None
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
        wait_ms = self._defaults.wait_ms(record_wait)
        began_ms = self._clocks.read().local_ms
        leases: list[Lease] = []
        try:
            for lock in self._defaults.in_one_order(entities, namespace):
                rest = rest_s(wait_ms, self._clocks.read().local_ms - began_ms)
                leases.append(self.acquire(lock, record_wait=rest, **more))
        except BaseException:
            self._group(leases)._give_back()
            raise
        return self._group(leases)

    def serialized(
        self, key: Key, *, lease_as: str | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a function, for example a Lambda handler: its calls run one at a time per entity.

        Args:
            key: names the entity, with text or a whole number: a callable that is given the call's arguments, or a
                template with the names of the function's parameters, such as ``"order-{order_id}"``.
            lease_as: the keyword argument in which the function gets its ``Lease``, if it wants it.
            options: as in ``acquire``, but for ``owner``: each call has one of its own.

        Raises:
            TypeError: at once, for a coroutine function (``ticketlock.aio`` has the client for those) or a generator
                function; from a call that returns an awaitable or an iterator, of which nothing has run.
            InvalidLockRequest: at once, for a key that can be none, such as a template that names no parameter; from a
                call whose key is neither text nor a whole number. No lock is taken.
        """
        check_arguments(key, options)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            SERIALIZED.check_begins_at_once(function)
            entity_of = KeyOf(SERIALIZED, key, function, lease_as)

            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.acquire(entity_of(args, kwargs), **options) as lease:
                    if lease_as is not None:
                        kwargs[lease_as] = lease
                    result = function(*args, **kwargs)
                    SERIALIZED.check_is_over(function, result)
                    return result

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
        self._holdings.check_usable()
        boolean("heartbeat", heartbeat)
        claim, grant = self._table.resume(self.lock(entity, namespace), owner, self._defaults.lease_ms(lease))
        made = self._made(Terms(claim, has_own_identity=False, heartbeat=heartbeat), grant)
        try:
            return self._holdings.keep(owner, made)
        except BaseException:
            self._under_way.release(self._holdings.take_back(owner, claim))
            raise

    def inspect(self, entity: str | LockName, *, namespace: str | None = None) -> LockState:
        """Read a lock, its holders and its whole queue."""
        self._holdings.check_usable()
        return self._table.inspect(self.lock(entity, namespace))

    def remove_waiter(self, entity: str | LockName, ticket: int, *, namespace: str | None = None) -> Row | None:
        """Take a waiter's place in the queue away; see ``LockTable.remove_waiter``."""
        self._holdings.check_usable()
        return self._table.remove_waiter(self.lock(entity, namespace), ticket)

    def list(self) -> Iterator[LockSummary]:
        """The locks of the table, in no order; reads the whole table."""
        self._holdings.check_usable()
        return self._table.list_locks()

    def close(self) -> None:
        """Release what is held still, and end the heartbeat; waiters of this client get ``ClientClosed``.

        It waits for releases that other threads have begun, for up to 10 s, and for waiters to leave their queues, for
        up to 2 s. Where the table is out of reach it gives up after some seconds; what is left ends by itself. A signal
        handler may call it.
        """
        if not self._holdings.is_of_this_process:
            return
        leases = self._holdings.close()
        self._closing.open()
        self._holdings.wake_waiters()
        for lease in self._holdings.at_last(leases):
            lease.release(best_effort=True)
        # The process may end after this: what is not released by then, or still queues, is in others' way for a lease.
        self._under_way.wait_for_others()
        # What others have failed to release meanwhile.
        for lease in self._holdings.at_last([each for each in self._holdings.close() if each not in leases]):
            lease.release(best_effort=True)
        self._heartbeat.close()
        if not self._holdings.close():
            _clients.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Private.

    def _nap(self, waits: Waits, seconds: float) -> None:
        if self._sleep is not None:
            self._sleep(seconds)
        elif waits.is_over:
            time.sleep(seconds)
        elif waits.sleeps:
            woken = Latch()
            # Before it is asked: whoever calls from now on, or closes the client, opens it.
            waits.wake = woken.open
            if not (waits.is_called or self._closing.is_open):
                woken.wait(seconds)
        else:
            self._closing.wait(seconds)
        if self._closing.is_open and not waits.is_over:
            raise ClientClosed("the client was closed while it waited")

    def _made(self, terms: Terms, grant: Grant) -> Lease:
        return Lease(terms, grant, self._clocks, self._table, self._holdings, self._under_way)

    def _group(self, leases: Sequence[Lease]) -> LeaseGroup:
        return LeaseGroup(leases, self._holdings, self._under_way)

    def _tend(self, lease: Lease, due: Due) -> None:
        if due == "renew":
            self._table.drive(self._holdings.beat(lease))
        elif due == "danger":
            self._holdings.come_near_its_end(lease)
        else:
            self._holdings.lose(lease, lease._how_it_ended)


_clients: weakref.WeakSet[LockClient] = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    for client in list(_clients):
        client.close()
