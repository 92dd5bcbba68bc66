"""The client for threads: acquires, holds and renews locks."""

from ticketlock.client._arguments import AcquireOptions
from ticketlock.client._client import LockClient
from ticketlock.client._lease import Lease, LeaseGroup
from ticketlock.client._lock import Lock
from ticketlock.client._pessimistic import Pessimistic, pessimistic
