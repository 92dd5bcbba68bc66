"""``LockClient`` beside the locks for Python, Java and Go, as published, on one engine.

    make bench-peer, or: python benchmarks/peer_locks.py [--quick] [--side NAME ...]

- cycle: acquire and release without contention; a proxy counts the requests.
- crowd: fifty clients take one lock repeatedly, once for each of ``PLANS``. Each peer first looks for the best of
  several poll intervals; then all run in turn, and the median counts. Ours runs twice: in one process, where a release
  wakes the next in line, and in ten.
- killed: a holder is killed while another client waits, at a share of the lease; how many seconds later that client
  has the lock. All have the same lease.

The peers: python_dynamodb_lock from PyPI, the DynamoDB Lock Client for Java and dynamolock for Go, which Maven and Go
build under build/. If Maven or Go is missing, that peer is left out, and this is reported. All run on
``ticketlock.testing``'s DynamoDB behind HTTP, a new one for each crowd.
"""

import sys
from functools import partial
from statistics import median

from frame import Run, main
from peers.locks import LOCKS, OURS, OURS_APART, PROCESSES, Lock, Plan, cycle, killed, locks, race

LEAST_OF_THE_BEST = {
    Plan(work_s=0.05, settle_s=6, counted_s=8): (0.9, 0.75),
    Plan(work_s=0.05, settle_s=6, counted_s=8, network_s=0.005): (1, 0.9),
    Plan(work_s=0.5, settle_s=6, counted_s=20): (0.95, 0.95),
}
"""Our grants in one process and in ten, as shares of the best peer's.

Below 1 is what order costs: the next in line has to learn of the release. The peers keep no order, and the client that
has just released usually takes the lock again, at once.
"""
PLANS = tuple(LEAST_OF_THE_BEST)
QUICK_PLANS = PLANS[:2]
CYCLES, QUICK_CYCLES = 500, 50
LEASE_S = 8
KILLED_AT, QUICK_KILLED_AT = (0.4, 0.6, 0.8, 1.0, 1.2), (0.2,)
"""When the holder is killed, as shares of the lease."""
REQUESTS_OF_A_CYCLE = 2


def measure(run: Run) -> None:
    """Cycles, crowds, and killed holders."""
    found = locks(run.flags.side or LOCKS, run)
    _cycles(run, found, QUICK_CYCLES if run.quick else CYCLES)
    for plan in QUICK_PLANS if run.quick else PLANS:
        run.part(partial(_crowds, run, found, plan))
    rounds = [killed(found, LEASE_S, LEASE_S * share) for share in (QUICK_KILLED_AT if run.quick else KILLED_AT)]
    took = {lock.name: [each[lock.name] for each in rounds] for lock in found}
    rows = [[name, f"{median(each):.2f}", f"{max(each):.2f}"] for name, each in took.items()]
    title = f"a killed holder, lease {LEASE_S} s: until the waiter has the lock, s"
    run.table(title, ["lock", "median", "most"], rows)


def _cycles(run: Run, found: list[Lock], count: int) -> None:
    costs = {lock.name: cycle(lock, count) for lock in found}
    rows = [[name, f"{requests:.2f}", f"{ms:.1f}"] for name, (requests, ms) in costs.items()]
    run.table("uncontended cycle, through the proxy", ["lock", "requests", "ms, median"], rows)
    for name, (requests, _) in costs.items():
        if name == OURS:
            run.check(f"a cycle of ours is {REQUESTS_OF_A_CYCLE} requests", requests == REQUESTS_OF_A_CYCLE)
        else:
            run.check(f"a cycle of {name} is more", requests > REQUESTS_OF_A_CYCLE)


def _crowds(run: Run, found: list[Lock], plan: Plan) -> None:
    done = race(run, found, plan, apart=True)
    grants = {name: median(each.grants for each in crowds) for name, crowds in done.items()}
    best = max((each for name, each in grants.items() if name not in (OURS, OURS_APART)), default=None)
    if best is not None and OURS in grants:
        sides = {OURS: "one process", OURS_APART: f"{PROCESSES} processes"}
        for least, (name, how) in zip(LEAST_OF_THE_BEST[plan], sides.items(), strict=True):
            run.compare(
                f"{plan.title}: grants from {how}, of the unordered best peer's", grants[name] / best, least=least
            )


if __name__ == "__main__":
    quick = "one round, one poll interval, no 500 ms of work"
    side = ("--side", {"action": "append", "choices": LOCKS, "help": "default: all of them"})
    sys.exit(main(measure, __doc__, quick, side))
