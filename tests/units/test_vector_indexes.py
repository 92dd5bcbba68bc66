"""Tables with a vector index: what DynamoDB would refuse after a unit's decision is refused at the statement."""

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError

from ticketlock.errors import InvalidUnitRequest
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import READ_LOCK, SERIALIZABLE, Units, UnitTable, create_units_table
from ticketlock.units._words._tables import DESCRIPTION_LASTS_MS

pytestmark = pytest.mark.shows("bad input")

GOOD = {"id": "a", "vector": [1, 2], "topic": "sea", "year": 2026}
KINDS: Mapping[str, str] = {"topic": "S", "year": "N"}
INDEX: Mapping[str, Any] = {
    "IndexName": "by-meaning",
    "VectorAttribute": {"AttributeName": "vector"},
    "SearchSchema": [
        {"AttributeName": "topic", "SearchSchemaElementType": "HASH"},
        {"AttributeName": "year", "SearchSchemaElementType": "INLINE_FILTER"},
    ],
    "Projection": {"ProjectionType": "ALL"},
    "Dimensions": 2,
    "DistanceFunction": "COSINE",
}
BAD: Mapping[str, tuple[str, Any]] = {
    "too short": ("vector", [1]),
    "too long": ("vector", [1, 2, 3]),
    "none": ("vector", []),
    "a text in it": ("vector", [1, "2"]),
    "beyond 32 bits": ("vector", [1, Decimal("1e39")]),
    "a set": ("vector", {1, 2}),
    "a number": ("vector", 1),
    "another type of the partition": ("topic", 5),
    "an empty partition": ("topic", ""),
    "another type of a filter": ("year", "2026"),
}
WAYS = pytest.mark.parametrize("way", ["native", "marked"])


class Service(MemoryDynamoDB):
    """DynamoDB in memory, as a newer version of it may describe a table.

    Attributes:
        also: further members of each description.
        is_silent: whether requests for descriptions get no answer.
    """

    also: Mapping[str, Any] = MappingProxyType({})
    is_silent = False

    def describe_table(self, **parameters: Any) -> Any:
        reply = super().describe_table(**parameters)
        if self.is_silent:
            raise ConnectTimeoutError(endpoint_url="memory")
        more = self.also if parameters["TableName"] == "notes" else {}
        return {**reply, "Table": {**reply["Table"], **more}}


def defined(kinds: Mapping[str, str]) -> list[Any]:
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> Service:
    """With a table of notes, which has a vector index."""
    memory = Service(lock_table=None, clock=clock)
    memory.create_table(
        TableName="notes",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=defined({"id": "S", **KINDS}),
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        VectorIndexes=[INDEX],
    )
    create_units_table("units", client=memory.client)
    return memory


@pytest.fixture
def units(memory: Service, clock: ManualClock) -> Units:
    return Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)


@pytest.fixture
def notes(units: Units) -> UnitTable:
    return units.table("notes")


@WAYS
@pytest.mark.parametrize(("attribute", "value"), BAD.values(), ids=BAD)
def test_an_item_that_an_index_would_refuse_is_refused_at_the_statement(
    memory: Service, units: Units, notes: UnitTable, way: Any, attribute: str, value: Any
) -> None:
    with units.begin(engine=way) as unit:
        unit.put(notes, GOOD)
    before = memory.items("notes")
    unit = units.begin(engine=way)
    update: Any = ("SET #name = :bad", {":bad": value}, {"#name": attribute})
    with pytest.raises(InvalidUnitRequest, match=f"'{attribute}' is .* of the index 'by-meaning'"):
        unit.put(notes, {**GOOD, attribute: value})
    with pytest.raises(InvalidUnitRequest, match=attribute):
        unit.update(notes, {"id": "a"}, *update)
    with pytest.raises(InvalidUnitRequest, match=attribute):
        unit.update(notes, {"id": "a"}, *update, blind=True)
    unit.commit()
    assert memory.items("notes") == before


@WAYS
def test_an_item_may_be_without_any_attribute_of_an_index(units: Units, notes: UnitTable, way: Any) -> None:
    with units.begin(engine=way) as unit:
        unit.put(notes, GOOD)
        unit.put(notes, {"id": "b"})
    with units.begin(engine=way) as unit:
        unit.update(notes, {"id": "a"}, "REMOVE vector, topic")
        unit.update(notes, {"id": "b"}, "SET vector = :v", {":v": [0, -3]})
    assert units.get(notes, {"id": "a"}) == {"id": "a", "year": 2026}
    assert units.get(notes, {"id": "b"}) == {"id": "b", "vector": [0, -3]}


# An index that is added while a process runs.


@pytest.fixture
def notes_before(memory: Service, units: Units) -> UnitTable:
    """The table as it was described before it has the index."""
    memory.update_table(TableName="notes", VectorIndexUpdates=[{"Delete": {"IndexName": INDEX["IndexName"]}}])
    notes = units.table("notes")
    with units.begin() as unit:
        unit.put(notes, {"id": "a"})
    return notes


def descriptions(memory: Service) -> int:
    return [sent.operation for sent in memory.sent].count("DescribeTable")


@pytest.mark.parametrize("isolation", [SERIALIZABLE, READ_LOCK])
def test_an_index_that_is_added_while_a_process_runs_is_known_before_a_marked_commit_some_minutes_later(
    memory: Service, clock: ManualClock, units: Units, notes_before: UnitTable, isolation: Any
) -> None:
    created = {**INDEX, "Dimensions": 3}
    memory.update_table(
        TableName="notes", AttributeDefinitions=defined(KINDS), VectorIndexUpdates=[{"Create": created}]
    )
    clock.advance(DESCRIPTION_LASTS_MS / 1_000)
    with (
        pytest.raises(InvalidUnitRequest, match="a list of 3 numbers"),
        units.begin(engine="marked", isolation=isolation) as unit,
    ):
        unit.put(notes_before, {**GOOD, "vector": [3, 4]})
    assert units.get(notes_before, {"id": "a"}) == {"id": "a"}
    assert not any("_tluMark" in item for item in memory.items("notes"))


def test_that_an_index_may_be_added_costs_a_marked_commit_one_description_in_some_minutes(
    memory: Service, clock: ManualClock, units: Units, notes_before: UnitTable
) -> None:
    before = descriptions(memory)
    for elapsed_ms, expected in ((0, 0), (DESCRIPTION_LASTS_MS - 1, 0), (1, 1), (0, 1), (DESCRIPTION_LASTS_MS, 2)):
        clock.advance(elapsed_ms / 1_000)
        with units.begin(engine="marked") as unit:
            unit.put(notes_before, {**GOOD, "elapsed": elapsed_ms})
        assert descriptions(memory) - before == expected
    clock.advance(2 * DESCRIPTION_LASTS_MS / 1_000)
    with units.begin(engine="native") as unit:
        unit.put(notes_before, GOOD)
    assert descriptions(memory) - before == 2


def test_without_an_answer_about_a_new_index_a_unit_is_committed_by_the_old_description(
    memory: Service, clock: ManualClock, units: Units, notes_before: UnitTable
) -> None:
    unit = units.begin(engine="marked")
    unit.put(notes_before, {**GOOD, "vector": [3, 4]})
    clock.advance(DESCRIPTION_LASTS_MS / 1_000)
    memory.is_silent = True
    unit.commit()
    assert units.get(notes_before, {"id": "a"}) == {**GOOD, "vector": [3, 4]}


# A kind of index that is newer than this version: a mark could never be replaced by a new value.
UNKNOWN: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "another kind of index": ({"GraphIndexes": [{"IndexName": "edges"}]}, "GraphIndexes"),
    "a kind that the SDK does not know either": (
        {"AttributeDefinitions": defined({"id": "S", **KINDS, "edge": "S"})},
        "'edge', an attribute that is defined",
    ),
    "another role in a search schema": (
        {"VectorIndexes": [{**INDEX, "SearchSchema": [{"AttributeName": "topic", "SearchSchemaElementType": "X"}]}]},
        "'topic', an attribute with the role X",
    ),
}


@pytest.mark.parametrize(("also", "why"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_table_with_an_index_of_an_unknown_kind_takes_no_marks_and_is_written_natively(
    units: Units, memory: Service, also: Mapping[str, Any], why: str
) -> None:
    memory.also = also
    notes = units.table("notes")
    for terms in ({"engine": "marked"}, {"isolation": READ_LOCK}):
        with pytest.raises(InvalidUnitRequest, match=why), units.begin(**terms) as marked:
            marked.put(notes, GOOD)
        assert memory.items("notes") == memory.items("units") == []
    with units.begin() as unit:
        unit.put(notes, GOOD)
    assert units.get(notes, {"id": "a"}) == GOOD
