"""`ticketlock units`: what it prints of units of crashed processes, what it asks before it writes, how it ends."""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli.seen import is_refused, run_here
from kit.command import Ended
from kit.left_units import AGO_S, left, left_refused
from kit.units import MARK, Books, Party, dumped

from ticketlock import create_table
from ticketlock.cli._local import serving
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units._records._record import new_id

pytestmark = pytest.mark.verify("a client for each command; tests/units tests what operators may do")

UNKNOWN_UNIT = "01K9AA0000SA1M0SPPS3EJ8KYB"
KEY = json.dumps({"id": {"S": "ann"}})
WRITE = ("--write", "--yes", "--lost-records")
Ask = Callable[..., Ended]


@pytest.fixture
def ask(environment: dict[str, str], memory: MemoryDynamoDB, books: Books) -> Iterator[Ask]:
    """Runs one of the commands on these tables."""
    with serving(memory, port=0) as endpoint:

        def run(*arguments: str, text: str = "", **more: str) -> Ended:
            here = {**environment, "AWS_ENDPOINT_URL": endpoint, "TICKETLOCK_UNITS_TABLE": books.tables["units"]}
            return run_here(here, "units", *arguments, text=text, **more)

        yield run


@pytest.fixture
def refused(memory: MemoryDynamoDB, books: Books) -> str:
    return left_refused(memory, books)


def balances(books: Books, *names: str) -> list[int]:
    return [books.balance({"id": name}) for name in names]


def is_marked(books: Books, name: str) -> bool:
    return MARK in (books.raw("accounts", {"id": name}) or {})


def marked(books: Books, name: str, mark: object) -> None:
    books.write("accounts", {"id": name, "balance": 100, MARK: mark})


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("age", ["old", "over", "large"]),
        ("lease", ["over", "large", "old"]),
        ("items", ["large", "old", "over"]),
        ("state", ["old", "over", "large"]),
    ],
)
def test_a_list_of_units_is_in_the_order_that_is_asked_for(ask: Ask, books: Books, sort: str, order: list[str]) -> None:
    made = {
        "old": left(books, ["a"], is_committed=True, ago_s=AGO_S),
        "over": left(books, ["b"], ago_s=AGO_S - 60),
        "large": left(books, ["c", "d"]),
    }
    listed = json.loads(ask("ls", "--sort", sort, "--json").out)
    assert [each["unit"] for each in listed] == [made[name] for name in order]
    told = {each["unit"]: (each["state"], each["itemCount"]) for each in listed}
    assert [told[made[name]] for name in made] == [("committed", 1), ("expired", 1), ("pending", 2)]
    leases = {each["unit"]: each["leaseEndsInSeconds"] for each in listed}
    assert leases[made["old"]] is None
    assert leases[made["over"]] < 0 < leases[made["large"]]


def test_a_list_of_units_tells_people_who_is_past_its_lease_or_that_it_is_empty(ask: Ask, books: Books) -> None:
    ended = ask("ls")
    assert (ended.exit_code, ended.out, ended.err) == (0, "", "No open units.\n")
    assert json.loads(ask("ls", "--json").out) == []
    unit = left(books, ["a"], ago_s=AGO_S)
    heading, _, line = ask("ls").out.splitlines()
    assert heading.split() == ["unit", "state", "age", "lease", "items", "unfinished"]
    assert line.startswith(f"{unit}  expired ")


def test_a_list_of_units_names_a_row_that_no_unit_has_written(ask: Ask, books: Books) -> None:
    unit = left(books, ["a"])
    books.write("units", {"unit": "\x1b[2J", "row": "head", "open": "1", "state": "new", "rev": 1})
    ended = ask("ls", "--json")
    assert [each["unit"] for each in json.loads(ended.out)] == [unit]
    assert ended.err.startswith("ticketlock: a row of units is not a unit's: ")
    assert "\x1b" not in ended.err


def test_a_unit_is_shown_with_its_items_and_their_marks_and_with_values_only_if_asked(ask: Ask, books: Books) -> None:
    unit = left(books, ["a", "\x1b[2J[red]"], is_committed=True)
    books.write("accounts", {"id": "a", "balance": 7})
    shown = json.loads(ask("show", unit, "--json").out)
    assert (shown["unit"], shown["state"], shown["itemCount"]) == (unit, "committed", 2)
    assert shown["items"] == [
        {"table": "accounts", "key": {"id": {"S": name}}, "writes": "change", "mark": mark}
        for name, mark in (("a", "off"), ("\x1b[2J[red]", "there"))
    ]
    people = ask("show", unit).out
    assert "id=\\x1b[2J[red]" in people
    assert "balance" not in people
    with_values = json.loads(ask("show", unit, "--json", "--values").out)["items"]
    assert {(str(item["sets"]), str(item["removes"])) for item in with_values} == {
        ("{'balance': {'N': '0'}}", "['secret']")
    }
    assert '{"balance": {"N": "0"}}' in ask("show", unit, "--values").out


def test_a_unit_that_is_saved_is_shown_with_its_owner_and_without_items(ask: Ask, books: Books) -> None:
    ann = Party(books, None)
    saving = ann.begin()
    saving.put(ann.accounts, {"id": "a", "balance": 1})
    unit = saving.save(keep_for=900, owner="job-7")
    (listed,) = json.loads(ask("ls", "--json").out)
    assert (listed["state"], listed["outcome"], listed["isSaved"]) == ("saved", "pending", True)
    _, facts, items = ask("show", unit).out.splitlines()
    assert facts.startswith("saved, lease ")
    assert facts.endswith("; owner job-7")
    assert items == "What a saved unit writes is not listed."
    assert ask("rollback", unit, "--yes").exit_code == 0
    assert ask("show", unit).out.splitlines()[-1] == "No items."


def test_a_name_is_shown_with_the_unit_that_was_committed_and_its_result_only_if_asked(ask: Ask, books: Books) -> None:
    ann = Party(books, None)
    for name, result in (("in JSON", {"left": 1}), ("\x1b[2Jother", {b"\x00"})):
        with ann.begin(name=name) as unit:
            unit.result = result
        told = {"name": name, "outcome": "committed", "unit": unit.id}
        assert json.loads(ask("show", "--name", name, "--json").out) == told
        assert ask("show", "--name", name).out == f"committed, by the unit {unit.id}\n"
    with_result = json.loads(ask("show", "--name", "in JSON", "--values", "--json").out)
    assert with_result["result"] == {"S": '{"left":1}'}
    assert ask("show", "--name", "in JSON", "--values").out.endswith('; result {"left":1}\n')
    assert ask("show", "--name", "\x1b[2Jother", "--values").out.endswith('; result {"BS": ["AA=="]}\n')


def test_a_name_that_was_given_up_or_is_unknown_is_shown_as_such_and_an_unknown_one_stays_free(
    ask: Ask, books: Books
) -> None:
    Party(books, None).units.outcome(name="given up")
    assert ask("show", "--name", "given up").out == "given up: no unit of this name was committed\n"
    ended = ask("show", "--name", "unknown")
    assert (ended.exit_code, books.receipt("unknown")) == (76, None)
    assert "the name unknown has no receipt in" in ended.err
    for words in ((), (UNKNOWN_UNIT, "--name", "both")):
        assert "UNIT and --name: give one of them" in ask("show", *words).err


@pytest.mark.parametrize("word", ["show", "settle", "rollback"])
def test_a_unit_without_a_record_ends_a_command_with_76(ask: Ask, word: str) -> None:
    ended = ask(word, UNKNOWN_UNIT)
    assert (ended.exit_code, ended.out) == (76, "")
    assert ended.err == f"ticketlock: there is no record of the unit {UNKNOWN_UNIT} in 'units'\n"


def test_settling_tells_how_the_unit_ended_and_which_items_it_has_ended(ask: Ask, books: Books) -> None:
    unit = left(books, ["a", "b"], is_committed=True)
    ended = ask("settle", unit)
    assert (ended.exit_code, ended.out, ended.err) == (0, "committed: 2 items finished\n", "")
    assert balances(books, "a", "b") == [0, 0]
    over = left(books, ["c"], ago_s=AGO_S)
    told = json.loads(ask("settle", over, "--json").out)
    key = {"table": "accounts", "key": {"id": {"S": "c"}}}
    assert told == {"unit": over, "outcome": "rolled back", "items": [key], "refused": []}


def test_settling_ends_with_a_code_of_its_own_while_the_lease_runs(ask: Ask, books: Books) -> None:
    unit = left(books, ["a"])
    is_refused(ask("settle", unit), 75, f"ticketlock: the unit {unit} is pending, lease ")
    assert json.loads(ask("settle", unit, "--json").out)["outcome"] == "pending"


def test_settling_says_what_keeps_a_unit_from_finishing_without_values(ask: Ask, books: Books, refused: str) -> None:
    unit = left(books, ["a", "b"], is_committed=True)
    marked(books, "a", "a secret")
    ended = ask("settle", unit)
    assert (ended.exit_code, ended.out) == (78, "committed: not all of 2 items ended\n")
    assert "a secret" not in ended.err
    ended = ask("settle", refused, "--units-table", "units")
    assert (ended.exit_code, ended.out) == (78, "committed: 1 of 1 item refused\n"), ended.err
    told, then = ended.err.splitlines()[-2:]
    correct = f"ticketlock units --units-table units correct {refused} accounts '{KEY}'"
    assert told == f"{correct} > item.json"
    assert then == f"{correct} --item item.json --why '...'"
    command = shlex.split(told)
    assert ask(*command[2:-2]).exit_code == 0


def test_a_rollback_asks_first_and_names_what_it_has_unmarked(ask: Ask, books: Books) -> None:
    unit = left(books, ["a"])
    ended = ask("rollback", unit, text="n\n")
    assert (ended.exit_code, ended.out) == (1, "")
    assert ended.err.startswith("pending, lease ")
    assert f"Roll the unit {unit} of the units table 'units' in us-east-1 (http" in ended.err
    assert is_marked(books, "a")
    ended = ask("rollback", unit, text="y\n")
    assert (ended.exit_code, ended.out) == (0, "rolled back: 1 item unmarked\naccounts id=a\n")
    assert not is_marked(books, "a")
    assert (ask("rollback", unit).exit_code, ask("settle", unit).out) == (0, "rolled back: 0 items unmarked\n")


def test_a_rollback_of_a_committed_unit_is_refused(ask: Ask, books: Books) -> None:
    unit = left(books, ["a"], is_committed=True)
    is_refused(ask("rollback", unit, "--yes"), 76, f"ticketlock: the unit {unit} was committed ")
    assert json.loads(ask("rollback", unit, "--json").out)["outcome"] == "committed"
    assert is_marked(books, "a")


def test_a_repair_writes_nothing_without_the_option_and_asks_first(ask: Ask, books: Books) -> None:
    left(books, ["a"], is_committed=True)
    marked(books, "b", {"unit": UNKNOWN_UNIT, "kind": "write"})
    before = books.everything()
    told = ask("repair", "accounts")
    assert (told.exit_code, told.out.splitlines()[-1]) == (0, "Nothing was written: add --write to try it.")
    asked = ask("repair", "accounts", "--write", text="n\n")
    assert (asked.exit_code, "as the records in 'units'" in asked.err) == (1, True)
    assert books.everything() == before
    done = ask("repair", "accounts", "--write", text="y\n")
    assert (done.exit_code, "accounts: 2 marks: 1 finished, 1 unmarked, 0 left" in done.out) == (0, True)
    assert balances(books, "a", "b") == [0, 100]
    again = ask("repair", "accounts", "--write", "--yes")
    assert (again.exit_code, again.out, again.err) == (0, "", "No marks.\n")


def test_a_repair_ends_with_78_while_a_mark_needs_an_operator(ask: Ask, books: Books) -> None:
    marked(books, "a", {"unit": new_id(int(time.time() * 1_000)), "kind": "write"})
    ended = ask("repair", "accounts", "--write", "--yes")
    assert ended.exit_code == 78
    left_over = "1 mark left for you to decide: 1 missing. Is 'units' the units table of these units?"
    assert ended.err.splitlines()[-1] == f"ticketlock: {left_over} Only then use --lost-records"
    told = json.loads(ask("repair", "accounts", *WRITE, "--json").out)
    assert (told["table"], told["unitsTable"]) == ("accounts", "units")
    assert [(each["record"], each["action"]) for each in told["marks"]] == [("missing", "unmarked")]
    assert not is_marked(books, "a")


def test_a_repair_prints_keys_in_the_form_of_the_low_level_api(ask: Ask, books: Books) -> None:
    books.write("lines", {"pk": "order", "sk": 7, MARK: "a secret"})
    ended = ask("repair", "lines", "--json")
    (told,) = json.loads(ended.out)["marks"]
    assert told["key"] == dumped({"pk": "order", "sk": 7})
    assert (told["record"], told["unit"]) == ("strange", None)
    assert "a secret" not in ended.out


def test_a_correction_prints_what_the_unit_writes_and_takes_it_back_corrected(
    ask: Ask, books: Books, refused: str
) -> None:
    item = json.loads(ask("correct", refused, "accounts", KEY).out)
    assert item == {
        "id": {"S": "ann"},
        "balance": {"N": "100"},
        "vector": {"L": [{"N": "1"}]},
        "photo": {"B": "AP8="},
    }
    assert is_marked(books, "ann")
    item["vector"]["L"].append({"N": "2"})
    done = ask("correct", refused, "accounts", KEY, "--item", "-", "--yes", "--by", "ada", text=json.dumps(item))
    assert (done.exit_code, done.out) == (0, "replaced: the item has the given value\n"), done.err
    stored = books.item("accounts", {"id": "ann"}) or {}
    assert (stored["vector"], bytes(stored["photo"])) == ([1, 2], b"\x00\xff")


def test_a_correction_in_another_encoding_than_utf_8_is_refused(ask: Ask, refused: str, tmp_path: Path) -> None:
    file = tmp_path / "item.json"
    file.write_bytes(b'{"id": {"S": "ann"}, "dish": {"S": "K\xe4se"}}')
    is_refused(ask("correct", refused, "accounts", KEY, "--item", str(file), "--yes"), 2, "--item is no JSON")


def test_a_correction_drops_what_the_unit_writes_if_the_operator_says_so(ask: Ask, books: Books, refused: str) -> None:
    declined = ask("correct", refused, "accounts", KEY, "--drop", text="n\n")
    assert (
        declined.exit_code,
        "Give accounts id=ann its old value, for good, for a unit of the units table 'units' in" in declined.err,
    ) == (1, True)
    done = ask("correct", refused, "accounts", KEY, "--drop", "--by", "ada", "--why", "a typo", text="y\n")
    assert (done.exit_code, done.out) == (0, "dropped: the item keeps its old value\n")
    assert books.item("accounts", {"id": "ann"}) == {"id": "ann", "balance": 100}
    (row,) = [row for row in books.everything()["units"] if row["row"].startswith("c#")]
    assert (row["by"], row["why"], row["action"]) == ("ada", "a typo", "dropped")
    assert ask("settle", refused).out == "committed: 1 item finished\n"
    (kept,) = json.loads(ask("show", refused, "--json").out)["corrections"]
    assert kept == {"atMs": row["atMs"], "by": "ada", "why": "a typo", "table": "accounts", "action": "dropped"}
    assert ask("show", refused).out.splitlines()[-1].split()[1:] == ["ada", "a", "typo", "accounts", "dropped"]


def test_a_unit_of_more_than_a_hundred_items_is_unfinished_until_its_last_item_is_corrected(
    ask: Ask, memory: MemoryDynamoDB, books: Books
) -> None:
    unit = left_refused(memory, books, others=100)

    def told() -> tuple[object, ...]:
        (listed,) = json.loads(ask("ls", "--json").out)
        return listed["itemCount"], listed["unfinishedCount"], listed["isStuck"], listed["next"]

    assert told() == (101, 1, True, "units settle")
    assert ask("correct", unit, "accounts", KEY, "--drop", "--yes").exit_code == 0
    assert told() == (101, 0, False, "nothing")
    assert [each["action"] for each in json.loads(ask("show", unit, "--json").out)["corrections"]] == ["dropped"]


NO_TABLE = "there is no table 'none' in this account and Region: us-east-1 (http"
OF_LOCKS = "is 'locks' a units table, and not a lock table?"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("show unit-42", 2, 'UNIT is "unit-42"; allowed: the `id` of a unit'),
        ("repair units --write --yes", 2, 'TABLE is "units"; allowed: a table of yours'),
        ("repair accounts --write --yes --prefix a.b", 2, '--prefix is "a.b"; allowed: '),
        ("repair none --write --yes", 78, "there is no table 'none'"),
        ("--units-table none ls", 78, NO_TABLE),
        ("repair accounts --write --yes --lost-records --units-table none", 78, NO_TABLE),
        ("ls --units-table locks", 78, OF_LOCKS),
        ("settle UNIT --units-table locks", 78, OF_LOCKS),
        ("repair accounts --write --yes --lost-records --units-table locks", 78, OF_LOCKS),
        ("correct UNIT accounts no-JSON", 2, "KEY is no JSON of attributes"),
        ('correct UNIT accounts {"id":{"S":"ben"}}', 2, "the key of an item of accounts that the unit"),
        ('correct UNIT accounts {"id":{"S":"ann"}} --drop --item -', 2, "--item and --drop: give one of them"),
        ('correct UNIT nowhere {"id":{"S":"ann"}}', 78, "nowhere"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(
    ask: Ask, books: Books, refused: str, words: str, code: int, told: str
) -> None:
    create_table("locks", client=books.plain_client)
    before = books.everything()
    is_refused(ask(*words.replace("UNIT", refused).split()), code, told)
    assert books.everything() == before


def test_the_units_table_is_named_before_or_after_the_commands_name_or_in_the_environment(ask: Ask) -> None:
    assert ask("--units-table", "none", "ls", "--units-table", "units").exit_code == 0
    told = "which units table? Give --units-table, or set TICKETLOCK_UNITS_TABLE."
    is_refused(ask("ls", TICKETLOCK_UNITS_TABLE=""), 2, told)
