"""One `get_all` is of one instant, also of items that its unit had read before; reads below SERIALIZABLE are new."""

from typing import Any

import pytest
from boto3.dynamodb.conditions import Key as KeyOf
from kit.engines import first_on, wide_engine_names
from kit.units import THREADS_ONLY, VERSION, Books, Key, Party, new_version, some_account, some_line

from ticketlock.errors import UnitConflict, UnitFinished, UnitRolledBack
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, UNCOMMITTED, Isolation

ADD, TEN = "SET balance = balance + :n", {":n": 10}


def moves_ten(party: Party, giver: Key, taker: Key) -> None:
    """One unit that keeps the sum of both."""
    with party.begin() as unit:
        unit.update(party.accounts, giver, "SET balance = balance - :n", TEN)
        unit.update(party.accounts, taker, ADD, TEN)


def both(party: Party, account: Key, other: Key) -> list[tuple[Any, Key]]:
    return [(party.accounts, account), (party.accounts, other)]


class TestItemsThatWereReadBefore:
    @pytest.mark.parametrize("level", [SERIALIZABLE, COMMITTED], ids=lambda level: level.name)
    def test_are_of_the_same_instant_as_the_others_of_one_get_all(
        self, ann: Party, ben: Party, account: Key, other: Key, level: Isolation
    ) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        moves_ten(ben, account, other)
        if level is COMMITTED:
            found = unit.get_all(both(ann, account, other), isolation=level)
            assert [each and each["balance"] for each in found] == [90, 60]
            return
        with pytest.raises(UnitConflict) as conflict:
            unit.get_all(both(ann, account, other), isolation=level)
        assert conflict.value.keys == ((ann.accounts.name, account),)
        with pytest.raises(UnitFinished, match="rolled back"):
            unit.commit()

    def test_and_so_they_are_if_each_was_read_by_itself(self, ann: Party, ben: Party, account: Key, other: Key) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        moves_ten(ben, account, other)
        unit.get(ann.accounts, other)
        with pytest.raises(UnitConflict):
            unit.get_all(both(ann, account, other))

    @pytest.mark.parametrize("level", [SERIALIZABLE, COMMITTED], ids=lambda level: level.name)
    def test_and_so_is_what_the_unit_has_written(
        self, ann: Party, ben: Party, account: Key, other: Key, level: Isolation
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, account, ADD, TEN)
        moves_ten(ben, account, other)
        with pytest.raises(UnitConflict):
            unit.get_all(both(ann, account, other), isolation=level)

    def test_through_the_low_level_client_too(self, ann: Party, ben: Party, account: Key, other: Key) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        moves_ten(ben, account, other)
        gets = [{"Get": {"TableName": ann.accounts.name, "Key": {"id": {"S": key["id"]}}}} for key in (account, other)]
        with pytest.raises(UnitConflict):
            unit.client.transact_get_items(TransactItems=gets)

    def test_are_not_read_again_if_one_read_has_returned_all(self, ann: Party, account: Key, other: Key) -> None:
        with ann.begin() as unit:
            for _ in range(2):
                unit.get_all(both(ann, account, other))
        assert ann.line.operations == ["TransactGetItems"]

    def test_that_are_unchanged_are_read_once_more_and_need_no_check_at_the_end(
        self, ann: Party, account: Key, other: Key
    ) -> None:
        with ann.begin() as unit:
            unit.get(ann.accounts, account)
            found = unit.get_all(both(ann, account, other))
        assert [each and each["balance"] for each in found] == [100, 50]
        assert ann.line.operations == ["GetItem", "TransactGetItems"]

    def test_with_the_units_own_writes(self, books: Books, ann: Party, account: Key, other: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, ADD, TEN)
            for level in (SERIALIZABLE, COMMITTED, UNCOMMITTED):
                found = unit.get_all(both(ann, account, other), isolation=level)
                assert [each and each["balance"] for each in found] == [110, 50]
        assert books.balance(account) == 110

    @THREADS_ONLY
    def test_under_a_read_lock_that_was_taken_away_are_not_returned(
        self, ann: Party, ben: Party, account: Key, other: Key
    ) -> None:
        unit = ann.begin(isolation=READ_LOCK)
        unit.get(ann.accounts, account)

        def meanwhile() -> None:
            # Its keys are in its record, and it is about to read the second item.
            ben.units.rollback(unit.id)
            moves_ten(ben, account, other)

        ann.line.between["GetItem"] = meanwhile
        with pytest.raises(UnitRolledBack):
            unit.get_all(both(ann, account, other))


class TestBelowSerializable:
    @pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED], ids=lambda level: level.name)
    @pytest.mark.parametrize("own", [SERIALIZABLE, COMMITTED], ids=lambda level: f"unit at {level.name}")
    def test_a_flag_that_the_unit_has_read_before_is_seen_to_change(
        self, ann: Party, ben: Party, account: Key, level: Isolation, own: Isolation
    ) -> None:
        unit = ann.begin(isolation=own)
        unit.get(ann.accounts, account, isolation=SERIALIZABLE)
        ben.changes(account, 1)
        assert unit.get(ann.accounts, account, isolation=level) == {**account, "balance": 1}

    def test_a_query_too_sees_it_change(self, books: Books, ann: Party, ben: Party) -> None:
        line = some_line()
        books.write("lines", {**line, "amount": 1, VERSION: new_version()})
        unit = ann.begin()
        unit.get(ann.lines, line)
        with ben.begin() as bens:
            bens.update(ben.lines, line, "SET amount = :n", {":n": 2})
        (found,) = unit.query(ann.lines, KeyOf("pk").eq(line["pk"]), isolation=COMMITTED)
        assert found["amount"] == 2

    def test_what_it_writes_after_it_has_seen_the_change_conflicts_at_once(
        self, ann: Party, ben: Party, account: Key
    ) -> None:
        unit = ann.begin()
        unit.get(ann.accounts, account)
        ben.changes(account, 1)
        unit.get(ann.accounts, account, isolation=COMMITTED)
        with pytest.raises(UnitConflict):
            unit.put(ann.accounts, {**account, "balance": 2})


class TestACheck:
    @pytest.mark.parametrize("own", [SERIALIZABLE, COMMITTED], ids=lambda level: level.name)
    def test_in_a_unit_that_only_reads_holds_at_the_commit(
        self, ann: Party, ben: Party, account: Key, own: Isolation
    ) -> None:
        unit = ann.begin(isolation=own)
        unit.check(ann.accounts, account, "balance >= :n", TEN)
        ben.changes(account, 1)
        with pytest.raises(UnitConflict) as conflict:
            unit.commit()
        assert conflict.value.keys == ((ann.accounts.name, account),)

    def test_costs_one_transaction_that_only_reads(self, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            unit.check(ann.accounts, account, "balance >= :n", TEN)
        # A plain read might still see the item as it was before a transaction that is decided.
        assert ann.line.operations == ["GetItem", "TransactGetItems"]


@THREADS_ONLY
@pytest.mark.parametrize("units_engine", first_on("memory", wide_engine_names()), indirect=True)
def test_more_items_than_one_request_reads_are_of_one_instant_outside_of_units(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    wanted = [(ann.accounts, account), *((ann.accounts, some_account()) for _ in range(100)), (ann.accounts, other)]
    ann.line.between["TransactGetItems"] = lambda: ann.line.between.update(
        TransactGetItems=lambda: moves_ten(ben, account, other)
    )
    # After the first hundred, before the rest.
    with pytest.raises(UnitConflict):
        ann.units.get_all(wanted, isolation=SERIALIZABLE)
    assert (books.balance(account), books.balance(other)) == (90, 60)
