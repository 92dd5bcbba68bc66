"""What units of work cost: requests, capacity units as an engine counts them, time beside plain boto3, and rivals.

    make bench, or: PYTHONPATH=tests python benchmarks/units_cost.py [--quick]

- cost: units that update N items, or only read them, at each level, with and without one ``get_all``; and units that
  are committed by marks;
- latency: a plain boto3 client without settings makes the same reads and one TransactWriteItems that checks a version;
  in turn, and the median counts. The client takes AttributeValues, made by hand; that of the resource takes Python
  values, as units do, and is measured too;
- rivals: twenty threads update one item, with 20 ms of work between the read and the commit; with back-off, and in
  turn.

On dynoxide, which bills by the rules (docs/engines.md) and which cargo builds if necessary; without cargo on ministack,
whose read units mean nothing.
"""

import os
import random
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import boto3
from kit.units import KEYS, make_table
from quick import options_of
from rich.console import Console
from rich.table import Table
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.dynoxide import dynoxide
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import CargoMissing, LocalCloudError

from ticketlock import LockClient, create_table
from ticketlock.units import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation, Unit, Units
from ticketlock.wire._sdk import make_client

SIZES = (1, 3, 10, 100)
LEVELS = (UNCOMMITTED, COMMITTED, SERIALIZABLE)
UNITS_TARGETS = {3: 6, 10: 20, 100: 200}
REQUESTS_TARGETS = {True: 2, False: 11}
READ_TARGETS = (1, 20)
MARKED_SIZES = (10, 100, 500)
MARKED_TARGETS = {("updates", 500): 1_100, ("inserts", 500): 1_650}
MOST_OF_PLAIN = 1.3
RIVALS, WORK_S = 20, 0.02
LEAST_OF_ALLOWED, MOST_TRIES = 0.8, 2.5
_LATENCY_SIZES = (1, 3, 10)
_ADD, _ONE = "SET balance = balance + :one", {":one": 1}
_WRITES = ("DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem")
_WORDS = ("order", "paid", "shipped", "returned", "street", "city", "customer", "amount", "currency", "weight")


@contextmanager
def chosen() -> Iterator[tuple[str, str]]:
    """The engine: its name and its URL."""
    try:
        with dynoxide() as url:
            os.environ |= client_environment(url)
            yield "dynoxide", url
            return
    except CargoMissing as error:
        print(error, file=sys.stderr)
    with Emulator() as running:
        os.environ |= client_environment(running.endpoint)
        yield "ministack", running.endpoint


@dataclass
class Meter:
    """Counts what a client sends.

    Attributes:
        requests: how many.
        writes, reads: capacity units, as the engine reports them.
    """

    requests: int = 0
    writes: float = 0
    reads: float = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, client: Any) -> None:
        """Count from now on, and ask for the units."""
        client.meta.events.register("provide-client-params.dynamodb", self._ask)
        client.meta.events.register("after-call.dynamodb", self._note)

    def _ask(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name != "DescribeTable":
            with self.mutex:
                self.requests += 1
            params["ReturnConsumedCapacity"] = "TOTAL"

    def _note(self, parsed: Mapping[str, Any], model: Any, **_: Any) -> None:
        consumed = parsed.get("ConsumedCapacity", [])
        units = sum(table["CapacityUnits"] for table in ([consumed] if isinstance(consumed, Mapping) else consumed))
        with self.mutex:
            if model.name in _WRITES:
                self.writes += units
            else:
                self.reads += units


@dataclass
class Subject:
    """Units on an engine, and a user's table."""

    url: str
    client: Any = None
    plain: Any = None
    resource: Any = None
    units: Units = field(init=False)
    names: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.client = make_client(endpoint_url=self.url)
        self.plain = boto3.client("dynamodb", endpoint_url=self.url)
        self.resource = boto3.resource("dynamodb", endpoint_url=self.url).meta.client
        self.names = {use: f"{use}-{uuid.uuid4().hex[:8]}" for use in ("units", "accounts")}
        for use, name in self.names.items():
            make_table(self.client, name, KEYS[use])
        self.units = Units(self.names["units"], client=self.client)
        self.accounts = self.units.table(self.names["accounts"])

    def filled(self, count: int) -> list[dict[str, str]]:
        """The keys of new items that a unit has written."""
        keys = [{"id": uuid.uuid4().hex} for _ in range(count)]
        with self.units.begin() as unit:
            unit.get_all([(self.accounts, key) for key in keys])
            for key in keys:
                unit.put(self.accounts, {**key, "balance": 0})
        return keys

    def metered(self) -> tuple["Subject", Meter]:
        """The same tables, through a client that is counted."""
        other = object.__new__(Subject)
        other.url, other.names, other.client = self.url, self.names, make_client(endpoint_url=self.url)
        other.units = Units(self.names["units"], client=other.client)
        other.accounts = other.units.table(self.names["accounts"])
        meter = Meter()
        meter.watch(other.client)
        return other, meter

    def read(self, unit: Unit, keys: Sequence[Mapping[str, str]], *, together: bool) -> None:
        """All items, in one request or one by one."""
        if together:
            unit.get_all([(self.accounts, key) for key in keys])
        else:
            for key in keys:
                unit.get(self.accounts, key)


@dataclass(frozen=True)
class Check:
    """One target, and whether it is met.

    Attributes:
        is_of_speed: whether it compares durations, which a short run on a busy machine may miss.
    """

    text: str
    met: bool
    is_of_speed: bool = False


# Costs.


def cost(subject: Subject, do: Callable[[Subject], object]) -> Meter:
    """Count what a unit sends."""
    metered, meter = subject.metered()
    do(metered)
    return meter


def update_all(keys: Sequence[Mapping[str, str]], level: Isolation, *, together: bool, blind: bool = False) -> Any:
    """A unit that updates all items, having read them all before."""

    def run(subject: Subject) -> None:
        with subject.units.begin(isolation=level) as unit:
            if not blind:
                subject.read(unit, keys, together=together)
            for key in keys:
                unit.update(subject.accounts, key, _ADD, _ONE, blind=blind)

    return run


def marked(subject: Subject, console: Console, engine: str) -> list[Check]:
    """Units that are committed by marks: updates of items that units wrote before, and inserts, of about 1 KB."""
    table = _table(f"a unit of N items of 1 KB, committed by marks, on {engine}", "N", "what", *_COUNTED)
    checks = []
    for count in MARKED_SIZES:
        keys = [{"id": uuid.uuid4().hex} for _ in range(count)]
        for what, each in (("inserts", _insert), ("updates", _update)):

            def run(subject: Subject, keys: Any = keys, each: Any = each) -> None:
                with subject.units.begin(engine="marked") as unit:
                    subject.read(unit, keys, together=True)
                    for key in keys:
                        each(subject, unit, key)

            found = cost(subject, run)
            table.add_row(f"{count}", what, f"{found.requests}", f"{found.writes:g}", f"{found.reads:g}")
            if (what, count) in MARKED_TARGETS:
                most = MARKED_TARGETS[what, count]
                checks.append(Check(f"{what} of {count}, by marks: at most {most} write units", found.writes <= most))
    console.print(table)
    return checks


def _insert(subject: Subject, unit: Unit, key: Mapping[str, str]) -> None:
    text = " ".join(random.choice(_WORDS) for _ in range(130))[:850]
    unit.put(subject.accounts, {**key, "balance": 0, "text": text})


def _update(subject: Subject, unit: Unit, key: Mapping[str, str]) -> None:
    unit.update(subject.accounts, key, _ADD, _ONE)


def read_all(keys: Sequence[Mapping[str, str]], level: Isolation, *, together: bool) -> Any:
    """A unit that only reads them."""

    def run(subject: Subject) -> None:
        with subject.units.begin(isolation=level) as unit:
            subject.read(unit, keys, together=together)

    return run


def costs(subject: Subject, console: Console, engine: str) -> list[Check]:
    """Both tables of costs."""
    checks = []
    updates = _table(f"a unit that reads and updates N items, on {engine}", "N", "level", "reads", *_COUNTED)
    reads = _table(f"a unit that only reads N items, on {engine}", "N", "level", "reads", *_COUNTED)
    for count in SIZES:
        keys = subject.filled(count)
        for level in LEVELS:
            for together in (False, True):
                how = "get_all" if together else "one by one"
                found = cost(subject, update_all(keys, level, together=together))
                _row(updates, count, level.name, how, found)
                if level is SERIALIZABLE:
                    checks += _of_updates(count, found, how, together=together)
                found = cost(subject, read_all(keys, level, together=together))
                _row(reads, count, level.name, how, found)
                if level is SERIALIZABLE and together and count == 10:
                    measured = (found.requests, found.reads)
                    requests, units = READ_TARGETS
                    checks.append(
                        Check(f"reads of 10, get_all: {requests} request, {units} units", measured == READ_TARGETS)
                    )
        _row(
            updates,
            count,
            "-",
            "blind",
            cost(subject, update_all(keys, SERIALIZABLE, together=False, blind=True)),
        )
    console.print(updates)
    console.print(reads)
    return checks


_COUNTED = ("requests", "write units", "read units")


def _of_updates(count: int, found: Meter, how: str, *, together: bool) -> list[Check]:
    checks = []
    if count in UNITS_TARGETS:
        most = UNITS_TARGETS[count]
        checks.append(Check(f"updates of {count}, {how}: {most} write units", found.writes == most))
    if count == 10:
        most = REQUESTS_TARGETS[together]
        checks.append(Check(f"updates of {count}, {how}: at most {most} requests", found.requests <= most))
    return checks


# Latency.


def by_hand(subject: Subject, keys: Sequence[Mapping[str, str]], *, together: bool, python: bool = False) -> None:
    """The same without units: the same reads, one TransactWriteItems, and a version that is checked."""
    table, client = subject.names["accounts"], subject.resource if python else subject.plain
    given: list[Any] = [{"id": key["id"] if python else {"S": key["id"]}} for key in keys]
    if together:
        wanted = [{"Get": {"TableName": table, "Key": key}} for key in given]
        items = [each["Item"] for each in client.transact_get_items(TransactItems=wanted)["Responses"]]
    else:
        items = [client.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"] for key in given]
    version = uuid.uuid4().hex
    writes = [
        {
            "Update": {
                "TableName": table,
                "Key": key,
                "UpdateExpression": "SET balance = :balance, version = :version",
                "ConditionExpression": "version = :seen OR attribute_not_exists(version)",
                "ExpressionAttributeValues": {
                    ":balance": item["balance"] + 1 if python else {"N": str(int(item["balance"]["N"]) + 1)},
                    ":version": version if python else {"S": version},
                    ":seen": item.get("version", "-" if python else {"S": "-"}),
                },
            }
        }
        for key, item in zip(given, items, strict=True)
    ]
    client.transact_write_items(TransactItems=writes, ClientRequestToken=version)


def latency(subject: Subject, console: Console, rounds: int) -> list[Check]:
    """Units beside the same without units."""
    table = _table("ms, median", "N", "reads", "unit", "client", "resource", "unit / client", "unit / resource")
    checks = []
    for count in _LATENCY_SIZES:
        # Several items of one instant, if there is only one, are a plain read.
        for together in (False, True) if count > 1 else (False,):
            mine, theirs, others = (subject.filled(count) for _ in range(3))
            sides: dict[str, list[float]] = {"unit": [], "client": [], "resource": []}
            unit = update_all(mine, SERIALIZABLE, together=together)
            for _ in range(rounds):
                sides["unit"].append(_timed(partial(unit, subject)))
                sides["client"].append(_timed(partial(by_hand, subject, theirs, together=together)))
                sides["resource"].append(_timed(partial(by_hand, subject, others, together=together, python=True)))
            ours, plain, resource = (statistics.median(side) * 1_000 for side in sides.values())
            how = "get_all" if together else "one by one"
            times, ratios = (ours, plain, resource), (ours / plain, ours / resource)
            table.add_row(f"{count}", how, *(f"{each:.2f}" for each in (*times, *ratios)))
            checks.append(
                Check(
                    f"latency of {count}, {how}: at most {MOST_OF_PLAIN} of it",
                    ours / plain <= MOST_OF_PLAIN,
                    is_of_speed=True,
                )
            )
    console.print(table)
    return checks


def _timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


# Rivals.


@dataclass
class Race:
    """Threads that update one item, each with work between its read and its commit.

    Attributes:
        commits: of each thread.
        tries: how many times they have read the item.
        took_s: how long it took.
    """

    commits: list[int] = field(default_factory=lambda: [0] * RIVALS)
    tries: list[int] = field(default_factory=lambda: [0] * RIVALS)
    took_s: float = 0

    @property
    def a_second(self) -> float:
        """Commits a second."""
        return sum(self.commits) / self.took_s

    @property
    def tries_a_commit(self) -> float:
        """Reads of the item for each commit."""
        return sum(self.tries) / sum(self.commits)

    def run(self, subject: Subject, key: Mapping[str, str], units: Units, seconds: float) -> None:
        """Run the race."""
        over = threading.Event()
        accounts = units.table(subject.names["accounts"])

        @units.transactional(tries=1_000)
        def update(number: int, *, unit: Unit) -> None:
            unit.update(accounts, key, _ADD, _ONE)
            self.tries[number] += 1
            time.sleep(WORK_S)  # the work

        def several(number: int) -> None:
            while not over.is_set():
                update(number)
                self.commits[number] += 1

        threads = [threading.Thread(target=several, args=(number,)) for number in range(RIVALS)]
        before, began = self._balance(subject, key), time.perf_counter()
        for thread in threads:
            thread.start()
        over.wait(seconds)
        over.set()
        for thread in threads:
            thread.join()
        self.took_s = time.perf_counter() - began
        assert self._balance(subject, key) == before + sum(self.commits)

    @staticmethod
    def _balance(subject: Subject, key: Mapping[str, str]) -> int:
        found = subject.units.get(subject.accounts, key)
        assert found is not None
        return int(found["balance"])


def rivals(subject: Subject, console: Console, seconds: float) -> list[Check]:
    """Units with back-off, and units that take turns, beside what their requests allow."""
    (key,), (other,) = subject.filled(1), subject.filled(1)
    lock_table = f"locks-{uuid.uuid4().hex[:8]}"
    create_table(lock_table, client=subject.client)
    with LockClient(lock_table, client=subject.client) as locks:
        backing_off, in_turn = Race(), Race()
        backing_off.run(subject, key, subject.units, seconds)
        in_turn.run(subject, key, Units(subject.names["units"], client=subject.client, locks=locks), seconds)
        # Of two units in turn, the second one's read follows the first one's release, and so on.
        one_by_one_s = statistics.median(_timed(partial(_turn, subject, locks, other)) for _ in range(50))
    allowed = 1 / (WORK_S + one_by_one_s)
    table = _table(f"{RIVALS} rivals on one item, {WORK_S * 1_000:.0f} ms of work", "", "with back-off", "in turn")
    races = (backing_off, in_turn)
    table.add_row("units committed a second", *(f"{race.a_second:.1f}" for race in races))
    table.add_row("tries a commit", *(f"{race.tries_a_commit:.2f}" for race in races))
    table.add_row(
        "commits of the luckiest and the unluckiest", *(f"{max(race.commits)}, {min(race.commits)}" for race in races)
    )
    console.print(table)
    allowance = f"{WORK_S * 1_000:.0f} ms and {one_by_one_s * 1_000:.1f} ms of requests allow {allowed:.1f} a second"
    return [
        Check(
            f"in turn: at least {LEAST_OF_ALLOWED} of what {allowance}",
            in_turn.a_second >= LEAST_OF_ALLOWED * allowed,
            is_of_speed=True,
        ),
        Check(f"in turn: at most {MOST_TRIES} tries a commit", in_turn.tries_a_commit <= MOST_TRIES),
    ]


def _turn(subject: Subject, locks: LockClient, key: Mapping[str, str]) -> None:
    """The requests of one turn: acquire, read, commit, release."""
    with locks.acquire(key["id"]), subject.units.begin() as unit:
        unit.update(subject.accounts, key, _ADD, _ONE)


def _table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="left" if column in ("", "level", "reads") else "right")
    return made


def _row(table: Table, count: int, level: str, how: str, found: Meter) -> None:
    table.add_row(f"{count}", level, how, f"{found.requests}", f"{found.writes:g}", f"{found.reads:g}")


def main() -> int:
    """Measure and print; 1 if a target is not met, or there is no engine."""
    options = options_of(__doc__, "fewer rounds")
    quick = options.parse_args().quick
    console = Console(width=115)
    try:
        with chosen() as (engine, url):
            subject = Subject(url)
            checks = costs(subject, console, engine)
            checks += marked(subject, console, engine)
            checks += latency(subject, console, 30 if quick else 150)
            checks += rivals(subject, console, 4 if quick else 15)
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    for check in checks:
        console.print(f"{'met    ' if check.met else 'NOT MET'}  {check.text}", highlight=False)
    return int(not all(check.met or (quick and check.is_of_speed) for check in checks))


if __name__ == "__main__":
    sys.exit(main())
