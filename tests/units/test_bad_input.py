"""For bad input an error of ours names the field, the value and what is allowed; nothing is written."""

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
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
    Party,
    UnitsWorld,
    new_version,
    some_account,
)
from units.conftest import COPIES_S, LEASE_S, STATEMENTS

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
    "a key without its attribute": ("key.id", lambda ann, unit, _: unit.get(ann.accounts, {})),
    "a key without one of its two attributes": ("key.sk", lambda ann, unit, _: unit.get(ann.lines, {"pk": "a"})),
    "a key with more than the key": ("key", lambda ann, unit, key: unit.get(ann.accounts, {**key, "balance": 1})),
    "a text as a key": ("key", lambda ann, unit, _: unit.get(ann.accounts, "a")),
    "a key without its attribute in an update": (
        "key.id",
        lambda ann, unit, _: unit.update(ann.accounts, {"name": "a"}, SET, ONE),
    ),
    "a key with more than the key in an update": (
        "key",
        lambda ann, unit, key: unit.update(ann.accounts, {**key, "n": 1}, SET, ONE),
    ),
    "an item without its key": ("item.id", lambda ann, unit, _: unit.put(ann.accounts, {"balance": 1})),
    "a list as an item": ("item", lambda ann, unit, _: unit.put(ann.accounts, ["id"])),
    "a condition with a syntax error": (
        "delete",
        lambda ann, unit, key: unit.delete(ann.accounts, key, condition="a =="),
    ),
    "a condition that is no text": ("condition", lambda ann, unit, key: unit.delete(ann.accounts, key, condition=5)),
    "a float in a condition": (
        "condition",
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
    "a level by its name": ("isolation", lambda ann, unit, key: unit.get(ann.accounts, key, isolation="COMMITTED")),
    "a table by its name": ("table", lambda ann, unit, key: unit.get(ann.accounts.name, key)),
    "a table in the place of an item": ("table", lambda ann, unit, _: unit.get_all([ann.accounts])),
    "nothing in the place of items": ("table", lambda _, unit, __: unit.get_all(None)),
    "a value that is none of the low-level API": ("update", updates_low_level({":n": {"N": 5}})),
    "a number as a value's name in the low-level API": ("update", updates_low_level({5: {"S": "a"}})),
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
UPDATES: dict[str, tuple[str, dict[str, Any]]] = {
    "a float as a value": ("values.:n", {"values": {":n": 1.5}}),
    "a list of values": ("values", {"values": [1]}),
    "a number as a value's name": ("values", {"values": {5: 1}}),
    "half of a surrogate pair in a value's name": ("values", {"values": {":\ud800": 1}}),
    "no values": ("update", {"values": None}),
    "no expression": ("update", {"update": None}),
    "an empty expression": ("update", {"update": ""}),
    "a syntax error": ("update", {"update": "SOT a = :n"}),
    "a change of the key": ("update", {"update": "SET id = :n"}),
    "a change of our version": ("update", {"update": f"SET {VERSION} = :n"}),
    "a change of our mark": ("update", {"update": "SET #m.unit = :n", "names": {"#m": MARK}}),
    "our version as a value": ("update", {"update": "SET balance = #v", "values": None, "names": {"#v": VERSION}}),
    "a condition on our version": ("update", {"condition": "size(#v) > :n", "names": {"#v": VERSION}}),
    "a number as a name": ("names", {"update": "SET #b = :n", "names": {"#b": 1}}),
    "a list of names": ("names", {"update": "SET #b = :n", "names": ["#b"]}),
    "half of a surrogate pair as a name": ("update", {"update": "SET #b = :n", "names": {"#b": "\ud800"}}),
    "a condition that is no text": ("condition", {"condition": True}),
    "an empty condition": ("condition", {"condition": ""}),
    "a condition that is too long": ("condition", {"condition": "c" * 4_097}),
    "a text as blind": ("blind", {"blind": "yes"}),
}
BAD |= {
    f"{'a blind' if blind else 'an'} update with {what}": (field, updates(**{"blind": blind, **given}))
    for what, (field, given) in UPDATES.items()
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


AS_DYNAMODB = "what DynamoDB accepts"
NAME_OF_NAME = "another name for it: write #name, and pass names={'#name': 'name'}"
PAIRS = "a table and a list, or a list of pairs: [(table, {...}), ...]"
# What its message begins with, what it says to write instead, and the call.
TOLD: dict[str, tuple[str, str, Use]] = {
    "no update": ("Invalid UpdateExpression: Syntax error", AS_DYNAMODB, updates(update="balance = :n")),
    "a reserved word": (
        "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: name (update is ",
        NAME_OF_NAME,
        updates(update="SET name = :n"),
    ),
    "one of two expressions": (
        "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: name (update is {",
        NAME_OF_NAME,
        updates(update="SET name = :n", condition="id > :n"),
    ),
    "a condition object": (
        "Invalid ConditionExpression: The BETWEEN",
        AS_DYNAMODB,
        lambda ann, unit, key: unit.delete(ann.accounts, key, condition=Attr("balance").between(2, 1)),
    ),
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
        'table is "accounts"; allowed: ',
        'a table of this Units: units.table("accounts")',
        lambda _, unit, key: unit.get("accounts", key),
    ),
    "keys without tables": ("table is [{'id': ", PAIRS, lambda _, unit, key: unit.get_all([key])),
    "a table": ("table is [<UnitTable '", PAIRS, lambda ann, unit, _: unit.get_all([ann.accounts])),
    "a level": (
        'isolation is "COMMITTED"; allowed: ',
        "one of the levels of ticketlock.units: UNCOMMITTED, COMMITTED, SERIALIZABLE or READ_LOCK",
        lambda ann, unit, key: unit.get(ann.accounts, key, isolation="COMMITTED"),
    ),
}


@pytest.mark.parametrize(("message", "advice", "use"), TOLD.values(), ids=TOLD)
def test_the_error_shows_what_was_given_and_why_dynamodb_would_refuse_it_and_what_to_write_instead(
    ann: Party, account: Key, message: str, advice: str, use: Use
) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        use(ann, ann.begin(), account)
    assert str(refused.value).startswith(message)
    assert refused.value.allowed == advice


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
    keys = [books.account(), books.account()]
    for key in keys:
        units_world.killed([key], is_committed=False)
    assert books.marks(keys) == len(keys)
    books.write("accounts", {**keys[0], MARK: "mine"})
    books.clock.advance(LEASE_S + COPIES_S)
    ben.units.sweep()
    assert [books.marks([key]) for key in keys] == [1, 0]


def test_another_prefix_than_one_that_items_use_may_be_chosen(books: Books, theirs: Party) -> None:
    key = some_account()
    with theirs.begin() as unit:
        unit.put(theirs.accounts, {**key, "_tluColour": "red"})
    assert books.raw("accounts", key) == {**key, "_tluColour": "red", "myVersion": unit.id}


@pytest.mark.parametrize("use", [Units, create_units_table])
def test_a_resource_is_no_client_and_its_own_client_which_converts_values_is_not_recommended(
    use: Callable[..., object],
) -> None:
    resource: Any = boto3.resource("dynamodb")
    with pytest.raises(InvalidUnitRequest, match="client is ") as refused:
        use("units", client=resource)
    assert "resource.meta.client" not in str(refused.value)
    assert "boto3.client('dynamodb')" in str(refused.value)


NO_NAME: list[Any] = ["", 5.5, True, b"text", ["text"], "t" * 1_025, "\ud800"]
NO_LEVEL: list[Any] = ["SERIALIZABLE", 5, True, []]
NO_SECONDS: list[Any] = [-0.001, 900.001, 10**30, math.inf, -math.inf, math.nan, True, "10", [10], Decimal("NaN")]
DAY_S = 24 * 3_600
OF_GUARDS = ["u", "unit", "r", "row", "f", "format"]
"""How attributes of guards begin, which are items of units."""
NO_PREFIX: list[Any] = ["", None, 5, b"tlu", "p" * 17, "a.b", "a[0]", "\ud800", *OF_GUARDS]


# The field, the values that it may not have, and the call.
FIELDS: dict[str, tuple[str, list[Any], Callable[[Any, Any], object]]] = {
    "Units(table_name)": ("table_name", ["", None, 5], lambda ann, bad: Units(bad, client=ann.client)),
    "Units(client)": ("client", ["dynamodb", boto3], lambda _, bad: Units("units", client=bad)),
    "Units(prefix)": ("prefix", NO_PREFIX, lambda ann, bad: Units("units", client=ann.client, prefix=bad)),
    "Units(timeout)": (
        "timeout",
        [*NO_SECONDS, None],
        lambda ann, bad: Units("units", client=ann.client, timeout=bad),
    ),
    "Units(keep_names_for)": (
        "keep_names_for",
        [DAY_S - 1, 366 * DAY_S + 1, math.nan, True, None, "30 days"],
        lambda ann, bad: Units("units", client=ann.client, keep_names_for=bad),
    ),
    "begin(name)": ("name", NO_NAME, lambda ann, bad: ann.units.begin(name=bad)),
    "begin(isolation)": ("isolation", [*NO_LEVEL, None], lambda ann, bad: ann.units.begin(isolation=bad)),
    "begin(timeout)": ("timeout", NO_SECONDS, lambda ann, bad: ann.units.begin(timeout=bad)),
    "begin(engine)": ("engine", ["", "both", 1, True, ["native"]], lambda ann, bad: ann.units.begin(engine=bad)),
    "begin(under)": ("under", ["a-lock", 5, True, object()], lambda ann, bad: ann.units.begin(under=bad)),
    "transactional(tries)": (
        "tries",
        [0, -1, 1_001, 1.5, True, None, "10"],
        lambda ann, bad: ann.units.transactional(tries=bad),
    ),
    "transactional(unit_as)": (
        "unit_as",
        ["", None, 5, "u" * 256],
        lambda ann, bad: ann.units.transactional(unit_as=bad),
    ),
    "transactional(isolation)": ("isolation", NO_LEVEL, lambda ann, bad: ann.units.transactional(isolation=bad)),
    "transactional(timeout)": ("timeout", NO_SECONDS, lambda ann, bad: ann.units.transactional(timeout=bad)),
    "outcome(name)": ("name", [*NO_NAME, None], lambda ann, bad: ann.units.outcome(name=bad)),
    "outcome(unit)": ("unit", ["", "u" * 25, 5, True, b"u"], lambda ann, bad: ann.units.outcome(unit=bad)),
    "outcome(both)": ("name", ["a"], lambda ann, bad: ann.units.outcome(name=bad, unit=bad)),
    "table": ("name", ["", None, 5, b"accounts", ["accounts"], "t" * 1_025], lambda ann, bad: ann.units.table(bad)),
    "table(guarded)": ("guarded", [1, "yes", []], lambda ann, bad: ann.units.table("accounts", guarded=bad)),
    "check_access": ("tables", [5, None, True], lambda ann, bad: ann.units.check_access(bad)),
    "check_access of names": (
        "table",
        ["accounts", ["accounts"], [None]],
        lambda ann, bad: ann.units.check_access(bad),
    ),
    "clean": ("item", [5, None, "item", ["item"], {1: "a"}], lambda ann, bad: ann.units.clean(bad)),
    "get_all": ("table", [5, None, "items", {}, [()], [("accounts",)], [5]], lambda ann, bad: ann.units.get_all(bad)),
    "get_all of a table": (
        "keys",
        [5, None, "items", {}],
        lambda ann, bad: ann.units.get_all(ann.accounts, bad),
    ),
    "get_all of a name": ("table", ["accounts", 5], lambda ann, bad: ann.units.get_all(bad, [{"id": "a"}])),
    "get_all of names": ("table", ["accounts", None, 5], lambda ann, bad: ann.units.get_all([(bad, {"id": "a"})])),
}


@IN_MEMORY
@pytest.mark.parametrize(("field", "values", "ask"), FIELDS.values(), ids=FIELDS)
def test_a_parameter_with_a_value_that_is_not_allowed_is_named_and_nothing_is_sent(
    ann: Party, field: str, values: list[Any], ask: Callable[[Any, Any], object]
) -> None:
    for bad in values:
        with pytest.raises(InvalidUnitRequest) as refused:
            ask(ann, bad)
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


@IN_MEMORY
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_value_that_a_key_cannot_have_is_named(ann: Party, statement: str) -> None:
    unit, target = ann.begin(), {"put": "item", "put_all": "items[0]"}.get(statement, "key")
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
    unit, table, key = ann.begin(), ann.accounts.name, {"id": {"S": account["id"]}}

    def puts() -> object:
        return unit.client.put_item(TableName=table, Item={**key, "nothing": value})

    for use in (puts, partial(updates_low_level({":n": value}), ann, unit, account)):
        with pytest.raises(InvalidUnitRequest, match="Null attribute value types must have the value of true"):
            use()
    unit.client.put_item(TableName=table, Item={**key, "nothing": {"NULL": True}})


def test_all_wrong_settings_of_units_are_told_at_once() -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        Units("", client=boto3.client("dynamodb", region_name="us-east-1"), prefix="", timeout=-1, keep_names_for=0)
    assert [problem.split(" is ")[0] for problem in refused.value.problems] == [
        "table_name",
        "client's retries",
        "client's connect_timeout",
        "client's read_timeout",
        "prefix",
        "keep_names_for",
        "timeout",
    ]
