"""One process's share of a crowd: takes locks over HTTP, each of them so many times, so many at once.

Its one argument is the share as JSON, and it prints its result as JSON.
"""

import asyncio
import json
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from client_sides import Stay
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import LockClient, Position, aio
from ticketlock.wire._sdk import make_client

Kind = Literal["threads", "tasks"]
KINDS: tuple[Kind, ...] = ("threads", "tasks")


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does, by one client.

    Attributes:
        endpoint, table: where.
        kind: of the client.
        first, locks: the number of the first one, and how many there are.
        contenders: for each of them, in this process; they begin one right after the other.
        at_once: how many acquisitions run at once.
        hold_s: how long each holds its lock.
    """

    endpoint: str
    table: str
    kind: Kind
    first: int
    locks: int
    contenders: int
    at_once: int
    hold_s: float


@dataclass(slots=True)
class Turn:
    """One acquisition, in seconds of the machine's monotonic clock, which its processes share.

    Attributes:
        lock: its number.
        stay: in the queue.
        began_s: when it began.
        token: the grant's.
    """

    lock: int
    stay: Stay
    began_s: float
    token: int = 0

    def waits(self, seen: Position) -> None:
        """A poll has found that it is another waiter's turn."""
        if self.stay.number != seen.place.ticket:
            self.stay = Stay(seen.place.ticket, time.monotonic())

    def is_granted(self, lease: Any) -> None:
        """The lock is held."""
        self.stay.granted_s = time.monotonic()
        self.stay.number = self.stay.number or lease._grant.ticket or 0
        self.token = lease.fencing_token


@dataclass(slots=True)
class Done:
    """The result of a share.

    Attributes:
        turns: all that were granted.
        requests: how many of each operation were sent.
        failed: how other acquisitions ended.
    """

    turns: list[Turn] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def watch(self, client: Any) -> None:
        """Count what a client sends."""
        client.meta.events.register("before-call.dynamodb", self._before)

    def _before(self, model: Any, **_: Any) -> None:
        self.requests[model.name] = self.requests.get(model.name, 0) + 1

    @classmethod
    def parse(cls, said: str) -> "Done":
        """What a process has printed."""
        read = json.loads(said)
        turns = [Turn(**{**turn, "stay": Stay(**turn["stay"])}) for turn in read["turns"]]
        return cls(turns, read["requests"], read["failed"])


def by_threads(share: Share, done: Done) -> None:
    """Take them from threads, with one client."""
    client = make_client(**client_arguments(share.endpoint))
    done.watch(client)
    left = deque(_jobs(share))
    with LockClient(share.table, client=client, record_wait=math.inf) as locks:

        def work() -> None:
            while (lock := _next(left)) is not None:
                turn = Turn(lock, Stay(0), time.monotonic())
                try:
                    with locks.acquire(f"lock-{lock}", on_wait=turn.waits) as lease:
                        turn.is_granted(lease)
                        time.sleep(share.hold_s)
                except Exception as error:
                    done.failed.append(repr(error))
                else:
                    done.turns.append(turn)

        threads = [threading.Thread(target=work) for _ in range(share.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def by_tasks(share: Share, done: Done) -> None:
    """Take them from tasks, with one client."""
    left = deque(_jobs(share))
    options = client_arguments(share.endpoint)
    async with aio.LockClient(share.table, client_options=options, record_wait=math.inf) as locks:
        done.watch(locks._client)

        async def work() -> None:
            while (lock := _next(left)) is not None:
                turn = Turn(lock, Stay(0), time.monotonic())
                try:
                    async with locks.acquire(f"lock-{lock}", on_wait=turn.waits) as lease:
                        turn.is_granted(lease)
                        await asyncio.sleep(share.hold_s)
                except Exception as error:
                    done.failed.append(repr(error))
                else:
                    done.turns.append(turn)

        await asyncio.gather(*(work() for _ in range(share.at_once)))


def _jobs(share: Share) -> list[int]:
    return [lock for lock in range(share.first, share.first + share.locks) for _ in range(share.contenders)]


def _next(left: deque[int]) -> int | None:
    try:
        return left.popleft()
    except IndexError:
        return None


_BY: dict[Kind, Callable[[Share, Done], None]] = {
    "threads": by_threads,
    "tasks": lambda share, done: asyncio.run(by_tasks(share, done)),
}


def main(share: Share) -> None:
    """Take them all, and print."""
    done = Done()
    _BY[share.kind](share, done)
    print(json.dumps(asdict(done)), flush=True)


if __name__ == "__main__":
    main(Share(**json.loads(sys.argv[1])))
