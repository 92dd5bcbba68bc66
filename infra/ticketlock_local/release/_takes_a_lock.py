"""A program for an environment of a release: it imports modules, and acquires and releases a lock in memory."""

import importlib
import sys

from ticketlock import LockClient
from ticketlock.testing import MemoryDynamoDB

for module in sys.argv[1:]:
    importlib.import_module(module)
with LockClient("locks", client=MemoryDynamoDB().client) as locks:
    with locks.acquire("order-42", record_wait=0) as lease:
        assert lease.is_held()
    assert not lease.is_held()
    # It was released: otherwise this would end at once, without the lock.
    locks.acquire("order-42", record_wait=0).release()
