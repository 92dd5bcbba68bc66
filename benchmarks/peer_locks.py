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

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from client_runs import overtakers
from client_sides import Ours, Stay, Theirs
from counting_proxy import counting_proxy
from installed import installed
from memory_server import memory_server
from quick import options_of
from rich.console import Console
from rich.table import Table
from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.cloud.deploy import client_arguments, client_environment
from ticketlock_local.errors import LocalCloudError

CLIENTS, PROCESSES = 50, 10
POLLS_S = (0.1, 0.5, 2.0)
LEASE_S = 8
LEAST_OF_THE_BEST = 0.97
OURS, OURS_APART = "ours", "ours, apart"
PYTHON, JAVA, GO = "python_dynamodb_lock", "Java", "Go"
SIDES = (OURS, PYTHON, JAVA, GO)

_PROGRAM = Path(__file__).with_name("lock_program.py")
_REQUIREMENTS = Path(__file__).with_name("clients-peer-requirements.txt")
_PEERS = Path(__file__).with_name("peers")
_TIMEOUT_S = 240
_NS = 1_000_000_000
_AS_FAST = 0.98


@dataclass(frozen=True, slots=True)
class Plan:
    """One kind of crowd, in seconds: the work, the time before counting, the time of counting, and the network's delay
    of each request.
    """

    work_s: float
    settle_s: float
    counted_s: float
    network_s: float = 0

    @property
    def title(self) -> str:
        """What the clients do."""
        network = f", {self.network_s * 1_000:.0f} ms of network" if self.network_s else ""
        return f"{self.work_s * 1_000:.0f} ms of work{network}"


PLANS = (Plan(0.05, 6, 8), Plan(0.05, 6, 8, network_s=0.005), Plan(0.5, 6, 20))
QUICK_PLANS = (Plan(0.05, 6, 4), Plan(0.05, 6, 4, network_s=0.005))


@dataclass(frozen=True, slots=True)
class Crowd:
    """The result of fifty clients.

    Attributes:
        grants: a second.
        out_of_order: grants that overtook a client that had come before.
        beyond_one: overtakings of waiters in the queue, without the first of each.
        requests: for each grant; None if the program does not count them.
    """

    grants: float
    out_of_order: int
    beyond_one: int
    requests: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and whether it was kept."""

    text: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One lock.

    Attributes:
        make_table: creates a table for it at an endpoint.
        command: runs its program; the endpoint, the table and further arguments follow.
        polls_s: its poll intervals; 0 for one with a pace of its own.
    """

    name: str
    make_table: Callable[[str, str], None]
    command: Sequence[str]
    polls_s: Sequence[float]
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, url: str, table: str, *words: object) -> "subprocess.Popen[str]":
        """Start its program."""
        environment = {**os.environ, **client_environment(url), **self.environment}
        command = [*self.command, url, table, *map(str, words)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )


def sides(names: Sequence[str], console: Console) -> list[Side]:
    """Those that can run here; the others are reported."""
    found = []
    for name in names:
        try:
            found.append(_MAKERS[name]())
        except LocalCloudError as error:
            console.print(f"NOT RACED: {name}. {error}", style="bold red", highlight=False)
    return found


def _ours() -> Side:
    return Side(OURS, Ours.make_table, [sys.executable, str(_PROGRAM), "ours"], (0,))


def _python() -> Side:
    path = os.pathsep.join([str(installed("clients-peer", _REQUIREMENTS)), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(_PROGRAM), "python_dynamodb_lock"]
    return Side(PYTHON, Theirs.make_table, command, POLLS_S, {"PYTHONPATH": path})


def _java() -> Side:
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise LocalCloudError("There is no `java` or no `mvn` here.")
    folder = _built(
        "java-lock-client",
        lambda folder: [
            maven,
            "--quiet",
            "--batch-mode",
            f"-Dpeer.folder={folder}",
            "compile",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
        ],
    )
    path = os.pathsep.join([str(folder / "classes"), str(folder / "dependency" / "*")])
    return Side(JAVA, _make_table, ["java", "-Dpeer.key=test", "-cp", path, "Peer"], POLLS_S)


def _go() -> Side:
    go = shutil.which("go")
    if go is None:
        raise LocalCloudError("There is no `go` here.")
    folder = _built("dynamolock", lambda folder: [go, "build", "-o", str(folder / "peer"), "."])
    return Side(GO, _make_table, [str(folder / "peer")], POLLS_S)


_MAKERS: Mapping[str, Callable[[], Side]] = {OURS: _ours, PYTHON: _python, JAVA: _java, GO: _go}


def _built(name: str, command_of: Callable[[Path], Sequence[str]]) -> Path:
    """A peer and the program that drives it, under build/; built again if their sources have changed.

    Raises:
        LocalCloudError: it cannot be built.
    """
    folder, stamp, home = BUILD / "peers" / name, BUILD / "peers" / f"{name}.txt", _PEERS / name
    sources = "".join(path.read_text() for path in sorted(home.rglob("*")) if path.is_file())
    with exclusive(name):
        if not (stamp.exists() and stamp.read_text() == sources):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            done = subprocess.run(
                command_of(folder), cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            if done.returncode != 0:
                raise LocalCloudError(f"It cannot be built:\n{done.stdout}")
            stamp.write_text(sources)
    return folder


def _make_table(url: str, table: str) -> None:
    """The table of the locks for Java and Go, which have the same key."""
    dynamodb: Any = boto3.client("dynamodb", **client_arguments(url))
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
    )


def line_of(process: "subprocess.Popen[str]", side: Side) -> str:
    """The next line that a program prints.

    Raises:
        LocalCloudError: it has ended.
    """
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise LocalCloudError(f"the program of {side.name} has ended, with {process.wait()}")
    return line


@contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Ends the program at the end of the block."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def cycle(side: Side, cycles: int) -> tuple[float, float]:
    """Uncontended: requests of a cycle, and its milliseconds."""
    with memory_server() as engine, counting_proxy(engine) as proxy:
        side.make_table(engine, "locks")
        with ended(side.start(proxy.url, "locks", "cycles", cycles)) as process:
            line_of(process, side)
            proxy.counts()
            assert process.stdin is not None
            print("go", file=process.stdin, flush=True)
            took_ms = int(line_of(process, side)) / 1_000
            return proxy.counts().in_all / cycles, took_ms


def crowd(side: Side, plan: Plan, poll_s: float, *, processes: int = 1) -> Crowd:
    """Fifty clients on one lock, in so many processes."""
    times = [round(each * 1_000) for each in (plan.work_s, poll_s, plan.settle_s, plan.counted_s)]
    with memory_server(plan.network_s) as url, ExitStack() as stack:
        side.make_table(url, "locks")
        running = [
            stack.enter_context(ended(side.start(url, "locks", "crowd", CLIENTS // processes, *times)))
            for _ in range(processes)
        ]
        outputs = [each.communicate(timeout=_TIMEOUT_S)[0].splitlines() for each in running]
    if any(each.returncode != 0 for each in running) or not all(outputs):
        raise LocalCloudError(f"a crowd of {side.name} has failed, see above")
    counted = [[int(word) for word in lines[0].split()] for lines in outputs]
    all_stays = [_stay(line) for lines in outputs for line in lines[1:]]
    began, ended_at = max(each[0] for each in counted) / _NS, min(each[1] for each in counted) / _NS
    granted = [stay for stay in all_stays if stay.granted_s is not None and began <= stay.granted_s < ended_at]
    overtaken = [overtakers(stay, all_stays) for stay in all_stays]
    # Of several processes, each counts what it has sent during its own counting time.
    sent = [each[2] * (ended_at - began) / ((each[1] - each[0]) / _NS) for each in counted if len(each) > 2]
    return Crowd(
        grants=len(granted) / (ended_at - began),
        out_of_order=len({id(other) for others in overtaken for other in others}),
        beyond_one=sum(max(0, len(others) - 1) for others in overtaken),
        requests=sum(sent) / max(1, len(granted)) if sent else None,
    )


def _stay(line: str) -> Stay:
    number, stood, granted = map(int, line.split())
    return Stay(number, stood / _NS if stood else None, granted / _NS if granted else None)


def best_poll_s(side: Side, plan: Plan, polls_s: Sequence[float], console: Console) -> float:
    """The longest of the poll intervals that are as fast as the fastest: it sends the fewest requests."""
    if len(polls_s) == 1:
        return polls_s[0]
    tried = {poll_s: crowd(side, plan, poll_s).grants for poll_s in polls_s}
    rates = ", ".join(f"{grants:.2f} at {poll_s} s" for poll_s, grants in tried.items())
    console.print(f"{side.name}: grants a second by its poll interval: {rates}", highlight=False)
    return max(poll_s for poll_s, grants in tried.items() if grants >= max(tried.values()) * _AS_FAST)


def killed(found: Sequence[Side], lease_s: int, after_s: float) -> Mapping[str, float]:
    """For each lock, the seconds from the kill of its holder to its take-over, all at the same time."""
    lease_ms = lease_s * 1_000
    with memory_server() as url, ExitStack() as stack:
        holders, waiters = [], []
        for side in found:
            side.make_table(url, side.name)
            holders.append(stack.enter_context(ended(side.start(url, side.name, "hold", lease_ms))))
            line_of(holders[-1], side)
        for side in found:
            poll_ms = round((side.polls_s[0] or POLLS_S[0]) * 1_000)
            waiters.append(stack.enter_context(ended(side.start(url, side.name, "wait", lease_ms, poll_ms))))
            line_of(waiters[-1], side)

        def held_s(waiter: "subprocess.Popen[str]", side: Side) -> float:
            line_of(waiter, side)
            return time.monotonic()

        with ThreadPoolExecutor(len(found)) as pool:
            held = [pool.submit(held_s, *each) for each in zip(waiters, found, strict=True)]
            # The waiters see their holders, and renewals by them.
            time.sleep(after_s)
            for holder in holders:
                holder.kill()
            killed_at = time.monotonic()
            return {side.name: each.result() - killed_at for side, each in zip(found, held, strict=True)}


def cycles(found: Sequence[Side], console: Console, count: int) -> Sequence[Check]:
    """Print what a cycle costs with each lock."""
    table = _table("uncontended cycle, through the proxy", "lock", "requests", "ms, median")
    costs = {}
    for side in found:
        costs[side.name], ms = cycle(side, count)
        table.add_row(side.name, f"{costs[side.name]:.2f}", f"{ms:.1f}")
    console.print(table)
    peers = [cost for name, cost in costs.items() if name != OURS]
    if OURS not in costs:
        return []
    return [
        Check("a cycle of ours is 2 requests", costs[OURS] == 2),
        Check("each peer's is more", all(cost > 2 for cost in peers)),
    ]


def crowds(found: Sequence[Side], console: Console, plan: Plan, *, quick: bool) -> Sequence[Check]:
    """Print the results of fifty clients with each lock."""
    best = {}
    for side in found:
        best[side.name] = best_poll_s(side, plan, side.polls_s[1:2] or side.polls_s if quick else side.polls_s, console)
    done: dict[str, list[Crowd]] = {}
    for _ in range(1 if quick else 3):
        for side in found:
            done.setdefault(side.name, []).append(crowd(side, plan, best[side.name]))
            if side.name == OURS:
                done.setdefault(OURS_APART, []).append(crowd(side, plan, 0, processes=PROCESSES))
    columns = ("poll, s", "grants a second", "to the best peer's", "out of order", "requests a grant")
    table = _table(f"{CLIENTS} clients, {plan.title}: at most {1 / plan.work_s:g} grants a second", "lock", *columns)
    grants = {name: statistics.median(each.grants for each in crowds) for name, crowds in done.items()}
    best_peers = max((each for name, each in grants.items() if name not in (OURS, OURS_APART)), default=None)
    for name, crowds in done.items():
        requests = [each.requests for each in crowds if each.requests is not None]
        table.add_row(
            name,
            f"{best[name]}" if best.get(name) else "-",
            f"{grants[name]:.2f}",
            f"{grants[name] / best_peers:.2f}" if best_peers else "-",
            f"{statistics.median(each.out_of_order for each in crowds):g}",
            f"{statistics.median(requests):.1f}" if requests else "-",
        )
    console.print(table)
    if OURS not in done:
        return []
    slips = sum(each.beyond_one for name in (OURS, OURS_APART) for each in done[name])
    checks = [Check(f"{plan.title}: no client of ours is overtaken twice", slips == 0)]
    if best_peers and not quick:
        apart = f"{plan.title}: from {PROCESSES} processes at least {LEAST_OF_THE_BEST} of the best peer's grants"
        checks.append(Check(apart, grants[OURS_APART] >= LEAST_OF_THE_BEST * best_peers))
        checks.append(Check(f"{plan.title}: from one process more than the best peer's", grants[OURS] > best_peers))
    return checks


def take_overs(found: Sequence[Side], console: Console, *, quick: bool) -> None:
    """Print how long a killed holder blocks the lock."""
    after = (0.2,) if quick else (0.4, 0.6, 0.8, 1.0, 1.2)
    rounds = [killed(found, LEASE_S, LEASE_S * share) for share in after]
    table = _table(f"a killed holder, lease {LEASE_S} s: until the waiter has the lock, s", "lock", "median", "most")
    for side in found:
        took = [each[side.name] for each in rounds]
        table.add_row(side.name, f"{statistics.median(took):.2f}", f"{max(took):.2f}")
    console.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def main() -> int:
    """Race and print; 1 if a promise is broken, or a program fails."""
    options = options_of(__doc__, "one round, one poll interval, no 500 ms of work, no verdict on the rates")
    options.add_argument("--side", action="append", choices=SIDES, help="default: all of them")
    chosen = options.parse_args()
    console = Console(width=120)
    checks: list[Check] = []
    try:
        found = sides(chosen.side or SIDES, console)
        checks += cycles(found, console, 50 if chosen.quick else 500)
        for plan in QUICK_PLANS if chosen.quick else PLANS:
            checks += crowds(found, console, plan, quick=chosen.quick)
        take_overs(found, console, quick=chosen.quick)
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    for check in checks:
        print(f"{'PASS  ' if check.kept else 'FAILED'} {check.text}")
    return 0 if all(check.kept for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
