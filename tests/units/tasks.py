"""Units of tasks in a loop that ends with the test, and what they do there."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from units.own_tables import OwnTables

from ticketlock import aio
from ticketlock.units import UnitTable

PATIENCE_S = 30
Work = Callable[[aio.Units, UnitTable], Coroutine[Any, Any, Any]]


def units_of(tables: OwnTables, **options: Any) -> aio.Units:
    return aio.Units(tables.units_name, client_options={"endpoint_url": tables.engine.endpoint_url}, **options)


def run_in_a_loop(tables: OwnTables, work: Work) -> Any:
    """Run a coroutine function with units and the table of accounts."""

    async def main() -> Any:
        async with units_of(tables) as units:
            accounts = await units.table(tables.accounts)
            return await asyncio.wait_for(work(units, accounts), PATIENCE_S)

    return asyncio.run(main())


async def move(unit: aio.Unit, accounts: UnitTable, names: list[str], amount: int = 10) -> None:
    one, other = names
    less, more = "SET balance = balance - :n", "SET balance = balance + :n"
    await unit.update(accounts, {"id": one}, less, {":n": amount}, condition="balance >= :n")
    await unit.update(accounts, {"id": other}, more, {":n": amount})
