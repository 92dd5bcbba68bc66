"""What tests of what stands around units share: both tables on an engine of others, and units over them."""

from collections.abc import Callable, Iterator

import pytest
from kit.engines import Engine, engine_named, first_on
from kit.units import some_name
from units.own_tables import OwnTables, own_tables

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
