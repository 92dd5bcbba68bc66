"""What tests read of a lock in the table."""

from ticketlock import LockClient


def is_held(locks: LockClient, entity: str) -> bool:
    item = locks.inspect(entity).item
    return item is not None and item.held > 0


def waiters(locks: LockClient, entity: str) -> int:
    return len(locks.inspect(entity).rows)
