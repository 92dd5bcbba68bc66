"""A unit of work for threads."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ticketlock.units._asked import in_python
from ticketlock.units._before_and_after import item_after, item_before
from ticketlock.units._client import UnitClient
from ticketlock.units._low_level import LowLevelVerbs
from ticketlock.units._queries import items_found
from ticketlock.units._reading import Isolation
from ticketlock.units._settings import keeping
from ticketlock.units._tables import UnitTable
from ticketlock.units._values import PYTHON
from ticketlock.units._verbs import Verbs
from ticketlock.wire._requests import ForkingSteps

Follow = Callable[[ForkingSteps[Any]], Any]
Seconds = Any


class Unit:
    """One unit of work: reads and statements on items of any tables, which are committed together or not at all.

    Use it in ``with``: the end of the block commits; what is raised inside rolls back, and goes on. It belongs to one
    thread at a time. Every statement is evaluated at once, on the item as the unit has it. What a signal handler raises
    within a method goes on, and the unit is over: ``UnitFinished`` says from then on what became of it.

    Attributes:
        id: its name; of one that was resumed, that under which it was saved.
        client: the same unit in the words of the low-level API.
    """

    def __init__(self, verbs: Verbs, follow: Follow) -> None:
        self.id = verbs.terms.id
        self._verbs = verbs
        self._follow = follow
        self.client = UnitClient(LowLevelVerbs(verbs), follow)

    @property
    def repeated(self) -> bool:
        """Whether a unit of the same name was committed before: then this one writes nothing."""
        return self._verbs.repeated

    def get(
        self, table: UnitTable, key: Mapping[str, Any], *, isolation: Isolation | None = None
    ) -> dict[str, Any] | None:
        """An item with the unit's own writes, as boto3's Table resource has it; None where there is none.

        Args:
            table: from ``Units.table``.
            key: its whole key.
            isolation: another level than the unit's.

        Raises:
            InvalidUnitRequest: the key does not fit the table.
            UnitContended: another unit was in the way until the time-out.
            TableError: the table could not be used.
        """
        found: dict[str, Any] | None
        (found,) = self._follow(self._verbs.get([(table, key)], isolation, PYTHON))
        return found

    def get_all(
        self, wanted: Sequence[tuple[UnitTable, Mapping[str, Any]]], *, isolation: Isolation | None = None
    ) -> list[dict[str, Any] | None]:
        """Several items of one instant, up to 100 of them in one request; of more, each 100.

        At ``UNCOMMITTED`` each is read by itself, 100 of them in one request.

        Args:
            wanted: tables with keys.
            isolation: as of ``get``, which says what is raised as well.
        """
        found: list[dict[str, Any] | None] = self._follow(self._verbs.get(wanted, isolation, PYTHON))
        return found

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
        isolation: Isolation | None = None,
    ) -> list[dict[str, Any]]:
        """The items of one partition that a key condition finds, in the order of their sort keys.

        Args:
            table: from ``Units.table``.
            key_condition: an equation of the partition key, and up to one condition of the sort key: text, or made with
                ``boto3.dynamodb.conditions.Key``.
            filter: which of them are returned: text, or made with ``boto3.dynamodb.conditions.Attr``.
            values, names: what the placeholders of the expressions stand for.
            index: the name of a secondary index. What it shows is eventually consistent, at ``COMMITTED`` at most, and
                does not hold until the commit: a unit whose level is ``SERIALIZABLE`` reads it at ``COMMITTED``.
            after: an item of an earlier query, or its key: those behind it are returned.
            limit: the most items to return; None for all, however many requests they take.
            forward: False for the other order.
            isolation: another level than the unit's.

        Returns:
            The items with the unit's own writes, without the attributes of units; of an index what it has of them.

        Raises:
            InvalidUnitRequest: names the argument that is wrong, and what is allowed.
            UnitContended: another unit was in the way until the time-out.
            TableError: the table could not be used.
        """
        given = in_python(key_condition, filter, values, names, index, after, limit, forward)
        found: list[dict[str, Any]] = self._follow(items_found(self._verbs.query(table, given, isolation)))
        return found

    def put(
        self,
        table: UnitTable,
        item: Mapping[str, Any],
        *,
        condition: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Put an item in the place of whatever has its key.

        Args:
            table: from ``Units.table``.
            item: the whole item.
            condition: a condition expression, as text or made with ``boto3.dynamodb.conditions.Attr``.
            values, names: what the placeholders of the expressions stand for.

        Returns:
            The item that it replaces; None where there was none.

        Raises:
            ConditionFailed: the condition does not hold; nothing of the statement is in the unit, which may go on.
            InvalidUnitRequest: names the field that is wrong, and what is allowed.
            ItemTooLarge: DynamoDB would not take the item.
            UnitConflict: others have changed the item since the unit read it at a lower level; the unit is over.
            UnitContended, TableError: as of ``get``: the item is read first.
        """
        found: dict[str, Any] | None = self._follow(
            item_before(self._verbs.put(table, item, condition, values, names, PYTHON))
        )
        return found

    def update(
        self,
        table: UnitTable,
        key: Mapping[str, Any],
        update: str,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        *,
        condition: Any = None,
        blind: bool = False,
    ) -> dict[str, Any] | None:
        """Change an item; it is made where there is none.

        Args:
            table, key: which.
            update: an update expression.
            values, names, condition: as of ``put``.
            blind: send it as it is, without reading the item first: two units that only count up do not conflict then.
                Whether its condition holds is found out at the commit. One that DynamoDB might refuse for its size, or
                for the key of an index, or that only takes away, is read first all the same.

        Returns:
            The item after it; None of a blind one.

        Raises:
            ConditionFailed, InvalidUnitRequest, ItemTooLarge, UnitContended, TableError: as of ``put``.
        """
        steps = self._verbs.update(table, key, update, condition, values, names, PYTHON, blind=blind)
        found: dict[str, Any] | None = self._follow(item_after(steps))
        return found

    def delete(
        self,
        table: UnitTable,
        key: Mapping[str, Any],
        *,
        condition: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Delete an item, if there is one.

        Args:
            table, key: which.
            condition, values, names: as of ``put``, which says what is raised as well.

        Returns:
            The item that is deleted; None where there was none.
        """
        found: dict[str, Any] | None = self._follow(
            item_before(self._verbs.delete(table, key, condition, values, names, PYTHON))
        )
        return found

    def check(
        self,
        table: UnitTable,
        key: Mapping[str, Any],
        condition: Any,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Make sure that a condition holds for an item, now and at the instant of the commit.

        Args:
            table, key: which.
            condition, values, names: as of ``put``, which says what is raised as well.

        Returns:
            The item; None where there is none.
        """
        found: dict[str, Any] | None = self._follow(
            item_before(self._verbs.check(table, key, condition, values, names, PYTHON))
        )
        return found

    def commit(self) -> None:
        """Write everything, or nothing; a second time does nothing.

        Raises:
            UnitConflict: others have changed what the unit has read; nothing was written, run it again.
            ConditionFailed: the condition of a blind update does not hold; nothing was written.
            LockLost: the lock that it is under is not held any more; nothing was written.
            UnitContended: another unit was in the way until the time-out; nothing was written, run it again.
            UnitRolledBack: somebody else has rolled it back; nothing was written, run it again.
            UnitChanged: another process has resumed the saved unit since; nothing of this one was written.
            UnitTooLarge: there is too much of it; nothing was written.
            UnitFinished: it was rolled back before, or an interrupt has left its outcome unknown. The end of the block
                raises it, too, if an interrupt or a statement's ``UnitConflict`` was caught inside, which had ended it.
            OutcomeUnknown: no answer came; it may or may not be committed. Of a unit with a name, ``Units.outcome``
                finds out which.
            TableError: another one; nothing was written.
        """
        with self._verbs.life.telling():
            self._follow(self._verbs.commit())

    def rollback(self) -> None:
        """Forget everything; nothing was written. A second time does nothing. Of a resumed unit this ends it for all.

        Raises:
            UnitFinished: it is committed, or may be.
            UnitChanged, UnitForgotten, TableError: of a resumed one: it was not rolled back.
        """
        self._follow(self._verbs.rollback())

    def save(self, *, keep_for: Seconds = 86_400, owner: str | None = None) -> str:
        """Hand the unit on: write down what it has read and stated, for ``Units.resume``; this object is over.

        Nothing is marked or written in your items. What was updated blindly is read and evaluated now.

        Args:
            keep_for: for how many seconds: 1 s to 366 days. Afterwards it is rolled back.
            owner: text: whose end is its end: an execution of a workflow, by ``unit_owner``. ``Units.end_owner`` rolls
                it back, unless a later save says another owner, or none.

        Returns:
            Its id, for whoever goes on with it.

        Raises:
            InvalidUnitRequest: no such time.
            ConditionFailed, ItemTooLarge: of a blind update; the unit goes on.
            UnitChanged: another process has resumed it since; nothing of this one was saved.
            UnitRolledBack, UnitForgotten: it has ended meanwhile, or its owner has.
            OutcomeUnknown: it may or may not be saved as it is now; ``resume`` finds out.
            TableError: it was not saved, and goes on.
        """
        with self._verbs.life.telling():
            saved: str = self._follow(self._verbs.save(keeping(keep_for, owner)))
        return saved

    def __enter__(self) -> Self:
        self._follow(self._verbs.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._follow(self._verbs.leave(error))
