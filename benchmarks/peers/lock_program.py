"""The program of the locks for Python; those for Java and Go do the same.

Arguments: ``ours`` or ``python_dynamodb_lock``, the endpoint, the table, and

- ``cycles N``: prints ready, waits for a line, acquires and releases N times; prints the median in microseconds;
- ``crowd CLIENTS WORK_MS POLL_MS SETTLE_MS COUNTED_MS [LEASE_MS]``: clients that take one lock repeatedly, with the
  lock's own lease if it is 0; prints first the moments between which it counts, and how many requests were sent between
  them; then for each wait its position in the order of arrival, when it began, or 0 for one that was never in a queue,
  and when the lock was granted, or 0;
- ``hold LEASE_MS``: prints held, and renews until it is killed;
- ``wait LEASE_MS POLL_MS``: prints asks, then held.
"""

import os
import statistics
import sys
import threading
import time

from peers.sides import Ours, Side, Stay, Theirs

WARM_UP = 300
_LEASE_MS = 20_000


class Program:
    """One of the two locks, at a table."""

    def __init__(self, name: str, endpoint: str, table: str) -> None:
        self._name = name
        self._endpoint = endpoint
        self._table = table

    def _side(self, lease_ms: int, poll_ms: int) -> Side:
        lease_s = lease_ms / 1_000 or None
        if self._name == "ours":
            return Ours(self._endpoint, self._table, lease_s=lease_s)
        return Theirs(self._endpoint, self._table, poll_ms / 1_000, lease_s=lease_s)

    def cycles(self, count: int) -> None:
        """The duration of an uncontended acquisition with its release."""
        side, took_us = self._side(_LEASE_MS, 1_000), []
        for _ in range(WARM_UP):
            side.acquire()
            side.release()
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(count):
            began = time.perf_counter()
            side.acquire()
            side.release()
            took_us.append((time.perf_counter() - began) * 1_000_000)
        print(round(statistics.median(took_us)))

    def crowd(
        self, clients: int, work_ms: int, poll_ms: int, settle_ms: int, counted_ms: int, lease_ms: int = _LEASE_MS
    ) -> None:
        """Many clients on one lock."""
        sides = [self._side(lease_ms, poll_ms) for _ in range(clients)]
        done: list[Stay] = []

        def take_repeatedly(side: Side) -> None:
            try:
                while True:
                    stay = side.acquire()
                    done.append(stay)
                    time.sleep(work_ms / 1_000)
                    side.release()
            except BaseException as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(1)

        for side in sides:
            threading.Thread(target=take_repeatedly, args=(side,), daemon=True).start()
        time.sleep(settle_ms / 1_000)
        began = time.monotonic()
        time.sleep(counted_ms / 1_000)
        ended = time.monotonic()
        waiting = [side.stay for side in sides if side.stay is not None and side.stay.granted_s is None]
        sent = sum(began <= moment < ended for side in sides for moment in list(side.sent))
        print(_ns(began), _ns(ended), sent)
        for stay in [*done, *waiting]:
            print(stay.number, _ns(stay.stood_s), _ns(stay.granted_s))

    def hold(self, lease_ms: int) -> None:
        """Hold the lock until the end of the process."""
        self._side(lease_ms, 100).acquire()
        print("held", flush=True)
        threading.Event().wait()

    def wait(self, lease_ms: int, poll_ms: int) -> None:
        """Wait for the lock."""
        side = self._side(lease_ms, poll_ms)
        print("asks", flush=True)
        side.acquire()
        print("held", flush=True)


def _ns(moment_s: float | None) -> int:
    return round((moment_s or 0) * 1_000_000_000)


if __name__ == "__main__":
    program = Program(*sys.argv[1:4])
    getattr(program, sys.argv[4])(*map(int, sys.argv[5:]))
    sys.stdout.flush()
    # Neither clients that are still waiting nor the peer's threads end by themselves.
    os._exit(0)
