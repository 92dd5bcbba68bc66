"""Units of tasks belong to the event loop in which they were opened; elsewhere they say so at once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ticketlock import ClientClosed, aio
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import READ_LOCK, create_units_table

IN_ANOTHER = "was opened in another event loop"


class Opened:
    """Units, and one that has begun, of a loop that has been left."""

    def __init__(self) -> None:
        self.memory = MemoryDynamoDB(lock_table=None)
        create_units_table("units", client=self.memory.client)
        self.memory.create_table(
            TableName="accounts",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self.units = aio.Units("units", client=self.memory.async_client)

    async def open(self) -> None:
        await self.units.__aenter__()
        self.accounts = await self.units.table("accounts")
        self.unit = await self.units.begin().__aenter__()
        await self.unit.put(self.accounts, {"id": "a", "balance": 1})

    async def enter(self, entered: Any) -> None:
        async with entered:
            pytest.fail("entered")

    async def pay(self) -> None:
        @self.units.transactional()
        async def pay(unit: aio.Unit) -> None:
            pytest.fail(f"{unit} has begun")

        await pay()


USES: dict[str, Callable[[Opened], Coroutine[Any, Any, object]]] = {
    "open": lambda it: it.enter(it.units),
    "table": lambda it: it.units.table("accounts"),
    "begin": lambda it: it.enter(it.units.begin(isolation=READ_LOCK)),
    "transactional": lambda it: it.pay(),
    "get outside": lambda it: it.units.get(it.accounts, {"id": "a"}),
    "sweep": lambda it: it.units.sweep(),
    "close": lambda it: it.units.close(),
    "a statement that sends nothing": lambda it: it.unit.put(it.accounts, {"id": "b"}),
    "a statement of the low-level client": lambda it: it.unit.client.get_item(
        TableName="accounts", Key={"id": {"S": "a"}}
    ),
    "save": lambda it: it.unit.save(),
    "commit": lambda it: it.unit.commit(),
    "rollback": lambda it: it.unit.rollback(),
    "the end of a block": lambda it: it.unit.__aexit__(None, None, None),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_units_that_are_used_in_another_event_loop_are_refused_at_once_and_work_on_in_their_own(
    use: Callable[[Opened], Coroutine[Any, Any, object]],
) -> None:
    it = Opened()

    async def in_another() -> None:
        await use(it)

    own = asyncio.new_event_loop()
    own.run_until_complete(it.open())
    sent = len(it.memory.sent)
    with pytest.raises(ClientClosed, match=IN_ANOTHER):
        asyncio.run(in_another())
    assert len(it.memory.sent) == sent
    own.run_until_complete(it.unit.commit())
    own.run_until_complete(it.units.close())
    own.close()
    assert it.memory.get_item(TableName="accounts", Key={"id": {"S": "a"}})["Item"]


def test_units_that_were_closed_may_be_opened_in_another_event_loop() -> None:
    it = Opened()

    async def work() -> None:
        async with it.units as units:
            await units.table("accounts")

    asyncio.run(work())
    asyncio.run(work())


def test_units_are_refused_where_no_event_loop_of_asyncio_runs() -> None:
    async def enter() -> None:
        await Opened().units.__aenter__()

    with pytest.raises(ClientClosed, match=r"no event loop of asyncio runs here, .* trio or curio"):
        enter().send(None)
