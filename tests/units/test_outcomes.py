"""Requests may be lost: a commit is applied once or not at all, or its outcome is unknown, and can be asked for."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import pytest
from botocore.exceptions import ClientError
from kit.crashes import crashes
from kit.units import THREADS_ONLY, VERSION, Books, Interrupt, Key, Killed, Lost, Party, dumped, some_account, some_name

from ticketlock.errors import (
    ConditionFailed,
    InvalidUnitRequest,
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

LEASE_S, MARGIN_S = 60, 5


@dataclass
class Transfer:
    """A transfer of ten from one account to another, with a new item that records it.

    Attributes:
        name: of its unit, or None.
    """

    books: Books
    party: Party
    name: str | None
    source: Key
    target: Key
    note: Key

    def run(self) -> None:
        with self.party.begin(name=self.name) as unit:
            unit.get_all([(self.party.accounts, self.source), (self.party.accounts, self.target)])
            unit.update(self.party.accounts, self.source, TAKE, TEN)
            unit.update(self.party.accounts, self.target, ADD, TEN)
            unit.put(self.party.accounts, self.note, condition="attribute_not_exists(id)")

    def times(self) -> int:
        """How many times it was applied."""
        moved = (100 - self.books.balance(self.source)) // 10
        assert self.books.balance(self.target) == 50 + 10 * moved
        assert (self.books.raw("accounts", self.note) is not None) == (moved > 0)
        return moved


@pytest.fixture(params=["unnamed", "named"])
def transfer(request: pytest.FixtureRequest, books: Books, ann: Party, account: Key, other: Key) -> Transfer:
    name = some_name() if request.param == "named" else None
    return Transfer(books, ann, name, account, other, some_account())


def test_a_commit_whose_replies_are_all_lost_is_found_out_to_be_committed(ann: Party, transfer: Transfer) -> None:
    ann.loses(Lost.REPLY, 1, 1_000, COMMIT)
    transfer.run()
    assert transfer.times() == 1


@THREADS_ONLY
def test_a_commit_whose_replies_are_all_lost_is_known_by_its_name_alone_if_others_have_written_since(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    ann.loses(Lost.REPLY, 1, 1_000, COMMIT)
    for name in (None, some_name()):
        unit = ann.begin(name=name)
        unit.update(ann.accounts, account, TAKE, TEN)
        ann.line.between["GetItem"] = partial(ben.changes, account, 7)
        with nullcontext() if name else pytest.raises(OutcomeUnknown, match=unit.id):
            unit.commit()
        assert books.balance(account) == 7


def test_a_commit_whose_replies_are_all_lost_which_only_deletes_leaves_nothing_to_find_out_by(
    books: Books, ann: Party, account: Key
) -> None:
    ann.loses(Lost.REPLY, 1, 1_000, COMMIT)
    unit = ann.begin()
    unit.delete(ann.accounts, account)
    with pytest.raises(OutcomeUnknown, match="a unit with a name can be asked for"):
        unit.commit()
    assert books.raw("accounts", account) is None


def test_a_commit_that_never_arrives_is_unknown_and_named_units_say_whom_to_ask(ann: Party, transfer: Transfer) -> None:
    ann.loses(Lost.REQUEST, 1, 1_000, COMMIT)
    with pytest.raises(OutcomeUnknown) as raised:
        transfer.run()
    assert transfer.times() == 0
    assert ("outcome(" in str(raised.value)) == (transfer.name is not None)


def test_after_an_unknown_outcome_the_unit_is_finished(ann: Party, account: Key) -> None:
    ann.loses(Lost.REQUEST, 1, 1_000)
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN, blind=True)
    with pytest.raises(OutcomeUnknown):
        unit.commit()
    for use in (partial(unit.get, ann.accounts, account), unit.commit):
        with pytest.raises(UnitFinished, match="unknown"):
            use()


class TestWhatAnotherClientWritesBetweenTwoAttempts:
    """It refuses the second attempt, and does not show the outcome of the first."""

    pytestmark = THREADS_ONLY

    def ends_unknown(self, ann: Party, unit: Unit, write: Callable[[], object]) -> None:
        ann.loses(Lost.REQUEST, 1, operation=COMMIT)

        def at_the_next() -> None:
            ann.line.between[COMMIT] = write

        ann.line.between[COMMIT] = at_the_next
        with pytest.raises(OutcomeUnknown):
            unit.commit()
        with pytest.raises(UnitFinished, match="unknown"):
            unit.rollback()

    def test_a_version_that_another_client_writes_between_two_attempts_leaves_the_outcome_unknown(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        unit = ann.begin()
        unit.update(ann.accounts, account, TAKE, TEN)
        self.ends_unknown(ann, unit, lambda: books.write("accounts", {**account, VERSION: 5}))

    def test_a_receipt_that_another_client_writes_between_two_attempts_leaves_the_outcome_unknown(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        name = some_name()
        receipt = {"unit": f"name#{name}", "row": "receipt"}
        unit = ann.begin(name=name)
        unit.update(ann.accounts, account, TAKE, TEN)
        self.ends_unknown(ann, unit, lambda: books.write("units", receipt))
        books.plain_client.delete_item(TableName=books.tables["units"], Key=dumped(receipt))


def test_all_attempts_to_commit_are_under_the_units_own_token(ann: Party, account: Key) -> None:
    ann.loses(Lost.REPLY, 1, operation=COMMIT)
    with ann.begin() as unit:
        unit.update(ann.accounts, account, TAKE, TEN)
    tokens = [sent.parameters["ClientRequestToken"] for sent in ann.line.sent if sent.operation == COMMIT]
    assert tokens == [unit.id] * 2


# Commits that only the token prevents from being applied twice, and the result on engines that forget tokens.


def count_blindly(ann: Party, unit: Unit, key: Key) -> None:
    unit.update(ann.accounts, key, ADD, TEN, blind=True)


def count_blindly_if(ann: Party, unit: Unit, key: Key) -> None:
    unit.update(ann.accounts, key, ADD, {**TEN, ":old": 100}, condition="balance = :old", blind=True)


def delete(ann: Party, unit: Unit, key: Key) -> None:
    unit.delete(ann.accounts, key)


@pytest.mark.parametrize("state", [count_blindly, count_blindly_if, delete])
def test_a_second_attempt_after_a_lost_reply_is_the_first_one_again(
    books: Books, ann: Party, account: Key, state: Callable[[Party, Unit, Key], None]
) -> None:
    ann.loses(Lost.REPLY, 1, operation=COMMIT)
    unit = ann.begin()
    state(ann, unit, account)
    if books.engine.name == FORGETS_TOKENS and state is delete:
        # The second attempt finds no item: the first attempt has deleted it, or another client has.
        with pytest.raises(OutcomeUnknown):
            unit.commit()
        return
    unit.commit()
    twice = books.engine.name == FORGETS_TOKENS and state is count_blindly
    assert books.item("accounts", account) == (
        None if state is delete else {**account, "balance": 120 if twice else 110}
    )


def test_a_second_attempt_after_a_lost_reply_of_a_named_unit_is_never_applied_twice(
    books: Books, ann: Party, account: Key
) -> None:
    ann.loses(Lost.REPLY, 1, operation=COMMIT)
    with ann.begin(name=some_name()) as unit:
        count_blindly(ann, unit, account)
    assert books.balance(account) == 110


def test_a_second_attempt_after_a_lost_request_that_meets_a_change_is_unknown(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    """The first attempt may still arrive, or may have been lost: the sender cannot know."""
    ann.loses(Lost.REQUEST, 1, operation=COMMIT)
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    ben.changes(account, 7)
    with pytest.raises(OutcomeUnknown):
        unit.commit()
    assert books.balance(account) == 7


def test_a_second_attempt_after_a_lost_request_that_surely_was_not_sent_is_refused_by_its_condition(
    books: Books, ann: Party, account: Key
) -> None:
    ann.loses(Lost.NOT_SENT, 1, operation=COMMIT)
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, {":n": 500}, condition="balance >= :n", blind=True)
    with pytest.raises(ConditionFailed):
        unit.commit()
    assert books.balance(account) == 100


class TestACopyOfACommitThatArrivesLate:
    def arrives(self, books: Books, ann: Party) -> None:
        """The request as it was sent: a copy that arrives after its sender has given it up."""
        (commit, *_) = [sent for sent in ann.line.sent if sent.operation == COMMIT]
        books.plain_client.transact_write_items(**commit.parameters)

    def test_a_copy_of_a_commit_that_arrives_late_is_applied_if_nothing_has_changed_which_is_why_it_is_unknown(
        self, books: Books, ann: Party, transfer: Transfer
    ) -> None:
        ann.loses(Lost.REQUEST, 1, 1_000, COMMIT)
        with pytest.raises(OutcomeUnknown):
            transfer.run()
        assert transfer.times() == 0
        self.arrives(books, ann)
        assert transfer.times() == 1

    def test_a_copy_of_a_commit_that_arrives_late_is_refused_if_others_have_changed_what_it_rests_on(
        self, books: Books, ann: Party, ben: Party, transfer: Transfer
    ) -> None:
        ann.loses(Lost.REQUEST, 1, 1_000, COMMIT)
        with pytest.raises(OutcomeUnknown):
            transfer.run()
        ben.changes(transfer.source, 7)
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            self.arrives(books, ann)
        assert (books.balance(transfer.source), books.balance(transfer.target)) == (7, 50)

    def test_a_copy_of_a_commit_that_arrives_late_is_refused_if_its_name_was_committed_by_another_attempt(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = some_name()
        ann.loses(Lost.REQUEST, 1, 1_000, COMMIT)
        unit = ann.begin(name=name)
        count_blindly(ann, unit, account)
        with pytest.raises(OutcomeUnknown):
            unit.commit()
        with ben.begin(name=name) as again:
            count_blindly(ben, again, account)
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            self.arrives(books, ann)
        assert books.balance(account) == 110

    def test_a_copy_of_a_commit_that_arrives_late_is_not_applied_a_second_time(
        self, books: Books, ann: Party, transfer: Transfer
    ) -> None:
        transfer.run()
        if books.engine.name == FORGETS_TOKENS:
            with pytest.raises(ClientError, match="ConditionalCheckFailed"):
                self.arrives(books, ann)
        else:
            self.arrives(books, ann)
        assert transfer.times() == 1


def takes_ten(party: Party, key: Key, **terms: object) -> Unit:
    """A unit that is about to be committed."""
    unit = party.begin(**terms)
    unit.update(party.accounts, key, TAKE, TEN)
    return unit


def test_the_outcome_of_a_name_is_the_same_whichever_process_asks(ann: Party, ben: Party, account: Key) -> None:
    name = some_name()
    takes_ten(ann, account, name=name).commit()
    assert {party.units.outcome(name=name) for party in (ann, ben)} == {Outcome.COMMITTED}


def test_the_outcome_of_a_name_that_was_not_used_is_rolled_back_and_may_be_used_afterwards(
    books: Books, ann: Party, account: Key
) -> None:
    name = some_name()
    assert [ann.units.outcome(name=name) for _ in range(2)] == [Outcome.ROLLED_BACK] * 2
    takes_ten(ann, account, name=name).commit()
    assert ann.units.outcome(name=name) is Outcome.COMMITTED
    assert books.balance(account) == 90


@pytest.mark.parametrize("engine", [None, "marked"])
def test_the_outcome_of_a_name_that_was_given_up_is_refused_to_the_unit_that_was_on_its_way_with_it(
    books: Books, ann: Party, ben: Party, account: Key, engine: str | None
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, name=name, engine=engine)
    assert ben.units.outcome(name=name) is Outcome.ROLLED_BACK
    with pytest.raises(UnitRolledBack):
        unit.commit()
    assert books.balance(account) == 100


def test_the_outcome_of_a_name_after_an_unknown_outcome_is_right_for_good_however_late_the_request_comes(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    ann.loses(Lost.REQUEST, 1, 1_000, "TransactWriteItems")
    with pytest.raises(OutcomeUnknown):
        takes_ten(ann, account, name=name).commit()
    (late, *_) = (sent.parameters for sent in ann.line.sent if sent.operation == "TransactWriteItems")
    assert ben.units.outcome(name=name) is Outcome.ROLLED_BACK
    with pytest.raises(books.plain_client.exceptions.TransactionCanceledException):
        books.plain_client.transact_write_items(**late)
    assert books.balance(account) == 100


def test_the_outcome_of_a_name_after_an_unknown_outcome_is_committed_if_it_was(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, name=name)
    # The name's receipt cannot be read either.
    ann.loses(Lost.REPLY, 1, 1_000)
    with pytest.raises(OutcomeUnknown, match="outcome"):
        unit.commit()
    assert ben.units.outcome(name=name) is Outcome.COMMITTED
    assert books.balance(account) == 90


@THREADS_ONLY
def test_the_outcome_of_a_name_that_is_committed_while_it_is_asked_for_is_committed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, name=name)
    # It was not used when it was read.
    ben.line.between["PutItem"] = unit.commit
    assert ben.units.outcome(name=name) is Outcome.COMMITTED
    assert books.balance(account) == 90


def test_the_outcome_of_a_unit_that_was_committed_by_marks_is_known(ann: Party, ben: Party, account: Key) -> None:
    unit = takes_ten(ann, account, engine="marked")
    unit.commit()
    assert ben.units.outcome(unit=unit.id) is Outcome.COMMITTED


def test_the_outcome_of_a_unit_that_met_a_conflict_under_marks_is_rolled_back(
    ann: Party, ben: Party, account: Key
) -> None:
    unit = takes_ten(ann, account, engine="marked")
    ben.changes(account, 1)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert ben.units.outcome(unit=unit.id) is Outcome.ROLLED_BACK


def test_the_outcome_of_a_unit_that_was_committed_in_one_request_is_forgotten(ann: Party, account: Key) -> None:
    """It leaves no record: a caller that may have to ask gives it a name."""
    unit = takes_ten(ann, account)
    unit.commit()
    assert ann.units.outcome(unit=unit.id) is Outcome.FORGOTTEN


@THREADS_ONLY
def test_the_outcome_of_a_unit_that_was_killed_is_pending_until_its_lease_is_over_and_rolled_back_from_then_on(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    unit = takes_ten(ann, account, engine="marked")
    unit.update(ann.accounts, other, TAKE, TEN)
    crashes(ann, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    assert ben.units.outcome(unit=unit.id) is Outcome.PENDING
    books.clock.advance(LEASE_S + MARGIN_S)
    assert ben.units.outcome(unit=unit.id) is Outcome.ROLLED_BACK
    assert [books.balance(key) for key in (account, other)] == [100, 50]


@pytest.mark.parametrize(
    ("field", "asked"),
    [("name", {}), ("name", {"name": "a", "unit": "b"}), ("name", {"name": ""}), ("unit", {"unit": "mine"})],
    ids=["nothing", "both", "an empty name", "what is no id"],
)
def test_an_outcome_that_is_asked_for_with_wrong_arguments_is_refused(
    books: Books, ann: Party, field: str, asked: dict[str, str]
) -> None:
    before = books.everything()
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.units.outcome(**asked)
    assert refused.value.field == field
    assert books.everything() == before


def expires(books: Books, name: str) -> None:
    """Time to live deletes the receipt of a name."""
    key = dumped({"unit": f"name#{name}", "row": "receipt"})
    books.plain_client.delete_item(TableName=books.tables["units"], Key=key)


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_a_name_whose_receipt_time_to_live_has_deleted_may_be_given_up_again_for_a_unit_that_has_seen_the_first_time(
    books: Books, ann: Party, ben: Party, account: Key, engine: str
) -> None:
    name = some_name()
    ben.units.outcome(name=name)
    unit = ann.begin(name=name, engine=engine)
    unit.update(ann.accounts, account, TAKE, TEN)
    expires(books, name)
    assert ben.units.outcome(name=name) is Outcome.ROLLED_BACK
    with pytest.raises(UnitRolledBack, match="given up"):
        unit.commit()
    assert books.balance(account) == 100


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_a_name_whose_receipt_time_to_live_has_deleted_is_as_free_as_it_was(
    books: Books, ann: Party, ben: Party, account: Key, engine: str
) -> None:
    name = some_name()
    ben.units.outcome(name=name)
    unit = ann.begin(name=name, engine=engine)
    unit.update(ann.accounts, account, TAKE, TEN)
    expires(books, name)
    unit.commit()
    assert (books.balance(account), ben.units.outcome(name=name)) == (90, Outcome.COMMITTED)


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_a_name_whose_receipt_time_to_live_has_deleted_leaves_a_saved_unit_that_may_be_resumed(
    books: Books, ann: Party, ben: Party, account: Key, engine: str
) -> None:
    name = some_name()
    ben.units.outcome(name=name)
    saved = ann.saves(account, name=name, engine=engine)
    expires(books, name)
    ben.units.resume(saved).commit()
    assert (books.balance(account), ben.units.outcome(name=name)) == (90, Outcome.COMMITTED)


@pytest.mark.parametrize("engine", ["native", "marked"])
def test_a_name_whose_receipt_time_to_live_has_deleted_ends_a_saved_unit_if_it_is_given_up_again(
    books: Books, ann: Party, ben: Party, account: Key, engine: str
) -> None:
    name = some_name()
    ben.units.outcome(name=name)
    saved = ann.saves(account, name=name, engine=engine)
    expires(books, name)
    assert ben.units.outcome(name=name) is Outcome.ROLLED_BACK
    with pytest.raises(UnitRolledBack, match="given up"):
        ben.units.resume(saved)


def test_a_save_that_is_not_answered_is_unknown_until_it_is_resumed(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    ann.loses(Lost.REPLY, 1, 1_000, "PutItem")
    with pytest.raises(OutcomeUnknown):
        unit.save()
    with pytest.raises(UnitFinished, match="unknown"):
        unit.commit()
    ben.units.resume(unit.id).commit()
    assert books.balance(account) == 90


def test_a_save_that_was_not_sent_leaves_the_unit_open(books: Books, ann: Party, account: Key) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, TAKE, TEN)
    loss = ann.loses(Lost.NOT_SENT, 1, 1_000, "PutItem")
    with pytest.raises(RequestNotApplied):
        unit.save()
    ann.line.losses.remove(loss)
    unit.commit()
    assert books.balance(account) == 90


def test_a_save_after_one_that_failed_half_way_has_what_was_stated_in_between(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    unit = ann.begin()
    unit.put(ann.accounts, {**some_account(), "raw": os.urandom(4_000)})
    # Its row is written, and the record that names it is not.
    loss = ann.loses(Lost.NOT_SENT, 2, 1_000, "PutItem")
    with pytest.raises(RequestNotApplied):
        unit.save()
    ann.line.losses.remove(loss)
    unit.update(ann.accounts, account, TAKE, TEN)
    ben.units.resume(unit.save()).commit()
    assert books.balance(account) == 90


def test_resuming_shows_the_outcome_of_a_commit_that_was_not_answered(
    books: Books, ann: Party, ben: Party, account: Key
) -> None:
    name = ann.saves(account)
    unit = ann.units.resume(name)
    ann.loses(Lost.REQUEST, 1, 1_000)
    with pytest.raises(OutcomeUnknown, match="resume"):
        unit.commit()
    ann.line.losses.clear()
    again = ben.units.resume(name)
    assert not again.repeated
    again.commit()
    assert books.balance(account) == 90


@THREADS_ONLY
def test_a_resumed_unit_that_is_interrupted_in_a_statement_is_as_it_was_saved(
    books: Books, ann: Party, ben: Party, account: Key, other: Key
) -> None:
    name = ann.saves(account)
    unit = ann.units.resume(name)
    ann.loses(Lost.INTERRUPTED_AFTER, 1)
    with pytest.raises(Interrupt):
        unit.get(ann.accounts, other)
    ann.line.losses.clear()
    ben.units.resume(name).commit()
    assert books.balance(account) == 90
