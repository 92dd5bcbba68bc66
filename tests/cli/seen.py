"""What tests read of a lock in the table."""

from ticketlock import LockClient


def held(locks: LockClient, entity: str) -> int:
    item = locks.inspect(entity).item
    return 0 if item is None else item.held


def waiters(locks: LockClient, entity: str) -> int:
    return len(locks.inspect(entity).rows)
