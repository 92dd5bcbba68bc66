"""Cleaning up after executions that were stopped while they held the lock.

Best effort, and safe: even if requests are late, duplicated or refused, at most one owner holds, and a stopped one no
longer than its lease.
"""

from dataclasses import replace

import pytest
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

pytestmark = pytest.mark.shows("early release", "clean-up", "repeated steps")


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


class TestAHolder:
    def test_it_is_freed_once_its_nested_execution_is_closed(self, dead: Execution) -> None:
        dead.holds()
        cleaning = dead.cleans_up()
        while not isinstance(cleaning.next_request, Closing):
            cleaning.step()
        # Before that: any heartbeat gives up, and the lock is held.
        assert dead.holder() is not None
        assert dead.is_stopped()
        assert cleaning.to_the_end() == CleanedUp(freed=True)
        assert dead.service.closings == [dead.work_of(dead.grant.fencing_token)]
        assert dead.holder() is None

    def test_the_next_is_woken_then(self, dead: Execution, successor: Execution) -> None:
        dead.holds()
        successor.waits().parks()
        dead.cleaned_up()
        assert dead.service.answered == ["wake-up"]
        assert isinstance(successor.polls(), Grant)

    def test_it_is_left_to_its_lease_while_its_nested_execution_is_not_seen_closed(
        self, world: World, dead: Execution, successor: Execution
    ) -> None:
        dead.holds()
        dead.service.never_close.add(f"work-{dead.grant.fencing_token}")
        successor.waits().parks()
        assert dead.cleaned_up() == CleanedUp(left_to_lease=True)
        assert dead.service.answers == []
        assert isinstance(successor.polls(), Position)
        assert gets_the_lock_when_the_lease_is_over(world, successor)

    def test_it_is_left_to_its_lease_if_it_is_unknown_whether_its_nested_execution_is_closed(
        self, world: World, dead: Execution, successor: Execution
    ) -> None:
        dead.holds()
        successor.waits()
        cleaning = dead.cleans_up()
        while not isinstance(cleaning.next_request, Closing):
            cleaning.step()
        cleaning.fail(OutcomeUnknown("no answer"))
        assert cleaning.to_the_end() == CleanedUp(left_to_lease=True)
        assert gets_the_lock_when_the_lease_is_over(world, successor)

    def test_it_is_left_to_its_lease_when_its_work_is_a_function(
        self, world: World, dead: Execution, successor: Execution
    ) -> None:
        dead.nested = False
        dead.holds()
        successor.waits().parks()
        assert dead.cleaned_up() == CleanedUp(left_to_lease=True)
        assert (dead.service.closings, dead.service.answers) == ([], [])
        assert gets_the_lock_when_the_lease_is_over(world, successor)

    @pytest.mark.parametrize("nested", [True, False])
    def test_a_heartbeat_that_still_runs_ends(self, dead: Execution, nested: bool) -> None:
        """In a continuation, or in a redriven execution that has lost the lock."""
        dead.nested = nested
        dead.holds().beats(0, "parked").run()
        dead.cleaned_up()
        assert dead.service.answered == ["parked"]
        assert isinstance(dead.beats(1, "next").run().error, LockLost)
        assert [(answer.task_token, answer.error) for answer in dead.service.answers] == [
            ("parked", None),
            ("next", "LockLost"),
        ]

    def test_a_heartbeat_that_still_runs_lengthens_no_lease(
        self, world: World, dead: Execution, successor: Execution
    ) -> None:
        dead.nested = False
        dead.holds().beats(0).run()
        successor.waits()
        before = dead.holder()
        dead.cleaned_up()
        world.advance(LEASE_MS // 2)
        assert isinstance(dead.beats(1, "next").run().error, LockLost)
        assert dead.holder() == before
        successor.polls()
        world.advance(LEASE_MS // 2 + 4_000)
        assert isinstance(successor.polls(), Grant)

    def test_an_event_that_is_delivered_twice_is_one(self, dead: Execution, successor: Execution) -> None:
        dead.holds()
        successor.waits()
        assert dead.cleaned_up() == CleanedUp(freed=True)
        assert isinstance(successor.polls(), Grant)
        before = dead.stored()
        assert dead.cleaned_up() == CleanedUp()
        assert dead.stored() == before

    def test_an_execution_that_released_its_lock_has_left_nothing_to_do(self, dead: Execution) -> None:
        dead.holds().finishes().run()
        before = dead.stored()
        assert dead.cleaned_up() == CleanedUp()
        assert dead.stored() == before

    def test_an_event_that_comes_after_another_owner_took_the_lock_over_changes_nothing(
        self, world: World, dead: Execution, successor: Execution
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
        self, world: World, dead: Execution, successor: Execution
    ) -> None:
        cleaning = self.about_to_free(world, dead, successor)
        cleaning.run()
        assert cleaning.error is None
        assert cleaning.result is not None
        assert not cleaning.result.freed
        assert successor.holder() is not None

    def test_a_lock_that_is_taken_over_while_its_work_is_closed_is_not_counted_as_left_to_its_lease(
        self, world: World, dead: Execution, successor: Execution
    ) -> None:
        assert not self.about_to_free(world, dead, successor).to_the_end().left_to_lease

    def about_to_free(self, world: World, dead: Execution, successor: Execution) -> Callback[CleanedUp]:
        dead.holds()
        stopped_at_ms = world.now_ms
        world.advance(LATE_MS)
        cleaning = dead.cleans_up(stopped_at_ms)
        while not isinstance(cleaning.next_request, Closing):
            cleaning.step()
        successor.holds()
        return cleaning

    def test_a_grant_after_a_redrive_stays(self, world: World, dead: Execution) -> None:
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        dead.holds()
        before = dead.stored()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
        assert dead.stored() == before
        assert not dead.is_stopped()

    def test_a_grant_after_a_redrive_stays_though_a_row_from_before_is_deleted(
        self, world: World, dead: Execution, bob: Process
    ) -> None:
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits().waits()
        older, newer = dead.rows()
        dead.place = Place(older.ticket, older.lease_until_ms)
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        left_over = dead.stored()[-1]
        bob.table.release(claim, grant)
        redriven = dead.polls()
        assert isinstance(redriven, Grant)
        # A late copy of the PutItem of the second join.
        bob.client.put_item(TableName=world.engine.table_name, Item=left_over)
        assert [row.ticket for row in dead.rows()] == [newer.ticket]
        result = dead.cleaned_up(stopped_at_ms)
        holder = dead.holder()
        assert holder is not None
        assert holder.fencing_token == redriven.fencing_token
        assert not dead.is_stopped()
        assert not result.freed

    def test_a_grant_after_a_redrive_that_comes_between_the_read_and_the_deletion_stays(
        self, world: World, dead: Execution, bob: Process
    ) -> None:
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits()
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        cleaning = dead.cleans_up(stopped_at_ms)
        while isinstance(cleaning.next_request, GetMany):
            cleaning.step()
        bob.table.release(claim, grant)
        redriven = dead.polls()
        assert isinstance(redriven, Grant)
        assert not cleaning.to_the_end().freed
        holder = dead.holder()
        assert holder is not None
        assert holder.fencing_token == redriven.fencing_token
        assert not dead.is_stopped()

    def test_a_clean_up_lengthens_no_lease(self, world: World, dead: Execution, bob: Process) -> None:
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

    def test_the_events_date_and_table_time_may_differ_by_a_second(self, world: World, dead: Execution) -> None:
        stopped_at_ms = world.now_ms - 1_000
        dead.holds()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp(freed=True)

    def test_its_own_row_beside_the_grant_is_deleted_and_the_count_stays_safe(
        self, dead: Execution, bob: Process, successor: Execution
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

    def test_a_crash_after_any_request_is_made_up_for_by_the_next_delivery(
        self, world: World, processes: list[Process]
    ) -> None:
        for requests in range(1, 9):
            dead = Execution(processes, world.lock()).holds()
            dead.beats(0).run()
            successor = Execution(processes, dead.claim.lock, service=dead.service, name="successor").waits().parks()
            dying = dead.cleans_up()
            for _ in range(requests):
                dying.step()
            dead.cleaned_up()
            assert dead.holder() is None, requests
            assert isinstance(successor.polls(), Grant), requests

    def test_a_clean_up_that_crashed_before_the_wake_up_is_completed_by_the_next_delivery(
        self, dead: Execution, successor: Execution
    ) -> None:
        dead.holds()
        successor.waits().parks()
        dying = dead.cleans_up()
        while dead.holder() is not None:
            dying.step()
        dead.cleaned_up()
        assert dead.service.answered == ["wake-up"]
