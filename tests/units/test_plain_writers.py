"""Plain writers beside units, by the conditions of docs/units.md: one for each thing that they may have found."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.pages import rows
from kit.units import MARK, VERSION, Books, Key, Party, new_version, some_account

CONDITIONS = dict(row for row in rows("docs/units.md", "Beside plain readers and writers") if len(row) == 2)
A_VERSION, NO_VERSION, NO_ITEM = "an item with a version", "an item without one, which no unit has written", "no item"


def writes(books: Books, key: Key, found: str, seen: str | None = None) -> None:
    """A plain write of 7, on the condition for what was found."""
    condition = CONDITIONS[found].strip("`")
    names = {"#mark": MARK, "#version": VERSION, "#key": "id"}
    values: dict[str, Any] = {":n": {"N": "7"}, ":new": {"S": new_version()}}
    books.plain_client.update_item(
        TableName=books.tables["accounts"],
        Key={"id": {"S": key["id"]}},
        UpdateExpression="SET balance = :n, #version = :new",
        ConditionExpression=condition,
        ExpressionAttributeNames={name: each for name, each in names.items() if name in f"{condition} #version"},
        ExpressionAttributeValues=values | ({":seen": {"S": seen}} if seen is not None else {}),
    )


def is_refused(books: Books, key: Key, found: str, seen: str | None = None) -> None:
    with pytest.raises(ClientError) as refused:
        writes(books, key, found, seen)
    assert refused.value.response["Error"]["Code"] == "ConditionalCheckFailedException"


class TestAWriteIsApplied:
    def test_to_an_item_with_the_version_that_was_found(self, books: Books, account: Key) -> None:
        writes(books, account, A_VERSION, books.version(account))
        assert books.balance(account) == 7

    def test_to_an_item_that_no_unit_has_written(self, books: Books) -> None:
        key = books.plain_account()
        writes(books, key, NO_VERSION)
        assert books.balance(key) == 7

    def test_where_there_was_no_item(self, books: Books) -> None:
        key = some_account()
        writes(books, key, NO_ITEM)
        assert books.balance(key) == 7


class TestAWriteIsRefused:
    """Once a unit has written the item."""

    def test_to_an_item_that_has_another_version(self, books: Books, ben: Party, account: Key) -> None:
        seen = books.version(account)
        ben.changes(account, 1)
        is_refused(books, account, A_VERSION, seen)
        assert books.balance(account) == 1

    def test_to_an_item_that_no_unit_had_written(self, books: Books, ben: Party) -> None:
        key = books.plain_account()
        ben.changes(key, 1)
        is_refused(books, key, NO_VERSION)
        assert books.balance(key) == 1

    @pytest.mark.parametrize("way", ["native", "marked"])
    def test_to_an_item_that_a_unit_has_deleted(self, books: Books, ben: Party, way: Any) -> None:
        key = books.plain_account()
        with ben.begin(engine=way) as unit:
            unit.delete(ben.accounts, key)
        is_refused(books, key, NO_VERSION)
        assert books.raw("accounts", key) is None

    def test_where_a_unit_has_made_an_item(self, books: Books, ben: Party) -> None:
        key = some_account()
        with ben.begin() as unit:
            unit.put(ben.accounts, {**key, "balance": 1})
        is_refused(books, key, NO_ITEM)
        assert books.balance(key) == 1
