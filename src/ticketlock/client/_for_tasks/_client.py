"""``LockClient`` for tasks, with the methods of the one for threads."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from inspect import isawaitable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

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
from ticketlock.client._for_tasks._acquiring import Acquiring, Asking
from ticketlock.client._for_tasks._lease import Lease, LeaseGroup
from ticketlock.client._for_tasks._lock import Lock
from ticketlock.client._holdings import HAS_LEFT, Holdings
from ticketlock.client._waiters import waiters_of_this_process
from ticketlock.errors import ClientClosed, RecordWaitExceeded
from ticketlock.locks import (
    Grant,
    LockState,
    LockSummary,
    Position,
    Row,
)
from ticketlock.locks._for_tasks import LockTable
from ticketlock.wire import (
    Clocks,
    Due,
    SystemClocks,
    briefly,
    check_kind,
    check_takes_stored_values,
    needs_a_region,
)
from ticketlock.wire._for_tasks import AsyncHeartbeat, ToTheEnd, make_client

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Task = Coroutine[Any, Any, R]


Options = AcquireOptions[Lease]
KeyOptions = SerializedOptions[Lease]


class PassingAndSkipping(Protocol):
    """A decorator of coroutine functions that get their lease, as by ``Passing``, and whose calls may be skipped."""

    @overload
    def __call__(self, function: Callable[Concatenate[Lease, P], Task[R]], /) -> Callable[P, Task[R | None]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, Lease, P], Task[R]], /
    ) -> Callable[Concatenate[S, P], Task[R | None]]: ...


class LockClient(StaysHere):
    """Locks in one table, for the tasks of one event loop of asyncio. Use it in ``async with``.

    In another event loop, for example that of another ``asyncio.run``, every call raises ``ClientClosed``.

    Args:
        table_name: a lock table.
        client: an aiobotocore client of your own, with ``config=ticketlock.client_config()``.
        step_functions: an aiobotocore client for Step Functions: a release then wakes waiting workflows at once.
        lambda_client: one for Lambda: it then wakes waiting durable executions, too.
        client_options: further arguments of ``create_client``, if ``client`` is None.
        namespace, lease, record_wait, owner_name, heartbeat, check_every, on_wait, close_wait, clocks: as in
            ``ticketlock.LockClient``.

    Raises:
        InvalidLockRequest: settings are out of their bounds, or a client is not one of aiobotocore; it tells of all at
            once. ``async with`` checks the client's settings and the table's name.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: Any = None,
        step_functions: Any = None,
        lambda_client: Any = None,
        client_options: Mapping[str, Any] | None = None,
        namespace: str = "default",
        lease: Seconds = 60,
        record_wait: Seconds = 60,
        owner_name: str | None = None,
        heartbeat: bool = True,
        check_every: tuple[Seconds, Seconds] = (0.005, 0.4),
        on_wait: Callable[[Position], object] | None = None,
        close_wait: Seconds = 0,
        clocks: Clocks | None = None,
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
            awaits_callbacks=True,
        )
        if client is not None:
            refusals.of(check_takes_stored_values, client, is_awaited=True)
        refusals.of(check_kind, step_functions, "stepfunctions", is_awaited=True)
        refusals.of(check_kind, lambda_client, "lambda", is_awaited=True)
        self._close_wait_s = refusals.of(close_wait_s, "close_wait", close_wait)
        refusals.raise_all()
        self._table = LockTable(table_name, step_functions, self._clocks, lambda_client)
        self._client = client
        self._client_options = client_options or {}
        self._exit = AsyncExitStack()
        self._waiters: dict[asyncio.Task[Any], asyncio.Future[None]] = {}
        self._to_the_end = ToTheEnd()
        self._heartbeat: AsyncHeartbeat[Lease] = AsyncHeartbeat(self._clocks, self._tend)
        self._holdings: Holdings[Lease] = Holdings(
            self._table,
            self._heartbeat,
            clocks=self._clocks,
            bounds=self._defaults.bounds,
            local_waiters=waiters_of_this_process(),
        )

    # Generated by `make faces`, except the docstrings.

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of the table {self._table.table_name!r}>"

    def lock(
        self,
        entity: Entity,
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        **options: Unpack[Options],
    ) -> Lock:
        """A lock, made once, to enter again and again; see ``ticketlock.LockClient.lock``."""
        check_no_owner(options)
        self._defaults.check_options({"record_wait": record_wait, **options})
        return Lock(self, self._defaults.lock(entity, namespace), record_wait, options)

    # By hand.

    def acquire(
        self,
        entity: Entity,
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        owner: str | None = None,
        **options: Unpack[Options],
    ) -> Acquiring[Lease]:
        """Wait for a lock in arrival order, and hold it; see ``ticketlock.LockClient.acquire``.

        ``on_lost`` and ``on_danger`` may be coroutine functions; they run as tasks of their own. For ``AlreadyHeld``
        and ``reentrant`` the blocks count that the task which awaits or enters it is inside of. If a task was created
        for this call only, as by ``wait_for`` before Python 3.12, those of the task that made the call count.
        """
        refuse_unknown(options)
        reentrant = options.get("reentrant", False)
        lock = self._defaults.lock(entity, namespace)
        asked = AcquireArguments(record_wait=record_wait, owner=owner, **options)
        # Invalid arguments raise at once.
        self._defaults.ask(lock, asked)

        async def begin(caller: Caller) -> Lease:
            # Each `await` of it is a separate acquisition.
            acquisition = self._defaults.ask(lock, asked)
            self._check_usable(reentrant=reentrant)
            held = await self._table.drive(self._holdings.held_by(caller, acquisition, reentrant=reentrant))
            if held is not None:
                return held
            return self._holdings.keep(self._made(acquisition, await self._acquire(acquisition, caller)), caller.who)

        return Acquiring(begin)

    def try_acquire(
        self, entity: Entity, *, namespace: str | None = None, owner: str | None = None, **options: Unpack[Options]
    ) -> Asking[Lease | None]:
        """Take a lock if it is free; return None if it has a holder or a waiter."""
        check_does_not_wait(options)
        at_once = self.acquire(entity, namespace=namespace, record_wait=0, owner=owner, **options).handed_on()

        async def begin(caller: Caller) -> Lease | None:
            try:
                return await at_once(caller)
            except RecordWaitExceeded:
                return None

        return Asking(begin)

    def acquire_all(
        self,
        entities: Iterable[Entity],
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        owner: str | None = None,
        **options: Unpack[Options],
    ) -> Acquiring[LeaseGroup]:
        """Hold several locks together; see ``ticketlock.LockClient.acquire_all``."""
        locks = self._defaults.in_one_order(entities, namespace)
        wait_ms = self._defaults.wait_ms(record_wait)

        async def begin(caller: Caller) -> LeaseGroup:
            began_ms = self._clocks.read().local_ms
            leases: list[Lease] = []
            try:
                for lock in locks:
                    rest = rest_s(wait_ms, self._clocks.read().local_ms - began_ms)
                    acquiring = self.acquire(lock, record_wait=rest, owner=owner, **options)
                    leases.append(await acquiring.handed_on()(caller))
            except BaseException:
                await self._group(leases)._give_back()
                raise
            return self._group(leases)

        return Acquiring(begin)

    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: None = None, skip: Literal[False] = False, **options: Unpack[KeyOptions]
    ) -> Callable[[Callable[P, Task[R]]], Callable[P, Task[R]]]: ...
    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: str, skip: Literal[False] = False, **options: Unpack[KeyOptions]
    ) -> Passing[Lease]: ...
    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: None = None, skip: Literal[True], **options: Unpack[KeyOptions]
    ) -> Callable[[Callable[P, Task[R]]], Callable[P, Task[R | None]]]: ...
    @overload
    def serialized(
        self, key: EntityKey, *, lease_as: str, skip: Literal[True], **options: Unpack[KeyOptions]
    ) -> PassingAndSkipping: ...

    def serialized(
        self, key: EntityKey, *, lease_as: str | None = None, skip: bool = False, **options: Unpack[KeyOptions]
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a coroutine function: its calls run one at a time per entity; see ``ticketlock.LockClient``.

        The function may also be a wrapper of one (``functools.partial``, ``functools.wraps``), or an object whose
        ``__call__`` is one: the result of the call is awaited under the lock.

        Raises:
            TypeError: at once, if it is not a coroutine function; from a call whose result is another awaitable, or an
                iterator, which has not run.
            InvalidLockRequest: as in ``ticketlock.LockClient.serialized``.
        """
        check_arguments(key, options)
        self._defaults.check_options(options)
        boolean("skip", skip)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            SERIALIZED.check_is_awaited(function)
            entity_of = KeyOf(SERIALIZED, key, function, lease_as)
            passed = None if lease_as is None else Passed(function, lease_as)

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                runs = False
                try:
                    async with self.acquire(entity_of(args, kwargs), **options) as lease:
                        runs = True
                        result = passed.call(function, lease, args, kwargs) if passed else function(*args, **kwargs)
                        if isawaitable(result):
                            result = await result
                        SERIALIZED.check_is_over(function, result)
                        return result
                except RecordWaitExceeded:
                    if runs or not skip:
                        raise
                    return None

            return passed.hidden_in(call) if passed else call

        return decorate

    async def resume(
        self,
        entity: Entity,
        owner: str,
        *,
        namespace: str | None = None,
        lease: Seconds | None = None,
        heartbeat: bool = False,
    ) -> Lease:
        """Continue with a lock that another process has taken; see ``ticketlock.LockClient.resume``."""
        self._check_usable()
        lock, lease_ms = self._defaults.lock(entity, namespace), self._defaults.lease_ms(lease)
        boolean("heartbeat", heartbeat)
        claim, grant = await self._table.resume(lock, owner, lease_ms)
        made = self._made(Acquisition(claim, has_own_identity=False, heartbeat=heartbeat), grant)
        return self._holdings.keep(made, running())

    async def inspect(self, entity: Entity, *, namespace: str | None = None) -> LockState:
        """Read a lock, its holders and its whole queue."""
        self._check_usable()
        return await self._table.inspect(self._defaults.lock(entity, namespace))

    async def remove_waiter(self, entity: Entity, ticket: int, *, namespace: str | None = None) -> Row:
        """Delete a waiter's queue row; see ``ticketlock.LockTable.remove_waiter``."""
        self._check_usable()
        return await self._table.remove_waiter(self._defaults.lock(entity, namespace), ticket)

    async def list(self) -> AsyncIterator[LockSummary]:
        """The locks of the table, in no order; reads the whole table."""
        self._check_usable()
        async with aclosing(self._table.list_locks()) as locks:
            async for lock in locks:
                yield lock

    async def close(self, wait: Seconds | None = None) -> None:
        """Release all held locks and end the heartbeats; this client's waiters get ``ClientClosed``; see
        ``ticketlock.LockClient.close``.
        """
        await self._close(Caller(), wait)

    async def _close(self, caller: Caller, wait: Seconds | None) -> None:
        if not self._holdings.is_of_this_process:
            return
        self._table.check_loop()
        wait_s = self._close_wait_s if wait is None else close_wait_s("wait", wait)
        self._holdings.close()
        for waiter in list(self._waiters):
            waiter.cancel()
        # Until each waiter has left the queue. A cancellation ends this wait, not the tasks that it waits for.
        while under_way := {*self._waiters.values(), *self._to_the_end.under_way}:
            await asyncio.wait(under_way)
        await self._table.drive(self._holdings.wait_for_blocks(caller, wait_s))
        leases = self._holdings.close()
        for lease in self._holdings.at_last(leases):
            await lease.release(best_effort=True)
        await self._heartbeat.close()
        await self._exit.aclose()

    async def __aenter__(self) -> Self:
        self._table.check_loop()
        if self._client is None:
            with needs_a_region():
                self._client = await self._exit.enter_async_context(make_client(self._client_options))
        self._table.open(self._client)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._holdings.is_of_this_process:
            await asyncio.shield(self._close(Caller(), None))

    # Private.

    def _check_usable(self, *, reentrant: bool = False) -> None:
        self._holdings.check_usable(reentrant=reentrant)
        self._table.check_loop()
        if self._table.client is None:
            raise ClientClosed("the client was not opened: use it in 'async with'")

    async def _acquire(self, acquisition: Acquisition, caller: Caller) -> Grant:
        wait = self._holdings.wait(acquisition, caller)
        # A task of its own, so that closing the client ends it.
        acquiring = self._holdings.acquire(acquisition, wait)
        waiter = asyncio.ensure_future(self._table.drive(acquiring, sleep=functools.partial(_nap, wait)))
        over = self._waiters[waiter] = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        try:
            grant = await asyncio.shield(waiter)
            if self._holdings.is_closed:
                raise asyncio.CancelledError
            return grant
        except HAS_LEFT as error:
            raise briefly(error)  # noqa: B904  # the same error
        except BaseException as error:
            # If the client has ended the wait at the same time, a cancellation of the caller goes on nevertheless.
            is_cancelled = not waiter.done() or (task is not None and task.cancelling() > cancelled_before)
            # Finish even if the caller is cancelled again.
            await self._to_the_end(
                self._give_up(waiter, acquisition, wait), f"to leave the queue of {acquisition.claim.lock!r}"
            )
            if isinstance(error, WaitEnded):
                raise error.error from None
            if isinstance(error, asyncio.CancelledError) and self._holdings.is_closed and not is_cancelled:
                raise ClientClosed("the client was closed while it waited") from None
            raise briefly(error)  # noqa: B904  # the same error
        finally:
            del self._waiters[waiter]
            if not over.done():
                over.set_result(None)

    async def _give_up(self, waiter: "asyncio.Task[Grant]", acquisition: Acquisition, wait: Wait) -> None:
        waiter.cancel()
        await asyncio.wait({waiter})
        await self._table.drive(self._holdings.leave(acquisition, wait))

    def _made(self, acquisition: Acquisition, grant: Grant) -> Lease:
        return Lease(acquisition, grant, self._clocks, self._table, self._holdings, self._to_the_end)

    def _group(self, leases: Sequence[Lease]) -> LeaseGroup:
        return LeaseGroup(leases, self._table, self._holdings, self._to_the_end)

    # Generated by `make faces`, except the docstrings.

    async def _tend(self, lease: Lease, due: Due) -> None:
        if due == "renew":
            await self._table.drive(self._holdings.beat(lease))
        elif due == "danger":
            self._holdings.come_near_its_end(lease)
        else:
            self._holdings.lose(lease, lease._how_it_ended)


async def _nap(wait: Wait, seconds: float) -> None:
    """Sleep; a release in this process ends the sleep between two polls, from any thread or loop."""
    if not wait.sleeps:
        await asyncio.sleep(seconds)
        return
    woken = asyncio.Event()
    # Set before it is checked: a wake-up from now on sets it.
    wait.wake = functools.partial(_from_any_thread, asyncio.get_running_loop(), woken)
    if not wait.is_woken:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await woken.wait()


def _from_any_thread(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    # A closed loop has no waiters left.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(woken.set)
