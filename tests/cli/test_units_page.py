"""docs/units-command.md is correct: its examples are run, its policy is compared with the requests."""

import json
import re
import subprocess
import time
from collections.abc import Iterator

import click
import pytest
from cli.left_units import AGO_S, books_on, left, left_insert
from cli.pages import comparable, examples
from kit.engines import Engine
from kit.pages import blocks, rows, text
from kit.units import KEYS, MARK, Books, Party

from ticketlock.cli import _units
from ticketlock.cli._exits import Explained
from ticketlock.cli._local import serving
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import Record
from ticketlock.units._marks import Marks
from ticketlock.units._operators import Standing, inspect, roll_back, settle
from ticketlock.units._record import UnitRecords, new_id

PAGE = "docs/units-command.md"
OPERATORS = pytest.mark.verify("each example is a process")
ID = re.compile(r"\b01[0-9A-Z]{24}\b")


@pytest.fixture
def memory() -> MemoryDynamoDB:
    return MemoryDynamoDB(lock_table=None)


@pytest.fixture
def books(memory: MemoryDynamoDB) -> Iterator[Books]:
    engine = Engine("memory", None, "locks", memory)
    with books_on(engine, engine.client(), {use: use for use in KEYS}) as made:
        yield made


def lives(books: Books, unit: str) -> None:
    """Make a pending unit look as if it had just begun: the machine may be busy."""
    head, now_ms = {"unit": unit, "row": "head"}, int(time.time() * 1_000)
    row = books.raw("units", head) or {}
    if row["state"] == "pending":
        books.write("units", {**row, "born": now_ms - 100, "leaseUntilMs": now_ms + 61_000})


@OPERATORS
def test_each_example_prints_what_the_page_says(
    memory: MemoryDynamoDB, books: Books, environment: dict[str, str]
) -> None:
    listed = [example for block in blocks(PAGE, "console") for example in examples(block)]
    on_the_page = list(dict.fromkeys(ID.findall("".join(example.prints for example in listed))))
    committed, over, alive, missing, gone = on_the_page
    young = new_id(int(time.time() * 1_000))
    for name, unit in (("old1", gone), ("new1", young)):
        books.write("accounts", {"id": name, MARK: {"unit": unit, "kind": "write"}})
    here = {
        committed: left(books, ["ann", "ben"], is_committed=True, ago_s=AGO_S),
        over: left(books, ["ann2", "ben2"], ago_s=AGO_S - 1),
        alive: left(books, ["ann3", "ben3"]),
        gone: gone,
        missing: young,
    }
    with serving(memory, port=0) as endpoint:
        env = {**environment, "AWS_ENDPOINT_URL": endpoint, "TICKETLOCK_UNITS_TABLE": "units"}
        last = 0
        for example in listed:
            lives(books, here[alive])
            command = ID.sub(lambda found: here[found[0]], example.command).replace("$?", str(last))
            done = subprocess.run(
                ["bash", "-c", f"{command} 2>&1"], env=env, capture_output=True, text=True, check=False, timeout=120
            )
            last = done.returncode
            told = ID.sub(lambda found: here[found[0]], example.prints)
            assert (command, comparable(done.stdout)) == (command, comparable(told))


@pytest.mark.parametrize("name", _units.units.commands)
def test_the_page_names_each_command_and_each_of_its_options(name: str) -> None:
    page = text(PAGE)
    assert f": `{name}`\n" in page
    options = [each for each in _units.units.commands[name].params if isinstance(each, click.Option)]
    told = {spelling for option in options for spelling in option.opts if spelling.startswith("--")}
    assert {spelling for spelling in told if not re.search(rf"{spelling}(?![\w-])", page)} == {"--help"} & told


def test_the_page_has_each_exit_code() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) +\|", text(PAGE), re.MULTILINE)}
    commands = _units.units.commands.values()
    assert told == {code for command in commands if isinstance(command, Explained) for code in command.ends}


def test_the_page_has_every_state_of_a_record_and_of_a_mark() -> None:
    told = {cells[0].strip("`") for cells in rows(PAGE, "Marks that no sweep finds: `repair`")[2:]}
    assert told == {record.value for record in Record}
    assert all(f"`{standing.value}`" in text(PAGE) for standing in Standing)


def test_the_page_is_found() -> None:
    for page in ("docs/units.md", "docs/units-table.md", "docs/command.md", "README.md"):
        assert "units-command.md" in text(page), page


def test_the_policy_is_what_is_used(books: Books) -> None:
    """Except the actions that no unit here needs: of corrections, of a unit that has own rows."""
    (policy,) = blocks(PAGE, "json")
    granted = {each["Sid"]: {action.partition(":")[2] for action in each["Action"]} for each in json.loads(policy)}
    assert granted.keys() == {"OperateUnits", "EndMarks"}
    boss, heads, marks = Party(books, None), UnitRecords("units"), Marks("_tlu")
    settled, forced = left(books, ["ann"], is_committed=True, ago_s=AGO_S), left(books, ["ben"])
    boss.units.open_units()
    left(books, ["cy"], is_committed=True)
    boss.units.repair(boss.accounts, write=True)
    inserted = left_insert(books, ago_s=2 * AGO_S + AGO_S)
    asked = (inspect(heads, marks, settled), settle(heads, marks, settled), roll_back(heads, marks, forced))
    for steps in (*asked, settle(heads, marks, inserted)):
        boss.units._performer.follow(steps)
    used: dict[str, set[str]] = {"units": set(), "accounts": {"DescribeTable"}, "lines": set()}
    for sent in boss.line.sent:
        names = sent.parameters.get("RequestItems") or [sent.parameters["TableName"]]
        for name in names:
            used[name].add(sent.operation)
    assert used["units"] | {"ConditionCheckItem", "DeleteItem"} == granted["OperateUnits"]
    assert used["accounts"] | used["lines"] | {"DeleteItem"} == granted["EndMarks"]
