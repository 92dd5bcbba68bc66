"""Cleaning up after executions that ended without their own last steps.

Best effort, and never more than that: whatever is late, repeated or refused, at most one holds, and a dead one no
longer than its lease.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from contract.engines import ON_ONE_ENGINE
from contract.world import LEASE_MS, Callback, Process, Stepper, TaskService, World, every_order, exclusion_held

from ticketlock import Grant, LockLost, LockName, OutcomeUnknown, Place, Position, Released
from ticketlock._calls import await_call
from ticketlock._clean_up import CleanedUp, clean_up
from ticketlock._items import Holder, Row, Session, lock_key
from ticketlock._requests import Closing, Read
from ticketlock._session import beat, finish, note_continuation
from ticketlock.workflow import Workflow

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:serialize"
CHILD = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
LATE_MS = LEASE_MS + 4_000
"""By then a lease that was written now is over, whoever judges."""


class Execution:
    """An execution of the serialised workflow: its steps, each in a process of its own, and what cleans up after it.

    Attributes:
        nested: whether its work is a nested execution; else a function.
        grant, place: what its first step found.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        lock: LockName,
        *,
        nested: bool = True,
        service: TaskService | None = None,
        name: str = "execution",
    ) -> None:
        self.processes = processes
        self.nested = nested
        self.service = service if service is not None else TaskService()
        self.session = Session(f"arn:aws:states:us-east-1:123456789012:execution:serialize:{uuid.uuid4()}", name)
        self.claim = processes[0].claim(lock, self.session.execution, session=self.session)
        self._used = 0
        for process in processes:
            process.sent.clear()

    def holds(self) -> "Execution":
        self.grant = self._process().granted(self.claim)
        return self

    def waits(self) -> "Execution":
        self.place = self._process().queued(self.claim).place
        return self

    def parks(self, token: str = "call") -> "Execution":
        self._steps(lambda me: await_call(me, self.place, self.session, token, 0, lambda _: True)).run()
        return self

    def looks(self) -> Grant | Position:
        found = self.late_look().run().result
        assert found is not None
        if isinstance(found, Position):
            self.place = found.place
        return found

    def late_look(self) -> Callback[Grant | Position]:
        return self._steps(lambda me: me.check_turn(self.place, None))

    def beats(self, number: int, token: str = "beat") -> Callback[Grant]:
        return self._steps(lambda me: beat(me, self.grant, self.session, token, number))

    def finishes(self) -> Callback[Released]:
        return self._steps(lambda me: finish(me, self.grant, self.session))

    def goes_on_in(self, execution: str, seam: int = 1) -> "Execution":
        self._steps(lambda me: note_continuation(me, self.session, execution, seam)).run()
        return self

    def cleans_up(self, stopped_at_ms: int | None = None) -> Callback[CleanedUp]:
        at_ms = stopped_at_ms if stopped_at_ms is not None else self.processes[0].world.now_ms
        return self._steps(lambda me: clean_up(me, self.session, at_ms, self.work_of))

    def cleaned_up(self, stopped_at_ms: int | None = None) -> CleanedUp:
        return self.cleans_up(stopped_at_ms).to_the_end()

    def work_of(self, fencing_token: int) -> str | None:
        return f"work-{fencing_token}" if self.nested else None

    def rows(self) -> list[Row]:
        return [row for row in self._inspected().rows if row.owner == self.claim.owner]

    def holder(self) -> Holder | None:
        item = self._inspected().item
        return item.holder(self.claim.owner) if item is not None else None

    def waiting(self) -> int:
        item = self._inspected().item
        return item.waiting if item is not None else 0

    def is_stopped(self) -> bool:
        process = self.processes[0]
        table = process.world.engine.table_name
        item = process.client.get_item(TableName=table, Key=self.session.key(), ConsistentRead=True).get("Item", {})
        return "stoppedToken" in item

    def stored(self) -> list[dict[str, Any]]:
        """The lock item and the queue, attribute by attribute."""
        found = self.processes[0].client.query(
            TableName=self.processes[0].world.engine.table_name,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": lock_key(self.claim.lock)["pk"]},
            ConsistentRead=True,
        )
        items: list[dict[str, Any]] = found["Items"]
        return items

    def _inspected(self) -> Any:
        return self.processes[0].table.inspect(self.claim.lock)

    def _process(self) -> Process:
        self._used += 1
        return self.processes[self._used % len(self.processes)]

    def _steps(self, verb: Any) -> Callback[Any]:
        return Callback(self._process(), self.claim, verb, self.service)


@pytest.fixture
def processes(world: World) -> list[Process]:
    return [world.process() for _ in range(3)]


@pytest.fixture
def dead(processes: list[Process], lock: LockName) -> Execution:
    """The execution that was stopped; its work is a nested one."""
    return Execution(processes, lock)


@pytest.fixture
def successor(processes: list[Process], lock: LockName, dead: Execution) -> Execution:
    return Execution(processes, lock, service=dead.service, name="successor")


def gets_the_lock_when_the_lease_is_over(world: World, successor: Execution) -> bool:
    """Not before, and then at the next look."""
    world.advance(LEASE_MS // 2)
    too_early = successor.looks()
    world.advance(LEASE_MS // 2 + 4_000)
    return isinstance(too_early, Position) and isinstance(successor.looks(), Grant)


class TestAWaiter:
    def test_it_leaves_the_queue(self, dead: Execution, successor: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        successor.waits()
        assert dead.cleaned_up() == CleanedUp(left=1)
        assert dead.rows() == []
        assert dead.waiting() >= 1
        found = successor.looks()
        assert isinstance(found, Position)
        assert found.ahead == 0

    def test_nobody_is_called_where_nothing_is_free(self, dead: Execution, successor: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        successor.waits().parks()
        dead.cleaned_up()
        assert dead.service.answers == []

    def test_the_next_is_called_where_a_place_is_free(
        self, dead: Execution, successor: Execution, bob: Process
    ) -> None:
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits()
        successor.waits().parks()
        bob.table.release(claim, grant)
        dead.cleaned_up()
        assert dead.service.called == ["call"]
        assert isinstance(successor.looks(), Grant)

    def test_one_that_was_never_in_the_queue_leaves_nothing_behind_and_changes_nothing(
        self, dead: Execution, successor: Execution, bob: Process
    ) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        successor.waits()
        before = dead.stored()
        cleaning = dead.cleans_up()
        while not cleaning.done:
            assert isinstance(cleaning.next_request, Read)
            cleaning.step()
        assert cleaning.result == CleanedUp()
        assert dead.stored() == before

    def test_a_lock_that_nobody_ever_used_stays_unused(self, dead: Execution) -> None:
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
        assert isinstance(successor.looks(), Grant)
        before = dead.stored()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
        assert dead.stored() == before

    def test_a_row_of_a_later_life_stays(self, world: World, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        dead.waits()
        before = dead.stored()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
        assert dead.stored() == before

    def test_of_two_lives_only_the_earlier_one_is_cleaned_up(self, world: World, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        again = dead.waits().place
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp(left=1)
        assert [row.ticket for row in dead.rows()] == [again.ticket]
        assert dead.waiting() >= 1

    def test_a_row_that_was_kept_alive_is_as_old_as_its_ticket(
        self, world: World, dead: Execution, bob: Process
    ) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits()
        world.advance(LEASE_MS // 2)
        dead.looks()
        assert dead.cleaned_up() == CleanedUp(left=1)

    def test_a_join_that_was_repeated_leaves_with_both_its_rows(self, dead: Execution, bob: Process) -> None:
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
            assert isinstance(successor.looks(), Grant), requests

    def test_what_it_leaves_of_the_count_is_healed(self, world: World, dead: Execution, bob: Process) -> None:
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

    def test_one_that_took_the_lock_between_the_look_and_the_leaving_is_freed_when_its_work_is_closed(
        self, dead: Execution, bob: Process
    ) -> None:
        cleaning, look = self.about_to_take_its_turn(dead, bob)
        taken = look.run().result
        assert isinstance(taken, Grant)
        assert cleaning.to_the_end() == CleanedUp(freed=True)
        assert dead.service.closings == [dead.work_of(taken.fencing_token)]
        assert dead.holder() is None

    def test_one_that_took_the_lock_between_the_look_and_the_leaving_is_left_to_its_lease_if_its_work_is_a_function(
        self, dead: Execution, bob: Process
    ) -> None:
        dead.nested = False
        cleaning, look = self.about_to_take_its_turn(dead, bob)
        assert isinstance(look.run().result, Grant)
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
        while isinstance(cleaning.next_request, Read):
            cleaning.step()
        return cleaning, dead.late_look()

    def test_a_late_copy_of_the_row_of_one_that_was_served_takes_nobody_off_the_count(
        self, dead: Execution, successor: Execution, bob: Process
    ) -> None:
        """Who is in the queue and not counted is not called, and a newcomer overtakes it."""
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
        served = dead.looks()
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


class TestAHolder:
    def test_it_is_freed_once_its_nested_execution_is_closed(self, dead: Execution) -> None:
        dead.holds()
        cleaning = dead.cleans_up()
        while not isinstance(cleaning.next_request, Closing):
            cleaning.step()
        # Before that: whatever beats gives up, and the lock is held.
        assert dead.holder() is not None
        assert dead.is_stopped()
        assert cleaning.to_the_end() == CleanedUp(freed=True)
        assert dead.service.closings == [dead.work_of(dead.grant.fencing_token)]
        assert dead.holder() is None

    def test_the_next_is_called_then(self, dead: Execution, successor: Execution) -> None:
        dead.holds()
        successor.waits().parks()
        dead.cleaned_up()
        assert dead.service.called == ["call"]
        assert isinstance(successor.looks(), Grant)

    def test_it_is_left_to_its_lease_while_its_nested_execution_is_not_seen_closed(
        self, world: World, dead: Execution, successor: Execution
    ) -> None:
        dead.holds()
        dead.service.never_close.add(f"work-{dead.grant.fencing_token}")
        successor.waits().parks()
        assert dead.cleaned_up() == CleanedUp(left_to_lease=True)
        assert dead.service.answers == []
        assert isinstance(successor.looks(), Position)
        assert gets_the_lock_when_the_lease_is_over(world, successor)

    def test_it_is_left_to_its_lease_when_nobody_knows_whether_its_nested_execution_is_closed(
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
    def test_a_heartbeat_that_survives_ends(self, dead: Execution, nested: bool) -> None:
        """In a continuation, or in a redriven execution whose lock is gone."""
        dead.nested = nested
        dead.holds().beats(0, "parked").run()
        dead.cleaned_up()
        assert dead.service.called == ["parked"]
        assert isinstance(dead.beats(1, "next").run().error, LockLost)
        assert [(answer.task_token, answer.error) for answer in dead.service.answers] == [
            ("parked", None),
            ("next", "LockLost"),
        ]

    def test_a_heartbeat_that_survives_lengthens_no_lease(
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
        successor.looks()
        world.advance(LEASE_MS // 2 + 4_000)
        assert isinstance(successor.looks(), Grant)

    def test_an_event_that_is_delivered_twice_is_one(self, dead: Execution, successor: Execution) -> None:
        dead.holds()
        successor.waits()
        assert dead.cleaned_up() == CleanedUp(freed=True)
        assert isinstance(successor.looks(), Grant)
        before = dead.stored()
        assert dead.cleaned_up() == CleanedUp()
        assert dead.stored() == before

    def test_an_event_that_comes_after_somebody_else_took_the_lock_over_changes_nothing(
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

    def test_a_grant_of_a_later_life_stays(self, world: World, dead: Execution) -> None:
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        dead.holds()
        before = dead.stored()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp()
        assert dead.stored() == before
        assert not dead.is_stopped()

    def test_a_grant_of_a_later_life_stays_though_a_row_of_the_earlier_one_is_left(
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
        redriven = dead.looks()
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

    def test_a_grant_of_a_later_life_that_comes_between_the_look_and_the_leaving_stays(
        self, world: World, dead: Execution, bob: Process
    ) -> None:
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits()
        stopped_at_ms = world.now_ms
        world.advance(5_000)
        cleaning = dead.cleans_up(stopped_at_ms)
        while isinstance(cleaning.next_request, Read):
            cleaning.step()
        bob.table.release(claim, grant)
        redriven = dead.looks()
        assert isinstance(redriven, Grant)
        assert not cleaning.to_the_end().freed
        holder = dead.holder()
        assert holder is not None
        assert holder.fencing_token == redriven.fencing_token
        assert not dead.is_stopped()

    def test_a_clean_up_lengthens_no_lease(self, world: World, dead: Execution, bob: Process) -> None:
        """Half of it is over, and a row of its own stands beside the grant: a waiter would renew first."""
        dead.nested = False
        dead.holds()
        bob.steps(dead.claim, lambda me: me.join()).to_the_end()
        world.advance(LEASE_MS // 2)
        before = dead.holder()
        assert before is not None
        dead.cleaned_up()
        after = dead.holder()
        assert after is not None
        assert after.lease_until_ms == before.lease_until_ms

    def test_the_services_date_and_the_tables_may_differ_by_a_second(self, world: World, dead: Execution) -> None:
        stopped_at_ms = world.now_ms - 1_000
        dead.holds()
        assert dead.cleaned_up(stopped_at_ms) == CleanedUp(freed=True)

    def test_its_own_row_beside_the_grant_leaves_and_the_count_stays_safe(
        self, dead: Execution, bob: Process, successor: Execution
    ) -> None:
        """A first step that ran twice: one copy took the lock, the other a place behind it."""
        dead.holds()
        joined = bob.steps(dead.claim, lambda me: me.join()).to_the_end()
        successor.waits().parks()
        assert [row.ticket for row in dead.rows()] == [joined[0].ticket]
        assert dead.cleaned_up() == CleanedUp(left=1, freed=True)
        assert (dead.rows(), dead.holder()) == ([], None)
        assert dead.waiting() >= 1
        assert dead.service.called == ["call"]

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
            assert isinstance(successor.looks(), Grant), requests

    def test_a_clean_up_that_died_before_it_called_is_made_up_for_by_the_next_delivery(
        self, dead: Execution, successor: Execution
    ) -> None:
        dead.holds()
        successor.waits().parks()
        dying = dead.cleans_up()
        while dead.holder() is not None:
            dying.step()
        dead.cleaned_up()
        assert dead.service.called == ["call"]


class TestAContinuation:
    @pytest.mark.parametrize("closes", [True, False])
    def test_it_is_closed_before_anything_else_is_done(self, dead: Execution, bob: Process, closes: bool) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits().goes_on_in("wait-1")
        if not closes:
            dead.service.never_close.add("wait-1")
        cleaning = dead.cleans_up()
        while isinstance(cleaning.next_request, Read):
            cleaning.step()
        assert cleaning.next_request == Closing("wait-1")
        assert len(dead.rows()) == 1
        assert cleaning.to_the_end() == CleanedUp(left=1)
        assert dead.service.closings == ["wait-1"]

    def test_only_the_newest_runs_still(self, dead: Execution, bob: Process) -> None:
        bob.granted(bob.claim(dead.claim.lock))
        dead.waits().goes_on_in("wait-1").goes_on_in("wait-2", 2).goes_on_in("wait-1")
        dead.cleaned_up()
        assert dead.service.closings == ["wait-2"]

    def test_what_it_did_before_it_was_closed_is_cleaned_up_too(self, dead: Execution, bob: Process) -> None:
        """It took the lock while it was being stopped."""
        claim = bob.claim(dead.claim.lock)
        grant = bob.granted(claim)
        dead.waits().goes_on_in("wait-1")
        bob.table.release(claim, grant)
        cleaning = dead.cleans_up()
        while not isinstance(cleaning.next_request, Closing):
            cleaning.step()
        assert isinstance(dead.looks(), Grant)
        assert cleaning.to_the_end() == CleanedUp(freed=True)
        assert dead.holder() is None


@ON_ONE_ENGINE
class TestInEveryOrder:
    """Of the requests of a clean-up, and of what the stopped execution had under way."""

    def test_a_release_under_way_and_the_clean_up_free_the_lock_once(
        self, world: World, processes: list[Process]
    ) -> None:
        dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
        releasing: Callback[Released]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor, releasing
            dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
            dead.beats(0).run()
            releasing = dead.finishes()
            return [releasing, dead.cleans_up()]

        for order in every_order(world, start):
            assert releasing.error is None, order
            assert {answer.error for answer in dead.service.answers} == {None}, order
            assert {"beat", "call"} <= set(dead.service.called), order
            assert isinstance(successor.looks(), Grant), order
            assert exclusion_held(processes), order

    def test_a_release_under_way_frees_the_lock_of_a_function_that_the_clean_up_leaves(
        self, world: World, processes: list[Process]
    ) -> None:
        dead, successor = self.a_holder_and_a_waiter(world, processes, nested=False)
        releasing: Callback[Released]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor, releasing
            dead, successor = self.a_holder_and_a_waiter(world, processes, nested=False)
            releasing = dead.finishes()
            return [releasing, dead.cleans_up()]

        for order in every_order(world, start):
            assert releasing.error is None, order
            assert isinstance(successor.looks(), Grant), order
            assert exclusion_held(processes), order

    @pytest.mark.parametrize("held_ms", [0, LEASE_MS // 2])
    def test_a_beat_under_way_revives_nothing_that_the_clean_up_freed(
        self, world: World, processes: list[Process], held_ms: int
    ) -> None:
        """A beat of a fresh lease, and one that renews."""
        dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
        beating: Callback[Grant]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor, beating
            dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
            world.advance(held_ms)
            beating = dead.beats(1)
            return [beating, dead.cleans_up()]

        for order in every_order(world, start):
            assert beating.error is None or isinstance(beating.error, LockLost), order
            assert "beat" in dead.service.called, order
            assert {answer.error for answer in dead.service.answers} <= {None, "LockLost"}, order
            assert dead.holder() is None, order
            assert isinstance(successor.looks(), Grant), order
            assert exclusion_held(processes), order

    @pytest.mark.parametrize("held_ms", [0, LEASE_MS // 2])
    def test_a_beat_under_way_keeps_the_lock_of_a_function_for_one_lease_at_most(
        self, world: World, processes: list[Process], held_ms: int
    ) -> None:
        dead, successor = self.a_holder_and_a_waiter(world, processes, nested=False)

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor
            dead, successor = self.a_holder_and_a_waiter(world, processes, nested=False)
            world.advance(held_ms)
            return [dead.beats(1), dead.cleans_up()]

        for order in every_order(world, start):
            assert dead.service.called == ["beat"], order
            assert isinstance(successor.looks(), Position), order
            assert gets_the_lock_when_the_lease_is_over(world, successor), order
            assert exclusion_held(processes), order

    @pytest.mark.parametrize("nested", [True, False])
    def test_a_look_under_way_neither_wedges_the_lock_nor_holds_it_past_a_lease(
        self, world: World, processes: list[Process], nested: bool
    ) -> None:
        """The dead one's turn has come; a third stands behind it."""
        bob = world.process()
        dead = successor = Execution(processes, world.lock())
        looking: Callback[Grant | Position]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor, looking
            lock = world.lock()
            claim = bob.claim(lock)
            grant = bob.granted(claim)
            dead = Execution(processes, lock, nested=nested).waits()
            successor = Execution(processes, lock, service=dead.service, name="successor").waits().parks()
            bob.table.release(claim, grant)
            looking = dead.late_look()
            return [looking, dead.cleans_up()]

        taken = left = 0
        for order in every_order(world, start):
            assert exclusion_held([*processes, bob]), order
            if isinstance(looking.result, Grant):
                taken += 1
            else:
                left += 1
            found = successor.looks()
            if isinstance(found, Position):
                # By a function that may run, or by a look that came after the clean-up.
                assert dead.holder() is not None or dead.rows(), order
                world.advance(LEASE_MS // 2)
                successor.looks()
                world.advance(LEASE_MS // 2 + 4_000)
                assert isinstance(successor.looks(), Grant), order
            elif isinstance(looking.result, Grant):
                assert nested, order
                assert dead.service.closings == [dead.work_of(looking.result.fencing_token)], order
        assert taken > 0
        assert left > 0

    def test_two_deliveries_of_one_event_are_one(self, world: World, processes: list[Process]) -> None:
        bob = world.process()
        dead = successor = Execution(processes, world.lock())
        cleaning: list[Callback[CleanedUp]] = []

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor, cleaning
            lock = world.lock()
            bob.granted(bob.claim(lock))
            dead = Execution(processes, lock).waits().waits()
            successor = Execution(processes, lock, service=dead.service, name="successor").waits()
            cleaning = [dead.cleans_up(), dead.cleans_up()]
            return cleaning

        for order in every_order(world, start):
            assert [each.error for each in cleaning] == [None, None], order
            assert dead.rows() == [], order
            assert dead.waiting() >= 1, order
            assert isinstance(successor.looks(), Position), order
            assert exclusion_held([*processes, bob]), order

    def test_two_deliveries_of_one_event_free_a_lock_once(self, world: World, processes: list[Process]) -> None:
        dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
        cleaning: list[Callback[CleanedUp]] = []

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor, cleaning
            dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
            cleaning = [dead.cleans_up(), dead.cleans_up()]
            return cleaning

        for order in every_order(world, start):
            assert [each.error for each in cleaning] == [None, None], order
            assert "call" in dead.service.called, order
            assert isinstance(successor.looks(), Grant), order
            assert exclusion_held(processes), order

    def test_a_successor_that_takes_the_lock_over_is_not_disturbed(
        self, world: World, processes: list[Process]
    ) -> None:
        """The event is as late as the lease is long: the next one's look and the clean-up meet."""
        dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
        looking: Callback[Grant | Position]
        stopped_at_ms = world.now_ms

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, successor, looking
            dead, successor = self.a_holder_and_a_waiter(world, processes, nested=True)
            world.advance(LEASE_MS // 2)
            successor.looks()
            world.advance(LEASE_MS // 2 + 4_000)
            looking = successor.late_look()
            return [looking, dead.cleans_up(stopped_at_ms)]

        for order in every_order(world, start):
            assert isinstance(looking.result, Grant), order
            assert successor.holder() is not None, order
            assert dead.holder() is None, order
            assert exclusion_held(processes), order

    def test_a_beat_that_renews_a_release_and_the_clean_up(self, world: World, processes: list[Process]) -> None:
        dead = Execution(processes, world.lock())
        releasing: Callback[Released]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal dead, releasing
            dead = Execution(processes, world.lock()).holds()
            world.advance(LEASE_MS // 2)
            releasing = dead.finishes()
            return [dead.beats(1), releasing, dead.cleans_up()]

        for order in every_order(world, start):
            assert releasing.error is None, order
            assert dead.service.called == ["beat"], order
            assert dead.holder() is None, order
            assert exclusion_held(processes), order

    def a_holder_and_a_waiter(
        self, world: World, processes: Sequence[Process], *, nested: bool
    ) -> tuple[Execution, Execution]:
        dead = Execution(processes, world.lock(), nested=nested).holds()
        successor = Execution(processes, dead.claim.lock, service=dead.service, name="successor").waits().parks()
        return dead, successor


class TestTheEvent:
    """What the workflow makes of a status event, over real clients; Step Functions is answered over the wire."""

    @pytest.fixture
    def service(self) -> TaskService:
        return TaskService()

    @pytest.fixture
    def workflow(self, alice: Process, service: TaskService) -> Workflow:
        return service.workflow(alice)

    def test_a_holders_work_is_stopped_and_its_lock_freed(
        self, workflow: Workflow, alice: Process, service: TaskService, lock: LockName
    ) -> None:
        execution = arn()
        turn = take(workflow, execution, lock)
        assert turn["status"] == "granted"
        work = f"{CHILD.replace('stateMachine', 'execution')}:{turn['workName']}"
        service.described[work] = {"status": "RUNNING"}
        step = workflow.clean_up(event(alice, execution, request(lock)), state_machine=MACHINE, lease_ms=LEASE_MS)
        assert service.closings == [work]
        assert step.metrics == {"CleanedUpHolds": 1}
        assert holders(alice, lock) == []

    def test_a_work_that_was_never_started_leaves_the_lock_to_its_lease(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        """It may be under way: nobody knows an execution of that name yet."""
        execution = arn()
        take(workflow, execution, lock)
        step = workflow.clean_up(event(alice, execution, request(lock)), state_machine=MACHINE, lease_ms=LEASE_MS)
        assert step.metrics == {"HoldsLeftToLease": 1}
        assert holders(alice, lock) == [execution]

    @pytest.mark.parametrize("text", [None, "missing"])
    def test_an_input_that_was_too_long_for_the_event_is_looked_up(
        self, workflow: Workflow, alice: Process, service: TaskService, lock: LockName, text: str | None
    ) -> None:
        alice.granted(alice.claim(lock))
        execution = arn()
        take(workflow, execution, lock)
        service.described[execution] = {"status": "ABORTED", "input": json.dumps(request(lock)), "redriveCount": 0}
        without = event(alice, execution, None)
        if text == "missing":
            del without["detail"]["input"]
        step = workflow.clean_up(without, state_machine=MACHINE, lease_ms=LEASE_MS)
        assert step.metrics == {"CleanedUpPlaces": 1}
        assert alice.table.inspect(lock).rows == ()

    def test_an_execution_that_is_forgotten_and_whose_input_is_missing_is_left_to_its_leases(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        execution = arn()
        take(workflow, execution, lock)
        step = workflow.clean_up(event(alice, execution, None), state_machine=MACHINE, lease_ms=LEASE_MS)
        assert step.metrics == {}
        assert holders(alice, lock) == [execution]

    @pytest.mark.parametrize("text", ["null", "[]", "not JSON", '{"entity": 7}', '{"entity": "e", "task": {}}', ""])
    def test_an_execution_whose_input_was_refused_left_nothing_behind(
        self, workflow: Workflow, alice: Process, text: str
    ) -> None:
        refused = event(alice, arn(), None)
        refused["detail"]["input"] = text
        assert workflow.clean_up(refused, state_machine=MACHINE, lease_ms=LEASE_MS).metrics == {}

    def test_an_execution_that_was_redriven_meanwhile_is_left_alone(
        self, workflow: Workflow, alice: Process, service: TaskService, lock: LockName
    ) -> None:
        execution = arn()
        take(workflow, execution, lock)
        service.described[execution] = {"status": "RUNNING", "input": json.dumps(request(lock)), "redriveCount": 1}
        step = workflow.clean_up(event(alice, execution, request(lock)), state_machine=MACHINE, lease_ms=LEASE_MS)
        assert step.keys["redriven"]
        assert holders(alice, lock) == [execution]

    def test_the_second_end_of_an_execution_that_was_redriven_is_cleaned_up(
        self, workflow: Workflow, alice: Process, service: TaskService, lock: LockName
    ) -> None:
        alice.granted(alice.claim(lock))
        execution = arn()
        take(workflow, execution, lock)
        service.described[execution] = {"status": "ABORTED", "input": json.dumps(request(lock)), "redriveCount": 1}
        again = event(alice, execution, request(lock))
        again["detail"]["redriveCount"] = 1
        assert workflow.clean_up(again, state_machine=MACHINE, lease_ms=LEASE_MS).metrics == {"CleanedUpPlaces": 1}

    def test_somebody_elses_workflow_is_known_by_the_places_that_it_noted(
        self, workflow: Workflow, alice: Process, service: TaskService, world: World
    ) -> None:
        waited_for, held = world.lock(), world.lock()
        alice.granted(alice.claim(waited_for))
        execution = arn()
        assert take(workflow, execution, held, place="first/1")["status"] == "granted"
        assert take(workflow, execution, waited_for, place="second/2")["status"] == "parked"
        other_machine = event(alice, execution, {"anything": "at all"}, machine=f"{MACHINE}-of-somebody")
        step = workflow.clean_up(other_machine, state_machine=MACHINE, lease_ms=LEASE_MS)
        assert step.metrics == {"CleanedUpPlaces": 1, "HoldsLeftToLease": 1}
        assert alice.table.inspect(waited_for).rows == ()
        assert holders(alice, held) == [f"{execution}/first/1"]
        assert service.closings == []

    def test_a_nested_execution_in_somebody_elses_workflow_is_stopped_and_the_lock_freed(
        self, workflow: Workflow, alice: Process, service: TaskService, lock: LockName
    ) -> None:
        execution = arn()
        turn = take(workflow, execution, lock, place="first/1", work_machine=f"{CHILD}:7")
        work = f"{CHILD.replace('stateMachine', 'execution')}:{turn['workName']}"
        service.described[work] = {"status": "RUNNING"}
        step = workflow.clean_up(
            event(alice, execution, None, machine=f"{MACHINE}-of-somebody"), state_machine=MACHINE, lease_ms=LEASE_MS
        )
        assert service.closings == [work]
        assert step.metrics == {"CleanedUpHolds": 1}
        assert holders(alice, lock) == []

    def test_an_execution_of_somebody_elses_workflow_that_never_came_to_its_lock_is_none_of_ours(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        """Its input may look like one of ours."""
        other_machine = event(alice, arn(), request(lock), machine=f"{MACHINE}-of-somebody")
        step = workflow.clean_up(other_machine, state_machine=MACHINE, lease_ms=LEASE_MS)
        assert step.metrics == {}
        assert alice.table.inspect(lock).item is None

    def test_a_place_in_somebody_elses_workflow_that_is_finished_is_not_looked_at_again(
        self, workflow: Workflow, alice: Process, lock: LockName
    ) -> None:
        execution = arn()
        turn = take(workflow, execution, lock, place="first")
        workflow.release({"turn": turn})
        alice.sent.clear()
        workflow.clean_up(event(alice, execution, None, machine="another"), state_machine=MACHINE, lease_ms=LEASE_MS)
        # The sessions of the execution, and nothing else.
        assert [sent.operation for sent in alice.sent] == ["Query"]

    def test_what_a_place_in_somebody_elses_workflow_noted_outlives_every_wait(
        self, workflow: Workflow, alice: Process, world: World, lock: LockName
    ) -> None:
        """An execution may last for a year."""
        execution = arn()
        take(workflow, execution, lock, place="first")
        found = alice.client.get_item(TableName=world.engine.table_name, Key=Session(execution, "first").key())["Item"]
        expires_in_s = int(found["expiresAt"]["N"]) - world.now_ms // 1_000
        assert 366 * 24 * 3_600 < expires_in_s < 400 * 24 * 3_600


def arn() -> str:
    return f"arn:aws:states:us-east-1:123456789012:execution:serialize:{uuid.uuid4()}"


def request(lock: LockName) -> dict[str, Any]:
    task = {"stateMachineArn": CHILD, "input": {"order": 42}}
    return {"entity": lock.entity, "namespace": lock.namespace, "task": task}


def take(
    workflow: Workflow, execution: str, lock: LockName, place: str | None = None, work_machine: str = ""
) -> dict[str, Any]:
    asked = request(lock)
    if place is not None:
        del asked["task"]
    step = workflow.take_ticket(
        {
            "request": asked,
            "execution": execution,
            "targets": [CHILD],
            "defaultRecordWaitSeconds": "Infinity",
            "leaseSeconds": LEASE_MS / 1_000,
            "pollSeconds": 5,
            "handOver": "callback",
            "continueMachine": f"{MACHINE}-continue",
            "pollsAnExecution": 100,
            "beatsAnExecution": 100,
            **({"place": place, "workMachine": work_machine} if place is not None else {}),
        }
    )
    turn: dict[str, Any] = step.reply["lock"]["turn"]
    return turn


def event(process: Process, execution: str, asked: Any, *, machine: str = MACHINE) -> dict[str, Any]:
    """https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html"""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Step Functions Execution Status Change",
        "source": "aws.states",
        "account": "123456789012",
        "region": "us-east-1",
        "resources": [execution],
        "detail": {
            "executionArn": execution,
            "stateMachineArn": machine,
            "name": execution.rpartition(":")[2],
            "status": "ABORTED",
            "startDate": process.world.now_ms - 10_000,
            "stopDate": process.world.now_ms,
            "input": None if asked is None else json.dumps(asked),
            "inputDetails": {"included": asked is not None},
            "output": None,
            "outputDetails": None,
        },
    }


def holders(process: Process, lock: LockName) -> list[str]:
    item = process.table.inspect(lock).item
    return [holder.owner for holder in item.holders] if item is not None else []
