"""What plain readers find of a unit that has marked its items and is not decided: the committed values."""

from typing import Any

import pytest
from kit.crashes import crashes
from kit.units import MARK, THREADS_ONLY, VERSION, Books, Key, Killed, Party, UnitsWorld, some_account

pytestmark = [
    pytest.mark.shows("no dirty read"),
    THREADS_ONLY,
]


@pytest.fixture
def before(books: Books, account: Key, other: Key) -> dict[str, Any]:
    """The two accounts, as stored."""
    return {str(key["id"]): books.raw("accounts", key) for key in (account, other)}


@pytest.fixture
def made(units_world: UnitsWorld, before: dict[str, Any]) -> Key:
    """A unit has marked both, to change one and delete one, and a third that it creates; its process has crashed."""
    ann, key = units_world.party(), some_account()
    changed, deleted = before
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, {"id": changed}, "SET balance = :n", {":n": 0})
    unit.delete(ann.accounts, {"id": deleted})
    unit.put(ann.accounts, {**key, "balance": 7})
    crashes(ann, 3, is_sent=False)
    with pytest.raises(Killed):
        unit.commit()
    return key


def test_items_are_as_they_were_and_have_a_mark(books: Books, before: dict[str, Any], made: Key) -> None:
    assert made["id"] not in before
    for name, item in before.items():
        found = books.raw("accounts", {"id": name}) or {}
        assert found.pop(MARK)["kind"] == "write"
        assert found == item


def test_an_item_that_is_to_be_made_has_its_key_and_the_mark(books: Books, made: Key) -> None:
    found = books.raw("accounts", made) or {}
    assert found.pop(MARK)["kind"] == "insert"
    assert found == made
    assert VERSION not in found


def test_cleaned_it_is_no_item_and_a_scan_may_leave_it_out(books: Books, ben: Party, made: Key) -> None:
    found = books.raw("accounts", made)
    assert found is not None
    assert ben.units.clean(found) is None
    pages = books.plain_client.get_paginator("scan").paginate(
        TableName=books.tables["accounts"], **ben.units.VISIBLE.parameters
    )
    seen = [item["id"]["S"] for page in pages for item in page["Items"]]
    assert seen
    assert made["id"] not in seen
