"""Units of work over the DynamoDB in memory, as docs/python.md has it."""

import pytest

from ticketlock.errors import UnitConflict
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB
from ticketlock.units import Unit, Units, UnitTable, create_units_table


@pytest.fixture
def memory(clock: ManualClock) -> MemoryDynamoDB:
    """With a table of accounts, and one of them."""
    memory = MemoryDynamoDB(lock_table=None, clock=clock)
    memory.create_table(
        TableName="accounts",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    memory.put_item(TableName="accounts", Item={"id": {"S": "ann"}, "balance": {"N": "100"}})
    return memory


@pytest.fixture
def units(memory: MemoryDynamoDB, clock: ManualClock) -> Units:
    create_units_table("units", client=memory.client)
    return Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)


@pytest.fixture
def accounts(units: Units) -> UnitTable:
    return units.table("accounts")


def take_ten(unit: Unit, accounts: UnitTable) -> None:
    unit.update(accounts, {"id": "ann"}, "SET balance = balance - :n", {":n": 10})


def test_units_are_committed_in_it(units: Units, accounts: UnitTable) -> None:
    for engine in ("native", "marked"):
        with units.begin(engine=engine) as unit:
            take_ten(unit, accounts)
    assert units.get(accounts, {"id": "ann"}) == {"id": "ann", "balance": 80}


def test_a_conflict_is_made_by_a_unit_of_the_tests_own(units: Units, accounts: UnitTable) -> None:
    unit = units.begin()
    take_ten(unit, accounts)
    with units.begin() as other:
        take_ten(other, accounts)
    with pytest.raises(UnitConflict):
        unit.commit()


def test_a_lost_reply_costs_a_repeat_and_no_time(memory: MemoryDynamoDB, units: Units, accounts: UnitTable) -> None:
    with units.begin() as unit:
        take_ten(unit, accounts)
        memory.faults.append(Fault.REPLY_LOST)
    assert [sent.operation for sent in memory.sent].count("TransactWriteItems") == 2
    assert units.get(accounts, {"id": "ann"}) == {"id": "ann", "balance": 90}
