"""What docs/guarantees.md does not promise of units of work, each by an example of what happens instead."""

import random
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key as KeyOf
from kit.crashes import crashes
from kit.units import (
    MARK,
    THREADS_ONLY,
    VERSION,
    Books,
    Key,
    Killed,
    Lost,
    Party,
    UnitsWorld,
    dumped,
    make_units_table,
    some_account,
    some_line,
)

from ticketlock.errors import OutcomeUnknown, UnitConflict, UnitContended
from ticketlock.units import UNCOMMITTED, Unit
from ticketlock.units._packing import Entry, packed
from ticketlock.units._record import LEASE_MS
from ticketlock.units._sweeping import COPIES_COME_WITHIN_MS

pytestmark = [
    pytest.mark.shows("killed coordinator"),
    pytest.mark.parametrize("units_engine", ["memory"], indirect=True),
    THREADS_ONLY,
]

ADD, TAKE, TEN = "SET balance = balance + :n", "SET balance = balance - :n", {":n": 10}
SET, ZERO = "SET balance = :n", {":n": 0}
LEASE_S, MARGIN_S, COPIES_S = LEASE_MS // 1_000, 5, COPIES_COME_WITHIN_MS // 1_000
# The updates of a unit of two items: two marks, the decision, and the ends of both items.
FIRST_MARK, SECOND_END = 1, 5
TRIES = 5
# Nothing packs it: it does not fit into the record.
LONG = random.Random(0).randbytes(8_000)


def both_to_zero(party: Party, keys: list[Key], unit: Unit) -> None:
    for key in keys:
        unit.update(party.accounts, key, SET, ZERO)


def killed(party: Party, do: Callable[[Unit], object], number: int, *, is_sent: bool) -> Unit:
    """A unit of two items, whose process is killed at one of its updates."""
    unit = party.begin(engine="marked")
    do(unit)
    crashes(party, number, is_sent=is_sent)
    with pytest.raises(Killed):
        unit.commit()
    return unit


def half_finished(party: Party, keys: list[Key]) -> list[Key]:
    """A unit is committed, which sets both to zero, and has done so with one: that one, and the other."""
    killed(party, partial(both_to_zero, party, keys), SECOND_END, is_sent=False)
    return sorted(keys, key=party.books.balance)


def balances(party: Party, keys: list[Key]) -> list[object]:
    found = party.units.get_all([(party.accounts, key) for key in keys])
    return [item and item["balance"] for item in found]


@pytest.fixture
def both(account: Key, other: Key) -> list[Key]:
    return [account, other]


# What is not of one instant, and what is not there to be read.


def of_a_unit(party: Party, key: Key) -> Any:
    with party.begin() as unit:
        return unit.get(party.accounts, key)


def at_committed(party: Party, key: Key) -> Any:
    return party.units.get(party.accounts, key)


@pytest.mark.parametrize("read", [of_a_unit, at_committed])
def test_two_units_of_one_single_read_each_may_see_half_of_a_unit_while_dynamodb_applies_it(
    books: Books, ann: Party, ben: Party, both: list[Key], read: Callable[[Party, Key], Any]
) -> None:
    unit = ann.begin()
    both_to_zero(ann, both, unit)
    ann.loses(Lost.KILLED_BEFORE, 1, operation="TransactWriteItems")
    with pytest.raises(Killed):
        unit.commit()
    memory = books.engine.memory
    assert memory is not None
    on_its_way = memory.in_steps("transact_write_items", **ann.line.sent[-1].parameters)
    while books.balance(both[0]):
        assert on_its_way.step()
    assert [read(ben, key)["balance"] for key in both] == [0, 50]
    on_its_way.finish()
    assert balances(ben, both) == [0, 0]


def test_items_beyond_a_hundred_are_of_another_instant(books: Books, ann: Party, ben: Party, account: Key) -> None:
    last = books.account()
    keys = [account, *(some_account() for _ in range(99)), last]

    def change_both() -> None:
        with ben.begin() as unit:
            both_to_zero(ben, [account, last], unit)

    # A hundred are read together, and then one more.
    ann.line.between["GetItem"] = change_both
    found = balances(ann, keys)
    assert (found[0], found[-1]) == (100, 0)


def test_a_unit_does_not_notice_new_items_where_it_has_looked_for_them(ann: Party, ben: Party) -> None:
    """One line an order, says each of two, and looks for others."""
    line = some_line()
    units = [party.begin() for party in (ann, ben)]
    for number, (party, unit) in enumerate(zip((ann, ben), units, strict=True)):
        assert unit.query(party.lines, KeyOf("pk").eq(line["pk"])) == []
        unit.put(party.lines, {**line, "sk": number})
    for unit in units:
        unit.commit()
    assert len(ann.units.query(ann.lines, KeyOf("pk").eq(line["pk"]))) == 2


def test_an_uncommitted_read_may_not_see_yet_what_was_committed(ann: Party, ben: Party, both: list[Key]) -> None:
    _, unfinished = half_finished(ann, both)
    found = ben.units.get(ben.accounts, unfinished, isolation=UNCOMMITTED)
    assert found is not None
    assert found["balance"] > 0
    assert balances(ben, both) == [0, 0]


# Those who read and write beside units.


def test_a_plain_reader_may_see_half_of_a_unit_that_is_not_finished(
    books: Books, ann: Party, ben: Party, both: list[Key]
) -> None:
    half_finished(ann, both)
    assert sorted(books.balance(key) > 0 for key in both) == [False, True]
    assert balances(ben, both) == [0, 0]


def test_a_plain_update_that_leaves_the_version_is_not_noticed_and_is_lost(
    books: Books, ann: Party, account: Key
) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
        books.plain_client.update_item(
            TableName=books.tables["accounts"],
            Key=dumped(account),
            UpdateExpression=SET,
            ExpressionAttributeValues=dumped({":n": 500}),
        )
    assert books.balance(account) == 90


def test_a_plain_put_over_a_mark_takes_the_write_of_a_committed_unit_away(
    books: Books, ann: Party, ben: Party, both: list[Key]
) -> None:
    finished, unfinished = half_finished(ann, both)
    books.write("accounts", {**unfinished, "balance": 7})
    ben.units.sweep()
    assert [books.balance(key) for key in (finished, unfinished)] == [0, 7]


def test_an_item_that_time_to_live_deletes_under_a_mark_is_gone_though_its_unit_has_kept_it(
    books: Books, ann: Party, ben: Party, both: list[Key]
) -> None:
    _, unfinished = half_finished(ann, both)
    # What time to live does: it asks for no mark.
    books.plain_client.delete_item(TableName=books.tables["accounts"], Key=dumped(unfinished))
    ben.units.sweep()
    assert books.raw("accounts", unfinished) is None


# Units whose process, request or record is gone.


def test_a_writer_waits_for_the_lease_of_a_unit_that_was_killed_before_its_decision(
    books: Books, ann: Party, ben: Party, both: list[Key]
) -> None:
    killed(ann, partial(both_to_zero, ann, both), FIRST_MARK, is_sent=True)
    (marked,) = [key for key in both if MARK in (books.raw("accounts", key) or {})]
    books.clock.advance(1)
    with pytest.raises(UnitContended):
        ben.changes(marked, 5)
    books.clock.advance(LEASE_S + MARGIN_S)
    ben.changes(marked, 5)
    assert books.balance(marked) == 5


def test_a_unit_without_a_name_that_is_run_again_after_an_unknown_outcome_may_count_twice(
    books: Books, ann: Party, account: Key
) -> None:
    def count() -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, ADD, TEN, blind=True)

    ann.loses(Lost.REPLY, 1, 1_000)
    with pytest.raises(OutcomeUnknown):
        count()
    ann.line.losses.clear()
    count()
    assert books.balance(account) == 120


def test_a_row_that_something_on_the_way_sends_again_after_its_answer_stays(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    with ann.begin(engine="marked") as unit:
        unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
    (row,) = [
        sent.parameters
        for sent in ann.line.sent
        if sent.operation == "PutItem" and sent.parameters["Item"]["row"]["S"].startswith("w#")
    ]
    books.plain_client.put_item(**row)
    for _ in range(2):
        books.clock.advance(LEASE_S + COPIES_S)
        ben.units.sweep()
    rows = [each for each in books.everything()["units"] if each["unit"] == unit.id]
    assert {each["row"]: "expiresAt" in each for each in rows} == {"head": True, "w#1#00000": False}
    assert books.balance(account) == 0


def test_a_record_that_is_deleted_by_hand_takes_away_what_was_not_finished(
    books: Books, ann: Party, ben: Party, both: list[Key]
) -> None:
    unit = killed(ann, partial(both_to_zero, ann, both), SECOND_END, is_sent=False)
    assert balances(ben, both) == [0, 0]
    head = dumped({"unit": unit.id, "row": "head"})
    books.plain_client.delete_item(TableName=books.tables["units"], Key=head)
    assert sorted(found == 0 for found in balances(ben, both)) == [False, True]


def assert_writes_over(eve: Party, books: Books, unfinished: Key) -> None:
    """Her unit changes what stands in an item, and waits for no mark."""
    before = books.balance(unfinished)
    with eve.begin() as unit:
        unit.update(eve.accounts, unfinished, ADD, TEN)
    assert books.balance(unfinished) == before + 10


def test_units_under_two_tables_of_units_take_each_other_for_ended_and_write_over_each_other(
    books: Books, ann: Party, both: list[Key]
) -> None:
    _, unfinished = half_finished(ann, both)
    elsewhere = {**books.tables, "units": f"units-{uuid.uuid4().hex[:8]}"}
    make_units_table(books.plain_client, elsewhere["units"])
    eve = Party(Books(books.engine, books.plain_client, elsewhere, books.clock), None)
    assert_writes_over(eve, books, unfinished)


def test_units_of_two_prefixes_do_not_see_each_others_marks(
    books: Books, units_world: UnitsWorld, ann: Party, both: list[Key]
) -> None:
    _, unfinished = half_finished(ann, both)
    eve = units_world.party(prefix="my")
    assert_writes_over(eve, books, unfinished)


def test_a_principal_with_access_to_the_units_table_decides_what_a_unit_writes(
    books: Books, ann: Party, ben: Party, both: list[Key]
) -> None:
    unit = killed(ann, partial(both_to_zero, ann, both), SECOND_END, is_sent=False)
    forged = [Entry(ann.accounts.name, dumped(key), "id", "change", dumped({"balance": 1_000_000})) for key in both]
    books.plain_client.update_item(
        TableName=books.tables["units"],
        Key=dumped({"unit": unit.id, "row": "head"}),
        UpdateExpression="SET writes = :forged",
        ExpressionAttributeValues={":forged": {"B": packed(forged).pieces[0]}},
    )
    ben.units.sweep()
    assert sorted(map(books.balance, both)) == [0, 1_000_000]


# Rivals.


def test_a_slow_unit_may_lose_to_quick_ones_at_every_try(ann: Party, ben: Party, account: Key) -> None:
    tried: list[str] = []

    @ann.units.transactional(tries=TRIES)
    def slow(*, unit: Unit) -> None:
        unit.update(ann.accounts, account, TAKE, TEN)
        ben.changes(account, len(tried))
        tried.append(unit.id)

    with pytest.raises(UnitConflict):
        slow()
    assert len(tried) == TRIES


def test_the_attributes_of_units_stay_in_the_items(books: Books, ann: Party) -> None:
    key = books.plain_account()
    ann.changes(key, 5)
    assert VERSION in (books.raw("accounts", key) or {})
