"""Units that are saved under an owner, such as an execution: its end rolls them back, and refuses late saves."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count, takewhile
from typing import Any

import pytest
from kit.engines import engine_names, first_on
from kit.units import THREADS_ONLY, Books, Key, Lost, Party, some_name

from ticketlock.errors import InvalidUnitRequest, OutcomeUnknown, TableError, UnitChanged, UnitRolledBack
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import Outcome, Units, create_units_table, unit_owner
from ticketlock.units._records._rows import OWNER_IS_KEPT_S
from ticketlock.wire._item_requests import MOST_TOGETHER

pytestmark = pytest.mark.shows("ended owner", "unit over several states")

MEMORY_FIRST = pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)

TAKE, TEN = "SET balance = balance - :n", {":n": 10}

LONGEST = 1_024
"""The bytes of the longest owner."""

EXECUTION = "arn:aws:states:eu-west-1:123456789012:execution:Booking:one"


@pytest.fixture
def owner() -> str:
    return some_name()


def rows_of(books: Books, owner: str) -> list[dict[str, Any]]:
    return [row for row in books.everything()["units"] if row["unit"] == f"owner#{owner}"]


def test_the_end_of_an_owner_rolls_back_all_that_was_saved_under_it_and_nothing_else(
    books: Books, ann: Party, ben: Party, owner: str
) -> None:
    keys = [books.account(100) for _ in range(5)]
    committed = ann.saves(keys[4], owner)
    ann.units.resume(committed).commit()
    mine = [ann.saves(keys[0], owner), ben.saves(keys[1], owner)]
    others = [ann.saves(keys[2], some_name()), ann.saves(keys[3])]
    ends = [sorted(ben.units.end_owner(owner)) for _ in range(3)]
    assert ends == [sorted(mine), [], []]
    for name in mine:
        with pytest.raises(UnitRolledBack, match=owner):
            ann.units.resume(name)
    for name in others:
        ann.units.resume(name).commit()
    assert ann.units.outcome(unit=committed).state is Outcome.COMMITTED
    assert [books.balance(key) for key in keys] == [100, 100, 90, 90, 90]


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_the_end_of_an_owner_ends_a_unit_that_another_process_has_resumed(
    books: Books, ann: Party, ben: Party, account: Key, owner: str, engine: Any
) -> None:
    unit = ann.units.resume(ann.saves(account, owner, engine=engine))
    assert ben.units.end_owner(owner) == [unit.id]
    with pytest.raises(UnitRolledBack):
        unit.commit()
    assert books.balance(account) == 100


def test_the_end_of_an_owner_that_saved_nothing_is_on_record_for_thirty_days_from_its_last_end(
    books: Books, ann: Party, ben: Party, owner: str
) -> None:
    """Also where the row of an earlier end has expired, and is not deleted yet."""
    assert ann.units.end_owner(owner) == []
    books.clock.advance(OWNER_IS_KEPT_S)
    ben.units.end_owner(owner)
    [row] = rows_of(books, owner)
    assert row["row"] == "ended"
    assert row["expiresAt"] >= books.clock.wall_ms // 1_000 + OWNER_IS_KEPT_S


def test_the_end_of_an_owner_queries_its_own_rows_and_writes_once_for_each_unit(
    ann: Party, account: Key, owner: str
) -> None:
    ann.saves(account, owner)
    sent = ann.sends(lambda: ann.units.end_owner(owner))
    assert [each for each in sent if each != "GetItem"] == ["PutItem", "Query", "UpdateItem"]


def test_the_end_of_an_owner_is_the_end_of_every_unit_however_many_there_are(
    ann: Party, account: Key, owner: str
) -> None:
    names = {ann.saves(account, owner) for _ in range(MOST_TOGETHER + 3)}
    assert set(ann.units.end_owner(owner)) == names


def test_the_end_of_an_owner_reads_every_page_of_its_rows(books: Books, ann: Party, account: Key) -> None:
    owner = some_name().ljust(LONGEST, "o")
    names = {ann.saves(account, owner) for _ in range(4)}
    # A page has up to 1 MB.
    for row in rows_of(books, owner):
        books.write("units", {**row, "padding": "x" * 390_000})
    sent = ann.sends(lambda: ann.units.end_owner(owner))
    assert sent.count("Query") > 1
    assert {ann.units.outcome(unit=name).state for name in names} == {Outcome.ROLLED_BACK}


@pytest.mark.parametrize(("was_saved", "outcome"), [(False, Outcome.FORGOTTEN), (True, Outcome.ROLLED_BACK)])
def test_a_save_after_the_end_of_its_owner_is_refused_and_ends_a_unit_that_was_saved_before(
    ann: Party, ben: Party, account: Key, owner: str, was_saved: bool, outcome: Outcome
) -> None:
    unit = ann.units.resume(ann.saves(account)) if was_saved else ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    ben.units.end_owner(owner)
    with pytest.raises(UnitRolledBack, match=f"its owner '{owner}' has ended"):
        unit.save(owner=owner)
    assert ann.units.outcome(unit=unit.id).state is outcome
    assert ben.units.end_owner(owner) == []


@THREADS_ONLY
@MEMORY_FIRST
@pytest.mark.parametrize(
    ("another", "outcome"),
    [
        ("has resumed it", Outcome.PENDING),
        ("has committed it", Outcome.COMMITTED),
        ("resumes it meanwhile", Outcome.PENDING),
    ],
)
def test_a_save_after_the_end_of_its_owner_does_not_end_a_unit_with_which_another_process_has_gone_on(
    ann: Party, ben: Party, account: Key, owner: str, another: str, outcome: Outcome
) -> None:
    unit = ann.units.resume(ann.saves(account))
    if another == "has resumed it":
        ben.units.resume(unit.id)
    elif another == "has committed it":
        ben.units.resume(unit.id).commit()
    else:
        ann.line.between["UpdateItem"] = lambda: ben.units.resume(unit.id)
    ben.units.end_owner(owner)
    with pytest.raises(UnitChanged):
        unit.save(owner=owner)
    assert ann.units.outcome(unit=unit.id).state is outcome


@pytest.mark.parametrize("next_owner", [None, "another"])
def test_a_save_says_whose_the_unit_is_from_then_on(
    books: Books, ann: Party, ben: Party, account: Key, owner: str, next_owner: str | None
) -> None:
    name = ann.saves(account, owner)

    def shown() -> list[str | None]:
        return [unit.owner for unit in ben.units.open_units() if unit.unit == name]

    assert shown() == [owner]
    ann.units.resume(name).save(owner=next_owner)
    assert shown() == [next_owner]
    assert ben.units.end_owner(owner) == []
    ann.units.resume(name).commit()
    assert books.balance(account) == 90


def test_a_save_keeps_the_row_of_its_owner_as_long_as_the_unit(books: Books, ann: Party, owner: str) -> None:
    for_s, longer_s = 100, 10_000
    name = ann.begin().save(keep_for=for_s, owner=owner)
    [first] = rows_of(books, owner)
    ann.units.resume(name).save(keep_for=longer_s, owner=owner)
    [last] = rows_of(books, owner)
    assert (first["row"], last["row"]) == (name, name)
    assert int(last["expiresAt"] - first["expiresAt"]) == pytest.approx(longer_s - for_s, abs=99)


def test_a_save_costs_one_request_more_than_without_an_owner(ann: Party, owner: str) -> None:
    unit, other = ann.begin(), ann.begin()
    assert ann.sends(lambda: unit.save())[-1:] == ["PutItem"]
    assert ann.sends(lambda: other.save(owner=owner)) == ["PutItem", "TransactWriteItems"]


def test_a_save_that_was_not_answered_is_found_by_the_end_of_its_owner(
    ann: Party, ben: Party, account: Key, owner: str
) -> None:
    ann.loses(Lost.REPLY, 1, 1_000, "TransactWriteItems")
    with pytest.raises(OutcomeUnknown):
        ann.saves(account, owner)
    assert len(ben.units.end_owner(owner)) == 1


@pytest.mark.parametrize("owner", ["", 7.5, "o" * (LONGEST + 1)], ids=["empty", "a fraction", "too long"])
def test_what_can_be_no_owner_is_refused_by_a_save_and_by_an_end(ann: Party, owner: Any) -> None:
    unit = ann.begin()
    for ask in (lambda: unit.save(owner=owner), lambda: ann.units.end_owner(owner)):
        with pytest.raises(InvalidUnitRequest, match="owner"):
            ask()
    unit.commit()


def test_an_end_that_could_not_reach_every_unit_says_so_and_the_next_one_does(
    ann: Party, ben: Party, account: Key, owner: str
) -> None:
    name = ann.saves(account, owner)
    loss = ben.loses(Lost.NOT_SENT, 1, 1_000, "UpdateItem")
    with pytest.raises(TableError):
        ben.units.end_owner(owner)
    ben.line.losses.remove(loss)
    assert ben.units.end_owner(owner) == [name]


@THREADS_ONLY
@MEMORY_FIRST
@pytest.mark.parametrize(("before", "is_refused"), [("PutItem", False), ("Query", True), ("UpdateItem", True)])
def test_a_save_beside_the_end_of_its_owner_is_found_before_the_end_is_on_record_and_refused_afterwards(
    ann: Party, ben: Party, account: Key, owner: str, before: str, is_refused: bool
) -> None:
    # There is a unit to roll back already.
    first, unit = ann.saves(account, owner), ann.begin()

    def saves() -> None:
        with pytest.raises(UnitRolledBack) if is_refused else nullcontext():
            unit.save(owner=owner)

    ben.line.between[before] = saves
    assert set(ben.units.end_owner(owner)) == ({first} if is_refused else {first, unit.id})
    assert not ben.line.between
    assert ann.units.outcome(unit=unit.id).state is (Outcome.FORGOTTEN if is_refused else Outcome.ROLLED_BACK)


def test_an_execution_is_another_owner_after_each_redrive(books: Books, ann: Party, account: Key, owner: str) -> None:
    execution = EXECUTION + owner
    before = ann.saves(account, unit_owner(execution, 0))
    assert ann.units.end_owner(unit_owner(execution, 0)) == [before]
    after = ann.saves(account, unit_owner(execution, 1))
    # The event of the first end comes once more.
    assert ann.units.end_owner(unit_owner(execution, 0)) == []
    ann.units.resume(after).commit()
    assert books.balance(account) == 90


def test_an_owner_of_an_execution_is_made_of_its_arn_and_a_number() -> None:
    assert unit_owner(EXECUTION, 1) == f'["{EXECUTION}",1]'


@pytest.mark.parametrize(
    ("execution", "redrives", "field"),
    [("one", 0, "execution"), (7, 0, "execution"), (EXECUTION, -1, "redrives"), (EXECUTION, True, "redrives")],
)
def test_what_makes_no_owner_of_an_execution_is_named(execution: Any, redrives: Any, field: str) -> None:
    with pytest.raises(InvalidUnitRequest, match=field):
        unit_owner(execution, redrives)


def head_first(_left: int) -> int:
    return 0


def head_last(left: int) -> int:
    return left - 1


def saved_while_its_owner_ends(after: int, order: Callable[[int], int], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What becomes of a unit whose owner ends after the n-th step of its save; None if the save has fewer steps."""
    clock = ManualClock()
    memory = MemoryDynamoDB(lock_table=None, clock=clock)
    memory.comes_next = order
    create_units_table("units", client=memory.client)
    ann = Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)
    unit, has_ended = ann.begin(), False

    def save_step_by_step(**parameters: Any) -> Any:
        nonlocal has_ended
        monkeypatch.undo()
        save = memory.in_steps("transact_write_items", **parameters)

        def sleeps(seconds: float) -> None:
            clock.sleep(seconds)
            # A wait is for an item that the save has reserved.
            if seconds > 0:
                save.step()

        has_ended = all(save.step() for _ in range(after))
        if has_ended:
            Units("units", client=memory.client, clocks=clock, sleep=sleeps).end_owner("job")
        return save.finish()

    monkeypatch.setattr(memory, "transact_write_items", save_step_by_step)
    try:
        assert unit.save(owner="job") == unit.id
    except UnitRolledBack:
        assert ann.outcome(unit=unit.id).state is Outcome.FORGOTTEN
        return "refused"
    if not has_ended:
        return None
    with pytest.raises(UnitRolledBack):
        ann.resume(unit.id)
    assert ann.outcome(unit=unit.id).state is Outcome.ROLLED_BACK
    return "found"


@pytest.mark.parametrize("order", [head_first, head_last])
def test_a_save_that_is_half_applied_is_found_or_refused(
    order: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = list(takewhile(bool, (saved_while_its_owner_ends(after, order, monkeypatch) for after in count(1))))
    # Both of its items are reserved, and then changed.
    assert len(ends) >= 4
    assert set(ends) == {"found", "refused"}
