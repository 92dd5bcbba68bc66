"""Units that mark what they read: no other unit writes it until they end, in every way in which a unit can end."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key as Key_
from kit.engines import engine_names, first_on
from kit.units import MARK, THREADS_ONLY, Books, Key, Lost, Party, UnitsWorld, make_table, some_account, some_name

from ticketlock.errors import InvalidUnitRequest, UnitConflict, UnitContended, UnitFinished, UnitRolledBack
from ticketlock.testing import ManualClock
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, Outcome, Unit
from ticketlock.units._commit._read_locks import KEYS_TOGETHER
from ticketlock.units._records import _packing
from ticketlock.units._records._packing import Entry, packed

pytestmark = pytest.mark.shows("read locks")

SET = "SET balance = :n"
LEASE_S, COPIES_S, MARGIN_S = 60, 600, 3
ORDER = Key_("pk").eq("order-1")


def locking(party: Party, **terms: Any) -> Unit:
    return party.begin(isolation=READ_LOCK, **terms)


def reading(party: Party, key: Key) -> Unit:
    """A unit that has marked an item, and is older than those that begin afterwards."""
    unit = locking(party)
    unit.get(party.accounts, key)
    party.books.clock.advance(1)
    return unit


def marks(books: Books, *keys: Key) -> list[bool]:
    return [MARK in (books.raw("accounts", key) or {}) for key in keys]


def sweep(party: Party) -> None:
    for _ in range(2):
        party.books.clock.advance(LEASE_S + COPIES_S + MARGIN_S)
        party.units.sweep()


@pytest.fixture
def absent() -> Key:
    return some_account()


def test_what_a_unit_has_read_stays_the_same_until_the_unit_ends(
    books: Books, ann: Party, ben: Party, account: Key, absent: Key
) -> None:
    with locking(ann) as unit:
        assert [unit.get(ann.accounts, account), unit.get(ann.accounts, absent)] == [{**account, "balance": 100}, None]
        books.clock.advance(1)
        for key in (account, absent):
            with pytest.raises(UnitContended), ben.begin(timeout=0) as rival:
                rival.put(ben.accounts, {**key, "balance": 7})
        unit.update(ann.accounts, account, SET, {":n": 1})
        unit.put(ann.accounts, {**absent, "balance": 2})
        assert ben.units.get(ben.accounts, account) == {**account, "balance": 100}
    assert [books.balance(key) for key in (account, absent)] == [1, 2]
    assert marks(books, account, absent) == [False, False]


@pytest.mark.parametrize("end", ["commit", "rollback", "error", "rollback after a change"])
def test_what_a_unit_has_marked_is_free_after_its_end(
    books: Books, ann: Party, ben: Party, account: Key, absent: Key, end: str
) -> None:
    plain = books.plain_account()
    unit = locking(ann)
    unit.get_all([(ann.accounts, key) for key in (account, absent, plain)])
    assert marks(books, account, absent, plain) == [True, True, True]
    if end == "error":
        with pytest.raises(ZeroDivisionError), unit:
            _ = 1 / 0
    elif end == "rollback after a change":
        for key in (account, absent):
            unit.update(ann.accounts, key, SET, {":n": 1})
        unit.rollback()
    else:
        getattr(unit, end)()
    assert marks(books, account, absent, plain) == [False, False, False]
    assert books.raw("accounts", absent) is None
    ben.changes(account, 7)
    assert books.balance(account) == 7


def test_a_unit_reads_what_others_committed_before_it_marked_the_item(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = locking(ann)
    ben.changes(account, 7)
    assert unit.get(ann.accounts, account) == {**account, "balance": 7}
    ben.changes(other, 8)
    unit.update(ann.accounts, other, "SET balance = balance + :n", {":n": 1})
    unit.commit()
    assert [books.balance(key) for key in (account, other)] == [7, 9]


@THREADS_ONLY
def test_what_others_write_between_the_read_and_the_mark_is_read_again(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    ann.line.between["UpdateItem"] = partial(ben.changes, account, 7)
    with locking(ann) as unit:
        assert unit.get(ann.accounts, account) == {**account, "balance": 7}
        unit.update(ann.accounts, account, "SET balance = balance + :n", {":n": 1})
    assert books.balance(account) == 8


@THREADS_ONLY
def test_an_older_unit_removes_the_mark_and_the_younger_is_rolled_back(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    older = ben.begin()
    books.clock.advance(1)
    unit = locking(ann)
    unit.get(ann.accounts, account)
    older.update(ben.accounts, account, SET, {":n": 7})
    older.commit()
    with pytest.raises(UnitRolledBack):
        unit.get(ann.accounts, other)
    with pytest.raises(UnitFinished):
        unit.commit()
    assert books.balance(account) == 7


def test_two_units_that_read_one_item_come_one_after_the_other(ann: Party, ben: Party, account: Key) -> None:
    first = reading(ann, account)
    with pytest.raises(UnitContended):
        locking(ben, timeout=0).get(ben.accounts, account)
    first.update(ann.accounts, account, SET, {":n": 1})
    first.commit()
    with locking(ben) as second:
        assert second.get(ben.accounts, account) == {**account, "balance": 1}


def test_a_unit_that_only_reads_waits_for_a_read_lock_if_it_has_a_name(ann: Party, ben: Party, account: Key) -> None:
    """Its receipt is a write."""
    holder = reading(ann, account)
    with ben.begin(timeout=0) as passes:
        passes.get(ben.accounts, account)
    with pytest.raises(UnitContended), ben.begin(name=some_name(), timeout=0) as waits:
        waits.get(ben.accounts, account)
    holder.rollback()


class Sleep:
    """The sleep of a process, in which an older unit may end."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._older: Unit | None = None
        self._left_s = 0.0

    def ends(self, older: Unit, after_s: float) -> None:
        """Let a unit be committed once the process has slept so long."""
        self._older, self._left_s = older, after_s

    def __call__(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        self._left_s -= seconds
        if self._older is not None and self._left_s <= 0:
            older, self._older = self._older, None
            older.commit()


@pytest.fixture
def sleep(books: Books) -> Sleep:
    return Sleep(books.clock)


@pytest.fixture
def waiter(units_world: UnitsWorld, sleep: Sleep) -> Party:
    return units_world.party(sleep=sleep)


@THREADS_ONLY
def test_the_time_out_of_a_unit_with_read_locks_does_not_count_what_its_caller_does_between_two_waits(
    books: Books, waiter: Party, ben: Party, account: Key, other: Key, sleep: Sleep
) -> None:
    timeout_s, keys = 5, (account, other)
    holders = [reading(ben, key) for key in keys]
    with locking(waiter, timeout=timeout_s) as unit:
        for key, holder in zip(keys, holders, strict=True):
            sleep.ends(holder, after_s=0.1)
            unit.update(waiter.accounts, key, SET, {":n": 1})
            books.clock.advance(timeout_s + 1)
    assert [books.balance(key) for key in keys] == [1, 1]


@THREADS_ONLY
def test_the_time_out_of_a_unit_with_read_locks_does_not_count_the_grace_of_a_younger_one(
    books: Books, waiter: Party, ben: Party, account: Key, other: Key, sleep: Sleep
) -> None:
    oldest = reading(ben, other)
    with locking(waiter, timeout=0.1) as unit:
        books.clock.advance(1)
        reading(ben, account)
        unit.update(waiter.accounts, account, SET, {":n": 1})
        sleep.ends(oldest, after_s=0.01)
        unit.update(waiter.accounts, other, SET, {":n": 1})
    assert [books.balance(key) for key in (account, other)] == [1, 1]


@THREADS_ONLY
def test_the_time_out_of_a_unit_with_read_locks_counts_all_waits_together(
    waiter: Party, ben: Party, account: Key, other: Key, sleep: Sleep
) -> None:
    first, second = reading(ben, account), reading(ben, other)
    unit = locking(waiter, timeout=1)
    # Each of the two waits is within the time-out, and both together are not.
    sleep.ends(first, after_s=0.7)
    unit.get(waiter.accounts, account)
    sleep.ends(second, after_s=0.7)
    with pytest.raises(UnitContended, match=f"^waited 1 s in all for older units, .* {second.id}: "):
        unit.get(waiter.accounts, other)


def test_the_lease_of_read_locks_is_renewed_by_each_statement(books: Books, ann: Party, account: Key) -> None:
    unit = locking(ann)
    for _ in range(4):
        unit.get(ann.accounts, account)
        unit.get(ann.accounts, books.account())
        books.clock.advance(LEASE_S * 3 / 4)
    unit.update(ann.accounts, account, SET, {":n": 1})
    unit.commit()
    assert books.balance(account) == 1


def test_once_the_lease_of_read_locks_is_over_the_unit_gets_an_error_and_never_commits(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = locking(ann)
    unit.update(ann.accounts, account, SET, {":n": 1})
    ann.loses(Lost.NOT_SENT, 1, 1_000)
    books.clock.advance(LEASE_S + MARGIN_S)
    ben.changes(account, 7)
    ann.line.losses.clear()
    with pytest.raises(UnitRolledBack):
        unit.commit()
    assert (books.balance(account), marks(books, account)) == (7, [False])


def test_a_sweep_ends_what_a_killed_unit_with_read_locks_has_marked(
    books: Books, ann: Party, ben: Party, account: Key, absent: Key
) -> None:
    unit = locking(ann)
    unit.get_all([(ann.accounts, account), (ann.accounts, absent)])
    unit.put(ann.accounts, {**some_account(), "balance": 1})
    ann.loses(Lost.NOT_SENT, 1, 100_000)
    sweep(ben)
    assert (marks(books, account), books.raw("accounts", absent)) == ([False], None)
    assert [row["row"] for row in books.everything()["units"] if row["unit"] == unit.id] == ["head"]
    assert ben.units.outcome(unit=unit.id).state is Outcome.ROLLED_BACK


REFUSED: dict[str, tuple[str, Callable[[Party, Key], object]]] = {
    "a read of another unit": ("isolation", lambda ann, key: ann.begin().get(ann.accounts, key, isolation=READ_LOCK)),
    "a read outside of units": ("isolation", lambda ann, key: ann.units.get(ann.accounts, key, isolation=READ_LOCK)),
    "reads outside of units": (
        "isolation",
        lambda ann, key: ann.units.get_all([(ann.accounts, key), (ann.accounts, some_account())], isolation=READ_LOCK),
    ),
    "a query outside of units": ("isolation", lambda ann, _: ann.units.query(ann.lines, ORDER, isolation=READ_LOCK)),
    "a query of its own level": ("isolation", lambda ann, _: locking(ann).query(ann.lines, ORDER)),
    "a serializable query": (
        "isolation",
        lambda ann, _: locking(ann).query(ann.lines, ORDER, isolation=SERIALIZABLE),
    ),
    "a unit of one request": ("engine", lambda ann, _: locking(ann, engine="native")),
}


@pytest.mark.parametrize(("field", "ask"), REFUSED.values(), ids=REFUSED)
def test_read_locks_are_refused_where_they_would_never_end_or_mark_what_is_asked_for(
    books: Books, ann: Party, account: Key, field: str, ask: Callable[[Party, Key], object]
) -> None:
    before = books.everything()
    with pytest.raises(InvalidUnitRequest) as refused:
        ask(ann, account)
    assert refused.value.field == field
    assert ann.line.operations == []
    assert books.everything() == before


def test_a_save_of_a_unit_with_read_locks_is_refused(books: Books, ann: Party, account: Key) -> None:
    unit = locking(ann)
    unit.update(ann.accounts, account, SET, {":n": 1})
    with pytest.raises(InvalidUnitRequest, match="isolation"):
        unit.save()
    unit.commit()
    assert books.balance(account) == 1


def test_a_repeated_unit_writes_nothing_and_marks_nothing_that_it_reads(
    books: Books, ann: Party, account: Key, absent: Key
) -> None:
    name = some_name()
    with locking(ann, name=name) as unit:
        unit.update(ann.accounts, account, SET, {":n": 1})
    before = books.everything()
    with locking(ann, name=name) as again:
        assert again.repeated
        assert again.get(ann.accounts, account) == {**account, "balance": 1}
        assert again.get_all([(ann.accounts, key) for key in (account, absent)]) == [{**account, "balance": 1}, None]
        assert books.everything() == before
    assert books.everything() == before


def test_a_read_below_serializable_marks_nothing_and_a_serializable_read_marks(
    books: Books, ann: Party, account: Key
) -> None:
    with locking(ann) as unit:
        unit.get(ann.accounts, account, isolation=COMMITTED)
        assert marks(books, account) == [False]
        unit.get(ann.accounts, account, isolation=SERIALIZABLE)
        assert marks(books, account) == [True]


def test_a_change_since_a_read_below_serializable_ends_the_unit_and_frees_what_it_has_marked(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = locking(ann)
    unit.get(ann.accounts, other)
    unit.get(ann.accounts, account, isolation=COMMITTED)
    ben.changes(account, 7)
    with pytest.raises(UnitConflict):
        unit.update(ann.accounts, account, SET, {":n": 1})
    assert marks(books, account, other) == [False, False]


@THREADS_ONLY
@pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)
def test_items_that_were_read_before_and_after_the_unit_was_rolled_back_are_not_returned(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    older = reading(ben, other)
    unit = locking(ann)

    def older_takes_both() -> None:
        for key in (account, other):
            older.update(ben.accounts, key, SET, {":n": 7})
        older.commit()

    # When it has marked one item, and asks about the mark in the other one.
    ann.line.between["GetItem"] = older_takes_both
    with pytest.raises(UnitRolledBack):
        unit.get_all([(ann.accounts, account), (ann.accounts, other)])
    assert [books.balance(key) for key in (account, other)] == [7, 7]


@pytest.fixture
def notes(books: Books) -> Iterator[str]:
    """A table whose keys may be as long as any."""
    name = f"notes-{some_name()[-8:]}"
    make_table(books.plain_client, name, {"pk": "S", "sk": "S"})
    yield name
    books.plain_client.delete_table(TableName=name)


@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
@pytest.mark.parametrize(("more", "rows"), [(-1, 1), (0, 1), (1, 2)])
def test_keys_that_do_not_fit_into_one_row_of_the_record_are_in_two(
    books: Books, ann: Party, ben: Party, notes: str, more: int, rows: int
) -> None:
    table, chance = ann.units.table(notes), random.Random(1)

    def text(length: int) -> str:
        # The characters that JSON escapes are longer in a row, and a mixture with others is packed worst.
        controls, escaped = [chr(each) for each in range(32)], ['"', "\\"]
        others = [chr(each) for each in range(35, 128) if chr(each) not in escaped]
        return "".join(map(chance.choice, chance.choices((controls, escaped, others), (66, 4, 30), k=length)))

    keys = [{"pk": text(2_048), "sk": text(1_024)} for _ in range(KEYS_TOGETHER)]
    entries = [Entry(notes, {name: {"S": part} for name, part in key.items()}, "pk", "unmark", {}) for key in keys]
    fit = max(count for count in range(90, KEYS_TOGETHER + 1) if len(packed(entries[:count]).pieces) == 1)
    assert fit + 1 <= KEYS_TOGETHER
    with locking(ann) as unit:
        assert unit.get_all([(table, key) for key in keys[: fit + more]]) == [None] * (fit + more)
        of_keys = [row for row in books.everything()["units"] if row["unit"] == unit.id and row["row"].startswith("k#")]
        assert len(of_keys) == rows
        books.clock.advance(1)
        for key in (keys[0], keys[fit + more - 1]):
            with pytest.raises(UnitContended), ben.begin(timeout=0) as rival:
                rival.put(ben.units.table(notes), key)
    sweep(ann)
    assert books.plain_client.scan(TableName=notes)["Items"] == []


@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
def test_keys_that_do_not_fit_into_two_rows_either_are_in_more(
    books: Books, ann: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_packing, "_TOGETHER_BYTES", 400)
    keys = [{"id": some_name()} for _ in range(20)]
    with locking(ann) as unit:
        assert unit.get_all([(ann.accounts, key) for key in keys]) == [None] * len(keys)
        rows = [row["row"] for row in books.everything()["units"] if row["unit"] == unit.id]
        assert len([row for row in rows if row.startswith("k#")]) > 4
