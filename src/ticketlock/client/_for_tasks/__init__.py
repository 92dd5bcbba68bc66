"""The client for tasks."""

from ticketlock.client._for_tasks._client import LockClient
from ticketlock.client._for_tasks._lease import Lease, LeaseGroup
from ticketlock.client._for_tasks._lock import Lock
