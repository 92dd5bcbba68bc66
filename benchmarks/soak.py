"""Load and soak: 500 waiters on a lock, two contenders on each of 5,000, an hour compressed, a client's long life.

    make soak, or: PYTHONPATH=tests python benchmarks/soak.py [--quick]

- waiters: so many acquisitions of one lock that begin together, half of them by ``LockClient`` from threads in one
  process, half by ``aio.LockClient`` from tasks in another; then the same with a tenth of them;
- pairs: the same two processes go through many locks, two contenders for each, many at once;
- hour: an hour of traffic on 21 locks from 30 machines, with faults and crashes, in virtual time (``soak_hour.py``);
- life: one client of each kind that takes one lock after the other for minutes (``soak_client.py``).

All except the hour are on ``ticketlock.testing``'s DynamoDB behind HTTP (``memory_server.py`` says why).
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import Any

from client_runs import overtakers
from client_sides import Ours
from clients import Check
from memory_server import memory_server
from quick import options_of
from rich.console import Console
from rich.table import Table
from soak_checker import Left, left_in
from soak_client import WORKERS, Life, Lived
from soak_client import read as lived
from soak_crowd import KINDS, Done, Kind, Share, Turn
from soak_hour import Hour, Scale, hour
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.processes import wait_until

from ticketlock.wire._sdk import make_client

WAITERS = (50, 500)
WAITER_HOLDS_S = 0.01
PAIRS = 5_000
PAIRS_AT_ONCE = 32
PAIR_HOLDS_S = 0.02
LIFE_S = 120.0
MOST_TIMES_THE_REQUESTS = 2
# A client remembers up to a thousand locks, and forgets them all at once; the rest is held or waited for.
MOST_GROWTH_KIB = 1_024
MOST_REMEMBERED = 1_100
# The average of one worker; some locks are held for half of that.
MOST_S_FOR_A_LOCK = 10
_BESIDE = Path(__file__).parent
_TIMEOUT_S = 400.0
# Of each crowd: when all fail, they fail alike.
_REASONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Crowd:
    """The result of a crowd.

    Attributes:
        turns: all that were granted.
        failed: how other acquisitions ended.
        seconds: from the first acquisition to the last grant.
        requests: by operation.
        beyond_the_slip: overtakings of waiters in the queue, without the first of each.
        tokens_fell: grants whose token was no greater than that of the lock's grant before.
        left: in the table afterwards.
    """

    turns: Sequence[Turn]
    failed: Sequence[str]
    seconds: float
    requests: Mapping[str, int]
    beyond_the_slip: int
    tokens_fell: int
    left: Left

    @property
    def requests_a_grant(self) -> float:
        """Of all contenders together."""
        return sum(self.requests.values()) / len(self.turns)

    @property
    def waits_s(self) -> list[float]:
        """From the beginning of the acquisition to the grant, the shortest first."""
        return sorted((turn.stay.granted_s or 0) - turn.began_s for turn in self.turns)


def waiters(number: int) -> Crowd:
    """So many clients take one lock, each once."""
    half = number // 2
    return crowd(dict.fromkeys(KINDS, (0, 1, half, half)), WAITER_HOLDS_S)


def pairs(locks: int) -> Crowd:
    """Two clients contend for each of so many locks."""
    half = locks // 2
    shares = {kind: (first, half, 2, PAIRS_AT_ONCE) for kind, first in zip(KINDS, (0, half), strict=True)}
    return crowd(shares, PAIR_HOLDS_S)


def crowd(shares: Mapping[Kind, tuple[int, int, int, int]], hold_s: float) -> Crowd:
    """Two processes take locks.

    Args:
        shares: by kind of client; ``first``, ``locks``, ``contenders`` and ``at_once`` of its ``Share``.
        hold_s: how long each holds its lock.
    """
    with memory_server() as endpoint:
        Ours.make_table(endpoint, "locks")
        runs = [asdict(Share(endpoint, "locks", kind, *share, hold_s)) for kind, share in shares.items()]
        done = [Done.parse(each) for each in said("soak_crowd.py", runs)]
        pages = make_client(**client_arguments(endpoint)).get_paginator("scan").paginate(TableName="locks")
        left = left_in([item for page in pages for item in page["Items"]])
    return seen_of(done, left)


def seen_of(done: Sequence[Done], left: Left) -> Crowd:
    """The result of several processes together.

    Args:
        done: by each.
        left: in the table afterwards.

    Raises:
        SystemExit: no lock was granted, so nothing can be counted; the message says why.
    """
    turns = sorted((turn for each in done for turn in each.turns), key=lambda turn: turn.stay.granted_s or 0)
    failed = [error for each in done for error in each.failed]
    if not turns:
        raise SystemExit("\n".join(["no lock was granted:", *failed[:_REASONS_SHOWN]]))
    by_lock: dict[int, list[Turn]] = defaultdict(list)
    for turn in turns:
        by_lock[turn.lock].append(turn)
    requests: dict[str, int] = defaultdict(int)
    for each in done:
        for operation, times in each.requests.items():
            requests[operation] += times
    return Crowd(
        turns=turns,
        failed=failed,
        seconds=(turns[-1].stay.granted_s or 0) - min(turn.began_s for turn in turns),
        requests=requests,
        beyond_the_slip=sum(_beyond_the_slip(of_one) for of_one in by_lock.values()),
        tokens_fell=sum(
            later.token <= sooner.token for of_one in by_lock.values() for sooner, later in pairwise(of_one)
        ),
        left=left,
    )


def _beyond_the_slip(turns: Sequence[Turn]) -> int:
    stays = [turn.stay for turn in turns]
    return sum(max(0, len(overtakers(stay, stays)) - 1) for stay in stays)


def said(script: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The output of processes that run together; all are ended afterwards, or when one of them fails."""
    with ExitStack() as stack:
        printed = [stack.enter_context(TemporaryFile("w+")) for _ in runs]
        started = [
            subprocess.Popen([sys.executable, str(_BESIDE / script), json.dumps(run)], stdout=file)
            for run, file in zip(runs, printed, strict=True)
        ]

        def ended() -> bool:
            codes = [process.poll() for process in started]
            return any(codes) or None not in codes

        try:
            in_time = wait_until(ended, timeout_s=_TIMEOUT_S)
        finally:
            for process in started:
                process.kill()
                process.wait()
        if not in_time:
            raise SystemExit(f"{script} has not ended in {_TIMEOUT_S:.0f} s")
        if any(process.returncode for process in started):
            raise SystemExit(f"{script} has failed, see above")
        for file in printed:
            file.seek(0)
        return [file.read() for file in printed]


def judged(name: str, crowd: Crowd, *, asked: int, locks: int) -> list[Check]:
    """The checks of every crowd."""
    left = crowd.left
    return [
        Check(f"{name}: every waiter gets the lock", len(crowd.turns) == asked and not crowd.failed),
        Check(f"{name}: no one is overtaken more than once", crowd.beyond_the_slip == 0),
        Check(f"{name}: tokens rise from grant to grant", crowd.tokens_fell == 0),
        Check(f"{name}: only lock items are left", (left.locks, left.rows) == (locks, 0)),
        Check(f"{name}: no holder is left, and all counts are zero", left.is_idle),
    ]


def shown(title: str, crowds: Mapping[str, Crowd]) -> Table:
    """A table of crowds, one for each column."""
    table = Table()
    table.add_column(title)
    for name in crowds:
        table.add_column(name, justify="right")
    rows: dict[str, list[str]] = defaultdict(list)
    for each in crowds.values():
        grants = len(each.turns)
        rows["grants"].append(f"{grants}")
        rows["grants a second"].append(f"{grants / each.seconds:.1f}")
        rows["requests a grant"].append(f"{each.requests_a_grant:.2f}")
        rows["of these, polls"].append(f"{each.requests.get('Query', 0) / grants:.2f}")
        rows["wait, median"].append(f"{median(each.waits_s):.2f} s")
        rows["wait, longest"].append(f"{each.waits_s[-1]:.2f} s")
        rows["overtakings beyond the one slip"].append(f"{each.beyond_the_slip}")
        rows["failed"].append(f"{len(each.failed)}")
        rows["left: lock items, rows, held, waiting"].append(_told(each.left))
    for name, values in rows.items():
        table.add_row(name, *values)
    return table


def _told(left: Left) -> str:
    return f"{left.locks}, {left.rows}, {left.held}, {left.waiting}"


def judged_hour(seen: Hour) -> list[Check]:
    """The checks of an hour."""
    _, after_leases, after_a_day, after_weeks = seen.left
    lost = seen.happened.get("locks lost", 0)
    return [
        Check("hour: exclusion, fencing, limits, counts and order hold at every write", not seen.broken),
        Check("hour: no waiter starves", seen.starved == 0),
        Check("hour: no one loses a lock that is renewed", lost == 0),
        Check("hour: closed clients leave no task and remember nothing", (seen.tasks, seen.remembered) == (0, 0)),
        Check("hour: leases expired, no holder is left, and all counts are zero", after_leases.is_idle),
        Check("hour: a day later no row is left", after_a_day.rows == 0),
        Check("hour: four weeks later nothing is left", (after_weeks.locks, after_weeks.rows) == (0, 0)),
    ]


def shown_hour(scale: Scale, seen: Hour) -> Table:
    """A table of an hour."""
    table = Table()
    table.add_column(f"{scale.minutes:.0f} virtual minutes, {scale.locks} locks, {scale.machines} machines")
    table.add_column("", justify="right")
    left, after_leases, after_a_day, after_weeks = seen.left
    rows = {
        "grants": f"{seen.grants}",
        "requests a grant": f"{seen.requests / seen.grants:.2f}",
        "of these, polls": f"{seen.polls / seen.grants:.2f}",
        "most rows in one queue": f"{seen.deepest}",
        "wait, longest of the granted": f"{seen.longest_wait_s:.1f} s",
        **{name: f"{times}" for name, times in sorted(seen.happened.items())},
        "promises broken": f"{len(seen.broken)}",
        "starved": f"{seen.starved}",
        "left: lock items, rows, held, waiting": _told(left),
        "leases over, each lock taken once": _told(after_leases),
        "a day later": _told(after_a_day),
        "four weeks later": _told(after_weeks),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def lives(seconds: float) -> dict[str, Lived]:
    """A client of each kind for so many seconds, on one table."""
    with memory_server() as endpoint:
        Ours.make_table(endpoint, "locks")
        printed = said("soak_client.py", [asdict(Life(endpoint, "locks", kind, seconds)) for kind in KINDS])
    return {kind: lived(each) for kind, each in zip(KINDS, printed, strict=True)}


def judged_life(kind: str, life: Lived, seconds: float) -> list[Check]:
    """The checks of a long life."""
    first, last = life.first, life.last
    return [
        Check(f"life, {kind}: no worker fails", not life.failed),
        Check(f"life, {kind}: it takes locks all along", life.cycles >= WORKERS * seconds / MOST_S_FOR_A_LOCK),
        Check(f"life, {kind}: memory does not grow", last.traced_kib - first.traced_kib <= MOST_GROWTH_KIB),
        Check(f"life, {kind}: threads do not grow", last.threads <= first.threads + 1),
        Check(f"life, {kind}: files do not grow", last.files <= first.files + 1),
        Check(f"life, {kind}: what is remembered is bounded", last.remembered <= MOST_REMEMBERED),
        Check(f"life, {kind}: no thread outlives the client", life.closed.threads == 1),
    ]


def shown_lives(seconds: float, seen: Mapping[str, Lived]) -> Table:
    """A table of lives: each value is the mean of a quarter."""
    table = Table()
    table.add_column(f"one client, {WORKERS} workers, {seconds:.0f} s: first quarter, last, closed")
    for kind in seen:
        table.add_column(kind, justify="right")
    table.add_row("locks taken", *(f"{life.cycles}" for life in seen.values()))
    table.add_row("gave up", *(f"{life.gave_up}" for life in seen.values()))
    table.add_row("failed", *(f"{len(life.failed)}" for life in seen.values()))
    for name in asdict(next(iter(seen.values())).first):
        moments = [(life.first, life.last, life.closed) for life in seen.values()]
        table.add_row(name, *(", ".join(f"{getattr(used, name):,.1f}" for used in each) for each in moments))
    return table


def main() -> int:
    """Run, print; 1 if a check fails."""
    parser = options_of(__doc__, "a tenth of it")
    less = 10 if parser.parse_args().quick else 1
    console = Console(width=110)
    checks: list[Check] = []
    reasons: dict[str, Sequence[str]] = {}

    few, many = (number // less for number in WAITERS)
    crowds = {f"{number}": waiters(number) for number in (few, many)}
    console.print(shown("waiters, one lock, all at once", crowds))
    for name, each in crowds.items():
        checks += judged(f"{name} waiters", each, asked=int(name) // 2 * 2, locks=1)
        reasons[f"{name} waiters"] = each.failed
    times = crowds[f"{many}"].requests_a_grant / crowds[f"{few}"].requests_a_grant
    more = f"{many} waiters send less than {MOST_TIMES_THE_REQUESTS} times the requests a grant of {few}"
    checks.append(Check(more, times < MOST_TIMES_THE_REQUESTS))

    locks = PAIRS // less
    contended = pairs(locks)
    console.print(shown(f"{locks} locks, two contenders each", {"": contended}))
    checks += judged("pairs", contended, asked=2 * locks, locks=locks)
    reasons["pairs"] = contended.failed

    scale = Scale(minutes=60 / less)
    seen = hour(scale)
    console.print(shown_hour(scale, seen))
    checks += judged_hour(seen)
    reasons["hour"] = seen.broken

    lived_s = LIFE_S / less
    clients = lives(lived_s)
    console.print(shown_lives(lived_s, clients))
    for kind, life in clients.items():
        checks += judged_life(kind, life, lived_s)
        reasons[f"life, {kind}"] = life.failed

    for check in checks:
        print(f"{'PASS  ' if check.kept else 'FAILED'} {check.text}")
    for name, texts in reasons.items():
        for reason in texts[:_REASONS_SHOWN]:
            print(f"FAILED {name}: {reason}")
    return 0 if all(check.kept for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
