"""Fixtures of the tests that use ``Units`` as users do: both tables on an engine, and units over them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kit.engines import Engine, engine_named, first_on
from kit.units import some_name
from units.own_tables import OwnTables, own_tables
from units.tasks import Work, run_in_a_loop

from ticketlock.units import Units, UnitTable


@pytest.fixture(scope="module", params=first_on("moto", ["moto", "ministack"]))
def engine(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[Engine]:
    with engine_named(request.param, url_of) as named:
        yield named


@pytest.fixture(scope="module")
def tables(engine: Engine) -> Iterator[OwnTables]:
    with own_tables(engine) as made:
        yield made


@pytest.fixture
def units(tables: OwnTables) -> Units:
    return tables.units()


@pytest.fixture
def accounts(tables: OwnTables, units: Units) -> UnitTable:
    return units.table(tables.accounts)


@pytest.fixture
def name(tables: OwnTables) -> str:
    """An account with 100."""
    name = some_name()
    tables.write({"id": name, "balance": 100})
    return name


@pytest.fixture
def names(tables: OwnTables) -> list[str]:
    """Two accounts with 100 each."""
    names = [some_name(), some_name()]
    for name in names:
        tables.write({"id": name, "balance": 100})
    return names


@pytest.fixture
def run(tables: OwnTables) -> Callable[[Work], Any]:
    """Runs a coroutine function with units and the table, in its own loop, which is closed afterwards."""
    return partial(run_in_a_loop, tables)
