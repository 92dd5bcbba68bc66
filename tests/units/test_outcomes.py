"""The outcome of a name or of a unit is final for every process that asks, even if requests still arrive late."""

import pytest
from kit.crashes import crashes
from kit.units import THREADS_ONLY, Books, Key, Killed, Lost, Party, dumped, some_name

from ticketlock.errors import InvalidUnitRequest, OutcomeUnknown, UnitConflict, UnitRolledBack
from ticketlock.units import Outcome, Unit

pytestmark = pytest.mark.shows("exactly once", "killed coordinator")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}
LEASE_S, MARGIN_S = 60, 5


def takes_ten(party: Party, key: Key, **terms: object) -> Unit:
    """A unit that is about to be committed."""
    unit = party.begin(**terms)
    unit.update(party.accounts, key, TAKE, TEN)
    return unit


class TestOfAName:
    def test_that_was_committed_whichever_process_asks(self, ann: Party, ben: Party, account: Key) -> None:
        name = some_name()
        takes_ten(ann, account, name=name).commit()
        assert {party.units.outcome(name=name) for party in (ann, ben)} == {Outcome.COMMITTED}

    def test_that_was_not_used_is_rolled_back_and_may_be_used_afterwards(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        name = some_name()
        assert [ann.units.outcome(name=name) for _ in range(2)] == [Outcome.ROLLED_BACK] * 2
        takes_ten(ann, account, name=name).commit()
        assert ann.units.outcome(name=name) is Outcome.COMMITTED
        assert books.balance(account) == 90

    @pytest.mark.parametrize("engine", [None, "marked"])
    def test_that_was_given_up_is_refused_to_the_unit_that_was_on_its_way_with_it(
        self, books: Books, ann: Party, ben: Party, account: Key, engine: str | None
    ) -> None:
        name = some_name()
        unit = takes_ten(ann, account, name=name, engine=engine)
        assert ben.units.outcome(name=name) is Outcome.ROLLED_BACK
        with pytest.raises(UnitRolledBack):
            unit.commit()
        assert books.balance(account) == 100

    def test_after_an_unknown_outcome_is_right_for_good_however_late_the_request_comes(
        self, books: Books, ann: Party, ben: Party, account: Key
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

    def test_after_an_unknown_outcome_is_committed_if_it_was(
        self, books: Books, ann: Party, ben: Party, account: Key
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
    def test_that_is_committed_while_it_is_asked_for_is_committed(
        self, books: Books, ann: Party, ben: Party, account: Key
    ) -> None:
        name = some_name()
        unit = takes_ten(ann, account, name=name)
        # It was not used when it was read.
        ben.line.between["PutItem"] = unit.commit
        assert ben.units.outcome(name=name) is Outcome.COMMITTED
        assert books.balance(account) == 90


class TestOfAUnit:
    def test_that_was_committed_by_marks(self, ann: Party, ben: Party, account: Key) -> None:
        unit = takes_ten(ann, account, engine="marked")
        unit.commit()
        assert ben.units.outcome(unit=unit.id) is Outcome.COMMITTED

    def test_that_met_a_conflict_under_marks_is_rolled_back(self, ann: Party, ben: Party, account: Key) -> None:
        unit = takes_ten(ann, account, engine="marked")
        ben.changes(account, 1)
        with pytest.raises(UnitConflict):
            unit.commit()
        assert ben.units.outcome(unit=unit.id) is Outcome.ROLLED_BACK

    def test_that_was_committed_in_one_request_is_forgotten(self, ann: Party, account: Key) -> None:
        """It leaves no record: a caller that may have to ask gives it a name."""
        unit = takes_ten(ann, account)
        unit.commit()
        assert ann.units.outcome(unit=unit.id) is Outcome.FORGOTTEN

    @THREADS_ONLY
    def test_that_was_killed_is_pending_until_its_lease_is_over_and_rolled_back_from_then_on(
        self, books: Books, ann: Party, ben: Party, account: Key, other: Key
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
def test_a_question_that_is_none_is_refused(books: Books, ann: Party, field: str, asked: dict[str, str]) -> None:
    before = books.everything()
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.units.outcome(**asked)
    assert refused.value.field == field
    assert books.everything() == before


@pytest.mark.parametrize("engine", ["native", "marked"])
class TestANameWhoseReceiptTimeToLiveHasDeleted:
    def test_may_be_given_up_again_for_a_unit_that_has_seen_the_first_time(
        self, books: Books, ann: Party, ben: Party, account: Key, engine: str
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

    def test_is_as_free_as_it_was(self, books: Books, ann: Party, ben: Party, account: Key, engine: str) -> None:
        name = some_name()
        ben.units.outcome(name=name)
        unit = ann.begin(name=name, engine=engine)
        unit.update(ann.accounts, account, TAKE, TEN)
        expires(books, name)
        unit.commit()
        assert (books.balance(account), ben.units.outcome(name=name)) == (90, Outcome.COMMITTED)

    def test_leaves_a_saved_unit_that_may_be_resumed(
        self, books: Books, ann: Party, ben: Party, account: Key, engine: str
    ) -> None:
        name = some_name()
        ben.units.outcome(name=name)
        saved = ann.saves(account, name=name, engine=engine)
        expires(books, name)
        ben.units.resume(saved).commit()
        assert (books.balance(account), ben.units.outcome(name=name)) == (90, Outcome.COMMITTED)

    def test_ends_a_saved_unit_if_it_is_given_up_again(
        self, books: Books, ann: Party, ben: Party, account: Key, engine: str
    ) -> None:
        name = some_name()
        ben.units.outcome(name=name)
        saved = ann.saves(account, name=name, engine=engine)
        expires(books, name)
        assert ben.units.outcome(name=name) is Outcome.ROLLED_BACK
        with pytest.raises(UnitRolledBack, match="given up"):
            ben.units.resume(saved)


def expires(books: Books, name: str) -> None:
    """Time to live deletes the receipt of a name."""
    key = dumped({"unit": f"name#{name}", "row": "receipt"})
    books.plain_client.delete_item(TableName=books.tables["units"], Key=key)
