"""``LockClient`` for tasks: the twin of the one for threads."""

import asyncio
import functools
import inspect as signatures
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, ParamSpec, Self, TypeVar

from ticketlock.aio._acquiring import Acquiring
from ticketlock.aio._lease import Lease, LeaseGroup
from ticketlock.client._acquire import acquire, leave
from ticketlock.client._base_lease import State
from ticketlock.client._holdings import Asking, to_release
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
from ticketlock.locks import _hand_over as _calls
from ticketlock.locks._inspect import LISTED, LockSummary, inspect, list_page
from ticketlock.locks._names import LockName
from ticketlock.locks._operators import resume
from ticketlock.locks._outcomes import Grant, LockState, Position
from ticketlock.locks._protocol import Contender
from ticketlock.wire import _sdk
from ticketlock.wire._async_performer import Table
from ticketlock.wire._clocks import Clocks, SystemClocks
from ticketlock.wire._requests import Scan, Steps

_log = logging.getLogger("ticketlock")

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_SLEEP_S = 5.0


class LockClient:
    """Locks in one table, for the tasks of one event loop. Use it in ``async with``.

    Args:
        table_name: a lock table.
        client: an aiobotocore client of your own: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        step_functions: one for Step Functions: then workflows that wait are called as soon as a lock is free.
        client_options: further arguments of ``create_client``, where no client is given.
        namespace, lease, record_wait, owner_name, heartbeat, check_every, clocks: as of ``ticketlock.LockClient``.
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
        self._asking: Asking[Lease] = Asking(
            namespace=namespace, lease=lease, record_wait=record_wait, owner_name=owner_name, check_every=check_every
        )
        self._table_name = table_name
        self._client = client
        self._client_options = client_options or {}
        self._step_functions = step_functions
        self._heartbeat = heartbeat
        self._exit = AsyncExitStack()
        self._waiters: dict[asyncio.Task[Any], asyncio.Future[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._tellings: set[asyncio.Task[Any]] = set()

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
    ) -> Acquiring[Lease]:
        """Wait for a lock in arrival order, and hold it; see ``ticketlock.LockClient.acquire``.

        ``on_lost`` and ``on_danger`` may be coroutine functions; they run as tasks of their own.
        """
        lock = self._asking.lock(entity, namespace)
        wishes = Wishes(record_wait, lease, data, permits, shared, owner, danger)
        # What is wrong is told at once.
        self._asking.ask(lock, wishes)
        beats = self._heartbeat if heartbeat is None else heartbeat

        async def begin() -> Lease:
            # Each time it is awaited it is an acquisition of its own.
            asked = self._asking.ask(lock, wishes)
            self._check_usable()
            caller = asyncio.current_task()
            held = self._asking.held_by(caller, asked, reentrant=reentrant)
            if held is not None:
                return held
            grant = await self._acquire(asked, on_wait)
            made = Lease(
                self._table_name,
                asked.claim,
                grant,
                self._clocks,
                has_own_identity=asked.has_own_identity,
                heartbeat=beats,
                on_lost=on_lost,
                on_danger=on_danger,
                danger_ms=asked.danger_ms,
            )
            return self._keep(made, caller)

        return Acquiring(begin)

    async def try_acquire(self, entity: str | LockName, **more: Any) -> Lease | None:
        """Take a lock if it is free; None if anybody holds it or waits for it."""
        try:
            return await self.acquire(entity, record_wait=0, **more)
        except RecordWaitExceeded:
            return None

    def acquire_all(
        self,
        entities: Iterable[str | LockName],
        *,
        namespace: str | None = None,
        record_wait: Seconds | None = None,
        **more: Any,
    ) -> Acquiring[LeaseGroup]:
        """Hold several locks together; see ``ticketlock.LockClient.acquire_all``."""
        locks = self._asking.in_one_order(entities, namespace)
        wait_ms = self._asking.wait_ms(record_wait)

        async def begin() -> LeaseGroup:
            began_ms = self._clocks.read().local_ms
            leases: list[Lease] = []
            try:
                for lock in locks:
                    rest = rest_s(wait_ms, self._clocks.read().local_ms - began_ms)
                    leases.append(await self.acquire(lock, record_wait=rest, **more))
            except BaseException:
                await self._to_the_end(LeaseGroup(leases)._give_back(), "to give back a part of a group")
                raise
            return LeaseGroup(leases)

        return Acquiring(begin)

    def serialized(
        self, key: str | Callable[..., str], *, lease_as: str | None = None, **options: Any
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """Decorate a coroutine function: its calls run one at a time per entity; see ``ticketlock.LockClient``.

        Raises:
            TypeError: at once, for a function that is none.
        """

        def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if not signatures.iscoroutinefunction(function):
                raise TypeError(f"{function.__qualname__} is no coroutine function: use ticketlock.LockClient")
            signature = signature_of(function, lease_as)

            @functools.wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R:
                entity = entity_of(key, signature, args, kwargs)
                async with self.acquire(entity, **options) as lease:
                    if lease_as is not None:
                        kwargs[lease_as] = lease
                    result: R = await function(*args, **kwargs)
                    return result

            return call

        return decorate

    async def resume(
        self,
        entity: str | LockName,
        owner: str,
        *,
        namespace: str | None = None,
        lease: Seconds | None = None,
        heartbeat: bool = False,
    ) -> Lease:
        """Go on with a lock that another process has taken; see ``ticketlock.LockClient.resume``."""
        self._check_usable()
        lock, lease_ms = self._asking.lock(entity, namespace), self._asking.lease_ms(lease)
        _sdk.check_lease(lease_ms, self._client)
        claim, grant = await self._table.run(lambda now: resume(lock, owner, lease_ms, now))
        made = Lease(
            self._table_name,
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

    async def inspect(self, entity: str | LockName, *, namespace: str | None = None) -> LockState:
        """Read a lock, its holders and its whole queue."""
        self._check_usable()
        lock = self._asking.lock(entity, namespace)
        return await self._table.run(lambda now: inspect(lock, now))

    async def list(self) -> AsyncIterator[LockSummary]:
        """The locks of the table, in no order; reads the whole table."""
        self._check_usable()
        page: Scan | None = Scan(LISTED)
        while page is not None:
            locks, page = await self._table.run(_page(page))
            for lock in locks:
                yield lock

    async def close(self) -> None:
        """Release what is held still, and end the heartbeats; waiters of this client get ``ClientClosed``."""
        leases = self._asking.close(self._clocks.read())
        for waiter in list(self._waiters):
            waiter.cancel()
        # Until each has left the queue. To be cancelled ends this wait, and not what it waits for.
        while under_way := {*self._waiters.values(), *self._leaving}:
            await asyncio.wait(under_way)
        for lease in to_release(leases, self._clocks, self._forget):
            await lease.release(best_effort=True)
        await self._exit.aclose()

    async def __aenter__(self) -> Self:
        if self._client is None:
            self._client = await self._exit.enter_async_context(_make_client(self._client_options))
        self._table = Table(self._table_name, self._client, self._step_functions, self._clocks)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())

    # The parts.

    def _check_usable(self) -> None:
        self._asking.check_usable()
        if not hasattr(self, "_table"):
            raise ClientClosed("the client was not opened: use it in 'async with'")

    async def _acquire(self, asked: Asked, on_wait: Callable[[Position], object] | None) -> Grant:
        waits = self._asking.waits(asked, on_wait, self._clocks.read().local_ms)

        def steps(me: Contender) -> Steps[Grant]:
            return acquire(
                me,
                asked.record_wait_ms,
                waits.pace,
                then_call=self._table.then_call,
                on_wait=waits,
                jitter=random.random,
                others_wait=waits.expects_others,
            )

        # A task of its own, so that closing the client ends it.
        waiter = asyncio.ensure_future(self._table.contend(asked.claim, steps))
        over = self._waiters[waiter] = asyncio.get_running_loop().create_future()
        try:
            grant = await asyncio.shield(waiter)
            if self._asking.is_closed:
                raise asyncio.CancelledError
        except (InvalidLockRequest, PermitsMismatch, RecordWaitExceeded, UnsupportedFormat):
            raise
        except BaseException as error:
            # To its end, also if the caller is cancelled once more.
            await self._to_the_end(self._give_up(waiter, asked), f"to leave the queue of {asked.claim.lock!r}")
            if isinstance(error, WaitEnded):
                raise error.error from None
            if isinstance(error, asyncio.CancelledError) and self._asking.is_closed:
                raise ClientClosed("the client was closed while it waited") from None
            raise
        finally:
            del self._waiters[waiter]
            if not over.done():
                over.set_result(None)
        self._asking.remembered.waited(waits, self._clocks.read().local_ms)
        return grant

    async def _give_up(self, waiter: "asyncio.Task[Grant]", asked: Asked) -> None:
        waiter.cancel()
        await asyncio.wait({waiter})
        await self._leave(asked)

    async def _leave(self, asked: Asked) -> None:
        try:
            only_the_place = not asked.has_own_identity
            await self._table.contend(
                asked.claim, lambda me: leave(me, then_call=self._table.then_call, only_the_place=only_the_place)
            )
        except TicketLockError as error:
            _log.warning("a place in the queue of %r was not given up, and ends by itself: %s", asked.claim.lock, error)

    def _keep(self, made: Lease, caller: object) -> Lease:
        made._client = self
        self._asking.keep(caller, made)
        if made._is_watched():
            made._keeping = asyncio.create_task(self._watch(made))
        _log.debug("acquired %r", made)
        return made

    def _forget(self, lease: Lease) -> None:
        if lease._keeping is not None:
            lease._keeping.cancel()
        self._asking.drop(lease)

    async def _renew(self, lease: Lease) -> None:
        try:
            grant = await self._table.contend(lease._claim, lambda me: me.renew(lease.fencing_token))
        except LockLost as lost:
            self._lose(lease, str(lost))
            raise
        lease._renewed(grant)
        _log.debug("renewed %r", lease)

    async def _to_the_end(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """In a task that goes on when its caller is cancelled, and that `close` waits for.

        Args:
            what: what it does, for the log where nobody else hears of its failure.
        """
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(functools.partial(_log_failure, what))
            raise

    async def _release(self, lease: Lease, data_left: str | None) -> None:
        was = lease._mark_released()
        if was == "still held" or was == "released":
            return
        await self._to_the_end(self._free(lease, was, data_left), f"to release {lease.lock!r}")

    async def _free(self, lease: Lease, was: State, data_left: str | None) -> None:
        if lease._keeping is not None:
            lease._keeping.cancel()
        free = _calls.release if self._table.then_call else Contender.release
        try:
            released = await self._table.contend(lease._claim, lambda me: free(me, lease._grant, data_left=data_left))
        except LockLost:
            self._asking.drop(lease)
            raise lease._lost() from None
        except BaseException:
            # It may be tried again, by `close` as well.
            lease._state = "lost" if was == "lost" else "unreleased"
            self._asking.drop_what_is_over(self._clocks.read())
            raise
        self._asking.drop(lease)
        self._asking.remembered.released(lease.lock, released, self._clocks.read().local_ms)
        if was == "lost" or released.lease_was_over:
            raise lease._lost()
        _log.debug("released %r", lease)

    async def _watch(self, lease: Lease) -> None:
        """The heartbeat of one lease. A renewal that hangs delays no other's, nor the news that its own is over."""
        renewal: asyncio.Task[None] | None = None
        try:
            while lease._state == "held":
                reading = self._clocks.read()
                wait_s = (lease._due_ms(reading) - reading.local_ms) / 1_000
                if wait_s > 0:
                    wait_s = min(wait_s, _LONGEST_SLEEP_S)
                    if renewal is None:
                        await asyncio.sleep(wait_s)
                    elif (await asyncio.wait({renewal}, timeout=wait_s))[0]:
                        renewal = None
                    continue
                due = lease._take_due(self._clocks.read())
                if due == "renew":
                    renewal = asyncio.create_task(self._beat(lease))
                elif due == "danger":
                    _log.warning("%r comes near its end", lease)
                    self._tell(lease, "danger")
                elif due == "lost":
                    self._lose(lease, "its lease has ended, and it could not be renewed")
        finally:
            if renewal is not None:
                renewal.cancel()

    async def _beat(self, lease: Lease) -> None:
        try:
            await self._renew(lease)
        except LockLost:
            pass
        except TableError as error:
            _log.warning("%r was not renewed, and will be tried again: %s", lease, error)
        finally:
            if lease._renewing:
                lease._not_renewed(self._clocks.read())

    def _lose(self, lease: Lease, why: str) -> None:
        if lease._mark_lost():
            _log.error("%r is lost: %s", lease, why)
            self._tell(lease, "lost")
            self._asking.drop(lease)

    def _tell(self, lease: Lease, what: Any) -> None:
        callback = lease._callbacks[what]
        if callback is None:
            return

        async def tell() -> None:
            if lease._state == "released":
                return
            try:
                told = callback(lease)
                if signatures.isawaitable(told):
                    await told
            except Exception:
                _log.exception("on_%s of %r failed", what, lease)

        telling = asyncio.create_task(tell())
        self._tellings.add(telling)
        telling.add_done_callback(self._tellings.discard)


def _make_client(options: Mapping[str, Any]) -> Any:
    # Imported here: whoever brings a client of their own has chosen the SDK already.
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    return get_session().create_client("dynamodb", **{"config": AioConfig(**_sdk.CLIENT_SETTINGS), **options})


def _log_failure(what: str, task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("it failed %s, after the caller was cancelled: %s", what, error)


def _page(request: Scan) -> Callable[[Any], Steps[tuple[list[LockSummary], Scan | None]]]:
    return lambda _: list_page(request)
