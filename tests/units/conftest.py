"""What tests of units share: accounts by their names, units of threads and of tasks, and units that were killed."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kit.crashes import crashes
from kit.units import Books, Key, Killed, Party, UnitsWorld, some_account, some_name

from ticketlock import aio
from ticketlock.units import Unit, Units, UnitTable
from ticketlock.units._records._record import LEASE_MS
from ticketlock.units._recovery._sweeping import COPIES_COME_WITHIN_MS

PATIENCE_S = 30
LEASE_S, COPIES_S = LEASE_MS // 1_000, COPIES_COME_WITHIN_MS // 1_000
# More than clocks differ.
MARGIN_S = 5
OLD, NEW = [100, 50, None], [0, None, 0]
"""The balances of the three accounts before and after the unit of ``states``."""
# Incompressible, so that it does not fit into the record.
_LONG = random.Random(0).randbytes(8_000)
Work = Callable[[aio.Units, UnitTable], Coroutine[Any, Any, Any]]

STATEMENTS: dict[str, Callable[[Any, UnitTable, Any], object]] = {
    "get": lambda unit, table, key: unit.get(table, key),
    "get_all": lambda unit, table, key: unit.get_all([(table, key)]),
    "prefetch": lambda unit, table, key: unit.prefetch([(table, key)]),
    "put": lambda unit, table, key: unit.put(table, key),
    "put_all": lambda unit, table, key: unit.put_all(table, [key]),
    "update": lambda unit, table, key: unit.update(table, key, "SET balance = :n", {":n": 1}),
    "a blind update": lambda unit, table, key: unit.update(table, key, "SET balance = :n", {":n": 1}, blind=True),
    "delete": lambda unit, table, key: unit.delete(table, key),
    "check": lambda unit, table, key: unit.check(table, key, "attribute_exists(id)"),
}
"""Every statement, of a unit about an item; a put has the key alone as its item."""


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
def keys(books: Books) -> list[Key]:
    """The keys of an account with 100, of one with 50, and of none."""
    return [books.account(100), books.account(50), some_account()]


def states(party: Party, keys: list[Key]) -> Unit:
    """A unit that is about to be committed by marks: it changes, deletes and makes one account each."""
    changed, deleted, made = keys
    unit = party.begin(engine="marked")
    unit.update(party.accounts, changed, "SET balance = :n, noise = :noise", {":n": 0, ":noise": _LONG})
    unit.delete(party.accounts, deleted)
    unit.put(party.accounts, {**made, "balance": 0})
    return unit


def killed(world: UnitsWorld, keys: list[Key], *, is_committed: bool) -> str:
    """The id of that unit, whose process has crashed before or after its decision: all three are marked."""
    party = world.party()
    unit = states(party, keys)
    # Two updates mark the items that are there, the third one decides.
    crashes(party, 3, is_sent=is_committed)
    with pytest.raises(Killed):
        unit.commit()
    return str(unit.id)


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
