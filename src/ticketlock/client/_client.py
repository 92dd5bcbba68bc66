"""Locks for Python code: ``LockClient`` for threads; ``ticketlock.aio`` has the one for tasks."""

import atexit
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Self, TypeVar

from ticketlock._checks import Refusals, Seconds, boolean
from ticketlock._decorating import CallKey, KeyOf
from ticketlock.client._acquire import Wait, WaitEnded
from ticketlock.client._arguments import (
    SERIALIZED,
    AcquireArguments,
    Acquisition,
    Defaults,
    Entity,
    check_arguments,
    refuse_unknown,
    rest_s,
)
from ticketlock.client._holdings import Holdings, Holds
from ticketlock.client._lease import Lease, LeaseGroup
from ticketlock.client._waiters import Latch, UnderWay, lines_of_this_process
from ticketlock.errors import ClientClosed, RecordWaitExceeded
from ticketlock.locks._items import LockName, Row
from ticketlock.locks._lock_table import LockTable
from ticketlock.locks._operators import LockSummary
from ticketlock.locks._outcomes import Grant, LockState, Position
from ticketlock.wire._driver import Clocks, SystemClocks
from ticketlock.wire._heartbeat import Due, Heartbeat

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

logging.getLogger("ticketlock").addHandler(logging.NullHandler())

P = ParamSpec("P")
R = TypeVar("R")


class LockClient:
    """Locks in one table, for one process and any number of threads.

    A forked child cannot use it: there every call, also of its ``table``, raises ``ClientClosed``. Create a client,
    with its own DynamoDB client, in the child.

    Args:
        table_name: a lock table; ``create_table`` creates one.
        client: a DynamoDB client of your own, with ``config=client_config()``.
        step_functions: a Step Functions client: a release then wakes waiting workflows at once.
        namespace: the namespace of locks that are named without one.
        lease: how long a lock stays held if its holder does not renew it, in seconds or as a ``timedelta``.
        record_wait: how long to wait for a lock at most; ``math.inf`` waits for ever.
        owner_name: what operators see beside a lock; by default host and process id.
        heartbeat: whether leases are renewed at half their time, in the background.
        check_every: the shortest and the longest sleep between two polls of the first in line; waiters behind it sleep
            up to 20 times the longest.
        on_wait: that of acquisitions which have none of their own; for example, what emits a metric for an alarm.
        clocks, sleep: the sources of time and waiting; the machine's, unless a test replaces them.

    Raises:
        InvalidLockRequest: settings are out of their bounds, no Region is set, or the client cannot be used; it tells
            of all at once.
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
        on_wait: Callable[[Position], object] | None = None,
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._clocks = clocks if clocks is not None else SystemClocks()
        refusals = Refusals()
        self._defaults = refusals.of(
            Defaults,
            namespace=namespace,
            lease=lease,
            record_wait=record_wait,
            owner_name=owner_name,
            heartbeat=heartbeat,
            check_every=check_every,
            on_wait=on_wait,
        )
        self._table = refusals.of(
            LockTable,
            table_name,
            client=client,
            step_functions=step_functions,
            clocks=self._clocks,
            sleep=sleep if sleep is not None else time.sleep,
        )
        refusals.raise_all()
        self._sleep = sleep
        self._closing = Latch()
        self._under_way = UnderWay(self._table)
        self._heartbeat: Heartbeat[Lease] = Heartbeat(self._clocks, self._tend)
        self._holdings: Holdings[Lease] = Holdings(
            self._table,
            self._heartbeat,
            clocks=self._clocks,
            bounds=self._defaults.bounds,
            lines=lines_of_this_process(),
        )
        _clients.add(self)

    @property
    def table(self) -> LockTable:
        """The lock table, with the protocol's verbs."""
        return self._table

    def lock(self, entity: Entity, namespace: str | None = None) -> LockName:
        """The name of a lock; by default in the client's namespace."""
        return self._defaults.lock(entity, namespace)

    def acquire(
        self,
        entity: Entity,
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
        **unknown: Never,
    ) -> Lease:
        """Wait for a lock in arrival order, and hold it.

        Args:
            entity: what to lock: 1 to 1,024 bytes of text, a whole number (42 is the same as "42"), or a ``LockName``.
            namespace: lets several independent locks exist on one entity.
            record_wait: how long to wait at most; 0 fails at once if the lock has a holder or a waiter; ``math.inf``
                waits for ever.
            lease: how long the lock stays held if its holder does not renew it.
            data: up to 256 bytes that are shown beside the holder.
            permits: how many may hold the lock at once; all its users must ask for the same number.
            shared: hold it together with other holders that share it; no waiter for exclusive use is overtaken.
            reentrant: if this thread holds the lock already, hold it once more.
            heartbeat: whether the lease is renewed in the background.
            owner: the identity of this acquisition, if you have one: a repeated call with it gets the same grant. If
                such a call is interrupted, the grant, which an earlier call may have received, is kept until its lease
                ends.
            on_lost: called once, on a thread of its own, if the lock is lost before it is released.
            on_danger: called once, on a thread of its own, when the lease is about to end because it was not renewed.
            danger: how long before the end of the lease that is; by default a quarter of the lease. Keep it
                below half of the lease, at which the heartbeat renews.
            on_wait: called with the position in the queue after each poll that found the lock taken.

        Raises:
            RecordWaitExceeded: the turn did not come in time; the caller has left the queue.
            AlreadyHeld: this thread holds the lock already.
            InvalidLockRequest: an argument is out of its bounds; nothing was written.
            PermitsMismatch, UnsupportedFormat: the lock exists with another limit, or in a newer format.
            ClientClosed: the client was closed, or belongs to another process.
            TableError: the table could not be used; raised 8 s after the end of the record wait at the latest, plus the
                DynamoDB client's time-outs.
        """
        refuse_unknown(unknown)
        asked = AcquireArguments(
            record_wait=record_wait,
            lease=lease,
            data=data,
            permits=permits,
            shared=shared,
            owner=owner,
            heartbeat=heartbeat,
            on_lost=on_lost,
            on_danger=on_danger,
            danger=danger,
            reentrant=reentrant,
            on_wait=on_wait,
        )
        terms = self._defaults.ask(self._defaults.lock(entity, namespace), asked)
        self._holdings.check_usable()
        # The Thread object, since thread ids are reused.
        caller = threading.current_thread()
        try:
            held = self._table.drive(self._holdings.held_by(caller, terms, reentrant=reentrant))
            if held is not None:
                return held
            wait = self._holdings.wait(terms)
            holding = self._under_way.acquisition(self._holdings.hold(caller, terms, wait, self._made))
            return self._table.drive(holding, sleep=functools.partial(self._nap, wait))
        except BaseException as error:
            self._under_way.release(self._holdings.take_back(caller, terms.claim))
            if isinstance(error, WaitEnded):
                raise error.error from None
            raise

    def try_acquire(self, entity: Entity, **more: Any) -> Lease | None:
        """Take a lock if it is free; return None if it has a holder or a waiter.

        Args:
            entity: what to lock.
            more: as in ``acquire``, except ``record_wait``.
        """
        try:
            return self.acquire(entity, record_wait=0, **more)
        except RecordWaitExceeded:
            return None

    def acquire_all(
        self,
        entities: Iterable[Entity],
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        **more: Any,
    ) -> LeaseGroup:
        """Hold several locks together. All callers take them in one order, so they do not deadlock.

        Args:
            entities: what to lock.
            record_wait: for all of them together.
            more: as in ``acquire``.

        Raises:
            RecordWaitExceeded: not all locks were acquired in time; the acquired ones are released, the last one first,
                or with ``owner`` kept until their leases end.
        """
        wait_ms = self._defaults.wait_ms(record_wait)
        began_ms = self._clocks.read().local_ms
        leases: list[Lease] = []
        before = self._holds()
        try:
            for lock in self._defaults.in_one_order(entities, namespace):
                rest = rest_s(wait_ms, self._clocks.read().local_ms - began_ms)
                leases.append(self.acquire(lock, record_wait=rest, **more))
            return self._group(leases)
        except BaseException:
            self._give_back_since(before)
            raise

    def serialized(
        self, key: CallKey, *, lease_as: str | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a function, for example a Lambda handler: its calls run one at a time per entity.

        Args:
            key: names the entity by text or a whole number: a callable that gets the call's arguments, or a template
                with the names of the function's parameters, such as ``"order-{order_id}"``.
            lease_as: the keyword argument that passes the ``Lease`` to the function; None passes none.
            options: as in ``acquire``, except ``owner``: each call has its own.

        Raises:
            TypeError: at once, for a coroutine function (use ``ticketlock.aio``) or a generator function; from a call
                that returns an awaitable or an iterator, which has not run.
            InvalidLockRequest: at once, for an invalid key, such as a template that names no parameter, or an option
                that ``acquire`` would refuse (one that it does not have: TypeError); from a call
                whose key is neither text nor a whole number. No lock is taken.
        """
        check_arguments(key, options)
        self._defaults.check_options(options)

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
        entity: Entity,
        owner: str,
        *,
        namespace: str | None = None,
        lease: Seconds | None = None,
        heartbeat: bool = False,
    ) -> Lease:
        """Continue with a lock that another process has taken with a known ``owner``, and renew it.

        Raises:
            LockLost: this owner does not hold it any more.
        """
        self._holdings.check_usable()
        boolean("heartbeat", heartbeat)
        claim, grant = self._table.resume(self.lock(entity, namespace), owner, self._defaults.lease_ms(lease))
        made = self._made(Acquisition(claim, has_own_identity=False, heartbeat=heartbeat), grant)
        try:
            return self._holdings.keep(owner, made)
        except BaseException:
            self._under_way.release(self._holdings.take_back(owner, claim))
            raise

    def inspect(self, entity: Entity, *, namespace: str | None = None) -> LockState:
        """Read a lock, its holders and its whole queue."""
        self._holdings.check_usable()
        return self._table.inspect(self.lock(entity, namespace))

    def remove_waiter(self, entity: Entity, ticket: int, *, namespace: str | None = None) -> Row:
        """Delete a waiter's queue row; see ``LockTable.remove_waiter``."""
        self._holdings.check_usable()
        return self._table.remove_waiter(self.lock(entity, namespace), ticket)

    def list(self) -> Iterator[LockSummary]:
        """The locks of the table, in no order; reads the whole table."""
        self._holdings.check_usable()
        return self._table.list_locks()

    def close(self) -> None:
        """Release all held locks and end the heartbeat; this client's waiters get ``ClientClosed``.

        It waits up to 10 s for releases that other threads have begun, and up to 2 s for waiters to leave their queues.
        If the table is unreachable it gives up after some seconds, and the remaining locks stay held until their leases
        end. A signal handler may call it.
        """
        if not self._holdings.is_of_this_process:
            return
        leases = self._holdings.close()
        self._closing.open()
        self._holdings.wake_waiters()
        for lease in self._holdings.at_last(leases):
            lease.release(best_effort=True)
        # The process may end after this: what it has not released or withdrawn by then delays other waiters by a lease.
        self._under_way.wait_for_others()
        # Locks that other threads have failed to release since.
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

    def _holds(self) -> Holds[Lease]:
        return self._holdings.holds_of(threading.current_thread())

    def _give_back_since(self, before: Holds[Lease]) -> None:
        self._under_way.release(self._holdings.give_back_since(threading.current_thread(), before))

    def _take_over(self, group: LeaseGroup) -> None:
        self._holdings.take_over(threading.current_thread(), group.leases)

    def _nap(self, wait: Wait, seconds: float) -> None:
        if self._sleep is not None:
            self._sleep(seconds)
        elif wait.is_over:
            time.sleep(seconds)
        elif wait.sleeps:
            woken = Latch()
            # Set before `is_closed` is checked: a wake-up or a close from now on opens it.
            wait.wake = woken.open
            if not (wait.is_woken or self._closing.is_open):
                woken.wait(seconds)
        else:
            self._closing.wait(seconds)
        if self._closing.is_open and not wait.is_over:
            raise ClientClosed("the client was closed while it waited")

    def _made(self, terms: Acquisition, grant: Grant) -> Lease:
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
