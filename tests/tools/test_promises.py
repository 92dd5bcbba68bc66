"""The checks of promises after every test of the contract, of a client and of the command find what is broken."""

from typing import Any

import pytest
from kit.command import Command
from kit.invariants import Broken
from kit.places import Emulated, Moved
from kit.world import Process, World

from ticketlock import LockName
from ticketlock.locks._items import lock_key, row_key

pytestmark = pytest.mark.verify("tests no part of the product")


def update(process: Process, lock: LockName, change: str, values: dict[str, Any]) -> None:
    process.client.update_item(
        TableName=process.world.engine.table_name,
        Key=lock_key(lock),
        UpdateExpression=change,
        ExpressionAttributeValues=values,
    )


@pytest.fixture
def held_and_waited_for(alice: Process, bob: Process, lock: LockName) -> None:
    alice.granted(alice.claim(lock))
    bob.queued(bob.claim(lock))


@pytest.mark.usefixtures("held_and_waited_for")
@pytest.mark.leaves_a_promise_broken("the counts are changed behind the lock's back")
@pytest.mark.parametrize(
    ("count", "wrong"), [("held", 0), ("held", 2), ("heldShared", 1), ("waiting", 0)], ids=lambda value: str(value)
)
def test_a_count_that_is_wrong_is_found(
    world: World, alice: Process, lock: LockName, plain_client: Any, count: str, wrong: int
) -> None:
    update(alice, lock, f"SET {count} = :wrong", {":wrong": {"N": str(wrong)}})
    with pytest.raises(Broken, match="counts: "):
        world.keeps_its_promises(plain_client)


@pytest.mark.usefixtures("held_and_waited_for")
@pytest.mark.leaves_a_promise_broken("a row is written that says nothing")
def test_a_row_that_cannot_be_read_is_found(world: World, alice: Process, lock: LockName, plain_client: Any) -> None:
    alice.client.put_item(TableName=world.engine.table_name, Item=row_key(lock, 7))
    with pytest.raises(Broken, match="a row without 'owner'"):
        world.keeps_its_promises(plain_client)


@pytest.mark.leaves_a_promise_broken("the token is set back behind the lock's back")
@pytest.mark.parametrize("by", [1, 2], ids=["the same token again", "a smaller token"])
def test_a_fencing_token_that_does_not_grow_is_found(
    world: World, alice: Process, bob: Process, lock: LockName, plain_client: Any, by: int
) -> None:
    claim = alice.claim(lock)
    alice.table.release(claim, alice.granted(claim))
    update(alice, lock, "SET fencingToken = fencingToken - :by", {":by": {"N": str(by)}})
    bob.granted(bob.claim(lock))
    with pytest.raises(Broken, match="fencing: "):
        world.keeps_its_promises(plain_client)


TOO_MANY: Any = {"UpdateExpression": "SET held = :two", "ExpressionAttributeValues": {":two": {"N": "2"}}}


@pytest.mark.leaves_a_promise_broken("the count is changed behind the lock's back")
def test_a_count_that_is_wrong_is_found_on_the_emulator_for_any_entity(place: Emulated, entity: str) -> None:
    another = f"{entity}, another"
    place.client().acquire(another)
    place.table.client.update_item(TableName=place.table_name, Key=lock_key(LockName(another)), **TOO_MANY)
    place.close()
    with pytest.raises(Broken, match="counts: "):
        place.keeps_its_promises()


@pytest.mark.leaves_a_promise_broken("the count is changed behind the lock's back")
def test_a_count_that_is_wrong_is_found_in_memory(moved: Moved, entity: str) -> None:
    moved.client().acquire(entity)
    moved.close()
    moved.memory.update_item(TableName="locks", Key=lock_key(LockName(entity)), **TOO_MANY)
    with pytest.raises(Broken, match="counts: "):
        moved.keeps_its_promises()


@pytest.mark.leaves_a_promise_broken("the count is changed behind the lock's back")
def test_a_count_that_is_wrong_is_found_when_the_test_is_over(
    command: Command, dynamodb: Any, table_name: str, entity: str
) -> None:
    assert command.run("run", entity, "--", "true").exit_code == 0
    dynamodb.update_item(
        TableName=table_name,
        Key=lock_key(LockName(entity)),
        UpdateExpression="SET held = :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
