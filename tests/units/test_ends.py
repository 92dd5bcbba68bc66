"""How a unit ends: committed, rolled back without a trace, or dropped without an end; and that it is over then."""

import asyncio
import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.awaited import Awaited
from kit.units import Books, Key, Party, in_memory, some_account
from units.conftest import STATEMENTS

from ticketlock import aio
from ticketlock.errors import UnitFinished
from ticketlock.units import READ_LOCK, SERIALIZABLE, Isolation, Unit, Units
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork

pytestmark = pytest.mark.shows("atomicity")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}


@pytest.mark.parametrize("end", ["the end of the block", "commit", "commit in the block"])
def test_a_unit_is_committed_by_the_end_of_its_block_or_by_commit(
    books: Books, ann: Party, account: Key, other: Key, end: str
) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    unit.update(ann.accounts, other, "SET balance = balance + :n", TEN)
    assert books.balances([account, other]) == [100, 50]
    if end == "commit":
        unit.commit()
    else:
        with unit:
            if end == "commit in the block":
                unit.commit()
    assert books.balances([account, other]) == [90, 60]
    assert books.version(account) == books.version(other) == unit.id


@pytest.mark.parametrize("end", ["an exception in the block", "rollback", "rollback in the block"])
def test_a_unit_that_is_rolled_back_writes_nothing_and_its_end_sends_nothing(
    books: Books, ann: Party, account: Key, other: Key, end: str
) -> None:
    before, error = books.everything(), RuntimeError("of the caller's")
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    unit.put(ann.accounts, some_account())
    unit.delete(ann.accounts, other)

    def ends() -> None:
        if end == "rollback":
            unit.rollback()
        elif end == "rollback in the block":
            with unit:
                unit.rollback()
        else:
            with pytest.raises(RuntimeError) as caught, unit:
                raise error
            assert caught.value is error

    assert ann.sends(ends) == []
    assert books.everything() == before


@pytest.mark.parametrize(
    ("end", "other_end", "said"), [("commit", "rollback", "committed"), ("rollback", "commit", "rolled back")]
)
def test_a_unit_that_is_over_refuses_all_statements_and_the_other_end_and_the_same_end_again_sends_nothing(
    books: Books, ann: Party, account: Key, end: str, other_end: str, said: str
) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    getattr(unit, end)()
    before = books.everything()
    for state in STATEMENTS.values():
        with pytest.raises(UnitFinished, match=said):
            state(unit, ann.accounts, account)
    with pytest.raises(UnitFinished, match=said):
        getattr(unit, other_end)()
    assert ann.sends(getattr(unit, end)) == []
    assert books.everything() == before


# Units that are dropped.

KEY, SET = {"id": "a"}, "SET balance = :n"
KINDS = pytest.mark.parametrize("kind", ["threads", "tasks"])


def seen_of_a_dropped(kind: str, isolation: Isolation, seen_of: Callable[[Any], Callable[[], Any]]) -> Any:
    """What is seen, after the last reference to a unit is gone, of a unit that would have written."""
    memory = in_memory()
    if kind == "threads":
        units = Units("units", client=memory.client)
        unit = units.begin(isolation=isolation)
        unit.update(units.table("accounts"), KEY, SET, {":n": 1})
        see = seen_of(unit)
        del unit
        return see()

    async def main() -> Any:
        async with aio.Units("units", client=Awaited(memory)) as units:
            accounts = await units.table("accounts")
            unit = units.begin(isolation=isolation)
            await unit.update(accounts, KEY, SET, {":n": 1})
            see = seen_of(unit)
            del unit
            return see()

    return asyncio.run(main())


def is_renewed(unit: Unit | aio.Unit) -> Callable[[], bool]:
    """Whether a heartbeat renews its read locks; keeps no reference to it."""
    kept = unit._unit_of_work.kept
    assert kept is not None
    assert kept._is_watched_on()
    return kept._is_watched_on


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collector")
@KINDS
def test_read_locks_are_no_longer_renewed_once_the_last_reference_to_their_unit_is_gone(kind: str) -> None:
    assert not seen_of_a_dropped(kind, READ_LOCK, is_renewed)


@pytest.mark.usefixtures("no_garbage_collector")
@KINDS
def test_read_locks_that_refer_to_their_unit_are_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle: the unit would be kept until the garbage collector runs."""
    begin = UnitOfWork.__init__

    def begin_with_a_cycle(unit_of_work: UnitOfWork, *args: Any, **options: Any) -> None:
        begin(unit_of_work, *args, **options)
        if unit_of_work._read_locks is not None:
            unit_of_work._read_locks._read = unit_of_work._read_in

    monkeypatch.setattr(UnitOfWork, "__init__", begin_with_a_cycle)
    assert seen_of_a_dropped(kind, READ_LOCK, is_renewed)


@KINDS
def test_a_unit_that_is_dropped_warns_if_it_would_have_written_and_logs_what_plain_programs_do_not_show(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = r"^the unit \w+ was never ended, and has written nothing: use it in"
    with pytest.warns(ResourceWarning, match=told):
        seen_of_a_dropped(kind, SERIALIZABLE, lambda _: lambda: None)
    assert [record.levelname for record in caplog.records if re.match(told, record.message)] == ["WARNING"]


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("end", ["nothing", "get", "commit", "rollback", "save"])
def test_a_unit_that_is_dropped_is_silent_if_it_has_only_read_or_was_ended(end: str) -> None:
    units = Units("units", client=in_memory().client)
    unit, accounts = units.begin(), units.table("accounts")
    if end != "nothing":
        unit.get(accounts, KEY)
    if end in ("commit", "rollback", "save"):
        unit.update(accounts, KEY, SET, {":n": 1})
        getattr(unit, end)()
    del unit


def test_the_repr_of_a_unit_shows_its_id_and_state_and_that_of_units_their_table() -> None:
    memory = in_memory()
    units, tasks = Units("units", client=memory.client), aio.Units("units", client=Awaited(memory))
    unit = units.begin()
    before = repr(unit)
    unit.rollback()
    assert [before, repr(unit)] == [f"<Unit {unit.id}, open>", f"<Unit {unit.id}, rolled back>"]
    assert repr(tasks) == repr(units) == "<Units in the table 'units'>"
    assert repr(tasks.begin()).endswith(", open>")
