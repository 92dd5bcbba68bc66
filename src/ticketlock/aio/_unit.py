"""A unit of work for tasks."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ticketlock._checks import Seconds
from ticketlock.aio._lock_table import ToTheEnd
from ticketlock.units._low_level import LowLevelUnitOfWork, Reply
from ticketlock.units._queries import in_python, items_found
from ticketlock.units._reading import Isolation
from ticketlock.units._settings import keeping
from ticketlock.units._tables import UnitTable
from ticketlock.units._unit import UnitFace
from ticketlock.units._unit_of_work import UnitOfWork, item_after, item_before
from ticketlock.units._values import PYTHON
from ticketlock.wire._requests import ForkingSteps

Follow = Callable[[ForkingSteps[Any]], Coroutine[Any, Any, Any]]

# A signal of the loop, or a time-out that is over, takes up to three turns to cancel a task; each group of tasks around
# that task, one more.
_TURNS = 8


class Unit(UnitFace):
    """One unit of work; see ``ticketlock.units.Unit``.

    Use it in ``async with``. It belongs to one task at a time. If a task is cancelled before the end of the block, even
    after its last ``await``, the unit rolls back. If a task is cancelled while the unit commits, the commit continues,
    and ``Units.close`` waits for it. In both cases the unit has ended.

    Attributes:
        id: its id; that of a resumed unit is the one under which it was saved.
        client: the same unit, with the methods of the low-level API.
    """

    def __init__(self, verbs: UnitOfWork, follow: Follow, to_the_end: ToTheEnd) -> None:
        super().__init__(verbs)
        self._follow = follow
        self._to_the_end = to_the_end
        self.client = UnitClient(LowLevelUnitOfWork(verbs), follow)

    @property
    def repeated(self) -> bool:
        """Whether its name was committed before, or its step saved: then this unit writes nothing."""
        return self._verbs.repeated

    async def get(
        self, table: UnitTable, key: Mapping[str, Any], *, isolation: Isolation | None = None
    ) -> dict[str, Any] | None:
        """Get an item, with the unit's own writes; None if there is none."""
        found: dict[str, Any] | None
        (found,) = await self._follow(self._verbs.get([(table, key)], isolation, PYTHON))
        return found

    async def get_all(
        self, wanted: Sequence[tuple[UnitTable, Mapping[str, Any]]], *, isolation: Isolation | None = None
    ) -> list[dict[str, Any] | None]:
        """Get several items, up to 100 of them as of one instant and in one request; if there are more, each 100."""
        found: list[dict[str, Any] | None] = await self._follow(self._verbs.get(wanted, isolation, PYTHON))
        return found

    async def query(
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
        """Get the items of one partition that match a key condition, with the unit's own writes, in order."""
        given = in_python(key_condition, filter, values, names, index, after, limit, forward)
        found: list[dict[str, Any]] = await self._follow(items_found(self._verbs.query(table, given, isolation)))
        return found

    async def put(
        self,
        table: UnitTable,
        item: Mapping[str, Any],
        *,
        condition: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Put an item; return the item that it replaces."""
        found: dict[str, Any] | None = await self._follow(
            item_before(self._verbs.put(table, item, condition, values, names, PYTHON))
        )
        return found

    async def update(
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
        """Update an item; return the new item."""
        steps = self._verbs.update(table, key, update, condition, values, names, PYTHON, blind=blind)
        found: dict[str, Any] | None = await self._follow(item_after(steps))
        return found

    async def delete(
        self,
        table: UnitTable,
        key: Mapping[str, Any],
        *,
        condition: Any = None,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Delete an item if it exists; return it."""
        found: dict[str, Any] | None = await self._follow(
            item_before(self._verbs.delete(table, key, condition, values, names, PYTHON))
        )
        return found

    async def check(
        self,
        table: UnitTable,
        key: Mapping[str, Any],
        condition: Any,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """Require that a condition holds for an item, now and at the instant of the commit; return the item."""
        found: dict[str, Any] | None = await self._follow(
            item_before(self._verbs.check(table, key, condition, values, names, PYTHON))
        )
        return found

    async def commit(self) -> None:
        """Commit: write everything or nothing. Calling it again does nothing."""
        with self._verbs.state.reporting():
            await self._give_way()
            await self._end(self._verbs.commit(), "to commit")

    async def rollback(self) -> None:
        """Roll back: nothing was written. Calling it again does nothing."""
        await self._end(self._verbs.rollback(), "to roll back")

    async def save(self, *, keep_for: Seconds = 86_400, owner: str | None = None) -> str:
        """Save the unit for ``Units.resume`` and return its id; this object can no longer be used."""
        with self._verbs.state.reporting():
            saved: str = await self._follow(self._verbs.save(keeping(keep_for, owner)))
        return saved

    async def __aenter__(self) -> Self:
        await self._follow(self._verbs.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._give_way()
        await self._end(self._verbs.leave(error), "to end")

    async def _give_way(self) -> None:
        """Before a commit let a cancellation come that was asked for since the last await: then roll back.

        From the beginning of the commit on, a cancellation ends only the wait for it.
        """
        if self._verbs.state.is_over:
            return
        try:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        except BaseException as error:
            await self._end(self._verbs.leave(error), "to roll back")
            raise

    async def _end(self, steps: ForkingSteps[None], what: str) -> None:
        await self._to_the_end(self._follow(steps), f"{what} the unit {self.id}")


class UnitClient:
    """A unit with methods of aiobotocore's DynamoDB client; see ``ticketlock.units.UnitClient``."""

    def __init__(self, verbs: LowLevelUnitOfWork, follow: Follow) -> None:
        self._verbs = verbs
        self._follow = follow

    async def get_item(self, **parameters: Any) -> Reply:
        """Get an item, with the unit's own writes."""
        reply: Reply = await self._follow(self._verbs.get_item(parameters))
        return reply

    async def transact_get_items(self, **parameters: Any) -> Reply:
        """Get up to 100 items as of one instant."""
        reply: Reply = await self._follow(self._verbs.transact_get_items(parameters))
        return reply

    async def query(self, **parameters: Any) -> Reply:
        """Get one page of the items of a range."""
        reply: Reply = await self._follow(self._verbs.query(parameters))
        return reply

    async def put_item(self, **parameters: Any) -> Reply:
        """Put an item; it replaces one with the same key."""
        reply: Reply = await self._follow(self._verbs.put_item(parameters))
        return reply

    async def update_item(self, **parameters: Any) -> Reply:
        """Update an item; create it if it does not exist."""
        reply: Reply = await self._follow(self._verbs.update_item(parameters))
        return reply

    async def delete_item(self, **parameters: Any) -> Reply:
        """Delete an item if it exists."""
        reply: Reply = await self._follow(self._verbs.delete_item(parameters))
        return reply
