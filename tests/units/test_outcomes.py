"""Requests may be lost: a commit is applied once or not at all, or its outcome is unknown, and can be asked for."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from math import inf

import pytest
from botocore.exceptions import ClientError
from kit.crashes import crashes
from kit.units import THREADS_ONLY, VERSION, Books, Interrupt, Key, Killed, Lost, Party, dumped, some_account, some_name
from units.conftest import LEASE_S, MARGIN_S

from ticketlock.errors import (
    ConditionFailed,
    OutcomeUnknown,
    RequestNotApplied,
    UnitConflict,
    UnitFinished,
    UnitRolledBack,
)
from ticketlock.units import Outcome, Unit

pytestmark = pytest.mark.shows("known outcomes", "exactly once", "killed coordinator")

TAKE, ADD, TEN = "SET balance = balance - :n", "SET balance = balance + :n", {":n": 10}

COMMIT = "TransactWriteItems"
FORGETS_TOKENS = "moto"
"""The engine that applies a transaction twice if it is sent twice under one token and its conditions still hold
(docs/proof.md)."""


def takes_ten(party: Party, key: Key, **terms: object) -> Unit:
    """A unit that is about to be committed."""
    unit = party.begin(**terms)
    unit.update(party.accounts, key, TAKE, TEN)
    return unit


@pytest.fixture(params=[False, True], ids=["unnamed", "named"])
def name(request: pytest.FixtureRequest) -> str | None:
    """The name of a unit, or none."""
    return some_name() if request.param else None


def test_a_commit_whose_replies_are_all_lost_is_found_out_to_be_committed(
    books: Books, ann: Party, account: Key, other: Key, name: str | None
) -> None:
    ann.loses(Lost.REPLY, 1, inf, COMMIT)
    unit = takes_ten(ann, account, name=name)
    unit.update(ann.accounts, other, ADD, TEN)
    unit.put(ann.accounts, some_account(), condition="attribute_not_exists(id)")
    unit.commit()
    assert books.balances([account, other]) == [90, 60]


@THREADS_ONLY
def test_a_commit_whose_replies_are_all_lost_and_whose_item_others_have_changed_is_only_known_if_it_has_a_name(
    books: Books, ann: Party, ben: Party, account: Key, name: str | None
) -> None:
    ann.loses(Lost.REPLY, 1, inf, COMMIT)
    unit = takes_ten(ann, account, name=name)
    ann.line.between["GetItem"] = partial(ben.changes, account, 7)
    with nullcontext() if name else pytest.raises(OutcomeUnknown, match=unit.id):
        unit.commit()
    assert books.balance(account) == 7


def test_a_commit_whose_replies_are_all_lost_and_which_only_deletes_is_unknown(
    books: Books, ann: Party, account: Key
) -> None:
    ann.loses(Lost.REPLY, 1, inf, COMMIT)
    unit = ann.begin()
    unit.delete(ann.accounts, account)
    with pytest.raises(OutcomeUnknown, match="a unit with a name can be asked for"):
        unit.commit()
    assert books.raw("accounts", account) is None


@THREADS_ONLY
@pytest.mark.parametrize("writes", ["a version", "a receipt"])
def test_what_another_client_writes_between_two_attempts_leaves_the_outcome_unknown_and_the_unit_finished(
    books: Books, ann: Party, account: Key, writes: str
) -> None:
    """It refuses the second attempt, and does not show the outcome of the first, which may still arrive."""
    name = some_name() if writes == "a receipt" else None
    receipt = {"unit": f"name#{name}", "row": "receipt"}
    written = ("accounts", {**account, VERSION: 5}) if name is None else ("units", receipt)
    unit = takes_ten(ann, account, name=name)
    ann.loses(Lost.REQUEST, 1, operation=COMMIT)
    ann.line.between[COMMIT] = lambda: ann.line.between.update({COMMIT: lambda: books.write(*written)})
    with pytest.raises(OutcomeUnknown):
        unit.commit()
    for use in (partial(unit.get, ann.accounts, account), unit.commit, unit.rollback):
        with pytest.raises(UnitFinished, match="unknown"):
            use()
    books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped(receipt))


# Commits that the token alone prevents from being applied twice: each returns the balance on an engine that forgets it.


def count_blindly(ann: Party, unit: Unit, key: Key) -> int:
    unit.update(ann.accounts, key, ADD, TEN, blind=True)
    return 120


def count_blindly_if(ann: Party, unit: Unit, key: Key) -> int:
    unit.update(ann.accounts, key, ADD, {**TEN, ":old": 100}, condition="balance = :old", blind=True)
    return 110


@pytest.mark.parametrize("state", [count_blindly, count_blindly_if])
def test_a_second_attempt_after_a_lost_reply_is_the_first_one_again(
    books: Books, ann: Party, account: Key, state: Callable[[Party, Unit, Key], int], name: str | None
) -> None:
    ann.loses(Lost.REPLY, 1, operation=COMMIT)
    with ann.begin(name=name) as unit:
        if_forgotten = state(ann, unit, account)
    forgets = books.engine.name == FORGETS_TOKENS and name is None
    assert books.balance(account) == (if_forgotten if forgets else 110)
    tokens = [sent.parameters["ClientRequestToken"] for sent in ann.line.sent if sent.operation == COMMIT]
    assert tokens == [unit.id] * 2


def test_a_second_attempt_after_a_lost_reply_of_a_commit_that_only_deletes_is_known_by_its_token(
    books: Books, ann: Party, account: Key
) -> None:
    ann.loses(Lost.REPLY, 1, operation=COMMIT)
    unit = ann.begin()
    unit.delete(ann.accounts, account)
    # Without its token it finds no item: the first attempt has deleted it, or another client has.
    with pytest.raises(OutcomeUnknown) if books.engine.name == FORGETS_TOKENS else nullcontext():
        unit.commit()
    assert books.raw("accounts", account) is None


def test_a_second_attempt_after_a_lost_request_that_surely_was_not_sent_is_refused_by_its_condition(
    books: Books, ann: Party, account: Key
) -> None:
    ann.loses(Lost.NOT_SENT, 1, operation=COMMIT)
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, {":n": 500}, condition="balance >= :n", blind=True)
    with pytest.raises(ConditionFailed):
        unit.commit()
    assert books.balance(account) == 100


def deliver_late(books: Books, ann: Party) -> None:
    """Deliver a copy of the commit as it was sent, after its sender has given it up."""
    (commit, *_) = [sent for sent in ann.line.sent if sent.operation == COMMIT]
    books.plain_client.transact_write_items(**commit.parameters)


def test_a_commit_that_never_arrives_is_unknown_since_a_late_copy_is_applied_if_nothing_has_changed(
    books: Books, ann: Party, account: Key, name: str | None
) -> None:
    ann.loses(Lost.REQUEST, 1, inf, COMMIT)
    with pytest.raises(OutcomeUnknown) as raised:
        takes_ten(ann, account, name=name).commit()
    assert ("outcome(" in str(raised.value)) == (name is not None)
    assert books.balance(account) == 100
    deliver_late(books, ann)
    assert books.balance(account) == 90


@pytest.mark.parametrize(
    ("meanwhile", "left"), [("others change the item", 7), ("its name is committed", 90), ("its name is given up", 100)]
)
def test_a_copy_of_a_commit_that_arrives_after_the_item_or_the_use_of_the_name_has_changed_is_refused(
    books: Books, ann: Party, ben: Party, account: Key, meanwhile: str, left: int
) -> None:
    name = some_name()
    ann.loses(Lost.REQUEST, 1, inf, COMMIT)
    with pytest.raises(OutcomeUnknown):
        takes_ten(ann, account, name=name).commit()
    match meanwhile:
        case "others change the item":
            ben.changes(account, 7)
        case "its name is committed":
            takes_ten(ben, account, name=name).commit()
        case "its name is given up":
            assert ben.units.outcome(name=name).state is Outcome.ROLLED_BACK
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        deliver_late(books, ann)
    assert books.balance(account) == left


def test_a_copy_of_a_commit_that_arrives_late_is_not_applied_a_second_time(
    books: Books, ann: Party, account: Key, name: str | None
) -> None:
    takes_ten(ann, account, name=name).commit()
    forgets = books.engine.name == FORGETS_TOKENS
    with pytest.raises(ClientError, match="ConditionalCheckFailed") if forgets else nullcontext():
        deliver_late(books, ann)
    assert books.balance(account) == 90


def test_the_outcome_of_a_name_is_rolled_back_before_its_use_and_committed_afterwards_whichever_process_asks(
    ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    assert {party.units.outcome(name=name).state for party in (ann, ben)} == {Outcome.ROLLED_BACK}
    takes_ten(ann, account, name=name).commit()
    assert {party.units.outcome(name=name).state for party in (ann, ben)} == {Outcome.COMMITTED}


@pytest.mark.parametrize("engine", [None, "marked"])
def test_asking_for_the_outcome_of_a_name_rolls_back_the_unit_that_was_about_to_be_committed_with_it(
    books: Books, ann: Party, ben: Party, account: Key, engine: str | None
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, name=name, engine=engine)
    assert ben.units.outcome(name=name).state is Outcome.ROLLED_BACK
    with pytest.raises(UnitRolledBack):
        unit.commit()
    assert books.balance(account) == 100


def test_the_outcome_of_a_name_after_an_unknown_outcome_is_committed_if_it_was(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, name=name)
    # The name's receipt cannot be read either.
    ann.loses(Lost.REPLY, 1, inf)
    with pytest.raises(OutcomeUnknown, match="outcome"):
        unit.commit()
    assert ben.units.outcome(name=name).state is Outcome.COMMITTED
    assert books.balance(account) == 90


@THREADS_ONLY
def test_the_outcome_of_a_name_that_is_committed_while_it_is_asked_for_is_committed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, name=name)
    # It was not used when it was read.
    ben.line.between["PutItem"] = unit.commit
    assert ben.units.outcome(name=name).state is Outcome.COMMITTED
    assert books.balance(account) == 90


@pytest.mark.parametrize(
    ("engine", "conflict", "outcome"),
    [("marked", False, Outcome.COMMITTED), ("marked", True, Outcome.ROLLED_BACK), (None, False, Outcome.FORGOTTEN)],
    ids=lambda each: str(getattr(each, "value", each)),
)
def test_the_outcome_of_a_unit_by_its_id_is_known_if_it_has_used_marks_and_forgotten_otherwise(
    ann: Party, ben: Party, account: Key, engine: str | None, conflict: bool, outcome: Outcome
) -> None:
    """One request leaves no record: a caller that may have to ask gives the unit a name."""
    unit = takes_ten(ann, account, engine=engine)
    if conflict:
        ben.changes(account, 1)
    with pytest.raises(UnitConflict) if conflict else nullcontext():
        unit.commit()
    assert ben.units.outcome(unit=unit.id).state is outcome


@THREADS_ONLY
def test_the_outcome_of_a_unit_that_was_killed_is_pending_until_its_lease_is_over_and_rolled_back_from_then_on(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = takes_ten(ann, account, engine="marked")
    unit.update(ann.accounts, other, TAKE, TEN)
    crashes(ann, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    assert ben.units.outcome(unit=unit.id).state is Outcome.PENDING
    books.clock.advance(LEASE_S + MARGIN_S)
    assert ben.units.outcome(unit=unit.id).state is Outcome.ROLLED_BACK
    assert books.balances([account, other]) == [100, 50]


@pytest.mark.parametrize("engine", ["native", "marked"])
@pytest.mark.parametrize("is_saved", [False, True], ids=["open", "saved"])
@pytest.mark.parametrize("is_given_up_again", [False, True], ids=["left alone", "given up again"])
def test_a_name_that_was_given_up_may_be_used_after_time_to_live_has_deleted_its_receipt(
    books: Books, ann: Party, ben: Party, account: Key, engine: str, is_saved: bool, is_given_up_again: bool
) -> None:
    name = some_name()
    ben.units.outcome(name=name)
    unit = takes_ten(ann, account, name=name, engine=engine)
    saved = unit.save() if is_saved else None
    receipt = dumped({"unit": f"name#{name}", "row": "receipt"})
    books.plain_client.delete_item(TableName=books.tables["units"], Key=receipt)
    if is_given_up_again:
        assert ben.units.outcome(name=name).state is Outcome.ROLLED_BACK
    with pytest.raises(UnitRolledBack, match="given up") if is_given_up_again else nullcontext():
        (unit if saved is None else ben.units.resume(saved)).commit()
    assert books.balance(account) == (100 if is_given_up_again else 90)
    assert ben.units.outcome(name=name).state is (Outcome.ROLLED_BACK if is_given_up_again else Outcome.COMMITTED)


def test_a_save_that_is_not_answered_is_unknown_until_it_is_resumed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = takes_ten(ann, account)
    ann.loses(Lost.REPLY, 1, inf, "PutItem")
    with pytest.raises(OutcomeUnknown):
        unit.save()
    with pytest.raises(UnitFinished, match="unknown"):
        unit.commit()
    ben.units.resume(unit.id).commit()
    assert books.balance(account) == 90


@pytest.mark.parametrize("row", [1, 2], ids=["the row of what is stated", "the record that names it"])
def test_a_save_that_was_not_sent_leaves_the_unit_open_and_the_next_save_has_what_was_stated_in_between(
    books: Books, ann: Party, ben: Party, account: Key, row: int
) -> None:
    unit = ann.begin()
    unit.put(ann.accounts, {**some_account(), "raw": os.urandom(4_000)})
    loss = ann.loses(Lost.NOT_SENT, row, inf, "PutItem")
    with pytest.raises(RequestNotApplied):
        unit.save()
    ann.line.losses.remove(loss)
    unit.update(ann.accounts, account, TAKE, TEN)
    ben.units.resume(unit.save()).commit()
    assert books.balance(account) == 90


def test_resuming_shows_the_outcome_of_a_commit_that_was_not_answered(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    saved = ann.saves(account)
    unit = ann.units.resume(saved)
    ann.loses(Lost.REQUEST, 1, inf)
    with pytest.raises(OutcomeUnknown, match="resume"):
        unit.commit()
    ann.line.losses.clear()
    again = ben.units.resume(saved)
    assert not again.repeated
    again.commit()
    assert books.balance(account) == 90


@THREADS_ONLY
def test_a_resumed_unit_that_is_interrupted_in_a_statement_is_as_it_was_saved(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    saved = ann.saves(account)
    unit = ann.units.resume(saved)
    ann.loses(Lost.INTERRUPTED_AFTER, 1)
    with pytest.raises(Interrupt):
        unit.get(ann.accounts, other)
    ann.line.losses.clear()
    ben.units.resume(saved).commit()
    assert books.balance(account) == 90
