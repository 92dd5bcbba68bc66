"""Units that one process saves and another one resumes: all of it is committed once, or nothing."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from kit.engines import engine_names, first_on
from kit.units import THREADS_ONLY, Books, Interrupt, Key, Killed, Lost, Party, UnitsWorld, some_account, some_name

from ticketlock.errors import (
    ConditionFailed,
    InvalidUnitRequest,
    LockLost,
    OutcomeUnknown,
    RequestNotApplied,
    UnitChanged,
    UnitConflict,
    UnitFinished,
    UnitForgotten,
    UnitRolledBack,
)
from ticketlock.units import COMMITTED, Outcome

TAKE, ADD, TEN = "SET balance = balance - :n", "SET balance = balance + :n", {":n": 10}
A_DAY_S = 86_400


def saved(party: Party, key: Key, **terms: Any) -> str:
    """A unit that takes ten from an account, and is saved."""
    unit = party.begin(**terms)
    unit.update(party.accounts, key, TAKE, TEN)
    return unit.save()


def rows(books: Books, unit: str) -> list[str]:
    return [row["row"] for row in books.everything()["units"] if row["unit"] == unit]


def test_another_process_goes_on_with_what_it_has_read_and_stated(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    new, gone, counted = some_account(), books.account(1), books.account(1)
    unit = ann.begin()
    unit.put(ann.accounts, {**new, "balance": 1, "raw": b"x", "set": {1, 2}, "deep": [{"a": None}, True]})
    unit.update(ann.accounts, account, TAKE, TEN)
    unit.update(ann.accounts, counted, ADD, TEN, blind=True)
    unit.delete(ann.accounts, gone)
    unit.get(ann.accounts, other)
    name = unit.save()
    assert (name, books.balance(account), books.raw("accounts", new)) == (unit.id, 100, None)
    with ben.units.resume(name) as resumed:
        assert resumed.id == name
        assert resumed.get(ben.accounts, account) == {**account, "balance": 90}
        assert resumed.get(ben.accounts, gone) is None
        assert (resumed.get(ben.accounts, new) or {})["deep"] == [{"a": None}, True]
        resumed.update(ben.accounts, account, TAKE, TEN)
    assert [books.balance(key) for key in (account, counted)] == [80, 11]
    assert books.item("accounts", new) == {**new, "balance": 1, "raw": b"x", "set": {1, 2}, "deep": [{"a": None}, True]}
    assert books.raw("accounts", gone) is None
    assert ann.units.outcome(unit=name) is Outcome.COMMITTED


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_it_is_committed_only_while_all_that_it_has_read_stands(
    books: Books, ann: Party, ben: Party, account: Key, other: Key, engine: Any
) -> None:
    unit = ann.begin(engine=engine)
    unit.get(ann.accounts, other)
    unit.update(ann.accounts, account, TAKE, TEN)
    name = unit.save()
    ann.changes(other, 7)
    with pytest.raises(UnitConflict), ben.units.resume(name):
        pass
    assert books.balance(account) == 100


def test_what_a_lower_read_saw_has_to_stand_when_a_statement_rests_on_it(ann: Party, ben: Party, account: Key) -> None:
    unit = ann.begin()
    unit.get(ann.accounts, account, isolation=COMMITTED)
    name = unit.save()
    ann.changes(account, 7)
    resumed = ben.units.resume(name)
    with pytest.raises(UnitConflict):
        resumed.update(ben.accounts, account, TAKE, TEN)


class TestTheObjectThatWasSaved:
    def test_is_over(self, ann: Party, account: Key) -> None:
        unit = ann.begin()
        unit.save()
        uses: list[Callable[[], object]] = [
            lambda: unit.get(ann.accounts, account),
            unit.commit,
            unit.rollback,
            unit.save,
        ]
        for use in uses:
            with pytest.raises(UnitFinished, match="saved"):
                use()

    def test_ends_its_block_without_an_end_of_the_unit(self, ann: Party, ben: Party, account: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, TAKE, TEN)
            unit.save()
        ben.units.resume(unit.id).commit()
        assert ben.books.balance(account) == 90


class TestTwoProcessesThatGoOnWithOneUnit:
    @pytest.mark.parametrize("engine", ["native", "marked"])
    def test_the_last_one_counts(self, books: Books, ann: Party, ben: Party, account: Key, engine: Any) -> None:
        name = saved(ann, account, engine=engine)
        first, second = ann.units.resume(name), ben.units.resume(name)
        first.update(ann.accounts, account, TAKE, {":n": 50})
        with pytest.raises(UnitChanged):
            first.commit()
        second.commit()
        assert books.balance(account) == 90

    def test_the_other_one_can_neither_save_it_nor_roll_it_back(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = saved(ann, account)
        saving, rolling_back, last = ann.units.resume(name), ann.units.resume(name), ben.units.resume(name)
        with pytest.raises(UnitChanged):
            saving.save()
        with pytest.raises(UnitChanged):
            rolling_back.rollback()
        last.commit()
        assert books.balance(account) == 90

    @pytest.mark.parametrize("engine", ["native", "marked"])
    def test_one_that_comes_after_the_commit_writes_nothing(
        self, books: Books, ann: Party, ben: Party, account: Key, engine: Any
    ) -> None:
        name = saved(ann, account, engine=engine)
        late = ann.units.resume(name)
        ben.units.resume(name).commit()
        with pytest.raises(UnitChanged, match="committed it"):
            late.commit()
        with ann.units.resume(name) as again:
            assert again.repeated
            again.update(ann.accounts, account, TAKE, TEN)
        assert books.balance(account) == 90

    def test_each_that_saves_it_hands_it_on_with_what_it_has_added(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = saved(ann, account)
        for party in (ben, ann, ben):
            unit = party.units.resume(name)
            unit.update(party.accounts, account, TAKE, TEN)
            assert unit.save() == name
        ann.units.resume(name).commit()
        assert books.balance(account) == 60


class TestTheEndOfASavedUnit:
    def test_an_error_in_the_block_leaves_it_as_it_was_saved(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = saved(ann, account)
        unit = ben.units.resume(name)
        unit.update(ben.accounts, account, TAKE, TEN)
        with pytest.raises(ZeroDivisionError), unit:
            _ = 1 / 0
        assert ann.units.outcome(unit=name) is Outcome.PENDING
        ann.units.resume(name).commit()
        assert books.balance(account) == 90

    def test_rollback_ends_it_for_all(self, books: Books, ann: Party, ben: Party, account: Key) -> None:
        name = saved(ann, account)
        ben.units.resume(name).rollback()
        with pytest.raises(UnitRolledBack):
            ann.units.resume(name)
        assert (ann.units.outcome(unit=name), books.balance(account)) == (Outcome.ROLLED_BACK, 100)

    def test_it_is_rolled_back_by_its_id_also_under_the_one_that_goes_on(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = saved(ann, account)
        unit = ben.units.resume(name)
        assert ann.units.rollback(name) is Outcome.ROLLED_BACK
        with pytest.raises(UnitRolledBack):
            unit.commit()
        assert books.balance(account) == 100
        assert ann.units.rollback(name) is Outcome.ROLLED_BACK

    def test_rollback_by_its_id_tells_of_a_commit(self, books: Books, ann: Party, account: Key) -> None:
        name = saved(ann, account)
        ann.units.resume(name).commit()
        assert (ann.units.rollback(name), books.balance(account)) == (Outcome.COMMITTED, 90)

    def test_it_is_over_when_its_time_is(self, books: Books, ann: Party, ben: Party, account: Key) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, account, TAKE, TEN)
        name = unit.save(keep_for=100)
        going_on = ben.units.resume(name)
        books.clock.advance(103)
        with pytest.raises(UnitRolledBack):
            ann.units.resume(name)
        with pytest.raises(UnitRolledBack):
            going_on.commit()
        assert books.balance(account) == 100

    def test_a_sweep_ends_it_and_nothing_stays_without_an_end(self, books: Books, ann: Party) -> None:
        unit = ann.begin()
        unit.put(ann.accounts, {**some_account(), "raw": os.urandom(4_000)})
        name = unit.save()
        books.clock.advance(A_DAY_S + 3)
        assert ann.units.sweep().rolled_back >= 1
        books.clock.advance(603)
        ann.units.sweep()
        assert rows(books, name) == ["head"]
        assert "expiresAt" in (books.raw("units", {"unit": name, "row": "head"}) or {})

    def test_a_sweep_does_not_take_it_for_one_that_is_stuck(self, books: Books, ann: Party, account: Key) -> None:
        books.clock.advance(10 * A_DAY_S)
        for _ in range(2):
            ann.units.sweep()
            books.clock.advance(603)
        saved(ann, account)
        books.clock.advance(3_600)
        swept = ann.units.sweep()
        assert (swept.open >= 1, swept.oldest_ms) == (True, 0)

    def test_no_process_is_told_the_outcome_of_one_whose_record_is_gone(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = saved(ann, account)
        unit = ben.units.resume(name)
        books.onlooker.delete_item(TableName=books.tables["units"], Key={"unit": {"S": name}, "row": {"S": "head"}})
        with pytest.raises(UnitForgotten):
            unit.commit()
        with pytest.raises(UnitForgotten):
            ann.units.resume(name)
        assert ann.units.rollback(name) is Outcome.FORGOTTEN


class TestWhatIsKept:
    def test_its_lock_has_to_be_held_still(
        self, books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key
    ) -> None:
        lease = units_world.locks().acquire(some_name())
        names = [saved(ann, account, under=lease) for _ in range(2)]
        ben.units.resume(names[0]).commit()
        assert books.balance(account) == 90
        units_world.take_away(lease)
        key = books.account(100)
        name = saved(ann, key, under=lease)
        with pytest.raises(LockLost):
            ben.units.resume(name).commit()
        assert books.balance(key) == 100

    def test_of_a_name_one_unit_is_committed(self, books: Books, ann: Party, ben: Party, account: Key) -> None:
        name = some_name()
        units = [saved(ann, account, name=name) for _ in range(2)]
        ben.units.resume(units[0]).commit()
        with pytest.raises((UnitRolledBack, UnitConflict)):
            ben.units.resume(units[1]).commit()
        with ann.begin(name=name) as again:
            assert again.repeated
        assert books.balance(account) == 90

    def test_a_name_that_was_given_up_since_is_given_up(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = some_name()
        unit = saved(ann, account, name=name)
        assert ann.units.outcome(name=name) is Outcome.ROLLED_BACK
        with pytest.raises(UnitRolledBack):
            ben.units.resume(unit).commit()
        assert books.balance(account) == 100

    def test_it_keeps_its_age_and_its_isolation(self, ann: Party, ben: Party, account: Key, other: Key) -> None:
        unit = ann.begin(isolation=COMMITTED)
        unit.update(ann.accounts, account, TAKE, TEN)
        name = unit.save()
        resumed = ben.units.resume(name)
        resumed.get(ben.accounts, other)
        ann.changes(other, 7)
        resumed.commit()

    def test_values_of_several_rows_come_back_whole(self, books: Books, ann: Party, ben: Party) -> None:
        keys = [some_account() for _ in range(3)]
        noise = [os.urandom(300_000) for _ in keys]
        unit = ann.begin()
        for key, raw in zip(keys, noise, strict=True):
            unit.put(ann.accounts, {**key, "raw": raw})
        name = unit.save()
        assert len(rows(books, name)) == 4
        ben.units.resume(name).commit()
        assert [bytes((books.item("accounts", key) or {})["raw"]) for key in keys] == noise
        assert rows(books, name) == ["head"]


class TestRefusals:
    @pytest.mark.parametrize("unit", ["nonsense", 7, None, ""])
    def test_of_what_is_no_id(self, ann: Party, unit: Any) -> None:
        for ask in (ann.units.resume, ann.units.rollback):
            with pytest.raises(InvalidUnitRequest, match="unit"):
                ask(unit)

    @pytest.mark.parametrize("keep_for", [0, -1, 367 * 86_400, "long", None])
    def test_of_no_such_time(self, ann: Party, keep_for: Any) -> None:
        unit = ann.begin()
        with pytest.raises(InvalidUnitRequest, match="keep_for"):
            unit.save(keep_for=keep_for)
        unit.commit()

    def test_of_a_unit_that_was_not_saved(self, ann: Party, account: Key) -> None:
        with ann.begin(engine="marked") as unit:
            unit.update(ann.accounts, account, TAKE, TEN)
        with pytest.raises(InvalidUnitRequest, match="not saved"):
            ann.units.resume(unit.id)
        with pytest.raises(UnitForgotten):
            ann.units.resume(ann.begin().id)

    def test_of_another_prefix(self, units_world: UnitsWorld, ann: Party, account: Key) -> None:
        name = saved(ann, account)
        with pytest.raises(InvalidUnitRequest, match="prefix"):
            units_world.party(prefix="_other").units.resume(name)

    def test_a_blind_condition_that_fails_when_it_is_saved_leaves_the_unit_as_it_was(
        self, ann: Party, account: Key
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, account, TAKE, TEN, condition="balance > :n AND attribute_exists(gone)", blind=True)
        with pytest.raises(ConditionFailed):
            unit.save()
        unit.rollback()


@pytest.mark.parametrize("what", [Lost.NOT_SENT, Lost.REQUEST, Lost.REPLY], ids=lambda what: what.value)
def test_any_lost_request_of_saving_resuming_and_committing_is_made_good(
    books: Books, ann: Party, ben: Party, what: Lost
) -> None:
    for party, first in ((ann, 2), (ben, 1)):
        for number in range(first, 7):
            key = books.account(100)
            party.loses(what, number)
            name = saved(ann, key)
            ben.units.resume(name).commit()
            party.line.losses.clear()
            assert books.balance(key) == 90, number


def test_a_save_that_is_not_answered_is_unknown_until_it_is_resumed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    ann.loses(Lost.REPLY, 1, 1_000, "PutItem")
    with pytest.raises(OutcomeUnknown):
        unit.save()
    with pytest.raises(UnitFinished, match="unknown"):
        unit.commit()
    ben.units.resume(unit.id).commit()
    assert books.balance(account) == 90


def test_a_save_that_was_not_sent_leaves_the_unit_open(books: Books, ann: Party, account: Key) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    loss = ann.loses(Lost.NOT_SENT, 1, 1_000, "PutItem")
    with pytest.raises(RequestNotApplied):
        unit.save()
    ann.line.losses.remove(loss)
    unit.commit()
    assert books.balance(account) == 90


def test_resuming_tells_the_outcome_of_a_commit_that_was_not_answered(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = saved(ann, account)
    unit = ann.units.resume(name)
    ann.loses(Lost.REQUEST, 1, 1_000)
    with pytest.raises(OutcomeUnknown, match="resume"):
        unit.commit()
    ann.line.losses.clear()
    again = ben.units.resume(name)
    assert not again.repeated
    again.commit()
    assert books.balance(account) == 90


@THREADS_ONLY
@pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)
@pytest.mark.parametrize("how", [Lost.KILLED_BEFORE, Lost.KILLED_AFTER], ids=["before", "after"])
@pytest.mark.parametrize("engine", ["native", "marked"])
class TestAProcessThatIsKilled:
    """At each of its requests, before the request is sent or before its reply is read."""

    def test_on_its_way_to_save_has_saved_all_of_it_or_nothing(
        self, units_world: UnitsWorld, books: Books, how: Lost, engine: Any
    ) -> None:
        found = []
        for number in range(1, 100):
            ann, ben, key = units_world.party(), units_world.party(), books.account(100)
            ann.loses(how, number)
            unit = ann.begin(engine=engine)
            try:
                unit.update(
                    ann.accounts, key, "SET balance = :n, noise = :noise", {":n": 1, ":noise": os.urandom(4_000)}
                )
                unit.save()
            except Killed:
                try:
                    ben.units.resume(unit.id).commit()
                except UnitForgotten:
                    found.append(False)
                else:
                    found.append(True)
                assert books.balance(key) == (1 if found[-1] else 100), number
            else:
                break
        # It reads the item, writes a row, and then the record.
        assert found == [False, False, how is Lost.KILLED_AFTER]

    def test_on_its_way_to_commit_is_followed_at_once_by_the_process_that_resumes_it(
        self, units_world: UnitsWorld, books: Books, how: Lost, engine: Any
    ) -> None:
        ends = set()
        for number in range(1, 200):
            ann, ben = units_world.party(), units_world.party()
            keys = [books.account(100) for _ in range(3)] + [some_account()]
            with ann.begin(engine=engine) as unit:
                for key in keys:
                    unit.put(ann.accounts, {**key, "balance": 1, "noise": os.urandom(1_500)})
                name = unit.save()
            ann.loses(how, number)
            try:
                ann.units.resume(name).commit()
            except Killed:
                before_ms = books.clock.wall_ms
                again = ben.units.resume(name)
                ends.add(again.repeated)
                again.update(ben.accounts, keys[0], ADD, TEN)
                again.commit()
                # It does not wait for the lease of the coordinator before.
                assert books.clock.wall_ms - before_ms < 5_000, number
                found = ben.units.get_all([(ben.accounts, key) for key in keys])
                assert [item and item["balance"] for item in found] == [1 if again.repeated else 11, 1, 1, 1], number
            else:
                break
        assert ends == {False, True}

    def test_on_its_way_to_commit_is_rolled_back_by_its_id_however_far_it_came(
        self, units_world: UnitsWorld, books: Books, how: Lost, engine: Any
    ) -> None:
        ends = set()
        for number in range(1, 200):
            ann, ben = units_world.party(), units_world.party()
            keys = [books.account(100), books.account(50), some_account()]
            with ann.begin(engine=engine) as unit:
                for key in keys:
                    unit.put(ann.accounts, {**key, "balance": 1, "noise": os.urandom(1_500)})
                name = unit.save()
            ann.loses(how, number)
            try:
                ann.units.resume(name).commit()
            except Killed:
                ends.add(is_committed := ben.units.rollback(name) is Outcome.COMMITTED)
                found = ben.units.get_all([(ben.accounts, key) for key in keys])
                assert [item and item["balance"] for item in found] == ([1] * 3 if is_committed else [100, 50, None])
                # The marked items are free after the lease of the killed coordinator.
                books.clock.advance(63)
                with ben.begin() as after:
                    for key in keys:
                        after.put(ben.accounts, {**key, "balance": 7})
                assert [books.balance(key) for key in keys] == [7] * 3, number
            else:
                break
        assert ends == {False, True}


@THREADS_ONLY
def test_one_that_is_interrupted_in_a_statement_is_as_it_was_saved(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    name = saved(ann, account)
    unit = ann.units.resume(name)
    ann.loses(Lost.INTERRUPTED_AFTER, 1)
    with pytest.raises(Interrupt):
        unit.get(ann.accounts, other)
    ann.line.losses.clear()
    ben.units.resume(name).commit()
    assert books.balance(account) == 90
