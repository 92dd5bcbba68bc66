"""Items with a version attribute of the user's own, as object mappers keep one, through ``unit.client``."""

from typing import Any

import pytest
from kit.units import Books, Key, Party, dumped, some_account

from ticketlock.errors import ConditionFailed, UnitRolledBack
from ticketlock.units import Unit

NEW = {"ConditionExpression": "attribute_not_exists(#version)", "ExpressionAttributeNames": {"#version": "version"}}


def of_version(version: int) -> dict[str, Any]:
    """The condition that the item has the mapper's version."""
    return {
        "ConditionExpression": "#version = :seen",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": dumped({":seen": version}),
    }


def save(party: Party, unit: Unit, key: Key, version: int, balance: int) -> None:
    """Put the next version of an object that was loaded with this one; 0 for a new object."""
    item = {**key, "version": version + 1, "balance": balance}
    condition = of_version(version) if version else NEW
    unit.client.put_item(TableName=party.accounts.name, Item=dumped(item), **condition)


def delete(party: Party, unit: Unit, key: Key, version: int) -> None:
    unit.client.delete_item(TableName=party.accounts.name, Key=dumped(key), **of_version(version))


@pytest.fixture
def saved(books: Books, ann: Party) -> Key:
    """An object of the second version."""
    key = some_account()
    for version in (0, 1):
        with ann.begin() as unit:
            save(ann, unit, key, version, 100)
    assert books.item("accounts", key) == {**key, "version": 2, "balance": 100}
    return key


def test_a_new_object_does_not_take_the_place_of_another(books: Books, ann: Party, saved: Key) -> None:
    before = books.raw("accounts", saved)
    unit = ann.begin()
    with pytest.raises(ConditionFailed):
        save(ann, unit, saved, 0, 7)
    unit.rollback()
    assert books.raw("accounts", saved) == before


@pytest.mark.parametrize("does", ["saves", "deletes"])
def test_an_object_whose_version_is_out_of_date_is_refused(books: Books, ann: Party, saved: Key, does: str) -> None:
    before = books.raw("accounts", saved)
    with ann.begin() as unit, pytest.raises(ConditionFailed):
        save(ann, unit, saved, 1, 7) if does == "saves" else delete(ann, unit, saved, 1)
    assert books.raw("accounts", saved) == before


def test_an_object_is_deleted_at_its_version(books: Books, ann: Party, saved: Key) -> None:
    with ann.begin() as unit:
        delete(ann, unit, saved, 2)
    assert books.raw("accounts", saved) is None


@pytest.mark.parametrize("units_kind", ["threads"], indirect=True)
def test_a_delete_that_is_pending_is_rolled_back_by_an_older_unit_that_saves_the_object(
    books: Books, ann: Party, ben: Party, saved: Key
) -> None:
    older = ben.begin()
    save(ben, older, saved, 2, 7)
    books.clock.advance(1)
    unit = ann.begin(engine="marked")
    delete(ann, unit, saved, 2)

    def marked() -> None:
        ann.line.between["UpdateItem"] = older.commit

    ann.line.between["UpdateItem"] = marked
    with pytest.raises(UnitRolledBack) as raised:
        unit.commit()
    assert raised.value.by == older.id
    assert books.item("accounts", saved) == {**saved, "version": 3, "balance": 7}
