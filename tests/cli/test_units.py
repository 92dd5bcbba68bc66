"""`ticketlock units`: units of crashed processes are listed, settled, rolled back and repaired."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cli.left_units import AGO_S, books_on, left, some_names
from kit.command import Command, Ended
from kit.engines import Engine
from kit.units import MARK, Books, Party, dumped
from ticketlock_local.engines.emulator import Emulator

from ticketlock.units._record import new_id

pytestmark = pytest.mark.verify("each command is a process; tests/units tests what operators may do")

UNKNOWN_UNIT = "01K9AA0000SA1M0SPPS3EJ8KYB"


@pytest.fixture
def books(emulator: Emulator, table_name: str, dynamodb: Any) -> Iterator[Books]:
    with books_on(Engine("ministack", emulator.endpoint, table_name), dynamodb, some_names()) as made:
        yield made


@pytest.fixture
def ask(command: Command, books: Books) -> Any:
    """Runs one of the commands on these tables."""

    def run(*arguments: str, text: str | None = None) -> Ended:
        return command.run("units", *arguments, text=text, TICKETLOCK_UNITS_TABLE=books.tables["units"])

    return run


def balances(books: Books, *names: str) -> list[int]:
    return [books.balance({"id": name}) for name in names]


def marked(books: Books, name: str, mark: object) -> None:
    books.write("accounts", {"id": name, "balance": 100, MARK: mark})


def last_line(ended: Ended) -> str:
    return ended.err.splitlines()[-1]


class TestTheList:
    def test_has_the_oldest_first_in_json(self, ask: Any, books: Books) -> None:
        committed = left(books, ["a", "b"], is_committed=True, ago_s=AGO_S)
        over, alive = left(books, ["c"], ago_s=AGO_S - 60), left(books, ["d"])
        listed = json.loads(ask("ls", "--json").out)
        assert [each["unit"] for each in listed] == [committed, over, alive]
        assert [each["state"] for each in listed] == ["committed", "pending", "pending"]
        assert [each["itemCount"] for each in listed] == [2, 1, 1]
        assert listed[0]["leaseEndsInSeconds"] is None
        assert listed[1]["leaseEndsInSeconds"] < 0 < listed[2]["leaseEndsInSeconds"]

    @pytest.mark.parametrize(
        ("sort", "first"), [("age", "old"), ("lease", "over"), ("items", "large"), ("state", "old")]
    )
    def test_begins_with_what_it_is_sorted_by(self, ask: Any, books: Books, sort: str, first: str) -> None:
        made = {
            "old": left(books, ["a"], is_committed=True, ago_s=AGO_S),
            "over": left(books, ["b"], ago_s=AGO_S - 60),
            "large": left(books, ["c", "d"]),
        }
        listed = json.loads(ask("ls", "--sort", sort, "--json").out)
        assert listed[0]["unit"] == made[first]

    def test_says_who_is_past_its_lease_to_people(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a"], ago_s=AGO_S)
        heading, _, line = ask("ls").out.splitlines()
        assert heading.split() == ["unit", "state", "age", "lease", "items", "rolled", "back", "by"]
        assert line.startswith(f"{unit}   lease over ")

    def test_may_be_empty(self, ask: Any) -> None:
        ended = ask("ls")
        assert (ended.exit_code, ended.out, ended.err) == (0, "", "No open units.\n")
        assert json.loads(ask("ls", "--json").out) == []

    def test_names_a_row_that_no_unit_has_written(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a"])
        books.write("units", {"unit": "\x1b[2J", "row": "head", "state": "new", "rev": 1})
        ended = ask("ls", "--json")
        assert [each["unit"] for each in json.loads(ended.out)] == [unit]
        assert ended.err.startswith(f"ticketlock: a row of {books.tables['units']} is not a unit's: ")
        assert "\x1b" not in ended.err


class TestOne:
    def test_is_shown_with_its_items_and_their_marks(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a", "b"], is_committed=True)
        books.write("accounts", {"id": "b", "balance": 7})
        shown = json.loads(ask("show", unit, "--json").out)
        table = books.tables["accounts"]
        assert (shown["unit"], shown["state"], shown["itemCount"]) == (unit, "committed", 2)
        assert shown["items"] == [
            {"table": table, "key": {"id": {"S": "a"}}, "writes": "change", "mark": "there"},
            {"table": table, "key": {"id": {"S": "b"}}, "writes": "change", "mark": "off"},
        ]

    def test_shows_values_only_where_it_is_asked_to(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a"])
        for more in ((), ("--json",)):
            assert "balance" not in ask("show", unit, *more).out
        (item,) = json.loads(ask("show", unit, "--json", "--values").out)["items"]
        assert (item["sets"], item["removes"]) == ({"balance": {"N": "0"}}, ["secret"])
        assert '{"balance": {"N": "0"}}' in ask("show", unit, "--values").out

    def test_cannot_command_the_terminal(self, ask: Any, books: Books) -> None:
        unit = left(books, ["\x1b[2J[red]"])
        assert "id=\\x1b[2J[red]" in ask("show", unit).out

    def test_that_is_saved_is_shown_with_its_owner_and_without_items(self, ask: Any, books: Books) -> None:
        ann = Party(books, None)
        saving = ann.begin()
        saving.put(ann.accounts, {"id": "a", "balance": 1})
        unit = saving.save(keep_for=900, owner="job-7")
        _, facts, items = ask("show", unit).out.splitlines()
        assert facts.startswith("saved, lease ")
        assert facts.endswith("; owner job-7")
        assert items == "What a saved unit writes is not listed."
        assert ask("rollback", unit, "--yes").exit_code == 0
        assert ask("show", unit).out.splitlines()[-1] == "No items."

    def test_that_has_no_record_cannot_be_shown(self, ask: Any, books: Books) -> None:
        ended = ask("show", UNKNOWN_UNIT)
        assert (ended.exit_code, ended.out) == (76, "")
        assert ended.err == f"ticketlock: there is no record of the unit {UNKNOWN_UNIT} in '{books.tables['units']}'\n"


class TestSettling:
    def test_finishes_a_unit_that_is_committed(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a", "b"], is_committed=True)
        ended = ask("settle", unit)
        assert (ended.exit_code, ended.out, ended.err) == (0, "committed: 2 items finished\n", "")
        assert balances(books, "a", "b") == [0, 0]
        assert ask("settle", unit).out == "committed\n"

    def test_rolls_one_back_whose_lease_is_over(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a"], ago_s=AGO_S)
        told = json.loads(ask("settle", unit, "--json").out)
        key = {"table": books.tables["accounts"], "key": {"id": {"S": "a"}}}
        assert told == {"unit": unit, "outcome": "rolled back", "items": [key]}
        assert MARK not in (books.raw("accounts", {"id": "a"}) or {})

    def test_of_one_whose_lease_runs_ends_with_a_code_of_its_own(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a"])
        before = books.everything()
        ended = ask("settle", unit)
        assert (ended.exit_code, ended.out) == (75, "")
        assert ended.err.startswith(f"ticketlock: the unit {unit} is pending, lease ")
        assert json.loads(ask("settle", unit, "--json").out)["outcome"] == "pending"
        assert books.everything() == before

    def test_of_one_without_a_record_says_so(self, ask: Any) -> None:
        ended = ask("settle", UNKNOWN_UNIT, "--json")
        assert (ended.exit_code, json.loads(ended.out)["outcome"]) == (76, "forgotten")

    def test_says_what_keeps_it_from_finishing_without_values(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a", "b"], is_committed=True)
        marked(books, "a", "a secret")
        ended = ask("settle", unit)
        assert (ended.exit_code, ended.out) == (78, "committed\n")
        assert "a secret" not in ended.err


class TestRollingBack:
    def test_asks_first(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a"])
        before = books.everything()
        ended = ask("rollback", unit, text="n\n")
        assert (ended.exit_code, ended.out) == (1, "")
        assert ended.err.startswith("pending, lease ")
        assert books.everything() == before
        ended = ask("rollback", unit, text="y\n")
        assert (ended.exit_code, ended.out) == (
            0,
            f"rolled back: 1 item unmarked\n{books.tables['accounts']} id=a\n",
        )
        assert MARK not in (books.raw("accounts", {"id": "a"}) or {})
        assert (ask("rollback", unit).exit_code, ask("settle", unit).out) == (0, "rolled back\n")

    def test_of_one_that_is_committed_is_refused(self, ask: Any, books: Books) -> None:
        unit = left(books, ["a"], is_committed=True)
        before = books.everything()
        ended = ask("rollback", unit, "--yes")
        assert (ended.exit_code, ended.out) == (76, "")
        assert ended.err.startswith(f"ticketlock: the unit {unit} was committed ")
        assert json.loads(ask("rollback", unit, "--json").out)["outcome"] == "committed"
        assert books.everything() == before

    def test_of_one_without_a_record_is_refused(self, ask: Any) -> None:
        assert ask("rollback", UNKNOWN_UNIT, "--yes").exit_code == 76


class TestRepairing:
    def test_writes_nothing_without_the_option_and_asks_first(self, ask: Any, books: Books) -> None:
        left(books, ["a"], is_committed=True)
        marked(books, "b", {"unit": UNKNOWN_UNIT, "kind": "write"})
        before, table = books.everything(), books.tables["accounts"]
        told = ask("repair", table)
        assert (told.exit_code, told.out.splitlines()[-1]) == (0, "Nothing was written: add --write to do it.")
        asked = ask("repair", table, "--write", text="n\n")
        assert asked.exit_code == 1
        assert f"as the records in '{books.tables['units']}'" in asked.err
        assert books.everything() == before
        done = ask("repair", table, "--write", text="y\n")
        assert done.exit_code == 0
        assert f"{table}: 2 marks: 1 finished, 1 unmarked, 0 left" in done.out
        assert balances(books, "a", "b") == [0, 100]
        again = ask("repair", table, "--write", "--yes")
        assert (again.exit_code, again.out, again.err) == (0, "", "No marks.\n")

    def test_leaves_the_marks_of_a_unit_whose_lease_runs(self, ask: Any, books: Books) -> None:
        left(books, ["a"])
        before = books.everything()
        told = json.loads(ask("repair", books.tables["accounts"], "--write", "--yes", "--json").out)
        assert (told["table"], told["unitsTable"]) == (books.tables["accounts"], books.tables["units"])
        assert [(each["record"], each["action"]) for each in told["marks"]] == [("pending", "left")]
        assert books.everything() == before

    def test_ends_with_78_while_a_mark_needs_an_operator(self, ask: Any, books: Books) -> None:
        marked(books, "a", {"unit": new_id(int(time.time() * 1_000)), "kind": "write"})
        table = books.tables["accounts"]
        ended = ask("repair", table, "--write", "--yes")
        told = f"1 mark left for you to decide: 1 missing. Is '{books.tables['units']}' the units table of these units?"
        assert (ended.exit_code, last_line(ended)) == (78, f"ticketlock: {told} Only then use --lost-records")
        told = json.loads(ask("repair", table, "--write", "--yes", "--lost-records", "--json").out)
        assert [(each["record"], each["action"]) for each in told["marks"]] == [("missing", "unmarked")]
        assert MARK not in (books.raw("accounts", {"id": "a"}) or {})

    def test_prints_keys_in_the_form_of_the_low_level_api(self, ask: Any, books: Books) -> None:
        books.write("lines", {"pk": "order", "sk": 7, MARK: "a secret"})
        ended = ask("repair", books.tables["lines"], "--json")
        (told,) = json.loads(ended.out)["marks"]
        assert told["key"] == dumped({"pk": "order", "sk": 7})
        assert (told["record"], told["unit"]) == ("strange", None)
        assert "a secret" not in ended.out


class TestBadInput:
    """Each is reported in one line, and nothing is written."""

    @pytest.fixture(autouse=True)
    def nothing_is_written(self, books: Books) -> Iterator[None]:
        left(books, ["a"], is_committed=True, ago_s=AGO_S)
        before = books.everything()
        yield
        assert books.everything() == before

    @pytest.mark.parametrize("word", ["show", "settle", "rollback"])
    def test_an_invalid_id(self, ask: Any, word: str) -> None:
        ended = ask(word, "unit-42")
        assert ended.exit_code == 2
        assert last_line(ended).startswith('ticketlock: UNIT is "unit-42"; allowed: the `id` of a unit')

    @pytest.mark.parametrize("words", [("ls",), ("settle", UNKNOWN_UNIT), ("repair", "accounts", "--write", "--yes")])
    def test_no_table_of_units_named_at_all(self, command: Command, words: tuple[str, ...]) -> None:
        ended = command.run("units", *words)
        assert ended.exit_code == 2
        assert last_line(ended) == "ticketlock: which units table? Give --units-table, or set TICKETLOCK_UNITS_TABLE."

    @pytest.mark.parametrize("word", ["ls", "repair"])
    def test_no_table_of_units_of_that_name(self, ask: Any, books: Books, word: str) -> None:
        more = (books.tables["accounts"], "--write", "--yes", "--lost-records") if word == "repair" else ()
        ended = ask(word, *more, "--units-table", "none")
        assert (ended.exit_code, ended.out) == (78, "")
        assert ended.err.startswith("ticketlock: there is no table 'none' in this account and Region: us-east-1 (http")

    @pytest.mark.parametrize("word", ["ls", "settle", "repair"])
    def test_a_lock_table_instead(self, ask: Any, books: Books, table_name: str, word: str) -> None:
        more = {
            "ls": (),
            "settle": (UNKNOWN_UNIT,),
            "repair": (books.tables["accounts"], "--write", "--yes", "--lost-records"),
        }
        ended = ask(word, *more[word], "--units-table", table_name)
        assert (ended.exit_code, ended.out) == (78, "")
        assert last_line(ended).endswith(f"is '{table_name}' a units table, and not a lock table?")

    def test_a_missing_table_of_yours(self, ask: Any) -> None:
        ended = ask("repair", "none", "--write", "--yes")
        assert (ended.exit_code, ended.out) == (78, "")
        assert "there is no table 'none'" in ended.err

    def test_the_units_own_table_instead_of_yours(self, ask: Any, books: Books) -> None:
        ended = ask("repair", books.tables["units"], "--write", "--yes")
        assert ended.exit_code == 2
        assert last_line(ended).startswith(f'ticketlock: TABLE is "{books.tables["units"]}"; allowed: a table of yours')

    def test_an_invalid_prefix(self, ask: Any, books: Books) -> None:
        ended = ask("repair", books.tables["accounts"], "--write", "--yes", "--prefix", "a.b")
        assert ended.exit_code == 2
        assert last_line(ended).startswith('ticketlock: --prefix is "a.b"; allowed: ')

    def test_no_region(self, command: Command, books: Books) -> None:
        without = ("env", "-u", "AWS_REGION", "-u", "AWS_DEFAULT_REGION", "ticketlock")
        words = ("units", "repair", books.tables["accounts"], "--write", "--yes", "--units-table", "units")
        ended = command.start(*words, program=without).end()
        assert (ended.exit_code, ended.out) == (78, "")
        assert "region" in ended.err

    def test_options_stand_before_the_commands_name_too(self, command: Command, books: Books) -> None:
        assert command.run("units", "--units-table", "none", "ls").exit_code == 78
        ended = command.run("units", "--units-table", "none", "ls", "--units-table", books.tables["units"])
        assert ended.exit_code == 0
