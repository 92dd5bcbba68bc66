"""Of all units of one name one is committed: exactly once."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from kit.units import (
    KEYS,
    THREADS_ONLY,
    Books,
    Key,
    Killed,
    Lost,
    Party,
    UnitsWorld,
    dumped,
    make_table,
    some_name,
)

from ticketlock.errors import InvalidUnitRequest, UnitConflict, UnitRolledBack
from ticketlock.units import Outcome

pytestmark = pytest.mark.shows("exactly once")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}
DAY_S = 24 * 3_600


@pytest.mark.parametrize("in_a_block", [True, False], ids=["in a block", "without a block"])
def test_a_unit_whose_name_was_committed_is_repeated_sends_nothing_but_the_question_and_writes_nothing(
    books: Books, ann: Party, ben: Party, account: Key, in_a_block: bool
) -> None:
    name = some_name()

    def takes_ten() -> None:
        unit = party.begin(name=name)
        if in_a_block:
            with unit:
                assert unit.repeated is repeated
                unit.update(party.accounts, account, TAKE, TEN)
        else:
            unit.update(party.accounts, account, TAKE, TEN)
            unit.commit()
        assert unit.repeated is repeated

    for party, repeated in ((ann, False), (ben, True), (ann, True)):
        sent = party.sends(takes_ten)
        assert not repeated or sent == ["GetItem"]
    assert books.balance(account) == 90


def test_another_name_is_another_unit(books: Books, ann: Party, account: Key) -> None:
    for _ in range(2):
        with ann.begin(name=some_name()) as unit:
            unit.update(ann.accounts, account, TAKE, TEN)
    assert books.balance(account) == 80


@pytest.mark.parametrize(
    ("what", "raised"),
    [("other items", UnitRolledBack), ("one item", UnitConflict), ("one item, blindly", UnitRolledBack)],
)
def test_of_two_units_of_one_name_at_the_same_time_one_is_committed_and_the_other_is_repeated_when_it_is_run_again(
    books: Books, ann: Party, ben: Party, account: Key, what: str, raised: type[Exception]
) -> None:
    name, units = some_name(), []
    for party in (ann, ben):
        key = books.account() if what == "other items" else account
        unit = party.begin(name=name)
        unit.update(party.accounts, key, TAKE, TEN, blind=what == "one item, blindly")
        units.append((unit, key))
    (first, written), (second, key) = units
    first.commit()
    with pytest.raises(raised):
        second.commit()
    with ben.begin(name=name) as again:
        assert again.repeated
    assert (books.balance(written), books.balance(key)) == (90, 100 if what == "other items" else 90)


@pytest.mark.parametrize("end", ["a rollback", "a conflict"])
def test_a_unit_that_was_rolled_back_or_met_a_conflict_has_not_used_its_name(
    books: Books, ann: Party, ben: Party, account: Key, end: str
) -> None:
    name = some_name()
    unit = ann.begin(name=name)
    unit.update(ann.accounts, account, TAKE, TEN)
    if end == "a rollback":
        unit.rollback()
    else:
        ben.changes(account, 55)
        with pytest.raises(UnitConflict):
            unit.commit()
    assert books.receipt(name) is None
    with ann.begin(name=name) as unit:
        assert not unit.repeated


def test_the_receipt_says_which_unit_it_was_and_is_kept_for_thirty_days(books: Books, ann: Party, account: Key) -> None:
    name = some_name()
    with ann.begin(name=name) as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
    receipt = books.receipt(name)
    assert receipt is not None
    expires_in_s = int(receipt.pop("expiresAt")) - books.clock.wall_ms // 1_000
    assert 30 * DAY_S - 5 <= expires_in_s <= 30 * DAY_S + 5
    assert receipt == {"unit": f"name#{name}", "row": "receipt", "format": 1, "state": "committed", "by": unit.id}


def test_a_unit_that_writes_nothing_uses_its_name_all_the_same_which_may_be_any_text(
    books: Books, ann: Party, account: Key
) -> None:
    name = f"{some_name()} / größer # name#x\n"
    with ann.begin(name=name) as unit:
        unit.get(ann.accounts, account)
    assert books.receipt(name) is not None
    with ann.begin(name=name) as again:
        assert again.repeated


def test_a_unit_that_was_repeated_when_it_was_saved_is_rolled_back_for_all(ann: Party, ben: Party) -> None:
    name = some_name()
    with ann.begin(name=name):
        pass
    unit = ann.begin(name=name).save()
    again = ben.units.resume(unit)
    assert again.repeated
    again.rollback()
    assert ann.units.outcome(unit=unit) is Outcome.ROLLED_BACK


def test_an_item_with_the_key_of_the_receipt_in_a_table_of_a_users_is_no_receipt(
    books: Books, units_world: UnitsWorld, ann: Party
) -> None:
    name, table = some_name(), f"mine-{uuid.uuid4().hex}"
    make_table(books.plain_client, table, KEYS["units"])
    key = {"unit": f"name#{name}", "row": "receipt"}
    with ann.begin() as unit:
        unit.put(ann.units.table(table), {**key, "n": 0})
    unit = ann.begin(name=name)
    unit.update(ann.units.table(table), key, "SET n = :n", {":n": 1})
    ben = units_world.party()
    with ben.begin() as quicker:
        quicker.update(ben.units.table(table), key, "SET n = :n", {":n": 5})
    with pytest.raises(UnitConflict):
        unit.commit()
    books.plain_client.delete_table(TableName=table)
    assert books.receipt(name) is None


@pytest.mark.parametrize(
    "strange",
    [
        {},
        {"format": 1, "state": "rolledBack", "by": ""},
        {"format": 1, "state": "lost", "by": "x"},
        {"format": 1, "state": 5},
    ],
)
def test_a_receipt_that_no_unit_has_written_is_named(books: Books, ann: Party, strange: Mapping[str, Any]) -> None:
    name = some_name()
    receipt = {"unit": f"name#{name}", "row": "receipt"}
    books.write("units", {**receipt, **strange})
    for ask in (ann.begin(name=name).commit, lambda: ann.units.outcome(name=name)):
        with pytest.raises(InvalidUnitRequest, match=name):
            ask()
    assert books.receipt(name) == {**receipt, **strange}
    books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped(receipt))


@THREADS_ONLY
def test_all_attempts_of_a_commit_are_one_request(books: Books, ann: Party, ben: Party, account: Key) -> None:
    """DynamoDB refuses a different request with the same token."""
    ben.loses(Lost.KILLED_BEFORE, 2, operation="UpdateItem")
    with ann.begin(name=some_name()) as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        # Ben marks it, and crashes; his lease ends a minute later.
        with pytest.raises(Killed), ben.begin(engine="marked") as marked:
            marked.update(ben.accounts, account, TAKE, TEN)
        ann.line.between["TransactWriteItems"] = lambda: books.clock.advance(70)
    requests = [sent.parameters for sent in ann.line.sent if sent.operation == "TransactWriteItems"]
    assert len(requests) == 2
    assert requests[0] == requests[1]
    assert books.balance(account) == 90
