"""Guarded tables: a unit that has queried a partition detects inserts of other units."""

import uuid
from contextlib import suppress
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from kit.crashes import crashes
from kit.engines import engine_names, first_on
from kit.units import (
    KEYS,
    MARK,
    THREADS_ONLY,
    VERSION,
    Books,
    Killed,
    Party,
    UnitsWorld,
    index,
    make_table,
    new_version,
    some_line,
)
from units.conftest import COPIES_S, LEASE_S, MARGIN_S

from ticketlock.errors import ConditionFailed, InvalidUnitRequest, UnitConflict
from ticketlock.units import COMMITTED, READ_LOCK, SERIALIZABLE, UNCOMMITTED, Swept, Unit
from ticketlock.units._statements._work import SLOTS, guard_key

pytestmark = pytest.mark.shows("strict serialisability", "no phantoms")

SET = "SET amount = :n"
ENGINES = pytest.mark.parametrize("engine", [None, "marked"], ids=["the unit's choice", "by marks"])


@pytest.fixture
def ann(units_world: UnitsWorld) -> Party:
    return units_world.party(guarded=True)


@pytest.fixture
def ben(units_world: UnitsWorld) -> Party:
    return units_world.party(guarded=True)


@pytest.fixture
def order(books: Books) -> str:
    """Two lines, 1 and 2."""
    order = str(some_line()["pk"])
    for number in (1, 2):
        books.write("lines", {**line(order, number), VERSION: new_version()})
    return order


def line(order: str, number: int, amount: int = 10) -> dict[str, Any]:
    return {"pk": order, "sk": number, "amount": amount}


def key(order: str, number: int) -> dict[str, Any]:
    return {"pk": order, "sk": number}


def of(order: str) -> Any:
    return Key("pk").eq(order)


def inserts(party: Party, order: str, number: int) -> None:
    with party.begin() as unit:
        unit.put(party.lines, line(order, number))


def guard(books: Books, order: str) -> dict[str, Any] | None:
    """The guard of an order, as stored."""
    found = guard_key(books.tables["lines"], {"S": order})
    return books.raw("units", {name: value["S"] for name, value in found.items()})


@pytest.mark.parametrize("prefix", ["units", "rows", "formats", "U"])
def test_a_prefix_that_only_begins_like_an_attribute_of_guards_or_differs_in_case_may_be_chosen(
    units_world: UnitsWorld, order: str, prefix: str
) -> None:
    ann, ben = (units_world.party(guarded=True, prefix=prefix) for _ in range(2))
    unit = ann.begin()
    unit.query(ann.lines, of(order))
    unit.put(ann.lines, line(order, 4))
    inserts(ben, order, 3)
    with pytest.raises(UnitConflict):
        unit.commit()


@ENGINES
@pytest.mark.parametrize("how", ["put", "update", "read lock"])
@pytest.mark.parametrize("is_empty", [False, True], ids=["of two items", "that is empty"])
def test_an_insert_conflicts_with_a_unit_that_has_queried_its_partition(
    books: Books, ann: Party, ben: Party, order: str, engine: Any, how: str, is_empty: bool
) -> None:
    account, order = books.account(), str(some_line()["pk"]) if is_empty else order
    unit = ann.begin(engine=engine)
    limit = 1 if how == "update" else None
    assert len(unit.query(ann.lines, of(order), limit=limit)) == (0 if is_empty else limit or 2)
    unit.put(ann.lines, line(order, 4))
    unit.update(ann.accounts, account, "SET balance = :n", {":n": 0})
    with ben.begin(isolation=READ_LOCK if how == "read lock" else SERIALIZABLE) as other:
        if how == "update":
            other.update(ben.lines, key(order, 3), SET, {":n": 1}, blind=True)
        else:
            other.put(ben.lines, line(order, 3))
    with pytest.raises(UnitConflict, match=f"another unit inserted into a partition of {ann.lines.name} that"):
        unit.commit()
    assert books.balance(account) == 100
    assert MARK not in (guard(books, order) or {MARK: "no guard"})


@ENGINES
@pytest.mark.parametrize("queried", ["another partition", "at a lower level", "nothing"])
def test_an_insert_conflicts_with_no_query_of_another_partition_or_a_lower_level_and_with_no_insert(
    books: Books, ann: Party, ben: Party, order: str, engine: Any, queried: str
) -> None:
    with ann.begin(engine=engine) as unit:
        if queried != "nothing":
            level = COMMITTED if queried == "at a lower level" else None
            unit.query(ann.lines, of(order), isolation=level)
        unit.put(ann.lines, line(order, 3))
        inserts(ben, another_slot(books, order) if queried == "another partition" else order, 4)
    assert books.raw("lines", key(order, 3)) is not None


def reads_unseen(party: Party, unit: Unit, order: str, how: str) -> None:
    """Lets a unit read the line 3 without showing it to its caller."""
    if how == "prefetch":
        unit.prefetch([(party.lines, key(order, 3))])
    else:
        # The first condition that does not hold is the last one that is evaluated.
        with pytest.raises(ConditionFailed):
            unit.put_all(party.lines, [line(order, 1), line(order, 3)], condition="attribute_not_exists(pk)")


UNSEEN = pytest.mark.parametrize("how", ["prefetch", "put_all"])


@UNSEEN
@pytest.mark.parametrize("by", ["a put", "marks", "marks that are left"])
def test_an_insert_of_what_was_read_as_absent_and_not_shown_conflicts_with_the_query_that_follows(
    ann: Party, ben: Party, order: str, how: str, by: str
) -> None:
    unit = ann.begin()
    reads_unseen(ann, unit, order, how)
    if by == "marks that are left":
        crashes(ben, 2, is_sent=True)
        with pytest.raises(Killed):
            inserts(ben, order, 3)
    else:
        with ben.begin(engine="marked" if by == "marks" else None) as other:
            other.put(ben.lines, line(order, 3))
    with pytest.raises(UnitConflict) as conflict:
        unit.query(ann.lines, of(order))
    assert list(conflict.value.keys) == [(ann.lines.name, key(order, 3))]
    with ann.begin() as unit:
        assert len(unit.query(ann.lines, of(order))) == 3


@UNSEEN
def test_of_two_units_that_insert_where_the_other_has_found_nothing_one_is_committed(
    books: Books, ann: Party, ben: Party, order: str, how: str
) -> None:
    """Each adds a third line, if there is none in the other order. Both at once would be write skew."""
    other = str(some_line()["pk"])
    inserts(ann, other, 1)
    inserts(ann, other, 2)
    first, second = ann.begin(), ben.begin()
    reads_unseen(ann, first, order, how)
    for party, unit, looks_at, adds_to in ((ben, second, other, order), (ann, first, order, other)):
        with suppress(UnitConflict), unit:
            if len(unit.query(party.lines, of(looks_at))) == 2:
                unit.put(party.lines, line(adds_to, 3))
    assert [books.raw("lines", key(each, 3)) is not None for each in (order, other)] == [True, False]


@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "not guarded"])
@pytest.mark.parametrize("then", ["changed", "deleted", "deleted and made again"])
def test_a_line_that_was_read_and_not_shown_is_checked_by_the_query_that_shows_it(
    units_world: UnitsWorld, order: str, is_guarded: bool, then: str
) -> None:
    ann, ben = units_world.party(guarded=is_guarded), units_world.party(guarded=is_guarded)
    unit = ann.begin()
    unit.prefetch([(ann.lines, key(order, 2))])
    for what in then.split(" and "):
        with ben.begin() as other:
            if what == "deleted":
                other.delete(ben.lines, key(order, 2))
            else:
                other.put(ben.lines, line(order, 2, amount=20))

    def commits() -> None:
        with unit:
            unit.query(ann.lines, of(order))
            unit.put(ann.lines, line(order, 4))

    with pytest.raises(UnitConflict):
        commits()


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED], ids=repr)
def test_below_serializable_a_query_shows_what_others_have_committed_since_a_prefetch(
    ann: Party, ben: Party, order: str, level: Any
) -> None:
    with ann.begin() as unit:
        unit.prefetch([(ann.lines, key(order, number)) for number in (2, 3)])
        with ben.begin() as other:
            other.put(ben.lines, line(order, 2, amount=20))
            other.put(ben.lines, line(order, 3))
        shown = unit.query(ann.lines, of(order), isolation=level)
        assert [item["amount"] for item in shown] == [10, 20, 10]


@ENGINES
def test_units_that_query_and_insert_one_after_the_other_do_not_conflict(
    ann: Party, ben: Party, order: str, engine: Any
) -> None:
    for number in (3, 4, 5):
        with ann.begin(engine=engine) as unit:
            assert len(unit.query(ann.lines, of(order))) == number - 1
            unit.put(ann.lines, line(order, number))
    inserts(ben, order, 6)
    assert len(ann.units.query(ann.lines, of(order), isolation=SERIALIZABLE)) == 6


def another_slot(books: Books, order: str) -> str:
    """A partition with another guard."""
    name = books.tables["lines"]
    found = (str(some_line()["pk"]) for _ in range(10))
    return next(other for other in found if guard_key(name, {"S": other}) != guard_key(name, {"S": order}))


@pytest.fixture
def unaware(units_world: UnitsWorld) -> Party:
    """A process that knows no table yet: it need not know which ones are guarded."""
    party = units_world.party()
    party.units._tables._known.clear()
    return party


@THREADS_ONLY
def test_a_saved_unit_conflicts_with_an_insert_where_it_has_queried(
    books: Books, ann: Party, ben: Party, unaware: Party, order: str
) -> None:
    account = books.account()
    unit = ann.begin()
    unit.query(ann.lines, of(order))
    unit.update(ann.accounts, account, "SET balance = :n", {":n": 0})
    saved = unit.save()
    resumed = unaware.units.resume(saved)
    inserts(ben, order, 3)
    with pytest.raises(UnitConflict):
        resumed.commit()
    unaware.units.rollback(saved)
    assert books.balance(account) == 100


@THREADS_ONLY
def test_an_insert_of_a_saved_unit_conflicts_with_a_unit_that_has_queried_its_partition(
    ann: Party, ben: Party, unaware: Party, order: str
) -> None:
    unit = ann.begin()
    unit.put(ann.lines, line(order, 3))
    saved = unit.save()
    rival = ben.begin()
    rival.query(ben.lines, of(order))
    rival.put(ben.accounts, {"id": order})
    unaware.units.resume(saved).commit()
    with pytest.raises(UnitConflict):
        rival.commit()


@THREADS_ONLY
def test_an_insert_between_the_reads_of_the_guard_and_of_the_items_conflicts(
    ann: Party, ben: Party, order: str
) -> None:
    unit = ann.begin()
    ann.line.between["Query"] = lambda: inserts(ben, order, 3)
    assert len(unit.query(ann.lines, of(order))) == 3
    assert ann.line.operations == ["GetItem", "Query"]
    with pytest.raises(UnitConflict):
        unit.commit()


@THREADS_ONLY
def test_queries_below_serializable_updates_and_deletes_neither_read_nor_write_the_guard(
    books: Books, ann: Party, order: str
) -> None:
    # Partitions share guards: that of another order may be there already.
    before = guard(books, order)
    ann.units.query(ann.lines, of(order))
    with ann.begin() as unit:
        unit.update(ann.lines, key(order, 1), SET, {":n": 1})
        unit.delete(ann.lines, key(order, 2))
    assert ann.line.operations == ["Query", "GetItem", "GetItem", "TransactWriteItems"]
    assert guard(books, order) == before


def test_the_guard_has_the_version_of_the_last_unit_that_inserted_and_does_not_expire(
    books: Books, ann: Party, order: str
) -> None:
    with ann.begin() as unit:
        unit.put(ann.lines, line(order, 3))
        unit.put(ann.lines, line(order, 4))
    found = guard(books, order) or {}
    assert found.pop(VERSION) == unit.id
    assert found.keys() == {"unit", "row", "format"}


@THREADS_ONLY
@pytest.mark.parametrize("is_committed", [False, True], ids=["pending", "committed"])
def test_the_guard_of_a_unit_that_was_killed_is_swept_with_its_items_and_is_no_unit(
    books: Books, ann: Party, order: str, is_committed: bool
) -> None:
    books.empty()
    units = Party(books, None, guarded=True).units
    unit = ann.begin()
    unit.put(ann.lines, line(order, 3))
    crashes(ann, 1, is_sent=is_committed)
    with pytest.raises(Killed):
        unit.commit()
    assert MARK in (guard(books, order) or {})
    books.clock.advance(LEASE_S + MARGIN_S)
    assert units.sweep() == Swept(rolled_back=not is_committed, finished=2, open=1)
    assert [each.unit for each in units.open_units()] == [unit.id]
    books.clock.advance(COPIES_S + MARGIN_S)
    assert units.sweep() == Swept(closed=1)
    assert (books.raw("lines", key(order, 3)) is not None) == is_committed
    assert MARK not in (guard(books, order) or {})


def write_units(party: Party) -> int:
    """Write units of the requests of a process, for items up to 1 KB: one for a write, two in a transaction."""
    single = sum(operation in ("PutItem", "UpdateItem", "DeleteItem") for operation in party.line.operations)
    together = [each.parameters["TransactItems"] for each in party.line.sent if each.operation == "TransactWriteItems"]
    return single + 2 * sum(map(len, together))


def billed(party: Party, order: str, numbers: range) -> int:
    """Write units of a unit that inserts these lines."""
    party.line.sent.clear()
    with party.begin() as unit:
        for number in numbers:
            unit.put(party.lines, line(order, number))
    return write_units(party)


# Where no request is sent twice for its lateness.
COUNTED = pytest.mark.parametrize(
    ("units_engine", "units_kind"), [("memory", "threads")], indirect=["units_engine", "units_kind"]
)


@COUNTED
@pytest.mark.parametrize(("count", "unguarded", "first", "later"), [(1, 2, 11, 10), (3, 6, 17, 16)])
def test_an_insert_into_a_guarded_table_is_committed_by_marks_with_one_item_more(
    units_world: UnitsWorld, ann: Party, order: str, count: int, unguarded: int, first: int, later: int
) -> None:
    plain = units_world.party()
    assert billed(plain, order, range(100, 100 + count)) == unguarded
    assert billed(ann, order, range(200, 200 + count)) == first
    # The first insert of a partition has made its guard.
    assert billed(ann, order, range(300, 300 + count)) == later


@COUNTED
def test_a_unit_that_has_queried_a_guarded_table_pays_one_check_more(ann: Party, order: str) -> None:
    inserts(ann, order, 3)
    ann.line.sent.clear()
    with ann.begin() as unit:
        assert len(unit.query(ann.lines, of(order))) == 3
        unit.put(ann.accounts, {"id": order})
    # Three lines and the guard are checked, one item is written.
    assert write_units(ann) == 2 * (3 + 1 + 1)


def test_a_native_insert_into_a_guarded_table_is_refused(books: Books, ann: Party, order: str) -> None:
    with ann.begin(engine="native") as unit:
        unit.update(ann.lines, key(order, 1), SET, {":n": 1})
        with pytest.raises(InvalidUnitRequest) as refused:
            unit.put(ann.lines, line(order, 3))
    assert refused.value.field == "engine"
    assert books.raw("lines", key(order, 3)) is None


def test_a_table_that_is_known_as_guarded_or_not_cannot_become_the_other(ann: Party, units_world: UnitsWorld) -> None:
    assert ann.units.table(ann.lines.name) is ann.lines
    assert ann.units.table(ann.lines.name, guarded=True) is ann.lines
    for party, guarded in ((ann, False), (units_world.party(), True)):
        with pytest.raises(InvalidUnitRequest, match="as in the first call of `table`") as refused:
            party.units.table(party.lines.name, guarded=guarded)
        assert refused.value.field == "guarded"


@pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)
def test_a_table_with_a_local_index_is_not_guarded(books: Books, ann: Party) -> None:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    by_rank = index("by-rank", {"pk": "HASH", "rank": "RANGE"})
    make_table(books.plain_client, name, KEYS["lines"], {"rank": "S"}, LocalSecondaryIndexes=[by_rank])
    try:
        with pytest.raises(InvalidUnitRequest, match="local secondary indexes"):
            ann.units.table(name, guarded=True)
    finally:
        books.plain_client.delete_table(TableName=name)


def test_the_partitions_of_a_table_share_a_bounded_number_of_guards_and_seldom_the_same_one() -> None:
    partitions = 1_000
    guards = {guard_key("lines", {"S": str(number)})["unit"]["S"] for number in range(partitions)}
    assert len(guards) > 0.95 * partitions
    assert {int(name.rpartition("#")[2]) for name in guards} <= set(range(SLOTS))
    assert guard_key("lines", {"N": "1"}) != guard_key("lines", {"S": "1"})
