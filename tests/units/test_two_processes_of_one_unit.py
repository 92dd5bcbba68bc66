"""Two processes go on with one saved unit: the last one counts, and the other one gets ``UnitChanged``."""

from typing import Any

import pytest
from kit.units import THREADS_ONLY, Books, Key, Party, UnitsWorld, some_account, some_name

from ticketlock.errors import UnitChanged
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, Isolation

pytestmark = pytest.mark.shows("saved units")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}


class TestTwoProcessesThatGoOnWithOneUnit:
    @pytest.mark.parametrize("engine", ["native", "marked"])
    def test_the_last_one_counts(self, books: Books, ann: Party, ben: Party, account: Key, engine: Any) -> None:
        name = ann.saves(account, engine=engine)
        first, second = ann.units.resume(name), ben.units.resume(name)
        first.update(ann.accounts, account, TAKE, {":n": 50})
        with pytest.raises(UnitChanged):
            first.commit()
        second.commit()
        assert books.balance(account) == 90

    def test_the_other_one_can_neither_save_it_nor_roll_it_back(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = ann.saves(account)
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
        name = ann.saves(account, engine=engine)
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
        name = ann.saves(account)
        for party in (ben, ann, ben):
            unit = party.units.resume(name)
            unit.update(party.accounts, account, TAKE, TEN)
            assert unit.save() == name
        ann.units.resume(name).commit()
        assert books.balance(account) == 60


@THREADS_ONLY
class TestOneThatIsOvertakenIsToldSoWhateverRefusesIt:
    """An error that says "run it again" would be wrong: the other process may have committed the unit."""

    @pytest.mark.parametrize("refused", ["a mark", "its decision"])
    @pytest.mark.parametrize("and_commits", [True, False], ids=["and commits it", "and goes on"])
    def test_while_it_marks_its_items(
        self, books: Books, ann: Party, ben: Party, account: Key, refused: str, and_commits: bool
    ) -> None:
        name = ann.saves(account, engine="marked")
        late = ann.units.resume(name)
        if refused == "a mark":
            # The mark of a new item is one transaction with a check of the record.
            late.put(ann.accounts, {**some_account(), "balance": 1})
        other = []

        def overtake() -> None:
            other.append(ben.units.resume(name))
            if and_commits:
                other[0].commit()

        ann.line.between["TransactWriteItems"] = overtake
        with pytest.raises(UnitChanged, match=f"{name} since{', and committed it' if and_commits else ';'}"):
            late.commit()
        other[0].commit()
        assert books.balance(account) == 90

    def test_while_it_waits_for_an_older_unit(
        self, books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key
    ) -> None:
        eve = units_world.party()
        older = eve.begin(isolation=READ_LOCK)
        older.get(eve.accounts, account)
        books.clock.advance(1)
        name = ann.saves(account, timeout=0)
        late = ann.units.resume(name)
        # After its commit was refused by the mark it reads that unit's record.
        ann.line.between["GetItem"] = lambda: ben.units.resume(name)
        with pytest.raises(UnitChanged, match=name):
            late.commit()
        assert not ann.line.between
        older.rollback()

    def test_under_a_lock_that_was_released_since(
        self, books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key
    ) -> None:
        lease = units_world.locks().acquire(some_name())
        name = ann.saves(account, under=lease)
        late = ann.units.resume(name)
        ben.units.resume(name).commit()
        units_world.take_away(lease)
        with pytest.raises(UnitChanged, match="committed it"):
            late.commit()
        assert books.balance(account) == 90

    @pytest.mark.parametrize("engine", ["native", "marked"])
    def test_with_a_condition_that_the_other_one_s_commit_has_made_false(
        self, ann: Party, ben: Party, account: Key, other: Key, engine: str
    ) -> None:
        name = ann.saves(account, engine=engine)
        late, second = ann.units.resume(name), ben.units.resume(name)
        for party, unit in ((ann, late), (ben, second)):
            unit.update(party.accounts, other, TAKE, {":n": 50}, condition="balance >= :n", blind=True)
        second.commit()
        with pytest.raises(UnitChanged, match="committed it"):
            late.commit()

    @pytest.mark.parametrize("level", [SERIALIZABLE, COMMITTED], ids=lambda level: level.name)
    def test_and_its_reads_of_items_that_the_other_one_s_commit_has_changed(
        self, ann: Party, ben: Party, account: Key, other: Key, level: Isolation
    ) -> None:
        name = ann.saves(account)
        late = ann.units.resume(name)
        ben.units.resume(name).commit()
        with pytest.raises(UnitChanged, match="committed it"):
            late.get_all([(ann.accounts, account), (ann.accounts, other)], isolation=level)

    def test_and_its_writes_of_items_that_the_other_one_s_commit_has_changed(
        self, ann: Party, ben: Party, account: Key, other: Key
    ) -> None:
        name = ann.saves(account)
        late, second = ann.units.resume(name), ben.units.resume(name)
        late.get(ann.accounts, other, isolation=COMMITTED)
        second.update(ben.accounts, other, TAKE, TEN)
        second.commit()
        with pytest.raises(UnitChanged, match="committed it"):
            late.update(ann.accounts, other, TAKE, TEN)
