"""``Units``: units of work for threads."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from ticketlock._checks import Refusals, Seconds
from ticketlock._decorating import CallKey
from ticketlock._names import AnyName
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._again import (
    AGAIN,
    TRANSACTIONAL,
    PayloadOf,
    PlaceInTurn,
    ThreadLocks,
    TransactionalArguments,
    Turns,
    UnitDecorator,
    UnitFunction,
    UnitMethod,
    check_has_parentheses,
    check_locks,
)
from ticketlock.units._commit import BehindThreads, in_front
from ticketlock.units._provision import Denied, check_access
from ticketlock.units._records import UnitRecords, Visible, clean, new_id, visible
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
)
from ticketlock.units._unit import Unit
from ticketlock.units._unit_of_work import UnitOfWork, UnitsTable
from ticketlock.units._words import ItemKey, Pairs, Tables, UnitTable
from ticketlock.wire import Clocks, SystemClocks

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class NamedDecorator(Protocol):
    """One whose calls may return None if their name was committed before; see ``UnitDecorator``."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Unit, P], R], /
    ) -> UnitFunction[Unit, P, R | None]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, Unit, P], R], /) -> UnitMethod[S, Unit, P, R | None]: ...


class Units:
    """Units of work: ACID transactions over items of any tables of one account and Region.

        units = Units("units")
        accounts = units.table("accounts")
        with units.begin() as unit:
            unit.update(accounts, {"id": "a"}, "SET balance = balance - :n", {":n": 10}, condition="balance >= :n")
            unit.update(accounts, {"id": "b"}, "SET balance = balance + :n", {":n": 10})

    Args:
        table_name: the units table, as ``create_units_table`` creates it.
        client: a DynamoDB client of your own, with ``config=ticketlock.client_config()``; not that of a resource.
        prefix: how the attributes begin that units add to your items: 1 to 16 bytes, without ``.[]``; not
            the beginning of ``unit``, ``row`` or ``format``.
        timeout: how long a unit waits for older units that block it, all waits together, in seconds.
        keep_names_for: for how long names are remembered (``begin(name=...)``), in seconds: 1 to 366 days. Time to live
            deletes their receipts later.
        locks: a ``LockClient``: calls of ``transactional`` that met a conflict then queue for the items.
        mark_together: whether units that are committed by marks write marks, and new values for which the caller waits,
            in transactions of 100: a hundredth of the requests, for twice the write units.
        finish_behind: whether the commit of such a unit returns once the unit is committed: a thread writes the new
            values behind the caller, of 16 units at most, and ``close`` waits for it. Until then plain readers see the
            old values; units see the new ones. What DynamoDB refuses then is logged, in place of
            ``CommittedUnfinished``.
        clocks: where the time comes from.
        sleep: how to wait, in seconds.

    Attributes:
        VISIBLE: for your own Query or Scan: the filter that leaves out pending inserts of units.

    Raises:
        InvalidUnitRequest: names the arguments and the settings of the client that are wrong, all at once.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: "DynamoDBClient | None" = None,
        prefix: str = "_tlu",
        timeout: Seconds = 10,
        keep_names_for: Seconds = NAMES_ARE_KEPT_S,
        locks: ThreadLocks | None = None,
        mark_together: bool = False,
        finish_behind: bool = False,
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clocks = clocks if clocks is not None else SystemClocks()
        refusals = Refusals()
        refusals.of(check_locks, locks)
        self._performer = refusals.of(UnitsTable, table_name, client=client, clocks=self._clocks, sleep=sleep)
        choices = {"mark_together": mark_together, "finish_behind": finish_behind}
        self._settings = UnitsSettings.of(refusals, table_name, prefix, timeout, keep_names_for, **choices)
        refusals.raise_all(InvalidUnitRequest)
        performer = self._performer
        self._turns = Turns(locks, self._clocks, lambda: performer.is_of_this_process)
        self._behind = BehindThreads(self._performer.perform_steps)
        self.VISIBLE: Visible = visible(self._settings.marks)
        self._tables, self._records = Tables(table_name), UnitRecords(table_name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in the table {self._performer.table_name!r}>"

    def table(self, name: str, *, guarded: bool | None = None) -> UnitTable:
        """A table of yours, by its name or its ARN. DynamoDB is asked for its keys and indexes.

        Args:
            name: the name or the ARN.
            guarded: whether a unit that has queried a partition at ``SERIALIZABLE`` conflicts with units that insert
                into it. Inserts are committed by marks then. All processes that insert into the table must say so, at
                their first call for the table. None: as in the first call, and there not.

        Raises:
            InvalidUnitRequest: it is of another account or Region, or the units table; or the first call for it had
                another ``guarded``; or it is to be guarded and has local secondary indexes.
            TableNotFound: there is no such table.
            TableError: DynamoDB could not be asked for it.
        """
        return self._performer.perform_steps(self._tables.table(name, guarded=guarded))

    def begin(
        self,
        *,
        name: AnyName | None = None,
        isolation: Isolation = SERIALIZABLE,
        under: HeldLock | None = None,
        timeout: Seconds | None = None,
        engine: Engine | None = None,
    ) -> Unit:
        """A new unit; nothing is sent yet.

        Args:
            name: text, a whole number or a UUID that stands for what the unit does: only one unit of a name is
                committed, within ``keep_names_for``. Later ones are ``repeated``, write nothing, and have its
                ``result``.
            isolation: of reads without a level of their own.
            under: a held lock, such as a ``Lease`` or a ``Fence``: the unit is committed only while it is held, with
                this very fencing token.
            timeout: as for ``Units``.
            engine: ``"native"``: in one request, up to 100 items and 4 MB, or not at all; ``"marked"``: by marks,
                for units of every size. None, the best choice: natively if it fits.

        Raises:
            InvalidUnitRequest: names the argument that is wrong.
        """
        terms = self._settings.terms(
            self._clocks, name=name, isolation=isolation, under=under, timeout=timeout, engine=engine
        )
        return self._unit(terms)

    def resume(self, unit: str, *, step: str | None = None) -> Unit:
        """Continue a saved unit with all its reads and writes. Earlier objects of it can no longer commit or save it.

        If it is already committed, the unit is ``repeated``, and writes nothing. What ``begin`` was given is kept;
        ``mark_together``, ``finish_behind`` and ``keep_names_for`` are those of this ``Units``.

        Args:
            unit: what ``Unit.save`` has returned.
            step: text that names what this process adds to the unit, the same at each retry: for example the name of a
                workflow's state. ``save`` records it; up to 100 steps a unit. If this step was saved before, the unit
                is ``repeated``: its statements do nothing, ``get`` shows what is saved, ``save`` returns the id and
                writes nothing, a commit is refused, and a process that has resumed the unit meanwhile keeps it.

        Raises:
            InvalidUnitRequest: no unit was saved under that id, or it was saved with another ``prefix``; or ``step`` is
                no text of 1 to 1,024 bytes.
            UnitRolledBack: it was rolled back, ``keep_for`` is over, or its name was used or given up since, which ends
                it.
            UnitForgotten: its record no longer exists.
            TableError: a table could not be used; resume it again.
        """
        settings = self._settings
        own = settings.terms(self._clocks, step=step)
        resumed = self._performer.perform_steps(resume(unit, own, settings.units_table, settings.marks, self._tables))
        return self._unit(resumed.terms, resumed=resumed)

    def rollback(self, unit: str) -> Outcome:
        """Roll back a unit, in any process, that was saved or is being committed by marks. A committed one stays so.

        Args:
            unit: its id.

        Returns:
            ``ROLLED_BACK``; or ``COMMITTED``, if the call comes too late; or ``FORGOTTEN``.

        Raises:
            InvalidUnitRequest: ``unit`` is no id.
            TableError: the table could not be used.
        """
        return self._performer.perform_steps(outcome_of_rollback(self._records, unit))

    def end_owner(self, owner: str) -> list[str]:
        """Roll back every unit that was saved under an owner and is pending; a later save under it is refused.

        May be repeated, and called beside running units: what was committed stays so. It reads the rows of that owner
        alone, whatever the table holds. Each call refuses saves for 30 days.

        Args:
            owner: as in ``Unit.save``.

        Returns:
            The ids of the units that it has rolled back.

        Raises:
            InvalidUnitRequest: it can be no owner.
            TableError: the table could not be used; call it again.
        """
        return self._performer.perform_steps(end_owner(self._records, owner))

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
        """Decorate a function: each call is a unit, which commits when the function returns.

            @units.transactional(name="transfer-{transfer_id}")
            def transfer(unit, transfer_id, giver, taker, amount): ...

        If the function raises, the unit is rolled back, and the exception is raised to you. After ``UnitConflict``,
        ``UnitRolledBack`` and ``UnitContended`` the function runs again, in a new unit that keeps the age of the first:
        side effects outside the unit happen at each try. Before that the call waits: up to 25 ms, twice as long each
        time, at most a second. If the unit is committed by then, or may be, the error is raised at once.

        A caller leaves the unit out. One that passes a ``Unit`` in its place makes the call part of that unit: the
        function runs once, and the caller's unit commits or rolls back what it did. ``tries`` and ``timeout`` do not
        count then.

        With ``locks`` the call queues instead, in arrival order, for the items at which it met a conflict, holds their
        locks during the next try, and releases them afterwards. Other calls that come to such an item meanwhile step
        back before they read it, and run again when their turn comes; that does not count as a try. The queue is
        advisory: a call whose turn does not come within ``timeout`` runs again anyway.

        Args:
            tries: how many times it runs at most; then the last error is raised.
            unit_as: the function's first parameter, or the one after ``self``, in which it gets its ``Unit``.
            name: as for ``begin``: a callable that gets the call's arguments and returns the name, or a
                template with the names of the function's parameters. A call whose name was committed before does not
                run the function, and returns the result of the first one, which the commit has kept: None, JSON, or
                values of DynamoDB's types, up to 8 KB. The first caller gets what is kept, too.
            isolation, timeout: as for ``begin``.
            under: a callable that gets the call's arguments and returns a held lock, such as a ``Fence``: each try is
                committed only while it is held. ``LockLost`` ends the call.
            payload: a callable that gets the call's arguments and returns what must be the same in each call of a name,
                in JSON or in DynamoDB's types. The commit keeps its SHA-256.

        Raises:
            InvalidUnitRequest: at once, for an argument or a name that is invalid; from a call whose name is
                none, or for which ``under`` returns no held lock; from a call that is given
                a unit although the decorator has a ``name`` or ``under``, or a unit of a lower ``isolation``. From a
                call with a name whose result cannot be kept: nothing was written. From one whose name was committed
                with another ``payload``: its ``field`` is ``payload``.
            TypeError: at once, for a coroutine function (``ticketlock.aio`` has ``Units`` for those), a generator
                function, or a function that does not take the unit; from a call that returns an awaitable or an
                iterator, of which nothing has run and nothing is committed.
        """
        check_has_parentheses(function)
        arguments = TransactionalArguments(tries, unit_as, name, isolation, timeout, under, payload)
        arguments.check(self._settings, self._clocks)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            TRANSACTIONAL.check_begins_at_once(function)
            decorated = arguments.of(function)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                if decorated.joins(args, _terms_of):
                    result = function(*args, **kwargs)
                    TRANSACTIONAL.check_is_over(function, result)
                    return result
                turn = self._turns.of_a_call()
                tries = decorated.tries(self._settings, self._clocks, args, kwargs, turn)
                with ExitStack() as line:
                    while True:
                        unit = self._unit(tries.terms, turn=turn)
                        try:
                            with unit:
                                if unit.repeated:
                                    return unit.result
                                result = decorated.passed.call(function, unit, args, kwargs)
                                TRANSACTIONAL.check_is_over(function, result)
                                return unit._unit_of_work.returned(result)
                        except BaseException as error:
                            if unit._unit_of_work.is_waiting_for_its_end:
                                # A signal handler has raised it at the entry of the end of the block: the next try
                                # would wait for the read locks of this one.
                                unit._perform(unit._unit_of_work.end_after_interrupt())
                            if not isinstance(error, AGAIN) or not unit._unit_of_work.state.may_run_again:
                                raise
                            tries.note_failure(error)
                            if tries.are_used_up:
                                raise
                        if turn is not None and turn.is_due:
                            line.close()
                            self._turns.take(turn, tries.terms.timeout_ms, line)
                        self._performer.drive(tries.prepare_next())

            return decorated.passed.hidden_in(call)

        return decorate

    def clean(self, item: Mapping[str, Any]) -> dict[str, Any] | None:
        """An item of your own reads, without the attributes of units; None for a pending insert.

        Args:
            item: in Python values or in AttributeValues.

        Raises:
            InvalidUnitRequest: it is no item.
        """
        return clean(self._settings.marks, item)

    def check_access(self, tables: Iterable[UnitTable] = ()) -> list[Denied]:
        """Try what units need on the units table and on your tables, by requests that write nothing.

        A write is tried with a condition that never holds: it is refused either for that or for a missing permission.
        Each index of your tables is queried, also one that you never query.

        Args:
            tables: from ``table``.

        Returns:
            The permissions that this caller lacks; empty if it has all.

        Raises:
            TableNotFound: the units table does not exist.
            RequestNotApplied: no answer came.
        """
        return self._performer.perform_steps(check_access(self._settings.units_table, self._tables, tables))

    def get(self, table: UnitTable, key: ItemKey, *, isolation: Isolation = COMMITTED) -> dict[str, Any] | None:
        """An item without the attributes of units, outside of any unit; see ``Unit.get``."""
        return self._outside(isolation).get(table, key)

    def get_all(
        self, table: UnitTable | Pairs, keys: Iterable[ItemKey] | None = None, *, isolation: Isolation = COMMITTED
    ) -> list[dict[str, Any] | None]:
        """Items of one instant, without the attributes of units, outside of any unit; see ``Unit.get_all``.

        At ``SERIALIZABLE`` all are of one instant, however many: more than 100 are read twice, and from the beginning
        again if one has changed in between, up to ten times. Nothing is written.

        Raises:
            UnitContended: at ``SERIALIZABLE``, of more than 100 items: some have changed during each try.
            UnitTooLarge: at ``SERIALIZABLE``: more than 100 of the items do not exist.
            InvalidUnitRequest, TableError: as for ``Unit.get``.
        """
        return self._outside(isolation).get_all(table, keys)

    def query(
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
        """The items of a range, without the attributes of units, outside of any unit; see ``Unit.query``.

        At ``SERIALIZABLE`` they are of one instant, as those of ``get_all``; an index has no such level.

        Raises:
            UnitContended: at ``SERIALIZABLE``: some have changed during each try.
            InvalidUnitRequest, TableError: as for ``Unit.query``.
        """
        return self._outside(isolation).query(
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

    def outcome(self, *, name: AnyName | None = None, unit: str | None = None) -> UnitOutcome:
        """The outcome of a name, or of a unit by its id; final, unless it is PENDING.

        If no unit of the name is committed yet, the name is given up: a unit that is being committed with it ends with
        ``UnitRolledBack``, however late its request arrives. You may begin another one.

        By its id, a unit that was committed natively is FORGOTTEN, unless it was saved: it has left no record. A unit
        that has not begun its commit, is not saved and has no read locks is FORGOTTEN, too, and may still be committed.

        Args:
            name, unit: one of them.

        Returns:
            Its ``state``, and the ``result`` of a committed one.

        Raises:
            UnsupportedFormat: a newer version has written the result.
            InvalidUnitRequest: neither is given, or both are.
            TableError: the table could not be used.
        """
        own = new_id(self._clocks.read().wall_ms)
        return self._performer.perform_steps(outcome(self._settings, own, name=name, unit=unit))

    def sweep(self, *, parts: int = 1, timeout: Seconds | None = None, read_units_per_s: int | None = None) -> Swept:
        """End, finish and close the units of processes that were killed anywhere. Call it from time to time.

        No process waits for it: a process that meets such a unit's mark in an item does what that item needs. It reads
        the index ``open`` of the units table, and so costs what it finds, however many receipts there are.

        Args:
            parts: how many parts of the index are swept at once: 1 to 32.
            timeout: for how long, up to 900 seconds: then it stops, and the next sweep with a time-out and as many
                parts continues there. Each part sweeps one unit, or finishes up to 100 items of one, even if the time
                is over by then. None: to the end of the index.
            read_units_per_s: how many read units it consumes in a second at most, about, all parts and tables together.
                None: no bound.

        Raises:
            InvalidUnitRequest: names the argument that is wrong.
            TableError: a part of the index could not be read; the others are swept.
        """
        until_ms = self._settings.until_ms(self._clocks, timeout)
        steps = sweep(self._records, parts=parts, until_ms=until_ms, read_units_per_s=read_units_per_s)
        return self._performer.perform_steps(steps)

    def open_units(self) -> list[OpenUnit]:
        """The units that are pending, or have ended and are not closed, the oldest first. Reads the index
        ``open`` of the units table, which may be some seconds behind.

        A row that no unit has written is left out, and a warning names it.

        Raises:
            TableError: the table could not be used.
        """
        return self._performer.perform_steps(open_units(self._records))

    def repair(self, table: UnitTable, *, write: bool = False, lost_records: bool = False) -> list[FoundMark]:
        """Find the marks in a table of yours, and treat each as its unit's record says. Reads the whole table.

        For marks that no sweep finds: the table was restored, or the units table was lost. Safe to repeat, and to run
        beside running units.

        Args:
            table: from ``table``.
            write: whether to write; otherwise it only reports what it would do.
            lost_records: whether to remove marks whose records are missing, too. Safe only if no unit runs with another
                units table.

        Returns:
            Each mark, and what was done about it, or would be done.

        Raises:
            InvalidUnitRequest: the table is of another ``Units``; nothing was written.
            TableError: a table could not be used. What was done by then stays.
        """
        own, marks = self._tables.check_own(table), self._settings.marks
        return self._performer.perform_steps(repair(own, self._records, marks, write=write, lost_records=lost_records))

    def close(self) -> None:
        """Wait until the units that were committed before with ``finish_behind`` are finished. More units may follow.

        A signal handler may call it at any time. Where no thread finishes them, they are finished here.
        """
        self._behind.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            behind=self._behind if settings.finish_behind else in_front,
        )
        return Unit(unit_of_work, self._performer.performer_of(unit_of_work), self._performer)


def _terms_of(given: object) -> Terms | None:
    return given._unit_of_work.terms if isinstance(given, Unit) else None
