"""``Units``: units of work for threads."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ticketlock._decorating import Key
from ticketlock.errors import TicketLockError
from ticketlock.units._access import Denied, check_access
from ticketlock.units._heads import Heads
from ticketlock.units._interrupts import ending
from ticketlock.units._marks import Marks
from ticketlock.units._outcomes import Outcome
from ticketlock.units._plain import Visible, clean, visible
from ticketlock.units._reading import COMMITTED, SERIALIZABLE, Isolation
from ticketlock.units._refusing import as_a_unit_request
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._settings import Settings
from ticketlock.units._sweeping import Swept, sweep
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.units._terms import Engine, HeldLock, Terms
from ticketlock.units._transactional import AGAIN, TRANSACTIONAL, Wishes
from ticketlock.units._unit import Unit
from ticketlock.units._verbs import Verbs
from ticketlock.wire._actions import T
from ticketlock.wire._clocks import Clocks, SystemClocks
from ticketlock.wire._performer import Performer
from ticketlock.wire._requests import ForkingSteps

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

R = TypeVar("R")
Seconds = Any


class UnitsTable(Performer):
    """The units' own table, and what reaches all others."""

    _time_check = TIME_CHECK

    def follow(self, steps: ForkingSteps[T]) -> T:
        """Perform what steps ask for."""
        return self.drive(self._driver.follow(steps))

    def follows(self, verbs: Verbs) -> Callable[[ForkingSteps[Any]], Any]:
        """What performs the steps of one unit, which is over where they are interrupted."""

        def follow(steps: ForkingSteps[T]) -> T:
            try:
                return self.drive(ending(verbs, self._driver, steps))
            except TicketLockError:
                raise
            except BaseException:
                # Perhaps before its first step.
                verbs.abandon()
                raise

        return follow


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
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clocks = clocks if clocks is not None else SystemClocks()
        with as_a_unit_request(table_name=table_name, client=client):
            self._performer = UnitsTable(table_name, client=client, clocks=self._clocks, sleep=sleep)
        self._settings = Settings(table_name, Marks(prefix), timeout)
        self.VISIBLE: Visible = visible(self._settings.marks)
        self._tables = Tables(table_name)

    def table(self, name: str) -> UnitTable:
        """A table of yours, by its name or its ARN: DynamoDB is asked for its key, once.

        Raises:
            InvalidUnitRequest: it is of another account or Region, or the units' own.
            TableNotFound: there is none.
            TableError: it could not be asked for.
        """
        return self._performer.follow(self._tables.table(name))

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
            under: a held lock: the unit is committed only while it is held, with this very fencing token.
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

    @overload
    def transactional(
        self,
        *,
        tries: int = 10,
        unit_as: str = "unit",
        name: None = None,
        isolation: Isolation = SERIALIZABLE,
        timeout: Seconds | None = None,
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
    ) -> Callable[[Callable[..., R]], Callable[..., R | None]]: ...

    def transactional(
        self,
        *,
        tries: int = 10,
        unit_as: str = "unit",
        name: Key | None = None,
        isolation: Isolation = SERIALIZABLE,
        timeout: Seconds | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function: each call is a unit, which commits when the function returns.

            @units.transactional(name="transfer-{transfer_id}")
            def transfer(transfer_id, giver, taker, amount, *, unit): ...

        What the function raises rolls back, and goes on. After ``UnitConflict``, ``UnitRolledBack`` and
        ``UnitContended`` the function runs again, in a new unit of the age of the first: what it does beside the unit
        it must be able to do twice. It waits before that: up to 25 ms, twice as long each time, at most a second. If
        its own unit is committed by then, or may be, the error is raised.

        Args:
            tries: how many times it runs at most; then the last error is raised.
            unit_as: the keyword argument in which the function gets its ``Unit``.
            name: as of ``begin``: a callable that is given the call's arguments and returns text or a whole number, or
                a template with the names of the function's parameters. A call whose name was committed before does not
                run the function, and returns None.
            isolation, timeout: as of ``begin``.

        Raises:
            InvalidUnitRequest: at once, for an argument that is wrong, or a name that can be none; from a call whose
                name is neither text nor a whole number.
            TypeError: at once, for a coroutine function (``ticketlock.aio`` has ``Units`` for those), a generator
                function, or one that does not take the unit; from a call that returns an awaitable or an iterator, of
                which nothing has run and nothing is committed.
        """
        wishes = Wishes(tries, unit_as, name, isolation, timeout)
        wishes.check(self._settings, self._clocks)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(function, staticmethod | classmethod):
                return type(function)(decorate(function.__func__))
            TRANSACTIONAL.check_begins_at_once(function)
            calls = wishes.of(function)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                tries = calls.tries(self._settings, self._clocks, args, kwargs)
                while True:
                    unit, verbs = self._unit(tries.terms)
                    try:
                        with unit:
                            if unit.repeated:
                                return None
                            result = function(*args, **{**kwargs, unit_as: unit})
                            TRANSACTIONAL.check_is_over(function, result)
                            return result
                    except AGAIN:
                        if not verbs.life.may_run_again or tries.is_the_last():
                            raise
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
        return self.begin(isolation=isolation).get(table, key)

    def get_all(
        self, wanted: Sequence[tuple[UnitTable, Mapping[str, Any]]], *, isolation: Isolation = COMMITTED
    ) -> list[dict[str, Any] | None]:
        """Items of one instant, outside of any unit; see ``Unit.get_all``."""
        return self.begin(isolation=isolation).get_all(wanted)

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

    def sweep(self) -> Swept:
        """End, finish and close what units have left that were killed, wherever they ran; call it now and then.

        Nobody waits for it: whoever comes to an item of such a unit does with that item what is to be done.
        """
        return self._performer.follow(sweep(Heads(self._settings.units_table), self._settings.marks))

    def _unit(self, terms: Terms) -> tuple[Unit, Verbs]:
        verbs = Verbs(terms, self._settings.units_table, self._tables, self._settings.marks)
        return Unit(verbs, self._performer.follows(verbs)), verbs
