"""A program that ends in one way or another while it holds a lock or waits for it; test_ends.py starts it.

Its command line: how it ends, the table, the entity. Each line that it prints is a JSON text.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from ticketlock import Claim, Lease, LockClient, LockName, LockTable, aio, pessimistic


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def error_of(what: Callable[[], Any]) -> str | None:
    try:
        what()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def tables(locks: LockClient, mine: LockTable, lease: Lease) -> dict[str, Callable[[], Any]]:
    """What can be asked of the client's table, of one over a client of the user's, and by the article's functions."""
    name, other = LockName(lease.entity), LockName(lease.entity + "x")
    claim, article = Claim(name, lease.owner, 60_000), pessimistic(locks)
    return {
        "table.take_ticket": lambda: locks.table.take_ticket(Claim(other, "child", 60_000), 0),
        "table.renew": lambda: locks.table.renew(claim, lease.fencing_token),
        "table.set_data": lambda: locks.table.set_data(claim, lease.fencing_token, "child"),
        "table.force_release": lambda: locks.table.force_release(name, lease.fencing_token),
        "table.release_as": lambda: locks.table.release_as(name, lease.owner),
        "table.resume": lambda: locks.table.resume(name, lease.owner, 60_000),
        "table.set_limit": lambda: locks.table.set_limit(name, 0),
        "table.inspect": lambda: locks.table.inspect(name),
        "table.list_locks": lambda: list(locks.table.list_locks()),
        "table.now": locks.table.now,
        "a table of mine": lambda: mine.take_ticket(Claim(other, "child", 60_000), 0),
        "acquire_lock": lambda: article.acquire_lock(other.entity, 60, "child"),
        "extend_lock": lambda: article.extend_lock(name.entity, 60, lease.owner),
        "release_lock": lambda: article.release_lock(name.entity, lease.owner),
    }


def held(lease: Lease) -> dict[str, Callable[[], Any]]:
    """What can be asked of the parent's lease."""
    return {
        "renew": lease.renew,
        "ensure": lambda: lease.ensure(1),
        "set_data": lambda: lease.set_data("child"),
        "detach": lease.detach,
        "transact_write": lambda: lease.transact_write([]),
        "condition_check": lease.condition_check,
        "fenced_put": lambda: lease.fenced_put({}),
        "fenced_update": lambda: lease.fenced_update("SET a = :a"),
        "release": lease.release,
        "best effort": lambda: lease.release(best_effort=True),
    }


def fork(locks: LockClient, lease: Lease, entity: str) -> None:
    """In the child, report what the parent's client and lease do; then end as any program does."""
    mine = LockTable(locks.table.table_name, client=locks.table.client)
    mine.now()
    loop = asyncio.new_event_loop()
    for_tasks = loop.run_until_complete(aio.LockClient(locks.table.table_name).__aenter__())
    held_by_tasks = loop.run_until_complete(for_tasks.acquire(entity + "y").__aenter__())
    asked = {
        "lease": held(lease),
        "client": {
            "acquire": lambda: locks.acquire(entity + "x"),
            "again": lambda: locks.acquire(entity, reentrant=True),
            "inspect": lambda: locks.inspect(entity),
        },
        "tables": {
            **tables(locks, mine, lease),
            "acquire of a task": lambda: asyncio.run(for_tasks.try_acquire(entity + "x")),
        },
        "ends": {"close": locks.close, "close of a task": lambda: asyncio.run(for_tasks.close())},
    }
    # A child of `with` leaves it too.
    with lease:
        child = os.fork()
        if child == 0:
            told = {kind: {what: error_of(ask) for what, ask in each.items()} for kind, each in asked.items()}
            say({"is_held": lease.is_held(), "remaining_s": lease.remaining_s, "repr": repr(lease), **told})
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        lease.renew()
        loop.run_until_complete(held_by_tasks.renew())
        say({"status": status, "is_held": lease.is_held()})
        sys.stdin.readline()
        loop.run_until_complete(for_tasks.close())
        loop.close()


def wait_in_the_background(locks: LockClient, entity: str) -> None:
    """As daemon threads do, which the interpreter does not wait for."""
    waits = threading.Event()

    def wait() -> None:
        locks.acquire(entity, on_wait=lambda _: waits.set())

    threading.Thread(target=wait, daemon=True).start()
    waits.wait()


def release_in_the_background(locks: LockClient, lease: Lease) -> None:
    """As a daemon thread does that is still waiting when the program ends."""
    begun = threading.Event()

    def slowly(**_: Any) -> None:
        begun.set()
        # It is sent once the program has ended.
        threading.main_thread().join()

    locks.table.client.meta.events.register("before-send.dynamodb", slowly)
    threading.Thread(target=lease.release, daemon=True).start()
    begun.wait()


def main(how: str, table_name: str, entity: str) -> None:
    locks = LockClient(table_name)
    if how == "waits":
        wait_in_the_background(locks, entity)
        return
    lease = locks.acquire(entity, on_wait=lambda _: say("waiting"))
    say("held")
    if how == "fork":
        fork(locks, lease, entity)
    elif how == "releases":
        release_in_the_background(locks, lease)
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
