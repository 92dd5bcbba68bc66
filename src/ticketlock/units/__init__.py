"""Units of work for DynamoDB: ACID transactions over items of any tables.

    create_units_table("units")
    units = Units("units")
    accounts = units.table("accounts")
    with units.begin() as unit:
        unit.update(accounts, {"id": "a"}, "SET balance = balance - :n", {":n": 10}, condition="balance >= :n")
        unit.update(accounts, {"id": "b"}, "SET balance = balance + :n", {":n": 10})

``Units`` is for threads, ``ticketlock.aio.Units`` for asyncio. Their errors are ``UnitError`` and ``TableError``; also
``LockLost``, if a unit has lost the lock that it is under, and ``ClientClosed``, in a forked process.
"""

from ticketlock.units._again import unit_name, unit_owner
from ticketlock.units._like_boto3 import UnitClient
from ticketlock.units._provision import Denied, create_units_table
from ticketlock.units._records import Record, Visible
from ticketlock.units._recovery import FoundMark, OpenUnit, Outcome, Swept, UnitOutcome
from ticketlock.units._statements import COMMITTED, READ_LOCK, SERIALIZABLE, UNCOMMITTED, Isolation
from ticketlock.units._unit import Unit
from ticketlock.units._units import Units
from ticketlock.units._words import UnitTable

__all__ = [
    "COMMITTED",
    "READ_LOCK",
    "SERIALIZABLE",
    "UNCOMMITTED",
    "Denied",
    "FoundMark",
    "Isolation",
    "OpenUnit",
    "Outcome",
    "Record",
    "Swept",
    "Unit",
    "UnitClient",
    "UnitOutcome",
    "UnitTable",
    "Units",
    "Visible",
    "create_units_table",
    "unit_name",
    "unit_owner",
]
