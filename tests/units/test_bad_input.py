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
from ticketlock.units import Units, UnitTable, create_units_table

pytestmark = pytest.mark.shows("bad input")

# The arguments may be of any type: some of them are the mistake.
Use = Callable[[Party, Any, Key], object]

SET = "SET balance = :n"
ONE = {":n": 1}
# Nothing is sent, so that one engine is enough.
IN_MEMORY = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
WAY = pytest.mark.parametrize("way", ["native", "marked"])


def too_deep() -> Any:
    """A value with more levels than Python's recursion limit."""
    value: Any = 1
    for _ in range(10_000):
        value = [value]
    return value


def updates(**given: Any) -> Use:
    """An update with something else in it."""
    return lambda ann, unit, key: unit.update(ann.accounts, key, **{"update": SET, "values": ONE, **given})


def updates_low_level(values: Any) -> Use:
    def use(ann: Party, unit: Any, key: Key) -> object:
        low_key = {"id": {"S": key["id"]}}
        given = {"UpdateExpression": SET, "ExpressionAttributeValues": values}
        return unit.client.update_item(TableName=ann.accounts.name, Key=low_key, **given)

    return use


# The field that the error names, and the call.
BAD: dict[str, tuple[str, Use]] = {
    "a key that misses": ("key.id", lambda ann, unit, _: unit.get(ann.accounts, {})),
    "a key that misses one of two": ("key.sk", lambda ann, unit, _: unit.get(ann.lines, {"pk": "a"})),
    "a key with more than the key": ("key", lambda ann, unit, key: unit.get(ann.accounts, {**key, "balance": 1})),
    "a key that is none": ("key", lambda ann, unit, _: unit.get(ann.accounts, "a")),
    "a key of an update": ("key.id", lambda ann, unit, _: unit.update(ann.accounts, {"name": "a"}, SET, ONE)),
    "more than the key of an update": (
        "key",
        lambda ann, unit, key: unit.update(ann.accounts, {**key, "n": 1}, SET, ONE),
    ),
    "an item without its key": ("item.id", lambda ann, unit, _: unit.put(ann.accounts, {"balance": 1})),
    "an item that is none": ("item", lambda ann, unit, _: unit.put(ann.accounts, ["id"])),
    "a condition of no form": ("delete", lambda ann, unit, key: unit.delete(ann.accounts, key, condition="a ==")),
    "a condition that is no text": ("condition", lambda ann, unit, key: unit.delete(ann.accounts, key, condition=5)),
    "a float in a condition": (
        "condition.:tlu_v0",
        lambda ann, unit, key: unit.delete(ann.accounts, key, condition=Attr("balance").gte(1.5)),
    ),
    "a condition on our version": (
        "condition",
        lambda ann, unit, key: unit.put(ann.accounts, key, condition="attribute_not_exists(#v)", names={"#v": VERSION}),
    ),
    "a condition on our mark": (
        "condition",
        lambda ann, unit, key: unit.check(ann.accounts, key, Attr("balance").exists() & ~Attr(f"{MARK}.unit").eq("u")),
    ),
    "a check without a condition": ("condition", lambda ann, unit, key: unit.check(ann.accounts, key, None)),
    "no level": ("isolation", lambda ann, unit, key: unit.get(ann.accounts, key, isolation="COMMITTED")),
    "a table by its name": ("table", lambda ann, unit, key: unit.get(ann.accounts.name, key)),
    "a table in the place of an item": ("wanted", lambda ann, unit, _: unit.get_all([ann.accounts])),
    "nothing in the place of items": ("wanted", lambda _, unit, __: unit.get_all(None)),
    "no value of the low-level API": ("update", updates_low_level({":n": {"N": 5}})),
    "no name of one": ("update", updates_low_level({5: {"S": "a"}})),
}


# Attributes that an item cannot have; the error names the attribute.
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "a float": {"price": 1.5},
    "a float inside": {"prices": [{"a": 1.5}]},
    "NaN": {"price": Decimal("NaN")},
    "a signalling NaN": {"price": Decimal("sNaN")},
    "infinity": {"price": Decimal("Infinity")},
    "39 digits": {"price": Decimal("1" * 39)},
    "39 digits without a point": {"price": int("1" * 39)},
    "a number out of range": {"price": Decimal("1E126")},
    "an empty set": {"tags": set()},
    "a set of two types": {"tags": {1, "a"}},
    "an object": {"what": object()},
    "a name inside that is no UTF-8": {"price": {"\ud800": 1}},
    "more levels than Python has": {"price": too_deep()},
    "a name with half of a surrogate pair": {"\ud800": 1},
    "a name that is called as ours": {VERSION: "mine"},
}


def bad_put(attributes: dict[str, Any]) -> tuple[str, Use]:
    (name,) = attributes
    field = "item" if name in ("\ud800", VERSION) else f"item.{name}"
    return field, lambda ann, unit, key: unit.put(ann.accounts, {**key, **attributes})


BAD |= {name: bad_put(attributes) for name, attributes in ATTRIBUTES.items()}

# The field, and what an update says otherwise. Which expressions DynamoDB refuses, tests/expressions asks.
UPDATES: list[tuple[str, dict[str, Any]]] = [
    ("values.:n", {"values": {":n": 1.5}}),
    ("values", {"values": [1]}),
    ("values", {"values": {5: 1}}),
    ("values", {"values": {":\ud800": 1}}),
    ("update", {"values": None}),
    ("update", {"update": None}),
    ("update", {"update": ""}),
    ("update", {"update": "SOT a = :n"}),
    ("update", {"update": "SET id = :n"}),
    ("update", {"update": f"SET {VERSION} = :n"}),
    ("update", {"update": "SET #m.unit = :n", "names": {"#m": MARK}}),
    ("update", {"update": "SET balance = #v", "values": None, "names": {"#v": VERSION}}),
    ("update", {"condition": "size(#v) > :n", "names": {"#v": VERSION}}),
    ("names", {"update": "SET #b = :n", "names": {"#b": 1}}),
    ("names", {"update": "SET #b = :n", "names": ["#b"]}),
    ("update", {"update": "SET #b = :n", "names": {"#b": "\ud800"}}),
    ("condition", {"condition": True}),
    ("condition", {"condition": ""}),
    ("condition", {"condition": "c" * 4_097}),
    ("blind", {"blind": "yes"}),
]
BAD |= {
    f"{'a blind' if blind else 'an'} update with {list(given)} #{at}": (field, updates(**{"blind": blind, **given}))
    for at, (field, given) in enumerate(UPDATES)
    for blind in (False, True)
}


@WAY
@IN_MEMORY
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


def looks_up(key: dict[str, Any]) -> Use:
    return lambda ann, unit, _: unit.get(ann.accounts, key)


# What its message begins with, what it says to write instead, and the call.
TOLD: dict[str, tuple[str, str | None, Use]] = {
    "no update": ("Invalid UpdateExpression: Syntax error", None, updates(update="balance = :n")),
    "a reserved word": (
        "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: name (update is ",
        "another name for it: write #name, and pass names={'#name': 'name'}",
        updates(update="SET name = :n"),
    ),
    "one of two expressions": (
        "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: name (update is {",
        None,
        updates(update="SET name = :n", condition="id > :n"),
    ),
    "a condition object": (
        "Invalid ConditionExpression: The BETWEEN",
        None,
        lambda ann, unit, key: unit.delete(ann.accounts, key, condition=Attr("balance").between(2, 1)),
    ),
    "a key": ("the partition key of the table '", None, looks_up({"name": "a"})),
    "a value": (
        "Invalid UpdateExpression: An expression attribute value used in expression is not defined",
        "a value for it: pass values={':n': ...}, with the colon in the name",
        updates(values={"n": 1}),
    ),
    "a name": (
        "Invalid UpdateExpression: An expression attribute name used in the document path is not defined",
        "an attribute for it: pass names={'#b': ...}, with the # in the name",
        updates(update="SET #b = :n", names={"b": "balance"}),
    ),
    "a missing attribute": (
        "The provided expression refers to an attribute that does not exist in the item, for the item",
        "an update of what the item has: add a condition such as attribute_exists(balance), or use ADD",
        updates(update="SET debts = debts + :n"),
    ),
    "a table's name": (
        'table is "accounts"; allowed: a table of this Units: units.table("accounts")',
        None,
        lambda _, unit, key: unit.get("accounts", key),
    ),
    "keys without tables": (
        "wanted is [{'id': ",
        "a list of pairs of a table and a key: [(table, {...}), ...]",
        lambda _, unit, key: unit.get_all([key]),
    ),
    "a table": ("wanted is [<UnitTable '", None, lambda ann, unit, _: unit.get_all([ann.accounts])),
    "a level": (
        'isolation is "COMMITTED"; allowed: one of the levels of ticketlock.units: UNCOMMITTED, ',
        None,
        lambda ann, unit, key: unit.get(ann.accounts, key, isolation="COMMITTED"),
    ),
}


@pytest.mark.parametrize(("message", "advice", "use"), TOLD.values(), ids=TOLD)
def test_the_error_shows_what_was_given_and_why_dynamodb_would_refuse_it_and_what_to_write_instead(
    ann: Party, account: Key, message: str, advice: str | None, use: Use
) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        use(ann, ann.begin(), account)
    assert str(refused.value).startswith(message)
    assert advice in (None, refused.value.allowed)


def test_the_error_of_a_wrong_key_names_the_tables_key_and_the_given_one(ann: Party) -> None:
    with pytest.raises(
        InvalidUnitRequest, match=r"^the partition key of the table '.*' is 'id', and key has 'name' \("
    ):
        ann.begin().get(ann.accounts, {"name": "a"})


def test_a_table_that_is_not_there_is_named(books: Books, ann: Party) -> None:
    with pytest.raises(TableNotFound, match="no-such-table"):
        ann.units.table("no-such-table")
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


# A prefix that items use already.


@pytest.fixture
def theirs(units_world: UnitsWorld) -> Party:
    """A process whose prefix is ``my``."""
    return units_world.party(prefix="my")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("myVersion", "1.0"),
        ("myVersion", "O" * 26),
        ("myColour", "1.0"),
        ("myMark", {"unit": new_version()}),
        ("myMark", {"unit": new_version(), "kind": "small"}),
        ("myMark", {"unit": new_version(), "kind": 5}),
    ],
)
def test_a_prefix_that_items_use_already_is_refused_when_it_is_met(
    books: Books, theirs: Party, attribute: str, value: Any
) -> None:
    key = some_account()
    books.write("accounts", {**key, attribute: value})
    before = books.everything()
    unit = theirs.begin()
    with pytest.raises(InvalidUnitRequest, match=attribute) as refused:
        unit.update(theirs.accounts, key, SET, ONE)
    assert refused.value.field == "prefix"
    assert books.everything() == before


@THREADS_ONLY
def test_an_item_that_uses_the_prefix_already_keeps_no_sweep_from_other_units(
    units_world: UnitsWorld, books: Books, ben: Party
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


def test_another_prefix_than_one_that_items_use_may_be_chosen(books: Books, theirs: Party) -> None:
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


NO_TEXT: list[Any] = ["", 5, True, b"text", ["text"], "t" * 1_025, "\ud800"]
NO_LEVEL: list[Any] = ["SERIALIZABLE", 5, True, []]
NO_SECONDS: list[Any] = [-0.001, 900.001, 10**30, math.inf, -math.inf, math.nan, True, "10", [10], Decimal("NaN")]
OF_GUARDS = ["u", "unit", "r", "row", "f", "format"]
"""How attributes of guards begin, which are items of units."""
NO_PREFIX: list[Any] = ["", None, 5, b"tlu", "p" * 17, "a.b", "a[0]", "\ud800", *OF_GUARDS]


def made(ann: Party, name: Any = "units", **options: Any) -> None:
    Units(name, **{"client": ann.client, **options})


# The field, the values that it may not have, and the call.
FIELDS: dict[str, tuple[str, list[Any], Callable[[Any, Any, Any], object]]] = {
    "Units(table_name)": ("table_name", ["", None, 5], lambda ann, _, bad: made(ann, bad)),
    "Units(client)": ("client", ["dynamodb", boto3], lambda ann, _, bad: made(ann, client=bad)),
    "Units(prefix)": ("prefix", NO_PREFIX, lambda ann, _, bad: made(ann, prefix=bad)),
    "Units(timeout)": ("timeout", [*NO_SECONDS, None], lambda ann, _, bad: made(ann, timeout=bad)),
    "begin(name)": ("name", NO_TEXT, lambda _, u, bad: u.begin(name=bad)),
    "begin(isolation)": ("isolation", [*NO_LEVEL, None], lambda _, u, bad: u.begin(isolation=bad)),
    "begin(timeout)": ("timeout", NO_SECONDS, lambda _, u, bad: u.begin(timeout=bad)),
    "begin(engine)": ("engine", ["", "both", 1, True, ["native"]], lambda _, u, bad: u.begin(engine=bad)),
    "begin(under)": ("under", ["a-lock", 5, True, object()], lambda _, u, bad: u.begin(under=bad)),
    "transactional(tries)": (
        "tries",
        [0, -1, 1_001, 1.5, True, None, "10"],
        lambda _, u, bad: u.transactional(tries=bad),
    ),
    "transactional(unit_as)": ("unit_as", ["", None, 5, "u" * 256], lambda _, u, bad: u.transactional(unit_as=bad)),
    "transactional(isolation)": ("isolation", NO_LEVEL, lambda _, u, bad: u.transactional(isolation=bad)),
    "transactional(timeout)": ("timeout", NO_SECONDS, lambda _, u, bad: u.transactional(timeout=bad)),
    "outcome(name)": ("name", [*NO_TEXT, None], lambda _, u, bad: u.outcome(name=bad)),
    "outcome(unit)": ("unit", ["", "u" * 25, 5, True, b"u"], lambda _, u, bad: u.outcome(unit=bad)),
    "outcome(both)": ("name", ["a"], lambda _, u, bad: u.outcome(name=bad, unit=bad)),
    "table": ("name", ["", None, 5, b"accounts", ["accounts"], "t" * 1_025], lambda _, u, bad: u.table(bad)),
    "table(guarded)": ("guarded", [1, "yes", []], lambda _, u, bad: u.table("accounts", guarded=bad)),
    "check_access": ("tables", [5, None, True], lambda _, u, bad: u.check_access(bad)),
    "check_access of names": ("table", ["accounts", ["accounts"], [None]], lambda _, u, bad: u.check_access(bad)),
    "clean": ("item", [5, None, "item", ["item"], {1: "a"}], lambda _, u, bad: u.clean(bad)),
    "get_all": ("wanted", [5, None, "items", {}, [()], [("accounts",)], [5]], lambda _, u, bad: u.get_all(bad)),
    "get_all of names": ("table", ["accounts", None, 5], lambda _, u, bad: u.get_all([(bad, {"id": "a"})])),
}


@IN_MEMORY
@pytest.mark.parametrize(("field", "values", "ask"), FIELDS.values(), ids=FIELDS)
def test_a_parameter_of_another_kind_is_named(
    ann: Party, field: str, values: list[Any], ask: Callable[[Any, Any, Any], object]
) -> None:
    for bad in values:
        with pytest.raises(InvalidUnitRequest) as refused:
            ask(ann, ann.units, bad)
        assert refused.value.field == field, bad
        assert refused.value.allowed
    assert ann.line.sent == []


class Pretended:
    """A held lock whose check is none."""

    def __init__(self, check: Any) -> None:
        self._check = check

    def condition_check(self) -> Any:
        return self._check


@IN_MEMORY
@WAY
@pytest.mark.parametrize(
    "check",
    [
        None,
        {},
        {"ConditionCheck": {"TableName": "locks", "Key": {}}},
        {"Put": {"TableName": "accounts", "Item": {"id": {"S": "a"}}}},
    ],
    ids=["none", "nothing", "no condition", "a put"],
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


NO_TEXT_OF_A_KEY: list[Any] = ["", b"", None, 1, True, {"a"}, set(), ["a"], {"a": "b"}, 1.5, "\ud800", "k" * 2_049]
NO_NUMBER_OF_A_KEY: list[Any] = [
    *(Decimal(each) for each in ("NaN", "-Infinity", "1E126", "1E-131")),
    int("1" * 39),
    1.0,
    True,
    "1",
]

STATEMENTS: dict[str, Callable[[Any, UnitTable, Any], object]] = {
    "get": lambda unit, table, key: unit.get(table, key),
    "get_all": lambda unit, table, key: unit.get_all([(table, key)]),
    "put": lambda unit, table, key: unit.put(table, key),
    "update": lambda unit, table, key: unit.update(table, key, SET, ONE),
    "blind": lambda unit, table, key: unit.update(table, key, SET, ONE, blind=True),
    "delete": lambda unit, table, key: unit.delete(table, key),
    "check": lambda unit, table, key: unit.check(table, key, "attribute_exists(id)"),
}


@IN_MEMORY
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_value_that_a_key_cannot_have_is_named(ann: Party, statement: str) -> None:
    unit, target = ann.begin(), "item" if statement == "put" else "key"
    keys: list[tuple[UnitTable, str, dict[str, Any]]] = [
        *((ann.accounts, "id", {"id": bad}) for bad in NO_TEXT_OF_A_KEY),
        *((ann.lines, "sk", {"pk": "a", "sk": bad}) for bad in NO_NUMBER_OF_A_KEY),
    ]
    for table, name, key in keys:
        with pytest.raises(InvalidUnitRequest) as refused:
            STATEMENTS[statement](unit, table, key)
        assert refused.value.field == f"{target}.{name}", key
    assert ann.line.sent == []


@pytest.mark.parametrize("value", [{"NULL": False}, {"M": {"in": {"NULL": False}}}, {"L": [{"NULL": False}]}])
def test_a_null_that_is_not_true_is_refused_at_the_statement(ann: Party, account: Key, value: Any) -> None:
    """DynamoDB would refuse it, for a marked unit after its decision."""
    client, table, key = ann.begin().client, ann.accounts.name, {"id": {"S": account["id"]}}
    with pytest.raises(InvalidUnitRequest, match="Null attribute value types must have the value of true"):
        client.put_item(TableName=table, Item={**key, "nothing": value})
    with pytest.raises(InvalidUnitRequest, match="Null attribute value types must have the value of true"):
        updates_low_level({":n": value})(ann, ann.begin(), account)
    client.put_item(TableName=table, Item={**key, "nothing": {"NULL": True}})
