"""Where the engines differ from AWS's documentation: exactly in what the lists of this file name."""

import uuid

import pytest
from expressions.asked import item_of, wire, with_values
from expressions.beside import Beside
from kit.engines import Engine

pytestmark = pytest.mark.shows("DynamoDB's statements")

ITEM = item_of(n=1, s="text", e="\N{GRINNING FACE}", l=[0, 1, 2], m={"k": 1}, tags={"a"})
VALUES = {
    ":one": wire(1),
    ":two": wire(2),
    ":three": wire(3),
    ":four": wire(4),
    ":a": wire("a"),
    ":x": wire("X"),
    ":list": wire([]),
    ":set": wire({"a"}),
}
_CHOICES = {f":c{number}": wire(number) for number in range(101)}

# What is asked, with the engines that answer otherwise.
CONDITIONS = {
    "gone = away": {"moto", "ministack"},
    "gone IN (away)": {"moto", "ministack"},
    "gone <> away": {"moto", "ministack"},
    "n = n": {"moto", "ministack", "dynoxide"},
    "n < :list": {"moto", "ministack", "dynoxide"},
    "n BETWEEN :two AND :one": {"moto"},
    "n BETWEEN :one AND :a": {"moto", "ministack"},
    "n < s": {"moto"},
    "begins_with(s, :one)": {"moto"},
    "begins_with(n, :a)": {"ministack"},
    "begins_with(:a, s)": {"ministack"},
    "attribute_type(n, :x)": {"moto", "ministack", "dynoxide"},
    "size(e) = :two": {"moto"},
    "size(n) = :one": {"moto"},
    "size(:one) = n": {"moto"},
    "(n) = (:one)": {"moto", "ministack", "dynoxide"},
    "NOT NOT n = :one": {"moto"},
    "NOT " * 299 + "n < s": {"moto"},
    "NOT " * 300 + "n < s": {"moto", "ministack", "dynoxide"},
    f"n ={' ' * 4_089}:one": set(),
    f"n ={' ' * 4_090}:one": {"moto"},
    f"n IN ({', '.join(list(_CHOICES)[:100])})": set(),
    f"n IN ({', '.join(_CHOICES)})": {"moto", "ministack", "dynoxide"},
}
UPDATES = {
    "REMOVE n, n": {"ministack"},
    "SET m.a = :one, m[1] = :one": {"ministack"},
    "REMOVE gone.k": {"ministack"},
    "DELETE gone.k :set": {"ministack"},
    "ADD l.k :one": {"moto"},
    "SET n = l + :one": {"ministack"},
    "SET n = n + :a": {"ministack"},
    "SET n = if_not_exists(n[0], s)": {"moto"},
    "SET n = if_not_exists(n, n)": {"moto", "ministack", "dynoxide"},
    "REMOVE l[0], l[1]": {"ministack"},
    "SET l[9] = :two, l[7] = :one": {"moto", "ministack"},
    "SET z = (n + :one)": {"moto"},
    "SET z = list_append(list_append(l, l), l)": {"moto", "ministack", "dynoxide"},
    "SET z = if_not_exists(away, list_append(l, l))": {"ministack", "dynoxide"},
    "SET m.l = m": {"moto"},
}
PROJECTIONS = {
    "m.k, m": {"moto"},
    "m.k, m[0]": {"moto", "ministack", "dynoxide"},
    "l[2], l[0]": {"moto"},
    "n.k, gone[1]": {"moto"},
}


@pytest.mark.parametrize(
    ("kind", "listed"),
    [("ConditionExpression", CONDITIONS), ("UpdateExpression", UPDATES), ("ProjectionExpression", PROJECTIONS)],
)
def test_an_engine_differs_exactly_in_what_is_listed(engine: Engine, kind: str, listed: dict[str, set[str]]) -> None:
    beside = Beside(engine)
    otherwise = set()
    for text in listed:
        found = beside.ask(ITEM, with_values(kind, text, {**VALUES, **_CHOICES}))
        if not found.are_alike():
            otherwise.add(text)
    assert otherwise == {text for text, engines in listed.items() if engine.name in engines}


@pytest.mark.parametrize("update", ["REMOVE a", "DELETE a :set"])
def test_an_update_that_only_takes_away_makes_an_item_on_emulators_alone(engine: Engine, update: str) -> None:
    client, table = engine.client(), {"TableName": engine.table_name}
    key = {"pk": {"S": uuid.uuid4().hex}, "sk": {"S": "-"}}
    values = {"ExpressionAttributeValues": {":set": VALUES[":set"]}} if ":set" in update else {}
    client.update_item(**table, Key=key, UpdateExpression=update, **values)
    found = client.get_item(**table, Key=key, ConsistentRead=True)
    assert ("Item" in found) == (engine.name in {"moto", "ministack", "dynoxide"})
