"""Cleaning up after executions that were stopped while they held the lock, or while they waited for it.

Best effort, and safe: even if requests are late, duplicated or refused, at most one owner holds, and a stopped one no
longer than its lease.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from kit.newer import NEWER, raise_the_format
from kit.step_functions import Callback
from kit.stopped import LATE_MS, Execution, gets_the_lock_when_the_lease_is_over
from kit.world import LEASE_MS, Process, World

from ticketlock import Grant, LockLost, OutcomeUnknown, Place, Position
from ticketlock.locks import _writes as write
from ticketlock.locks._items import LockItem
from ticketlock.locks._outcomes import Claim
from ticketlock.locks._protocol import Contender
from ticketlock.wire._item_requests import GetMany
from ticketlock.wire._requests import Steps
from ticketlock.wire._step_functions import Closing
from ticketlock.workflow._clean_up import CleanedUp

pytestmark = pytest.mark.shows("clean-up", "repeated steps")

REDRIVEN_MS = 5_000
"""The time between the end of an execution and its redrive."""


def until_it_is_about_to_close_the_work(cleaning: Callback[CleanedUp]) -> Callback[CleanedUp]:
    while not isinstance(cleaning.next_request, Closing):
        cleaning.step()
    return cleaning


def until_all_is_read(cleaning: Callback[CleanedUp]) -> Callback[CleanedUp]:
    while isinstance(cleaning.next_request, GetMany):
        cleaning.step()
    return cleaning


def row_beside_the_grant(process: Process, claim: Claim) -> int:
    """A row that a late request has put; its ticket."""

    def joins(me: Contender) -> Steps[int]:
        minted = yield from me.send(write.mint_ticket(replace(claim, owner="another"), me.now))
        assert minted.item is not None
        ticket = LockItem.parse(minted.item).issued
        if claim.noted_in is not None:
            yield from me.send(write.note_ticket(claim, claim.noted_in, ticket, me.now))
        yield from me.send(write.put_row(claim, ticket, me.now.local_ms, me.now))
        return ticket

    return process.table.contend(claim, joins)


@NEWER
@pytest.mark.parametrize("what", ["a holder", "a waiter"])
def test_the_lock_of_a_stopped_execution_is_freed_and_its_row_deleted_though_a_newer_version_uses_the_lock(
    dead: Execution, bob: Process, what: str
) -> None:
    if what == "a holder":
        dead.holds()
    else:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
    raise_the_format(bob.client, bob.world.engine.table_name, dead.claim.lock)
    assert dead.cleaned_up() == (CleanedUp(freed=True) if what == "a holder" else CleanedUp(left=1))
    (left,) = dead.stored()
    assert left["held"] == {"N": "0" if what == "a holder" else "1"}


# A holder.


@pytest.mark.shows("early release")
def test_a_holder_is_freed_and_the_next_woken_once_its_nested_execution_is_closed(
    dead: Execution, successor: Execution
) -> None:
    dead.holds()
    successor.waits().parks()
    cleaning = until_it_is_about_to_close_the_work(dead.cleans_up())
    # Before that: any heartbeat gives up, and the lock is held.
    assert dead.holder() is not None
    assert dead.is_stopped()
    assert cleaning.to_the_end() == CleanedUp(freed=True)
    assert dead.service.closings == [dead.work_of(dead.grant.fencing_token)]
    assert (dead.holder(), dead.service.answered) == (None, ["wake-up"])
    assert isinstance(successor.polls(), Grant)


@pytest.mark.shows("early release")
@pytest.mark.parametrize("why", ["not seen closed", "its end is unknown"])
def test_a_holder_is_left_to_its_lease_if_its_nested_execution_may_still_run(
    world: World, dead: Execution, successor: Execution, why: str
) -> None:
    dead.holds()
    successor.waits().parks()
    if why == "not seen closed":
        dead.service.never_close.add(f"work-{dead.grant.fencing_token}")
    cleaning = until_it_is_about_to_close_the_work(dead.cleans_up())
    if why == "its end is unknown":
        cleaning.fail(OutcomeUnknown("no answer"))
    assert cleaning.to_the_end() == CleanedUp(left_to_lease=True)
    assert dead.service.answers == []
    assert gets_the_lock_when_the_lease_is_over(world, successor)


@pytest.mark.shows("early release")
def test_a_holder_is_left_to_its_lease_when_its_work_is_a_function(
    world: World, dead: Execution, successor: Execution
) -> None:
    dead.nested = False
    dead.holds()
    successor.waits().parks()
    assert dead.cleaned_up() == CleanedUp(left_to_lease=True)
    assert (dead.service.closings, dead.service.answers) == ([], [])
    assert gets_the_lock_when_the_lease_is_over(world, successor)


@pytest.mark.parametrize("nested", [True, False], ids=["a nested execution", "a function"])
def test_a_heartbeat_that_still_runs_ends_and_lengthens_no_lease(
    world: World, dead: Execution, successor: Execution, nested: bool
) -> None:
    """In a continuation, or in a redriven execution that has lost the lock."""
    dead.nested = nested
    dead.holds().beats(0, "parked").run()
    successor.waits()
    before = dead.holder()
    dead.cleaned_up()
    assert dead.service.answered == ["parked"]
    world.advance(LEASE_MS // 2)
    assert isinstance(dead.beats(1, "next").run().error, LockLost)
    assert [(answer.task_token, answer.error) for answer in dead.service.answers] == [
        ("parked", None),
        ("next", "LockLost"),
    ]
    assert dead.holder() == (None if nested else before)
    assert isinstance(successor.polls(), Grant if nested else Position)
    world.advance(LATE_MS - LEASE_MS // 2)
    assert isinstance(successor.polls(), Grant)


def test_an_execution_that_released_its_lock_has_left_nothing_to_do(dead: Execution) -> None:
    dead.holds().finishes().run()
    before = dead.stored()
    assert dead.cleaned_up() == CleanedUp()
    assert dead.stored() == before


def test_an_event_that_comes_after_another_owner_took_the_lock_over_changes_nothing(
    world: World, dead: Execution, successor: Execution
) -> None:
    dead.holds()
    stopped_at_ms = world.now_ms
    world.advance(LATE_MS)
    successor.holds()
    before = dead.stored()
    assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
    assert dead.stored() == before
    assert dead.service.closings == []


def test_a_lock_that_is_taken_over_while_its_work_is_closed_stays_its_new_holders(
    world: World, dead: Execution, successor: Execution
) -> None:
    dead.holds()
    stopped_at_ms = world.now_ms
    world.advance(LATE_MS)
    cleaning = until_it_is_about_to_close_the_work(dead.cleans_up(stopped_at_ms))
    successor.holds()
    # Neither freed nor counted as left to its lease.
    assert cleaning.to_the_end() == CleanedUp()
    assert successor.holder() is not None


def test_a_clean_up_lengthens_no_lease(world: World, dead: Execution, bob: Process) -> None:
    """Half of it has passed, and it has a row beside its grant: a waiter would renew first."""
    dead.nested = False
    dead.holds()
    row_beside_the_grant(bob, dead.claim)
    world.advance(LEASE_MS // 2)
    before = dead.holder()
    assert before is not None
    dead.cleaned_up()
    after = dead.holder()
    assert after is not None
    assert after.lease_until_ms == before.lease_until_ms


def test_the_events_date_and_table_time_may_differ_by_a_second(world: World, dead: Execution) -> None:
    stopped_at_ms = world.now_ms - 1_000
    dead.holds()
    assert dead.cleaned_up(stopped_at_ms) == CleanedUp(freed=True)


def test_a_holders_own_row_beside_its_grant_is_deleted_and_the_count_stays_safe(
    dead: Execution, bob: Process, successor: Execution
) -> None:
    """A first step that ran twice: one copy took the lock, a late request of the other put its row."""
    dead.holds()
    ticket = row_beside_the_grant(bob, dead.claim)
    successor.waits().parks()
    assert [row.ticket for row in dead.rows()] == [ticket]
    assert dead.cleaned_up() == CleanedUp(left=1, freed=True)
    assert (dead.rows(), dead.holder()) == ([], None)
    assert dead.waiting() >= 1
    assert dead.service.answered == ["wake-up"]


# A waiter.


@pytest.fixture
def held(dead: Execution, bob: Process) -> tuple[Claim, Grant]:
    """The lock of the execution, by another owner."""
    claim = bob.claim(dead.claim.lock)
    return claim, bob.granted(claim)


@pytest.mark.parametrize("is_free", [True, False], ids=["a permit is free", "no permit is free"])
def test_a_waiter_leaves_the_queue_and_the_next_is_woken_only_if_a_permit_is_free(
    dead: Execution, successor: Execution, bob: Process, held: tuple[Claim, Grant], is_free: bool
) -> None:
    dead.waits()
    successor.waits().parks()
    if is_free:
        bob.table.release(*held)
    assert dead.cleaned_up() == CleanedUp(left=1)
    assert (dead.rows(), dead.service.answered) == ([], ["wake-up"] if is_free else [])
    assert dead.waiting() >= 1
    assert isinstance(successor.polls(), Grant if is_free else Position)


@pytest.mark.parametrize("is_used", [True, False], ids=["a lock in use", "a lock without an item"])
def test_an_execution_that_was_never_in_the_queue_changes_nothing(
    dead: Execution, successor: Execution, bob: Process, is_used: bool
) -> None:
    if is_used:
        bob.granted(bob.claim(dead.claim.lock))
        successor.waits()
    before = dead.stored()
    cleaning = until_all_is_read(dead.cleans_up())
    assert cleaning.done
    assert cleaning.result == CleanedUp()
    assert dead.stored() == before


@pytest.mark.usefixtures("held")
def test_an_event_that_comes_after_its_row_was_swept_changes_nothing(
    world: World, dead: Execution, successor: Execution
) -> None:
    dead.waits()
    stopped_at_ms = world.now_ms
    world.advance(LEASE_MS // 2)
    successor.waits()
    world.advance(LATE_MS - LEASE_MS // 2)
    assert isinstance(successor.polls(), Grant)
    before = dead.stored()
    assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
    assert dead.stored() == before


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("joins", [1, 2], ids=["an extended row", "a row for each join"])
def test_every_row_of_a_retried_join_is_deleted_and_an_extended_one_is_as_old_as_its_ticket(
    world: World, dead: Execution, joins: int
) -> None:
    for _ in range(joins):
        dead.waits()
    if joins == 1:
        world.advance(LEASE_MS // 2)
        dead.polls()
    assert len(dead.rows()) == joins
    assert dead.cleaned_up() == CleanedUp(left=joins)
    assert dead.rows() == []


def test_the_count_that_a_clean_up_leaves_is_healed(
    world: World, dead: Execution, bob: Process, held: tuple[Claim, Grant]
) -> None:
    dead.waits().waits()
    dead.cleaned_up()
    bob.table.release(*held)
    world.advance(6_000)
    claim = bob.claim(dead.claim.lock)
    bob.table.release(claim, bob.granted(claim))
    claim = bob.claim(dead.claim.lock)
    assert bob.operations(lambda: bob.granted(claim)) == ["UpdateItem"]


@pytest.mark.parametrize("nested", [True, False], ids=["a nested execution", "a function"])
def test_a_lock_that_a_waiter_took_between_the_read_and_the_deletion_is_freed_if_its_work_can_be_closed(
    dead: Execution, bob: Process, held: tuple[Claim, Grant], nested: bool
) -> None:
    """And otherwise left to its lease."""
    dead.nested = nested
    dead.waits()
    bob.table.release(*held)
    cleaning = until_all_is_read(dead.cleans_up())
    taken = dead.late_poll().run().result
    assert isinstance(taken, Grant)
    assert cleaning.to_the_end() == CleanedUp(freed=nested, left_to_lease=not nested)
    assert dead.service.closings == ([dead.work_of(taken.fencing_token)] if nested else [])
    assert (dead.holder() is None) == nested
    assert dead.is_stopped()


def test_a_late_copy_of_the_row_of_a_former_holder_does_not_lower_the_count(
    dead: Execution, successor: Execution, bob: Process, held: tuple[Claim, Grant]
) -> None:
    """A waiter in the queue that is not counted is not woken, and a newcomer overtakes it."""
    joining = bob.steps(dead.claim, lambda me: me.take_ticket(None))
    joining.step()
    joining.step()
    late_copy = joining.next_request
    assert late_copy is not None
    position = joining.to_the_end()
    assert isinstance(position, Position)
    dead.place = position.place
    bob.table.release(*held)
    served = dead.polls()
    assert isinstance(served, Grant)
    dead.processes[0].table.release(dead.claim, served)
    claim, _ = held
    holding = bob.granted(claim)
    successor.waits()
    bob.table.perform(late_copy)
    dead.cleaned_up()
    assert dead.rows() == []
    assert dead.waiting() >= 1
    bob.table.release(claim, holding)
    assert isinstance(bob.take(bob.claim(dead.claim.lock), record_wait_ms=None), Position)


# Redriven since.


@pytest.mark.parametrize("again", [Execution.holds, Execution.waits])
def test_what_an_execution_has_since_its_redrive_stays(
    world: World, dead: Execution, bob: Process, again: Callable[[Execution], Execution]
) -> None:
    if again is Execution.waits:
        bob.granted(bob.claim(dead.claim.lock))
    stopped_at_ms = world.now_ms
    world.advance(REDRIVEN_MS)
    again(dead)
    before = dead.stored()
    assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
    assert dead.stored() == before
    assert not dead.is_stopped()


@pytest.mark.usefixtures("held")
def test_only_the_rows_that_precede_a_redrive_are_deleted(world: World, dead: Execution) -> None:
    dead.waits()
    stopped_at_ms = world.now_ms
    world.advance(REDRIVEN_MS)
    again = dead.waits().place
    assert dead.cleaned_up(stopped_at_ms) == CleanedUp(left=1)
    assert [row.ticket for row in dead.rows()] == [again.ticket]
    assert dead.waiting() >= 1


def assert_still_holds(dead: Execution, redriven: Grant | Position) -> None:
    assert isinstance(redriven, Grant)
    holder = dead.holder()
    assert holder is not None
    assert holder.fencing_token == redriven.fencing_token
    assert not dead.is_stopped()


def test_a_grant_after_a_redrive_stays_though_a_row_from_before_is_deleted(
    world: World, dead: Execution, bob: Process, held: tuple[Claim, Grant]
) -> None:
    dead.waits().waits()
    older, newer = dead.rows()
    dead.place = Place(older.ticket, older.lease_until_ms)
    stopped_at_ms = world.now_ms
    world.advance(REDRIVEN_MS)
    left_over = dead.stored()[-1]
    bob.table.release(*held)
    redriven = dead.polls()
    # A late copy of the PutItem of the second join.
    bob.client.put_item(TableName=world.engine.table_name, Item=left_over)
    assert [row.ticket for row in dead.rows()] == [newer.ticket]
    assert not dead.cleaned_up(stopped_at_ms).freed
    assert_still_holds(dead, redriven)


def test_a_grant_after_a_redrive_that_comes_between_the_read_and_the_deletion_stays(
    world: World, dead: Execution, bob: Process, held: tuple[Claim, Grant]
) -> None:
    dead.waits()
    stopped_at_ms = world.now_ms
    world.advance(REDRIVEN_MS)
    cleaning = until_all_is_read(dead.cleans_up(stopped_at_ms))
    bob.table.release(*held)
    redriven = dead.polls()
    assert not cleaning.to_the_end().freed
    assert_still_holds(dead, redriven)


# Delivered twice, or crashed.


@pytest.mark.parametrize(
    ("waits", "done"),
    [(False, CleanedUp(freed=True)), (True, CleanedUp(left=1))],
    ids=["a holder", "a waiter"],
)
def test_the_second_delivery_of_an_event_changes_nothing(
    dead: Execution, successor: Execution, bob: Process, waits: bool, done: CleanedUp
) -> None:
    if waits:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
    else:
        dead.holds()
    successor.waits()
    assert dead.cleaned_up() == done
    assert isinstance(successor.polls(), Position if waits else Grant)
    before = dead.stored()
    assert dead.cleaned_up() == CleanedUp()
    assert dead.stored() == before


@pytest.mark.parametrize("waits", [False, True], ids=["a holder", "a waiter"])
def test_a_crash_after_any_request_is_made_up_for_by_the_next_delivery(
    world: World, processes: list[Process], bob: Process, waits: bool
) -> None:
    requests, is_complete = 0, False
    while not is_complete:
        requests += 1
        dead = Execution(processes, world.lock())
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim) if waits else None
        if waits:
            dead.waits().waits()
        else:
            dead.holds().beats(0).run()
        successor = Execution(processes, claim.lock, service=dead.service, name="successor").waits().parks()
        if grant is not None:
            bob.table.release(claim, grant)
        dying = dead.cleans_up()
        for _ in range(requests):
            dying.step()
        is_complete = dying.done
        dead.cleaned_up()
        assert (dead.rows(), dead.holder()) == ([], None), requests
        assert "wake-up" in dead.service.answered, requests
        assert dead.waiting() >= 1, requests
        assert isinstance(successor.polls(), Grant), requests


# A continuation.


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("closes", [True, False], ids=["is seen closed", "is never seen closed"])
def test_a_continuation_is_closed_before_anything_else_is_done(dead: Execution, closes: bool) -> None:
    dead.waits().continues_in("wait-1")
    if not closes:
        dead.service.never_close.add("wait-1")
    cleaning = until_all_is_read(dead.cleans_up())
    assert cleaning.next_request == Closing("wait-1")
    assert len(dead.rows()) == 1
    assert cleaning.to_the_end() == CleanedUp(left=1)
    assert dead.service.closings == ["wait-1"]


@pytest.mark.usefixtures("held")
def test_only_the_newest_continuation_still_runs(dead: Execution) -> None:
    dead.waits().continues_in("wait-1").continues_in("wait-2", 2).continues_in("wait-1")
    dead.cleaned_up()
    assert dead.service.closings == ["wait-2"]


def test_a_grant_of_a_continuation_from_before_it_was_closed_is_cleaned_up_too(
    dead: Execution, bob: Process, held: tuple[Claim, Grant]
) -> None:
    """It took the lock while it was being stopped."""
    dead.waits().continues_in("wait-1")
    bob.table.release(*held)
    cleaning = until_it_is_about_to_close_the_work(dead.cleans_up())
    assert isinstance(dead.polls(), Grant)
    assert cleaning.to_the_end() == CleanedUp(freed=True)
    assert dead.holder() is None
