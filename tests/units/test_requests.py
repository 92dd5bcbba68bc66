"""How many requests a unit sends, and whether it is committed in one of them or by marks."""

import uuid
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from kit.engines import engine_names, engine_names_but_moto, first_on
from kit.units import MARK, THREADS_ONLY, Books, Key, Party, index, make_table, some_account, some_line, some_name

from ticketlock.errors import InvalidUnitRequest, UnitTooLarge
from ticketlock.units import COMMITTED, UNCOMMITTED

pytestmark = pytest.mark.shows("cost of units", "bad input")

IN_HUNDREDS = pytest.mark.parametrize(
    "units_engine", first_on("memory", engine_names_but_moto()), indirect=True, scope="module"
)

ADD, SET, ONE = "SET balance = balance + :n", "SET balance = :n", {":n": 1}


@pytest.fixture
def ten(books: Books) -> list[Key]:
    return [books.account() for _ in range(10)]


@pytest.mark.parametrize(
    ("together", "blind", "reads"),
    [(True, False, ["TransactGetItems"]), (False, False, ["GetItem"] * 10), (False, True, [])],
    ids=["after one cut", "one by one", "blind"],
)
def test_ten_updates_are_one_request_and_those_that_read(
    ann: Party, ten: list[Key], together: bool, blind: bool, reads: list[str]
) -> None:
    with ann.begin() as unit:
        if together:
            unit.get_all([(ann.accounts, key) for key in ten])
        for key in ten:
            unit.update(ann.accounts, key, ADD, ONE, blind=blind)
    assert ann.line.operations == [*reads, "TransactWriteItems"]


def test_a_name_costs_one_read_and_one_action(ann: Party, account: Key) -> None:
    with ann.begin(name=some_name()) as unit:
        unit.update(ann.accounts, account, ADD, ONE)
    assert ann.line.operations == ["GetItem", "GetItem", "TransactWriteItems"]
    assert len(ann.line.sent[-1].parameters["TransactItems"]) == 2


def test_an_item_is_read_once_however_often_it_is_used_and_only_checked_if_it_does_not_change(
    ann: Party, account: Key, other: Key
) -> None:
    with ann.begin():
        pass
    assert ann.line.operations == []
    with ann.begin() as unit:
        unit.get(ann.accounts, account)
        unit.update(ann.accounts, other, ADD, ONE)
        unit.check(ann.accounts, other, "balance > :n", ONE)
        unit.get(ann.accounts, account)
        unit.get(ann.accounts, other)
    assert ann.line.operations == ["GetItem", "GetItem", "TransactWriteItems"]
    actions = [name for action in ann.line.sent[-1].parameters["TransactItems"] for name in action]
    assert actions == ["ConditionCheck", "Update"]


@IN_HUNDREDS
@pytest.mark.parametrize(
    ("reads", "writes", "is_named", "fits"),
    [
        (100, 100, False, True),
        (99, 99, True, True),
        (101, 101, False, False),
        (100, 100, True, False),
        (101, 1, False, False),
    ],
    ids=["100 writes", "99 writes and a name", "101 writes", "100 writes and a name", "a write and 100 reads"],
)
def test_a_hundred_actions_fit_into_one_request(
    books: Books, ann: Party, reads: int, writes: int, is_named: bool, fits: bool
) -> None:
    before = books.everything()
    keys = [some_account() for _ in range(reads)]
    unit = ann.begin(name=some_name() if is_named else None, engine="native")
    unit.get_all([(ann.accounts, key) for key in keys])
    for key in keys[:writes]:
        unit.put(ann.accounts, {**key, "balance": 1})
    with nullcontext() if fits else pytest.raises(UnitTooLarge, match="101 actions"):
        unit.commit()
    assert ann.line.operations.count("TransactWriteItems") == fits
    assert {books.version(key) for key in keys} == {unit.id if fits else None}
    assert (books.everything() == before) is not fits


@IN_HUNDREDS
def test_uncommitted_items_are_read_in_hundreds_of_all_tables_and_not_consistently(
    books: Books, ann: Party, account: Key
) -> None:
    line = some_line()
    books.write("lines", {**line, "text": "a"})
    wanted = [(ann.accounts, account), (ann.lines, line), *((ann.accounts, some_account()) for _ in range(99))]
    found = ann.units.get_all(wanted, isolation=UNCOMMITTED)
    assert found == [{**account, "balance": 100}, {**line, "text": "a"}, *[None] * 99]
    assert ann.line.operations == ["BatchGetItem", "GetItem"]
    batch, single = (sent.parameters for sent in ann.line.sent)
    assert [each["ConsistentRead"] for each in batch["RequestItems"].values()] == [False, False]
    assert single["ConsistentRead"] is False


@IN_HUNDREDS
def test_a_cut_of_more_than_a_hundred_is_read_in_hundreds(ann: Party, account: Key) -> None:
    keys = [some_account() for _ in range(100)]
    found = ann.units.get_all([(ann.accounts, key) for key in [*keys, account]])
    assert found[:100] == [None] * 100
    assert found[100] == {**account, "balance": 100}
    assert ann.line.operations == ["TransactGetItems", "GetItem"]


@pytest.fixture
def indexed(books: Books) -> Iterator[str]:
    """The name of a table with a local index."""
    name = f"indexed-{uuid.uuid4().hex[:8]}"
    local = index("by-colour", {"pk": "HASH", "colour": "RANGE"})
    make_table(books.plain_client, name, {"pk": "S", "sk": "S"}, {"colour": "S"}, LocalSecondaryIndexes=[local])
    yield name
    books.plain_client.delete_table(TableName=name)


@pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)
def test_a_table_with_a_local_index_is_written_in_one_request_and_not_by_marks(
    books: Books, ann: Party, account: Key, indexed: str
) -> None:
    item = {"pk": "a", "sk": "b", "colour": "red"}
    before = books.everything()
    unit = ann.begin(engine="marked")
    unit.put(ann.units.table(indexed), item)
    unit.update(ann.accounts, account, SET, ONE)
    with pytest.raises(InvalidUnitRequest, match=r'local secondary indexes.*engine="marked"'):
        unit.commit()
    assert books.everything() == before
    assert books.plain_client.scan(TableName=indexed)["Count"] == 0
    with ann.begin() as unit:
        unit.put(ann.units.table(indexed), item)
    assert books.plain_client.scan(TableName=indexed)["Count"] == 1


def test_a_blind_update_of_a_unit_that_is_committed_by_marks_is_read_at_the_commit(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.begin(engine="marked")
    assert ann.sends(lambda: unit.update(ann.accounts, account, ADD, ONE, blind=True)) == []
    ben.changes(account, 50)
    unit.commit()
    assert books.balance(account) == 51
    assert MARK not in (books.raw("accounts", account) or {})


@THREADS_ONLY
@IN_HUNDREDS
def test_more_than_a_hundred_items_that_are_only_read_below_serializable_cost_a_commit_no_request(ann: Party) -> None:
    unit = ann.begin(isolation=COMMITTED)
    unit.get_all([(ann.accounts, some_account()) for _ in range(101)])
    assert ann.sends(unit.commit) == []
