"""A unit of work for threads."""

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, overload

from ticketlock._checks import Seconds
from ticketlock.units._like_boto3 import LowLevelUnitOfWork, SdkClient, UnitClient
from ticketlock.units._statements import Isolation, QueryRequest, SaveOptions, StatementRequest, with_tables
from ticketlock.units._unit_of_work import UnitOfWork
from ticketlock.units._words import PYTHON, ItemKey, Pairs, UnitTable
from ticketlock.wire import ForkingSteps

PerformSteps = Callable[[ForkingSteps[Any]], Any]

_log = logging.getLogger("ticketlock")


class UnitFace:
    """A unit of one of the two faces."""

    def __init__(self, unit_of_work: UnitOfWork, sdk: SdkClient) -> None:
        self.id = unit_of_work.terms.id
        self._unit_of_work = unit_of_work
        self._sdk = sdk

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}, {self._unit_of_work.state.in_words}>"

    @property
    def result(self) -> Any:
        """What the commit of a unit with a name, or of a resumed one, keeps for those who repeat it: None, JSON or
        values of DynamoDB's types, up to 8 KB. Of a ``repeated`` unit the first one's; to set it does nothing then. A
        ``save`` refuses it: the process that commits the unit sets it.

        Raises:
            InvalidUnitRequest: when it is set: it cannot be kept, or nobody could ask for it.
            UnitFinished: when it is set: the unit has ended.
            UnsupportedFormat: a newer version has written it.
        """
        return self._unit_of_work.result

    @result.setter
    def result(self, result: Any) -> None:
        self._unit_of_work.keep(result)

    def __del__(self) -> None:
        # An interrupt within `__init__` leaves none.
        made: UnitOfWork | None = vars(self).get("_unit_of_work")
        if made is not None and made.is_waiting_for_its_end:
            warning = (
                f"the unit {self.id} was never ended, and has written nothing: use it in `with`, or call `commit` or "
                "`rollback`"
            )
            # Python shows no such warning to a plain program.
            _log.warning(warning)
            warnings.warn(warning, ResourceWarning, stacklevel=2, source=self)


class Unit(UnitFace):
    """One unit of work: reads and writes of items in any tables, which are committed together or not at all.

    Use it in ``with``: the end of the block commits; an exception inside the block rolls back, and is raised to you. A
    unit belongs to one thread at a time. Every statement is evaluated at once, on the item as the unit has it. If a
    signal handler raises within a method, the exception is raised to you, and the unit is over: using it again raises
    ``UnitFinished``, which says how it ended.

    Attributes:
        id: identifies the unit; of a resumed unit, the id under which it was saved.
    """

    def __init__(self, unit_of_work: UnitOfWork, perform: PerformSteps, sdk: SdkClient) -> None:
        super().__init__(unit_of_work, sdk)
        self._perform = perform
        self._client: UnitClient | None = None

    @property
    def client(self) -> "UnitClient":
        """The same unit with the parameters of the low-level API."""
        if self._client is None:
            self._client = UnitClient(LowLevelUnitOfWork(self._unit_of_work, self._sdk), self._perform)
        return self._client

    @property
    def repeated(self) -> bool:
        """Whether its name was committed before, or its step saved: then this unit writes nothing."""
        return self._unit_of_work.repeated

    def get(self, table: UnitTable, key: ItemKey, *, isolation: Isolation | None = None) -> dict[str, Any] | None:
        """An item with the unit's own writes, in the values of boto3's Table resource; None if there is none.

        Args:
            table: from ``Units.table``.
            key: its whole key.
            isolation: a level for this read; by default the unit's.

        Raises:
            InvalidUnitRequest: the key does not fit the table, or the level is not allowed.
            UnitConflict: the call is one of ``transactional``, and other calls queue for the item: the next try queues
                for it too. The unit is over.
            UnitContended: at ``READ_LOCK``: another unit blocked it until the time-out. The unit is over.
            UnitRolledBack, UnitForgotten: at ``READ_LOCK``: another process has ended the unit.
            ItemTooLarge: at ``READ_LOCK``: the item has no room for a mark; the unit is over. Or a blind update of the
                item makes it larger than DynamoDB accepts.
            ConditionFailed: the condition of a blind update of the item does not hold.
            TableError: the table could not be used.
        """
        found: dict[str, Any] | None
        (found,) = self._perform(self._unit_of_work.get([(table, key)], isolation, PYTHON))
        return found

    def get_all(
        self, table: UnitTable | Pairs, keys: Iterable[ItemKey] | None = None, *, isolation: Isolation | None = None
    ) -> list[dict[str, Any] | None]:
        """Several items: up to 100 are of one instant and take one request; beyond that, each group of 100.

        That includes items that the unit has read before. At ``UNCOMMITTED`` each item is read by itself, 100 of them
        in one request.

        Args:
            table, keys: a table and keys of it; or, in place of the table, pairs of a table and a key.
            isolation: as for ``get``.

        Raises:
            UnitConflict: an item that the unit had read before has changed; below ``SERIALIZABLE``, one that it has
                written. The unit is over. Or as for ``get``, which lists the other errors.
        """
        wanted = with_tables(table, keys, "keys")
        found: list[dict[str, Any] | None] = self._perform(self._unit_of_work.get(wanted, isolation, PYTHON))
        return found

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
        isolation: Isolation | None = None,
    ) -> list[dict[str, Any]]:
        """The items of one partition that a key condition selects, in the order of their sort keys.

        Args:
            table: from ``Units.table``.
            key_condition: an equation of the partition key, and at most one condition on the sort key: text, or made
                with ``boto3.dynamodb.conditions.Key``. Of an index whose keys have several attributes: an equation of
                each of the partition key, and conditions on the first ones of the sort key, equations but for the last.
            values, names: what the placeholders of the expressions stand for.
            filter: which of them are returned: text, or made with ``boto3.dynamodb.conditions.Attr``. It names no key,
                and only what the index has.
            index: the name of a secondary index. Its items are eventually consistent, at ``COMMITTED`` at most, and the
                commit does not check them: a unit whose level is ``SERIALIZABLE`` reads an index at ``COMMITTED``.
            after: an item of an earlier query, or its key: the query returns those after it.
            limit: the most items to return; None for all, however many requests they take.
            forward: False for reverse order.
            isolation: a level for this query; by default the unit's.

        Returns:
            The items with the unit's own writes, without the attributes of units; from an index, the attributes that it
            projects.

        Raises:
            InvalidUnitRequest: names the argument that is wrong, and what is allowed.
            UnitConflict: the unit is over. At ``SERIALIZABLE``: an item of the range is not as the unit has read it
                before, for example by ``prefetch``. Or the call is one of ``transactional``, and other calls queue for
                an item that it has come to.
            ConditionFailed, ItemTooLarge: of a blind update of the table's items, which are read now.
            TableError: the table could not be used.
        """
        request = QueryRequest(
            key_condition=key_condition,
            filter=filter,
            values=values,
            names=names,
            index=index,
            after=after,
            limit=limit,
            forward=forward,
        )
        found: list[dict[str, Any]] = self._perform(self._unit_of_work.items(table, request, isolation))
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
        """Put an item; it replaces the item with the same key, if there is one.

        Args:
            table: from ``Units.table``.
            item: the whole item.
            condition: a condition expression, as text or made with ``boto3.dynamodb.conditions.Attr``.
            values, names: what the placeholders of the expressions stand for.

        Returns:
            The item that it replaces; None if there was none.

        Raises:
            ConditionFailed: the condition does not hold. The unit is as before the statement, and may continue.
            InvalidUnitRequest: names the field that is wrong, and what is allowed.
            ItemTooLarge: the item would be larger than DynamoDB accepts.
            UnitConflict: the item has changed since the unit read it at a lower level; the unit is over. Or as for
                ``get``: the item is read first.
            UnitContended, UnitRolledBack, UnitForgotten, TableError: as for ``get``.
        """
        request = StatementRequest("put", table, item, condition=condition, values=values, names=names)
        found: dict[str, Any] | None = self._perform(self._unit_of_work.item_before(request))
        return found

    @overload
    def update(
        self,
        table: UnitTable,
        key: ItemKey,
        update: str,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        *,
        condition: Any = None,
        blind: Literal[False] = False,
    ) -> dict[str, Any]: ...
    @overload
    def update(
        self,
        table: UnitTable,
        key: ItemKey,
        update: str,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        *,
        condition: Any = None,
        blind: bool,
    ) -> dict[str, Any] | None: ...

    def update(
        self,
        table: UnitTable,
        key: ItemKey,
        update: str,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        *,
        condition: Any = None,
        blind: bool = False,
    ) -> dict[str, Any] | None:
        """Update an item, or create it if it does not exist.

        Args:
            table, key: which item.
            update: an update expression.
            values, names, condition: as for ``put``.
            blind: send the update as it is, without reading the item first: two units that only increment do not
                conflict then. The condition is evaluated at the commit. The item is read first all the same if the
                result might be too large, if the update writes the key of an index or only removes, in a guarded table,
                and at ``READ_LOCK``.

        Returns:
            The item after the update; None with ``blind=True``. An empty one if the unit is ``repeated``.

        Raises:
            ConditionFailed, InvalidUnitRequest, ItemTooLarge, TableError: as for ``put``, as are ``UnitConflict``,
                ``UnitContended``, ``UnitRolledBack`` and ``UnitForgotten``.
        """
        request = StatementRequest("update", table, key, condition=condition, values=values, names=names, update=update)
        found: dict[str, Any] | None = self._perform(self._unit_of_work.item_after(request, blind=blind))
        return found

    def delete(
        self,
        table: UnitTable,
        key: ItemKey,
        *,
        condition: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Delete an item, if there is one.

        Args:
            table, key: which item.
            condition, values, names: as for ``put``, which lists the errors as well.

        Returns:
            The item that was deleted; None if there was none.
        """
        request = StatementRequest("delete", table, key, condition=condition, values=values, names=names)
        found: dict[str, Any] | None = self._perform(self._unit_of_work.item_before(request))
        return found

    def check(
        self,
        table: UnitTable,
        key: ItemKey,
        condition: Any,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Make sure that a condition holds for an item, now and at the instant of the commit.

        Args:
            table, key: which item.
            condition, values, names: as for ``put``, which lists the errors as well.

        Returns:
            The item; None if there is none.
        """
        request = StatementRequest("check", table, key, condition=condition, values=values, names=names)
        found: dict[str, Any] | None = self._perform(self._unit_of_work.item_before(request))
        return found

    def put_all(
        self,
        table: UnitTable | Pairs,
        items: Iterable[Mapping[str, Any]] | None = None,
        *,
        condition: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any] | None]:
        """Put many items, as ``put`` does one after the other, but read in batches: up to 100 items take a request.

        All of them are in the unit afterwards, or, if an error is raised, none.

        Args:
            table, items: a table and whole items; or, in place of the table, pairs of a table and an item. Of two
                items with one key the later one counts.
            condition, values, names: of each, as for ``put``.

        Returns:
            For each the item that it replaces; None if there was none.

        Raises:
            ConditionFailed: ``at`` and ``key`` tell of which item. The unit may continue.
            InvalidUnitRequest: names the item by its position: ``items[3].id``.
            ItemTooLarge, UnitConflict, UnitContended, UnitRolledBack, UnitForgotten, TableError: as for ``put``.
        """
        requests = StatementRequest.for_each("put", table, items, condition=condition, values=values, names=names)
        found: list[dict[str, Any] | None] = self._perform(self._unit_of_work.items_before(requests))
        return found

    def update_all(
        self,
        table: UnitTable,
        keys: Iterable[Mapping[str, Any]],
        update: str,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        *,
        condition: Any = None,
    ) -> list[dict[str, Any]]:
        """The same update of many items; see ``put_all``. A key that is given twice is updated twice.

        Args:
            table, keys: which items.
            update, values, names, condition: as for ``update``.

        Returns:
            Each item after its update.
        """
        requests = StatementRequest.for_each(
            "update", table, keys, condition=condition, values=values, names=names, update=update
        )
        found: list[dict[str, Any]] = self._perform(self._unit_of_work.items_after(requests))
        return found

    def delete_all(
        self,
        table: UnitTable | Pairs,
        keys: Iterable[ItemKey] | None = None,
        *,
        condition: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any] | None]:
        """Delete many items, those that exist; see ``put_all``.

        Args:
            table, keys: which items, as for ``get_all``.
            condition, values, names: of each, as for ``put``.

        Returns:
            For each the item that was deleted; None if there was none.
        """
        requests = StatementRequest.for_each("delete", table, keys, condition=condition, values=values, names=names)
        found: list[dict[str, Any] | None] = self._perform(self._unit_of_work.items_before(requests))
        return found

    def prefetch(self, table: UnitTable | Pairs, keys: Iterable[ItemKey] | None = None) -> None:
        """Read items so that later statements need no read: up to 100 take a request, and several are sent at once.

        Each item is read by itself, as a statement reads it; ``get_all`` reads items of one instant. The commit checks
        only those that the unit uses afterwards. At ``READ_LOCK`` all of them are marked.

        Args:
            table, keys: as for ``get_all``.

        Raises:
            The errors of ``get``.
        """
        self._perform(self._unit_of_work.prefetch(with_tables(table, keys, "keys"), PYTHON))

    def commit(self) -> None:
        """Write everything, or nothing. A second call does nothing.

        Raises:
            UnitConflict: the unit has read what has changed since; nothing was written, run it again.
            ConditionFailed: the condition of a blind update does not hold; nothing was written.
            LockLost: the lock that it is under is no longer held; nothing was written.
            UnitContended: another unit blocked it until the time-out; nothing was written, run it again.
            UnitRolledBack: it is rolled back, by another unit or process or because its name was used or given up;
                nothing was written, run it again.
            UnitChanged: another process has resumed the saved unit since; nothing of this object was written.
            UnitTooLarge: it has too many items, or does not fit into the one request that it was begun for; nothing
                was written.
            InvalidUnitRequest: its step was saved before: end it with ``save``; the unit may continue.
            UnitFinished: it was rolled back before, or an interrupt has left its outcome unknown. Also raised by the
                end of the block if an interrupt or a ``UnitConflict`` had ended the unit and was caught inside.
            OutcomeUnknown: no answer came; it may or may not be committed. For a unit with a name, ``Units.outcome``
                returns which.
            TableError: nothing was written.
        """
        with self._unit_of_work.state.reporting():
            self._perform(self._unit_of_work.commit())

    def rollback(self) -> None:
        """End the unit; nothing is written. A second call does nothing. Rolls back a resumed unit for every process.

        Raises:
            UnitFinished: it is committed, or may be.
            UnitChanged, UnitForgotten, TableError: the unit was resumed, and was not rolled back.
        """
        self._perform(self._unit_of_work.rollback())

    def save(self, *, keep_for: Seconds = 86_400, owner: str | None = None) -> str:
        """Hand the unit over: write down what it has read and written, for ``Units.resume``. This object is over.

        Your items are neither marked nor written. Blind updates are read and evaluated now.

        Args:
            keep_for: for how many seconds, 1 s to 366 days. Afterwards any process may roll it back: a sweep, or one
                that resumes it or asks for its outcome. If none has, one that resumed it in time may still commit it.
            owner: text: the unit ends with it: for example an execution of a workflow, by ``unit_owner``.
                ``Units.end_owner`` rolls the unit back, unless a later save names another owner, or none.

        Returns:
            Its id, for ``Units.resume``.

        Raises:
            InvalidUnitRequest: ``keep_for`` is not such a time; or 100 other steps of the unit were saved. The unit may
                continue.
            ConditionFailed, ItemTooLarge: of a blind update; the unit may continue.
            UnitTooLarge: it has too many items; the unit may continue.
            UnitChanged: another process has resumed it since; nothing of this object was saved.
            UnitRolledBack, UnitForgotten: it has ended meanwhile, or its owner has.
            OutcomeUnknown: its present state may or may not be saved; ``resume`` finds out.
            TableError: it was not saved, and may continue.
        """
        with self._unit_of_work.state.reporting():
            saved: str = self._perform(self._unit_of_work.save(SaveOptions.of(keep_for, owner)))
        return saved

    def __enter__(self) -> Self:
        self._perform(self._unit_of_work.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._perform(self._unit_of_work.leave(error))
        except BaseException:
            if self._unit_of_work.is_waiting_for_its_end:
                # Interrupted before the first step: its read locks would be renewed as long as it is referenced.
                self._perform(self._unit_of_work.end_after_interrupt())
            raise
