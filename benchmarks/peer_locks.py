"""``LockClient`` beside the locks for Python, Java and Go, as published, on one engine.

    make bench-peer, or: python benchmarks/peer_locks.py [--quick] [--side NAME ...]

- cycle: acquire and release without contention; the requests are those that a proxy counts;
- crowd: fifty clients take one lock repeatedly, with 50 ms of work, without a network and with 5 ms of one for each
  request, and with 500 ms of work; each peer at the best of several poll intervals, then all in turn, and the median
  counts. Ours in one process, where a release wakes the next in line, and in ten;
- killed: a holder is killed while another client waits; the seconds until that client has the lock, with one lease for
  all.

The peers: python_dynamodb_lock from PyPI, the DynamoDB Lock Client for Java and dynamolock for Go, which Maven and Go
build under build/. If Maven or Go is missing, that peer is left out, and this is reported. All run on
``ticketlock.testing``'s DynamoDB behind HTTP, a new one for each crowd.
"""

import sys

from frame import Run, main, median
from peers.locks import LOCKS, OURS, OURS_APART, PROCESSES, Lock, Plan, cycle, killed, locks, race

PLANS = (Plan(0.05, 6, 8), Plan(0.05, 6, 8, network_s=0.005), Plan(0.5, 6, 20))
LEASE_S = 8
LEAST_OF_THE_BEST = 0.97


def measure(run: Run) -> None:
    """Cycles, crowds, and killed holders."""
    found = locks(run.flags.side or LOCKS, run)
    _cycles(run, found, 50 if run.quick else 500)
    for plan in PLANS[:2] if run.quick else PLANS:
        _crowds(run, found, plan)
    after = (0.2,) if run.quick else (0.4, 0.6, 0.8, 1.0, 1.2)
    rounds = [killed(found, LEASE_S, LEASE_S * share) for share in after]
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
            run.check("a cycle of ours is 2 requests", requests == 2)
        else:
            run.check(f"a cycle of {name} is more", requests > 2)


def _crowds(run: Run, found: list[Lock], plan: Plan) -> None:
    done = race(run, found, plan, apart=True)
    grants = {name: median(each.grants for each in crowds) for name, crowds in done.items()}
    best = max((each for name, each in grants.items() if name not in (OURS, OURS_APART)), default=None)
    if best is not None and OURS in grants:
        apart = f"{plan.title}: from {PROCESSES} processes at least {LEAST_OF_THE_BEST} of the best peer's grants"
        run.check(apart, grants[OURS_APART] >= LEAST_OF_THE_BEST * best, of_speed=True)
        run.check(f"{plan.title}: from one process more than the best peer's", grants[OURS] > best, of_speed=True)


if __name__ == "__main__":
    quick = "one round, one poll interval, no 500 ms of work, no verdict on the rates"
    side = ("--side", {"action": "append", "choices": LOCKS, "help": "default: all of them"})
    sys.exit(main(measure, __doc__, quick, side))
