"""Similar names belong to different locks."""

import uuid

import pytest
from kit.world import Process, World

from ticketlock import LockName

NAMESPACES = ["a", "ab", "a-b", "a.b", "a b", "a!", "default"]
ENTITIES = [
    "order/42",
    "#",
    "/",
    "session#arn:aws:states:::execution:m:1",
    "ÅÅ",
    "é",
    "e\u0301",
    " ",
    "\x00",
    "😀" * 256,
]


def test_namespaces_on_one_entity_never_touch_each_other(alice: Process, bob: Process) -> None:
    entity = f"entity-{uuid.uuid4().hex}"
    locks = [LockName(entity, namespace) for namespace in NAMESPACES]
    for lock in locks:
        alice.granted(alice.claim(lock))
        bob.queued(bob.claim(lock))
    for lock in locks:
        state = alice.table.inspect(lock)
        assert state.item is not None
        assert (state.item.held, state.item.waiting, len(state.rows)) == (1, 1, 1)


@pytest.mark.parametrize("entity", ENTITIES)
def test_any_text_names_an_entity(alice: Process, bob: Process, entity: str) -> None:
    lock = LockName(entity, uuid.uuid4().hex)
    grant = alice.granted(alice.claim(lock))
    state = bob.table.inspect(lock)
    assert state.item is not None
    assert state.item.fencing_token == grant.fencing_token


def test_names_are_not_normalised(world: World) -> None:
    namespace = uuid.uuid4().hex
    for entity in ("e", "E", "e ", "é", "e\u0301", "E\u0301"):
        process = world.process()
        process.granted(process.claim(LockName(entity, namespace)))
