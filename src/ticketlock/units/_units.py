"""``Units``: units of work for threads."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ticketlock.errors import InvalidLockRequest, InvalidUnitRequest
from ticketlock.units._heads import Heads
from ticketlock.units._marks import Marks
from ticketlock.units._outcomes import Outcome
from ticketlock.units._reading import COMMITTED, SERIALIZABLE, Isolation
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._settings import Settings
from ticketlock.units._sweeping import Swept, sweep
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.units._unit import Unit
from ticketlock.units._verbs import Engine, HeldLock, Verbs
from ticketlock.wire._actions import T
from ticketlock.wire._clocks import Clocks, SystemClocks
from ticketlock.wire._performer import Performer
from ticketlock.wire._requests import ForkingSteps

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Seconds = Any


class UnitsTable(Performer):
    """The units' own table, and what reaches all others."""

    _time_check = TIME_CHECK

    def follow(self, steps: ForkingSteps[T]) -> T:
        """Perform what steps ask for."""
        return self.drive(self._driver.follow(steps))


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
        prefix: what the attributes begin with that units add to your items.
        timeout: for how long a unit waits for others that are in its way.
        clocks: where the time comes from.
        sleep: how to wait, in seconds.

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
        try:
            self._performer = UnitsTable(table_name, client=client, clocks=self._clocks, sleep=sleep)
        except InvalidLockRequest as error:
            raise InvalidUnitRequest(
                error.field, table_name if error.field == "table_name" else client, error.allowed
            ) from None
        self._settings = Settings(table_name, Marks(prefix), timeout)
        self._tables = Tables()

    def table(self, name: str) -> UnitTable:
        """A table of yours, by its name: DynamoDB is asked for its key, once.

        Raises:
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
        verbs = Verbs(terms, self._settings.units_table, self._tables, self._settings.marks)
        return Unit(verbs, self._performer.follow)

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
        without a name, has left no record: it is FORGOTTEN.

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
