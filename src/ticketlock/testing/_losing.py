"""A lock that is lost on demand."""

import threading
from contextlib import suppress

from ticketlock.client._lease import Lease
from ticketlock.errors import LockLost

_PATIENCE_S = 5.0


def lose(lease: Lease) -> None:
    """Take a lease's lock away, as an operator does by force, and let its client notice at once.

    Afterwards the lock is free for others, ``lease.is_held()`` is false, and ``on_lost`` has been called and has
    returned, unless it takes longer than five seconds.

    Raises:
        LockLost: the lock was not held any more.
    """
    lease._table.force_release(lease.lock, lease.fencing_token)
    before = set(threading.enumerate())
    with suppress(LockLost):
        lease.renew()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "ticketlock-on-lost":
            thread.join(_PATIENCE_S)
