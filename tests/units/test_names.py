"""Of all units of one name one is committed: exactly once."""

import uuid
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kit.crashes import crashes
from kit.units import KEYS, THREADS_ONLY, Books, Key, Killed, Party, UnitsWorld, dumped, make_table, some_name
from units.conftest import LEASE_S, MARGIN_S

from ticketlock.errors import InvalidUnitRequest, UnitConflict, UnitRolledBack
from ticketlock.units import Outcome

pytestmark = pytest.mark.shows("exactly once")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}
DAY_S = 24 * 3_600


@pytest.mark.parametrize("in_a_block", [True, False], ids=["in a block", "without a block"])
def test_a_unit_whose_name_was_committed_is_repeated_and_only_reads_the_receipt_and_writes_nothing(
    books: Books, ann: Party, ben: Party, account: Key, in_a_block: bool
) -> None:
    name = some_name()

    def take_ten(party: Party, *, is_repeated: bool) -> None:
        unit = party.begin(name=name)
        if in_a_block:
            with unit:
                assert unit.repeated is is_repeated
                unit.update(party.accounts, account, TAKE, TEN)
        else:
            unit.update(party.accounts, account, TAKE, TEN)
            unit.commit()
        assert unit.repeated is is_repeated

    take_ten(ann, is_repeated=False)
    for party in (ben, ann):
        assert party.sends(partial(take_ten, party, is_repeated=True)) == ["GetItem"]
    assert books.balance(account) == 90


def test_two_units_of_different_names_are_both_committed(books: Books, ann: Party, account: Key) -> None:
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


@pytest.mark.parametrize(("options", "days"), [({}, 30), ({"keep_names_for": timedelta(days=1)}, 1)], ids=str)
def test_the_receipt_says_which_unit_it_was_and_is_kept_for_thirty_days_or_as_long_as_was_asked(
    books: Books, units_world: UnitsWorld, account: Key, options: Any, days: int
) -> None:
    ann, name = units_world.party(**options), some_name()
    with ann.begin(name=name) as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
    receipt = books.receipt(name)
    assert receipt is not None
    expires_in_s = int(receipt.pop("expiresAt")) - books.clock.wall_ms // 1_000
    assert expires_in_s == pytest.approx(days * DAY_S, abs=MARGIN_S)
    assert receipt == {"unit": f"name#{name}", "row": "receipt", "format": 1, "state": "committed", "by": unit.id}


def test_the_receipt_of_a_resumed_unit_is_kept_as_long_as_its_process_was_asked(
    books: Books, units_world: UnitsWorld, ann: Party, account: Key
) -> None:
    ben, name = units_world.party(keep_names_for=timedelta(days=366)), some_name()
    unit = ann.begin(name=name)
    unit.update(ann.accounts, account, TAKE, TEN)
    ben.units.resume(unit.save()).commit()
    receipt = books.receipt(name)
    assert receipt is not None
    assert int(receipt["expiresAt"]) - books.clock.wall_ms // 1_000 == pytest.approx(366 * DAY_S, abs=MARGIN_S)


def test_a_unit_that_writes_nothing_uses_its_name_which_may_be_any_text(books: Books, ann: Party, account: Key) -> None:
    name = f"{some_name()} / größer # name#x\n"
    with ann.begin(name=name) as unit:
        unit.get(ann.accounts, account)
    assert books.receipt(name) is not None
    with ann.begin(name=name) as again:
        assert again.repeated


def test_a_saved_unit_whose_name_was_committed_is_repeated_and_may_be_rolled_back(ann: Party, ben: Party) -> None:
    name = some_name()
    with ann.begin(name=name):
        pass
    unit = ann.begin(name=name).save()
    again = ben.units.resume(unit)
    assert again.repeated
    again.rollback()
    assert ann.units.outcome(unit=unit).state is Outcome.ROLLED_BACK


def test_an_item_with_the_key_of_the_receipt_in_a_users_own_table_is_no_receipt(
    books: Books, ann: Party, ben: Party
) -> None:
    name, table = some_name(), f"mine-{uuid.uuid4().hex}"
    make_table(books.plain_client, table, KEYS["units"])
    key = {"unit": f"name#{name}", "row": "receipt"}
    with ann.begin() as unit:
        unit.put(ann.units.table(table), {**key, "n": 0})
    unit = ann.begin(name=name)
    unit.update(ann.units.table(table), key, "SET n = :n", {":n": 1})
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
    ids=["empty", "by no unit", "an unknown state", "a number as its state"],
)
def test_a_receipt_that_no_unit_has_written_is_refused_by_its_name_and_left_as_it_is(
    books: Books, ann: Party, strange: Mapping[str, Any]
) -> None:
    name = some_name()
    receipt = {"unit": f"name#{name}", "row": "receipt"}
    books.write("units", {**receipt, **strange})
    for ask in (ann.begin(name=name).commit, lambda: ann.units.outcome(name=name)):
        with pytest.raises(InvalidUnitRequest, match=name):
            ask()
    assert books.receipt(name) == {**receipt, **strange}
    books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped(receipt))


@THREADS_ONLY
def test_a_commit_that_met_a_mark_sends_the_same_request_again(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    """DynamoDB refuses a different request with the same token."""
    # One update marks, the second one decides.
    crashes(ben, 2, is_sent=False)
    with ann.begin(name=some_name()) as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        # Ben marks it, and crashes; Ann sends her request again after his lease has ended.
        with pytest.raises(Killed), ben.begin(engine="marked") as marked:
            marked.update(ben.accounts, account, TAKE, TEN)
        ann.line.between["TransactWriteItems"] = lambda: books.clock.advance(LEASE_S + MARGIN_S)
    first, second = [sent.parameters for sent in ann.line.sent if sent.operation == "TransactWriteItems"]
    assert first == second
    assert books.balance(account) == 90
