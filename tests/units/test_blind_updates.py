"""DynamoDB evaluates a blind update as the unit does, with all kinds of expressions."""

from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr
from kit.units import MARK, VERSION, Books, Key, Party, new_version, some_account

from ticketlock.errors import ConditionFailed, InvalidUnitRequest, TableRefused, UnitFinished

ADD, ONE = "SET balance = balance + :n", {":n": 1}

CONDITIONS: dict[str, tuple[Any, Any]] = {
    "and": (Attr("balance").gt(99) & Attr("id").exists(), Attr("balance").gt(99) & Attr("id").not_exists()),
    "or": (Attr("balance").gt(101) | Attr("id").exists(), Attr("balance").gt(101) | Attr("id").not_exists()),
    "not": (~Attr("balance").gt(100), ~Attr("balance").gt(99)),
    "not, of a choice": (
        ~(Attr("balance").gt(100) | Attr("id").not_exists()),
        ~(Attr("balance").gt(99) | Attr("id").not_exists()),
    ),
    "parentheses": ("(balance > :n)", "(balance < :n)"),
    "a choice in text": ("balance < :n or attribute_exists(id)", "balance < :n or attribute_not_exists(id)"),
    "a choice of parentheses": ("(balance < :n) OR (balance > :n)", "(balance < :n) OR (balance = :n)"),
    "both": (
        "(balance < :n OR balance > :n) AND attribute_exists(id)",
        "(balance < :n OR balance = :n) AND attribute_exists(id)",
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_its_condition_may_be_compound(books: Books, ann: Party, account: Key, name: str) -> None:
    holds, does_not = CONDITIONS[name]
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, ONE, condition=holds, blind=True)
    assert ann.line.operations == ["TransactWriteItems"]
    assert books.balance(account) == 101
    unit = ann.begin()
    unit.update(ann.accounts, account, "SET balance = :n", ONE, condition=does_not, blind=True)
    with pytest.raises(ConditionFailed):
        unit.commit()
    assert books.balance(account) == 101


@pytest.mark.parametrize("name", ["or", "a choice in text", "a choice of parentheses"])
def test_a_choice_does_not_let_it_past_a_mark(books: Books, ann: Party, name: str) -> None:
    """The mark has arrived late, and is removed first."""
    account, mark = some_account(), {"unit": new_version(), "kind": "write"}
    books.write("accounts", {**account, "balance": 100, VERSION: new_version(), MARK: mark})
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, ONE, condition=CONDITIONS[name][0], blind=True)
    assert books.raw("accounts", account) == {**account, "balance": 101, VERSION: unit.id}


@pytest.mark.parametrize(("operators", "sends"), [(291, "TransactWriteItems"), (292, "GetItem")])
def test_what_units_add_counts_among_the_operators_that_a_condition_may_have(
    books: Books, ann: Party, account: Key, operators: int, sends: str
) -> None:
    """Up to 300; units use nine of them."""
    negated = operators % 2 == 0
    condition = "NOT " * negated + " OR ".join(["balance > :n"] * ((operators - negated + 1) // 2))
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, ONE, condition=condition, blind=True)
    assert ann.line.operations[0] == sends
    assert books.balance(account) == 101


@pytest.mark.parametrize("update", ["REMOVE balance", "DELETE colours :red"])
class TestOneThatOnlyTakesAway:
    def test_makes_no_item(self, books: Books, ann: Party, update: str) -> None:
        key = some_account()
        values = {":red": {"red"}} if ":red" in update else None
        with ann.begin() as unit:
            unit.update(ann.accounts, key, update, values, blind=True)
        assert books.raw("accounts", key) is None

    def test_takes_it_away(self, books: Books, ann: Party, update: str) -> None:
        account = books.account(colours={"red", "blue"})
        values = {":red": {"red"}} if ":red" in update else None
        with ann.begin() as unit:
            unit.update(ann.accounts, account, update, values, blind=True)
        left = {"colours": {"red", "blue"}} if values is None else {"balance": 100, "colours": {"blue"}}
        assert books.item("accounts", account) == {**account, **left}


# Other engines add a number to a text in a transaction.
@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
def test_one_that_does_not_fit_its_item_is_refused_with_its_place_and_writes_nothing(
    books: Books, ann: Party, account: Key, other: Key
) -> None:
    books.write("accounts", {**other, "balance": "much", VERSION: new_version()})
    before = books.everything()
    unit = ann.begin()
    for key in (account, other):
        unit.update(ann.accounts, key, ADD, ONE, blind=True)
    with pytest.raises(TableRefused, match="ValidationError at item 2 of 2"):
        unit.commit()
    with pytest.raises(UnitFinished, match="rolled back"):
        unit.get(ann.accounts, account)
    assert books.everything() == before


def test_one_that_does_not_fit_its_item_is_found_before_anything_is_marked(
    books: Books, ann: Party, account: Key, other: Key
) -> None:
    """Otherwise DynamoDB would refuse it after the unit was committed."""
    books.write("accounts", {**other, "balance": "much", VERSION: new_version()})
    before = books.everything()
    unit = ann.begin(engine="marked")
    for key in (account, other):
        unit.update(ann.accounts, key, ADD, ONE, blind=True)
    with pytest.raises(InvalidUnitRequest, match=other["id"]) as refused:
        unit.commit()
    assert refused.value.field == "update"
    assert {sent.operation for sent in ann.line.sent} <= {"GetItem", "TransactGetItems", "BatchGetItem"}
    assert books.everything() == before


@pytest.mark.parametrize(
    "version",
    [7, "v7", "1", "0" * 25, "0" * 27, "Z" * 27, ["0" * 26], None],
    ids=["number", "text", "digit", "25 digits", "27 digits", "27 letters", "list", "null"],
)
def test_an_item_with_a_version_that_no_unit_has_written_is_refused_as_by_other_statements(
    books: Books, ann: Party, version: Any
) -> None:
    key = books.plain_account()
    books.write("accounts", {**key, "balance": 100, VERSION: version})
    with pytest.raises(InvalidUnitRequest, match="one that no item uses: _tluVersion"), ann.begin() as unit:
        unit.update(ann.accounts, key, ADD, ONE, blind=True)
    assert books.balance(key) == 100
