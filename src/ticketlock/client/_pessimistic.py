"""Pessimistic locking: three functions, two of them with the signatures of a well-known article.

"Implementing Pessimistic Locking with DynamoDB and Python" (Maurice Borgmeier, tecRacer) has ``acquire_lock`` and
``release_lock``, and leaves the extension to its readers. docs/python.md says where these differ.
"""

from dataclasses import dataclass

from ticketlock._checks import duration_ms
from ticketlock.client._client import LockClient
from ticketlock.errors import LockLost, RecordWaitExceeded, TableNotFound
from ticketlock.locks import MAX_LEASE_MS, MIN_LEASE_MS, Claim, Grant


@dataclass(frozen=True, slots=True)
class Pessimistic:
    """The functions, for one client; ``pessimistic`` creates it. A forked child cannot use it, as with the client."""

    client: LockClient

    def acquire_lock(self, resource_name: str, timeout_in_seconds: int, transaction_id: str) -> bool:
        """Take a lock if it is free or its timeout has ended; also again with the same transaction id.

        Args:
            resource_name: what to lock.
            timeout_in_seconds: how long it is held unless it is released.
            transaction_id: identifies the holder.

        Returns:
            Whether it is held with this transaction id, for at least three quarters of the timeout from now on.
        """
        lease_ms = duration_ms("timeout_in_seconds", timeout_in_seconds, MIN_LEASE_MS, MAX_LEASE_MS)
        claim = Claim(self.client.lock(resource_name), transaction_id, lease_ms)
        try:
            found = self.client.table.take_ticket(claim, record_wait_ms=0)
        except RecordWaitExceeded:
            return False
        return isinstance(found, Grant)

    def release_lock(self, resource_name: str, transaction_id: str) -> bool:
        """Free a lock.

        Returns:
            Whether it was held with this transaction id, and is free now.
        """
        try:
            self.client.table.release_as(self.client.lock(resource_name), transaction_id)
        except (LockLost, TableNotFound):
            return False
        return True

    def extend_lock(self, resource_name: str, timeout_in_seconds: int, transaction_id: str) -> bool:
        """Hold a lock for another timeout, counted from now.

        Returns:
            Whether it was held with this transaction id and its timeout had not ended.
        """
        lease_ms = duration_ms("timeout_in_seconds", timeout_in_seconds, MIN_LEASE_MS, MAX_LEASE_MS)
        try:
            self.client.table.resume(self.client.lock(resource_name), transaction_id, lease_ms)
        except LockLost:
            return False
        return True


def pessimistic(client: LockClient) -> Pessimistic:
    """The functions of the article, for a client.

    acquire_lock, release_lock = locks.acquire_lock, locks.release_lock
    """
    return Pessimistic(client)
