"""Locks and units of work for asyncio, over aiobotocore (extra ``aio``).

    async with LockClient("locks") as locks:
        async with locks.acquire("order-42") as lease:
            ...

    async with Units("units") as units:
        accounts = await units.table("accounts")
        async with units.begin() as unit:
            await unit.update(accounts, {"id": "a"}, "SET balance = balance - :n", {":n": 10})

They use the same tables and keep the same promises as ``ticketlock.LockClient`` and ``ticketlock.units.Units``, which
describe each method.
"""

from ticketlock.client._for_tasks import Lease, LeaseGroup, Lock, LockClient
from ticketlock.units._for_tasks import Unit, UnitClient, Units

__all__ = ["Lease", "LeaseGroup", "Lock", "LockClient", "Unit", "UnitClient", "Units"]
