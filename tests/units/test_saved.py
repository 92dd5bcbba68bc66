"""Units that one process saves and another one resumes: all is committed once, or nothing; the last one counts."""

import os
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from kit.units import THREADS_ONLY, Books, Key, Party, UnitsWorld, some_account, some_line, some_name

from ticketlock.errors import (
    ConditionFailed,
    InvalidUnitRequest,
    LockLost,
    UnitChanged,
    UnitConflict,
    UnitFinished,
    UnitForgotten,
    UnitRolledBack,
)
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, Outcome, Swept

pytestmark = pytest.mark.shows("saved units")

TAKE, ADD, TEN = "SET balance = balance - :n", "SET balance = balance + :n", {":n": 10}

ENGINES = pytest.mark.parametrize("engine", ["native", "marked"])

DAY_S, COPIES_S, MARGIN_S = 24 * 3_600, 600, 3


def test_another_process_continues_with_what_it_has_read_and_stated(
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
    assert ann.units.outcome(unit=name).state is Outcome.COMMITTED


@ENGINES
def test_a_saved_unit_is_committed_only_while_all_that_it_has_read_is_unchanged(
    books: Books, ann: Party, ben: Party, account: Key, other: Key, engine: Any
) -> None:
    unit, read_below = ann.begin(engine=engine), books.account()
    unit.get(ann.accounts, other)
    unit.get(ann.accounts, read_below, isolation=COMMITTED)
    unit.update(ann.accounts, account, TAKE, TEN)
    name = unit.save()
    for key in (other, read_below):
        ann.changes(key, 7)
    with pytest.raises(UnitConflict):
        # This statement depends on what the lower read has seen.
        ben.units.resume(name).update(ben.accounts, read_below, TAKE, TEN)
    with pytest.raises(UnitConflict), ben.units.resume(name):
        pass
    assert books.balance(account) == 100


@pytest.mark.parametrize("reads", ["get", "check"])
def test_what_a_resumed_unit_has_read_holds_at_its_commit_even_if_it_writes_nothing(
    ann: Party, ben: Party, account: Key, reads: str
) -> None:
    unit = ann.begin()
    if reads == "get":
        unit.get(ann.accounts, account)
    else:
        unit.check(ann.accounts, account, "balance = :n", {":n": 100})
    saved = unit.save()
    ben.changes(account, 0)
    resumed = ben.units.resume(saved)
    with pytest.raises(UnitConflict):
        resumed.commit()


def test_the_object_that_was_saved_is_over_and_its_block_is_no_end_of_the_unit(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        unit.save()
        for use in (partial(unit.get, ann.accounts, account), unit.commit, unit.rollback, unit.save):
            with pytest.raises(UnitFinished, match="saved"):
                use()
    ben.units.resume(unit.id).commit()
    assert books.balance(account) == 90


def test_an_error_in_its_block_leaves_a_resumed_unit_as_it_was_saved(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = ann.saves(account)
    unit = ben.units.resume(name)
    unit.update(ben.accounts, account, TAKE, TEN)
    with pytest.raises(ZeroDivisionError), unit:
        _ = 1 / 0
    assert ann.units.outcome(unit=name).state is Outcome.PENDING
    ann.units.resume(name).commit()
    assert books.balance(account) == 90


@pytest.mark.parametrize("by", ["a process that has resumed it", "its id"])
def test_the_rollback_of_a_saved_unit_ends_it_for_all(
    books: Books, ann: Party, ben: Party, account: Key, by: str
) -> None:
    name = ann.saves(account)
    unit = ben.units.resume(name)
    if by == "its id":
        assert ann.units.rollback(name) is Outcome.ROLLED_BACK
        with pytest.raises(UnitRolledBack):
            unit.commit()
    else:
        unit.rollback()
    with pytest.raises(UnitRolledBack):
        ann.units.resume(name)
    assert ann.units.outcome(unit=name).state is ann.units.rollback(name) is Outcome.ROLLED_BACK
    assert books.balance(account) == 100


def test_a_saved_unit_is_not_rolled_back_once_it_is_committed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = ann.saves(account)
    ann.units.resume(name).commit()
    assert ann.units.rollback(name) is Outcome.COMMITTED
    for end in (ben.units.resume(name).rollback, ben.units.resume(name, step="seat").rollback):
        for _ in range(2):
            with pytest.raises(UnitFinished, match=f"{name} is committed"):
                end()
    again = ben.units.resume(name)
    with pytest.raises(ZeroDivisionError), again:
        _ = 1 / 0
    with pytest.raises(UnitFinished, match=f"{name} is committed"):
        again.get(ben.accounts, account)
    assert books.balance(account) == 90


@pytest.mark.parametrize("is_ended", [True, False], ids=["and another process has seen it", "and none has seen it"])
def test_a_saved_unit_is_over_when_its_time_is(
    books: Books, ann: Party, ben: Party, account: Key, is_ended: bool
) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    keep_for_s = 100
    name = unit.save(keep_for=keep_for_s)
    going_on = ben.units.resume(name)
    books.clock.advance(keep_for_s + MARGIN_S)
    if is_ended:
        with pytest.raises(UnitRolledBack):
            ann.units.resume(name)
    with pytest.raises(UnitRolledBack) if is_ended else nullcontext():
        going_on.commit()
    assert books.balance(account) == (100 if is_ended else 90)


@pytest.mark.parametrize("size", [1, 8_000], ids=["in its record", "in rows of its own"])
@pytest.mark.parametrize("end", ["commit", "rollback", "sweep"])
def test_the_record_of_a_saved_unit_is_kept_for_30_days_without_what_it_has_stated(
    books: Books, ann: Party, ben: Party, end: str, size: int
) -> None:
    unit = ann.begin()
    unit.put(ann.accounts, {**some_account(), "raw": os.urandom(size)})
    name = unit.save()
    if end == "sweep":
        books.clock.advance(DAY_S + MARGIN_S)
    else:
        getattr(ben.units.resume(name), end)()
    for _ in range(2):
        ann.units.sweep()
        books.clock.advance(COPIES_S + MARGIN_S)
    record = books.raw("units", {"unit": name, "row": "head"}) or {}
    kept_s = int(record["expiresAt"]) - int(record["finalMs"]) // 1_000
    assert 30 * DAY_S <= kept_s <= 30 * DAY_S + COPIES_S + 100
    assert books.rows(name).keys() == {"head"}
    assert "writes" not in record


def test_a_sweep_does_not_take_a_saved_unit_for_one_that_is_stuck(books: Books, ann: Party) -> None:
    books.empty()
    ann.saves(books.account())
    books.clock.advance(DAY_S / 2)
    assert ann.units.sweep() == Swept(open=1, oldest_ms=0)


def test_a_saved_unit_whose_record_is_gone_is_forgotten_for_every_process(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = ann.saves(account)
    unit = ben.units.resume(name)
    books.plain_client.delete_item(TableName=books.tables["units"], Key={"unit": {"S": name}, "row": {"S": "head"}})
    with pytest.raises(UnitForgotten):
        unit.commit()
    with pytest.raises(UnitForgotten):
        ann.units.resume(name)
    assert ann.units.rollback(name) is Outcome.FORGOTTEN


@pytest.mark.parametrize(("is_lost", "balance"), [(False, 90), (True, 100)])
def test_a_saved_unit_is_committed_only_while_its_lock_is_held(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key, is_lost: bool, balance: int
) -> None:
    lease = units_world.locks().acquire(some_name())
    name = ann.saves(account, under=lease)
    if is_lost:
        units_world.take_away(lease)
    with pytest.raises(LockLost) if is_lost else nullcontext():
        ben.units.resume(name).commit()
    assert books.balance(account) == balance


def test_a_saved_unit_whose_name_was_given_up_is_not_resumed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    unit = ann.saves(account, name=name)
    assert ann.units.outcome(name=name).state is Outcome.ROLLED_BACK
    with pytest.raises(UnitRolledBack, match=name):
        ben.units.resume(unit)
    assert books.balance(account) == 100


@pytest.mark.parametrize("seen", ["at the resume", "at the commit"])
@ENGINES
@pytest.mark.parametrize("same_item", [True, False], ids=["of one item", "of two items"])
def test_a_unit_whose_name_another_one_has_taken_is_seen_to_be_over(
    books: Books, ann: Party, ben: Party, account: Key, other: Key, seen: str, engine: Any, same_item: bool
) -> None:
    name = some_name()
    unit = ann.saves(account, name=name, engine=engine)
    resumed = ben.units.resume(unit) if seen == "at the commit" else None
    with ann.begin(name=name) as quicker:
        quicker.update(ann.accounts, account if same_item else other, TAKE, TEN)
    with pytest.raises(UnitRolledBack, match=name):
        resumed.commit() if resumed is not None else ben.units.resume(unit)
    assert ann.units.outcome(unit=unit).state is Outcome.ROLLED_BACK
    assert unit not in [each.unit for each in ann.units.open_units()]
    with pytest.raises(UnitRolledBack):
        ben.units.resume(unit)
    assert books.balance(account) == (90 if same_item else 100)


@THREADS_ONLY
def test_a_unit_whose_marks_others_have_rolled_back_is_as_it_was_saved_while_its_name_is_unused(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.saves(account, name=some_name(), engine="marked")
    resumed: Any = ben.units.resume(unit)
    ben.line.between["TransactWriteItems"] = lambda: ann.units.rollback(resumed._unit_of_work.terms.unit)
    with pytest.raises(UnitRolledBack, match="was rolled back"):
        resumed.commit()
    assert ann.units.outcome(unit=unit).state is Outcome.PENDING
    ben.units.resume(unit).commit()
    assert books.balance(account) == 90


def test_the_isolation_of_a_saved_unit_is_that_of_its_begin(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    resumed = ben.units.resume(ann.saves(account, isolation=COMMITTED))
    resumed.get(ben.accounts, other)
    ann.changes(other, 7)
    # At the default level this change would be a conflict.
    resumed.commit()
    assert [books.balance(key) for key in (account, other)] == [90, 7]


@THREADS_ONLY
def test_a_saved_unit_is_older_than_one_that_began_before_its_resume_and_rolls_it_back(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    name = ann.saves(account)
    books.clock.advance(1)
    younger = ben.begin(isolation=READ_LOCK)
    younger.get(ben.accounts, account)
    books.clock.advance(1)
    ann.units.resume(name).commit()
    assert books.balance(account) == 90
    with pytest.raises(UnitRolledBack) as raised:
        younger.get(ben.accounts, other)
    assert raised.value.by is not None


def test_values_of_several_rows_come_back_whole(books: Books, ann: Party, ben: Party) -> None:
    keys = [some_account() for _ in range(3)]
    noise = [os.urandom(300_000) for _ in keys]
    unit = ann.begin()
    for key, raw in zip(keys, noise, strict=True):
        unit.put(ann.accounts, {**key, "raw": raw})
    name = unit.save()
    assert len(books.rows(name)) == 1 + len(keys)
    ben.units.resume(name).commit()
    assert [bytes((books.item("accounts", key) or {})["raw"]) for key in keys] == noise
    assert books.rows(name).keys() == {"head"}


@pytest.mark.parametrize("unit", ["nonsense", 7, None, ""])
def test_a_resume_of_what_is_no_id_or_of_a_unit_that_was_not_saved_is_refused(
    ann: Party, account: Key, unit: Any
) -> None:
    for ask in (ann.units.resume, ann.units.rollback):
        with pytest.raises(InvalidUnitRequest, match="unit"):
            ask(unit)
    with ann.begin(engine="marked") as committed:
        committed.update(ann.accounts, account, TAKE, TEN)
    with pytest.raises(InvalidUnitRequest, match="not saved"):
        ann.units.resume(committed.id)
    with pytest.raises(UnitForgotten):
        ann.units.resume(ann.begin().id)


@pytest.mark.parametrize("keep_for", [0, -1, 367 * DAY_S, "long", None])
def test_a_save_for_no_such_time_is_refused(ann: Party, keep_for: Any) -> None:
    unit = ann.begin()
    with pytest.raises(InvalidUnitRequest, match="keep_for"):
        unit.save(keep_for=keep_for)
    unit.commit()


@pytest.mark.parametrize("knows", ["another prefix", "an unguarded table"])
def test_a_resume_by_a_process_that_cannot_go_on_leaves_the_unit_to_the_one_that_has_it(
    units_world: UnitsWorld, books: Books, account: Key, knows: str
) -> None:
    owner = units_world.party(guarded=True)
    unit = owner.begin()
    unit.update(owner.accounts, account, TAKE, TEN)
    unit.get(owner.lines, some_line())
    going_on = owner.units.resume(unit.save())
    stranger = units_world.party(prefix="_other") if knows == "another prefix" else units_world.party()
    before = books.everything()
    with pytest.raises(InvalidUnitRequest, match="prefix" if knows == "another prefix" else "guarded"):
        stranger.units.resume(unit.id)
    assert books.everything() == before
    going_on.commit()
    assert books.balance(account) == 90


def test_a_blind_condition_that_fails_when_it_is_saved_leaves_the_unit_as_it_was(ann: Party, account: Key) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN, condition="balance > :n AND attribute_exists(gone)", blind=True)
    with pytest.raises(ConditionFailed):
        unit.save()
    unit.rollback()


@ENGINES
@pytest.mark.parametrize("end", ["commit", "save", "rollback"])
def test_of_two_processes_that_go_on_with_one_unit_the_last_one_counts_whatever_the_other_one_does(
    books: Books, ann: Party, ben: Party, account: Key, engine: Any, end: str
) -> None:
    name = ann.saves(account, engine=engine)
    first, second = ann.units.resume(name), ben.units.resume(name)
    first.update(ann.accounts, account, TAKE, {":n": 50})
    with pytest.raises(UnitChanged):
        getattr(first, end)()
    second.commit()
    assert books.balance(account) == 90


@ENGINES
@pytest.mark.parametrize("under", ["no lock", "a lock that was lost since"])
def test_a_process_that_comes_after_the_commit_of_another_one_writes_nothing(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key, engine: Any, under: str
) -> None:
    lease = None if under == "no lock" else units_world.locks().acquire(some_name())
    name = ann.saves(account, engine=engine, under=lease)
    late = ann.units.resume(name)
    ben.units.resume(name).commit()
    if lease is not None:
        units_world.take_away(lease)
    with pytest.raises(UnitChanged, match="committed it"):
        late.commit()
    with ann.units.resume(name) as again:
        assert again.repeated
        again.update(ann.accounts, account, TAKE, TEN)
    assert books.balance(account) == 90


def test_each_process_that_saves_a_unit_hands_it_on_with_what_it_has_added(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = ann.saves(account)
    for party in (ben, ann, ben):
        unit = party.units.resume(name)
        unit.update(party.accounts, account, TAKE, TEN)
        assert unit.save() == name
    ann.units.resume(name).commit()
    assert books.balance(account) == 60


# An error that says "run it again" would be wrong: the other process may have committed the unit.


@THREADS_ONLY
@pytest.mark.parametrize("refused", ["a mark", "its decision"])
@pytest.mark.parametrize("and_commits", [True, False], ids=["and commits it", "and goes on"])
def test_a_process_that_is_overtaken_is_told_so_while_it_marks_its_items(
    books: Books, ann: Party, ben: Party, account: Key, refused: str, and_commits: bool
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


@THREADS_ONLY
def test_a_process_that_is_overtaken_is_told_so_while_it_waits_for_an_older_unit(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, account: Key
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


@THREADS_ONLY
@ENGINES
def test_a_process_that_is_overtaken_is_told_so_with_a_condition_that_the_other_one_s_commit_has_made_false(
    ann: Party, ben: Party, account: Key, other: Key, engine: str
) -> None:
    name = ann.saves(account, engine=engine)
    late, second = ann.units.resume(name), ben.units.resume(name)
    for party, unit in ((ann, late), (ben, second)):
        unit.update(party.accounts, other, TAKE, {":n": 50}, condition="balance >= :n", blind=True)
    second.commit()
    with pytest.raises(UnitChanged, match="committed it"):
        late.commit()


@THREADS_ONLY
@pytest.mark.parametrize("does", ["reads it", "reads it below serializable", "writes it"])
def test_a_process_that_is_overtaken_is_told_so_by_an_item_that_the_other_one_has_changed_when_it(
    ann: Party, ben: Party, account: Key, other: Key, does: str
) -> None:
    name = ann.saves(account)
    late, second = ann.units.resume(name), ben.units.resume(name)
    late.get(ann.accounts, other, isolation=COMMITTED)
    second.update(ben.accounts, other, TAKE, TEN)
    second.commit()
    level = SERIALIZABLE if does == "reads it" else COMMITTED
    reads = partial(late.get_all, [(ann.accounts, account), (ann.accounts, other)], isolation=level)
    writes = partial(late.update, ann.accounts, other, TAKE, TEN)
    with pytest.raises(UnitChanged, match="committed it"):
        writes() if does == "writes it" else reads()
