"""The checks after every test of a client find broken promises; they are the checks of the contract."""

from typing import Any

import pytest
from kit.invariants import Broken
from kit.places import Emulated, Moved

from ticketlock import LockName
from ticketlock.locks._items import lock_key

pytestmark = pytest.mark.verify("tests no part of the product")

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
