"""Hand-over by call: whoever frees a place looks for the next in line, whoever parks looks for a free place.

So one of the two sees the other, in whatever order their requests arrive. A call is a hint and no more.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from contract.engines import ON_ONE_ENGINE
from contract.world import LEASE_MS, Callback, Process, Stepper, TaskService, World, every_order, exclusion_held

from ticketlock import (
    Claim,
    Grant,
    LockLost,
    LockName,
    OutcomeUnknown,
    Place,
    Position,
    RecordWaitExceeded,
    Released,
    RequestNotApplied,
    TableRefused,
)
from ticketlock._calls import await_call, call_next, release
from ticketlock._items import Session, row_key
from ticketlock._protocol import Contender
from ticketlock._requests import Read, Steps, TaskAnswer
from ticketlock.errors import TableError
from ticketlock.workflow import Workflow

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"


@dataclass
class Waiter:
    """An acquisition that can be called, and its place in the queue."""

    process: Process
    claim: Claim
    session: Session
    service: TaskService
    place: Place

    @property
    def token(self) -> str:
        return f"token of {self.session.place}"

    def parks(self, token: str | None = None, look: int = 0, *, may_stay: bool = True) -> Callback[Position | None]:
        return self._steps(
            lambda me: await_call(me, self.place, self.session, token or self.token, look, lambda _: may_stay)
        )

    def stays_parked(self) -> bool:
        return self.parks().run().result is not None

    def looks(self) -> Grant | Position:
        found = self.process.table.check_turn(self.claim, self.place, None)
        if isinstance(found, Position):
            self.place = found.place
        return found

    def has_word(self) -> bool:
        return self.token in self.service.called

    def gives_up(self) -> Callback[Grant | None]:
        """The record wait is over at the next look."""

        def steps(me: Contender) -> Steps[Grant | None]:
            try:
                found = yield from me.check_turn(self.place, wait_until_ms=0)
            except RecordWaitExceeded:
                yield from call_next(me)
                return None
            assert isinstance(found, Grant)
            return found

        return self._steps(steps)

    def _steps(self, verb: Callable[[Contender], Steps[Any]]) -> Callback[Any]:
        return Callback(self.process, self.claim, verb, self.service)


@dataclass
class Line:
    """One lock with its holders, and waiters behind them in the order of their tickets.

    Attributes:
        processes: that are used again; further ones are made.
    """

    world: World
    processes: Sequence[Process] = ()
    permits: int = 1
    service: TaskService = field(default_factory=TaskService)
    holders: list[tuple[Process, Claim, Grant]] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = self.world.lock()
        self._free = list(self.processes)
        for process in self.processes:
            process.sent.clear()

    def process(self) -> Process:
        return self._free.pop(0) if self._free else self.world.process()

    def held(self) -> "Line":
        process = self.process()
        claim = process.claim(self.lock, permits=self.permits)
        self.holders.append((process, claim, process.granted(claim)))
        return self

    def claim(self, process: Process, name: str) -> tuple[Claim, Session]:
        session = Session(f"arn:aws:states:::execution:serialize:{uuid.uuid4()}", name)
        return process.claim(self.lock, permits=self.permits, session=session), session

    def waiter(self) -> Waiter:
        process = self.process()
        claim, session = self.claim(process, f"waiter-{len(self.waiters)}")
        waiter = Waiter(process, claim, session, self.service, process.queued(claim).place)
        self.waiters.append(waiter)
        return waiter

    def releases(self, holder: int = 0) -> Callback[Released]:
        process, claim, grant = self.holders[holder]
        return Callback(process, claim, lambda me: release(me, grant), self.service)

    def is_free(self) -> bool:
        item = self.process().table.inspect(self.lock).item
        return item is not None and item.held < item.permits


@pytest.fixture
def processes(world: World) -> list[Process]:
    return [world.process() for _ in range(4)]


@pytest.fixture
def line(world: World) -> Line:
    return Line(world)


class TestNoWakeUpIsLost:
    def test_in_every_order_of_a_parking_and_a_release(self, world: World, processes: list[Process]) -> None:
        line = Line(world, processes)
        parking: Callback[Position | None]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal line, parking
            line = Line(world, processes).held()
            parking = line.waiter().parks()
            return [parking, line.releases()]

        told_by = set()
        for order in every_order(world, start):
            assert line.waiters[0].has_word(), order
            told_by.add(parking.result is None)
            assert isinstance(line.waiters[0].looks(), Grant), order
        # It ended its task by itself, or was called.
        assert told_by == {True, False}

    def test_in_every_order_of_an_arrival_and_a_release(self, world: World, processes: list[Process]) -> None:
        """From the first request on: the release may come before the ticket, between ticket and row, or later."""
        line = Line(world, processes)
        arriving: Callback[Grant | Place]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal line, arriving
            line = Line(world, processes).held()
            process = line.process()
            claim, session = line.claim(process, "waiter")

            def arrive(me: Contender) -> Steps[Grant | Place]:
                found = yield from me.take_ticket(None)
                if isinstance(found, Grant):
                    return found
                yield from await_call(me, found.place, session, "token", 0, lambda _: True)
                return found.place

            arriving = Callback(process, claim, arrive, line.service)
            return [arriving, line.releases()]

        granted = called = 0
        for order in every_order(world, start):
            if isinstance(arriving.result, Grant):
                granted += 1
            else:
                called += 1
                assert line.service.called == ["token"], order
            assert exclusion_held(processes), order
        assert granted > 0
        assert called > 0

    @ON_ONE_ENGINE
    def test_in_every_order_of_two_parkings_and_a_release(self, world: World, processes: list[Process]) -> None:
        line = Line(world, processes)

        def start() -> Sequence[Stepper[Any]]:
            nonlocal line
            line = Line(world, processes).held()
            first, second = line.waiter(), line.waiter()
            return [first.parks(), second.parks(), line.releases()]

        for order in every_order(world, start):
            first, _ = line.waiters
            assert first.has_word(), order
            assert isinstance(first.looks(), Grant), order

    @ON_ONE_ENGINE
    def test_in_every_order_of_the_first_giving_up_the_second_parking_and_a_release(
        self, world: World, processes: list[Process]
    ) -> None:
        line = Line(world, processes)
        leaving: Callback[Grant | None]

        def start() -> Sequence[Stepper[Any]]:
            nonlocal line, leaving
            line = Line(world, processes).held()
            first, second = line.waiter(), line.waiter()
            leaving = first.gives_up()
            return [leaving, second.parks(), line.releases()]

        took = left = 0
        for order in every_order(world, start):
            assert leaving.error is None, order
            assert exclusion_held(processes), order
            if leaving.result is not None:
                took += 1
                assert isinstance(line.waiters[1].looks(), Position), order
                continue
            left += 1
            assert line.waiters[1].has_word(), order
            assert isinstance(line.waiters[1].looks(), Grant), order
        assert took > 0
        assert left > 0

    @ON_ONE_ENGINE
    def test_in_every_order_of_two_releases_both_waiters_have_word(
        self, world: World, processes: list[Process]
    ) -> None:
        line = Line(world, processes, permits=2)

        def start() -> Sequence[Stepper[Any]]:
            nonlocal line
            line = Line(world, processes, permits=2).held().held()
            line.waiter().parks().run()
            line.waiter().parks().run()
            return [line.releases(0), line.releases(1)]

        for order in every_order(world, start):
            assert all(waiter.has_word() for waiter in line.waiters), order
            assert all(isinstance(waiter.looks(), Grant) for waiter in line.waiters), order


class TestParking:
    def test_a_waiter_whose_turn_has_not_come_stays_parked(self, line: Line) -> None:
        assert line.held().waiter().stays_parked()
        assert line.service.answers == []

    def test_a_waiter_whose_turn_has_come_ends_its_task_at_once(self, line: Line) -> None:
        waiter = line.held().waiter()
        line.releases().run()
        assert not waiter.stays_parked()
        assert waiter.has_word()

    def test_the_first_behind_a_holder_whose_lease_is_over_ends_its_task_at_once(
        self, world: World, line: Line
    ) -> None:
        first, second = line.held().waiter(), line.waiter()
        world.advance(LEASE_MS // 2)
        for waiter in (first, second):
            waiter.looks()
        world.advance(LEASE_MS // 2 + 4_000)
        assert not first.stays_parked()
        assert second.stays_parked()

    def test_one_that_lost_its_place_ends_its_task_at_once(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.process.client.delete_item(
            TableName=line.world.engine.table_name, Key=row_key(line.lock, waiter.place.ticket)
        )
        assert not waiter.stays_parked()

    def test_one_that_holds_already_ends_its_task_at_once(self, line: Line) -> None:
        waiter = line.held().waiter()
        line.releases().run()
        assert isinstance(waiter.looks(), Grant)
        assert not waiter.stays_parked()

    def test_one_further_back_than_the_look_goes_stays_parked(self, line: Line) -> None:
        waiters = [line.held().waiter(), *(line.waiter() for _ in range(4))]
        assert [waiter.stays_parked() for waiter in waiters] == [True] * 5

    def test_one_that_sees_that_it_should_not_stay_for_as_long_ends_its_task_at_once(self, line: Line) -> None:
        waiter = line.held().waiter()
        assert waiter.parks(may_stay=False).run().result is None
        assert waiter.has_word()

    def test_parking_keeps_the_place_alive(self, world: World, line: Line) -> None:
        waiters = [line.held().waiter(), line.waiter(), line.waiter(), line.waiter()]
        for _ in range(3):
            world.advance(LEASE_MS // 2)
            for waiter in waiters:
                waiter.parks().run()
        rows = line.process().table.inspect(line.lock).rows
        assert [row.ticket for row in rows] == [waiter.place.ticket for waiter in waiters]
        assert min(row.lease_until_ms for row in rows) > world.now_ms + LEASE_MS // 2

    def test_only_the_newest_token_is_called(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks("first look", 0).run()
        waiter.parks("second look", 1).run()
        line.releases().run()
        assert line.service.called == ["second look"]

    def test_a_late_copy_of_an_earlier_parking_does_not_take_the_place_of_a_newer_token(self, line: Line) -> None:
        waiter = line.held().waiter()
        late = waiter.parks("first look", 0)
        waiter.parks("second look", 1).run()
        assert late.run().error is None
        line.releases().run()
        assert line.service.called == ["second look"]

    @ON_ONE_ENGINE
    def test_in_every_order_of_a_parking_its_copy_and_the_next_one_the_newest_token_stays(
        self, world: World, processes: list[Process]
    ) -> None:
        line = Line(world, processes)

        def start() -> Sequence[Stepper[Any]]:
            nonlocal line
            line = Line(world, processes).held()
            waiter = line.waiter()
            return [waiter.parks("first look", 0), waiter.parks("first look", 0), waiter.parks("second look", 1)]

        for order in every_order(world, start):
            line.releases().run()
            assert line.service.called == ["second look"], order

    def test_a_session_may_go_a_day_after_the_lease(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        found = waiter.process.client.get_item(
            TableName=line.world.engine.table_name, Key=waiter.session.key(), ConsistentRead=True
        )["Item"]
        expires_in_s = int(found["expiresAt"]["N"]) - line.world.now_ms // 1_000
        assert expires_in_s == pytest.approx(24 * 3_600 + LEASE_MS // 1_000, abs=5)


class TestACallIsAHint:
    def test_one_that_is_called_before_its_turn_looks_and_keeps_its_place(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        place = waiter.place
        assert line.service.answer(TaskAnswer(waiter.token))
        found = waiter.looks()
        assert isinstance(found, Position)
        assert found.place.ticket == place.ticket

    def test_a_release_that_is_repeated_calls_once_more_and_harms_nothing(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        assert [line.releases().run().error for _ in range(3)] == [None] * 3
        assert line.service.called == [waiter.token]
        assert isinstance(waiter.looks(), Grant)

    def test_a_release_that_died_before_it_called_is_made_up_for_by_its_repeat(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        died = line.releases()
        died.step()
        assert not waiter.has_word()
        line.releases().run()
        assert waiter.has_word()

    def test_a_token_that_nobody_waits_for_any_more_passes_the_call_on(self, line: Line) -> None:
        first, second = line.held().waiter(), line.waiter()
        for waiter in (first, second):
            waiter.parks().run()
        line.service.gone.add(first.token)
        line.releases().run()
        assert line.service.called == [second.token]
        # It is not its turn: it looks, and parks again.
        assert isinstance(second.looks(), Position)
        assert isinstance(first.looks(), Grant)

    def test_one_that_has_not_parked_yet_passes_the_call_on(self, line: Line) -> None:
        first, second = line.held().waiter(), line.waiter()
        second.parks().run()
        line.releases().run()
        assert line.service.called == [second.token]
        assert not first.stays_parked()

    def test_a_foreign_token_in_the_session_costs_time_only(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks("of somebody else").run()
        line.releases().run()
        assert line.service.called == ["of somebody else"]
        assert isinstance(waiter.looks(), Grant)

    def test_a_call_that_arrives_after_the_next_grant_finds_nobody(self, line: Line) -> None:
        first, second = line.held().waiter(), line.waiter()
        for waiter in (first, second):
            waiter.parks().run()
        late = line.releases()
        late.step()
        granted = first.looks()
        assert isinstance(granted, Grant)
        late.run()
        assert late.error is None
        assert not second.has_word()

    @pytest.mark.parametrize("error", [RequestNotApplied, OutcomeUnknown, TableRefused])
    @pytest.mark.parametrize("requests", [1, 2, 3])
    def test_whatever_goes_wrong_while_calling_the_release_is_a_release(
        self, line: Line, requests: int, error: type[TableError]
    ) -> None:
        line.held().waiter().parks().run()
        releasing = line.releases()
        for _ in range(requests):
            releasing.step()
        assert releasing.next_request is not None
        releasing.fail(error("the table is gone"))
        releasing.run()
        assert isinstance(releasing.result, Released)
        assert line.is_free()

    def test_a_release_that_fails_itself_calls_nobody(self, line: Line) -> None:
        line.held().waiter().parks().run()
        releasing = line.releases()
        releasing.fail(RequestNotApplied("the table is gone"))
        assert isinstance(releasing.error, RequestNotApplied)
        assert line.service.answers == []

    def test_a_release_of_a_lock_that_was_lost_calls_nobody(self, world: World, line: Line) -> None:
        line.held()
        world.advance(LEASE_MS + 4_000)
        line.held().waiter().parks().run()
        assert isinstance(line.releases(0).run().error, LockLost)
        assert line.service.answers == []


class TestWhoIsCalled:
    def test_as_many_as_permits_are_free_and_no_more(self, world: World) -> None:
        line = Line(world, permits=3).held().held().held()
        waiters = [line.waiter() for _ in range(5)]
        for waiter in waiters:
            waiter.parks().run()
        line.releases(0).run()
        assert line.service.called == [waiters[0].token]
        assert isinstance(waiters[0].looks(), Grant)
        for holder in (1, 2):
            process, claim, grant = line.holders[holder]
            process.table.release(claim, grant)
        assert line.service.called == [waiters[0].token]
        caller = line.process()
        Callback(caller, caller.claim(line.lock, permits=3), call_next, line.service).run()
        assert line.service.called == [waiter.token for waiter in waiters[:3]]

    def test_nobody_where_nothing_is_free(self, line: Line) -> None:
        line.held().waiter().parks().run()
        caller = line.process()
        calling = Callback(caller, caller.claim(line.lock), call_next, line.service).run()
        assert (calling.result, line.service.answers) == (0, [])

    def test_one_whose_place_is_a_dead_holders(self, world: World, line: Line) -> None:
        """Whoever comes by calls: the lease is over, and the dead call nobody."""
        waiter = line.held().waiter()
        world.advance(LEASE_MS // 2)
        waiter.looks()
        waiter.parks().run()
        world.advance(LEASE_MS // 2 + 4_000)
        caller = line.process()
        Callback(caller, caller.claim(line.lock), call_next, line.service).run()
        assert waiter.has_word()

    def test_nobody_whose_row_is_dead(self, world: World, line: Line) -> None:
        line.held()
        dead = line.waiter()
        dead.parks().run()
        world.advance(LEASE_MS // 2)
        living = line.waiter()
        living.parks().run()
        world.advance(LEASE_MS // 2 + 4_000)
        caller = line.process()
        Callback(caller, caller.claim(line.lock), call_next, line.service).run()
        assert line.service.called == [living.token]

    def test_a_waiter_that_polls_has_its_turn_and_nobody_is_called_past_it(self, line: Line) -> None:
        polling = line.held().process()
        claim = polling.claim(line.lock)
        position = polling.queued(claim)
        line.waiter().parks().run()
        line.releases().run()
        assert line.service.answers == []
        assert isinstance(polling.look(claim, position), Grant)

    def test_a_row_without_a_session_says_so(self, line: Line) -> None:
        polling = line.held().process()
        polling.queued(polling.claim(line.lock))
        waiter = line.waiter()
        rows = line.process().table.inspect(line.lock).rows
        assert [row.session for row in rows] == [None, waiter.session]

    def test_another_place_whose_name_begins_alike_is_not_taken_for_it(self, line: Line) -> None:
        waiter = line.held().waiter()
        other = Waiter(
            waiter.process,
            waiter.claim,
            Session(waiter.session.execution, waiter.session.place + "0"),
            line.service,
            waiter.place,
        )
        other.parks("of another place").run()
        line.releases().run()
        assert line.service.answers == []
        waiter.parks().run()
        caller = line.process()
        Callback(caller, caller.claim(line.lock), call_next, line.service).run()
        assert line.service.called == [waiter.token]

    def test_several_that_are_gone_are_passed_over(self, line: Line) -> None:
        waiters = [line.held().waiter(), *(line.waiter() for _ in range(3))]
        for waiter in waiters:
            waiter.parks().run()
        line.service.gone |= {waiter.token for waiter in waiters[:3]}
        line.releases().run()
        assert line.service.called == [waiters[3].token]


class TestWhatACallCosts:
    def test_an_uncontended_lock_costs_two_writes(self, line: Line) -> None:
        process = line.process()
        claim, _ = line.claim(process, "alone")
        operations = process.operations(lambda: Callback(process, claim, lambda me: release_of(me), line.service).run())
        assert operations == ["UpdateItem", "UpdateItem"]

    def test_a_release_with_somebody_behind_it_costs_a_query_for_the_line_and_one_for_the_session(
        self, line: Line
    ) -> None:
        line.held().waiter().parks().run()
        line.waiter()
        holder = line.holders[0][0]
        assert holder.operations(lambda: line.releases().run()) == ["UpdateItem", "Query", "Query"]

    def test_a_process_that_cannot_reach_step_functions_releases_with_one_write(self, line: Line) -> None:
        line.held().waiter()
        process, claim, grant = line.holders[0]
        assert process.operations(lambda: process.table.release(claim, grant)) == ["UpdateItem"]

    def test_a_call_is_given_up_soon(self, line: Line) -> None:
        """A work that has ended does not wait for the sake of a hint."""
        line.held().waiter().parks().run()
        releasing = line.releases()
        releasing.step()
        while not releasing.done:
            request = releasing.next_request
            assert isinstance(request, Read | TaskAnswer)
            assert request.patience_ms is not None
            assert request.patience_ms <= 2_000
            releasing.step()


def release_of(me: Contender) -> Steps[Released]:
    found = yield from me.take_ticket(None)
    assert isinstance(found, Grant)
    return (yield from release(me, found))


class TestTheWorkflowCalls:
    """With real clients, whose requests to Step Functions are answered over the wire."""

    def test_a_waiter_whose_record_wait_ends_leaves_and_calls_the_next_where_a_place_is_free(
        self, world: World, line: Line
    ) -> None:
        process, claim, grant = line.held().holders[0]
        first = world.process()
        workflow = line.service.workflow(first)
        execution = f"arn:aws:states:us-east-1:123456789012:execution:serialize:{uuid.uuid4()}"
        turn = ticket_of(workflow, execution, line.lock, record_wait_s=5)
        second = line.waiter()
        second.parks().run()
        world.advance(10_000)

        def freed_after_the_look(_operation: str) -> None:
            """By somebody who cannot call."""
            process.table.release(claim, grant)

        first.faults = [freed_after_the_look]
        step = workflow.check_position({"turn": turn, "leaseSeconds": LEASE_MS / 1_000, "execution": execution})
        assert step.reply["status"] == "RecordWaitExceeded"
        assert second.has_word()
        assert isinstance(second.looks(), Grant)

    def test_a_release_in_python_calls_a_waiting_execution(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        process, claim, grant = line.holders[0]
        line.service.workflow(process)._table.release(claim, grant)
        assert line.service.called == [waiter.token]
        assert isinstance(waiter.looks(), Grant)

    @pytest.mark.parametrize(
        ("earlier", "later"),
        [
            ((0, 0), (0, 1)),
            # Entered anew: after a look, or after the continuation in which it parked has failed.
            ((0, 10), (1, 0)),
            ((0, 99_999_999), (1, 0)),
        ],
    )
    def test_a_try_to_park_outranks_every_earlier_one(
        self, line: Line, earlier: tuple[int, int], later: tuple[int, int]
    ) -> None:
        workflow = line.service.workflow(line.held().process())
        turn = ticket_of(workflow, "arn:aws:states:::execution:serialize:waiter", line.lock)
        for token, (second, retry) in [("newest", later), ("older", earlier)]:
            step = {"entered": f"2027-01-15T08:00:0{second}.123Z", "retry": retry}
            workflow.wait_for_call({"turn": turn, "leaseSeconds": LEASE_MS / 1_000, "taskToken": token} | step)
        line.releases().run()
        assert line.service.called == ["newest"]


def ticket_of(workflow: Workflow, execution: str, lock: LockName, record_wait_s: float | str = "Infinity") -> Any:
    """The turn of an execution that asks for the lock."""
    asked = {"entity": lock.entity, "recordWaitSeconds": record_wait_s, "task": {"functionArn": FUNCTION}}
    step = workflow.take_ticket(
        {
            "request": asked,
            "execution": execution,
            "targets": None,
            "defaultRecordWaitSeconds": "Infinity",
            "leaseSeconds": LEASE_MS / 1_000,
            "pollSeconds": 5,
            "handOver": "callback",
            "continueMachine": "arn:aws:states:us-east-1:123456789012:stateMachine:continue",
            "pollsAnExecution": 100,
            "beatsAnExecution": 100,
        }
    )
    return step.reply["lock"]["turn"]
