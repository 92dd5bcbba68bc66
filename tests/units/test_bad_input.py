"""For bad input an error of ours names the field, the value and what is allowed; nothing is written."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr
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
    new_version,
    some_account,
    some_line,
)

from ticketlock.errors import InvalidUnitRequest, TableNotFound
from ticketlock.units import Units, create_units_table

# The arguments may be of any type: some of them are the mistake.
Use = Callable[[Party, Any, Key], object]
SET = "SET balance = :n"
ONE = {":n": 1}

# The field that the error names, and the call.
BAD: dict[str, tuple[str, Use]] = {
    "a key that misses": ("key.id", lambda ann, unit, _: unit.get(ann.accounts, {})),
    "a key that misses one of two": ("key.sk", lambda ann, unit, _: unit.get(ann.lines, {"pk": "a"})),
    "a key of another type": ("key.id", lambda ann, unit, _: unit.get(ann.accounts, {"id": 1})),
    "a key with more than the key": ("key", lambda ann, unit, key: unit.get(ann.accounts, {**key, "balance": 1})),
    "a key that is none": ("key", lambda ann, unit, _: unit.get(ann.accounts, "a")),
    "a bad key in a cut": (
        "key.sk",
        lambda ann, unit, key: unit.get_all([(ann.accounts, key), (ann.lines, {"pk": "a", "sk": "1"})]),
    ),
    "a key of an update": ("key.id", lambda ann, unit, _: unit.update(ann.accounts, {"name": "a"}, SET, ONE)),
    "too much in a key of an update": (
        "key",
        lambda ann, unit, key: unit.update(ann.accounts, {**key, "balance": 1}, SET, ONE),
    ),
    "a key of a delete": ("key.id", lambda ann, unit, _: unit.delete(ann.accounts, {"id": b"a"})),
    "a key of a check": ("key.id", lambda ann, unit, _: unit.check(ann.accounts, {}, "attribute_exists(id)")),
    "an item without its key": ("item.id", lambda ann, unit, _: unit.put(ann.accounts, {"balance": 1})),
    "an item with a key of another type": (
        "item.sk",
        lambda ann, unit, _: unit.put(ann.lines, some_line() | {"sk": "1"}),
    ),
    "an item that is none": ("item", lambda ann, unit, _: unit.put(ann.accounts, ["id"])),
    "a float": ("item.price", lambda ann, unit, key: unit.put(ann.accounts, {**key, "price": 1.5})),
    "a float inside": ("item.prices", lambda ann, unit, key: unit.put(ann.accounts, {**key, "prices": [{"a": 1.5}]})),
    "NaN": ("item.price", lambda ann, unit, key: unit.put(ann.accounts, {**key, "price": Decimal("NaN")})),
    "infinity": ("item.price", lambda ann, unit, key: unit.put(ann.accounts, {**key, "price": Decimal("Infinity")})),
    "39 digits": ("item.price", lambda ann, unit, key: unit.put(ann.accounts, {**key, "price": Decimal("1" * 39)})),
    "a number out of range": ("item.n", lambda ann, unit, key: unit.put(ann.accounts, {**key, "n": Decimal("1E126")})),
    "an empty set": ("item.tags", lambda ann, unit, key: unit.put(ann.accounts, {**key, "tags": set()})),
    "a set of two types": ("item.tags", lambda ann, unit, key: unit.put(ann.accounts, {**key, "tags": {1, "a"}})),
    "a name with half of a surrogate pair": (
        "item",
        lambda ann, unit, key: unit.put(ann.accounts, {**key, "\ud800": 1}),
    ),
    "an object": ("item.what", lambda ann, unit, key: unit.put(ann.accounts, {**key, "what": object()})),
    "a float among values": ("values.:n", lambda ann, unit, key: unit.update(ann.accounts, key, SET, {":n": 1.5})),
    "an attribute that is called as ours": (
        "item",
        lambda ann, unit, key: unit.put(ann.accounts, {**key, VERSION: "mine"}),
    ),
    "an update of an attribute of ours": (
        "update",
        lambda ann, unit, key: unit.update(ann.accounts, key, f"SET {VERSION} = :n", ONE),
    ),
    "no update": ("update", lambda ann, unit, key: unit.update(ann.accounts, key, None)),
    "an empty update": ("update", lambda ann, unit, key: unit.update(ann.accounts, key, "")),
    "an update that is no expression": (
        "update",
        lambda ann, unit, key: unit.update(ann.accounts, key, "SOT a = :n", ONE),
    ),
    "an update of the key": ("update", lambda ann, unit, key: unit.update(ann.accounts, key, "SET id = :n", ONE)),
    "a value that is not given": ("update", lambda ann, unit, key: unit.update(ann.accounts, key, SET)),
    "a value that is not used": (
        "update",
        lambda ann, unit, key: unit.update(ann.accounts, key, SET, {**ONE, ":more": 1}),
    ),
    "a name that is not given": ("update", lambda ann, unit, key: unit.update(ann.accounts, key, "SET #b = :n", ONE)),
    "names that are none": (
        "names",
        lambda ann, unit, key: unit.update(ann.accounts, key, "SET #b = :n", ONE, {"#b": 1}),
    ),
    "an update that does not fit the item": (
        "update",
        lambda ann, unit, key: unit.update(ann.accounts, key, "SET a = missing + :n", ONE),
    ),
    "blind that is no boolean": ("blind", lambda ann, unit, key: unit.update(ann.accounts, key, SET, ONE, blind="yes")),
    "a condition that is no expression": (
        "delete",
        lambda ann, unit, key: unit.delete(ann.accounts, key, condition="balance =="),
    ),
    "a condition that is no text": ("condition", lambda ann, unit, key: unit.delete(ann.accounts, key, condition=5)),
    "a float in a condition": (
        "condition.:tlu_v0",
        lambda ann, unit, key: unit.delete(ann.accounts, key, condition=Attr("balance").gte(1.5)),
    ),
    "a check without a condition": ("condition", lambda ann, unit, key: unit.check(ann.accounts, key, None)),
    "a level that is none": ("isolation", lambda ann, unit, key: unit.get(ann.accounts, key, isolation="COMMITTED")),
    "a table by its name": ("table", lambda ann, unit, key: unit.get(ann.accounts.name, key)),
    "a table in the place of an item": ("wanted", lambda ann, unit, _: unit.get_all([ann.accounts])),
    "nothing in the place of items": ("wanted", lambda _, unit, __: unit.get_all(None)),
}


@pytest.mark.parametrize("way", ["native", "marked"])
@pytest.mark.parametrize(("field", "use"), BAD.values(), ids=BAD)
def test_a_bad_statement_is_refused_by_its_field_and_the_unit_stays_open(
    books: Books, ann: Party, account: Key, other: Key, way: str, field: str, use: Use
) -> None:
    before = books.everything()
    unit = ann.begin(engine=way)
    with pytest.raises(InvalidUnitRequest) as refused:
        use(ann, unit, account)
    assert refused.value.field == field
    assert refused.value.allowed
    assert books.everything() == before
    unit.update(ann.accounts, other, SET, ONE)
    unit.commit()
    assert (books.balance(account), books.balance(other)) == (100, 1)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "balance = :n", ONE),
            "Invalid UpdateExpression: Syntax error",
        ),
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "SET name = :n", ONE, condition="id > :n"),
            "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: name (update is {",
        ),
        (
            lambda ann, unit, key: unit.delete(ann.accounts, key, condition=Attr("balance").between(2, 1)),
            "Invalid ConditionExpression: The BETWEEN",
        ),
        (lambda ann, unit, _: unit.get(ann.accounts, {"name": "a"}), "the partition key of the table '"),
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "SET balance = :n", {"n": 1}),
            "Invalid UpdateExpression: An expression attribute value used in expression is not defined",
        ),
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "SET debts = debts + :n", ONE),
            "The provided expression refers to an attribute that does not exist in the item, for the item",
        ),
        (
            lambda _, unit, key: unit.get("accounts", key),
            'table is "accounts"; allowed: a table of this Units: units.table("accounts")',
        ),
        (lambda _, unit, key: unit.get_all([key]), "wanted is [{'id': "),
        (lambda ann, unit, _: unit.get_all([ann.accounts]), "wanted is [<UnitTable '"),
        (
            lambda ann, unit, key: unit.get(ann.accounts, key, isolation="COMMITTED"),
            'isolation is "COMMITTED"; allowed: one of the levels of ticketlock.units: UNCOMMITTED, ',
        ),
    ],
    ids=[
        "an update",
        "two expressions",
        "a condition object",
        "a key",
        "a placeholder",
        "a missing attribute",
        "a table's name",
        "a key without its table",
        "a table",
        "a level",
    ],
)
def test_the_error_shows_what_was_given_and_why_dynamodb_would_refuse_it(
    ann: Party, account: Key, use: Use, message: str
) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        use(ann, ann.begin(), account)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "SET name = :n", ONE),
            "another name for it: write #name, and pass names={'#name': 'name'}",
        ),
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "SET balance = :n", {"n": 1}),
            "a value for it: pass values={':n': ...}, with the colon in the name",
        ),
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "SET #b = :n", ONE, names={"b": "balance"}),
            "an attribute for it: pass names={'#b': ...}, with the # in the name",
        ),
        (
            lambda ann, unit, key: unit.update(ann.accounts, key, "SET debts = debts + :n", ONE),
            "an update of what the item has: add a condition such as attribute_exists(balance), or use ADD",
        ),
        (lambda _, unit, key: unit.get_all([key]), "a list of pairs of a table and a key: [(table, {...}), ...]"),
    ],
    ids=["a reserved word", "a value", "a name", "a missing attribute", "keys without tables"],
)
def test_the_error_says_what_to_write_instead(ann: Party, account: Key, use: Use, advice: str) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        use(ann, ann.begin(), account)
    assert refused.value.allowed == advice


def test_the_error_of_a_wrong_key_names_the_tables_key_and_the_given_one(ann: Party) -> None:
    with pytest.raises(
        InvalidUnitRequest, match=r"^the partition key of the table '.*' is 'id', and key has 'name' \("
    ):
        ann.begin().get(ann.accounts, {"name": "a"})


@pytest.mark.parametrize(
    ("field", "terms"),
    [
        ("name", {"name": ""}),
        ("name", {"name": 5}),
        ("name", {"name": "n" * 1_025}),
        ("name", {"name": "\ud800"}),
        ("isolation", {"isolation": "SERIALIZABLE"}),
        ("isolation", {"isolation": None}),
        ("under", {"under": "a-lock"}),
        ("timeout", {"timeout": -1}),
        ("timeout", {"timeout": "10"}),
        ("timeout", {"timeout": float("nan")}),
    ],
)
def test_bad_terms_are_refused_by_their_field(books: Books, ann: Party, field: str, terms: dict[str, Any]) -> None:
    before = books.everything()
    with pytest.raises(InvalidUnitRequest) as refused:
        ann.begin(**terms)
    assert refused.value.field == field
    assert books.everything() == before


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("prefix", {"prefix": ""}),
        ("prefix", {"prefix": None}),
        ("prefix", {"prefix": "p" * 17}),
        ("timeout", {"timeout": -1}),
        ("table_name", {"table_name": ""}),
        ("client", {"client": "dynamodb"}),
        ("client", {"client": boto3}),
    ],
)
def test_bad_settings_are_refused_by_their_field(ann: Party, field: str, settings: dict[str, Any]) -> None:
    given = {"table_name": "units", "client": ann.client, **settings}
    with pytest.raises(InvalidUnitRequest) as refused:
        Units(given.pop("table_name"), **given)
    assert refused.value.field == field


def test_a_table_that_is_not_there_is_named(ann: Party) -> None:
    with pytest.raises(TableNotFound, match="no-such-table"):
        ann.units.table("no-such-table")


def test_a_units_table_that_is_not_there_is_named(books: Books, ann: Party) -> None:
    units = Units("no-such-units", client=ann.client, clocks=books.clock)
    with pytest.raises(TableNotFound, match="no-such-units"), units.begin(name="a"):
        pass


def test_a_table_of_other_units_is_refused(books: Books, ann: Party, ben: Party, account: Key) -> None:
    before = books.everything()
    unit = ann.begin()
    with pytest.raises(InvalidUnitRequest) as refused:
        unit.update(ben.accounts, account, SET, ONE)
    assert refused.value.field == "table"
    unit.commit()
    assert books.everything() == before


class TestAPrefixThatItemsUseAlready:
    @pytest.fixture
    def theirs(self, units_world: UnitsWorld) -> Party:
        return units_world.party(prefix="my")

    @pytest.mark.parametrize(
        ("attribute", "value"), [("myVersion", "1.0"), ("myVersion", "O" * 26), ("myColour", "1.0")]
    )
    def test_a_prefix_that_items_use_already_is_refused_when_it_is_met(
        self, books: Books, theirs: Party, attribute: str, value: str
    ) -> None:
        key = some_account()
        books.write("accounts", {**key, attribute: value})
        before = books.everything()
        unit = theirs.begin()
        with pytest.raises(InvalidUnitRequest, match=attribute) as refused:
            unit.update(theirs.accounts, key, SET, ONE)
        assert refused.value.field == "prefix"
        assert books.everything() == before

    @pytest.mark.parametrize("more", [{}, {"kind": "small"}, {"kind": 5}])
    def test_a_prefix_that_items_use_already_is_refused_when_a_mark_is_none_of_units(
        self, books: Books, theirs: Party, more: dict[str, Any]
    ) -> None:
        key = some_account()
        books.write("accounts", {**key, "myMark": {"unit": new_version(), **more}})
        with pytest.raises(InvalidUnitRequest, match="myMark") as refused:
            theirs.units.get(theirs.accounts, key)
        assert refused.value.field == "prefix"

    @THREADS_ONLY
    def test_a_prefix_that_items_use_already_keeps_no_sweep_from_other_units(
        self, units_world: UnitsWorld, books: Books, ben: Party
    ) -> None:
        left = []
        for balance in (1, 2):
            ann, key = units_world.party(), books.account(100)
            # Before the decision.
            ann.loses(Lost.KILLED_BEFORE, 4)
            with pytest.raises(Killed), ann.begin(engine="marked") as unit:
                unit.update(ann.accounts, key, SET, {":n": balance})
            assert MARK in (books.raw("accounts", key) or {})
            left.append(key)
        books.write("accounts", {**left[0], MARK: "mine"})
        books.clock.advance(700)
        ben.units.sweep()
        assert [MARK in (books.raw("accounts", key) or {}) for key in left] == [True, False]

    def test_a_prefix_that_items_use_already_another_one_may_be_chosen(self, books: Books, theirs: Party) -> None:
        key = some_account()
        with theirs.begin() as unit:
            unit.put(theirs.accounts, {**key, "_tluColour": "red"})
        assert books.raw("accounts", key) == {**key, "_tluColour": "red", "myVersion": unit.id}


@pytest.mark.parametrize("use", [Units, create_units_table])
def test_no_client_of_a_resource_is_recommended_since_it_converts_values(use: Callable[..., object]) -> None:
    resource: Any = boto3.resource("dynamodb")
    with pytest.raises(InvalidUnitRequest, match="client is ") as refused:
        use("units", client=resource)
    assert "resource.meta.client" not in str(refused.value)
    assert "boto3.client('dynamodb')" in str(refused.value)
