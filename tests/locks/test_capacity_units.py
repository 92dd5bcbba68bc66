"""The capacity units of every operation: the rules in ``kit.capacity`` beside an engine that counts.

A refused condition is returned as an error, and the API's errors report no units: for those only the rule is checked.
"""

from typing import Any

import pytest
from kit.capacity import item_bytes
from kit.capacity_units import DATA, OTHERS, TASK_TOKEN, MeteredWorld, life_of_a_lock
from kit.engines import Engine, counting_engine_names
from kit.stopped import Execution
from kit.world import World

pytestmark = [
    pytest.mark.shows("cost"),
    pytest.mark.parametrize("engine", counting_engine_names(), indirect=True),
]


@pytest.mark.parametrize("others", [0, OTHERS])
def test_the_engine_bills_every_request_as_the_rules_say(engine: Engine, others: int) -> None:
    for step in life_of_a_lock(MeteredWorld(engine), others):
        assert step.requests
        for request in step.requests:
            assert request.by_engine == (None if request.refused else request.by_rule), (step.name, request)


def test_the_rules_count_no_byte_less_than_the_engine_and_at_most_one_more_for_a_number(world: World) -> None:
    """Where pairs of a number's digits may begin in two places, the rules count what is more."""
    for item in items_of_every_kind(world):
        units = -(-item_bytes(item) // 1_024) + 1
        padded = item | {"padding": {"S": ""}}
        padded["padding"] = {"S": "p" * (units * 1_024 - item_bytes(padded))}
        assert told_units(world, padded) == units
        padded["padding"] = {"S": padded["padding"]["S"] + "p" * (1 + repr(item).count("'N'"))}
        assert told_units(world, padded) == units + 1


def items_of_every_kind(world: World) -> list[dict[str, Any]]:
    """A lock item with a holder, one with holders that share, a row, and a session with a task's token."""
    process = world.process()
    shared, lock = world.lock(), world.lock()
    for _ in range(2):
        process.granted(process.claim(shared, shared=True))
    held = Execution([process], lock).holds()
    held.beats(0, TASK_TOKEN).run()
    process.table.set_data(held.claim, held.grant.fencing_token, DATA)
    process.queued(process.claim(lock))
    found: list[dict[str, Any]] = []
    for partition in (shared.entity, lock.entity, held.session.key()["pk"]["S"]):
        found += process.client.query(
            TableName=world.engine.table_name,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": partition}},
        )["Items"]
    assert len(found) == 4
    return found


def told_units(world: World, item: dict[str, Any]) -> float:
    """The bytes for which the engine bills storing an item."""
    client, table = world.engine.client(), world.engine.table_name
    told: float = client.put_item(TableName=table, Item=item, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"][
        "CapacityUnits"
    ]
    return told
