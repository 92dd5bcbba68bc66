"""Queries past marks, of items that are too large together for one transaction: it takes 4 MB."""

import random
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from kit.crashes import crashes
from kit.engines import first_on, roomy_engine_names
from kit.units import MARK, THREADS_ONLY, Books, Killed, Party, UnitsWorld, some_line

from ticketlock.units import COMMITTED, SERIALIZABLE, Isolation

pytestmark = [
    THREADS_ONLY,
    pytest.mark.parametrize("units_engine", first_on("memory", roomy_engine_names()), indirect=True),
]

LEVELS = pytest.mark.parametrize("level", [COMMITTED, SERIALIZABLE], ids=lambda level: level.name)
COUNT, LARGE = 12, "x" * 380_000
# Incompressible: a dozen fill two rows of the record.
NOISE = random.Random(0).randbytes(55_000)


def inserted(world: UnitsWorld, order: str, **attributes: Any) -> None:
    """Insert lines in a unit whose process is killed after its decision: the table has placeholders of them."""
    killed = world.party()
    unit = killed.begin(engine="marked")
    for number in range(1, COUNT + 1):
        unit.put(killed.lines, {"pk": order, "sk": number, **attributes})
    crashes(killed, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    assert all(MARK in (world.books.raw("lines", {"pk": order, "sk": at + 1}) or {}) for at in range(COUNT))


@pytest.fixture
def order() -> str:
    return str(some_line()["pk"])


@LEVELS
def test_inserts_of_a_unit_that_is_committed_and_not_finished_are_returned(
    units_world: UnitsWorld, ben: Party, order: str, level: Isolation
) -> None:
    inserted(units_world, order, text=LARGE)
    with ben.begin(isolation=level) as unit:
        found = unit.query(ben.lines, Key("pk").eq(order))
    assert [(item["sk"], item["text"]) for item in found] == [(at, LARGE) for at in range(1, COUNT + 1)]


@LEVELS
def test_inserts_that_another_process_finishes_after_the_page_was_read_are_returned(
    units_world: UnitsWorld, ben: Party, order: str, level: Isolation
) -> None:
    inserted(units_world, order, text=LARGE)
    eve = units_world.party()
    for operation in ("BatchGetItem", "TransactGetItems"):
        ben.line.between[operation] = lambda: eve.units.query(
            eve.lines, Key("pk").eq(order), limit=COUNT, isolation=SERIALIZABLE
        )
    found = ben.begin(isolation=level).query(ben.lines, Key("pk").eq(order))
    assert [(item["sk"], item["text"]) for item in found] == [(at, LARGE) for at in range(1, COUNT + 1)]


def test_targets_of_blind_updates_are_returned_as_the_unit_leaves_them(books: Books, ann: Party, order: str) -> None:
    keys = [{"pk": order, "sk": number} for number in range(1, COUNT + 1)]
    for key in keys:
        books.write("lines", {**key, "text": LARGE})
    unit = ann.begin()
    for key in keys:
        unit.update(ann.lines, key, "ADD amount :n", {":n": 1}, blind=True)
    found = unit.query(ann.lines, Key("pk").eq(order))
    assert [(item["sk"], item["amount"]) for item in found] == [(at, 1) for at in range(1, COUNT + 1)]


def test_the_record_of_a_unit_is_read_once_for_all_of_its_items(
    books: Books, units_world: UnitsWorld, ben: Party, order: str
) -> None:
    inserted(units_world, order, noise=NOISE)
    ben.begin().query(ben.lines, Key("pk").eq(order))
    asked = [sent.parameters for sent in ben.line.sent if sent.operation == "GetItem"]
    rows = [each["Key"]["row"]["S"] for each in asked if each["TableName"] == books.tables["units"]]
    assert sorted(rows) == ["head", "w#1#00000", "w#1#00001"]
