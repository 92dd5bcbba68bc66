"""`ticketlock units correct`: an operator ends an item whose new value DynamoDB refuses."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cli.left_units import books_on
from kit.engines import Engine
from kit.units import KEYS, MARK, VECTOR_INDEX, Books, Party

from ticketlock.cli._local import serving
from ticketlock.errors import CommittedUnfinished
from ticketlock.testing import MemoryDynamoDB

pytestmark = pytest.mark.verify("each command is a process; tests/units tests what operators may do")

KEY = json.dumps({"id": {"S": "ann"}})


@pytest.fixture
def memory() -> MemoryDynamoDB:
    return MemoryDynamoDB(lock_table=None)


@pytest.fixture
def books(memory: MemoryDynamoDB) -> Iterator[Books]:
    engine = Engine("memory", None, "locks", memory)
    with books_on(engine, engine.client(), {use: use for use in KEYS}) as made:
        yield made


@pytest.fixture
def unit(memory: MemoryDynamoDB, books: Books) -> str:
    """A unit that is committed: DynamoDB refuses what it writes to an account of 100."""
    books.write("accounts", {"id": "ann", "balance": 100})
    ann = Party(books, None)
    memory.update_table(TableName="accounts", VectorIndexUpdates=[{"Create": VECTOR_INDEX}])
    made = ann.begin(engine="marked")
    made.update(ann.accounts, {"id": "ann"}, "SET vector = :v, photo = :p", {":v": [1], ":p": b"\x00\xff"})
    with pytest.raises(CommittedUnfinished):
        made.commit()
    return made.id


@pytest.fixture
def ask(memory: MemoryDynamoDB, environment: dict[str, str]) -> Iterator[Any]:
    with serving(memory, port=0) as endpoint:
        env = {**environment, "AWS_ENDPOINT_URL": endpoint, "TICKETLOCK_UNITS_TABLE": "units"}

        def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "ticketlock", "units", *arguments]
            return subprocess.run(
                command, env=env, input=text, capture_output=True, text=True, check=False, timeout=120
            )

        yield run


def test_it_prints_what_the_unit_writes_and_takes_it_back_corrected(ask: Any, books: Books, unit: str) -> None:
    printed = ask("correct", unit, "accounts", KEY)
    item = json.loads(printed.stdout)
    assert item == {
        "id": {"S": "ann"},
        "balance": {"N": "100"},
        "vector": {"L": [{"N": "1"}]},
        "photo": {"B": "AP8="},
    }
    assert MARK in (books.raw("accounts", {"id": "ann"}) or {})
    item["vector"]["L"].append({"N": "2"})
    done = ask("correct", unit, "accounts", KEY, "--item", "-", "--yes", "--by", "ada", text=json.dumps(item))
    assert (done.returncode, done.stdout) == (0, "replaced: the item has the new value\n"), done.stderr
    stored = books.item("accounts", {"id": "ann"}) or {}
    assert (stored["vector"], bytes(stored["photo"])) == ([1, 2], b"\x00\xff")


def test_it_drops_what_the_unit_writes_if_the_operator_says_so(ask: Any, books: Books, unit: str) -> None:
    declined = ask("correct", unit, "accounts", KEY, "--drop", text="n\n")
    assert declined.returncode == 1
    assert "Give accounts id=ann its old value, for good?" in declined.stderr
    done = ask("correct", unit, "accounts", KEY, "--drop", "--by", "ada", "--why", "a typo", text="y\n")
    assert (done.returncode, done.stdout) == (0, "dropped: the item keeps its old value\n")
    assert books.item("accounts", {"id": "ann"}) == {"id": "ann", "balance": 100}
    (row,) = [row for row in books.everything()["units"] if row["row"].startswith("c#")]
    assert (row["by"], row["why"], row["action"]) == ("ada", "a typo", "dropped")


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("accounts", "no JSON"), 2, "KEY is no JSON of attributes"),
        (("accounts", '{"id": {"S": "ben"}}'), 2, "the key of an item of accounts that the unit"),
        (("accounts", KEY, "--drop", "--item", "-"), 2, "--item and --drop: give one of them"),
        (("nowhere", KEY), 78, "nowhere"),
    ],
)
def test_it_says_what_is_wrong(ask: Any, unit: str, arguments: tuple[str, ...], code: int, why: str) -> None:
    done = ask("correct", unit, *arguments)
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr


def test_settle_says_that_it_needs_an_operator(ask: Any, unit: str) -> None:
    done = ask("settle", unit)
    assert (done.returncode, "`ticketlock units correct`" in done.stderr) == (78, True), done.stderr
