"""Fixtures of the tests that use ``Units`` as users do: accounts by their names, and units of threads and of tasks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kit.units import Books, some_name

from ticketlock import aio
from ticketlock.units import Units, UnitTable

PATIENCE_S = 30
Work = Callable[[aio.Units, UnitTable], Coroutine[Any, Any, Any]]


@pytest.fixture
def units(books: Books) -> Units:
    return books.units()


@pytest.fixture
def accounts(books: Books, units: Units) -> UnitTable:
    return units.table(books.tables["accounts"])


@pytest.fixture
def name(names: list[str]) -> str:
    """An account with 100."""
    return names[0]


@pytest.fixture
def names(books: Books) -> list[str]:
    """Two accounts with 100 each."""
    names = [some_name(), some_name()]
    for name in names:
        books.write("accounts", {"id": name, "balance": 100})
    return names


@pytest.fixture
def run(books: Books) -> Callable[[Work], Any]:
    """Runs a coroutine function with units and the table of accounts, in its own loop, which is closed afterwards."""

    def run(work: Work) -> Any:
        async def main() -> Any:
            async with units_of(books) as units:
                accounts = await units.table(books.tables["accounts"])
                return await asyncio.wait_for(work(units, accounts), PATIENCE_S)

        return asyncio.run(main())

    return run


def units_of(books: Books, **options: Any) -> aio.Units:
    return aio.Units(books.tables["units"], client_options={"endpoint_url": books.engine.endpoint_url}, **options)


async def move(unit: aio.Unit, accounts: UnitTable, names: list[str], amount: int = 10) -> None:
    one, other = names
    less, more = "SET balance = balance - :n", "SET balance = balance + :n"
    await unit.update(accounts, {"id": one}, less, {":n": amount}, condition="balance >= :n")
    await unit.update(accounts, {"id": other}, more, {":n": amount})
