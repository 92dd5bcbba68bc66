"""Calls of coroutine functions that are units of their own: tries, names, locks, turns."""

import asyncio
from typing import Any, assert_type

import pytest
from kit.units import Books
from units.conftest import PATIENCE_S, move, units_of

from ticketlock import InvalidUnitRequest, LockLost, UnitConflict, aio, create_table
from ticketlock.units import UnitTable
from ticketlock.units._transactional import NAMESPACE, entity_of

# One that aiobotocore reaches.
pytestmark = pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)


class TestTransactional:
    def test_calls_of_many_tasks_lose_no_increment(self, books: Books, run: Any, names: list[str]) -> None:
        async def work(units: aio.Units, accounts: UnitTable) -> None:
            @units.transactional(tries=1_000)
            async def count(*, unit: aio.Unit) -> None:
                await unit.update(accounts, {"id": names[0]}, "SET balance = balance + :n", {":n": 1})

            await asyncio.gather(*(count() for _ in range(10)))

        run(work)
        assert books.balance({"id": names[0]}) == 110

    def test_a_call_whose_name_was_committed_before_does_not_run(
        self, books: Books, run: Any, names: list[str]
    ) -> None:
        async def work(units: aio.Units, accounts: UnitTable) -> list[Any]:
            @units.transactional(name="{account}-once")
            async def count(account: str, *, unit: aio.Unit) -> str:
                await unit.update(accounts, {"id": account}, "SET balance = balance + :n", {":n": 1})
                return "done"

            return [assert_type(await count(names[0]), str | None), await count(names[0])]

        assert run(work) == ["done", None]
        assert books.balance({"id": names[0]}) == 101

    def test_what_is_raised_after_the_function_has_committed_by_hand_does_not_run_again(
        self, books: Books, run: Any, names: list[str]
    ) -> None:
        async def work(units: aio.Units, accounts: UnitTable) -> None:
            @units.transactional()
            async def transfer(*, unit: aio.Unit) -> None:
                await move(unit, accounts, names)
                await unit.commit()
                raise UnitConflict([("carts", {"id": "of another unit"})])

            await transfer()

        with pytest.raises(UnitConflict, match="of another unit"):
            run(work)
        assert [books.balance({"id": name}) for name in names] == [90, 110]

    def test_each_call_is_under_the_lock_that_is_made_of_its_arguments(
        self, books: Books, run: Any, names: list[str]
    ) -> None:
        locks_table = f"locks-{names[0]}"
        create_table(locks_table, client=books.plain_client)

        async def work(units: aio.Units, accounts: UnitTable) -> None:
            @units.transactional(under=lambda lease: lease)
            async def transfer(lease: aio.Lease, *, unit: aio.Unit) -> str:
                await move(unit, accounts, names)
                return lease.entity

            client_options = {"endpoint_url": books.engine.endpoint_url}
            async with aio.LockClient(locks_table, client_options=client_options) as locks:
                async with locks.acquire(names[0]) as lease:
                    assert await transfer(lease) == names[0]
                with pytest.raises(LockLost):
                    await transfer(lease)

        run(work)
        books.plain_client.delete_table(TableName=locks_table)
        assert [books.balance({"id": name}) for name in names] == [90, 110]

    def test_the_last_conflict_is_raised(self, run: Any) -> None:
        tried = []

        async def work(units: aio.Units, _: UnitTable) -> None:
            @units.transactional(tries=2)
            async def fail(*, unit: aio.Unit) -> None:
                tried.append(unit.id)
                raise UnitConflict([])

            await fail()

        with pytest.raises(UnitConflict):
            run(work)
        assert len(set(tried)) == 2

    def test_a_call_that_is_given_a_unit_is_part_of_it(self, books: Books, run: Any, names: list[str]) -> None:
        async def work(units: aio.Units, accounts: UnitTable) -> None:
            @units.transactional()
            async def moves(*, unit: aio.Unit) -> str:
                await move(unit, accounts, names)
                return unit.id

            async with units.begin() as unit:
                assert await moves(unit=unit) == unit.id
                assert [books.balance({"id": name}) for name in names] == [100, 100]
            assert [books.balance({"id": name}) for name in names] == [90, 110]

            @units.transactional(name="once")
            async def once(*, unit: aio.Unit) -> None:
                raise AssertionError(unit)

            async with units.begin() as unit:
                with pytest.raises(InvalidUnitRequest, match="name"):
                    await once(unit=unit)

        run(work)

    def test_a_plain_function_is_refused_at_once(self, books: Books) -> None:
        def plain(*, unit: aio.Unit) -> None: ...

        work: Any = plain
        with pytest.raises(TypeError, match=r"is not a coroutine function: use ticketlock\.units\.Units"):
            units_of(books).transactional()(work)
        decorate: Any = units_of(books).transactional
        with pytest.raises(TypeError, match="with parentheses"):
            decorate(work)


def test_a_call_that_met_others_holds_the_lock_of_the_item_in_its_next_try(books: Books, names: list[str]) -> None:
    name, _ = names
    entity = entity_of(books.tables["accounts"], {"id": name})
    held: list[int] = []
    locks = aio.LockClient(f"locks-{name}", client_options={"endpoint_url": books.engine.endpoint_url})
    create_table(f"locks-{name}", client=books.plain_client)

    async def holders() -> int:
        item = (await locks.inspect(entity, namespace=NAMESPACE)).item
        return 0 if item is None else len(item.holders)

    async def main() -> None:
        async with locks, units_of(books, locks=locks) as units:
            accounts = await units.table(books.tables["accounts"])

            async def add_one(unit: aio.Unit) -> None:
                await unit.update(accounts, {"id": name}, "SET balance = balance + :n", {":n": 1})

            @units.transactional(tries=2)
            async def count(*, unit: aio.Unit) -> None:
                held.append(await holders())
                await add_one(unit)
                if len(held) == 1:
                    async with units.begin() as other:
                        await add_one(other)

            await count()
            held.append(await holders())

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    books.plain_client.delete_table(TableName=f"locks-{name}")
    assert held == [0, 1, 0]
    assert books.balance({"id": name}) == 102
