"""A process commits a saved unit that another process resumes meanwhile: it is told so, whatever refuses its commit.

An error that says "run it again" would be wrong: the other process may have committed the unit.
"""

from typing import Any

import pytest
from kit.units import THREADS_ONLY, Books, Key, Party, UnitsWorld, some_account, some_name

from ticketlock.errors import UnitChanged
from ticketlock.units import READ_LOCK

pytestmark = THREADS_ONLY

TAKE, TEN = "SET balance = balance - :n", {":n": 10}


def saved(party: Party, key: Key, **terms: Any) -> str:
    """A unit that takes ten from an account, and is saved."""
    unit = party.begin(**terms)
    unit.update(party.accounts, key, TAKE, TEN)
    return unit.save()


@pytest.mark.parametrize("refused", ["a mark", "its decision"])
@pytest.mark.parametrize("and_commits", [True, False], ids=["and commits it", "and goes on"])
def test_while_it_marks_its_items(
    books: Books, ann: Party, ben: Party, account: Key, refused: str, and_commits: bool
) -> None:
    name = saved(ann, account, engine="marked")
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
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key
) -> None:
    eve = units_world.party()
    older = eve.begin(isolation=READ_LOCK)
    older.get(eve.accounts, account)
    books.clock.advance(1)
    name = saved(ann, account, timeout=0)
    late = ann.units.resume(name)
    # After its commit was refused by the mark it reads that unit's record.
    ann.line.between["GetItem"] = lambda: ben.units.resume(name)
    with pytest.raises(UnitChanged, match=name):
        late.commit()
    assert not ann.line.between
    older.rollback()


def test_under_a_lock_that_was_released_since(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key
) -> None:
    lease = units_world.locks().acquire(some_name())
    name = saved(ann, account, under=lease)
    late = ann.units.resume(name)
    ben.units.resume(name).commit()
    units_world.take_away(lease)
    with pytest.raises(UnitChanged, match="committed it"):
        late.commit()
    assert books.balance(account) == 90


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_with_a_condition_that_the_other_one_s_commit_has_made_false(
    ann: Party, ben: Party, account: Key, other: Key, engine: str
) -> None:
    name = saved(ann, account, engine=engine)
    late, second = ann.units.resume(name), ben.units.resume(name)
    for party, unit in ((ann, late), (ben, second)):
        unit.update(party.accounts, other, TAKE, {":n": 50}, condition="balance >= :n", blind=True)
    second.commit()
    with pytest.raises(UnitChanged, match="committed it"):
        late.commit()
