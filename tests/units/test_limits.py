"""Tables that do not allow marks, and what a unit does only because of its size."""

import uuid
from collections.abc import Iterator

import pytest
from kit.engines import OF_OTHERS_FIRST, first_on, indexing_engine_names, wide_engine_names
from kit.units import MARK, THREADS_ONLY, Books, Key, Party, some_account

from ticketlock.errors import InvalidUnitRequest
from ticketlock.units import COMMITTED

SET, ONE = "SET balance = :n", {":n": 1}
ADD = "SET balance = balance + :n"


def on(names: list[str]) -> pytest.MarkDecorator:
    """On these engines."""
    return pytest.mark.parametrize("units_engine", first_on(OF_OTHERS_FIRST, names), indirect=True)


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
        books.plain_client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk", "colour")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            LocalSecondaryIndexes=[index],
        )
        yield name
        books.plain_client.delete_table(TableName=name)

    def test_is_written_in_one_request(self, books: Books, ann: Party, name: str) -> None:
        with ann.begin() as unit:
            unit.put(ann.units.table(name), {"pk": "a", "sk": "b", "colour": "red"})
        assert books.plain_client.scan(TableName=name)["Count"] == 1

    def test_is_not_written_by_marks(self, books: Books, ann: Party, account: Key, name: str) -> None:
        before = books.everything()
        unit = ann.begin(engine="marked")
        unit.put(ann.units.table(name), {"pk": "a", "sk": "b", "colour": "red"})
        unit.update(ann.accounts, account, SET, ONE)
        with pytest.raises(InvalidUnitRequest, match=r'local secondary indexes.*engine="marked"'):
            unit.commit()
        assert books.everything() == before
        assert books.plain_client.scan(TableName=name)["Count"] == 0


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
