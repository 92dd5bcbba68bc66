"""Cleaning up after executions that were stopped while they waited.

Best effort, and safe: even if requests are late, duplicated or refused, at most one owner holds.
"""

import pytest
from kit.step_functions import Callback
from kit.stopped import Execution
from kit.world import LEASE_MS, Process, World

from ticketlock import Grant, Position
from ticketlock.wire._item_requests import GetMany
from ticketlock.wire._step_functions import Closing
from ticketlock.workflow._clean_up import CleanedUp

pytestmark = pytest.mark.shows("clean-up", "repeated steps")


class TestAWaiter:
    def test_it_leaves_the_queue(self, dead: Execution, successor: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        successor.waits()
        assert dead.cleaned_up() == CleanedUp(left=1)
        assert dead.rows() == []
        assert dead.waiting() >= 1
        found = successor.polls()
        assert isinstance(found, Position)
        assert found.ahead == 0

    def test_no_one_is_woken_if_no_permit_is_free(self, dead: Execution, successor: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        successor.waits().parks()
        dead.cleaned_up()
        assert dead.service.answers == []

    def test_the_next_is_woken_if_a_permit_is_free(self, dead: Execution, successor: Execution, bob: Process) -> None:
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits()
        successor.waits().parks()
        bob.table.release(claim, grant)
        dead.cleaned_up()
        assert dead.service.answered == ["wake-up"]
        assert isinstance(successor.polls(), Grant)

    def test_an_execution_that_was_never_in_the_queue_changes_nothing(
        self, dead: Execution, successor: Execution, bob: Process
    ) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        successor.waits()
        before = dead.stored()
        cleaning = dead.cleans_up()
        while not cleaning.done:
            assert isinstance(cleaning.next_request, GetMany)
            cleaning.step()
        assert cleaning.result == CleanedUp()
        assert dead.stored() == before

    def test_an_unused_lock_stays_unused(self, dead: Execution) -> None:
        assert dead.cleaned_up() == CleanedUp()
        assert dead.stored() == []

    def test_an_event_that_is_delivered_twice_is_one(self, dead: Execution, successor: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        successor.waits()
        assert dead.cleaned_up() == CleanedUp(left=1)
        before = dead.stored()
        assert dead.cleaned_up() == CleanedUp()
        assert dead.stored() == before

    def test_an_event_that_comes_after_its_row_was_swept_changes_nothing(
        self, world: World, dead: Execution, successor: Execution, bob: Process
    ) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        stopped_at_ms = world.now_ms
        world.advance(LEASE_MS // 2)
        successor.waits()
        world.advance(LEASE_MS // 2 + 4_000)
        assert isinstance(successor.polls(), Grant)
        before = dead.stored()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
        assert dead.stored() == before

    def test_a_row_after_a_redrive_stays(self, world: World, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        dead.waits()
        before = dead.stored()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
        assert dead.stored() == before

    def test_only_what_precedes_the_redrive_is_cleaned_up(self, world: World, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        again = dead.waits().place
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp(left=1)
        assert [row.ticket for row in dead.rows()] == [again.ticket]
        assert dead.waiting() >= 1

    def test_an_extended_row_is_as_old_as_its_ticket(self, world: World, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        world.advance(LEASE_MS // 2)
        dead.polls()
        assert dead.cleaned_up() == CleanedUp(left=1)

    def test_both_rows_of_a_retried_join_are_deleted(self, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits().waits()
        assert len(dead.rows()) == 2
        assert dead.cleaned_up() == CleanedUp(left=2)
        assert dead.rows() == []

    def test_a_crash_after_any_request_is_made_up_for_by_the_next_delivery(
        self, world: World, processes: list[Process], bob: Process
    ) -> None:
        for requests in range(1, 7):
            lock = world.lock()
            claim = bob.claim(lock)
            grant = bob.granted(claim)
            dead = Execution(processes, lock).waits().waits()
            successor = Execution(processes, lock, service=dead.service, name="successor").waits().parks()
            bob.table.release(claim, grant)
            dying = dead.cleans_up()
            for _ in range(requests):
                dying.step()
            dead.cleaned_up()
            assert dead.rows() == [], requests
            assert dead.waiting() >= 1, requests
            assert isinstance(successor.polls(), Grant), requests

    def test_the_count_that_it_leaves_is_healed(self, world: World, dead: Execution, bob: Process) -> None:
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits().waits()
        dead.cleaned_up()
        bob.table.release(claim, grant)
        world.advance(5_000)
        claim = bob.claim(dead.claim.lock)
        bob.table.release(claim, bob.granted(claim))
        claim = bob.claim(dead.claim.lock)
        assert bob.operations(lambda: bob.granted(claim)) == ["UpdateItem"]

    def test_a_lock_that_it_took_between_the_read_and_the_deletion_is_freed_when_its_work_is_closed(
        self, dead: Execution, bob: Process
    ) -> None:
        cleaning, poll = self.about_to_take_its_turn(dead, bob)
        taken = poll.run().result
        assert isinstance(taken, Grant)
        assert cleaning.to_the_end() == CleanedUp(freed=True)
        assert dead.service.closings == [dead.work_of(taken.fencing_token)]
        assert dead.holder() is None

    def test_a_lock_that_it_took_between_the_read_and_the_deletion_is_left_to_its_lease_if_its_work_is_a_function(
        self, dead: Execution, bob: Process
    ) -> None:
        dead.nested = False
        cleaning, poll = self.about_to_take_its_turn(dead, bob)
        assert isinstance(poll.run().result, Grant)
        assert cleaning.to_the_end() == CleanedUp(left_to_lease=True)
        assert dead.holder() is not None
        assert dead.is_stopped()

    def about_to_take_its_turn(
        self, dead: Execution, bob: Process
    ) -> tuple[Callback[CleanedUp], Callback[Grant | Position]]:
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits()
        bob.table.release(claim, grant)
        cleaning = dead.cleans_up()
        while isinstance(cleaning.next_request, GetMany):
            cleaning.step()
        return cleaning, dead.late_poll()

    def test_a_late_copy_of_the_row_of_a_former_holder_does_not_lower_the_count(
        self, dead: Execution, successor: Execution, bob: Process
    ) -> None:
        """A waiter in the queue that is not counted is not woken, and a newcomer overtakes it."""
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        joining = bob.steps(dead.claim, lambda me: me.take_ticket(None))
        joining.step()
        joining.step()
        late_copy = joining.next_request
        assert late_copy is not None
        position = joining.to_the_end()
        assert isinstance(position, Position)
        dead.place = position.place
        bob.table.release(claim, grant)
        served = dead.polls()
        assert isinstance(served, Grant)
        dead.processes[0].table.release(dead.claim, served)
        holding = bob.granted(claim)
        successor.waits()
        bob.table.perform(late_copy)
        dead.cleaned_up()
        assert dead.rows() == []
        assert dead.waiting() >= 1
        bob.table.release(claim, holding)
        newcomer = bob.claim(dead.claim.lock)
        assert isinstance(bob.take(newcomer, record_wait_ms=None), Position)


class TestAContinuation:
    @pytest.mark.parametrize("closes", [True, False])
    def test_it_is_closed_before_anything_else_is_done(self, dead: Execution, bob: Process, closes: bool) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits().continues_in("wait-1")
        if not closes:
            dead.service.never_close.add("wait-1")
        cleaning = dead.cleans_up()
        while isinstance(cleaning.next_request, GetMany):
            cleaning.step()
        assert cleaning.next_request == Closing("wait-1")
        assert len(dead.rows()) == 1
        assert cleaning.to_the_end() == CleanedUp(left=1)
        assert dead.service.closings == ["wait-1"]

    def test_only_the_newest_still_runs(self, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits().continues_in("wait-1").continues_in("wait-2", 2).continues_in("wait-1")
        dead.cleaned_up()
        assert dead.service.closings == ["wait-2"]

    def test_its_grant_from_before_it_was_closed_is_cleaned_up_too(self, dead: Execution, bob: Process) -> None:
        """It took the lock while it was being stopped."""
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits().continues_in("wait-1")
        bob.table.release(claim, grant)
        cleaning = dead.cleans_up()
        while not isinstance(cleaning.next_request, Closing):
            cleaning.step()
        assert isinstance(dead.polls(), Grant)
        assert cleaning.to_the_end() == CleanedUp(freed=True)
        assert dead.holder() is None
