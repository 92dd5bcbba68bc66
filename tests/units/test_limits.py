"""What a unit cannot take is told before anything is written; and what is left of a unit by its size alone."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kit.engines import (
    OF_OTHERS_FIRST,
    first_on,
    indexing_engine_names,
    roomy_engine_names,
    wide_engine_names,
)
from kit.units import MARK, THREADS_ONLY, Books, Key, Party, some_account

from ticketlock._expressions._values import MAX_ITEM_BYTES, size_of
from ticketlock.errors import InvalidUnitRequest, ItemTooLarge
from ticketlock.units import COMMITTED

VERSION_BYTES, MARK_BYTES = 64, 128
SET, ONE = "SET balance = :n", {":n": 1}
ADD = "SET balance = balance + :n"


def on(names: list[str]) -> pytest.MarkDecorator:
    """On these engines."""
    return pytest.mark.parametrize("units_engine", first_on(OF_OTHERS_FIRST, names), indirect=True)


def account_of(size_bytes: int) -> dict[str, Any]:
    """An account of exactly so many bytes."""
    key = some_account()
    empty = size_of({"id": {"S": key["id"]}, "text": {"S": ""}})
    return {**key, "text": "x" * (size_bytes - empty)}


@on(roomy_engine_names())
class TestAnItem:
    def test_may_be_as_large_as_dynamodb_takes_less_what_units_add(self, books: Books, ann: Party) -> None:
        item = account_of(MAX_ITEM_BYTES - VERSION_BYTES)
        with ann.begin() as unit:
            unit.put(ann.accounts, item)
        assert books.item("accounts", {"id": item["id"]}) == item

    def test_that_is_a_byte_larger_is_refused_at_its_line_and_the_unit_goes_on(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        item = account_of(MAX_ITEM_BYTES - VERSION_BYTES + 1)
        with ann.begin() as unit:
            with pytest.raises(ItemTooLarge) as refused:
                unit.put(ann.accounts, item)
            unit.update(ann.accounts, account, SET, ONE)
        assert refused.value.phase == "statement"
        assert books.raw("accounts", {"id": item["id"]}) is None
        assert books.balance(account) == 1

    def test_in_which_a_mark_has_no_room_is_refused_before_anything_is_written(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        before = books.everything()
        unit = ann.begin(engine="marked")
        unit.put(ann.accounts, account_of(MAX_ITEM_BYTES - MARK_BYTES + 1))
        unit.update(ann.accounts, account, SET, ONE)
        with pytest.raises(ItemTooLarge) as refused:
            unit.commit()
        assert refused.value.phase == "mark"
        assert books.everything() == before

    def test_in_which_a_mark_has_just_room_is_committed_by_marks(self, books: Books, ann: Party) -> None:
        item = account_of(MAX_ITEM_BYTES - MARK_BYTES)
        with ann.begin(engine="marked") as unit:
            unit.put(ann.accounts, item)
        assert books.item("accounts", {"id": item["id"]}) == item


@on(indexing_engine_names())
class TestATableWithALocalIndex:
    @pytest.fixture
    def name(self, books: Books) -> Iterator[str]:
        name = f"indexed-{uuid.uuid4().hex[:8]}"
        index = {
            "IndexName": "by-colour",
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "colour", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "ALL"},
        }
        books.onlooker.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk", "colour")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            LocalSecondaryIndexes=[index],
        )
        yield name
        books.onlooker.delete_table(TableName=name)

    def test_is_written_in_one_request(self, books: Books, ann: Party, name: str) -> None:
        with ann.begin() as unit:
            unit.put(ann.units.table(name), {"pk": "a", "sk": "b", "colour": "red"})
        assert books.onlooker.scan(TableName=name)["Count"] == 1

    def test_is_not_written_by_marks(self, books: Books, ann: Party, account: Key, name: str) -> None:
        before = books.everything()
        unit = ann.begin(engine="marked")
        unit.put(ann.units.table(name), {"pk": "a", "sk": "b", "colour": "red"})
        unit.update(ann.accounts, account, SET, ONE)
        with pytest.raises(InvalidUnitRequest, match="local secondary indexes"):
            unit.commit()
        assert books.everything() == before
        assert books.onlooker.scan(TableName=name)["Count"] == 0


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
@on(wide_engine_names())
class TestMoreThanAHundredItemsThatAreOnlyRead:
    def test_are_held_together_by_marks(self, books: Books, ann: Party) -> None:
        keys = [some_account() for _ in range(101)]
        unit = ann.begin()
        unit.get_all([(ann.accounts, key) for key in keys])
        assert "TransactWriteItems" in ann.sends(unit.commit)
        assert [books.raw("accounts", key) for key in (keys[0], keys[-1])] == [None, None]

    def test_are_only_read_at_a_lower_level(self, ann: Party) -> None:
        unit = ann.begin(isolation=COMMITTED)
        unit.get_all([(ann.accounts, some_account()) for _ in range(101)])
        assert ann.sends(unit.commit) == []
