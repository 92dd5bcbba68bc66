"""For bad input an error of ours names the field, the value and what is allowed; nothing is written."""

import math
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
)

from ticketlock.errors import InvalidUnitRequest, TableNotFound
from ticketlock.units import Units, create_units_table

pytestmark = pytest.mark.shows("bad input")

# The arguments may be of any type: some of them are the mistake.
Use = Callable[[Party, Any, Key], object]

SET = "SET balance = :n"

ONE = {":n": 1}

FLOAT = Attr("balance").gte(1.5)


# The field that the error names, and the call.
BAD: dict[str, tuple[str, Use]] = {
    "a key that misses": ("key.id", lambda ann, unit, _: unit.get(ann.accounts, {})),
    "a key that misses one of two": ("key.sk", lambda ann, unit, _: unit.get(ann.lines, {"pk": "a"})),
    "a key with more than the key": ("key", lambda ann, unit, key: unit.get(ann.accounts, {**key, "balance": 1})),
    "a key that is none": ("key", lambda ann, unit, _: unit.get(ann.accounts, "a")),
    "a key of an update": ("key.id", lambda ann, unit, _: unit.update(ann.accounts, {"name": "a"}, SET, ONE)),
    "more than the key": ("key", lambda ann, unit, key: unit.update(ann.accounts, {**key, "n": 1}, SET, ONE)),
    "a key of a check": ("key.id", lambda ann, unit, _: unit.check(ann.accounts, {}, "attribute_exists(id)")),
    "an item without its key": ("item.id", lambda ann, unit, _: unit.put(ann.accounts, {"balance": 1})),
    "an item that is none": ("item", lambda ann, unit, _: unit.put(ann.accounts, ["id"])),
    "a condition of no form": ("delete", lambda ann, unit, key: unit.delete(ann.accounts, key, condition="a ==")),
    "a condition that is no text": ("condition", lambda ann, unit, key: unit.delete(ann.accounts, key, condition=5)),
    "a float in a condition": (
        "condition.:tlu_v0",
        lambda ann, unit, key: unit.delete(ann.accounts, key, condition=FLOAT),
    ),
    "a check without a condition": ("condition", lambda ann, unit, key: unit.check(ann.accounts, key, None)),
    "no level": ("isolation", lambda ann, unit, key: unit.get(ann.accounts, key, isolation="COMMITTED")),
    "a table by its name": ("table", lambda ann, unit, key: unit.get(ann.accounts.name, key)),
    "a table in the place of an item": ("wanted", lambda ann, unit, _: unit.get_all([ann.accounts])),
    "nothing in the place of items": ("wanted", lambda _, unit, __: unit.get_all(None)),
}


# Attributes that an item cannot have; the error names the attribute.
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "a float": {"price": 1.5},
    "a float inside": {"prices": [{"a": 1.5}]},
    "NaN": {"price": Decimal("NaN")},
    "infinity": {"price": Decimal("Infinity")},
    "39 digits": {"price": Decimal("1" * 39)},
    "a number out of range": {"price": Decimal("1E126")},
    "an empty set": {"tags": set()},
    "a set of two types": {"tags": {1, "a"}},
    "an object": {"what": object()},
    "a name with half of a surrogate pair": {"\ud800": 1},
    "a name that is called as ours": {VERSION: "mine"},
}


def bad_put(attributes: dict[str, Any]) -> tuple[str, Use]:
    (name,) = attributes
    field = "item" if name in ("\ud800", VERSION) else f"item.{name}"
    return field, lambda ann, unit, key: unit.put(ann.accounts, {**key, **attributes})


BAD |= {name: bad_put(attributes) for name, attributes in ATTRIBUTES.items()}


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

    def test_another_prefix_than_one_that_items_use_may_be_chosen(self, books: Books, theirs: Party) -> None:
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


# Nothing is sent, so that one engine is enough.
IN_MEMORY = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)

WAY = pytest.mark.parametrize("way", ["native", "marked"])

NO_TABLE = ["", None, 5, b"accounts", ["accounts"], "t" * 1_025]

NO_TEXT: list[Any] = ["", None, 5, True, b"text", ["text"], "t" * 1_025, "\ud800"]

NO_LEVEL: list[Any] = ["SERIALIZABLE", 5, True, []]

NO_SECONDS: list[Any] = [-0.001, 900.001, 10**30, math.inf, -math.inf, math.nan, True, "10", [10], Decimal("NaN")]

NO_ENGINE: list[Any] = ["", "both", 1, True, ["native"]]

NO_TRIES: list[Any] = [0, -1, 1_001, 1.5, True, None, "10"]


class Pretended:
    """A held lock whose check is none."""

    def __init__(self, check: Any) -> None:
        self._check = check

    def condition_check(self) -> Any:
        return self._check


def too_deep() -> Any:
    """A value with more levels than Python's recursion limit."""
    value: Any = 1
    for _ in range(10_000):
        value = [value]
    return value


def transactional(units: Any, **options: Any) -> None:
    units.transactional(**options)


# The field, the values that it may not have, and the call.
FIELDS: dict[str, tuple[str, list[Any], Callable[[Any, Any], object]]] = {
    "begin(name)": ("name", [each for each in NO_TEXT if each is not None], lambda u, bad: u.begin(name=bad)),
    "begin(isolation)": ("isolation", [*NO_LEVEL, None], lambda u, bad: u.begin(isolation=bad)),
    "begin(timeout)": ("timeout", NO_SECONDS, lambda u, bad: u.begin(timeout=bad)),
    "begin(engine)": ("engine", NO_ENGINE, lambda u, bad: u.begin(engine=bad)),
    "begin(under)": ("under", ["a-lock", 5, True, object()], lambda u, bad: u.begin(under=bad)),
    "transactional(tries)": ("tries", NO_TRIES, lambda u, bad: transactional(u, tries=bad)),
    "transactional(unit_as)": ("unit_as", ["", None, 5, "u" * 256], lambda u, bad: transactional(u, unit_as=bad)),
    "transactional(isolation)": ("isolation", NO_LEVEL, lambda u, bad: transactional(u, isolation=bad)),
    "transactional(timeout)": ("timeout", NO_SECONDS, lambda u, bad: transactional(u, timeout=bad)),
    "outcome(name)": ("name", NO_TEXT, lambda u, bad: u.outcome(name=bad)),
    "outcome(unit)": ("unit", ["", "u" * 25, 5, True, b"u"], lambda u, bad: u.outcome(unit=bad)),
    "outcome(both)": ("name", ["a"], lambda u, bad: u.outcome(name=bad, unit=bad)),
    "table": ("name", NO_TABLE, lambda u, bad: u.table(bad)),
    "check_access": ("tables", [5, None, True], lambda u, bad: u.check_access(bad)),
    "check_access of names": ("table", ["accounts", ["accounts"], [None]], lambda u, bad: u.check_access(bad)),
    "clean": ("item", [5, None, "item", ["item"], {1: "a"}], lambda u, bad: u.clean(bad)),
    "get_all": ("wanted", [5, None, "items", {}, [()], [("accounts",)], [5]], lambda u, bad: u.get_all(bad)),
    "get_all of names": ("table", ["accounts", None, 5], lambda u, bad: u.get_all([(bad, {"id": "a"})])),
}


@IN_MEMORY
@pytest.mark.parametrize(("field", "values", "ask"), FIELDS.values(), ids=FIELDS)
def test_a_parameter_of_another_kind_is_named(
    ann: Party, field: str, values: list[Any], ask: Callable[[Any, Any], object]
) -> None:
    for bad in values:
        with pytest.raises(InvalidUnitRequest) as refused:
            ask(ann.units, bad)
        assert refused.value.field == field, bad
        assert refused.value.allowed
    assert ann.line.sent == []


OF_GUARDS = ["u", "unit", "r", "row", "f", "format"]
"""How attributes of guards begin, which are items of units."""


@IN_MEMORY
@pytest.mark.parametrize("prefix", ["", None, 5, b"tlu", "p" * 17, "a.b", "a[0]", "\ud800", *OF_GUARDS])
def test_a_prefix_that_attributes_cannot_have_is_named(ann: Party, prefix: Any) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        Units("units", client=ann.client, prefix=prefix)
    assert refused.value.field == "prefix"


@IN_MEMORY
@pytest.mark.parametrize("timeout", [*NO_SECONDS, None])
def test_a_timeout_of_all_units_that_is_none_is_named(ann: Party, timeout: Any) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        Units("units", client=ann.client, timeout=timeout)
    assert refused.value.field == "timeout"


@IN_MEMORY
@WAY
@pytest.mark.parametrize(
    "check",
    [
        None,
        "a lock",
        {},
        {"ConditionCheck": {}},
        {"ConditionCheck": {"TableName": "locks", "Key": {}}},
        {"Put": {"TableName": "accounts", "Item": {"id": {"S": "a"}}}},
    ],
    ids=["none", "a text", "nothing", "an empty one", "no condition", "a put"],
)
def test_a_unit_is_not_committed_under_what_checks_nothing(
    books: Books, ann: Party, account: Key, way: str, check: Any
) -> None:
    unit = ann.begin(under=Pretended(check), engine=way)
    unit.update(ann.accounts, account, SET, ONE)
    before = books.everything()
    with pytest.raises(InvalidUnitRequest) as refused:
        unit.commit()
    assert refused.value.field == "under"
    assert books.everything() == before


BAD_KEYS: list[Any] = ["", b"", None, 1, True, {"a"}, set(), ["a"], {"a": "b"}, 1.5, "\ud800", "k" * 2_049]

STATEMENTS: dict[str, Callable[[Any, Any, Any], object]] = {
    "get": lambda ann, unit, key: unit.get(ann.accounts, key),
    "get_all": lambda ann, unit, key: unit.get_all([(ann.accounts, some_account()), (ann.accounts, key)]),
    "put": lambda ann, unit, key: unit.put(ann.accounts, key),
    "update": lambda ann, unit, key: unit.update(ann.accounts, key, SET, ONE),
    "blind": lambda ann, unit, key: unit.update(ann.accounts, key, SET, ONE, blind=True),
    "delete": lambda ann, unit, key: unit.delete(ann.accounts, key),
    "check": lambda ann, unit, key: unit.check(ann.accounts, key, "attribute_exists(id)"),
}


@IN_MEMORY
@pytest.mark.parametrize("state", STATEMENTS.values(), ids=STATEMENTS)
def test_the_value_of_a_key_is_named(ann: Party, state: Callable[[Any, Any, Any], object]) -> None:
    unit = ann.begin()
    for bad in BAD_KEYS:
        with pytest.raises(InvalidUnitRequest) as refused:
            state(ann, unit, {"id": bad})
        assert refused.value.field in ("key.id", "item.id"), bad
    assert ann.line.sent == []


@IN_MEMORY
@pytest.mark.parametrize(
    "bad",
    [Decimal("NaN"), Decimal("-Infinity"), int("1" * 39), Decimal("1E126"), Decimal("1E-131"), 1.0, True, "1"],
    ids=repr,
)
def test_a_number_that_cannot_be_a_key_is_named(ann: Party, bad: Any) -> None:
    unit = ann.begin()
    for field, state in (("key", unit.get), ("item", unit.put), ("key", unit.delete)):
        with pytest.raises(InvalidUnitRequest) as refused:
            state(ann.lines, {"pk": "a", "sk": bad})
        assert refused.value.field == f"{field}.sk"
    assert ann.line.sent == []


@IN_MEMORY
@WAY
@pytest.mark.parametrize("blind", [False, True], ids=["read", "blind"])
@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("values.:n", {"values": {":n": 1.5}}),
        ("values.:n", {"values": {":n": [{"a": {1.5}}]}}),
        ("values.:n", {"values": {":n": Decimal("NaN")}}),
        ("values.:n", {"values": {":n": Decimal("sNaN")}}),
        ("values.:n", {"values": {":n": Decimal("-Infinity")}}),
        ("values.:n", {"values": {":n": set()}}),
        ("values.:n", {"values": {":n": {"a": [set()]}}}),
        ("values.:n", {"values": {":n": {1, "a"}}}),
        ("values.:n", {"values": {":n": int("1" * 39)}}),
        ("values.:n", {"values": {":n": {"\ud800": 1}}}),
        ("values.:n", {"values": {":n": too_deep()}}),
        ("update", {"update": None}),
        ("update", {"update": ""}),
        ("update", {"update": "SOT a = :n"}),
        ("update", {"update": f"SET {VERSION} = :n"}),
        ("update", {"update": "SET #b = :n"}),
        ("names", {"update": "SET #b = :n", "names": {"#b": 1}}),
        ("update", {"values": None}),
        ("update", {"values": {**ONE, ":more": 1}}),
        ("blind", {"blind": "yes"}),
        ("values", {"values": [1]}),
        ("values", {"values": {5: 1}}),
        ("update", {"values": {"n": 1}}),
        ("update", {"update": "SET #b = :n", "names": {"b": "balance"}}),
        ("update", {"update": "SET #b = :n", "names": {"#b": ""}}),
        ("update", {"update": "SET #b = :n", "names": {"#b": "\ud800"}}),
        ("update", {"update": "SET #b = :n", "names": {"#" + "\ud800" * 255: "b"}}),
        ("values", {"values": {":\ud800": 1}}),
        ("update", {"update": "SET #b = :n", "names": {"#b": "b" * 65_536}}),
        ("update", {"update": f"SET #{'b' * 255} = :n", "names": {"#" + "b" * 255: "balance"}}),
        ("names", {"update": "SET #b = :n", "names": ["#b"]}),
        ("update", {"update": b"SET balance = :n"}),
        ("update", {"update": "SET balance = :n, balance.a = :n"}),
        ("update", {"update": "SET balance = :n SET other = :n"}),
        ("update", {"update": "ADD balance :n", "values": {":n": "a"}}),
        ("update", {"update": "SET id = :n"}),
        ("update", {"update": "REMOVE id", "values": None}),
        ("update", {"update": "SET balance = #v", "values": None, "names": {"#v": VERSION}}),
        ("update", {"update": "SET #m.unit = :n", "names": {"#m": MARK}}),
        ("update", {"condition": "attribute_not_exists(#v)", "names": {"#v": VERSION}}),
        ("update", {"condition": "size(#v) > :n", "names": {"#v": VERSION}}),
        ("condition", {"condition": True}),
        ("condition", {"condition": ""}),
        ("condition", {"condition": "c" * 4_097}),
        ("update", {"condition": Attr("balance").is_in(list(range(101)))}),
        ("update", {"condition": " OR ".join(["attribute_exists(a)"] * 151)}),
    ],
    ids=lambda given: None if isinstance(given, str) else "-".join(given),
)
def test_what_an_update_does_not_take_is_named_and_the_unit_stays_open(
    books: Books, ann: Party, account: Key, way: str, blind: bool, field: str, given: dict[str, Any]
) -> None:
    before = books.everything()
    unit: Any = ann.begin(engine=way)
    with pytest.raises(InvalidUnitRequest) as refused:
        unit.update(ann.accounts, account, **{"update": SET, "values": ONE, "blind": blind, **given})
    assert refused.value.field == field
    unit.commit()
    assert books.everything() == before


@IN_MEMORY
@pytest.mark.parametrize(
    "given",
    [
        {"condition": "attribute_not_exists(#v)", "names": {"#v": VERSION}},
        {"condition": Attr("balance").exists() & ~Attr(f"{MARK}.unit").eq("u")},
    ],
    ids=["text", "Attr"],
)
def test_a_condition_on_an_attribute_of_ours_is_refused_for_users_items_have_none(
    ann: Party, account: Key, given: dict[str, Any]
) -> None:
    unit: Any = ann.begin()
    for state in (unit.put, unit.delete, unit.check):
        with pytest.raises(InvalidUnitRequest, match="_tlu") as refused:
            state(ann.accounts, account, **given)
        assert refused.value.field == "condition"
    assert ann.line.sent == []


@IN_MEMORY
@pytest.mark.parametrize(
    "values",
    [
        {":n": {"N": 5}},
        {":n": {"SS": [5]}},
        {":n": {"S": "\ud800"}},
        {":n": {"M": {"\ud800": {"S": "a"}}}},
        {5: {"S": "a"}},
    ],
    ids=["no text of a number", "no text in a set", "no UTF-8", "a name without UTF-8", "no text of a placeholder"],
)
def test_a_value_that_is_none_of_the_low_level_api_s_is_refused_and_the_unit_stays_open(
    books: Books, ann: Party, account: Key, values: Any
) -> None:
    before = books.everything()
    unit = ann.begin()
    table, key = ann.accounts.name, {"id": {"S": account["id"]}}
    with pytest.raises(InvalidUnitRequest) as refused:
        unit.client.update_item(TableName=table, Key=key, UpdateExpression=SET, ExpressionAttributeValues=values)
    assert refused.value.field == "update"
    unit.commit()
    assert books.everything() == before
