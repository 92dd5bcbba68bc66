"""What other processes find at the marks of a unit whose process has crashed, also if its record is incomplete."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.crashes import before_the_nth
from kit.units import MARK, THREADS_ONLY, VERSION, Books, Key, Killed, Lost, Party, UnitsWorld, dumped, some_account
from units.conftest import NEW, OLD, killed, states

from ticketlock.errors import TableRefused
from ticketlock.units import COMMITTED, SERIALIZABLE, UNCOMMITTED, Isolation, Record

pytestmark = THREADS_ONLY

LEASE_S, COPIES_S, MARGIN_S = 60, 600, 5
LEVELS = pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED, SERIALIZABLE], ids=lambda level: level.name)


def read(party: Party, keys: list[Key], level: Isolation) -> list[Any]:
    """Their balances, which are the same one by one and in one request."""
    one_by_one = [party.units.get(party.accounts, key, isolation=level) for key in keys]
    assert party.units.get_all([(party.accounts, key) for key in keys], isolation=level) == one_by_one
    return [item and item["balance"] for item in one_by_one]


def stored(books: Books, keys: list[Key]) -> list[Any]:
    return [books.raw("accounts", key) for key in keys]


def has_marks(books: Books, keys: list[Key]) -> list[bool]:
    return [MARK in (item or {}) for item in stored(books, keys)]


def lose_rows(books: Books, unit: str, begins: str) -> None:
    """Delete rows of a record, as ticketlock never does."""
    for row in books.everything()["units"]:
        if row["unit"] == unit and row["row"].startswith(begins):
            key = dumped({name: row[name] for name in ("unit", "row")})
            books.plain_client.delete_item(TableName=books.tables["units"], Key=key)


@LEVELS
@pytest.mark.parametrize("state", ["pending", "pending, and its rows are lost", "committed"])
def test_a_reader_past_marks_sees_what_is_committed_and_uncommitted_what_is_stored(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key], level: Isolation, state: str
) -> None:
    unit = killed(units_world, keys, is_committed=state == "committed")
    if "rows are lost" in state:
        lose_rows(books, unit, "w#")
    assert has_marks(books, keys) == [True] * 3
    assert read(ben, keys, level) == (NEW if state == "committed" and level is not UNCOMMITTED else OLD)


def test_a_unit_that_is_committed_and_not_finished_is_read_again_by_a_reader_between_whose_requests_it_was_closed(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    killed(units_world, keys, is_committed=True)
    books.clock.advance(COPIES_S + MARGIN_S)
    # The item twice, until its record is known to be of that moment, and then what the unit writes.
    before_the_nth(ben, 3, units_world.party().units.sweep, "GetItem")
    assert (ben.units.get(ben.accounts, keys[0]) or {})["balance"] == 0
    asked = [sent.parameters for sent in ben.line.sent if sent.operation == "GetItem"]
    assert [each["TableName"] == ben.accounts.name for each in asked] == [True, True, False, False, True]
    assert all(each["ConsistentRead"] and "ProjectionExpression" not in each for each in asked)


def test_a_unit_that_is_committed_and_not_finished_is_reported_and_left_as_it_is_where_rows_of_what_it_writes_are_lost(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    """The new values are lost; the old values are not the newest committed ones."""
    unit = killed(units_world, keys, is_committed=True)
    lose_rows(books, unit, "w#")
    before = stored(books, keys)
    for level in (COMMITTED, SERIALIZABLE):
        with pytest.raises(TableRefused, match=unit):
            ben.units.get(ben.accounts, keys[0], isolation=level)
    with pytest.raises(TableRefused, match=unit):
        ben.changes(keys[0], 5)
    books.clock.advance(COPIES_S + MARGIN_S)
    assert ben.units.sweep().unfinished == 1
    (found, *_) = [each for each in ben.units.repair(ben.accounts, write=True) if each.key == keys[0]]
    assert (found.record, found.action) == (Record.UNCLEAR, "left")
    assert stored(books, keys) == before
    lose_rows(books, unit, "")


def test_a_committed_unit_is_reported_to_a_writer_of_an_item_with_its_mark_that_it_does_not_write(
    books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]
) -> None:
    unit = killed(units_world, keys, is_committed=True)
    copy = {**(books.raw("accounts", keys[0]) or {}), **some_account()}
    books.write("accounts", copy)
    with pytest.raises(TableRefused, match=unit):
        ben.changes({"id": copy["id"]}, 5)
    assert books.raw("accounts", {"id": copy["id"]}) == copy
    assert read(ben, [{"id": copy["id"]}], COMMITTED) == [100]


@pytest.fixture
def late(books: Books, units_world: UnitsWorld, ben: Party, keys: list[Key]) -> dict[str, list[Any]]:
    """The requests that mark, by operation, which arrive when the unit is rolled back and its record is gone."""
    ann = units_world.party()
    unit = states(ann, keys)
    ann.loses(Lost.KILLED_BEFORE, 1, operation="TransactWriteItems")
    with pytest.raises(Killed):
        unit.commit()
    for seconds in (LEASE_S, COPIES_S):
        books.clock.advance(seconds + MARGIN_S)
        ben.units.sweep()
    lose_rows(books, str(unit.id), "")
    assert stored(books, keys[2:]) == [None]
    assert has_marks(books, keys) == [False] * 3
    sent = [(each.operation, each.parameters) for each in ann.line.sent]
    return {
        "UpdateItem": [each for name, each in sent if name == "UpdateItem" and "#mark" in each["UpdateExpression"]],
        "TransactWriteItems": [each for name, each in sent if name == "TransactWriteItems"],
    }


def test_a_unit_that_was_rolled_back_and_forgotten_does_not_make_an_item_by_a_mark_that_comes_late(
    books: Books, keys: list[Key], late: dict[str, list[Any]]
) -> None:
    (marks,) = late["TransactWriteItems"]
    with pytest.raises(ClientError, match="TransactionCanceled"):
        books.plain_client.transact_write_items(**marks)
    assert books.raw("accounts", keys[2]) is None


@LEVELS
def test_a_forgotten_unit_is_read_past_where_its_mark_came_late_and_the_next_unit_takes_that_off(
    books: Books, ben: Party, keys: list[Key], late: dict[str, list[Any]], level: Isolation
) -> None:
    for each in late["UpdateItem"]:
        books.plain_client.update_item(**each)
    assert has_marks(books, keys) == [True, True, False]
    assert read(ben, keys, level) == OLD
    with ben.begin() as unit:
        for key in keys[:2]:
            unit.update(ben.accounts, key, "SET balance = balance + :n", {":n": 1})
    assert [item and (item["balance"], item[VERSION]) for item in stored(books, keys[:2])] == [
        (101, unit.id),
        (51, unit.id),
    ]
    assert has_marks(books, keys) == [False] * 3
