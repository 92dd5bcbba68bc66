"""Hand-over by callback: whom a release wakes. A wake-up is only a hint."""

import pytest
from kit.step_functions import Callback
from kit.world import LEASE_MS, World
from locks.waiting_line import Line, Waiter

from ticketlock import Grant, LockLost, OutcomeUnknown, Position, Released, RequestNotApplied, TableRefused
from ticketlock.errors import TableError
from ticketlock.locks._items import Session
from ticketlock.locks._protocol import Contender
from ticketlock.wire._requests import Read, Steps
from ticketlock.wire._step_functions import TaskAnswer

pytestmark = pytest.mark.shows("liveness")


class TestAWakeUpIsAHint:
    def test_a_waiter_that_is_woken_before_its_turn_polls_and_keeps_its_place(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        place = waiter.place
        assert line.service.answer(TaskAnswer(waiter.token))
        found = waiter.polls()
        assert isinstance(found, Position)
        assert found.place.ticket == place.ticket

    def test_a_duplicate_release_wakes_again_and_does_no_harm(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        assert [line.releases().run().error for _ in range(3)] == [None] * 3
        assert line.service.answered == [waiter.token]
        assert isinstance(waiter.polls(), Grant)

    def test_the_retry_of_a_release_that_crashed_before_the_wake_up_wakes_the_next(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks().run()
        crashed = line.releases()
        crashed.step()
        assert not waiter.has_word()
        line.releases().run()
        assert waiter.has_word()

    def test_a_stale_token_makes_the_release_wake_the_next_waiter(self, line: Line) -> None:
        first, second = line.held().waiter(), line.waiter()
        for waiter in (first, second):
            waiter.parks().run()
        line.service.gone.add(first.token)
        line.releases().run()
        assert line.service.answered == [second.token]
        # It is not its turn: it polls, and parks again.
        assert isinstance(second.polls(), Position)
        assert isinstance(first.polls(), Grant)

    def test_a_waiter_that_has_not_parked_yet_makes_the_release_wake_the_next(self, line: Line) -> None:
        first, second = line.held().waiter(), line.waiter()
        second.parks().run()
        line.releases().run()
        assert line.service.answered == [second.token]
        assert not first.stays_parked()

    def test_a_foreign_token_in_the_session_costs_time_only(self, line: Line) -> None:
        waiter = line.held().waiter()
        waiter.parks("of another owner").run()
        line.releases().run()
        assert line.service.answered == ["of another owner"]
        assert isinstance(waiter.polls(), Grant)

    def test_a_wake_up_that_arrives_after_the_next_grant_changes_nothing(self, line: Line) -> None:
        first, second = line.held().waiter(), line.waiter()
        for waiter in (first, second):
            waiter.parks().run()
        late = line.releases()
        late.step()
        granted = first.polls()
        assert isinstance(granted, Grant)
        late.run()
        assert late.error is None
        assert not second.has_word()

    @pytest.mark.parametrize("error", [RequestNotApplied, OutcomeUnknown, TableRefused])
    @pytest.mark.parametrize("requests", [1, 2, 3])
    def test_a_release_succeeds_though_waking_the_next_fails(
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

    def test_a_failed_release_wakes_no_one(self, line: Line) -> None:
        line.held().waiter().parks().run()
        releasing = line.releases()
        releasing.fail(RequestNotApplied("the table is gone"))
        assert isinstance(releasing.error, RequestNotApplied)
        assert line.service.answers == []

    def test_a_release_of_a_lost_lock_wakes_no_one(self, world: World, line: Line) -> None:
        line.held()
        world.advance(LEASE_MS + 4_000)
        line.held().waiter().parks().run()
        assert isinstance(line.releases(0).run().error, LockLost)
        assert line.service.answers == []


class TestAHolderThatStallsWhileItWakesTheNext:
    @pytest.mark.parametrize("set_back_ms", [0, 60_000])
    def test_knows_how_much_is_left_of_its_lease_though_its_clocks_are_wrong(
        self, world: World, set_back_ms: int
    ) -> None:
        line = Line(world, permits=2).held().held()
        first, second = line.waiter(), line.waiter()
        second.parks().run()
        for holder in (0, 1):
            line.releases(holder).run()
        coming_in = first.comes_in()
        while coming_in.next_request is None or not line.holds(first):
            coming_in.step()
        first.process.stand_still(LEASE_MS // 2)
        first.process.wall_is_off_ms -= set_back_ms
        granted = coming_in.run().result
        assert isinstance(granted, Grant)
        now = first.process.read()
        assert granted.deadline_ms - now.local_ms <= LEASE_MS // 2
        assert granted.deadline_wall_ms - now.wall_ms <= LEASE_MS // 2


class TestWhoIsWoken:
    def test_as_many_are_woken_as_permits_are_free(self, world: World) -> None:
        line = Line(world, permits=3).held().held().held()
        waiters = [line.waiter() for _ in range(5)]
        for waiter in waiters:
            waiter.parks().run()
        line.releases(0).run()
        assert line.service.answered == [waiters[0].token]
        assert isinstance(waiters[0].polls(), Grant)
        for holder in (1, 2):
            process, claim, grant = line.holders[holder]
            process.table.release(claim, grant)
        assert line.service.answered == [waiters[0].token]
        waker = line.process()
        Callback(waker, waker.claim(line.lock, permits=3), lambda me: me.wake_next(), line.service).run()
        assert line.service.answered == [waiter.token for waiter in waiters[:3]]

    def test_no_one_is_woken_if_no_permit_is_free(self, line: Line) -> None:
        line.held().waiter().parks().run()
        waker = line.process()
        waking = Callback(waker, waker.claim(line.lock), lambda me: me.wake_next(), line.service).run()
        assert (waking.result, line.service.answers) == (0, [])

    def test_a_waiter_is_woken_if_the_holder_has_expired(self, world: World, line: Line) -> None:
        """Any client may wake it: the lease has ended, and a crashed holder wakes no one."""
        waiter = line.held().waiter()
        world.advance(LEASE_MS // 2)
        waiter.polls()
        waiter.parks().run()
        world.advance(LEASE_MS // 2 + 4_000)
        waker = line.process()
        Callback(waker, waker.claim(line.lock), lambda me: me.wake_next(), line.service).run()
        assert waiter.has_word()

    def test_no_one_with_an_expired_row_is_woken(self, world: World, line: Line) -> None:
        line.held()
        expired = line.waiter()
        expired.parks().run()
        world.advance(LEASE_MS // 2)
        living = line.waiter()
        living.parks().run()
        world.advance(LEASE_MS // 2 + 4_000)
        waker = line.process()
        Callback(waker, waker.claim(line.lock), lambda me: me.wake_next(), line.service).run()
        assert line.service.answered == [living.token]

    def test_a_waiter_that_polls_has_its_turn_and_no_one_behind_it_is_woken(self, line: Line) -> None:
        polling = line.held().process()
        claim = polling.claim(line.lock)
        position = polling.queued(claim)
        line.waiter().parks().run()
        line.releases().run()
        assert line.service.answers == []
        assert isinstance(polling.poll(claim, position), Grant)

    def test_a_row_without_a_session_has_none(self, line: Line) -> None:
        polling = line.held().process()
        polling.queued(polling.claim(line.lock))
        waiter = line.waiter()
        rows = line.process().table.inspect(line.lock).rows
        assert [row.session for row in rows] == [None, waiter.session]

    def test_another_session_whose_name_begins_alike_is_not_mistaken_for_it(self, line: Line) -> None:
        waiter = line.held().waiter()
        other = Waiter(
            waiter.process,
            waiter.claim,
            Session(waiter.session.execution, waiter.session.fragment + "0"),
            line.service,
            waiter.place,
        )
        other.parks("of another place").run()
        line.releases().run()
        assert line.service.answers == []
        waiter.parks().run()
        waker = line.process()
        Callback(waker, waker.claim(line.lock), lambda me: me.wake_next(), line.service).run()
        assert line.service.answered == [waiter.token]

    def test_several_waiters_with_stale_tokens_are_skipped(self, line: Line) -> None:
        waiters = [line.held().waiter(), *(line.waiter() for _ in range(3))]
        for waiter in waiters:
            waiter.parks().run()
        line.service.gone |= {waiter.token for waiter in waiters[:3]}
        line.releases().run()
        assert line.service.answered == [waiters[3].token]


class TestTheCostOfAWakeUp:
    def test_an_uncontended_lock_costs_two_writes(self, line: Line) -> None:
        process = line.process()
        claim, _ = line.claim(process, "alone")
        operations = process.operations(lambda: Callback(process, claim, lambda me: release_of(me), line.service).run())
        assert operations == ["UpdateItem", "UpdateItem"]

    def test_a_release_with_a_waiter_costs_a_query_for_the_queue_and_one_for_the_session(self, line: Line) -> None:
        line.held().waiter().parks().run()
        line.waiter()
        holder = line.holders[0][0]
        assert holder.operations(lambda: line.releases().run()) == ["UpdateItem", "Query", "Query"]

    def test_a_process_that_cannot_reach_step_functions_releases_with_one_write(self, line: Line) -> None:
        line.held().waiter()
        process, claim, grant = line.holders[0]
        assert process.operations(lambda: process.table.release(claim, grant)) == ["UpdateItem"]

    def test_a_wake_up_is_given_up_soon(self, line: Line) -> None:
        """Work that has ended does not wait for a hint."""
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
    return (yield from me.release(found))
