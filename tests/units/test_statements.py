"""Every statement is evaluated at once, on the item as the unit has it; all statements on one item are one write."""

from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr
from kit.units import VERSION, Books, Key, Party, some_account, some_line

from ticketlock.errors import ConditionFailed, InvalidUnitRequest

pytestmark = pytest.mark.shows("DynamoDB's statements")

ENOUGH = "balance >= :n"


class TestAUnitReadsItsOwnWrites:
    @pytest.mark.parametrize("is_there", [False, True], ids=["a new item", "over another"])
    def test_what_it_has_put(self, books: Books, ann: Party, is_there: bool) -> None:
        key = books.account(100, colour="red") if is_there else some_account()
        with ann.begin() as unit:
            unit.put(ann.accounts, {**key, "balance": 1})
            assert unit.get(ann.accounts, key) == {**key, "balance": 1}

    def test_what_it_has_updated(self, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "SET balance = balance - :n", {":n": 10})
            assert unit.get(ann.accounts, account) == {**account, "balance": 90}

    def test_what_it_has_deleted(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            assert unit.get(ann.accounts, account) == {**account, "balance": 100}
            unit.delete(ann.accounts, account)
            assert unit.get(ann.accounts, account) is None
        assert books.raw("accounts", account) is None

    def test_what_it_has_updated_blindly(self, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "SET balance = balance + :n", {":n": 1}, blind=True)
            assert unit.get(ann.accounts, account) == {**account, "balance": 101}

    def test_in_a_cut_beside_what_others_wrote(self, ann: Party, account: Key, other: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "SET balance = :n", {":n": 7})
            assert unit.get_all([(ann.accounts, account), (ann.accounts, other)]) == [
                {**account, "balance": 7},
                {**other, "balance": 50},
            ]

    def test_and_no_other_client_does_before_the_commit(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "SET balance = :n", {":n": 7})
            assert books.balance(account) == 100
        assert books.balance(account) == 7


class TestManyStatementsOnOneItemAreOneWrite:
    def test_of_updates_the_last_value_is_written_once(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            for _ in range(3):
                unit.update(ann.accounts, account, "SET balance = balance + :n", {":n": 1})
        assert books.item("accounts", account) == {**account, "balance": 103}
        (written,) = [sent for sent in ann.line.sent if sent.operation == "TransactWriteItems"]
        assert len(written.parameters["TransactItems"]) == 1

    def test_a_put_after_a_delete_leaves_nothing_of_the_item_before(
        self, books: Books, ann: Party, account: Key
    ) -> None:
        with ann.begin() as unit:
            unit.delete(ann.accounts, account)
            unit.put(ann.accounts, {**account, "colour": "red"}, condition="attribute_not_exists(id)")
        assert books.item("accounts", account) == {**account, "colour": "red"}

    def test_a_put_takes_out_what_it_does_not_have(self, books: Books, ann: Party) -> None:
        key = books.account(5, colour="red", size={"width": 1})
        with ann.begin() as unit:
            unit.put(ann.accounts, {**key, "balance": 6})
        assert books.item("accounts", key) == {**key, "balance": 6}

    def test_an_item_that_is_made_and_deleted_is_not_there(self, books: Books, ann: Party) -> None:
        key = some_account()
        with ann.begin() as unit:
            unit.put(ann.accounts, {**key, "balance": 1})
            unit.delete(ann.accounts, key)
        assert books.raw("accounts", key) is None

    def test_keys_that_are_equal_numbers_are_one_item(self, books: Books, ann: Party) -> None:
        key = some_line(1)
        with ann.begin() as unit:
            unit.put(ann.lines, {**key, "amount": 1})
            unit.update(ann.lines, {**key, "sk": Decimal("1.0")}, "SET amount = amount + :n", {":n": 1})
        assert books.item("lines", key) == {**key, "amount": 2}


def test_one_unit_writes_to_several_tables_and_to_keys_of_other_names(books: Books, ann: Party, account: Key) -> None:
    line = some_line(3)
    with ann.begin() as unit:
        unit.update(ann.accounts, account, "SET balance = balance - :n", {":n": 3})
        unit.put(ann.lines, {**line, "amount": 3})
    assert (books.balance(account), books.item("lines", line)) == (97, {**line, "amount": 3})
    assert books.raw("lines", line) == {**line, "amount": 3, VERSION: books.version(account)}


def test_every_kind_of_value_is_stored_and_read_as_it_was_given(ann: Party) -> None:
    key = some_account()
    item: dict[str, Any] = {
        **key,
        "text": "größer",
        "number": Decimal("-12.50"),
        "yes": True,
        "nothing": None,
        "bytes": b"\x00\xff",
        "list": ["a", 1, {"b": [False]}],
        "map": {"c": {"d": Decimal("1E-130")}},
        "texts": {"x", "y"},
        "numbers": {1, 2},
        "names that are DynamoDB's own": {"size": 1, "#": 2},
    }
    with ann.begin() as unit:
        unit.put(ann.accounts, item)
    with ann.begin() as unit:
        found = unit.get(ann.accounts, key)
        assert found is not None
        assert {**found, "bytes": bytes(found["bytes"])} == item


def test_attributes_of_units_are_shown_to_no_reader(ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        assert unit.get(ann.accounts, account) == {**account, "balance": 100}
    assert ann.units.get(ann.accounts, account) == {**account, "balance": 100}


@pytest.mark.parametrize("condition", [ENOUGH, Attr("balance").gte(101)], ids=["text", "Attr"])
class TestACondition:
    def test_that_does_not_hold_is_raised_at_its_line_and_the_unit_stays_open(
        self, books: Books, ann: Party, account: Key, condition: Any
    ) -> None:
        values = {":n": 101} if condition is ENOUGH else None
        with ann.begin() as unit:
            with pytest.raises(ConditionFailed) as refused:
                unit.delete(ann.accounts, account, condition=condition, values=values)
            assert (refused.value.table, refused.value.key) == (ann.accounts.name, account)
            unit.update(ann.accounts, account, "SET colour = :red", {":red": "red"})
        assert books.item("accounts", account) == {**account, "balance": 100, "colour": "red"}

    def test_is_evaluated_on_the_item_as_the_unit_has_it(
        self, books: Books, ann: Party, account: Key, condition: Any
    ) -> None:
        values = {":n": 101} if condition is ENOUGH else None
        with ann.begin() as unit:
            unit.update(ann.accounts, account, "SET balance = balance + :one", {":one": 1})
            unit.delete(ann.accounts, account, condition=condition, values=values)
        assert books.raw("accounts", account) is None


def test_a_condition_shares_the_names_and_values_of_the_update(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.update(
            ann.accounts,
            account,
            "SET #b = #b - :n",
            {":n": 5},
            {"#b": "balance"},
            condition=Attr("balance").gte(5) & Attr("id").begins_with("account-") & Attr("closed").not_exists(),
        )
    assert books.balance(account) == 95


def test_an_update_that_does_not_fit_the_item_names_the_item_and_the_unit_stays_open(
    books: Books, ann: Party, account: Key
) -> None:
    missing = some_account()
    with ann.begin() as unit:
        with pytest.raises(InvalidUnitRequest) as refused:
            unit.update(ann.accounts, missing, "SET balance = balance + :n", {":n": 1})
        unit.update(ann.accounts, account, "SET balance = :n", {":n": 1})
    assert refused.value.field == "update"
    assert missing["id"] in str(refused.value)
    assert ann.accounts.name in str(refused.value)
    assert books.balance(account) == 1
    assert books.raw("accounts", missing) is None


def test_what_follows_a_failed_condition_is_not_sent(books: Books, ann: Party, account: Key, other: Key) -> None:
    def transfer() -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, other, "SET balance = balance + :n", {":n": 500})
            unit.update(ann.accounts, account, "SET balance = balance - :n", {":n": 500}, condition=ENOUGH)

    with pytest.raises(ConditionFailed):
        transfer()
    assert (books.balance(account), books.balance(other)) == (100, 50)


class TestReturns:
    def test_a_put_returns_what_it_replaces(self, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            assert unit.put(ann.accounts, {**account, "balance": 1}) == {**account, "balance": 100}
            assert unit.put(ann.accounts, some_account()) is None

    def test_an_update_returns_the_item_after_it(self, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            after = unit.update(ann.accounts, account, "SET colour = :red REMOVE balance", {":red": "red"})
            assert after == {**account, "colour": "red"}

    def test_an_update_makes_an_item_that_is_not_there(self, books: Books, ann: Party) -> None:
        key = some_account()
        with ann.begin() as unit:
            after = unit.update(ann.accounts, key, "SET balance = if_not_exists(balance, :n)", {":n": 8})
            assert after == {**key, "balance": 8}
        assert books.item("accounts", key) == {**key, "balance": 8}

    def test_a_delete_returns_what_it_takes_away(self, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            assert unit.delete(ann.accounts, account) == {**account, "balance": 100}
            assert unit.delete(ann.accounts, account) is None

    def test_a_check_returns_the_item_that_it_is_of(self, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            assert unit.check(ann.accounts, account, ENOUGH, {":n": 1}) == {**account, "balance": 100}

    def test_what_is_returned_is_the_callers_own(self, books: Books, ann: Party) -> None:
        key = books.account(1, tags=["a"])
        with ann.begin() as unit:
            found = unit.get(ann.accounts, key)
            assert found is not None
            found["tags"].append("b")
            unit.update(ann.accounts, key, "SET balance = :n", {":n": 2})
        assert books.item("accounts", key) == {**key, "balance": 2, "tags": ["a"]}

    def test_what_was_given_is_the_callers_own(self, books: Books, ann: Party) -> None:
        item = {**some_account(), "tags": ["a"]}
        with ann.begin() as unit:
            unit.put(ann.accounts, item)
            item["tags"].append("b")
        assert books.item("accounts", {"id": item["id"]}) == {"id": item["id"], "tags": ["a"]}
