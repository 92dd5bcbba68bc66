"""A saved unit remembers which steps have saved it: a step that is tried again after its save adds nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.crashes import before_the_nth
from kit.engines import engine_names, first_on
from kit.units import THREADS_ONLY, Books, Key, Lost, Party, UnitsWorld, some_name

from ticketlock.errors import InvalidUnitRequest, OutcomeUnknown, UnitChanged, UnitFinished, UnitRolledBack
from ticketlock.units import Outcome
from ticketlock.units._statements._settings import MOST_STEPS

pytestmark = pytest.mark.shows("steps of a saved unit")

MEMORY_FIRST = pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)

TAKE, TEN = "SET balance = balance - :n", {":n": 10}
NEVER = "balance > :n AND attribute_exists(gone)"
LONGEST = 1_024
"""The characters of the longest step."""


def begun(party: Party, **terms: Any) -> str:
    """A unit of which nothing is stated yet, saved."""
    return str(party.begin(**terms).save())


def takes(party: Party, unit: str, key: Key, step: str | None, **keeping: Any) -> Any:
    """A step that takes ten from an account and saves the unit; returns the object."""
    resumed = party.units.resume(unit, step=step)
    resumed.update(party.accounts, key, TAKE, TEN)
    assert resumed.save(**keeping) == unit
    return resumed


def seated(party: Party, key: Key, **terms: Any) -> str:
    """A unit that one step has saved: `seat`, which takes ten from an account."""
    unit = begun(party, **terms)
    takes(party, unit, key, "seat")
    return unit


def record(books: Books, unit: str) -> dict[str, Any]:
    return books.raw("units", {"unit": unit, "row": "head"}) or {}


@pytest.fixture(params=[False, True], ids=["no owner", "an owner"])
def keeping(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How the unit is saved."""
    return {"owner": some_name()} if request.param else {}


def test_a_step_that_has_saved_the_unit_adds_nothing_and_sends_no_write_when_it_is_tried_again(
    books: Books, ann: Party, ben: Party, account: Key, keeping: dict[str, Any]
) -> None:
    unit = begun(ann)
    assert not takes(ann, unit, account, "seat", **keeping).repeated
    before = books.everything()
    sent = ann.sends(lambda: takes(ann, unit, account, "seat", keep_for=7, owner=some_name()))
    assert set(sent) == {"GetItem"}
    assert takes(ben, unit, account, "seat", **keeping).repeated
    assert books.everything() == before
    ben.units.resume(unit, step="pay").commit()
    assert books.balance(account) == 90


def test_a_step_that_is_not_named_adds_once_more_what_it_has_saved(books: Books, ann: Party, account: Key) -> None:
    unit = begun(ann)
    for _ in range(2):
        takes(ann, unit, account, None)
    ann.units.resume(unit).commit()
    assert books.balance(account) == 80


def test_a_step_that_has_saved_the_unit_evaluates_no_condition_and_sees_what_is_saved(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = seated(ann, account)
    takes(ann, unit, other, "room")
    again = ben.units.resume(unit, step="seat")
    assert again.put(ben.accounts, {**account, "balance": 1}) is None
    assert again.update(ben.accounts, account, TAKE, TEN, condition=NEVER) == {}
    assert [(again.get(ben.accounts, key) or {})["balance"] for key in (account, other)] == [90, 40]
    assert again.save() == unit
    with pytest.raises(UnitFinished, match="saved"):
        again.get(ben.accounts, account)


def test_a_step_that_has_saved_the_unit_leaves_the_unit_to_its_present_process_when_it_is_tried_again_late(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = seated(ann, account)
    going_on = ben.units.resume(unit, step="room")
    takes(ann, unit, account, "seat")
    going_on.update(ben.accounts, other, TAKE, TEN)
    going_on.save()
    committing = ben.units.resume(unit, step="pay")
    takes(ann, unit, account, "seat")
    committing.commit()
    assert [books.balance(key) for key in (account, other)] == [90, 40]


def test_a_step_that_has_saved_the_unit_is_remembered_by_all_later_saves(
    books: Books, ann: Party, account: Key
) -> None:
    unit = begun(ann)
    for step in ("seat", "room", None, "seat", "room", "car", "seat"):
        takes(ann, unit, account, step)
    ann.units.resume(unit).commit()
    assert books.balance(account) == 60


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_a_step_that_has_saved_the_unit_is_repeated_also_once_the_unit_is_committed_and_may_end_in_any_way(
    books: Books, ann: Party, account: Key, engine: Any
) -> None:
    unit = seated(ann, account, engine=engine)
    ann.units.resume(unit, step="pay").commit()
    for step in ("seat", "pay", None):
        with ann.units.resume(unit, step=step) as again:
            again.update(ann.accounts, account, TAKE, TEN)
        assert again.repeated
    assert takes(ann, unit, account, "seat").repeated
    assert books.balance(account) == 90


def test_a_step_of_another_unit_is_another_step(books: Books, ann: Party, account: Key) -> None:
    for unit in (begun(ann), begun(ann)):
        takes(ann, unit, account, "seat")
        ann.units.resume(unit).commit()
    assert books.balance(account) == 80


def test_a_step_that_has_not_saved_the_unit_is_done_once_by_the_last_of_two_tries_at_once_that_has_resumed_it(
    books: Books, ann: Party, ben: Party, account: Key, keeping: dict[str, Any]
) -> None:
    unit = begun(ann)
    first, second = ann.units.resume(unit, step="seat"), ben.units.resume(unit, step="seat")
    for resumed, party in ((first, ann), (second, ben)):
        resumed.update(party.accounts, account, TAKE, TEN)
    with pytest.raises(UnitChanged):
        first.save(**keeping)
    second.save(**keeping)
    assert takes(ann, unit, account, "seat", **keeping).repeated
    ann.units.resume(unit).commit()
    assert books.balance(account) == 90


@THREADS_ONLY
@MEMORY_FIRST
def test_a_step_that_has_not_saved_the_unit_finds_the_save_of_a_try_that_comes_between_its_look_and_its_claim(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = begun(ann)
    slow = ann.units.resume(unit, step="seat")
    slow.update(ann.accounts, account, TAKE, TEN)
    ben.line.between["UpdateItem"] = slow.save
    assert takes(ben, unit, account, "seat").repeated
    ann.units.resume(unit).commit()
    assert books.balance(account) == 90


@THREADS_ONLY
@MEMORY_FIRST
@pytest.mark.parametrize("goes_on", ["saves it", "commits it", "rolls it back"])
def test_a_step_that_has_not_saved_the_unit_looks_again_if_another_one_goes_on_while_it_reads_what_is_saved(
    ann: Party, ben: Party, account: Key, goes_on: str
) -> None:
    unit = begun(ann)
    resumed = ann.units.resume(unit, step="seat")
    # Too long for the record: they are in rows of their own.
    texts = [some_name() for _ in range(300)]
    resumed.put(ann.accounts, {**account, "texts": texts})
    resumed.save()
    other = ann.units.resume(unit, step="room")
    ends: dict[str, Callable[[], object]] = {
        "saves it": other.save,
        "commits it": other.commit,
        "rolls it back": other.rollback,
    }
    # The second request is for the rows of what was saved when the first one was answered.
    before_the_nth(ben, 2, ends[goes_on], "GetItem")
    if goes_on == "rolls it back":
        with pytest.raises(UnitRolledBack):
            ben.units.resume(unit, step="seat")
        return
    again = ben.units.resume(unit, step="seat")
    assert again.repeated
    assert again.get(ben.accounts, account) == {**account, "texts": texts}
    assert len(ben.line.operations) > 3


@THREADS_ONLY
@MEMORY_FIRST
def test_a_step_whose_save_is_not_answered_is_not_said_to_be_unsaved_if_others_save_the_unit_meanwhile(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = begun(ann)
    resumed = ann.units.resume(unit, step="seat")
    resumed.update(ann.accounts, account, TAKE, TEN)
    ann.loses(Lost.REPLY, 1, operation="PutItem")
    before_the_nth(ann, 2, lambda: takes(ben, unit, other, "room"), "PutItem")
    with pytest.raises(OutcomeUnknown, match="resume"):
        resumed.save()
    with pytest.raises(UnitFinished, match="unknown"):
        resumed.save()
    assert takes(ann, unit, account, "seat").repeated
    ann.units.resume(unit).commit()
    assert [books.balance(key) for key in (account, other)] == [90, 40]


@THREADS_ONLY
@MEMORY_FIRST
@pytest.mark.parametrize("steps", [["room"], ["room", "car"]], ids=len)
def test_a_step_whose_save_is_lost_is_said_to_be_unsaved_if_others_save_the_unit_meanwhile(
    ann: Party, ben: Party, account: Key, other: Key, steps: list[str]
) -> None:
    unit = begun(ann)
    resumed = ann.units.resume(unit, step="seat")
    resumed.update(ann.accounts, account, TAKE, TEN)
    ann.loses(Lost.REQUEST, 1, operation="PutItem")
    # The lost request does not count.
    before_the_nth(ann, 1, lambda: [takes(ben, unit, other, step) for step in steps], "PutItem")
    with pytest.raises(UnitChanged):
        resumed.save()
    assert not takes(ann, unit, account, "seat").repeated


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_a_repeated_step_does_not_commit_since_that_would_leave_out_what_it_has_stated(
    books: Books, ann: Party, account: Key, engine: Any
) -> None:
    unit = seated(ann, account, engine=engine)
    again = ann.units.resume(unit, step="seat")
    with pytest.raises(InvalidUnitRequest, match="end with `save"):
        again.commit()
    assert again.save() == unit
    with pytest.raises(InvalidUnitRequest, match="end with `save"), ann.units.resume(unit, step="seat"):
        pass
    assert (ann.units.outcome(unit=unit).state, books.balance(account)) == (Outcome.PENDING, 100)
    ann.units.resume(unit, step="pay").commit()
    assert books.balance(account) == 90


def test_an_error_leaves_a_unit_as_it_was_saved_in_a_repeated_step_and_in_one_that_is_tried_again(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = seated(ann, account)
    for step in ("seat", "pay"):
        failing = ann.units.resume(unit, step=step)
        failing.update(ann.accounts, account, TAKE, TEN)
        with pytest.raises(ZeroDivisionError), failing:
            _ = 1 / 0
    assert not takes(ben, unit, account, "pay").repeated
    ann.units.resume(unit).commit()
    assert books.balance(account) == 80


def test_a_repeated_step_may_roll_the_unit_back_for_all(ann: Party, account: Key) -> None:
    unit = seated(ann, account)
    ann.units.resume(unit, step="seat").rollback()
    with pytest.raises(UnitRolledBack):
        ann.units.resume(unit, step="seat")


def test_a_repeated_step_does_not_roll_the_unit_back_once_another_step_has_gone_on(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = seated(ann, account)
    again, going_on = ann.units.resume(unit, step="seat"), ben.units.resume(unit, step="pay")
    with pytest.raises(UnitChanged):
        again.rollback()
    going_on.commit()
    assert books.balance(account) == 90


def test_the_steps_of_a_unit_are_a_hundred_at_most_and_none_is_forgotten_for_one_more(
    books: Books, ann: Party, account: Key
) -> None:
    unit = begun(ann)
    for number in range(MOST_STEPS):
        assert not takes(ann, unit, account, f"step {number}").repeated
    one_more = ann.units.resume(unit, step="one more")
    one_more.update(ann.accounts, account, TAKE, TEN, blind=True)

    def is_refused() -> None:
        with pytest.raises(InvalidUnitRequest, match=f"{MOST_STEPS} steps"):
            one_more.save()

    assert ann.sends(is_refused) == []
    assert takes(ann, unit, account, "step 0").repeated
    assert takes(ann, unit, account, f"step {MOST_STEPS - 1}").repeated
    takes(ann, unit, account, None)
    last = ann.units.resume(unit, step="the last")
    last.update(ann.accounts, account, TAKE, TEN)
    last.commit()
    assert books.balance(account) == 100 - 10 * (MOST_STEPS + 2)


@pytest.mark.parametrize(
    "step",
    ["", 7.5, b"seat", "s" * (LONGEST + 1), "\ud800"],
    ids=["empty", "fraction", "bytes", "too long", "surrogate"],
)
def test_the_steps_of_a_unit_are_texts_or_whole_numbers(ann: Party, step: Any) -> None:
    unit = begun(ann)
    with pytest.raises(InvalidUnitRequest, match="step"):
        ann.units.resume(unit, step=step)


def test_the_steps_of_a_unit_are_told_apart_by_every_character_and_add_sixteen_bytes_each(
    books: Books, ann: Party, account: Key
) -> None:
    unit = begun(ann)
    assert "steps" not in record(books, unit)
    for step in ("seat", "Seat", "seat ", "s" * LONGEST, "s" * (LONGEST - 1) + "t", "Frühstück"):
        assert not takes(ann, unit, account, step).repeated
    assert [len(bytes(each)) for each in record(books, unit)["steps"]] == [16] * 6
    ann.units.resume(unit).commit()
    assert books.balance(account) == 40


def test_a_name_that_another_unit_has_used_is_told_to_the_next_step(books: Books, ann: Party, account: Key) -> None:
    name = some_name()
    unit = seated(ann, account, name=name)
    ann.begin(name=name).commit()
    assert takes(ann, unit, account, "seat").repeated
    with pytest.raises(UnitRolledBack, match=name):
        ann.units.resume(unit, step="room")
    assert books.balance(account) == 100


def test_the_end_of_its_owner_is_the_end_of_a_unit_with_steps(
    units_world: UnitsWorld, books: Books, ann: Party, account: Key
) -> None:
    owner = some_name()
    unit = begun(ann)
    takes(ann, unit, account, "seat", owner=owner)
    again = units_world.party().units.resume(unit, step="seat")
    assert ann.units.end_owner(owner) == [unit]
    assert again.save() == unit
    with pytest.raises(UnitRolledBack):
        ann.units.resume(unit, step="seat")
    assert books.balance(account) == 100
