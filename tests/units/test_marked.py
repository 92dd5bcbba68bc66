"""Units that are committed by marks: they meet the marks of others, lose requests, and sleep past their leases."""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import inf

import pytest
from kit.crashes import before_the_nth
from kit.engines import first_on, roomy_engine_names
from kit.units import MARK, THREADS_ONLY, Books, Key, Lost, Party, UnitsWorld, some_account
from units.conftest import COPIES_S, LEASE_S

from ticketlock.errors import (
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    UnitContended,
    UnitFinished,
    UnitForgotten,
    UnitRolledBack,
)
from ticketlock.units import Unit
from ticketlock.wire._requests import ForkingSteps, Together, TransactWrite

pytestmark = pytest.mark.shows(
    "atomicity",
    "committed reads",
    "no dirty read",
    "no deadlock",
    "killed coordinator",
    "nothing left",
    "cost of units",
    "known outcomes",
    "wrong clocks",
)

LATER_S = LEASE_S + COPIES_S
# DynamoDB's bound.
MOST_IN_A_TRANSACTION = 100
SET = "SET balance = :balance"
# Incompressible, so that it does not fit into the head.
LONG = random.Random(0).randbytes(8_000)


def set_by_marks(party: Party, keys: list[Key], balance: int) -> None:
    """One unit that sets all balances."""
    with party.begin(engine="marked") as unit:
        unit.get_all([(party.accounts, key) for key in keys])
        for key in keys:
            unit.update(party.accounts, key, SET, {":balance": balance})


def is_clean(books: Books, keys: Sequence[Key]) -> bool:
    """Whether no mark and no row of what a unit writes is left, and every head is closed."""
    rows = [row for row in books.everything()["units"] if row["row"] != "receipt"]
    return books.marks(keys) == 0 and all("closed" in row for row in rows)


def sweep_twice(party: Party) -> None:
    """Sweep twice, each time after everything that was sent has arrived."""
    for _ in range(2):
        party.books.clock.advance(LATER_S)
        party.units.sweep()


def test_a_unit_updates_deletes_and_puts_items_and_leaves_neither_marks_nor_rows(books: Books, ann: Party) -> None:
    keys = [books.account(1), books.account(2), some_account()]
    with ann.begin(engine="marked") as unit:
        unit.update(ann.accounts, keys[0], "SET balance = balance + :n REMOVE gone", {":n": 10})
        unit.delete(ann.accounts, keys[1])
        unit.put(ann.accounts, {**keys[2], "balance": 30, "raw": b"x", "list": [1, {"a": {"b"}}]})
    assert [books.item("accounts", key) for key in keys] == [
        {**keys[0], "balance": 11},
        None,
        {**keys[2], "balance": 30, "raw": b"x", "list": [1, {"a": {"b"}}]},
    ]
    assert [books.version(key) for key in keys] == [unit.id, None, unit.id]
    assert is_clean(books, keys)


@pytest.mark.parametrize("units_engine", first_on("memory", roomy_engine_names()), indirect=True)
def test_more_than_a_hundred_items_are_committed_by_marks_with_two_writes_each_and_three_more(
    books: Books, ann: Party
) -> None:
    keys = [books.account(1) for _ in range(MOST_IN_A_TRANSACTION + 1)]
    with ann.begin() as unit:
        unit.get_all([(ann.accounts, key) for key in keys])
        for key in keys:
            unit.update(ann.accounts, key, SET, {":balance": 7})
    assert {books.balance(key) for key in keys} == {7}
    sent = ann.line.operations
    assert (sent.count("PutItem"), sent.count("UpdateItem")) == (1, 2 * len(keys) + 2)
    assert set(sent) == {"GetItem", "PutItem", "TransactGetItems", "UpdateItem"}
    assert is_clean(books, keys)


@THREADS_ONLY
def test_transactions_of_one_unit_which_all_check_its_record_are_sent_one_after_the_other(ann: Party) -> None:
    """In parallel they would conflict with each other."""
    beside: list[int] = []

    def noted(steps: ForkingSteps[None]) -> ForkingSteps[None]:
        request = next(steps)
        while True:
            if isinstance(request, Together):
                beside.append(sum(isinstance(each, TransactWrite) for each in request.requests))
            reply = yield request
            try:
                request = steps.send(reply)
            except StopIteration:
                return

    unit = ann.begin(engine="marked")
    # Each checks the record, beside as many items as it has room for.
    for _ in range(2 * (MOST_IN_A_TRANSACTION - 1) + 1):
        unit.put(ann.accounts, {**some_account(), "balance": 1})
    unit._perform(noted(unit._unit_of_work.commit()))
    assert [count for count in beside if count] == [1, 1, 1]


@pytest.mark.parametrize("lost", [Lost.REQUEST, Lost.REPLY], ids=str)
def test_a_decision_that_is_lost_for_long_is_rolled_back_if_no_attempt_arrives_and_found_to_be_committed_if_one_does(
    ann: Party, ben: Party, account: Key, other: Key, lost: Lost
) -> None:
    # Two requests mark; the driver gives up the decision after 8 s, which is four attempts.
    decision = ann.loses(lost, 3, 6, "UpdateItem")
    with pytest.raises(UnitRolledBack) if lost is Lost.REQUEST else nullcontext():
        set_by_marks(ann, [account, other], 4)
    assert decision.seen > decision.last
    found = ben.units.get_all([(ben.accounts, key) for key in (account, other)])
    assert [item and item["balance"] for item in found] == ([4, 4] if lost is Lost.REPLY else [100, 50])


# The mark of another unit, which is met while its unit is pending.


@pytest.fixture
def keys(books: Books) -> list[Key]:
    """Two accounts, in the order in which they are marked."""
    return sorted([books.account(), books.account()], key=lambda key: str(key["id"]))


def meets(ann: Party, keys: list[Key], do: Callable[[], object]) -> None:
    """Something is done when a unit has marked the first of two items, and is about to mark the second."""
    before_the_nth(ann, 2, do, "UpdateItem")
    set_by_marks(ann, keys, 9)


@THREADS_ONLY
def test_the_mark_of_an_older_unit_is_waited_for_until_the_time_out(
    units_world: UnitsWorld, books: Books, keys: list[Key]
) -> None:
    ann, ben = units_world.party(), units_world.party(timeout=2)

    def collide() -> None:
        books.clock.advance(1)
        with pytest.raises(UnitContended):
            ben.changes(keys[0], 5)

    meets(ann, keys, collide)
    assert [books.balance(key) for key in keys] == [9, 9]


@THREADS_ONLY
@pytest.mark.parametrize("timeout", [0, 10], ids=["that has no time to wait", "that may wait"])
def test_the_mark_of_a_younger_unit_is_rolled_back_by_an_older_one(
    books: Books, ann: Party, ben: Party, keys: list[Key], timeout: int
) -> None:
    older = ben.begin(timeout=timeout)
    older.update(ben.accounts, keys[0], SET, {":balance": 5})
    books.clock.advance(1)
    with pytest.raises(UnitRolledBack) as rolled_back:
        meets(ann, keys, older.commit)
    assert rolled_back.value.by == older.id
    assert [books.balance(key) for key in keys] == [5, 100]
    sweep_twice(ann)
    assert is_clean(books, keys)


@THREADS_ONLY
def test_the_mark_of_another_unit_that_is_not_removed_in_time_leaves_no_doubt_about_the_unit_that_met_it(
    books: Books, ann: Party, ben: Party, keys: list[Key]
) -> None:
    raised = []

    def collide() -> None:
        books.clock.advance(LEASE_S + 3)
        unit = ben.begin(engine="native")
        unit.update(ben.accounts, keys[0], SET, {":balance": 5})
        ben.loses(Lost.REPLY, 1, inf, "UpdateItem")
        try:
            unit.commit()
        except TableError as error:
            raised.append(type(error))

    with pytest.raises(UnitRolledBack):
        meets(ann, keys, collide)
    assert raised == [RequestNotApplied]


@THREADS_ONLY
def test_the_mark_of_another_unit_is_waited_for_under_a_lease_that_is_renewed(
    books: Books, ann: Party, ben: Party, keys: list[Key], account: Key
) -> None:
    def collide() -> None:
        books.clock.advance(1)
        mark = (books.raw("accounts", keys[0]) or {})[MARK]
        head = books.raw("units", {"unit": mark["unit"], "row": "head"}) or {}
        books.write("units", {**head, "leaseUntilMs": head["leaseUntilMs"] + 1_000_000})
        waits = ben.begin(engine="marked", timeout=5 * LEASE_S)
        for key in (account, keys[0]):
            waits.update(ben.accounts, key, SET, {":balance": 5})
        with pytest.raises(UnitContended):
            waits.commit()

    meets(ann, keys, collide)
    renewed = [sent for sent in ben.line.sent if "#lease = :lease" in sent.parameters.get("UpdateExpression", "")]
    assert len(renewed) >= 5
    assert [books.balance(key) for key in keys] == [9, 9]


def forget(books: Books, ben: Party, unit: Unit) -> None:
    """Let other processes finish a unit, and time to live delete its record."""
    sweep_twice(ben)
    head = {"unit": {"S": unit.id}, "row": {"S": "head"}}
    books.plain_client.delete_item(TableName=books.tables["units"], Key=head)


@THREADS_ONLY
def test_a_unit_that_cannot_ask_the_time_before_it_marks_is_not_applied(
    books: Books, units_world: UnitsWorld, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    unit = ann.begin(engine="marked")
    unit.put(ann.accounts, {**account, "balance": 0})
    books.clock.advance(LATER_S)
    # The time-out covers the request for the time; the later requests are sent.
    ann.loses(Lost.NOT_SENT, 1, 4)
    with pytest.raises(RequestNotApplied):
        unit.commit()
    assert books.balance(account) == 100


@THREADS_ONLY
def test_a_closed_record_expires_only_after_the_rows_that_its_process_did_not_delete_are_swept(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    with ann.begin(engine="marked") as unit:
        unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
        ann.loses(Lost.NOT_SENT, 1, inf, "DeleteItem")
    left = books.rows(unit.id)
    assert set(left) == {"head", "w#1#00000"}
    assert left["head"]["closed"]
    assert "expiresAt" not in left["head"]
    ben.units.sweep()
    left = books.rows(unit.id)
    assert set(left) == {"head"}
    assert "expiresAt" in left["head"]


@THREADS_ONLY
@pytest.mark.parametrize(("put", "lost"), [(1, Lost.REPLY), (2, Lost.NOT_SENT)], ids=["after the head", "before a row"])
@pytest.mark.parametrize("stands_still", [False, True], ids=["asleep", "frozen with its clock"])
def test_a_process_that_slept_past_its_lease_writes_down_nothing(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key, put: int, lost: Lost, stands_still: bool
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        books.clock.sleep(seconds)
        if seconds and not slept:
            slept.append(seconds)
            for _ in range(2):
                (books.clock.freeze if stands_still else books.clock.advance)(LATER_S)
                ben.units.sweep()

    ann = units_world.party(sleep=sleep)
    unit = ann.begin(engine="marked")
    unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
    ann.loses(lost, put, operation="PutItem")
    with pytest.raises((RequestNotApplied, UnitRolledBack)):
        unit.commit()
    assert slept
    assert set(books.rows(unit.id)) == {"head"}
    assert books.balance(account) == 100


@THREADS_ONLY
def test_a_unit_that_paused_until_its_record_was_gone_is_forgotten_and_writes_nothing(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    before = [books.raw("accounts", key) for key in (account, other)]
    unit = ann.begin(engine="marked")
    for key in (account, other):
        unit.update(ann.accounts, key, SET, {":balance": 0})
    # The first two requests mark, the third one decides.
    before_the_nth(ann, 3, lambda: forget(books, ben, unit), "UpdateItem")
    with pytest.raises(UnitForgotten):
        unit.commit()
    assert [books.raw("accounts", key) for key in (account, other)] == before


@THREADS_ONLY
def test_a_decision_without_an_answer_that_arrives_late_commits_its_unit(
    books: Books, units_world: UnitsWorld, account: Key, other: Key
) -> None:
    ann, ben = (units_world.party(sleep=books.clock.sleep, timeout=0) for _ in range(2))
    unit = ann.begin(engine="marked")
    unit.get(ann.accounts, account)
    unit.update(ann.accounts, other, SET, {":balance": 0})
    # Ben marks what Ann has read, and crashes.
    marker = ben.begin(engine="marked")
    marker.update(ben.accounts, account, SET, {":balance": 0})
    ben.loses(Lost.NOT_SENT, 2, inf, "UpdateItem")
    with pytest.raises(TableError):
        marker.commit()
    books.clock.advance(25)
    # Ann's first attempt takes long to arrive; the next one meets the mark, and no further request of hers arrives.
    ann.loses(Lost.REQUEST, 1, operation="TransactWriteItems")
    ann.loses(Lost.NOT_SENT, 2, inf, "UpdateItem")
    with pytest.raises(OutcomeUnknown):
        unit.commit()
    (late, *_) = (sent.parameters for sent in ann.line.sent if sent.operation == "TransactWriteItems")
    # Ben's lease ends, and hers has not ended yet.
    books.clock.advance(15)
    assert units_world.party().units.sweep().rolled_back == 1
    assert books.balance(other) == 50
    books.plain_client.transact_write_items(**late)
    reader = units_world.party()
    assert reader.units.get(reader.accounts, other) == {**other, "balance": 0}


@THREADS_ONLY
def test_of_a_decision_without_an_answer_whose_record_is_gone_no_error_says_that_it_was_rolled_back(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        books.clock.sleep(seconds)
        if decision.seen >= 4 and seconds == 0 and not slept:
            slept.append(seconds)
            forget(books, ben, unit)

    ann = units_world.party(sleep=sleep)
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, account, SET, {":balance": 0})
    # The first request marks.
    decision = ann.loses(Lost.REPLY, 2, 5, "UpdateItem")
    with pytest.raises(UnitForgotten):
        unit.commit()
    assert slept
    with pytest.raises(UnitFinished, match="its outcome unknown"):
        unit.rollback()
    assert books.balance(account) == 0
