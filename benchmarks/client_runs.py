"""What benchmarks/clients.py runs in a process of its own: many clients on one lock, or cycles of both locks in turn.

Its one argument is the run as JSON, and it prints its result as JSON. In a process of its own, since neither clients
that are still waiting nor the peer's threads end with a run.
"""

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from client_sides import Ours, Side, Stay, Theirs


@dataclass(frozen=True, slots=True)
class Crowd:
    """Clients that take one lock repeatedly, each in a thread of its own.

    Attributes:
        endpoint, table: where; the table is created.
        poll_s: how often the peer polls; None for ours.
        clients: how many.
        work_s: how long each holds the lock.
        settle_s: the time from the last client's start until counting begins.
        seconds: for how long it is counted.
    """

    endpoint: str
    table: str
    poll_s: float | None
    clients: int
    work_s: float
    settle_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of a crowd.

    Attributes:
        grants: a second.
        requests: for each grant, of all clients together.
        out_of_order: grants that overtook a client that had come before.
        beyond_the_slip: overtakings of waiters in the queue, without the first of each.
        longest_wait_s: among the granted.
    """

    grants: float
    requests: float
    out_of_order: int
    beyond_the_slip: int
    longest_wait_s: float


@dataclass(frozen=True, slots=True)
class Cycles:
    """Uncontended cycles of both locks in turn, with one client each."""

    endpoint: str
    cycles: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class Cycle:
    """An uncontended cycle: acquire and release.

    Attributes:
        requests: of each cycle.
        ms: the median.
    """

    requests: float
    ms: float


def crowd(run: Crowd) -> Figures:
    """Run them, and count."""
    (Ours if run.poll_s is None else Theirs).make_table(run.endpoint, run.table)
    sides: list[Side] = [
        Ours(run.endpoint, run.table) if run.poll_s is None else Theirs(run.endpoint, run.table, run.poll_s)
        for _ in range(run.clients)
    ]
    stays: list[Stay] = []
    failed: list[BaseException] = []

    def go_on(side: Side) -> None:
        try:
            while True:
                stay = side.acquire()
                stays.append(stay)
                time.sleep(run.work_s)
                side.release()
        except BaseException as error:
            failed.append(error)
            raise

    for side in sides:
        threading.Thread(target=go_on, args=(side,), daemon=True).start()
    time.sleep(run.settle_s)
    began = time.monotonic()
    time.sleep(run.seconds)
    ended = time.monotonic()
    if failed:
        raise failed[0]
    all_stays = [*stays, *(side.stay for side in sides if side.stay is not None and side.stay.granted_s is None)]
    granted = [stay for stay in all_stays if stay.granted_s is not None and began <= stay.granted_s < ended]
    sent = sum(began <= moment < ended for side in sides for moment in list(side.wire.sent))
    overtaken = [len(overtakers(stay, all_stays)) for stay in all_stays]
    return Figures(
        grants=len(granted) / (ended - began),
        requests=sent / max(1, len(granted)),
        out_of_order=len({id(other) for stay in all_stays for other in overtakers(stay, all_stays)}),
        beyond_the_slip=sum(max(0, times - 1) for times in overtaken),
        longest_wait_s=max((stay.granted_s or 0) - (stay.stood_s or stay.granted_s or 0) for stay in granted),
    )


def overtakers(stay: Stay, all_stays: Sequence[Stay]) -> list[Stay]:
    """Those that came later, and got the lock while this one was in the queue."""
    if stay.stood_s is None:
        return []
    until = stay.granted_s if stay.granted_s is not None else float("inf")
    return [
        other
        for other in all_stays
        if other.granted_s is not None and other.number > stay.number and stay.stood_s < other.granted_s < until
    ]


def cycles(run: Cycles) -> dict[str, Cycle]:
    """Run both in turn, and count and measure each."""
    Ours.make_table(run.endpoint, "ours")
    Theirs.make_table(run.endpoint, "theirs")
    sides: dict[str, Side] = {"ours": Ours(run.endpoint, "ours"), "peer": Theirs(run.endpoint, "theirs", 1.0)}
    took_ms: dict[str, list[float]] = {name: [] for name in sides}
    # The first cycles open connections, and get the table's time for ours.
    for number in range(-5, run.cycles):
        for name, side in sides.items():
            if number == 0:
                side.wire.sent.clear()
                side.wire.delay_s = run.delay_s
            began = time.perf_counter()
            side.acquire()
            side.release()
            if number >= 0:
                took_ms[name].append((time.perf_counter() - began) * 1_000)
    return {
        name: Cycle(len(side.wire.sent) / run.cycles, statistics.median(took_ms[name])) for name, side in sides.items()
    }


def main(what: dict[str, Any]) -> None:
    """Run, print, and exit at once, even if clients are still waiting."""
    if "cycles" in what:
        done: Any = {name: asdict(cycle) for name, cycle in cycles(Cycles(**what)).items()}
    else:
        done = asdict(crowd(Crowd(**what)))
    print(json.dumps(done), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
