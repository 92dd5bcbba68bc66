"""A lock that is freed under its holder before the lease ends: once one call learns of it, all users of the lease
know.
"""

from collections.abc import Callable
from typing import Any

import pytest
from kit.places import Moved, until

from ticketlock import LockClient, LockLost

pytestmark = pytest.mark.shows("lost requests")


def write_something(lease: Any) -> None:
    table = lease.condition_check()["ConditionCheck"]["TableName"]
    lease.transact_write([{"Put": {"TableName": table, "Item": {"pk": {"S": "order-7"}, "sk": {"S": "mine"}}}}])


class Loss:
    """A held lock that is not renewed, and what its callbacks were told."""

    def __init__(self, moved: Moved, entity: str) -> None:
        self.told: list[object] = []
        self.moved, self.entity = moved, entity
        self.client = moved.client(heartbeat=False)
        self.lease = self.client.acquire(entity, on_lost=self.told.append)

    def comes(self, and_goes_to: LockClient | None = None) -> None:
        self.moved.lose(self.entity)
        if and_goes_to is not None:
            and_goes_to.acquire(self.entity)


@pytest.fixture
def loss(moved: Moved, entity: str) -> Loss:
    return Loss(moved, entity)


def test_the_end_of_a_block_raises_LockLost_if_another_owner_has_held_the_lock(loss: Loss) -> None:
    with pytest.raises(LockLost, match="another client has freed it"), loss.lease:
        loss.comes(and_goes_to=loss.moved.client())
    until(lambda: loss.told == [loss.lease])


def test_the_end_of_a_block_raises_LockLost_if_the_lock_was_freed_even_if_no_one_has_taken_it(loss: Loss) -> None:
    with pytest.raises(LockLost), loss.lease:
        loss.comes()


def test_a_release_raises_it_once(loss: Loss) -> None:
    loss.comes()
    with pytest.raises(LockLost):
        loss.lease.release()
    loss.lease.release()
    until(lambda: loss.told == [loss.lease])


def test_a_lock_that_its_owner_released_elsewhere_is_lost_here(moved: Moved, entity: str) -> None:
    lease = moved.client(heartbeat=False).acquire(entity, owner="nightly")
    moved.client().resume(entity, "nightly").release()
    with pytest.raises(LockLost):
        lease.release()


@pytest.mark.parametrize(
    "ask",
    [
        lambda lease: lease.set_data("step 2"),
        write_something,
        lambda lease: lease.ensure(60),
    ],
    ids=["set_data", "transact_write", "ensure"],
)
def test_a_loss_that_one_call_learns_of_is_known_to_all(loss: Loss, ask: Callable[[Any], object]) -> None:
    loss.moved.clock.advance(1)
    loss.comes()
    with pytest.raises(LockLost):
        ask(loss.lease)
    assert not loss.lease.is_held()
    with pytest.raises(LockLost):
        loss.lease.ensure(0)
    until(lambda: loss.told == [loss.lease])
