"""``LockClient`` beside python_dynamodb_lock, as published: what a cycle costs, and fifty clients on one lock.

    make bench, or: python benchmarks/clients.py [--quick]

- cycle: acquire and release without contention, both locks in turn, with and without 5 ms of delay for each request;
- crowd: fifty clients, each with a DynamoDB client of its own, take one lock repeatedly; the peer at the best of
  several poll intervals, then both in turn, and the median counts;
- depth: the same with ten and with two hundred others in the queue, ours alone.

All on ``ticketlock.testing``'s DynamoDB behind HTTP (``memory_server.py`` says why), anew for each run. Both locks have
their own leases.
"""

import sys
from functools import partial
from statistics import median

from frame import Run, in_turn, main, ratio
from peers.locks import OURS, PINS, PYTHON, Lock, Plan, crowd, cycle, of_python, ours, race

PLANS = (Plan(work_s=0.05, settle_s=6, counted_s=8), Plan(work_s=0.5, settle_s=6, counted_s=20))
CYCLES = 200
DELAYS_S = (0, 0.005)
DEPTHS, QUICK_DEPTHS = (10, 200), (10, 50)

MOST_REQUESTS = 10
LEAST_OF_THE_PEER = 0.9
MOST_OF_THE_PEERS_DELAYED_CYCLE = 0.75
DEPTHS_DIFFER = 0.3
_OWN_LEASE = "0"


def measure(run: Run) -> None:
    """Cycles, crowds, and depths."""
    mine, peer = ours(), of_python()
    run.print(f"{PINS.read_text().split()[-1]} and ticketlock's LockClient")
    _cycles(run, mine, peer)
    for plan in PLANS[:1] if run.quick else PLANS:
        done = race(run, [mine, peer], plan, lease=_OWN_LEASE)
        grants = {name: median(each.grants for each in crowds) for name, crowds in done.items()}
        requests = median(each.requests or 0 for each in done[OURS])
        text = f"{plan.title}: at least {LEAST_OF_THE_PEER} of the peer's grants"
        run.check(text, grants[OURS] >= LEAST_OF_THE_PEER * grants[PYTHON], of_speed=True)
        run.check(f"{plan.title}: at most {MOST_REQUESTS} requests a grant", requests <= MOST_REQUESTS)
    _depths(run, mine)


def _cycles(run: Run, mine: Lock, peer: Lock) -> None:
    count = CYCLES // (2 if run.quick else 1)
    rows, ratios = [], []
    for delay_s in DELAYS_S:
        sides = {lock.name: partial(cycle, lock, count, delay_s) for lock in (mine, peer)}
        found = in_turn(sides, 1 if run.quick else 3)
        requests, ms = ([median(each[at] for each in of_one) for of_one in found.values()] for at in (0, 1))
        delayed = f", each request {delay_s * 1_000:.0f} ms later" if delay_s else ""
        for name, (our, their) in (("requests", requests), ("ms, median", ms)):
            rows.append([f"{name}{delayed}", f"{our:.2f}", f"{their:.2f}", ratio(our, their)])
        ratios.append(ms[0] / ms[1])
        run.check(f"a cycle is 2 requests{delayed}", requests[0] == 2)
    run.table("uncontended cycle", ["", "ours", "peer", "ours / peer"], rows)
    run.check("a cycle takes less time than the peer's", ratios[0] < 1, of_speed=True)
    most = MOST_OF_THE_PEERS_DELAYED_CYCLE
    run.check(f"with the delay, at most {most} of it", ratios[1] <= most, of_speed=True)


def _depths(run: Run, mine: Lock) -> None:
    """Whether a wait costs more in a long queue."""
    each, work_s, depths = [], PLANS[0].work_s, QUICK_DEPTHS if run.quick else DEPTHS
    for ahead in depths:
        # Two turnovers of the queue before counting, and one that counts.
        turnover_s = max(4.0, ahead * work_s * 1.4)
        each.append(crowd(mine, Plan(work_s, 2 * turnover_s, turnover_s), 0, clients=ahead + 1, lease=_OWN_LEASE))
    few, many = each
    requests = (few.requests or 0, many.requests or 0)
    rows = [
        [name, f"{of_few:.2f}", f"{of_many:.2f}", ratio(of_many, of_few)]
        for name, of_few, of_many in (("grants a second", few.grants, many.grants), ("requests a grant", *requests))
    ]
    run.table("50 ms of work, with others in the queue", ["", *map(str, depths), "ratio"], rows)
    text = f"requests a grant differ by less than {DEPTHS_DIFFER:.0%} with depth"
    run.check(text, abs(requests[1] / requests[0] - 1) < DEPTHS_DIFFER, of_speed=True)
    slips = few.beyond_one + many.beyond_one
    run.check("no one is overtaken more than once there either", slips == 0)


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "one round, one poll interval, 50 ms of work, half the time, less depth"))
