"""The two locks for Python that clients.py and peer_locks.py compare, behind the same verbs; requests are counted."""

import time
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Any, Protocol

import boto3
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import LockClient, Position, create_table
from ticketlock.wire._sdk import make_client

LOCK = "lock"
_LONG = timedelta(hours=1)


@dataclass
class Wire:
    """The requests of one client.

    Attributes:
        sent: when each request was sent, on the monotonic clock in seconds; repeats count.
        delay_s: how long each request waits before it is sent.
    """

    sent: list[float] = field(default_factory=list)
    delay_s: float = 0.0

    def watch(self, client: Any) -> None:
        """Count what a low-level client sends from now on."""
        client.meta.events.register("before-send.dynamodb", self._before)

    def _before(self, **_: Any) -> None:
        self.sent.append(time.monotonic())
        if self.delay_s:
            time.sleep(self.delay_s)


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


class Side(Protocol):
    """One client of one of the two locks, for one thread."""

    wire: Wire
    stay: Stay | None

    def acquire(self) -> Stay:
        """Wait for the lock, and hold it; ``stay`` shows the wait while it lasts."""
        ...

    def release(self) -> None:
        """Release it."""
        ...


class Ours:
    """A ``LockClient`` with its defaults."""

    def __init__(self, endpoint: str, table: str, *, lease_s: float = 60) -> None:
        self.wire = Wire()
        self.stay: Stay | None = None
        client = make_client(**client_arguments(endpoint))
        self.wire.watch(client)
        self._client = LockClient(table, client=client, lease=lease_s, record_wait=_LONG)

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

    @staticmethod
    def make_table(endpoint: str, table: str) -> None:
        """Create a table."""
        create_table(table, client=make_client(**client_arguments(endpoint)))


class Theirs:
    """A client of python_dynamodb_lock with its defaults, except for its poll interval.

    It has no order: its number is the moment at which it began to acquire.
    """

    def __init__(self, endpoint: str, table: str, poll_s: float, *, lease_s: float | None = None) -> None:
        self.wire = Wire()
        self.stay: Stay | None = None
        self._poll = timedelta(seconds=poll_s)
        resource = boto3.resource("dynamodb", **client_arguments(endpoint))
        self.wire.watch(resource.meta.client)
        client = import_module("python_dynamodb_lock.python_dynamodb_lock").DynamoDBLockClient
        shares = {"lease_duration": 1, "safe_period": 0.8, "heartbeat_period": 0.25} if lease_s is not None else {}
        times = {name: timedelta(seconds=(lease_s or 0) * share) for name, share in shares.items()}
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

    @staticmethod
    def make_table(endpoint: str, table: str) -> None:
        """Create a table with its keys."""
        dynamodb: Any = boto3.client("dynamodb", **client_arguments(endpoint))
        keys = ("lock_key", "sort_key")
        dynamodb.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            KeySchema=[
                {"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=True)
            ],
        )
        dynamodb.get_waiter("table_exists").wait(TableName=table)
