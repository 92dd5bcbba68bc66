"""Units of tasks, where they differ from those of threads: cancelled tasks, clients, and functions to decorate."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, assert_type

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from kit.units import Books, dumped, new_version, some_name
from units.conftest import PATIENCE_S, move, units_of

from ticketlock import (
    ClientClosed,
    ConditionFailed,
    InvalidUnitRequest,
    LockLost,
    UnitConflict,
    UnitFinished,
    aio,
    create_table,
)
from ticketlock.units import COMMITTED, Swept, UnitTable
from ticketlock.units._again._passing import MOST_IN_A_ROW
from ticketlock.units._again._turns import NAMESPACE, entity_of
from ticketlock.units._records._packing import packed
from ticketlock.wire._sdk import CLIENT_SETTINGS

# One that aiobotocore reaches.
pytestmark = pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)


def own_client(books: Books) -> Any:
    config = AioConfig(**CLIENT_SETTINGS)
    return get_session().create_client("dynamodb", endpoint_url=books.engine.endpoint_url, config=config)


@asynccontextmanager
async def with_own_client(books: Books) -> AsyncIterator[tuple[aio.Units, UnitTable, Any]]:
    """Units, the table of accounts, and the client that they use."""
    async with own_client(books) as dynamodb, aio.Units(books.tables["units"], client=dynamodb) as units:
        yield units, await units.table(books.tables["accounts"]), dynamodb


class HeldBack:
    """A client's requests of one operation from now on, each of which waits until it may continue."""

    def __init__(self, dynamodb: Any, operation: str) -> None:
        self.is_on_its_way, self.may_continue = asyncio.Event(), asyncio.Event()
        dynamodb.meta.events.register(f"before-call.dynamodb.{operation}", self._hold_back)

    async def _hold_back(self, **_: Any) -> None:
        self.is_on_its_way.set()
        await self.may_continue.wait()


def test_every_verb_is_there(books: Books, run: Any, names: list[str]) -> None:
    one, other = names

    async def work(units: aio.Units, accounts: UnitTable) -> None:
        async with units.begin() as unit:
            assert await unit.get(accounts, {"id": one}) == {"id": one, "balance": 100}
            await unit.check(accounts, {"id": one}, "balance = :n", {":n": 100})
            assert await unit.put(accounts, {"id": one, "balance": 1}) == {"id": one, "balance": 100}
            assert await unit.delete(accounts, {"id": other}) == {"id": other, "balance": 100}
            assert await unit.get_all([(accounts, {"id": other}), (accounts, {"id": one})]) == [
                None,
                {"id": one, "balance": 1},
            ]
            await unit.commit()
            with pytest.raises(UnitFinished):
                await unit.rollback()
        unit = units.begin()
        await unit.put(accounts, {"id": other, "balance": 5})
        await unit.rollback()
        with pytest.raises(UnitFinished):
            await unit.get(accounts, {"id": other})
        assert await units.get(accounts, {"id": one}) == {"id": one, "balance": 1}
        assert await units.check_access([accounts]) == []
        both = [(accounts, {"id": name}) for name in names]
        assert await units.get_all(both, isolation=COMMITTED) == [{"id": one, "balance": 1}, None]

    run(work)
    assert books.balances([{"id": name} for name in names]) == [1, None]


def test_the_low_level_api_is_there(books: Books, run: Any, names: list[str]) -> None:
    def at(name: str) -> dict[str, Any]:
        return {"TableName": books.tables["accounts"], "Key": {"id": {"S": name}}}

    async def work(units: aio.Units, _: UnitTable) -> None:
        async with units.begin() as unit:
            dynamodb, one = unit.client, {":n": {"N": "1"}}
            change = {"UpdateExpression": "SET balance = balance + :n", "ExpressionAttributeValues": one}
            reply = await dynamodb.update_item(**at(names[0]), **change, ReturnValues="UPDATED_NEW")
            assert reply["Attributes"] == {"balance": {"N": "101"}}
            await dynamodb.delete_item(**at(names[1]))
            await dynamodb.put_item(
                TableName=books.tables["accounts"], Item={"id": {"S": names[1]}, "balance": {"N": "2"}}
            )
            first = await dynamodb.get_item(**at(names[0]))
            both = await dynamodb.transact_get_items(TransactItems=[{"Get": at(name)} for name in names])
            assert both["Responses"][0]["Item"] == first["Item"]
            with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException) as raised:
                await dynamodb.delete_item(**at(names[0]), ConditionExpression="attribute_exists(nothing)")
            assert isinstance(raised.value, ConditionFailed)
            pages = dynamodb.get_paginator("query").paginate(
                TableName=books.tables["accounts"],
                KeyConditionExpression="id = :id",
                ExpressionAttributeValues={":id": {"S": names[0]}},
            )
            assert [page["Count"] async for page in pages] == [1]

    run(work)
    assert [books.balance({"id": name}) for name in names] == [101, 2]


@pytest.mark.parametrize(("way", "least_requests"), [("native", 4), ("marked", 11)])
def test_a_task_that_is_cancelled_at_any_request_finds_the_unit_over_and_leaves_all_or_nothing(
    books: Books, way: Literal["native", "marked"], least_requests: int
) -> None:
    """A commit runs to its end, before the units are closed; a statement does not."""

    async def cancelled_at(number: int, names: list[str]) -> bool:
        sent = itertools.count(1)

        def cancel(**_: Any) -> None:
            if next(sent) == number:
                moving.cancel()

        async def transfer(unit: aio.Unit, accounts: UnitTable) -> None:
            async with unit:
                await move(unit, accounts, names)
                await unit.put(accounts, {"id": f"{names[0]}-new", "balance": 1})

        async with with_own_client(books) as (units, accounts, dynamodb):
            unit = units.begin(engine=way)
            dynamodb.meta.events.register("before-call.dynamodb", cancel)
            moving = asyncio.create_task(transfer(unit, accounts))
            await asyncio.wait({moving})
            if moving.cancelled():
                with pytest.raises(UnitFinished):
                    await unit.get(accounts, {"id": names[0]})
                with pytest.raises(UnitFinished):
                    await move(unit, accounts, names)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return moving.cancelled()

    moved = []
    for number in itertools.count(1):
        names = [some_name(), some_name()]
        for name in names:
            books.write("accounts", {"id": name, "balance": 100, "_tluVersion": new_version()})
        if not asyncio.run(cancelled_at(number, names)):
            break
        found = [books.raw("accounts", {"id": name}) for name in (*names, f"{names[0]}-new")]
        assert not any("_tluMark" in item for item in found if item is not None)
        moved.append([item and item["balance"] for item in found])
    assert len(moved) >= least_requests
    # Each of the three statements reads its item.
    assert moved == [[100, 100, None]] * 3 + [[90, 110, 1]] * (len(moved) - 3)


@pytest.mark.parametrize(
    ("held", "operation", "moved"),
    [("a statement", "GetItem", [100, 100]), ("the commit", "TransactWriteItems", [90, 110])],
    ids=["a statement", "the commit"],
)
@pytest.mark.parametrize("how", ["block", "decorator"])
def test_a_block_in_which_a_time_out_was_caught_does_not_end_as_if_it_were_committed(
    books: Books, names: list[str], held: str, operation: str, moved: list[int], how: str
) -> None:
    """Who has caught it believes that the unit is still open."""

    async def main() -> None:
        may_continue, caught = asyncio.Event(), asyncio.timeout(None)

        async def hold_back(**_: Any) -> None:
            caught.reschedule(asyncio.get_running_loop().time())
            await may_continue.wait()

        async with with_own_client(books) as (units, accounts, dynamodb):

            async def work(unit: aio.Unit) -> str:
                await move(unit, accounts, names)
                dynamodb.meta.events.register(f"before-call.dynamodb.{operation}", hold_back)
                with pytest.raises(TimeoutError):
                    async with caught:
                        await (unit.commit() if held == "the commit" else unit.get(accounts, {"id": some_name()}))
                return "done"

            async def in_a_block() -> None:
                async with units.begin() as unit:
                    await work(unit)

            try:
                with pytest.raises(UnitFinished, match="ended without an error, but its unit"):
                    await (in_a_block() if how == "block" else units.transactional()(work)())
            finally:
                may_continue.set()

    asyncio.run(main())
    assert [books.balance({"id": name}) for name in names] == moved


def test_of_tasks_that_use_one_unit_at_once_all_but_one_are_refused_and_nothing_is_committed(
    books: Books, run: Any, names: list[str]
) -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        more: Any = ("SET balance = balance + :n", {":n": 1})
        async with units.begin() as unit:
            await asyncio.gather(*(unit.update(accounts, {"id": name}, *more) for name in (*names, names[0])))

    with pytest.raises(InvalidUnitRequest, match="one thread or task at a time"):
        run(work)
    assert [books.balance({"id": name}) for name in names] == [100, 100]


@pytest.mark.parametrize("end", ["commit", "rollback", "end of the block", "end of the block after another refusal"])
def test_the_end_of_a_unit_is_refused_while_a_statement_of_another_task_is_under_way(
    books: Books, names: list[str], end: str
) -> None:
    async def main() -> None:
        async with with_own_client(books) as (units, accounts, dynamodb):
            unit = units.begin()
            held = HeldBack(dynamodb, "GetItem")
            moving = asyncio.create_task(move(unit, accounts, names))
            await asyncio.wait_for(held.is_on_its_way.wait(), PATIENCE_S)
            refused: Any = pytest.raises(InvalidUnitRequest, match="one thread or task at a time")
            if end == "end of the block after another refusal":
                with refused:
                    await unit.get(accounts, {"id": names[0]})
                # It does not repeat what its caller has caught.
                refused = pytest.raises(UnitFinished, match=r"a method of its unit .* was under way")
            ends = {"commit": unit.commit, "rollback": unit.rollback}
            with refused:
                await (ends[end]() if end in ends else unit.__aexit__(None, None, None))
            held.may_continue.set()
            if end in ends:
                await moving
                await unit.commit()
            else:
                with pytest.raises(UnitFinished, match="rolled back"):
                    await moving

    asyncio.run(main())
    moved = [90, 110] if end in ("commit", "rollback") else [100, 100]
    assert [books.balance({"id": name}) for name in names] == moved


def test_a_sweep_in_parts_is_several_tasks_and_ends_what_was_left(books: Books, run: Any) -> None:
    head = {"format": 1, "state": "pending", "rev": 0, "born": 0, "leaseUntilMs": 0, "attempt": "1", "pieces": 0}
    for number in range(8):
        unit = f"{number:026}"
        row = {"unit": unit, "row": "head", "open": unit, "writes": b"".join(packed([]).pieces), **head}
        books.plain_client.put_item(TableName=books.tables["units"], Item=dumped(row))

    async def work(units: aio.Units, _: UnitTable) -> Swept:
        return await units.sweep(parts=4, timeout=PATIENCE_S)

    assert run(work) == Swept(rolled_back=8, open=8)


@pytest.mark.parametrize("entered", [False, True], ids=["not opened", "closed"])
def test_units_that_are_not_open_say_so(books: Books, entered: bool) -> None:
    async def main() -> None:
        units = units_of(books)
        if entered:
            async with units:
                pass
        await units.table(books.tables["accounts"])

    with pytest.raises(ClientClosed, match="were not opened, or are closed: use them in 'async with'"):
        asyncio.run(main())


def test_a_client_of_ones_own_stays_open(books: Books, names: list[str]) -> None:
    async def main() -> None:
        async with own_client(books) as dynamodb:
            async with aio.Units(books.tables["units"], client=dynamodb) as units, units.begin() as unit:
                await move(unit, await units.table(books.tables["accounts"]), names)
            await dynamodb.describe_table(TableName=books.tables["accounts"])

    asyncio.run(main())
    assert [books.balance({"id": name}) for name in names] == [90, 110]


@pytest.mark.parametrize(
    ("wrong", "error", "named"),
    [
        ({"table_name": ""}, InvalidUnitRequest, "^table_name is "),
        ({"client": object()}, InvalidUnitRequest, "^client is "),
        ({"client_options": {"config": AioConfig()}}, ValueError, "total_max_attempts"),
    ],
    ids=lambda each: str(*each) if isinstance(each, dict) else "",
)
def test_what_units_of_tasks_cannot_use_is_named(
    books: Books, wrong: dict[str, Any], error: type[Exception], named: str
) -> None:
    async def main() -> None:
        async with aio.Units(**{"table_name": books.tables["units"], **wrong}):
            pass

    with pytest.raises(error, match=named):
        asyncio.run(main())


def test_calls_of_many_tasks_lose_no_increment(books: Books, run: Any, names: list[str]) -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        @units.transactional(tries=1_000)
        async def count(unit: aio.Unit) -> None:
            await unit.update(accounts, {"id": names[0]}, "SET balance = balance + :n", {":n": 1})

        await asyncio.gather(*(count() for _ in range(10)))

    run(work)
    assert books.balance({"id": names[0]}) == 110


def test_a_call_whose_name_was_committed_before_does_not_run_and_returns_the_first_result(
    books: Books, run: Any, names: list[str]
) -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> list[Any]:
        @units.transactional(name="{account}-once", payload=lambda account, amount: [account, amount])
        async def add(unit: aio.Unit, account: str, amount: int) -> dict[str, int]:
            after = await unit.update(accounts, {"id": account}, "SET balance = balance + :n", {":n": amount})
            return {"balance": int(after["balance"])}

        told = [assert_type(await add(names[0], 1), dict[str, int] | None), await add(names[0], 1)]
        with pytest.raises(InvalidUnitRequest, match="committed with another payload"):
            await add(names[0], 2)
        return [*told, (await units.outcome(name=f"{names[0]}-once")).result]

    assert run(work) == [{"balance": 101}] * 3
    assert books.balance({"id": names[0]}) == 101


@pytest.mark.parametrize(("by_hand", "runs", "moved"), [(True, 1, [90, 110]), (False, 2, [100, 100])])
def test_a_conflict_runs_again_until_the_last_try_but_not_after_a_commit_by_hand(
    books: Books, run: Any, names: list[str], by_hand: bool, runs: int, moved: list[int]
) -> None:
    tried = []

    async def work(units: aio.Units, accounts: UnitTable) -> None:
        @units.transactional(tries=2)
        async def transfer(unit: aio.Unit) -> None:
            tried.append(unit.id)
            await move(unit, accounts, names)
            if by_hand:
                await unit.commit()
            raise UnitConflict([("carts", {"id": "of another unit"})])

        await transfer()

    with pytest.raises(UnitConflict, match="of another unit"):
        run(work)
    assert (len(set(tried)), [books.balance({"id": name}) for name in names]) == (runs, moved)


def test_each_call_is_under_the_lock_that_is_made_of_its_arguments(books: Books, run: Any, names: list[str]) -> None:
    locks_table = f"locks-{names[0]}"
    create_table(locks_table, client=books.plain_client)

    async def work(units: aio.Units, accounts: UnitTable) -> None:
        @units.transactional(under=lambda lease: lease)
        async def transfer(unit: aio.Unit, lease: aio.Lease) -> str:
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


def test_a_call_that_is_given_a_unit_is_part_of_it(books: Books, run: Any, names: list[str]) -> None:
    async def work(units: aio.Units, accounts: UnitTable) -> None:
        @units.transactional()
        async def moves(unit: aio.Unit) -> str:
            await move(unit, accounts, names)
            return unit.id

        async with units.begin() as unit:
            assert await moves(unit) == unit.id
            assert await asyncio.to_thread(books.balance, {"id": names[0]}) == 100

    run(work)
    assert [books.balance({"id": name}) for name in names] == [90, 110]


def test_a_plain_function_is_refused_at_once(books: Books) -> None:
    def plain(unit: aio.Unit) -> None: ...

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
            async def count(unit: aio.Unit) -> None:
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


def test_tasks_pass_the_lock_of_an_item_on_to_each_other(books: Books, names: list[str]) -> None:
    name, _ = names
    entity = entity_of(books.tables["accounts"], {"id": name})
    tokens = set[int]()
    locks = aio.LockClient(f"locks-{name}", client_options={"endpoint_url": books.engine.endpoint_url})
    create_table(f"locks-{name}", client=books.plain_client)

    async def main() -> None:
        async with locks, units_of(books, locks=locks) as units:
            accounts = await units.table(books.tables["accounts"])

            @units.transactional()
            async def count(unit: aio.Unit) -> None:
                await unit.update(accounts, {"id": name}, "SET balance = balance + :n", {":n": 1})
                item = (await locks.inspect(entity, namespace=NAMESPACE)).item
                assert item is not None
                tokens.add(item.holders[0].fencing_token)

            units._turns.contended.add([entity])
            await asyncio.gather(*(count() for _ in range(MOST_IN_A_ROW)))
            assert units._turns.lines._lines == {}

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    books.plain_client.delete_table(TableName=f"locks-{name}")
    assert len(tokens) == 1
    assert books.balance({"id": name}) == 100 + MOST_IN_A_ROW
