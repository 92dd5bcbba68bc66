"""Locks for Python code: ``LockClient`` for threads; ``ticketlock.aio`` has the one for tasks."""

import atexit
import functools
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from ticketlock._checks import Refusals, Seconds, boolean
from ticketlock._decorating import KeyOf, Passed, Passing
from ticketlock.client._acquire import Wait, WaitEnded
from ticketlock.client._arguments import (
    SERIALIZED,
    AcquireArguments,
    AcquireOptions,
    Acquisition,
    Defaults,
    Entity,
    EntityKey,
    SerializedOptions,
    check_arguments,
    check_does_not_wait,
    check_no_owner,
    close_wait_s,
    refuse_unknown,
    rest_s,
)
from ticketlock.client._base_lease import StaysHere
from ticketlock.client._blocks import Caller, running
from ticketlock.client._holdings import Holdings, Holds
from ticketlock.client._latch import Latch
from ticketlock.client._lease import Lease, LeaseGroup
from ticketlock.client._lock import Lock
from ticketlock.client._under_way import UnderWay
from ticketlock.client._waiters import waiters_of_this_process
from ticketlock.errors import ClientClosed, RecordWaitExceeded
from ticketlock.locks import Grant, LockState, LockSummary, LockTable, Position, Row
from ticketlock.wire import Clocks, Due, Heartbeat, SystemClocks, made_again

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

logging.getLogger("ticketlock").addHandler(logging.NullHandler())

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Options = AcquireOptions[Lease]
KeyOptions = SerializedOptions[Lease]


class PassingAndSkipping(Protocol):
    """A decorator of functions that get their lease, as by ``Passing``, and whose calls may be skipped."""

    @overload
    def __call__(self, function: Callable[Concatenate[Lease, P], R], /) -> Callable[P, R | None]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, Lease, P], R], /) -> Callable[Concatenate[S, P], R | None]: ...


class LockClient(StaysHere):
    """Locks in one table, for one process and any number of threads. For tasks use ``ticketlock.aio.LockClient``.

    A forked child cannot use it: there every call, also of its ``table``, raises ``ClientClosed``. Create a client,
    with its own DynamoDB client, in the child. What ``lock`` and ``serialized`` have made works there: with a client
    like this one, which is made at the first use.

    Args:
        table_name: a lock table; ``create_table`` creates one.
        client: a DynamoDB client of your own, with ``config=client_config()``.
        step_functions: a Step Functions client: a release then wakes waiting workflows at once.
        lambda_client: a Lambda client: it then wakes waiting durable executions, too.
        namespace: the namespace of locks that are named without one.
        lease: how long a lock stays held if its holder does not renew it, in seconds or as a ``timedelta``.
        record_wait: how long to wait for a lock at most; ``math.inf`` waits for ever.
        owner_name: what operators see beside a lock; by default host and process id.
        heartbeat: whether leases are renewed at half their time, in the background.
        check_every: the shortest and the longest sleep between two polls of the first in line; waiters behind it sleep
            up to 20 times the longest.
        on_wait: that of acquisitions which have none of their own; for example, what emits a metric for an alarm.
        close_wait: for how long ``close``, and the end of ``with``, wait until other threads have left their blocks.
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
        lambda_client: Any = None,
        namespace: str = "default",
        lease: Seconds = 60,
        record_wait: Seconds = 60,
        owner_name: str | None = None,
        heartbeat: bool = True,
        check_every: tuple[Seconds, Seconds] = (0.005, 0.4),
        on_wait: Callable[[Position], object] | None = None,
        close_wait: Seconds = 0,
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "table_name": table_name,
            "client": client,
            "step_functions": step_functions,
            "lambda_client": lambda_client,
            "namespace": namespace,
            "lease": lease,
            "record_wait": record_wait,
            "owner_name": owner_name,
            "heartbeat": heartbeat,
            "check_every": check_every,
            "on_wait": on_wait,
            "close_wait": close_wait,
            "clocks": clocks,
            "sleep": sleep,
        }
        self._in_children: dict[int, LockClient] = {}
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
            lambda_client=lambda_client,
            clocks=self._clocks,
            sleep=sleep if sleep is not None else time.sleep,
        )
        self._close_wait_s = refusals.of(close_wait_s, "close_wait", close_wait)
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
            local_waiters=waiters_of_this_process(),
            keep_alive=self._keep_alive,
        )
        _clients.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of the table {self._table.table_name!r}>"

    @property
    def table(self) -> LockTable:
        """The lock table, with the protocol's verbs."""
        return self._table

    def lock(
        self,
        entity: Entity,
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        **options: Unpack[Options],
    ) -> Lock:
        """A lock, made once, to enter again and again: ``lock = locks.lock("order-42")``, then ``with lock:``.

        It is the name of the lock, too, wherever a ``LockName`` is taken.

        Args:
            entity, namespace: its name; by default in the client's namespace.
            record_wait, options: as in ``acquire``, for each acquisition; except ``owner``: each has its own.

        Raises:
            InvalidLockRequest: the name, or an option, is out of its bounds.
        """
        check_no_owner(options)
        self._defaults.check_options({"record_wait": record_wait, **options})
        return Lock(self, self._defaults.lock(entity, namespace), record_wait, options)

    def acquire(
        self,
        entity: Entity,
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        owner: str | None = None,
        **options: Unpack[Options],
    ) -> Lease:
        """Wait for a lock in arrival order, and hold it.

        Args:
            entity: what to lock: 1 to 1,024 bytes of text; a whole number, also as a ``Decimal`` or a member of an
                ``(int, Enum)`` (42 is the same as "42"); a ``UUID``; or a ``LockName``.
            namespace: lets several independent locks exist on one entity.
            record_wait: how long to wait at most; 0 fails at once if the lock has a holder or a waiter; ``math.inf``
                waits for ever. None, here as in other options, is what the client has: 60 s.
            lease: how long the lock stays held if its holder does not renew it.
            data: up to 1,024 bytes that are shown beside the holder.
            permits: how many may hold the lock at once; all its users must ask for the same number.
            shared: hold it together with other holders that share it; no waiter for exclusive use is overtaken.
            reentrant: if this thread or task is inside of a ``with`` block that holds the lock, hold it once more.
            heartbeat: whether the lease is renewed in the background.
            owner: the identity of this acquisition, if you have one: a repeated call with it gets the same grant. If
                such a call is interrupted, the grant, which an earlier call may have received, is kept until its lease
                ends.
            on_lost: called once, on a thread of its own, if the lock is lost before it is released; a plain function,
                and so are the next ones.
            on_danger: called once, on a thread of its own, when the lease is about to end because it was not renewed.
            danger: how long before the end of the lease that is; by default a quarter of the lease. Beside a heartbeat
                up to three quarters: from a quarter on, it renews the earlier the longer this is.
            on_wait: called with the position in the queue after each poll that found the lock taken.
            wait_if_closed: whether to wait for a lock that an operator has closed. Otherwise the first poll that finds
                it closed ends the wait.
            hold_at_least: for how long the lock stays held after its grant, from the lease to 7 days. A release before
                that renews it for the rest of the time, or for a lease if that is longer, and it ends by itself.

        Raises:
            RecordWaitExceeded: the turn did not come in time, or the lock is closed (``is_closed``); the caller has
                left the queue.
            AlreadyHeld: this thread or task is inside of a ``with`` block that holds the lock, and would wait for
                itself.
            InvalidLockRequest: an argument is out of its bounds; nothing was written.
            PermitsMismatch, UnsupportedFormat: the lock exists with another limit, or in a newer format.
            ClientClosed: the client was closed, or belongs to another process.
            TableError: the table could not be used; raised 8 s after the end of the record wait at the latest, plus the
                DynamoDB client's time-outs.
        """
        refuse_unknown(options)
        reentrant = options.get("reentrant", False)
        asked = AcquireArguments(record_wait=record_wait, owner=owner, **options)
        acquisition = self._defaults.ask(self._defaults.lock(entity, namespace), asked)
        self._holdings.check_usable(reentrant=reentrant)
        caller = Caller()
        try:
            held = self._table.drive(self._holdings.held_by(caller, acquisition, reentrant=reentrant))
            if held is not None:
                return held
            wait = self._holdings.wait(acquisition, caller)
            holding = self._under_way.acquisition(self._holdings.hold(caller, acquisition, wait, self._made))
            return self._table.drive(holding, sleep=functools.partial(self._nap, wait))
        except BaseException as error:
            self._under_way.release(self._holdings.take_back(acquisition.claim))
            if isinstance(error, WaitEnded):
                raise error.error from None
            raise

    def try_acquire(
        self, entity: Entity, *, namespace: str | None = None, owner: str | None = None, **options: Unpack[Options]
    ) -> Lease | None:
        """Take a lock if it is free; return None if it has a holder or a waiter.

        Args:
            entity: what to lock.
            namespace, owner, options: as in ``acquire``, which has ``record_wait``, too.
        """
        check_does_not_wait(options)
        try:
            return self.acquire(entity, namespace=namespace, record_wait=0, owner=owner, **options)
        except RecordWaitExceeded:
            return None

    def acquire_all(
        self,
        entities: Iterable[Entity],
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        owner: str | None = None,
        **options: Unpack[Options],
    ) -> LeaseGroup:
        """Hold several locks together. All callers take them in one order, so they do not deadlock.

        Args:
            entities: what to lock.
            record_wait: for all of them together.
            namespace, owner, options: as in ``acquire``.

        Raises:
            RecordWaitExceeded: not all locks were acquired in time; the acquired ones are released, the last one first,
                or with ``owner`` kept until their leases end.
        """
        wait_ms = self._defaults.wait_ms(record_wait)
        self._holdings.check_usable(reentrant=options.get("reentrant", False))
        began_ms = self._clocks.read().local_ms
        leases: list[Lease] = []
        before = self._holds()
        try:
            for lock in self._defaults.in_one_order(entities, namespace):
                rest = rest_s(wait_ms, self._clocks.read().local_ms - began_ms)
                leases.append(self.acquire(lock, record_wait=rest, owner=owner, **options))
            return self._group(leases)
        except BaseException:
            self._give_back_since(before)
            raise

    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: None = None, skip: Literal[False] = False, **options: Unpack[KeyOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: str, skip: Literal[False] = False, **options: Unpack[KeyOptions]
    ) -> Passing[Lease]: ...
    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: None = None, skip: Literal[True], **options: Unpack[KeyOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...
    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: str, skip: Literal[True], **options: Unpack[KeyOptions]
    ) -> PassingAndSkipping: ...

    def serialized(
        self, key: EntityKey, *, lease_as: str | None = None, skip: bool = False, **options: Unpack[KeyOptions]
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function, for example a Lambda handler: its calls run one at a time per entity.

        Args:
            key: names the entity, as for ``acquire``: a callable that gets the call's arguments, or a template
                with the names of the function's parameters, such as ``"order-{order_id}"``.
            lease_as: the function's first parameter, or the one after ``self``, in which it gets its ``Lease``; callers
                leave it out. None passes none.
            skip: whether a call whose record wait ends returns None and does not run, in place of
                ``RecordWaitExceeded``.
            options: as in ``acquire``, except ``owner``: each call has its own.

        Raises:
            TypeError: at once, for a coroutine function (use ``ticketlock.aio``), a generator function, or one that
                does not take the lease; from a call that returns an awaitable or an iterator, which has not run.
            InvalidLockRequest: at once, for an invalid key, such as a template that names no parameter, or an option
                that ``acquire`` would refuse (one that it does not have: TypeError); from a call
                whose key names no entity. No lock is taken.
        """
        check_arguments(key, options)
        self._defaults.check_options(options)
        boolean("skip", skip)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            SERIALIZED.check_begins_at_once(function)
            entity_of = KeyOf(SERIALIZED, key, function, lease_as)
            passed = None if lease_as is None else Passed(function, lease_as)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                runs = False
                try:
                    with self._here().acquire(entity_of(args, kwargs), **options) as lease:
                        runs = True
                        result = passed.call(function, lease, args, kwargs) if passed else function(*args, **kwargs)
                        SERIALIZED.check_is_over(function, result)
                        return result
                except RecordWaitExceeded:
                    if runs or not skip:
                        raise
                    return None

            return passed.hidden_in(call) if passed else call

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
        claim, grant = self._table.resume(self._defaults.lock(entity, namespace), owner, self._defaults.lease_ms(lease))
        made = self._made(Acquisition(claim, has_own_identity=False, heartbeat=heartbeat), grant)
        try:
            return self._holdings.keep(made, running())
        except BaseException:
            self._under_way.release(self._holdings.take_back(claim))
            raise

    def inspect(self, entity: Entity, *, namespace: str | None = None) -> LockState:
        """Read a lock, its holders and its whole queue."""
        self._holdings.check_usable()
        return self._table.inspect(self._defaults.lock(entity, namespace))

    def remove_waiter(self, entity: Entity, ticket: int, *, namespace: str | None = None) -> Row:
        """Delete a waiter's queue row; see ``LockTable.remove_waiter``."""
        self._holdings.check_usable()
        return self._table.remove_waiter(self._defaults.lock(entity, namespace), ticket)

    def list(self) -> Iterator[LockSummary]:
        """The locks of the table, in no order; reads the whole table."""
        self._holdings.check_usable()
        return self._table.list_locks()

    def close(self, wait: Seconds | None = None) -> None:
        """Release all held locks and end the heartbeat; this client's waiters get ``ClientClosed``.

        If another thread is inside of a ``with`` block that holds one of the locks, the lock is freed under its work:
        ``on_lost`` is called, and the end of the block raises ``LockLost``.

        Args:
            wait: for how long to wait first until all blocks are left, except those that the caller is inside of; by
                default the client's ``close_wait``. Their locks are renewed meanwhile, but no new one is acquired.

        It waits up to 10 s for releases that other threads have begun, and up to 2 s for waiters to leave their queues.
        If the table is unreachable it gives up after some seconds, and the remaining locks stay held until their leases
        end. A signal handler may call it. In a forked child it closes the client that ``lock`` and ``serialized`` use
        there.
        """
        if not self._holdings.is_of_this_process:
            here = self._in_children.get(os.getpid())
            if here is not None:
                here.close(wait)
            return
        wait_s = self._close_wait_s if wait is None else close_wait_s("wait", wait)
        self._holdings.close()
        self._closing.open()
        self._holdings.wake_waiters()
        self._table.drive(self._holdings.wait_for_blocks(Caller(), wait_s))
        leases = self._holdings.close()
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

    def _here(self) -> "LockClient":
        """This client; in a forked child one with the same settings, made at its first use there.

        Raises:
            ClientClosed: it was closed before the fork, or its DynamoDB client cannot be made again.
        """
        if self._holdings.is_of_this_process:
            return self
        here = self._in_children.get(os.getpid())
        if here is None:
            if self._holdings.is_closed:
                raise ClientClosed("the client was closed")
            # Also if none was passed: boto3 would make one that shares its session's credentials with the parent.
            given = {name: self._settings[name] for name in ("step_functions", "lambda_client")}
            again = {name: made_again(client) for name, client in {"client": self._table.client, **given}.items()}
            # Another thread of the child may be as quick: one of the two stays.
            here = self._in_children.setdefault(os.getpid(), type(self)(**{**self._settings, **again}))
        return here

    def _holds(self) -> Holds[Lease]:
        return self._holdings.holds_of(running())

    def _give_back_since(self, before: Holds[Lease]) -> None:
        self._under_way.release(self._holdings.give_back_since(running(), before))

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

    def _made(self, acquisition: Acquisition, grant: Grant) -> Lease:
        return Lease(acquisition, grant, self._clocks, self._table, self._holdings, self._under_way)

    def _group(self, leases: Sequence[Lease]) -> LeaseGroup:
        return LeaseGroup(leases, self._holdings, self._under_way)

    def _keep_alive(self, holds: bool) -> None:
        (_holding.add if holds else _holding.discard)(self)

    def _tend(self, lease: Lease, due: Due) -> None:
        if due == "renew":
            self._table.drive(self._holdings.beat(lease))
        elif due == "danger":
            self._holdings.come_near_its_end(lease)
        else:
            self._holdings.lose(lease, lease._how_it_ended)


_clients: weakref.WeakSet[LockClient] = weakref.WeakSet()
# Until the interpreter exits, also if a program has no reference to them any more.
_holding: set[LockClient] = set()


@atexit.register
def _release_all() -> None:
    clients = list(_clients)
    for client in clients:
        client._holdings.tells_of_blocks = False
    # In a forked child that of the parent closes one of these.
    for client in clients:
        client.close(wait=0)
