"""Cleaning up, in every order of its requests and those that the stopped execution had in progress."""

from collections.abc import Sequence
from typing import Any

import pytest
from kit.engines import IN_MEMORY
from kit.orders import every_order
from kit.step_functions import Callback
from kit.stopped import LATE_MS, Execution, gets_the_lock_when_the_lease_is_over
from kit.world import LEASE_MS, Process, Stepper, World, exclusion_held

from ticketlock import Grant, LockLost, Position, Released
from ticketlock.workflow._clean_up import CleanedUp

pytestmark = pytest.mark.shows("lost requests", "clean-up", "repeated steps")

Steppers = Sequence[Stepper[Any]]


def a_holder_and_a_waiter(world: World, processes: Sequence[Process], *, nested: bool) -> tuple[Execution, Execution]:
    dead = Execution(processes, world.lock(), nested=nested).holds()
    successor = Execution(processes, dead.claim.lock, service=dead.service, name="successor").waits().parks()
    return dead, successor


@IN_MEMORY
@pytest.mark.parametrize("nested", [True, False], ids=["a nested execution", "a function"])
def test_a_release_in_progress_and_the_clean_up_free_the_lock_once(
    world: World, processes: list[Process], nested: bool
) -> None:
    """The clean-up would leave the lock of a function."""

    def start() -> tuple[tuple[Execution, Execution, Callback[Released]], Steppers]:
        dead, successor = a_holder_and_a_waiter(world, processes, nested=nested)
        dead.beats(0).run()
        releasing = dead.finishes()
        return (dead, successor, releasing), [releasing, dead.cleans_up()]

    for order, (dead, successor, releasing) in every_order(world, start):
        assert releasing.error is None, order
        assert {answer.error for answer in dead.service.answers} == {None}, order
        assert {"beat", "wake-up"} <= set(dead.service.answered), order
        assert isinstance(successor.polls(), Grant), order
        assert exclusion_held(processes), order


@IN_MEMORY
@pytest.mark.verify("many orders, each of many requests")
@pytest.mark.parametrize("held_ms", [0, LEASE_MS // 2], ids=["a fresh lease", "a lease to renew"])
def test_a_heartbeat_in_progress_does_not_revive_a_lock_that_the_clean_up_freed(
    world: World, processes: list[Process], held_ms: int
) -> None:
    """A beat with a fresh lease, and one that renews."""

    def start() -> tuple[tuple[Execution, Execution, Callback[Grant]], Steppers]:
        dead, successor = a_holder_and_a_waiter(world, processes, nested=True)
        world.advance(held_ms)
        beating = dead.beats(1)
        return (dead, successor, beating), [beating, dead.cleans_up()]

    for order, (dead, successor, beating) in every_order(world, start):
        assert beating.error is None or isinstance(beating.error, LockLost), order
        assert "beat" in dead.service.answered, order
        assert {answer.error for answer in dead.service.answers} <= {None, "LockLost"}, order
        assert dead.holder() is None, order
        assert isinstance(successor.polls(), Grant), order
        assert exclusion_held(processes), order


@IN_MEMORY
@pytest.mark.parametrize("held_ms", [0, LEASE_MS // 2], ids=["a fresh lease", "a lease to renew"])
def test_a_heartbeat_in_progress_keeps_the_lock_of_a_function_for_one_lease_at_most(
    world: World, processes: list[Process], held_ms: int
) -> None:
    def start() -> tuple[tuple[Execution, Execution], Steppers]:
        dead, successor = a_holder_and_a_waiter(world, processes, nested=False)
        world.advance(held_ms)
        return (dead, successor), [dead.beats(1), dead.cleans_up()]

    for order, (dead, successor) in every_order(world, start):
        assert dead.service.answered == ["beat"], order
        assert isinstance(successor.polls(), Position), order
        assert gets_the_lock_when_the_lease_is_over(world, successor), order
        assert exclusion_held(processes), order


@IN_MEMORY
@pytest.mark.verify("many orders, each of many requests")
@pytest.mark.parametrize("nested", [True, False], ids=["a nested execution", "a function"])
def test_a_poll_in_progress_neither_blocks_the_lock_nor_holds_it_past_a_lease(
    world: World, processes: list[Process], nested: bool
) -> None:
    """The stopped execution's turn has come; a third waits behind it."""
    bob = world.process()

    def start() -> tuple[tuple[Execution, Execution, Callback[Grant | Position]], Steppers]:
        lock = world.lock()
        claim = bob.claim(lock)
        grant = bob.granted(claim)
        dead = Execution(processes, lock, nested=nested).waits()
        successor = Execution(processes, lock, service=dead.service, name="successor").waits().parks()
        bob.table.release(claim, grant)
        polling = dead.late_poll()
        return (dead, successor, polling), [polling, dead.cleans_up()]

    taken = left = 0
    for order, (dead, successor, polling) in every_order(world, start):
        assert exclusion_held([*processes, bob]), order
        if isinstance(polling.result, Grant):
            taken += 1
        else:
            left += 1
        found = successor.polls()
        if isinstance(found, Position):
            # By a function that may be running, or by a poll that came after the clean-up.
            assert dead.holder() is not None or dead.rows(), order
            assert gets_the_lock_when_the_lease_is_over(world, successor), order
        elif isinstance(polling.result, Grant):
            assert nested, order
            assert dead.service.closings == [dead.work_of(polling.result.fencing_token)], order
    assert taken > 0
    assert left > 0


@IN_MEMORY
def test_two_deliveries_of_one_event_delete_the_rows_of_a_waiter_once(world: World, processes: list[Process]) -> None:
    bob = world.process()

    def start() -> tuple[tuple[Execution, Execution, list[Callback[CleanedUp]]], Steppers]:
        lock = world.lock()
        bob.granted(bob.claim(lock))
        dead = Execution(processes, lock).waits().waits()
        successor = Execution(processes, lock, service=dead.service, name="successor").waits()
        cleaning = [dead.cleans_up(), dead.cleans_up()]
        return (dead, successor, cleaning), cleaning

    for order, (dead, successor, cleaning) in every_order(world, start):
        assert [each.error for each in cleaning] == [None, None], order
        assert dead.rows() == [], order
        assert dead.waiting() >= 1, order
        assert isinstance(successor.polls(), Position), order
        assert exclusion_held([*processes, bob]), order


@IN_MEMORY
def test_two_deliveries_of_one_event_free_a_lock_once(world: World, processes: list[Process]) -> None:
    def start() -> tuple[tuple[Execution, Execution, list[Callback[CleanedUp]]], Steppers]:
        dead, successor = a_holder_and_a_waiter(world, processes, nested=True)
        cleaning = [dead.cleans_up(), dead.cleans_up()]
        return (dead, successor, cleaning), cleaning

    for order, (dead, successor, cleaning) in every_order(world, start):
        assert [each.error for each in cleaning] == [None, None], order
        assert "wake-up" in dead.service.answered, order
        assert isinstance(successor.polls(), Grant), order
        assert exclusion_held(processes), order


@IN_MEMORY
def test_a_successor_that_takes_the_lock_over_is_not_affected(world: World, processes: list[Process]) -> None:
    """The event is as late as the lease is long: the next one's poll and the clean-up meet."""
    stopped_at_ms = world.now_ms

    def start() -> tuple[tuple[Execution, Execution, Callback[Grant | Position]], Steppers]:
        dead, successor = a_holder_and_a_waiter(world, processes, nested=True)
        world.advance(LEASE_MS // 2)
        successor.polls()
        world.advance(LATE_MS - LEASE_MS // 2)
        polling = successor.late_poll()
        return (dead, successor, polling), [polling, dead.cleans_up(stopped_at_ms)]

    for order, (dead, successor, polling) in every_order(world, start):
        assert isinstance(polling.result, Grant), order
        assert successor.holder() is not None, order
        assert dead.holder() is None, order
        assert exclusion_held(processes), order


@IN_MEMORY
@pytest.mark.verify("many orders, each of many requests")
def test_a_beat_that_renews_a_release_and_the_clean_up_free_the_lock_once(
    world: World, processes: list[Process]
) -> None:
    def start() -> tuple[tuple[Execution, Callback[Released]], Steppers]:
        dead = Execution(processes, world.lock()).holds()
        world.advance(LEASE_MS // 2)
        releasing = dead.finishes()
        return (dead, releasing), [dead.beats(1), releasing, dead.cleans_up()]

    for order, (dead, releasing) in every_order(world, start):
        assert releasing.error is None, order
        assert dead.service.answered == ["beat"], order
        assert dead.holder() is None, order
        assert exclusion_held(processes), order
