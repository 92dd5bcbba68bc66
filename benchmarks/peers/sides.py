"""The two locks for Python behind the same verbs; requests are counted."""

import time
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

import boto3
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import LockClient, Position
from ticketlock.wire._sdk import make_client

LOCK = "lock"
_LONG = timedelta(hours=1)


@dataclass(slots=True)
class Stay:
    """One acquisition.

    Attributes:
        number: its position in the order of arrival.
        stood_s: since when it was in the queue; None for one that never was.
        granted_s: when it got the lock; None for one that waits.
    """

    number: int
    stood_s: float | None = None
    granted_s: float | None = None


class Ours:
    """A ``LockClient`` with its defaults, except for its lease if one is given."""

    def __init__(self, endpoint: str, table: str, *, lease_s: float | None) -> None:
        self.stay: Stay | None = None
        client = make_client(**client_arguments(endpoint))
        self.sent = _sent_by(client)
        lease: dict[str, Any] = {"lease": lease_s} if lease_s else {}
        self._client = LockClient(table, client=client, record_wait=_LONG, **lease)

    def acquire(self) -> Stay:
        """Wait for the lock, and hold it."""
        self.stay = None
        self._lease = self._client.acquire(LOCK, on_wait=self._waits)
        stay = self.stay or Stay(self._lease._grant.ticket or 0)
        stay.granted_s = time.monotonic()
        return stay

    def release(self) -> None:
        """Release it."""
        self._lease.release()

    def _waits(self, seen: Position) -> None:
        if self.stay is None or self.stay.number != seen.place.ticket:
            self.stay = Stay(seen.place.ticket, time.monotonic())


class Theirs:
    """A client of python_dynamodb_lock with its defaults, except for its poll interval, and its lease if one is given.

    It has no order: its number is the moment at which it began to acquire.
    """

    def __init__(self, endpoint: str, table: str, poll_s: float, *, lease_s: float | None) -> None:
        self.stay: Stay | None = None
        self._poll = timedelta(seconds=poll_s)
        resource = boto3.resource("dynamodb", **client_arguments(endpoint))
        self.sent = _sent_by(resource.meta.client)
        client = import_module("python_dynamodb_lock.python_dynamodb_lock").DynamoDBLockClient
        shares = {"lease_duration": 1, "safe_period": 0.8, "heartbeat_period": 0.25}
        times = {name: timedelta(seconds=lease_s * share) for name, share in shares.items()} if lease_s else {}
        self._client = client(resource, table, **times)

    def acquire(self) -> Stay:
        """Wait for the lock, and hold it."""
        now = time.monotonic()
        self.stay = stay = Stay(int(now * 1e9), now)
        self._lock = self._client.acquire_lock(LOCK, retry_period=self._poll, retry_timeout=_LONG)
        stay.granted_s = time.monotonic()
        return stay

    def release(self) -> None:
        """Release it."""
        self._lock.release(best_effort=False)


Side = Ours | Theirs
"""One client of one of the two locks, for one thread: ``sent`` is when it sent each request, on the monotonic clock in
seconds, repeats included; ``stay`` is the acquisition that waits, or that was the last to wait."""


def _sent_by(client: Any) -> list[float]:
    """When a low-level client sends a request, from now on."""
    sent: list[float] = []

    def note(**_: Any) -> None:
        sent.append(time.monotonic())

    client.meta.events.register("before-send.dynamodb", note)
    return sent
