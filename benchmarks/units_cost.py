"""What units of work cost: requests, capacity units as an engine counts them, time beside plain boto3, and rivals.

    make bench, or: python benchmarks/units_cost.py [--quick]

- cost: units that update N items, or only read them, at each level, with and without one ``get_all``; and units that
  are committed by marks;
- latency: a plain boto3 client without settings makes the same reads and one TransactWriteItems that checks a version;
  in turn, and the median counts. The client takes AttributeValues, made by hand; that of the resource takes Python
  values, as units do, and is measured too;
- sweeps: a pass over units that are open, beside receipts of names, as many as thirty days leave: the requests, and the
  read units by the rules, counted by the engine in memory; and what reading the table would cost;
- rivals: twenty threads update one item, with 20 ms of work between the read and the commit; with back-off, and in
  turn.

All but the sweeps run on dynoxide, which bills by the rules and which cargo builds if necessary; without cargo on
ministack, whose read units mean nothing.
"""

import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import boto3
from frame import Run, engine, in_turn, main, make_table, timed
from ticketlock_local.errors import LocalCloudError

from ticketlock import LockClient, create_table
from ticketlock._expressions._values import canonical_item, size_of
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import (
    COMMITTED,
    SERIALIZABLE,
    UNCOMMITTED,
    Isolation,
    Unit,
    Units,
    UnitTable,
    create_units_table,
)
from ticketlock.units._records._record import UnitRecord, UnitRecords, new_id
from ticketlock.units._records._rows import NEVER_USED, Receipt, put_receipt
from ticketlock.units._statements._settings import NAMES_ARE_KEPT_S
from ticketlock.wire._sdk import make_client

SIZES = (1, 3, 10, 100)
LEVELS = (UNCOMMITTED, COMMITTED, SERIALIZABLE)
UNITS_TARGETS = {3: 6, 10: 20, 100: 200}
REQUESTS_TARGETS = {True: 2, False: 11}
READ_TARGETS = (1, 20)
MARKED_SIZES = (10, 100, 500)
MARKED_TARGETS = {("updates", 500): 1_100, ("inserts", 500): 1_650}
OPEN_UNITS, RECEIPTS = 10, (0, 10_000, 1_000_000)
MOST_OF_CLIENT = {1: 1.2, 3: 1.2, 10: 1.25}
MOST_OF_RESOURCE = {(10, True): 1.05}
"""On a quiet machine 1.1, 1.1 and 1.2 of the client's, and 1 of the resource's: a twentieth is left for noise."""
RIVALS, WORK_S = 20, 0.02
LEAST_OF_ALLOWED, MOST_TRIES = 0.85, 1.5
_READ_UNIT_BYTES = 4_096
_LATENCY_SIZES = (1, 3, 10)
_ADD, _ONE = "SET balance = balance + :one", {":one": 1}
_WRITES = ("DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem")
_WORDS = ("order", "paid", "shipped", "returned", "street", "city", "customer", "amount", "currency", "weight")
_COUNTED = ("requests", "write units", "read units")

Keys = Sequence[Mapping[str, str]]


@dataclass
class Meter:
    """Counts what a client sends: the requests, and their capacity units, as the engine reports them."""

    requests: int = 0
    writes: float = 0
    reads: float = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, client: Any) -> None:
        """Count from now on, and ask for the units."""
        client.meta.events.register("provide-client-params.dynamodb", self._ask)
        client.meta.events.register("after-call.dynamodb", self._note)

    @property
    def figures(self) -> list[object]:
        """All three, for a table."""
        return [self.requests, float(self.writes), float(self.reads)]

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


class Subject:
    """Units over a client, a user's table, and a lock table.

    Args:
        url: of the engine.
        names: of tables that exist; by default new ones are created.
    """

    def __init__(self, url: str, names: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.client: Any = make_client(endpoint_url=url)
        self.names = names or {use: f"{use}-{uuid.uuid4().hex[:8]}" for use in ("units", "accounts", "locks")}
        if names is None:
            create_units_table(self.names["units"], client=self.client)
            make_table(self.client, self.names["accounts"], "id")
            create_table(self.names["locks"], client=self.client)
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

    def cost(self, do: Callable[["Subject"], object]) -> Meter:
        """Count what a unit sends, on the same tables."""
        other, meter = Subject(self.url, self.names), Meter()
        meter.watch(other.client)
        do(other)
        return meter

    def read(self, unit: Unit, keys: Keys, *, together: bool) -> None:
        """All items, in one request or one by one."""
        if together:
            unit.get_all([(self.accounts, key) for key in keys])
        else:
            for key in keys:
                unit.get(self.accounts, key)

    def update(
        self,
        keys: Keys,
        level: Isolation = SERIALIZABLE,
        *,
        together: bool,
        blind: bool = False,
        update: tuple[str, Mapping[str, Any]] = (_ADD, _ONE),
    ) -> None:
        """A unit that updates all items, having read them all before."""
        with self.units.begin(isolation=level) as unit:
            if not blind:
                self.read(unit, keys, together=together)
            for key in keys:
                unit.update(self.accounts, key, *update, blind=blind)

    def read_only(self, keys: Keys, level: Isolation = SERIALIZABLE, *, together: bool) -> None:
        """A unit that only reads them."""
        with self.units.begin(isolation=level) as unit:
            self.read(unit, keys, together=together)

    def marked(self, keys: Keys, *, inserts: bool) -> None:
        """A unit of items of 1 KB that is committed by marks."""
        with self.units.begin(engine="marked") as unit:
            self.read(unit, keys, together=True)
            for key in keys:
                if inserts:
                    text = " ".join(random.choice(_WORDS) for _ in range(130))[:850]
                    unit.put(self.accounts, {**key, "balance": 0, "text": text})
                else:
                    unit.update(self.accounts, key, _ADD, _ONE)


def _how(together: bool) -> str:
    return "get_all" if together else "one by one"


def costs(run: Run, subject: Subject, on: str) -> None:
    """Units that update N items, or only read them."""
    updates: list[list[object]] = []
    reads: list[list[object]] = []
    for count in SIZES:
        keys = subject.filled(count)
        for level in LEVELS:
            for together in (False, True):
                how, name = _how(together), level.name
                found = subject.cost(lambda it: it.update(keys, level, together=together))  # noqa: B023
                updates.append([count, name, how, *found.figures])
                read = subject.cost(lambda it: it.read_only(keys, level, together=together))  # noqa: B023
                reads.append([count, name, how, *read.figures])
                if level is not SERIALIZABLE:
                    continue
                if count in UNITS_TARGETS:
                    most = UNITS_TARGETS[count]
                    run.check(f"updates of {count}, {how}: {most} write units", found.writes == most)
                if count == 10:
                    most = REQUESTS_TARGETS[together]
                    run.check(f"updates of 10, {how}: at most {most} requests", found.requests <= most)
                if count == 10 and together:
                    requests, units = READ_TARGETS
                    text = f"reads of 10, get_all: {requests} request, {units} units"
                    run.check(text, (read.requests, read.reads) == READ_TARGETS)
        blind = subject.cost(lambda it: it.update(keys, together=False, blind=True))  # noqa: B023
        updates.append([count, "-", "blind", *blind.figures])
    columns = ("N", "level", "reads", *_COUNTED)
    run.table(f"a unit that reads and updates N items, on {on}", columns, updates, texts=3)
    run.table(f"a unit that only reads N items, on {on}", columns, reads, texts=3)


def marked(run: Run, subject: Subject, on: str) -> None:
    """Units that are committed by marks: updates of items that units wrote before, and inserts, of about 1 KB."""
    rows: list[list[object]] = []
    for count in MARKED_SIZES:
        keys = [{"id": uuid.uuid4().hex} for _ in range(count)]
        for what in ("inserts", "updates"):
            found = subject.cost(partial(Subject.marked, keys=keys, inserts=what == "inserts"))
            rows.append([count, what, *found.figures])
            if (what, count) in MARKED_TARGETS:
                most = MARKED_TARGETS[what, count]
                run.check(f"{what} of {count}, by marks: at most {most} write units", found.writes <= most)
    run.table(f"a unit of N items of 1 KB, committed by marks, on {on}", ("N", "what", *_COUNTED), rows, texts=2)


def by_hand(client: Any, table: str, keys: Keys, *, together: bool, python: bool = False) -> None:
    """The same without units: the same reads, one TransactWriteItems, and a version that is checked."""
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


def latency(run: Run, subject: Subject) -> None:
    """Units beside the same without units."""
    table, rows = subject.names["accounts"], []
    plain = boto3.client("dynamodb", endpoint_url=subject.url)
    resource = boto3.resource("dynamodb", endpoint_url=subject.url).meta.client
    for count in _LATENCY_SIZES:
        # Several items of one instant, if there is only one, are a plain read.
        for together in (False, True) if count > 1 else (False,):
            unit, client, other = (subject.filled(count) for _ in range(3))
            sides = {
                "unit": partial(subject.update, unit, together=together),
                "client": partial(by_hand, plain, table, client, together=together),
                "resource": partial(by_hand, resource, table, other, together=together, python=True),
            }
            took = in_turn({name: partial(timed, do) for name, do in sides.items()}, 30 if run.quick else 150)
            times = [median(each) * 1_000 for each in took.values()]
            ratios = [times[0] / each for each in times[1:]]
            rows.append([count, _how(together), *(f"{each:.2f}" for each in (*times, *ratios))])
            what, most_of_resource = f"latency of {count}, {_how(together)}", MOST_OF_RESOURCE.get((count, together))
            run.compare(f"{what}, of the client's", ratios[0], most=MOST_OF_CLIENT[count])
            if most_of_resource is not None:
                run.compare(f"{what}, of the resource's", ratios[1], most=most_of_resource)
    columns = ("N", "reads", "unit", "client", "resource", "unit / client", "unit / resource")
    run.table("ms, median", columns, rows, texts=2)


@dataclass(frozen=True)
class Race:
    """The result of threads that update one item: commits a second, tries a commit, the luckiest and the unluckiest."""

    a_second: float
    tries_a_commit: float
    most: int
    least: int

    @property
    def cells(self) -> list[str]:
        """All of it, for a table."""
        return [f"{self.a_second:.1f}", f"{self.tries_a_commit:.2f}", f"{self.most}", f"{self.least}"]


RACE_COLUMNS = ("", "commits a second", "tries a commit", "luckiest", "unluckiest")


def race(units: Units, accounts: UnitTable, key: Mapping[str, str], seconds: float) -> Race:
    """Let threads update one item again and again, each with work between its read and its commit.

    Raises:
        LocalCloudError: the item does not show what was committed.
    """
    over, commits, tries = threading.Event(), [0] * RIVALS, [0] * RIVALS

    @units.transactional(tries=1_000)
    def update(unit: Unit, number: int) -> None:
        # It reads the item now, and writes it with the commit.
        unit.update(accounts, key, _ADD, _ONE)
        tries[number] += 1
        time.sleep(WORK_S)  # the work

    def again_and_again(number: int) -> None:
        while not over.is_set():
            update(number)
            commits[number] += 1

    threads = [threading.Thread(target=again_and_again, args=(number,)) for number in range(RIVALS)]
    before, began = _balance(units, accounts, key), time.perf_counter()
    for thread in threads:
        thread.start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - began
    if _balance(units, accounts, key) != before + sum(commits):
        raise LocalCloudError(f"{sum(commits)} commits have not added {sum(commits)} to the item")
    return Race(sum(commits) / took_s, sum(tries) / max(1, sum(commits)), max(commits), min(commits))


def _balance(units: Units, accounts: UnitTable, key: Mapping[str, str]) -> int:
    found = units.get(accounts, key)
    assert found is not None
    return int(found["balance"])


def rivals(run: Run, subject: Subject) -> None:
    """Units with back-off, and units that take turns, beside what their requests allow."""
    seconds = 4 if run.quick else 15
    (key,), (other,) = subject.filled(1), subject.filled(1)
    with LockClient(subject.names["locks"], client=subject.client) as locks:
        backing_off = race(subject.units, subject.accounts, key, seconds)
        units = Units(subject.names["units"], client=subject.client, locks=locks)
        in_turns = race(units, units.table(subject.names["accounts"]), key, seconds)
    # Of two units in turn, the second one's read follows the first one's commit, and so on.
    one_by_one_s = median(timed(partial(subject.update, [other], together=False)) for _ in range(50))
    allowed = 1 / (WORK_S + one_by_one_s)
    rows = [["with back-off", *backing_off.cells], ["in turn", *in_turns.cells]]
    run.table(f"{RIVALS} rivals on one item, {WORK_S * 1_000:.0f} ms of work", RACE_COLUMNS, rows)
    allowance = f"{WORK_S * 1_000:.0f} ms and {one_by_one_s * 1_000:.1f} ms of requests allow {allowed:.1f}"
    run.print(f"{allowance} commits a second")
    share = in_turns.a_second / allowed
    text = "in turn: commits a second, of those that work and requests allow"
    # Twenty threads want a processor, where those requests were one thread's.
    run.compare(text, share, least=LEAST_OF_ALLOWED, room=1.5)
    run.compare("in turn: tries a commit", in_turns.tries_a_commit, most=MOST_TRIES)


class Pass:
    """A sweep of the units table in memory: its requests, and the units of its reads, which it asks for."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self.requests, self.reads = 0, 0.0
        client: Any = make_client()
        memory.serve(client)
        client.meta.events.register("after-call.dynamodb", self._note)
        self.swept = Units("units", client=client).sweep()

    def _note(self, parsed: Mapping[str, Any], model: Any, **_: Any) -> None:
        told = parsed["ConsumedCapacity"]
        self.requests += 1
        self.reads += sum(each["CapacityUnits"] for each in ([told] if model.name == "Scan" else told))


def sweeps(run: Run) -> None:
    """What a pass costs beside so many receipts."""
    memory, rows, found = MemoryDynamoDB(lock_table=None), [], set()
    create_units_table("units", client=memory.client)
    records, now_ms, receipts, table_bytes = UnitRecords("units"), round(time.time() * 1_000), 0, 0
    for _ in range(OPEN_UNITS):
        head = UnitRecord(
            unit=new_id(now_ms), state="pending", born_ms=now_ms, lease_until_ms=now_ms + 86_400_000, attempt="1"
        )
        item = records.open(head).item
        memory.put_item(TableName="units", Item=item)
        table_bytes += size_of(canonical_item(item))
    for count in RECEIPTS[:-1] if run.quick else RECEIPTS:
        while receipts < count:
            after = Receipt(is_committed=True, unit=new_id(now_ms))
            item = put_receipt("units", f"charge-{receipts}", NEVER_USED, after, now_ms, NAMES_ARE_KEPT_S).item
            memory.put_item(TableName="units", Item=item)
            table_bytes += size_of(canonical_item(item))
            receipts += 1
        made = Pass(memory)
        found.add((made.requests, made.reads))
        whole = table_bytes / _READ_UNIT_BYTES / 2
        rows.append([f"{count:,}", made.swept.open, made.requests, made.reads, f"{whole:,.0f}"])
    columns = ("receipts", "open units", "requests", "read units", "the whole table")
    run.table("a pass of the sweeper, in memory", columns, rows, texts=0)
    run.check("a pass costs the same, however many receipts there are", len(found) == 1)


def measure(run: Run) -> None:
    """Costs, sweeps, latency, and rivals."""
    with engine("dynoxide", "ministack") as (name, url):
        subject = Subject(url)
        costs(run, subject, name)
        marked(run, subject, name)
        sweeps(run)
        run.part(partial(latency, run, subject))
        run.part(partial(rivals, run, subject))


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "fewer rounds"))
