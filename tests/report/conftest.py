"""Locks and units in memory."""

import pytest
from kit.engines import Engine
from kit.units import KEYS, Books, make_tables
from report.office import Office

from ticketlock.testing import MemoryDynamoDB


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def books() -> Books:
    """The tables of units, by the clock of this machine, each by the name of its use."""
    engine = Engine("memory", None, "locks", MemoryDynamoDB(lock_table=None))
    made = Books(engine, engine.client(), {use: use for use in KEYS})
    make_tables(made.plain_client, made.tables)
    return made
