"""``Units`` for tasks, with the methods of the one for threads."""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from inspect import isawaitable
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from ticketlock._checks import Refusals, Seconds
from ticketlock._decorating import CallKey
from ticketlock._names import AnyName
from ticketlock.errors import ClientClosed, InvalidUnitRequest, TicketLockError
from ticketlock.units._again import (
    AGAIN,
    TRANSACTIONAL,
    Locks,
    PayloadOf,
    PlaceInTurn,
    TransactionalArguments,
    UnitDecorator,
    UnitFunction,
    UnitMethod,
    check_has_parentheses,
    check_locks,
)
from ticketlock.units._commit import MOST_BEHIND, ReadLockLease, in_front, log_unfinished
from ticketlock.units._for_tasks._queueing import Turns
from ticketlock.units._for_tasks._unit import Unit
from ticketlock.units._provision import Denied, check_access
from ticketlock.units._records import TIME_CHECK, UnitRecords, Visible, clean, new_id, visible
from ticketlock.units._recovery import (
    FoundMark,
    OpenUnit,
    Outcome,
    Resumed,
    Swept,
    UnitOutcome,
    end_owner,
    open_units,
    outcome,
    outcome_of_rollback,
    repair,
    resume,
    sweep,
)
from ticketlock.units._statements import (
    COMMITTED,
    NAMES_ARE_KEPT_S,
    SERIALIZABLE,
    Engine,
    HeldLock,
    Isolation,
    Terms,
    Under,
    UnitsSettings,
    as_a_unit_request,
)
from ticketlock.units._unit_of_work import UnitOfWork, ending, is_of_steps
from ticketlock.units._words import ItemKey, Pairs, Tables, UnitTable
from ticketlock.wire import (
    Clocks,
    Due,
    ForkingSteps,
    SystemClocks,
    T,
    briefly,
    check_takes_stored_values,
    needs_a_region,
)
from ticketlock.wire._for_tasks import AsyncHeartbeat, AsyncPerformer, ToTheEnd, make_client

_log = logging.getLogger("ticketlock")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Task = Coroutine[Any, Any, R]


class UnitsTable(AsyncPerformer):
    """The units' own table, and the client that sends requests to all others."""

    _time_check = TIME_CHECK
    is_closing = False
    """Whether no method of a unit begins any more; those under way go on."""

    async def perform_steps(self, steps: ForkingSteps[T]) -> T:
        """Perform steps."""
        self._check_is_open(steps)
        return await self.drive(self._driver.perform_steps(steps))

    def performer_of(self, unit_of_work: UnitOfWork) -> Callable[[ForkingSteps[Any]], Coroutine[Any, Any, Any]]:
        """Performs the steps of one unit, and ends the unit if they are interrupted."""

        async def performed(steps: ForkingSteps[T]) -> T:
            try:
                try:
                    return await self.drive(ending(unit_of_work, self._driver, steps))
                finally:
                    self._keep(unit_of_work)
            except GeneratorExit:
                # Its loop has ended.
                unit_of_work.abandon()
                raise
            except BaseException as error:
                if not is_of_steps(error, steps):
                    # Perhaps before the first step.
                    await self.drive(self._driver.perform_steps(unit_of_work.end_after_interrupt()))
                    self._keep(unit_of_work)
                raise briefly(error)  # noqa: B904  # the same error

        def perform(steps: ForkingSteps[T]) -> Coroutine[Any, Any, T]:
            # At the call: `close` waits for a task that was to begin when it was called.
            self._check_is_open(steps, is_closing=self.is_closing)
            return performed(steps)

        return perform

    def _keep(self, unit_of_work: UnitOfWork) -> None:
        """Renew a unit's read locks from its first statement to its end."""
        kept = unit_of_work.kept
        if kept is None:
            return
        if unit_of_work.state.is_over or not kept._is_watched_on():
            self._heartbeat.forget(kept)
        elif not kept.is_watched:
            kept.is_watched = True
            self._heartbeat.watch(kept)

    @functools.cached_property
    def _heartbeat(self) -> AsyncHeartbeat[ReadLockLease]:
        return AsyncHeartbeat(self._driver.clocks, self._tend)

    async def _tend(self, kept: ReadLockLease, _due: Due) -> None:
        try:
            await self.perform_steps(kept.renew())
        except TicketLockError as error:
            _log.warning("the read locks of a unit were not renewed: %s", error)

    def _check_is_open(self, steps: ForkingSteps[Any], *, is_closing: bool = False) -> None:
        try:
            self.check_loop()
            if self.client is None or is_closing:
                raise ClientClosed("the units were not opened, or are closed: use them in 'async with'")
        except ClientClosed:
            steps.close()
            raise


class NamedDecorator(Protocol):
    """One whose calls return None if their name was committed before; see ``UnitDecorator``."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Unit, P], Task[R]], /
    ) -> UnitFunction[Unit, P, Task[R | None]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, Unit, P], Task[R]], /
    ) -> UnitMethod[S, Unit, P, Task[R | None]]: ...


class Units:
    """Units of work, for the tasks of one event loop of asyncio. Use it in ``async with``; see
    ``ticketlock.units.Units``. In another event loop every call raises ``ClientClosed``.

        async with Units("units") as units:
            accounts = await units.table("accounts")
            async with units.begin() as unit:
                await unit.update(accounts, {"id": "a"}, "SET balance = balance - :n", {":n": 10})

    Args:
        table_name: the units' own table, as ``ticketlock.units.create_units_table`` creates it.
        client: an aiobotocore client of your own, with ``config=ticketlock.client_config()``.
        client_options: further arguments of ``create_client``, if ``client`` is None.
        prefix, timeout, keep_names_for, mark_together, clocks: as in ``ticketlock.units.Units``.
        finish_behind: likewise; a task writes the new values, and the end of ``async with`` waits for it.
        locks: a ``ticketlock.aio.LockClient``, as in ``ticketlock.units.Units``.

    Attributes:
        VISIBLE: for your own Query or Scan: the filter that leaves out items which units have not inserted yet.

    Raises:
        InvalidUnitRequest: names the invalid arguments; ``async with`` checks the client's settings and the table's
            name.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: Any = None,
        client_options: Mapping[str, Any] | None = None,
        prefix: str = "_tlu",
        timeout: Seconds = 10,
        keep_names_for: Seconds = NAMES_ARE_KEPT_S,
        locks: Locks | None = None,
        mark_together: bool = False,
        finish_behind: bool = False,
        clocks: Clocks | None = None,
    ) -> None:
        self._clocks = clocks if clocks is not None else SystemClocks()
        refusals = Refusals()
        refusals.of(check_locks, locks, is_awaited=True)
        if client is not None:
            refusals.of(check_takes_stored_values, client, is_awaited=True)
        self._performer = UnitsTable(table_name, None, self._clocks)
        choices = {"mark_together": mark_together, "finish_behind": finish_behind}
        self._settings = UnitsSettings.of(refusals, table_name, prefix, timeout, keep_names_for, **choices)
        refusals.raise_all(InvalidUnitRequest)
        performer = self._performer
        self._turns = Turns(locks, self._clocks, lambda: performer.is_of_this_process)
        self.VISIBLE: Visible = visible(self._settings.marks)
        self._tables, self._records = Tables(table_name), UnitRecords(table_name)
        self._client = client
        self._client_options = client_options or {}
        self._exit = AsyncExitStack()
        self._to_the_end = ToTheEnd()
        self._finishing: set[asyncio.Task[None]] = set()

    # Generated by `make faces`, except the docstrings.

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in the table {self._performer.table_name!r}>"

    async def table(self, name: str, *, guarded: bool | None = None) -> UnitTable:
        """One of your tables, by name or ARN. The first call asks DynamoDB for its key."""
        return await self._performer.perform_steps(self._tables.table(name, guarded=guarded))

    def begin(
        self,
        *,
        name: AnyName | None = None,
        isolation: Isolation = SERIALIZABLE,
        under: HeldLock | None = None,
        timeout: Seconds | None = None,
        engine: Engine | None = None,
    ) -> Unit:
        """A new unit, for ``async with``; sends nothing yet."""
        terms = self._settings.terms(
            self._clocks, name=name, isolation=isolation, under=under, timeout=timeout, engine=engine
        )
        return self._unit(terms)

    async def resume(self, unit: str, *, step: str | None = None) -> Unit:
        """Continue with a saved unit, for ``async with``; see ``ticketlock.units.Units.resume``."""
        settings = self._settings
        own = settings.terms(self._clocks, step=step)
        resumed = await self._performer.perform_steps(
            resume(unit, own, settings.units_table, settings.marks, self._tables)
        )
        return self._unit(resumed.terms, resumed=resumed)

    async def rollback(self, unit: str) -> Outcome:
        """Roll back a unit of any process; see ``ticketlock.units.Units.rollback``."""
        return await self._performer.perform_steps(outcome_of_rollback(self._records, unit))

    # By hand.

    @overload
    def transactional(
        self,
        *,
        tries: int = 10,
        unit_as: str = "unit",
        name: None = None,
        isolation: Isolation = SERIALIZABLE,
        timeout: Seconds | None = None,
        under: Under | None = None,
    ) -> UnitDecorator[Unit]: ...

    @overload
    def transactional(
        self,
        *,
        tries: int = 10,
        unit_as: str = "unit",
        name: CallKey,
        isolation: Isolation = SERIALIZABLE,
        timeout: Seconds | None = None,
        under: Under | None = None,
        payload: PayloadOf | None = None,
    ) -> NamedDecorator: ...

    def transactional(
        self,
        function: None = None,
        *,
        tries: int = 10,
        unit_as: str = "unit",
        name: CallKey | None = None,
        isolation: Isolation = SERIALIZABLE,
        timeout: Seconds | None = None,
        under: Under | None = None,
        payload: PayloadOf | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a coroutine function: each call is a unit; see ``ticketlock.units.Units.transactional``.

        Raises:
            TypeError: at once, if it is not a coroutine function, or does not take the unit; from a call whose result
                is another awaitable, or an iterator: it has not run, and nothing is committed.
            InvalidUnitRequest: as in ``ticketlock.units.Units``.
        """
        check_has_parentheses(function)
        arguments = TransactionalArguments(tries, unit_as, name, isolation, timeout, under, payload)
        arguments.check(self._settings, self._clocks)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            TRANSACTIONAL.check_is_awaited(function)
            decorated = arguments.of(function)

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                if decorated.joins(args, _terms_of):
                    result: Any = function(*args, **kwargs)
                    if isawaitable(result):
                        result = await result
                    TRANSACTIONAL.check_is_over(function, result)
                    return result
                turn = self._turns.of_a_call()
                tries = decorated.tries(self._settings, self._clocks, args, kwargs, turn)
                async with AsyncExitStack() as line:
                    while True:
                        unit = self._unit(tries.terms, turn=turn)
                        try:
                            async with unit:
                                if unit.repeated:
                                    return unit.result
                                result = decorated.passed.call(function, unit, args, kwargs)
                                if isawaitable(result):
                                    result = await result
                                TRANSACTIONAL.check_is_over(function, result)
                                return unit._unit_of_work.returned(result)
                        except AGAIN as error:
                            if not unit._unit_of_work.state.may_run_again:
                                raise
                            tries.note_failure(error)
                            if tries.are_used_up:
                                raise
                        if turn is not None and turn.is_due:
                            await line.aclose()
                            await self._turns.take(turn, tries.terms.timeout_ms, line)
                        await self._performer.drive(tries.prepare_next())

            return decorated.passed.hidden_in(call)

        return decorate

    # Generated by `make faces`, except the docstrings.

    def clean(self, item: Mapping[str, Any]) -> dict[str, Any] | None:
        """Remove the units' attributes from an item of your own read; None if the item is not inserted yet."""
        return clean(self._settings.marks, item)

    async def check_access(self, tables: Iterable[UnitTable] = ()) -> list[Denied]:
        """The permissions that units need and this caller lacks; see ``ticketlock.units.Units.check_access``."""
        return await self._performer.perform_steps(check_access(self._settings.units_table, self._tables, tables))

    async def get(self, table: UnitTable, key: ItemKey, *, isolation: Isolation = COMMITTED) -> dict[str, Any] | None:
        """Get an item without the attributes of units, outside of any unit; see ``Unit.get``."""
        return await self._outside(isolation).get(table, key)

    async def get_all(
        self, table: UnitTable | Pairs, keys: Iterable[ItemKey] | None = None, *, isolation: Isolation = COMMITTED
    ) -> list[dict[str, Any] | None]:
        """Get items as of one instant, outside of any unit; see ``ticketlock.units.Units.get_all``."""
        return await self._outside(isolation).get_all(table, keys)

    async def query(
        self,
        table: UnitTable,
        key_condition: Any,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        *,
        filter: Any = None,
        index: str | None = None,
        after: Mapping[str, Any] | None = None,
        limit: int | None = None,
        forward: bool = True,
        isolation: Isolation = COMMITTED,
    ) -> list[dict[str, Any]]:
        """Get the items of a range, outside of any unit; see ``Unit.query``.

        At ``SERIALIZABLE`` they are of one instant; see ``ticketlock.units.Units.query``.
        """
        return await self._outside(isolation).query(
            table,
            key_condition,
            values,
            names,
            filter=filter,
            index=index,
            after=after,
            limit=limit,
            forward=forward,
        )

    async def end_owner(self, owner: str) -> list[str]:
        """Roll back what was saved under an owner; see ``ticketlock.units.Units.end_owner``."""
        return await self._performer.perform_steps(end_owner(self._records, owner))

    async def outcome(self, *, name: AnyName | None = None, unit: str | None = None) -> UnitOutcome:
        """The state of a unit, by its name or its id."""
        own = new_id(self._clocks.read().wall_ms)
        return await self._performer.perform_steps(outcome(self._settings, own, name=name, unit=unit))

    async def sweep(
        self, *, parts: int = 1, timeout: Seconds | None = None, read_units_per_s: int | None = None
    ) -> Swept:
        """Roll back or finish units whose processes have crashed; see ``ticketlock.units.Units.sweep``."""
        until_ms = self._settings.until_ms(self._clocks, timeout)
        steps = sweep(self._records, parts=parts, until_ms=until_ms, read_units_per_s=read_units_per_s)
        return await self._performer.perform_steps(steps)

    async def open_units(self) -> list[OpenUnit]:
        """The units that are pending, or have ended and are not closed, the oldest first."""
        return await self._performer.perform_steps(open_units(self._records))

    async def repair(self, table: UnitTable, *, write: bool = False, lost_records: bool = False) -> list[FoundMark]:
        """Settle each mark in a table as its unit's record says; see ``ticketlock.units.Units.repair``."""
        own, marks = self._tables.check_own(table), self._settings.marks
        return await self._performer.perform_steps(
            repair(own, self._records, marks, write=write, lost_records=lost_records)
        )

    # By hand.

    async def close(self) -> None:
        """Wait for the ends of units whose callers were cancelled, and until those committed with ``finish_behind`` are
        finished. A unit that is open now will never be committed: from the call on its methods raise ``ClientClosed``.
        """
        if not self._performer.is_of_this_process:
            return
        self._performer.check_loop()
        # Otherwise the wait need not end: other tasks might commit more and more units.
        self._performer.is_closing = True
        # A cancellation ends this wait, not the tasks that it waits for.
        while under_way := self._to_the_end.under_way:
            await asyncio.wait(under_way)
        self._performer.close()
        await self._exit.aclose()

    async def __aenter__(self) -> Self:
        self._performer.check_loop()
        client = self._client
        if client is None:
            with as_a_unit_request(), needs_a_region():
                client = await self._exit.enter_async_context(make_client(self._client_options))
        with as_a_unit_request():
            self._performer.open(client)
        self._performer.is_closing = False
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._performer.is_of_this_process:
            await asyncio.shield(self.close())

    def _finish_behind(self, steps: ForkingSteps[None]) -> bool:
        if len(self._finishing) >= MOST_BEHIND:
            return False
        task = asyncio.create_task(self._finish(steps))
        for tasks in (self._finishing, self._to_the_end.under_way):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        # The end of `asyncio.run` cancels all tasks, also one that has not begun.
        task.add_done_callback(_log_cancelled)
        return True

    async def _finish(self, steps: ForkingSteps[None]) -> None:
        try:
            await self._performer.perform_steps(steps)
        except TicketLockError as error:
            log_unfinished(error)

    def _outside(self, isolation: Isolation) -> Unit:
        return self._unit(self._settings.terms_outside(self._clocks, isolation))

    def _unit(self, terms: Terms, *, turn: PlaceInTurn | None = None, resumed: Resumed | None = None) -> Unit:
        settings = self._settings
        unit_of_work = UnitOfWork(
            terms,
            settings.units_table,
            self._tables,
            settings.marks,
            turn=turn,
            resumed=resumed,
            behind=self._finish_behind if settings.finish_behind else in_front,
        )
        return Unit(unit_of_work, self._performer.performer_of(unit_of_work), self._performer, self._to_the_end)


def _log_cancelled(task: "asyncio.Task[None]") -> None:
    if task.cancelled():
        _log.warning("a committed unit is not finished: its task was cancelled, as by a loop that ends before `close`")


def _terms_of(given: object) -> Terms | None:
    return given._unit_of_work.terms if isinstance(given, Unit) else None
