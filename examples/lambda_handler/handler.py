"""A Lambda function whose invocations run one at a time for each order, in the order of their arrival.

Environment: ``LOCK_TABLE``. The role needs what docs/permissions.md lists for clients of the table.
"""

import os
from typing import Any

from ticketlock import Lease, LockClient

# Made once for each sandbox, like the SDK's clients: it needs no thread and no connection between two invocations.
locks = LockClient(os.environ["LOCK_TABLE"])


# The record wait ends before the function's time-out, so that the caller leaves the queue and gets a named error.
@locks.serialized(key="order-{event[orderId]}", record_wait=20, lease_as="lease")
def handler(lease: Lease, event: dict[str, Any], _: object) -> dict[str, Any]:
    """Change one order, alone."""
    return {"orderId": event["orderId"], "fencingToken": lease.fencing_token}
