"""``Units``: units of work for threads."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ticketlock._decorating import Key
from ticketlock.errors import TicketLockError
from ticketlock.units._access import Denied, check_access
from ticketlock.units._administration import OpenUnit, open_units
from ticketlock.units._heads import Heads
from ticketlock.units._marks import Marks
from ticketlock.units._outcomes import Outcome
from ticketlock.units._plain import Visible, clean, visible
from ticketlock.units._reading import COMMITTED, SERIALIZABLE, Isolation
from ticketlock.units._refusing import as_a_unit_request
from ticketlock.units._repairing import FoundMark, repair
from ticketlock.units._settings import Settings
from ticketlock.units._sweeping import Swept
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.units._terms import Engine, HeldLock, Terms, Under
from ticketlock.units._transactional import AGAIN, TRANSACTIONAL, Wishes
from ticketlock.units._turns import Contended, Locks, Turn, check_locks
from ticketlock.units._unit import Unit
from ticketlock.units._units_table import UnitsTable
from ticketlock.units._verbs import Verbs
from ticketlock.wire._clocks import Clocks, SystemClocks

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

R = TypeVar("R")
Seconds = Any


class Units:
    """Units of work: ACID transactions over items of any tables of one account and Region.

        units = Units("units")
        accounts = units.table("accounts")
        with units.begin() as unit:
            unit.update(accounts, {"id": "a"}, "SET balance = balance - :n", {":n": 10}, condition="balance >= :n")
            unit.update(accounts, {"id": "b"}, "SET balance = balance + :n", {":n": 10})

    Args:
        table_name: a table of the units' own, as ``create_units_table`` makes it.
        client: a DynamoDB client of your own: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        prefix: what the attributes begin with that units add to your items: 1 to 16 bytes, without ``.[]``.
        timeout: for how long a unit waits for others that are in its way.
        locks: a ``LockClient``: then calls of ``transactional`` that met others stand in line for the items.
        clocks: where the time comes from.
        sleep: how to wait, in seconds.

    Attributes:
        VISIBLE: for your own Query or Scan: the filter that leaves out what units have not inserted yet.

    Raises:
        InvalidUnitRequest: names the argument that is wrong.
        ValueError: the client is not usable; says which setting, and what it should be.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: "DynamoDBClient | None" = None,
        prefix: str = "_tlu",
        timeout: Seconds = 10,
        locks: Locks | None = None,
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        check_locks(locks)
        self._locks, self._contended = locks, Contended()
        self._clocks = clocks if clocks is not None else SystemClocks()
        with as_a_unit_request(table_name=table_name, client=client):
            self._performer = UnitsTable(table_name, client=client, clocks=self._clocks, sleep=sleep)
        self._settings = Settings(table_name, Marks(prefix), timeout)
        self.VISIBLE: Visible = visible(self._settings.marks)
        self._tables = Tables(table_name)

    def table(self, name: str, *, guarded: bool | None = None) -> UnitTable:
        """A table of yours, by its name or its ARN: DynamoDB is asked for its key, once.

        Args:
            name: the name or the ARN.
            guarded: whether a unit that has queried a partition at ``SERIALIZABLE`` conflicts with units that insert
                into it. Who inserts commits by marks then. All that insert into the table have to say so, and before
                they use it otherwise. None: as it was said before, and at first no.

        Raises:
            InvalidUnitRequest: it is of another account or Region, or the units' own; or it was asked for with another
                ``guarded`` before, or is to be guarded and has local secondary indexes.
            TableNotFound: there is none.
            TableError: it could not be asked for.
        """
        return self._performer.follow(self._tables.table(name, guarded=guarded))

    def begin(
        self,
        *,
        name: str | None = None,
        isolation: Isolation = SERIALIZABLE,
        under: HeldLock | None = None,
        timeout: Seconds | None = None,
        engine: Engine | None = None,
    ) -> Unit:
        """A new unit; nothing is sent yet.

        Args:
            name: text that stands for what the unit does: of all units of one name one is committed, for 30 days.
                Those that come later are ``repeated`` and write nothing.
            isolation: of reads that say nothing else.
            under: a held lock, as a ``Lease`` or a ``Fence``: the unit is committed only while it is held, with this
                very fencing token.
            timeout: as of ``Units``.
            engine: ``"native"``: in one request, up to 100 items and 4 MB, or not at all; ``"marked"``: by marks,
                whatever its size. None, which is best: natively where it fits.

        Raises:
            InvalidUnitRequest: names the argument that is wrong.
        """
        terms = self._settings.terms(
            self._clocks, name=name, isolation=isolation, under=under, timeout=timeout, engine=engine
        )
        return self._unit(terms)[0]

    def resume(self, unit: str) -> Unit:
        """Go on with a saved unit, with all that it has read and stated; who did before can commit or save it no more.

        If it is committed already, the unit is ``repeated``, and writes nothing.

        Args:
            unit: what ``Unit.save`` has returned.

        Raises:
            InvalidUnitRequest: no unit was saved under that id, or with another ``prefix``.
            UnitRolledBack: it was rolled back, its time is over, or its name was used or given up since: that ends it.
            UnitForgotten: there is no record of it any more.
            TableError: a table could not be used; resume it again.
        """
        resumed = self._performer.follow(self._settings.resume(self._clocks, self._tables, unit))
        made, verbs = self._unit(resumed.terms)
        verbs.goes_on(resumed)
        return made

    def rollback(self, unit: str) -> Outcome:
        """End a unit that was saved, or is on its way by marks, wherever it is; what was committed stays so.

        Args:
            unit: its id.

        Returns:
            ``ROLLED_BACK``; or ``COMMITTED``, if it comes too late; or ``FORGOTTEN``.

        Raises:
            InvalidUnitRequest: that is no id.
            TableError: the table could not be used.
        """
        return self._performer.follow(self._settings.roll_back(unit))

    def end_owner(self, owner: str) -> list[str]:
        """Roll back every unit that was saved under an owner and is pending; a later save under it is refused.

        May be repeated, and called beside running units: what was committed stays so. It reads the rows of that owner
        alone, whatever the table holds. Saves are refused for 30 days.

        Args:
            owner: as in ``Unit.save``.

        Returns:
            The ids of the units that it has rolled back.

        Raises:
            InvalidUnitRequest: it can be no owner.
            TableError: the table could not be used; call it again.
        """
        return self._performer.follow(self._settings.end_owner(owner))

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
    ) -> Callable[[Callable[..., R]], Callable[..., R]]: ...

    @overload
    def transactional(
        self,
        *,
        tries: int = 10,
        unit_as: str = "unit",
        name: Key,
        isolation: Isolation = SERIALIZABLE,
        timeout: Seconds | None = None,
        under: Under | None = None,
    ) -> Callable[[Callable[..., R]], Callable[..., R | None]]: ...

    def transactional(
        self,
        *,
        tries: int = 10,
        unit_as: str = "unit",
        name: Key | None = None,
        isolation: Isolation = SERIALIZABLE,
        timeout: Seconds | None = None,
        under: Under | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function: each call is a unit, which commits when the function returns.

            @units.transactional(name="transfer-{transfer_id}")
            def transfer(transfer_id, giver, taker, amount, *, unit): ...

        What the function raises rolls back, and goes on. After ``UnitConflict``, ``UnitRolledBack`` and
        ``UnitContended`` the function runs again, in a new unit of the age of the first: what it does beside the unit
        it must be able to do twice. It waits before that: up to 25 ms, twice as long each time, at most a second. If
        its own unit is committed by then, or may be, the error is raised.

        With ``locks`` it stands in line instead, in arrival order, for the items that it has met others at, holds their
        locks for the next try, and releases them afterwards. Calls that come to such an item meanwhile stand aside
        before they read it, and run again in their turn, which is no try. The line is advice: a call whose turn does
        not come within ``timeout`` runs again all the same.

        Args:
            tries: how many times it runs at most; then the last error is raised.
            unit_as: the keyword argument in which the function gets its ``Unit``.
            name: as of ``begin``: a callable that is given the call's arguments and returns text or a whole number, or
                a template with the names of the function's parameters. A call whose name was committed before does not
                run the function, and returns None.
            isolation, timeout: as of ``begin``.
            under: a callable that is given the call's arguments and returns a held lock, such as a ``Fence``: each try
                is committed only while it is held. ``LockLost`` ends the call.

        Raises:
            InvalidUnitRequest: at once, for an argument that is wrong, or a name that can be none; from a call whose
                name is neither text nor a whole number, or whose lock is none.
            TypeError: at once, for a coroutine function (``ticketlock.aio`` has ``Units`` for those), a generator
                function, or one that does not take the unit; from a call that returns an awaitable or an iterator, of
                which nothing has run and nothing is committed.
        """
        wishes = Wishes(tries, unit_as, name, isolation, timeout, under)
        wishes.check(self._settings, self._clocks)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            TRANSACTIONAL.check_begins_at_once(function)
            calls = wishes.of(function)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                turn = Turn(self._contended) if self._locks is not None else None
                tries = calls.tries(self._settings, self._clocks, args, kwargs, turn)
                with ExitStack() as line:
                    while True:
                        unit, verbs = self._unit(tries.terms, turn)
                        try:
                            with unit:
                                if unit.repeated:
                                    return None
                                result = function(*args, **{**kwargs, unit_as: unit})
                                TRANSACTIONAL.check_is_over(function, result)
                                return result
                        except AGAIN as error:
                            if not verbs.life.may_run_again or tries.is_the_last(error):
                                raise
                        if turn is not None and turn.is_due:
                            line.close()
                            self._stand_in_line(turn, tries.terms.timeout_ms, line)
                        self._performer.drive(tries.wait())

            return call

        return decorate

    def clean(self, item: Mapping[str, Any]) -> dict[str, Any] | None:
        """An item as your own reads find it, without the attributes of units; None if it is not there yet.

        Args:
            item: in Python values or in AttributeValues.

        Raises:
            InvalidUnitRequest: it is no item.
        """
        return clean(self._settings.marks, item)

    def check_access(self, tables: Iterable[UnitTable] = ()) -> list[Denied]:
        """Try what units need on their own table and on yours, by requests that write nothing.

        A write is tried with a condition that never holds: it is refused for that, or for the lack of a permission.

        Args:
            tables: from ``table``.

        Returns:
            What this caller may not do; nothing if all is in order.

        Raises:
            TableNotFound: the units' own table is not there.
            RequestNotApplied: no answer came.
        """
        return self._performer.follow(check_access(self._settings.units_table, self._tables, tables))

    def get(
        self, table: UnitTable, key: Mapping[str, Any], *, isolation: Isolation = COMMITTED
    ) -> dict[str, Any] | None:
        """An item without the attributes of units, outside of any unit; see ``Unit.get``."""
        return self._outside(isolation).get(table, key)

    def get_all(
        self, wanted: Sequence[tuple[UnitTable, Mapping[str, Any]]], *, isolation: Isolation = COMMITTED
    ) -> list[dict[str, Any] | None]:
        """Items of one instant, outside of any unit; see ``Unit.get_all``."""
        return self._outside(isolation).get_all(wanted)

    def query(
        self,
        table: UnitTable,
        key_condition: Any,
        *,
        filter: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        index: str | None = None,
        after: Mapping[str, Any] | None = None,
        limit: int | None = None,
        forward: bool = True,
        isolation: Isolation = COMMITTED,
    ) -> list[dict[str, Any]]:
        """The items of a range, outside of any unit; see ``Unit.query``.

        At ``SERIALIZABLE`` they are checked once more at the end, as by a unit that reads nothing else.

        Raises:
            UnitConflict: others have changed them meanwhile, at ``SERIALIZABLE``.
            InvalidUnitRequest, UnitContended, TableError: as of ``Unit.query``.
        """
        with self._outside(isolation) as unit:
            return unit.query(
                table,
                key_condition,
                filter=filter,
                values=values,
                names=names,
                index=index,
                after=after,
                limit=limit,
                forward=forward,
            )

    def outcome(self, *, name: str | None = None, unit: str | None = None) -> Outcome:
        """What has become of a name, or of a unit by its id; for good, unless it is PENDING.

        A name that no unit has been committed under is given up: a unit that is on its way with it ends with
        ``UnitRolledBack``, however late its request comes; another may be begun. A unit that was committed natively,
        without a name, has left no record: it is FORGOTTEN. That says nothing of one that has not begun its commit.

        Args:
            name, unit: one of them.

        Raises:
            InvalidUnitRequest: neither, or both.
            TableError: the table could not be used.
        """
        return self._performer.follow(self._settings.outcome(name, unit))

    def sweep(self, *, parts: int = 1, timeout: Seconds | None = None) -> Swept:
        """End, finish and close what units have left that were killed, wherever they ran; call it now and then.

        Nobody waits for it: whoever comes to an item of such a unit does with that item what is to be done.

        Args:
            parts: how many parts of the table of units are swept at once: 1 to 32.
            timeout: for how long, up to 900 seconds: then it stops, and the next sweep with a time-out and as many
                parts goes on there. None: to the end of the table.

        Raises:
            InvalidUnitRequest: names the argument that is wrong.
            TableError: a part of the table could not be read; the others are swept.
        """
        return self._performer.follow(self._settings.sweep(self._clocks, parts, timeout))

    def open_units(self) -> list[OpenUnit]:
        """The units that are pending, or have ended and are not closed, the oldest first: reads the whole table.

        A row that no unit has written is left out, and a warning names it.

        Raises:
            TableError: the table could not be used.
        """
        return self._performer.follow(open_units(Heads(self._settings.units_table)))

    def repair(self, table: UnitTable, *, write: bool = False, lost_records: bool = False) -> list[FoundMark]:
        """Find the marks in a table of yours, and do with each what its unit's record says: reads the whole table.

        For marks that no sweep finds: of a table that was restored, or beside a table of units that was lost. It may
        run beside running units, and be repeated.

        Args:
            table: from ``table``.
            write: whether it is done; otherwise it is only told what would be.
            lost_records: whether marks are taken off whose records are missing, too. Safe only if no unit runs with
                another table of units.

        Returns:
            Each mark, and what was done about it, or would be.

        Raises:
            InvalidUnitRequest: the table is of another ``Units``; nothing was written.
            TableError: a table could not be used. What was done by then is done.
        """
        heads, marks, own = Heads(self._settings.units_table), self._settings.marks, self._tables.check_own(table)
        return self._performer.follow(repair(own, heads, marks, write=write, lost_records=lost_records))

    def _stand_in_line(self, turn: Turn, timeout_ms: int, line: ExitStack) -> None:
        assert self._locks is not None
        try:
            group = self._locks.acquire_all(**turn.wishes(timeout_ms))
        except TicketLockError as error:
            turn.is_missed(error)
            return
        for lease in group.leases:
            line.callback(lease.release, best_effort=True)
        turn.has_come()

    def _outside(self, isolation: Isolation) -> Unit:
        return self._unit(self._settings.terms_outside(self._clocks, isolation))[0]

    def _unit(self, terms: Terms, turn: Turn | None = None) -> tuple[Unit, Verbs]:
        verbs = Verbs(terms, self._settings.units_table, self._tables, self._settings.marks, turn)
        return Unit(verbs, self._performer.follows(verbs)), verbs
