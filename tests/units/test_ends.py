"""How a unit ends: committed, rolled back without a trace, or dropped without an end; and that it is over then."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.awaited import Awaited
from kit.units import KEYS, Books, Key, Party, make_table, some_account

from ticketlock import aio
from ticketlock.errors import UnitConflict, UnitFinished
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import READ_LOCK, Unit, Units, UnitTable, create_units_table
from ticketlock.units._read_locks import ReadLockLease
from ticketlock.units._unit_of_work import UnitOfWork

pytestmark = pytest.mark.shows("atomicity")

TAKE = "SET balance = balance - :n"

TEN = {":n": 10}


def test_the_end_of_the_block_commits(books: Books, ann: Party, account: Key, other: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        unit.update(ann.accounts, other, "SET balance = balance + :n", TEN)
    assert (books.balance(account), books.balance(other)) == (90, 60)
    assert books.version(account) == books.version(other) == unit.id


def test_a_unit_without_a_block_is_committed_by_commit(books: Books, ann: Party, account: Key) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    assert books.balance(account) == 100
    unit.commit()
    assert books.balance(account) == 90


def test_an_exception_in_the_block_rolls_back_and_is_raised(books: Books, ann: Party, account: Key) -> None:
    before = books.everything()
    raised = RuntimeError("of the caller's")

    def fail_in_the_block() -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, TAKE, TEN)
            raise raised

    with pytest.raises(RuntimeError) as caught:
        fail_in_the_block()
    assert caught.value is raised
    assert books.everything() == before
    assert "TransactWriteItems" not in ann.line.operations


def test_a_rollback_writes_nothing_and_asks_nothing(books: Books, ann: Party, account: Key) -> None:
    before = books.everything()
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    unit.put(ann.accounts, some_account())
    unit.delete(ann.accounts, account)
    assert ann.sends(unit.rollback) == []
    assert books.everything() == before


def test_a_block_may_roll_back_by_itself(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        unit.rollback()
    assert books.balance(account) == 100


def test_a_second_commit_does_nothing(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        unit.commit()
        assert ann.sends(unit.commit) == []
    assert books.balance(account) == 90


def test_a_block_ends_silently_whose_commit_by_hand_has_failed_and_said_so(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        ben.changes(account, 1)
        with pytest.raises(UnitConflict):
            unit.commit()
    assert books.balance(account) == 1


def test_a_second_rollback_does_nothing(ann: Party) -> None:
    unit = ann.begin()
    unit.rollback()
    assert ann.sends(unit.rollback) == []


USES: dict[str, Callable[[Party, Unit, Key], object]] = {
    "get": lambda ann, unit, key: unit.get(ann.accounts, key),
    "get_all": lambda ann, unit, key: unit.get_all([(ann.accounts, key)]),
    "put": lambda ann, unit, key: unit.put(ann.accounts, key),
    "update": lambda ann, unit, key: unit.update(ann.accounts, key, TAKE, TEN),
    "a blind update": lambda ann, unit, key: unit.update(ann.accounts, key, TAKE, TEN, blind=True),
    "delete": lambda ann, unit, key: unit.delete(ann.accounts, key),
    "check": lambda ann, unit, key: unit.check(ann.accounts, key, "attribute_exists(id)"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_committed_unit_is_finished(ann: Party, account: Key, use: Callable[[Party, Unit, Key], object]) -> None:
    with ann.begin() as unit:
        pass
    with pytest.raises(UnitFinished, match="committed"):
        use(ann, unit, account)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_unit_that_was_rolled_back_is_finished(
    ann: Party, account: Key, use: Callable[[Party, Unit, Key], object]
) -> None:
    unit = ann.begin()
    unit.rollback()
    with pytest.raises(UnitFinished, match="rolled back"):
        use(ann, unit, account)
    with pytest.raises(UnitFinished):
        unit.commit()


def test_a_committed_unit_is_not_rolled_back(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
    with pytest.raises(UnitFinished):
        unit.rollback()
    assert books.balance(account) == 90


KEY = {"id": "a"}

SET = "SET balance = :n"


@pytest.fixture
def memory() -> MemoryDynamoDB:
    memory = MemoryDynamoDB()
    create_units_table("units", client=memory.client)
    make_table(memory.client, "accounts", KEYS["accounts"])
    return memory


@pytest.fixture
def units(memory: MemoryDynamoDB) -> Units:
    return Units("units", client=memory.client)


@pytest.fixture
def accounts(units: Units) -> UnitTable:
    return units.table("accounts")


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def kept_by(unit: Unit | aio.Unit) -> ReadLockLease:
    kept = unit._unit_of_work.kept
    assert kept is not None
    assert kept._is_watched_on()
    return kept


def in_a_thread(memory: MemoryDynamoDB) -> bool:
    """Whether a unit's read locks are renewed after the last reference to it."""
    units = Units("units", client=memory.client)
    unit = units.begin(isolation=READ_LOCK)
    unit.update(units.table("accounts"), KEY, SET, {":n": 1})
    kept = kept_by(unit)
    del unit
    return kept._is_watched_on()


def in_a_task(memory: MemoryDynamoDB) -> bool:
    """The same."""

    async def main() -> bool:
        async with aio.Units("units", client=Awaited(memory)) as units:
            accounts = await units.table("accounts")
            unit = units.begin(isolation=READ_LOCK)
            await unit.update(accounts, KEY, SET, {":n": 1})
            kept = kept_by(unit)
            del unit
            return kept._is_watched_on()

    return asyncio.run(main())


@pytest.mark.usefixtures("no_garbage_collector")
@pytest.mark.parametrize("is_renewed", [in_a_thread, in_a_task], ids=lambda each: each.__name__)
def test_read_locks_are_renewed_no_more_at_once_after_the_last_reference(
    memory: MemoryDynamoDB, is_renewed: Callable[[MemoryDynamoDB], bool]
) -> None:
    assert not is_renewed(memory)


@pytest.mark.usefixtures("no_garbage_collector")
@pytest.mark.parametrize("is_renewed", [in_a_thread, in_a_task], ids=lambda each: each.__name__)
def test_read_locks_that_refer_to_their_unit_are_caught(
    memory: MemoryDynamoDB, is_renewed: Callable[[MemoryDynamoDB], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle: the unit would be kept until the garbage collector runs."""
    begin = UnitOfWork.__init__

    def begin_with_a_cycle(unit_of_work: UnitOfWork, *args: Any, **options: Any) -> None:
        begin(unit_of_work, *args, **options)
        if unit_of_work._read_locks is not None:
            unit_of_work._read_locks._read = unit_of_work._read_in

    monkeypatch.setattr(UnitOfWork, "__init__", begin_with_a_cycle)
    assert is_renewed(memory)


def test_a_unit_that_is_dropped_warns_if_it_would_have_written(units: Units, accounts: UnitTable) -> None:
    unit = units.begin()
    unit.update(accounts, KEY, SET, {":n": 1})
    with pytest.warns(ResourceWarning, match=r"^the unit \w+ was never ended, and has written nothing: use it in"):
        del unit


def test_a_unit_that_is_dropped_warns_of_a_task_as_well(memory: MemoryDynamoDB) -> None:
    async def main() -> None:
        async with aio.Units("units", client=Awaited(memory)) as units:
            unit = units.begin()
            await unit.update(await units.table("accounts"), KEY, SET, {":n": 1}, blind=True)
            with pytest.warns(ResourceWarning, match="never ended"):
                del unit

    asyncio.run(main())


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("end", ["nothing", "get", "commit", "rollback", "save"])
def test_a_unit_that_is_dropped_is_silent_if_it_has_only_read_or_was_ended(
    units: Units, accounts: UnitTable, end: str
) -> None:
    unit = units.begin()
    if end != "nothing":
        unit.get(accounts, KEY)
    if end in ("commit", "rollback", "save"):
        unit.update(accounts, KEY, SET, {":n": 1})
        getattr(unit, end)()
    del unit


def test_units_show_what_they_are(memory: MemoryDynamoDB, units: Units) -> None:
    unit = units.begin()
    before = repr(unit)
    unit.rollback()
    assert [repr(units), before, repr(unit)] == [
        "<Units in the table 'units'>",
        f"<Unit {unit.id}, open>",
        f"<Unit {unit.id}, rolled back>",
    ]
    tasks = aio.Units("units", client=Awaited(memory))
    assert repr(tasks) == "<Units in the table 'units'>"
    assert repr(tasks.begin()).endswith(", open>")
