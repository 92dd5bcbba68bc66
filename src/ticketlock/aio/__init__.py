"""Locks for asyncio, over aiobotocore (extra ``aio``).

    async with LockClient("locks") as locks:
        async with locks.acquire("order-42") as lease:
            ...

The same locks, the same table, the same promises as of ``ticketlock.LockClient``; each method is described there.
"""

from ticketlock.aio._client import LockClient
from ticketlock.aio._lease import Lease, LeaseGroup

__all__ = ["Lease", "LeaseGroup", "LockClient"]
