"""The permissions that the construct grants to processes of units are enough for them, and no more."""

import random
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key as KeyOf
from kit.crashes import crashes
from kit.pages import blocks
from kit.units import Books, Key, Killed, Party, UnitsWorld, some_account, some_line, some_name
from ticketlock_cdk.units.access import (
    FINISH_ITEMS,
    LIST_OPEN_UNITS,
    READ_BESIDE_UNITS,
    RUN_UNITS,
    SHOW_OPEN_UNITS,
    SWEEP_RECORDS,
)

from ticketlock.errors import UnitConflict
from ticketlock.report import AtMost, TableReader, UnitsReader
from ticketlock.testing import Sent
from ticketlock.units import SERIALIZABLE, UNCOMMITTED
from ticketlock.units._provision import _trials

pytestmark = [
    pytest.mark.shows("committed reads"),
    pytest.mark.parametrize("units_engine", ["memory"], indirect=True),
    pytest.mark.parametrize("units_kind", ["threads"], indirect=True),
]

LONG = random.Random(0).randbytes(8_000)
LATER_S = 700
SET = "SET balance = :n"

Used = set[tuple[str, str]]
"""Actions, each with the table as it is used: ``units``, ``units/open`` for its index, or ``accounts`` for any of a
user's.
"""


def granted(actions: Iterable[str]) -> set[str]:
    return {action.removeprefix("dynamodb:") for action in actions}


def actions_of(sent: Sent) -> Iterable[tuple[str, str]]:
    """The permissions that a request needs, each with its table."""
    given: Mapping[str, Any] = sent.parameters
    if sent.operation.startswith("Transact"):
        for item in given["TransactItems"]:
            ((kind, one),) = item.items()
            yield ("ConditionCheckItem" if kind == "ConditionCheck" else f"{kind}Item"), one["TableName"]
    elif sent.operation == "BatchGetItem":
        yield from ((sent.operation, table) for table in given["RequestItems"])
    elif "IndexName" in given:
        yield sent.operation, f"{given['TableName']}/{given['IndexName']}"
    else:
        yield sent.operation, given["TableName"]


def used_by(party: Party) -> Used:
    uses = {name: "units" if use == "units" else "accounts" for use, name in party.books.tables.items()}
    uses[f"{party.books.tables['units']}/open"] = "units/open"
    return {(action, uses[table]) for sent in party.line.sent for action, table in actions_of(sent)}


@pytest.fixture
def keys(books: Books) -> list[Key]:
    return [books.account(), books.account(), books.account()]


def commits(party: Party, keys: list[Key], **terms: Any) -> None:
    """A unit with every kind of statement; if it is committed by marks, it has rows of its own."""
    with party.begin(**terms) as unit:
        unit.get(party.accounts, keys[1])
        unit.update(party.accounts, keys[0], f"{SET}, noise = :noise", {":n": 1, ":noise": LONG})
        unit.put(party.accounts, {**some_account(), "balance": 1})
        unit.delete(party.accounts, keys[2])


def left_by_killed_processes(world: UnitsWorld, books: Books) -> None:
    """After two of three marks; before the first new value; with a closed record whose rows stand yet."""
    for number, is_sent in ((2, True), (3, False), (4, True)):
        ann = world.party()
        own: list[Key] = [books.account() for _ in range(3)]
        crashes(ann, number, is_sent=is_sent)
        with pytest.raises(Killed):
            commits(ann, own, engine="marked")


def inserts_into_a_guarded_table_and_is_killed(ann: Party) -> None:
    """Once it is decided."""
    unit = ann.begin()
    unit.put(ann.lines, some_line())
    crashes(ann, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()


def test_the_permissions_of_those_who_run_units_are_what_is_tried_and_to_describe_a_table(ann: Party) -> None:
    tried = {permission for permission, _, _ in _trials(ann.accounts)}
    assert granted(RUN_UNITS) == tried | {"DescribeTable"}


def test_the_permissions_of_those_who_run_units_are_enough(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, keys: list[Key]
) -> None:
    left_by_killed_processes(units_world, books)
    commits(ann, keys, engine="native", name=some_name())
    commits(ann, [books.account() for _ in range(3)], engine="marked", name=some_name())
    conflicting, key = ann.begin(engine="marked"), books.account()
    conflicting.update(ann.accounts, key, SET, {":n": 1})
    ben.changes(key, 2)
    with pytest.raises(UnitConflict):
        conflicting.commit()
    assert {action for action, _ in used_by(ann)} <= granted(RUN_UNITS) - {"BatchGetItem", "Query"}


def test_the_permissions_of_readers_are_enough_past_whatever_mark(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    left_by_killed_processes(units_world, books)
    ids = [{"id": item["id"]} for item in books.everything()["accounts"]]
    for item in ids:
        ben.units.get(ben.accounts, item)
    ben.units.get_all([(ben.accounts, item) for item in ids])
    assert used_by(ben) == {("GetItem", "accounts"), ("GetItem", "units")}
    for item in ids:
        ben.units.query(ben.accounts, KeyOf("id").eq(item["id"]))
    ben.units.get_all([(ben.accounts, item) for item in ids], isolation=UNCOMMITTED)
    assert {action for action, _ in used_by(ben)} <= granted(READ_BESIDE_UNITS)
    assert granted(READ_BESIDE_UNITS) == {"BatchGetItem", "DescribeTable", "GetItem", "Query"}


def test_the_permissions_of_readers_are_not_enough_to_be_serializable(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    left_by_killed_processes(units_world, books)
    for item in books.everything()["accounts"]:
        ben.units.get(ben.accounts, {"id": item["id"]}, isolation=SERIALIZABLE)
    assert not {action for action, _ in used_by(ben)} <= granted(READ_BESIDE_UNITS)


def test_the_permissions_of_the_sweeper_are_what_it_uses(books: Books, units_world: UnitsWorld, ben: Party) -> None:
    left_by_killed_processes(units_world, books)
    inserts_into_a_guarded_table_and_is_killed(units_world.party(guarded=True))
    for _ in range(2):
        books.clock.advance(LATER_S)
        ben.units.sweep()
    used = used_by(ben)
    # A unit that changes too much for an expression puts the item, and one that deletes deletes it.
    assert {action for action, use in used if use == "units"} == granted(SWEEP_RECORDS)
    assert {action for action, use in used if use == "units/open"} == granted(LIST_OPEN_UNITS)
    assert {action for action, use in used if use == "accounts"} | {"PutItem"} == granted(FINISH_ITEMS)


def test_the_permissions_of_who_shows_open_units_are_what_it_uses(
    books: Books, units_world: UnitsWorld, ben: Party
) -> None:
    left_by_killed_processes(units_world, books)
    books.clock.advance(LATER_S)
    reader = UnitsReader(books.tables["units"], client=ben.client, clocks=books.clock, sleep=books.clock.sleep)
    assert TableReader(table=None, units=reader, at_most=AtMost()).read().units
    used = used_by(ben)
    assert {action for action, use in used if use == "units"} == granted(SHOW_OPEN_UNITS)
    assert {action for action, use in used if use == "units/open"} == granted(LIST_OPEN_UNITS)
    assert {use for _, use in used} == {"units", "units/open"}
    ben.units.sweep()


def test_the_function_of_the_page_sweeps(books: Books, units_world: UnitsWorld, ann: Party) -> None:
    left_by_killed_processes(units_world, books)
    books.clock.advance(LATER_S)
    (source,) = [each for each in blocks("docs/units-table.md", "python") if "def sweeper" in each]
    names: dict[str, Any] = {"Any": Any, "units": ann.units}
    exec(source, names)
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 300_000)
    assert names["sweeper"]({}, context)["rolled_back"] == 1
