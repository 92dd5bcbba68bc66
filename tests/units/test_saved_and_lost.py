"""Lost requests of a process that saves a unit, or resumes it: nothing is written twice or half."""

import os

import pytest
from kit.units import THREADS_ONLY, Books, Interrupt, Key, Lost, Party, some_account

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, UnitFinished

TAKE, TEN = "SET balance = balance - :n", {":n": 10}


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


def test_a_save_after_one_that_failed_half_way_has_what_was_stated_in_between(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.begin()
    unit.put(ann.accounts, {**some_account(), "raw": os.urandom(4_000)})
    # Its row is written, and the record that names it is not.
    loss = ann.loses(Lost.NOT_SENT, 2, 1_000, "PutItem")
    with pytest.raises(RequestNotApplied):
        unit.save()
    ann.line.losses.remove(loss)
    unit.update(ann.accounts, account, TAKE, TEN)
    ben.units.resume(unit.save()).commit()
    assert books.balance(account) == 90


def test_resuming_shows_the_outcome_of_a_commit_that_was_not_answered(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = ann.saves(account)
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
def test_one_that_is_interrupted_in_a_statement_is_as_it_was_saved(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    name = ann.saves(account)
    unit = ann.units.resume(name)
    ann.loses(Lost.INTERRUPTED_AFTER, 1)
    with pytest.raises(Interrupt):
        unit.get(ann.accounts, other)
    ann.line.losses.clear()
    ben.units.resume(name).commit()
    assert books.balance(account) == 90
