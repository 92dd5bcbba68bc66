"""For an argument of a wrong kind, an error of ours names it, and nothing is written."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr
from kit.units import MARK, VERSION, Books, Key, Party, some_account

from ticketlock.errors import InvalidUnitRequest
from ticketlock.units import Units

# Nothing is sent, so that one engine is enough.
pytestmark = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)

WAY = pytest.mark.parametrize("way", ["native", "marked"])
SET, ONE = "SET balance = :n", {":n": 1}
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


@pytest.mark.parametrize("prefix", ["", None, 5, b"tlu", "p" * 17, "a.b", "a[0]", "\ud800", *OF_GUARDS])
def test_a_prefix_that_attributes_cannot_have_is_named(ann: Party, prefix: Any) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        Units("units", client=ann.client, prefix=prefix)
    assert refused.value.field == "prefix"


@pytest.mark.parametrize("timeout", [*NO_SECONDS, None])
def test_a_timeout_of_all_units_that_is_none_is_named(ann: Party, timeout: Any) -> None:
    with pytest.raises(InvalidUnitRequest) as refused:
        Units("units", client=ann.client, timeout=timeout)
    assert refused.value.field == "timeout"


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


@pytest.mark.parametrize("state", STATEMENTS.values(), ids=STATEMENTS)
def test_the_value_of_a_key_is_named(ann: Party, state: Callable[[Any, Any, Any], object]) -> None:
    unit = ann.begin()
    for bad in BAD_KEYS:
        with pytest.raises(InvalidUnitRequest) as refused:
            state(ann, unit, {"id": bad})
        assert refused.value.field in ("key.id", "item.id"), bad
    assert ann.line.sent == []


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
