"""The work of processes under a lock with fault injection."""

from contextlib import suppress

import boto3
from kit.programs import Counter, Shared, meet_the_others, say

from ticketlock import LockClient

INCREMENTS = 5


def count_under_faults(shared: Shared) -> None:
    """Read a counter, and write it back plus one in a transaction under the lock."""
    counter = Counter(shared)
    # A user's own client, which retries its reads, also those whose replies break off.
    counter.client = boto3.client("dynamodb", endpoint_url=shared.endpoint)
    # No lease of a test that takes turns must end, however busy the machine is.
    with LockClient(shared.table, client=shared.client(), lease=60, record_wait=600) as locks:
        recorded = shared.recorded(locks)
        meet_the_others()
        for _ in range(INCREMENTS):
            with recorded.acquire(shared.entity) as held:
                held.update(_read(counter), counter.in_a_transaction(held.lease))
    say("done")


def _read(counter: Counter) -> int:
    # The SDK retries replies that break off, but not those that it cannot decode.
    while True:
        with suppress(UnicodeDecodeError):
            return counter.read()
