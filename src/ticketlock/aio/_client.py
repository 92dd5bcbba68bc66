"""``LockClient`` for tasks, with the methods of the one for threads."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from inspect import isawaitable
from typing import Any, Never, ParamSpec, Self, TypeVar

from ticketlock._checks import Seconds, boolean, whole_number
from ticketlock._decorating import CallKey, KeyOf
from ticketlock.aio._acquiring import Acquiring, Asking
from ticketlock.aio._lease import Lease, LeaseGroup
from ticketlock.aio._lock_table import LockTable, ToTheEnd, make_client
from ticketlock.client._acquire import WaitEnded, Waits
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
from ticketlock.client._holdings import HAS_LEFT, Holdings
from ticketlock.client._waiters import lines_of_this_process
from ticketlock.errors import ClientClosed, RecordWaitExceeded
from ticketlock.locks._items import TICKET_DIGITS, LockName, Row, owner_id
from ticketlock.locks._operators import LockSummary, inspect, list_page, remove_waiter, resume
from ticketlock.locks._outcomes import Grant, LockState, Position, check_lease
from ticketlock.wire._actions import Item
from ticketlock.wire._async_performer import AsyncHeartbeat
from ticketlock.wire._driver import Clocks, SystemClocks
from ticketlock.wire._heartbeat import Due
from ticketlock.wire._sdk import needs_a_region

P = ParamSpec("P")
R = TypeVar("R")


class LockClient:
    """Locks in one table, for the tasks of one event loop. Use it in ``async with``.

    Args:
        table_name: a lock table.
        client: an aiobotocore client of your own: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        step_functions: an aiobotocore client for Step Functions: a release then wakes waiting workflows at once.
        client_options: further arguments of ``create_client``, if ``client`` is None.
        namespace, lease, record_wait, owner_name, heartbeat, check_every, clocks: as in ``ticketlock.LockClient``.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: Any = None,
        step_functions: Any = None,
        client_options: Mapping[str, Any] | None = None,
        namespace: str = "default",
        lease: Seconds = 60,
        record_wait: Seconds = 60,
        owner_name: str | None = None,
        heartbeat: bool = True,
        check_every: tuple[Seconds, Seconds] = (0.005, 0.4),
        clocks: Clocks | None = None,
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
        self._table = LockTable(table_name, step_functions, self._clocks)
        self._client = client
        self._client_options = client_options or {}
        self._exit = AsyncExitStack()
        self._waiters: dict[asyncio.Task[Any], asyncio.Future[None]] = {}
        self._to_the_end = ToTheEnd()
        self._heartbeat: AsyncHeartbeat[Lease] = AsyncHeartbeat(self._clocks, self._tend)
        self._holdings: Holdings[Lease] = Holdings(
            self._table, self._heartbeat, self._clocks, self._defaults.bounds, lines_of_this_process()
        )

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
    ) -> Acquiring[Lease]:
        """Wait for a lock in arrival order, and hold it; see ``ticketlock.LockClient.acquire``.

        ``on_lost`` and ``on_danger`` may be coroutine functions; they run as tasks of their own. For ``AlreadyHeld``
        and ``reentrant`` the holder is the task that awaits or enters it. If a task was created for this call only, as
        by ``wait_for`` before Python 3.12, the holder is the task that made the call.
        """
        refuse_unknown(unknown)
        lock = self.lock(entity, namespace)
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
        # Invalid arguments raise at once.
        self._defaults.ask(lock, asked)

        async def begin(caller: object) -> Lease:
            # Each `await` of it is a separate acquisition.
            terms = self._defaults.ask(lock, asked)
            self._check_usable()
            held = await self._table.drive(self._holdings.held_by(caller, terms, reentrant=reentrant))
            if held is not None:
                return held
            return self._holdings.keep(caller, self._made(terms, await self._acquire(terms, on_wait)))

        return Acquiring(begin)

    def try_acquire(self, entity: Entity, **more: Any) -> Asking[Lease | None]:
        """Take a lock if it is free; return None if it has a holder or a waiter."""
        at_once = self.acquire(entity, record_wait=0, **more).handed_on()

        async def begin(caller: object) -> Lease | None:
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
        **more: Any,
    ) -> Acquiring[LeaseGroup]:
        """Hold several locks together; see ``ticketlock.LockClient.acquire_all``."""
        locks = self._defaults.in_one_order(entities, namespace)
        wait_ms = self._defaults.wait_ms(record_wait)

        async def begin(caller: object) -> LeaseGroup:
            began_ms = self._clocks.read().local_ms
            leases: list[Lease] = []
            try:
                for lock in locks:
                    rest = rest_s(wait_ms, self._clocks.read().local_ms - began_ms)
                    leases.append(await self.acquire(lock, record_wait=rest, **more).handed_on()(caller))
            except BaseException:
                await self._group(leases)._give_back()
                raise
            return self._group(leases)

        return Acquiring(begin)

    def serialized(
        self, key: CallKey, *, lease_as: str | None = None, **options: Any
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
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

        def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            SERIALIZED.check_is_awaited(function)
            entity_of = KeyOf(SERIALIZED, key, function, lease_as)

            @functools.wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R:
                async with self.acquire(entity_of(args, kwargs), **options) as lease:
                    if lease_as is not None:
                        kwargs[lease_as] = lease
                    result: Any = function(*args, **kwargs)
                    if isawaitable(result):
                        result = await result
                    SERIALIZED.check_is_over(function, result)
                    returned: R = result
                    return returned

            return call

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
        lock, lease_ms = self.lock(entity, namespace), self._defaults.lease_ms(lease)
        owner_id(owner)
        boolean("heartbeat", heartbeat)
        check_lease(lease_ms, self._table.client)
        claim, grant = await self._table.run(lambda now: resume(lock, owner, lease_ms, now))
        made = self._made(Acquisition(claim, has_own_identity=False, heartbeat=heartbeat), grant)
        return self._holdings.keep(owner, made)

    async def inspect(self, entity: Entity, *, namespace: str | None = None) -> LockState:
        """Read a lock, its holders and its whole queue."""
        self._check_usable()
        lock = self.lock(entity, namespace)
        return await self._table.run(lambda now: inspect(lock, now))

    async def remove_waiter(self, entity: Entity, ticket: int, *, namespace: str | None = None) -> Row | None:
        """Delete a waiter's queue row; see ``ticketlock.LockTable.remove_waiter``."""
        self._check_usable()
        lock = self.lock(entity, namespace)
        whole_number("ticket", ticket, 0, 10**TICKET_DIGITS - 1)
        return await self._table.run(lambda now: remove_waiter(lock, ticket, now, self._table.contender))

    async def list(self) -> AsyncIterator[LockSummary]:
        """The locks of the table, in no order; reads the whole table."""
        self._check_usable()
        after: Item | None = None
        while True:
            locks, after = await self._table.run(functools.partial(list_page, after))
            for lock in locks:
                yield lock
            if after is None:
                return

    async def close(self) -> None:
        """Release all held locks and end the heartbeats; this client's waiters get ``ClientClosed``."""
        if not self._holdings.is_of_this_process:
            return
        leases = self._holdings.close()
        for waiter in list(self._waiters):
            waiter.cancel()
        # Until each waiter has left the queue. A cancellation ends this wait, not the tasks that it waits for.
        while under_way := {*self._waiters.values(), *self._to_the_end.under_way}:
            await asyncio.wait(under_way)
        for lease in self._holdings.at_last(leases):
            await lease.release(best_effort=True)
        await self._exit.aclose()

    async def __aenter__(self) -> Self:
        if self._client is None:
            with needs_a_region():
                self._client = await self._exit.enter_async_context(make_client(self._client_options))
        self._table.open(self._client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())

    # Private.

    def _check_usable(self) -> None:
        self._holdings.check_usable()
        if self._table.client is None:
            raise ClientClosed("the client was not opened: use it in 'async with'")

    async def _acquire(self, terms: Acquisition, on_wait: Callable[[Position], object] | None) -> Grant:
        waits = self._holdings.waits(terms, on_wait)
        # A task of its own, so that closing the client ends it.
        acquiring = self._holdings.acquire(terms, waits)
        waiter = asyncio.ensure_future(self._table.drive(acquiring, sleep=functools.partial(_nap, waits)))
        over = self._waiters[waiter] = asyncio.get_running_loop().create_future()
        try:
            grant = await asyncio.shield(waiter)
            if self._holdings.is_closed:
                raise asyncio.CancelledError
            return grant
        except HAS_LEFT:
            raise
        except BaseException as error:
            # Finish even if the caller is cancelled again.
            await self._to_the_end(self._give_up(waiter, terms, waits), f"to leave the queue of {terms.claim.lock!r}")
            if isinstance(error, WaitEnded):
                raise error.error from None
            if isinstance(error, asyncio.CancelledError) and self._holdings.is_closed:
                raise ClientClosed("the client was closed while it waited") from None
            raise
        finally:
            del self._waiters[waiter]
            if not over.done():
                over.set_result(None)

    async def _give_up(self, waiter: "asyncio.Task[Grant]", terms: Acquisition, waits: Waits) -> None:
        waiter.cancel()
        await asyncio.wait({waiter})
        await self._table.drive(self._holdings.leave(terms, waits))

    def _made(self, terms: Acquisition, grant: Grant) -> Lease:
        return Lease(terms, grant, self._clocks, self._table, self._holdings, self._to_the_end)

    def _group(self, leases: Sequence[Lease]) -> LeaseGroup:
        return LeaseGroup(leases, self._table, self._holdings, self._to_the_end)

    async def _tend(self, lease: Lease, due: Due) -> None:
        if due == "renew":
            await self._table.drive(self._holdings.beat(lease))
        elif due == "danger":
            self._holdings.come_near_its_end(lease)
        else:
            self._holdings.lose(lease, lease._how_it_ended)


async def _nap(waits: Waits, seconds: float) -> None:
    """Sleep; a release in this process ends the sleep between two polls, from any thread or loop."""
    if not waits.sleeps:
        await asyncio.sleep(seconds)
        return
    woken = asyncio.Event()
    # Set before it is checked: a wake-up from now on sets it.
    waits.wake = functools.partial(_from_any_thread, asyncio.get_running_loop(), woken)
    if not waits.is_woken:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await woken.wait()


def _from_any_thread(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    # A closed loop has no waiters left.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(woken.set)
