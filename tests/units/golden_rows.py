"""What units leave in their tables, one state a file: ``tests/units/golden`` keeps it as format 1 has it, for ever.

    PYTHONPATH=tests .venv/bin/python -m units.golden_rows

writes the files that do not exist yet: those of a new format have its number in their names.
"""

import base64
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kit.crashes import crashes
from kit.engines import Engine
from kit.units import KEYS, VECTOR_INDEX, Books, Killed, Party, make_tables

from ticketlock.errors import CommittedUnfinished, UnitError
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import COMMITTED, READ_LOCK
from ticketlock.units._records._record import UnitRecords
from ticketlock.units._recovery._operators import Correction, correct

FILES = Path(__file__).parent / "golden"
STOOD_AT_MS = 1_790_000_000_000
"""The time at which each state was left."""
FORMAT = 1
LONG = random.Random(0).randbytes(4_000).hex()
"""Does not fit into a head."""
SET = "SET balance = :n"
CORRECTION = "01K6000000000000000000000A"
"""The id of a correction."""


@contextmanager
def empty_books() -> Iterator[Books]:
    """Tables in memory, under the names of their use."""
    clock = ManualClock(STOOD_AT_MS)
    memory = MemoryDynamoDB(lock_table=None, clock=clock)
    engine = Engine("memory", None, "", memory)
    client = engine.client()
    make_tables(client, {use: use for use in KEYS})
    for name in ("a", "b", "c", "lock"):
        client.put_item(TableName="accounts", Item={"id": {"S": name}, "balance": {"N": "100"}})
    yield Books(engine, client, {use: use for use in KEYS}, clock)


def party(books: Books, **options: Any) -> Party:
    return Party(books, None, **options)


def _dies(ann: Party, do: Callable[[], object], operation: str, *, is_sent: bool = True) -> None:
    """A process is killed at its next request of an operation."""
    crashes(ann, 1, operation, is_sent=is_sent)
    with suppress(Killed):
        do()


def _decides(ann: Party, more: dict[str, Any], update: str = SET) -> None:
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, {"id": "a"}, update, {":n": 0, **more})
    unit.delete(ann.accounts, {"id": "b"})
    unit.put(ann.accounts, {"id": "new", "raw": b"\x00\x01", "set": {1, 2}, "deep": [{"a": None}, True]})
    _dies(ann, unit.commit, "UpdateItem")


def pending(books: Books) -> None:
    """All of its items are marked, and it is not decided."""
    ann = party(books)
    unit = ann.begin(engine="marked")
    for name in "ab":
        unit.update(ann.accounts, {"id": name}, SET, {":n": 0})
    # One transaction marks all items that have no version.
    _dies(ann, unit.commit, "TransactWriteItems")


def committed(books: Books) -> None:
    """Its head holds what it writes; no item has its new value."""
    _decides(party(books), {})


def committed_with_rows(books: Books) -> None:
    """A row holds what it writes."""
    _decides(party(books), {":long": LONG}, f"{SET}, noise = :long")


def closed_with_rows(books: Books) -> None:
    """All is finished; the rows stand yet."""
    ann = party(books)
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, {"id": "a"}, f"{SET}, noise = :long", {":n": 0, ":long": LONG})
    _dies(ann, unit.commit, "DeleteItem", is_sent=False)


def rolled_back_by_an_older_unit(books: Books) -> None:
    """Its mark stands yet."""
    ben = party(books)
    older = ben.begin(engine="marked")
    books.clock.advance(1)
    pending(books)
    older.update(ben.accounts, {"id": "a"}, SET, {":n": 1})
    _dies(ben, older.commit, "UpdateItem")


def with_read_locks(books: Books) -> None:
    """It has marked what it has read, and states nothing more."""
    ann = party(books)
    unit = ann.begin(isolation=READ_LOCK)
    unit.get(ann.accounts, {"id": "a"})
    unit.get(ann.accounts, {"id": "none"})
    _dies(ann, lambda: unit.get(ann.accounts, {"id": "b"}), "TransactWriteItems")


class Held:
    """A lock that stays held."""

    def condition_check(self) -> dict[str, Any]:
        condition = {"ConditionExpression": "balance = :held", "ExpressionAttributeValues": {":held": {"N": "100"}}}
        return {"ConditionCheck": {"TableName": "accounts", "Key": {"id": {"S": "lock"}}, **condition}}


def saved(books: Books) -> None:
    """It has every kind of place, an owner and a step."""
    ann = party(books, guarded=True)
    unit = ann.begin(name="charge-42", under=Held())
    unit.get(ann.accounts, {"id": "none"})
    unit.get(ann.accounts, {"id": "c"}, isolation=COMMITTED)
    unit.update(ann.accounts, {"id": "a"}, f"{SET}, noise = :long", {":n": 0, ":long": LONG})
    unit.delete(ann.accounts, {"id": "b"})
    unit.put(ann.lines, {"pk": "p", "sk": 1, "raw": b"\x00"})
    unit.save(keep_for=300 * 86_400, owner="execution")


def saved_in_its_head(books: Books) -> None:
    """A head holds all of it; another process has resumed it, in a step."""
    ann = party(books)
    with suppress(UnitError):
        ann.units.outcome(name="given up before")
    unit = ann.begin(name="given up before")
    unit.update(ann.accounts, {"id": "a"}, SET, {":n": 0})
    saved_as = unit.save()
    resumed = ann.units.resume(saved_as, step="second")
    resumed.update(ann.accounts, {"id": "b"}, SET, {":n": 0})
    resumed.save()
    ann.units.resume(saved_as)


def names(books: Books) -> None:
    """One is committed, one given up."""
    ann = party(books)
    with ann.begin(name="committed") as unit:
        unit.update(ann.accounts, {"id": "a"}, SET, {":n": 0})
    ann.units.outcome(name="given up")


def results(books: Books) -> None:
    """Of two names, kept in both forms."""
    ann = party(books)
    for name, result in (("in JSON", {"left": 0, "rate": 0.5}), ("in DynamoDB's types", {"left": 0, "raw": b"\x00"})):
        with ann.begin(name=name) as unit:
            unit.update(ann.accounts, {"id": "a"}, SET, {":n": 0})
            unit.result = result


def an_owner_that_has_ended(books: Books) -> None:
    """It has no units."""
    party(books).units.end_owner("execution")


def a_guard(books: Books) -> None:
    """Of a partition into which a unit has inserted."""
    ann = party(books, guarded=True)
    with ann.begin() as unit:
        unit.put(ann.lines, {"pk": "p", "sk": 1})


def a_sweep_that_stopped(books: Books) -> None:
    """After the first of two units."""
    for _ in range(2):
        ann = party(books)
        unit = ann.begin(engine="marked")
        unit.put(ann.accounts, {"id": f"new-{books.clock.wall_ms}", "balance": 0})
        _dies(ann, unit.commit, "TransactWriteItems")
        books.clock.advance(1)
    books.clock.advance(70)
    ben = party(books)
    ben.line.between["DeleteItem"] = lambda: books.clock.advance(30)
    ben.units.sweep(timeout=10)


def saved_and_ended(books: Books) -> None:
    """One is committed, one rolled back: the heads stay, without what was saved."""
    ann = party(books)
    committed, given_up = (ann.units.resume(ann.saves({"id": name})) for name in "ab")
    committed.commit()
    given_up.rollback()


def an_operator_s_correction(books: Books) -> None:
    """An index was added after the statement, and DynamoDB has refused an item of a committed unit."""
    ann, memory = party(books), books.engine.memory
    assert memory is not None
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, {"id": "a"}, "SET vector = :v, image = :b", {":v": [1], ":b": b"\x00"})
    memory.update_table(TableName="accounts", VectorIndexUpdates=[{"Create": VECTOR_INDEX}])
    with suppress(CommittedUnfinished):
        unit.commit()
    correction = Correction(CORRECTION, None, "ada", "a wrong vector")
    steps = correct(UnitRecords("units"), unit.id, ann.accounts, {"id": {"S": "a"}}, correction)
    ann.units._performer.perform_steps(steps)


STATES: dict[str, Callable[[Books], None]] = {
    made.__name__: made
    for made in (
        pending,
        committed,
        committed_with_rows,
        closed_with_rows,
        rolled_back_by_an_older_unit,
        with_read_locks,
        saved,
        saved_in_its_head,
        names,
        results,
        an_owner_that_has_ended,
        a_guard,
        a_sweep_that_stopped,
        saved_and_ended,
        an_operator_s_correction,
    )
}


def written(state: str) -> dict[str, Any]:
    """What this version leaves, as a file has it."""
    with empty_books() as books:
        STATES[state](books)
        client = books.plain_client
        tables = {name: client.scan(TableName=name)["Items"] for name in KEYS}
        return {"nowMs": books.clock.wall_ms, "tables": {name: _told(items) for name, items in tables.items()}}


def path_of(state: str, number: int = FORMAT) -> Path:
    return FILES / f"{state}.format{number}.json"


@contextmanager
def golden(state: str, change: Callable[[dict[str, Any]], object] | None = None) -> Iterator[Books]:
    """Tables with the contents of a file.

    Args:
        change: called with each row of the units table.
    """
    told = json.loads(path_of(state).read_text())
    with empty_books() as books:
        client = books.plain_client
        for name, items in told["tables"].items():
            for item in client.scan(TableName=name)["Items"]:
                client.delete_item(TableName=name, Key={key: item[key] for key in KEYS[name]})
            for item in _read(items):
                if name == "units" and change is not None:
                    change(item)
                client.put_item(TableName=name, Item=item)
        books.clock.advance((told["nowMs"] - STOOD_AT_MS) / 1_000)
        yield books


def _told(value: Any) -> Any:
    """With bytes as base64, as in the service's own JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _told(each) for name, each in value.items()}
    return [_told(each) for each in value] if isinstance(value, list) else value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"B"}:
            return {"B": base64.b64decode(value["B"])}
        if set(value) == {"BS"}:
            return {"BS": [base64.b64decode(each) for each in value["BS"]]}
        return {name: _read(each) for name, each in value.items()}
    return [_read(each) for each in value] if isinstance(value, list) else value


def _lines_of(told: dict[str, Any]) -> str:
    """As JSON with an item a line."""
    tables = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(item, sort_keys=True) for item in items) + "\n]"
        for name, items in told["tables"].items()
    ]
    return f'{{"nowMs": {told["nowMs"]}, "tables": {{\n' + ",\n".join(tables) + "\n}}\n"


if __name__ == "__main__":
    # Nothing is sent, but the SDK asks for them.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        os.environ[name] = "us-east-1"
    FILES.mkdir(exist_ok=True)
    for each in STATES:
        if not path_of(each).exists():
            path_of(each).write_text(_lines_of(written(each)))
