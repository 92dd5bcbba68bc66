"""Every statement is evaluated at once, on the item as the unit has it; all statements on one item are one write."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr
from boto3.dynamodb.conditions import Key as BotoKey
from kit.crashes import before_the_nth
from kit.units import MARK, THREADS_ONLY, VERSION, Books, Key, Party, dumped, new_version, some_account, some_line

from ticketlock._expressions._grammar import MAX_OPERATORS
from ticketlock.errors import (
    ConditionFailed,
    InvalidUnitRequest,
    TableRefused,
    UnitConflict,
    UnitFinished,
    UnitRolledBack,
)
from ticketlock.units import Unit

pytestmark = pytest.mark.shows("DynamoDB's statements")

ENOUGH = "balance >= :n"
SET, ADD, ONE = "SET balance = :n", "SET balance = balance + :n", {":n": 1}

WAY = pytest.mark.parametrize("way", ["native", "marked"])


STATED: dict[str, tuple[Callable[[Party, Unit, Key], object], dict[str, Any] | None]] = {
    "a put": (lambda ann, unit, key: unit.put(ann.accounts, {**key, "colour": "red"}), {"colour": "red"}),
    "an update": (
        lambda ann, unit, key: unit.update(ann.accounts, key, SET, {":n": 90}),
        {"balance": 90},
    ),
    "a blind update": (
        lambda ann, unit, key: unit.update(ann.accounts, key, ADD, ONE, blind=True),
        {"balance": 101},
    ),
    "a delete": (lambda ann, unit, key: unit.delete(ann.accounts, key), None),
}


@pytest.mark.parametrize("verb", STATED)
def test_a_unit_reads_what_it_has_stated_together_with_what_others_wrote(
    books: Books, ann: Party, account: Key, other: Key, verb: str
) -> None:
    state, left = STATED[verb]
    left = left and {**account, **left}
    with ann.begin() as unit:
        state(ann, unit, account)
        assert unit.get(ann.accounts, account) == left
        assert unit.get_all([(ann.accounts, account), (ann.accounts, other)]) == [left, {**other, "balance": 50}]
        assert books.balance(account) == 100
    assert books.item("accounts", account) == left


def test_of_several_updates_of_an_item_the_last_value_is_written_once(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        for _ in range(3):
            unit.update(ann.accounts, account, ADD, ONE)
    assert books.item("accounts", account) == {**account, "balance": 103}
    (written,) = [sent for sent in ann.line.sent if sent.operation == "TransactWriteItems"]
    assert len(written.parameters["TransactItems"]) == 1


def test_a_put_after_a_delete_leaves_nothing_of_the_item_before(books: Books, ann: Party, account: Key) -> None:
    with ann.begin() as unit:
        unit.delete(ann.accounts, account)
        unit.put(ann.accounts, {**account, "colour": "red"}, condition="attribute_not_exists(id)")
    assert books.item("accounts", account) == {**account, "colour": "red"}


def test_an_item_that_is_made_and_deleted_is_not_there(books: Books, ann: Party) -> None:
    key = some_account()
    with ann.begin() as unit:
        unit.put(ann.accounts, {**key, "balance": 1})
        unit.delete(ann.accounts, key)
    assert books.raw("accounts", key) is None


def test_keys_that_are_equal_numbers_are_one_item(books: Books, ann: Party) -> None:
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


@pytest.mark.parametrize(
    ("condition", "values"), [(ENOUGH, {":n": 101}), (Attr("balance").gte(101), None)], ids=["text", "Attr"]
)
def test_a_condition_is_evaluated_at_its_line_on_the_item_as_the_unit_has_it_and_the_unit_stays_open(
    books: Books, ann: Party, account: Key, condition: Any, values: Any
) -> None:
    with ann.begin() as unit:
        with pytest.raises(ConditionFailed) as refused:
            unit.delete(ann.accounts, account, condition=condition, values=values)
        assert (refused.value.table, refused.value.key) == (ann.accounts.name, account)
        unit.update(ann.accounts, account, ADD, ONE)
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
            unit.update(ann.accounts, missing, ADD, ONE)
        unit.update(ann.accounts, account, SET, ONE)
    assert refused.value.field == "update"
    assert missing["id"] in str(refused.value)
    assert ann.accounts.name in str(refused.value)
    assert books.balance(account) == 1
    assert books.raw("accounts", missing) is None


def test_a_statement_returns_the_item_before_a_put_or_delete_and_after_an_update_or_check(
    ann: Party, account: Key
) -> None:
    whole, made = {**account, "balance": 100}, some_account()
    with ann.begin() as unit:
        assert unit.check(ann.accounts, account, ENOUGH, {":n": 1}) == whole
        after = unit.update(ann.accounts, account, "SET colour = :red REMOVE balance", {":red": "red"})
        assert after == {**account, "colour": "red"}
        assert unit.put(ann.accounts, whole) == after
        assert [unit.delete(ann.accounts, account) for _ in range(2)] == [whole, None]
        assert unit.put(ann.accounts, some_account()) is None
        assert unit.update(ann.accounts, made, "SET balance = if_not_exists(balance, :n)", {":n": 8}) == {
            **made,
            "balance": 8,
        }


def test_what_is_given_and_what_is_returned_is_the_callers_own(books: Books, ann: Party) -> None:
    key = some_account()
    item = {**key, "tags": ["a"]}
    with ann.begin() as unit:
        unit.put(ann.accounts, item)
        item["tags"].append("b")
        found = unit.get(ann.accounts, key)
        assert found is not None
        found["tags"].append("c")
        unit.update(ann.accounts, key, SET, {":n": 2})
    assert books.item("accounts", key) == {**key, "balance": 2, "tags": ["a"]}


@WAY
def test_an_item_that_is_not_there_is_none_each_time_it_is_read_or_deleted_and_not_there_after_the_commit(
    books: Books, ann: Party, account: Key, way: str
) -> None:
    absent, deleted = some_account(), some_account()
    with ann.begin(engine=way) as unit:
        for _ in range(2):
            assert unit.get(ann.accounts, absent) is None
            assert unit.get_all([(ann.accounts, absent), (ann.accounts, account)])[0] is None
        assert unit.delete(ann.accounts, deleted) is None
        unit.update(ann.accounts, account, SET, ONE)
    assert books.balances([absent, deleted, account]) == [None, None, 1]


@WAY
def test_an_item_that_is_deleted_or_made_is_not_there_after_a_conflict_of_the_commit(
    books: Books, ann: Party, ben: Party, account: Key, way: str
) -> None:
    deleted, made = some_account(), some_account()
    unit = ann.begin(engine=way)
    unit.delete(ann.accounts, deleted)
    unit.put(ann.accounts, {**made, "balance": 1})
    unit.update(ann.accounts, account, SET, ONE)
    ben.changes(account, 7)
    with pytest.raises(UnitConflict):
        unit.commit()
    assert [books.raw("accounts", key) for key in (deleted, made)] == [None, None]
    assert books.balance(account) == 7


OPERATORS_OF_UNITS = 9
"""Those that units add to the condition of a blind update."""

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


@pytest.mark.parametrize(("holds", "does_not"), CONDITIONS.values(), ids=CONDITIONS)
def test_the_condition_of_a_blind_update_may_be_compound(
    books: Books, ann: Party, account: Key, holds: Any, does_not: Any
) -> None:
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, ONE, condition=holds, blind=True)
    assert ann.line.operations == ["TransactWriteItems"]
    assert books.balance(account) == 101
    unit = ann.begin()
    unit.update(ann.accounts, account, SET, ONE, condition=does_not, blind=True)
    with pytest.raises(ConditionFailed):
        unit.commit()
    assert books.balance(account) == 101


@pytest.mark.parametrize("name", ["or", "a choice in text", "a choice of parentheses"])
def test_a_choice_in_its_condition_does_not_let_a_blind_update_past_a_mark(books: Books, ann: Party, name: str) -> None:
    """The mark has arrived late, and is removed first."""
    account, mark = some_account(), {"unit": new_version(), "kind": "write"}
    books.write("accounts", {**account, "balance": 100, VERSION: new_version(), MARK: mark})
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, ONE, condition=CONDITIONS[name][0], blind=True)
    assert books.raw("accounts", account) == {**account, "balance": 101, VERSION: unit.id}


@pytest.mark.parametrize(
    ("negation", "sends"), [("", "TransactWriteItems"), ("NOT ", "GetItem")], ids=["as many as fit", "one more"]
)
def test_what_units_add_counts_among_the_operators_that_a_condition_may_have(
    books: Books, ann: Party, account: Key, negation: str, sends: str
) -> None:
    operators = MAX_OPERATORS - OPERATORS_OF_UNITS
    comparisons = (operators + 1) // 2
    condition = negation + " OR ".join(["balance > :n"] * comparisons)
    with ann.begin() as unit:
        unit.update(ann.accounts, account, ADD, ONE, condition=condition, blind=True)
    assert ann.line.operations[0] == sends
    assert books.balance(account) == 101


@pytest.mark.parametrize(
    ("update", "values", "left"),
    [
        ("REMOVE balance", None, {"colours": {"red", "blue"}}),
        ("DELETE colours :red", {":red": {"red"}}, {"balance": 100, "colours": {"blue"}}),
    ],
)
def test_a_blind_update_that_only_takes_away_takes_it_away_and_makes_no_item(
    books: Books, ann: Party, update: str, values: Any, left: dict[str, Any]
) -> None:
    account, absent = books.account(colours={"red", "blue"}), some_account()
    with ann.begin() as unit:
        for key in (account, absent):
            unit.update(ann.accounts, key, update, values, blind=True)
    assert books.item("accounts", account) == {**account, **left}
    assert books.raw("accounts", absent) is None


# Other engines add a number to a text in a transaction.
@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("way", "error", "sends"),
    [(None, TableRefused, "TransactWriteItems"), ("marked", InvalidUnitRequest, "TransactGetItems")],
)
def test_a_blind_update_that_does_not_fit_its_item_is_refused_with_its_place_before_anything_is_marked(
    books: Books, ann: Party, account: Key, other: Key, way: Any, error: type[Exception], sends: str
) -> None:
    """Otherwise DynamoDB would refuse it after the unit was committed."""
    books.write("accounts", {**other, "balance": "much", VERSION: new_version()})
    before = books.everything()
    unit = ann.begin(engine=way)
    for key in (account, other):
        unit.update(ann.accounts, key, ADD, ONE, blind=True)
    with pytest.raises(error, match=other["id"] if way == "marked" else "ValidationError at item 2 of 2"):
        unit.commit()
    with pytest.raises(UnitFinished, match="rolled back"):
        unit.get(ann.accounts, account)
    assert ann.line.operations == [sends]
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


NEW = {"ConditionExpression": "attribute_not_exists(#version)", "ExpressionAttributeNames": {"#version": "version"}}


def of_version(version: int) -> dict[str, Any]:
    """The condition that the item has the mapper's version."""
    return {
        "ConditionExpression": "#version = :seen",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": dumped({":seen": version}),
    }


def save(party: Party, unit: Unit, key: Key, version: int, balance: int) -> None:
    """Put the next version of an object that was loaded with this one; 0 for a new object."""
    item = {**key, "version": version + 1, "balance": balance}
    condition = of_version(version) if version else NEW
    unit.client.put_item(TableName=party.accounts.name, Item=dumped(item), **condition)


def delete(party: Party, unit: Unit, key: Key, version: int) -> None:
    unit.client.delete_item(TableName=party.accounts.name, Key=dumped(key), **of_version(version))


@pytest.fixture
def saved(books: Books, ann: Party) -> Key:
    """An object of the second version."""
    key = some_account()
    for version in (0, 1):
        with ann.begin() as unit:
            save(ann, unit, key, version, 100)
    assert books.item("accounts", key) == {**key, "version": 2, "balance": 100}
    return key


def test_an_object_of_a_mapper_is_saved_and_deleted_only_at_its_version(books: Books, ann: Party, saved: Key) -> None:
    before = books.raw("accounts", saved)
    with ann.begin() as unit:
        for out_of_date in (0, 1):
            with pytest.raises(ConditionFailed):
                save(ann, unit, saved, out_of_date, 7)
        with pytest.raises(ConditionFailed):
            delete(ann, unit, saved, 1)
    assert books.raw("accounts", saved) == before
    with ann.begin() as unit:
        delete(ann, unit, saved, 2)
    assert books.raw("accounts", saved) is None


@THREADS_ONLY
def test_a_delete_that_is_pending_is_rolled_back_by_an_older_unit_that_saves_the_object(
    books: Books, ann: Party, ben: Party, saved: Key
) -> None:
    older = ben.begin()
    save(ben, older, saved, 2, 7)
    books.clock.advance(1)
    unit = ann.begin(engine="marked")
    delete(ann, unit, saved, 2)

    # Before its decision, which follows the mark.
    before_the_nth(ann, 2, older.commit, "UpdateItem")
    with pytest.raises(UnitRolledBack) as raised:
        unit.commit()
    assert raised.value.by == older.id
    assert books.item("accounts", saved) == {**saved, "version": 3, "balance": 7}


ABOUT_40: list[tuple[Any, dict[str, Any], str]] = [
    (Attr("balance").gte(50), {}, "balance >= 50"),
    (Attr("balance").gte(50) & Attr("state").eq("open"), {}, "(balance >= 50 AND state = 'open')"),
    (~Attr("balance").between(1, 40), {}, "(NOT balance BETWEEN 1 AND 40)"),
    (Attr("state").is_in(["new", "closed"]), {}, "state IN ('new', 'closed')"),
    (Attr("nested.list[0]").eq(Decimal(2)), {}, "nested.list[0] = 2"),
    (Attr("balance").attribute_type("S"), {}, "attribute_type(balance, 'S')"),
    (Attr("balance").gt(Attr("limit")), {}, "balance > limit"),
    (Attr("state").eq("x" * 200), {}, "state = '" + "x" * 76 + "..."),
    ("#b >= :least", {"names": {"#b": "balance"}, "values": {":least": 50}}, "balance >= 50"),
]


@pytest.mark.parametrize(("condition", "more", "told"), ABOUT_40, ids=[told[:30] for _, _, told in ABOUT_40])
def test_a_condition_that_does_not_hold_is_told_with_its_attributes_and_values_and_has_the_item(
    books: Books, ann: Party, condition: Any, more: dict[str, Any], told: str
) -> None:
    key = books.account(40, state="open", nested={"list": [1]})
    unit = ann.begin()
    unit.update(ann.accounts, key, "SET seen = :yes", {":yes": True})
    with pytest.raises(ConditionFailed) as failed:
        unit.delete(ann.accounts, key, condition=condition, **more)
    assert f"the condition {told!r} does not hold for {ann.accounts.name}[id={key['id']!r}], which has " in str(
        failed.value
    )
    assert failed.value.item == {**key, "balance": 40, "state": "open", "nested": {"list": [1]}, "seen": True}
    with pytest.raises(ConditionFailed, match=r"which does not exist$") as failed:
        unit.check(ann.accounts, some_account(), "attribute_exists(id)")
    assert failed.value.item is None


def test_placeholders_of_a_condition_made_with_boto3_are_not_mixed_up_with_those_of_the_statement(
    books: Books, ann: Party
) -> None:
    key = books.account(40, state="open")
    unit = ann.begin()
    of_boto3 = {":n0": 1, ":v0": 2}, {"#n0": "one", "#v0": "two"}
    unit.update(ann.accounts, key, "SET #n0 = :n0, #v0 = :v0", *of_boto3, condition=Attr("state").eq("open"))
    for ours in (
        ({":tlu_v0": 1}, None, "SET balance = :tlu_v0"),
        ({":n": 1}, {"#tlu_n0": "balance"}, "SET #tlu_n0 = :n"),
    ):
        values, names, update = ours
        with pytest.raises(InvalidUnitRequest, match="another placeholder"):
            unit.update(ann.accounts, key, update, values, names, condition=Attr("state").eq("open"))
        unit.update(ann.accounts, key, update, values, names, condition="attribute_exists(id)")
    unit.commit()
    assert books.item("accounts", key) == {**key, "balance": 1, "state": "open", "one": 1, "two": 2}


def test_placeholders_of_a_query_s_conditions_are_not_mixed_up_either(ann: Party) -> None:
    line, unit = some_line(), ann.begin()
    given: dict[str, Any] = {"names": {"#tlk_n0": "amount"}, "values": {":tlk_v0": 5}}
    with pytest.raises(InvalidUnitRequest, match="another placeholder"):
        unit.query(ann.lines, BotoKey("pk").eq(line["pk"]), filter="#tlk_n0 = :tlk_v0", **given)


def test_a_syntax_error_shows_what_stands_for_the_placeholders_of_a_condition_made_with_boto3(ann: Party) -> None:
    unit, wrong = ann.begin(), Attr("amount[0").eq(5)
    calls: list[Callable[[], object]] = [
        lambda: unit.update(ann.accounts, some_account(), SET, {":balance": 1}, condition=wrong),
        lambda: unit.query(ann.lines, BotoKey("pk").eq("o-1"), filter=wrong),
    ]
    for call in calls:
        with pytest.raises(InvalidUnitRequest, match=r'Syntax error; token: "0", near: "\[ 0 ="'):
            call()


def test_an_attribute_is_no_condition_and_the_error_says_how_to_make_one(ann: Party) -> None:
    wrong: Any = Attr("balance")
    with pytest.raises(InvalidUnitRequest, match=r"such as Attr\('balance'\)\.eq"):
        ann.begin().check(ann.accounts, some_account(), wrong)


def test_the_error_of_a_query_shows_its_conditions_and_not_their_placeholders(ann: Party) -> None:
    wrong = BotoKey("pk").eq("a") & BotoKey("sk").begins_with("x")
    with pytest.raises(InvalidUnitRequest, match=r"\(pk = 'a' AND begins_with\(sk, 'x'\)\)"):
        ann.begin().query(ann.lines, wrong)
