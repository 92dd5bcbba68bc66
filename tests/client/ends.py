"""A program that ends in one way or another while it holds a lock or waits for it; test_ends.py starts it.

Its command line: how it ends, the table, the entity. Each line that it prints is a JSON text.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from ticketlock import Lease, LockClient


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def error_of(what: Callable[[], Any]) -> str | None:
    try:
        what()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def fork(locks: LockClient, lease: Lease, entity: str) -> None:
    """In the child, say what becomes of the parent's client and lease; then end as any program does."""
    # A child of `with` leaves it too.
    with lease:
        child = os.fork()
        if child == 0:
            say(
                {
                    "is_held": lease.is_held(),
                    "remaining_s": lease.remaining_s,
                    "renew": error_of(lease.renew),
                    "ensure": error_of(lambda: lease.ensure(1)),
                    "set_data": error_of(lambda: lease.set_data("child")),
                    "detach": error_of(lease.detach),
                    "transact_write": error_of(lambda: lease.transact_write([])),
                    "release": error_of(lease.release),
                    "best effort": error_of(lambda: lease.release(best_effort=True)),
                    "acquire": error_of(lambda: locks.acquire(entity + "x")),
                    "again": error_of(lambda: locks.acquire(entity, reentrant=True)),
                    "inspect": error_of(lambda: locks.inspect(entity)),
                    "close": error_of(locks.close),
                }
            )
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        lease.renew()
        say({"status": status, "is_held": lease.is_held(), "token": lease.fencing_token})
        sys.stdin.readline()


def wait_in_the_background(locks: LockClient, entity: str) -> None:
    """As daemon threads do, for which nobody waits at the end."""
    waits = threading.Event()

    def wait() -> None:
        locks.acquire(entity, on_wait=lambda _: waits.set())

    threading.Thread(target=wait, daemon=True).start()
    waits.wait()


def main(how: str, table_name: str, entity: str) -> None:
    locks = LockClient(table_name)
    if how == "waits":
        wait_in_the_background(locks, entity)
        return
    lease = locks.acquire(entity, on_wait=lambda _: say("waiting"))
    say("held")
    if how == "fork":
        fork(locks, lease, entity)
    elif how == "exit":
        sys.exit(3)
    elif how == "exception":
        raise RuntimeError("on purpose")
    elif how == "in a thread":
        threading.Thread(target=lambda: locks.acquire(entity + "x")).start()
    elif how == "interrupted":
        with lease:
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
