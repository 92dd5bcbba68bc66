"""The capacity units of every operation: the rules in ``capacity.py`` beside an engine that counts.

What a condition refuses comes back as an error, and the API's errors tell no units: there the rule stands alone.
"""

from pathlib import Path
from typing import Any

import pytest
from contract.capacity import item_bytes
from contract.engines import Engine, counting_engine_names
from contract.stopped import Execution
from contract.units import DATA, TASK_TOKEN, Billed, MeteredWorld, Step, figure, life_of_a_lock
from contract.world import World

OTHERS = 40

pytestmark = pytest.mark.parametrize("engine", counting_engine_names(), indirect=True)


@pytest.mark.parametrize("others", [0, OTHERS])
def test_the_engine_bills_every_request_as_the_rules_say(engine: Engine, others: int) -> None:
    for step in life_of_a_lock(MeteredWorld(engine), others):
        assert step.requests
        for request in step.requests:
            assert request.by_engine == (None if request.refused else request.by_rule), (step.name, request)


def test_the_page_tells_what_is_counted(engine: Engine) -> None:
    lives = [list(life_of_a_lock(MeteredWorld(engine), others)) for others in (0, OTHERS)]
    counted = [
        [alone.name, *(figure(each.by_rule for each in sent) for sent in (*by_kind(alone), *by_kind(among_others)))]
        for alone, among_others in zip(*lives, strict=True)
    ]
    page = (Path(__file__).parents[2] / "docs/engines.md").read_text()
    _, _, table = page.partition("| step |")
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines] == counted


def test_the_rules_and_the_engine_agree_on_every_items_size_to_the_byte(world: World) -> None:
    for item in items_of_every_kind(world):
        units = -(-item_bytes(item) // 1_024) + 1
        padded = item | {"padding": {"S": ""}}
        padded["padding"] = {"S": "p" * (units * 1_024 - item_bytes(padded))}
        assert told_units(world, padded) == units
        padded["padding"] = {"S": padded["padding"]["S"] + "p"}
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


def by_kind(step: Step) -> tuple[list[Billed], list[Billed], list[Billed]]:
    return step.writes, step.refused, step.reads


def told_units(world: World, item: dict[str, Any]) -> float:
    """What the engine says that it costs to store an item."""
    client, table = world.engine.client(), world.engine.table_name
    told: float = client.put_item(TableName=table, Item=item, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"][
        "CapacityUnits"
    ]
    return told
