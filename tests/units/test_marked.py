"""Units that are committed by marks: they meet the marks of others, lose requests, and sleep past their leases."""

import random
from collections.abc import Callable, Sequence
from math import inf

import pytest
from kit.crashes import before_the_nth
from kit.engines import engine_names_but_moto, first_on
from kit.units import MARK, THREADS_ONLY, Books, Key, Loss, Lost, Party, UnitsWorld, some_account
from units.conftest import COPIES_S, LEASE_S

from ticketlock.errors import (
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    TicketLockError,
    UnitContended,
    UnitFinished,
    UnitForgotten,
    UnitRolledBack,
)
from ticketlock.units import Unit
from ticketlock.units._commit import _marked
from ticketlock.units._records import _packing

LATER_S = LEASE_S + COPIES_S
# Between two polls of a unit that waits for an older one.
LONGEST_PAUSE_MS = 400
# DynamoDB's bound.
MOST_IN_A_TRANSACTION = 100
# Those of one request: each that is lost takes 2 s, and the driver gives the request up after 8 s.
ATTEMPTS = 4
SET = "SET balance = :balance"
# Incompressible, so that it does not fit into the head.
LONG = random.Random(0).randbytes(8_000)


def set_by_marks(party: Party, keys: list[Key], balance: int) -> None:
    """One unit that sets all balances."""
    with party.begin(engine="marked") as unit:
        unit.get_all([(party.accounts, key) for key in keys])
        for key in keys:
            unit.update(party.accounts, key, SET, {":balance": balance})


def loses_its_decision(party: Party, what: Lost, *, marks: int) -> Loss:
    """Lose every attempt of a unit's decision, which comes after so many requests that mark."""
    return party.loses(what, marks + 1, marks + ATTEMPTS, "UpdateItem")


def balances_for(reader: Party, keys: Sequence[Key]) -> list[object]:
    """The balances of accounts, read through units."""
    return [item and item["balance"] for item in reader.units.get_all([(reader.accounts, key) for key in keys])]


def is_clean(books: Books, keys: Sequence[Key]) -> bool:
    """Whether no mark and no row of what a unit writes is left, and every head is closed."""
    rows = [row for row in books.everything()["units"] if row["row"] != "receipt"]
    return books.marks(keys) == 0 and all("closed" in row for row in rows)


def sweep_twice(party: Party) -> None:
    """Sweep twice, each time after everything that was sent has arrived."""
    for _ in range(2):
        party.books.clock.advance(LATER_S)
        party.units.sweep()


@pytest.mark.shows("atomicity", "nothing left")
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


@pytest.mark.shows("cost of units", "nothing left")
@pytest.mark.parametrize("units_engine", first_on("memory", engine_names_but_moto()), indirect=True)
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
@pytest.mark.parametrize("first_lost", [1, 2, 3])
def test_transactions_of_one_unit_which_all_check_its_record_are_sent_one_after_the_other(
    ann: Party, first_lost: int
) -> None:
    """In parallel they would conflict with each other. So none is sent after one that is not applied."""
    unit = ann.begin(engine="marked")
    # Each checks the record, beside as many items as it has room for.
    for _ in range(2 * (MOST_IN_A_TRANSACTION - 1) + 1):
        unit.put(ann.accounts, {**some_account(), "balance": 1})
    ann.loses(Lost.NOT_SENT, first_lost, inf, "TransactWriteItems")
    with pytest.raises(RequestNotApplied):
        unit.commit()
    sent = [each.parameters for each in ann.line.sent if each.operation == "TransactWriteItems"]
    assert len({each["ClientRequestToken"] for each in sent}) == first_lost


@pytest.mark.shows("atomicity", "committed reads", "known outcomes", "no dirty read")
def test_a_unit_is_rolled_back_if_no_attempt_of_its_decision_arrives(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    decision = loses_its_decision(ann, Lost.REQUEST, marks=2)
    with pytest.raises(UnitRolledBack):
        set_by_marks(ann, [account, other], 4)
    assert decision.seen > decision.last
    assert balances_for(ben, [account, other]) == [100, 50]


@pytest.mark.shows("atomicity", "committed reads", "known outcomes")
def test_a_unit_is_found_to_be_committed_if_its_decision_arrives_and_no_reply_comes(
    ann: Party, ben: Party, account: Key, other: Key
) -> None:
    decision = loses_its_decision(ann, Lost.REPLY, marks=2)
    set_by_marks(ann, [account, other], 4)
    assert decision.seen > decision.last
    assert balances_for(ben, [account, other]) == [4, 4]


# The mark of another unit, which is met while its unit is pending.


@pytest.fixture
def keys(books: Books) -> list[Key]:
    """Two accounts, in the order in which they are marked."""
    return sorted([books.account(), books.account()], key=lambda key: str(key["id"]))


def meets(ann: Party, keys: list[Key], do: Callable[[], object]) -> None:
    """Something is done when a unit has marked the first of two items, and is about to mark the second."""
    done: list[object] = []

    def noted() -> None:
        done.append(do)
        do()

    before_the_nth(ann, 2, noted, "UpdateItem")
    try:
        set_by_marks(ann, keys, 9)
    finally:
        assert done


@pytest.mark.shows("no deadlock")
@THREADS_ONLY
def test_the_mark_of_an_older_unit_is_waited_for_until_the_time_out(
    units_world: UnitsWorld, books: Books, keys: list[Key]
) -> None:
    timeout_s = 2
    ann, ben = units_world.party(), units_world.party(timeout=timeout_s)
    waited_ms = 0

    def collide() -> None:
        nonlocal waited_ms
        books.clock.advance(1)
        began_ms = books.clock.read().local_ms
        with pytest.raises(UnitContended):
            ben.changes(keys[0], 5)
        waited_ms = books.clock.read().local_ms - began_ms

    meets(ann, keys, collide)
    assert timeout_s * 1_000 <= waited_ms <= timeout_s * 1_000 + LONGEST_PAUSE_MS
    assert [books.balance(key) for key in keys] == [9, 9]


@pytest.mark.shows("no deadlock", "nothing left")
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


@pytest.mark.shows("known outcomes")
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


@pytest.mark.shows("no deadlock")
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


@pytest.mark.shows("known outcomes")
@THREADS_ONLY
def test_a_unit_that_cannot_ask_the_time_before_it_marks_is_not_applied(
    books: Books, units_world: UnitsWorld, account: Key
) -> None:
    ann = units_world.party(sleep=books.clock.sleep)
    unit = ann.begin(engine="marked")
    unit.put(ann.accounts, {**account, "balance": 0})
    books.clock.advance(LATER_S)
    # Those of the request for the time; the later requests are sent.
    ann.loses(Lost.NOT_SENT, 1, ATTEMPTS)
    with pytest.raises(RequestNotApplied):
        unit.commit()
    assert books.balance(account) == 100


@pytest.mark.shows("nothing left")
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


@pytest.mark.shows("nothing left", "wrong clocks")
@THREADS_ONLY
@pytest.mark.parametrize(
    ("put", "lost", "raised"),
    [(1, Lost.REPLY, UnitRolledBack), (2, Lost.NOT_SENT, RequestNotApplied)],
    ids=["after the head", "before a row"],
)
@pytest.mark.parametrize("stands_still", [False, True], ids=["asleep", "frozen with its clock"])
def test_a_process_that_slept_past_its_lease_writes_down_nothing(
    books: Books,
    units_world: UnitsWorld,
    ben: Party,
    account: Key,
    put: int,
    lost: Lost,
    raised: type[TicketLockError],
    stands_still: bool,
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
    with pytest.raises(raised):
        unit.commit()
    assert slept
    assert set(books.rows(unit.id)) == {"head"}
    assert books.balance(account) == 100


@pytest.mark.shows("nothing left", "wrong clocks")
@THREADS_ONLY
@pytest.mark.parametrize("gone", [False, True], ids=["closed", "gone"])
def test_a_process_whose_clock_stood_still_deletes_rows_that_it_wrote_after_its_records_end_and_writes_no_more(
    books: Books, ann: Party, ben: Party, account: Key, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in [(_packing, "_PIECE_BYTES", 3_000), (_marked, "_AT_ONCE", 2)]:
        monkeypatch.setattr(module, name, value)
    unit, rows_after = ann.begin(engine="marked"), list[str]()

    def is_frozen() -> None:
        for _ in range(2):
            books.clock.freeze(LATER_S)
            ben.units.sweep()
        if gone:
            forget(books, ben, unit)

    unit.put(ann.accounts, {**account, "balance": 0, "long": LONG})
    before_the_nth(ann, 3, is_frozen, "PutItem")
    before_the_nth(ann, 4, lambda: rows_after.append("one more"), "PutItem")
    with pytest.raises(UnitForgotten if gone else UnitRolledBack):
        unit.commit()
    assert not rows_after
    assert set(books.rows(unit.id)) == (set() if gone else {"head"})
    assert books.balance(account) == 100


@pytest.mark.shows("atomicity", "known outcomes")
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


@pytest.mark.shows("committed reads", "killed coordinator", "known outcomes", "no dirty read")
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
    books.clock.advance(LEASE_S / 2)
    # Ann's first attempt takes long to arrive; the next one meets the mark, and no further request of hers arrives.
    ann.loses(Lost.REQUEST, 1, operation="TransactWriteItems")
    ann.loses(Lost.NOT_SENT, 2, inf, "UpdateItem")
    with pytest.raises(OutcomeUnknown):
        unit.commit()
    (late, *_) = (sent.parameters for sent in ann.line.sent if sent.operation == "TransactWriteItems")
    # Ben's lease ends, and hers, which began half a lease later, has not ended yet.
    books.clock.advance(LEASE_S / 2)
    assert units_world.party().units.sweep().rolled_back == 1
    assert books.balance(other) == 50
    books.plain_client.transact_write_items(**late)
    reader = units_world.party()
    assert reader.units.get(reader.accounts, other) == {**other, "balance": 0}


@pytest.mark.shows("known outcomes")
@THREADS_ONLY
def test_of_a_decision_without_an_answer_whose_record_is_gone_no_error_says_that_it_was_rolled_back(
    books: Books, units_world: UnitsWorld, ben: Party, account: Key
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        books.clock.sleep(seconds)
        if decision.seen >= decision.last and seconds == 0 and not slept:
            slept.append(seconds)
            forget(books, ben, unit)

    ann = units_world.party(sleep=sleep)
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, account, SET, {":balance": 0})
    decision = loses_its_decision(ann, Lost.REPLY, marks=1)
    with pytest.raises(UnitForgotten):
        unit.commit()
    assert slept
    with pytest.raises(UnitFinished, match="its outcome unknown"):
        unit.rollback()
    assert books.balance(account) == 0
