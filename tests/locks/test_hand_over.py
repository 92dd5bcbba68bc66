"""Hand-over by callback: whom a release wakes, one or several. A wake-up is only a hint."""

from typing import Any

import pytest
from kit.events import execution_arn, step_event, turn_of
from kit.step_functions import Callback
from kit.world import LEASE_MS, World
from locks.waiting_line import MARGIN_MS, Line, Waiter

from ticketlock import (
    Grant,
    LockLost,
    OutcomeUnknown,
    Position,
    RecordWaitExceeded,
    Released,
    RequestNotApplied,
    TableRefused,
)
from ticketlock.errors import TableError
from ticketlock.locks._items import Session
from ticketlock.locks._protocol import Contender
from ticketlock.wire._requests import Read, Steps
from ticketlock.wire._step_functions import TaskAnswer

pytestmark = pytest.mark.shows("liveness", "order")


def test_a_waiter_that_is_woken_before_its_turn_polls_and_keeps_its_place(line: Line) -> None:
    (waiter,) = line.held().parked()
    place = waiter.place
    assert line.service.answer(TaskAnswer(waiter.token))
    found = waiter.polls()
    assert isinstance(found, Position)
    assert found.place.ticket == place.ticket


def test_a_duplicate_release_wakes_again_and_does_no_harm(line: Line) -> None:
    (waiter,) = line.held().parked()
    assert [line.releases().run().error for _ in range(3)] == [None] * 3
    assert line.service.answered == [waiter.token]
    assert isinstance(waiter.polls(), Grant)


def test_the_retry_of_a_release_that_crashed_before_the_wake_up_wakes_the_next(line: Line) -> None:
    (waiter,) = line.held().parked()
    crashed = line.releases()
    crashed.step()
    assert not waiter.has_word()
    line.releases().run()
    assert waiter.has_word()


@pytest.mark.parametrize("stale", [1, 3])
def test_stale_tokens_make_the_release_wake_the_waiter_behind_them(line: Line, stale: int) -> None:
    waiters = line.held().parked(stale + 1)
    line.service.gone |= {waiter.token for waiter in waiters[:stale]}
    line.releases().run()
    assert line.service.answered == [waiters[stale].token]
    # It is not its turn: it polls, and parks again.
    assert isinstance(waiters[stale].polls(), Position)
    assert isinstance(waiters[0].polls(), Grant)


def test_a_waiter_that_has_not_parked_yet_makes_the_release_wake_the_next(line: Line) -> None:
    first, (second,) = line.held().waiter(), line.parked()
    line.releases().run()
    assert line.service.answered == [second.token]
    assert not first.stays_parked()


def test_a_foreign_token_in_the_session_costs_time_only(line: Line) -> None:
    waiter = line.held().waiter()
    waiter.parks("of another owner").run()
    line.releases().run()
    assert line.service.answered == ["of another owner"]
    assert isinstance(waiter.polls(), Grant)


def test_a_wake_up_that_arrives_after_the_next_grant_changes_nothing(line: Line) -> None:
    first, second = line.held().parked(2)
    late = line.releases()
    late.step()
    granted = first.polls()
    assert isinstance(granted, Grant)
    late.run()
    assert late.error is None
    assert not second.has_word()


@pytest.mark.parametrize("error", [RequestNotApplied, OutcomeUnknown, TableRefused])
@pytest.mark.parametrize("requests", [1, 2, 3])
def test_a_release_succeeds_though_waking_the_next_fails(line: Line, requests: int, error: type[TableError]) -> None:
    line.held().parked()
    releasing = line.releases()
    for _ in range(requests):
        releasing.step()
    assert releasing.next_request is not None
    releasing.fail(error("the table is gone"))
    releasing.run()
    assert isinstance(releasing.result, Released)
    assert line.is_free()


def test_a_failed_release_wakes_no_one(line: Line) -> None:
    line.held().parked()
    releasing = line.releases()
    releasing.fail(RequestNotApplied("the table is gone"))
    assert isinstance(releasing.error, RequestNotApplied)
    assert line.service.answers == []


def test_a_release_of_a_lost_lock_wakes_no_one(world: World, line: Line) -> None:
    line.held()
    world.advance(LEASE_MS + MARGIN_MS)
    line.held().parked()
    assert isinstance(line.releases(0).run().error, LockLost)
    assert line.service.answers == []


@pytest.mark.parametrize("set_back_ms", [0, 60_000])
def test_a_holder_that_stalls_while_it_wakes_the_next_knows_how_much_is_left_of_its_lease_though_its_clocks_are_wrong(
    world: World, set_back_ms: int
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


def test_as_many_are_woken_as_permits_are_free(world: World) -> None:
    line = Line(world, permits=3).held().held().held()
    waiters = line.parked(5)
    line.releases(0).run()
    assert line.service.answered == [waiters[0].token]
    assert isinstance(waiters[0].polls(), Grant)
    for held in line.holders[1:]:
        held.releases()
    assert line.service.answered == [waiters[0].token]
    line.wakes_next()
    assert line.service.answered == [waiter.token for waiter in waiters[:3]]


def test_no_one_is_woken_if_no_permit_is_free(line: Line) -> None:
    line.held().parked()
    assert (line.wakes_next(), line.service.answers) == (0, [])


def test_the_first_waiter_that_lives_is_woken_if_the_holder_has_expired(world: World, line: Line) -> None:
    """Any client may wake it: the lease has ended, and a crashed holder wakes no one."""
    line.held().parked()
    world.advance(LEASE_MS // 2)
    (living,) = line.parked()
    world.advance(LEASE_MS // 2 + MARGIN_MS)
    line.wakes_next()
    assert line.service.answered == [living.token]


def test_a_waiter_that_polls_has_its_turn_and_no_one_behind_it_is_woken(line: Line) -> None:
    polling = line.held().process()
    claim = polling.claim(line.lock)
    position = polling.queued(claim)
    line.waiter().parks().run()
    line.releases().run()
    assert line.service.answers == []
    assert isinstance(polling.poll(claim, position), Grant)


def test_another_session_whose_name_begins_alike_is_not_mistaken_for_it(line: Line) -> None:
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
    line.wakes_next()
    assert line.service.answered == [waiter.token]


def test_an_uncontended_lock_costs_two_writes(line: Line) -> None:
    process = line.process()
    claim, _ = line.claim(process, "alone")

    def acquire_and_release(me: Contender) -> Steps[Released]:
        found = yield from me.take_ticket(None)
        assert isinstance(found, Grant)
        return (yield from me.release(found))

    operations = process.operations(lambda: Callback(process, claim, acquire_and_release, line.service).run())
    assert operations == ["UpdateItem", "UpdateItem"]


def test_a_release_with_a_waiter_costs_a_query_for_the_queue_and_one_for_the_session(line: Line) -> None:
    line.held().parked()
    line.waiter()
    holder = line.holders[0].process
    assert holder.operations(lambda: line.releases().run()) == ["UpdateItem", "Query", "Query"]


def test_a_wake_up_is_given_up_soon(line: Line) -> None:
    """Work that has ended does not wait for a hint."""
    line.held().parked()
    releasing = line.releases()
    releasing.step()
    while not releasing.done:
        request = releasing.next_request
        assert isinstance(request, Read | TaskAnswer)
        assert request.patience_ms is not None
        assert request.patience_ms <= 2_000
        releasing.step()


# Hand-over by callback to several at once: readers behind a writer, and permits of a limit.


def come_in_as_woken(waiters: list[Waiter]) -> list[Waiter]:
    """Each woken waiter polls, and wakes the next; returns the new holders, in order."""
    polled: list[Waiter] = []
    inside: list[Waiter] = []
    while woken := [waiter for waiter in waiters if waiter.has_word() and waiter not in polled]:
        polled.append(woken[0])
        # A wake-up is a hint: beyond a waiter that was woken and has not polled yet, others are woken too.
        if isinstance(woken[0].comes_in().to_the_end(), Grant):
            inside.append(woken[0])
    return inside


@pytest.mark.parametrize("readers", [1, 2, 5, 12])
def test_a_writers_release_lets_all_readers_in_one_waking_the_next(line: Line, readers: int) -> None:
    waiters = line.held().parked(readers, shared=True)
    line.releases().run()
    assert line.service.answered
    assert come_in_as_woken(waiters) == waiters


def test_the_chain_ends_at_the_writer_behind_the_readers(line: Line) -> None:
    readers = line.held().parked(3, shared=True)
    (writer,), (late,) = line.parked(), line.parked(shared=True)
    line.releases().run()
    assert come_in_as_woken(readers) == readers
    assert not writer.has_word()
    assert not late.has_word()


def test_the_last_reader_wakes_the_writer_and_no_one_behind_it(line: Line) -> None:
    line.held(shared=True).held(shared=True)
    (writer,), (late,) = line.parked(), line.parked(shared=True)
    line.releases(0).run()
    assert line.service.answered == []
    line.releases(1).run()
    assert line.service.answered == [writer.token]
    assert isinstance(writer.polls(), Grant)
    assert isinstance(late.polls(), Position)


def test_a_writer_that_gives_up_lets_the_readers_behind_it_join_the_holders(line: Line) -> None:
    line.held(shared=True)
    (writer,), readers = line.parked(), line.parked(3, shared=True)
    writer.gives_up().run()
    assert come_in_as_woken(readers) == readers


def test_each_new_holder_wakes_the_next_until_the_limit_is_reached(world: World) -> None:
    line = Line(world, permits=3).held().held().held()
    waiters = line.parked(5)
    for holder in range(3):
        line.releases(holder).run()
    assert come_in_as_woken(waiters) == waiters[:3]


# Hand-over by callback with real clients, whose requests to Step Functions are answered over the wire.


FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"


def asking(line: Line, **more: Any) -> dict[str, Any]:
    return {"entity": line.lock.entity, "task": {"functionArn": FUNCTION}, **more}


def test_a_release_in_python_wakes_a_waiting_execution(line: Line) -> None:
    (waiter,) = line.held().parked()
    held = line.holders[0]
    line.service.table(held.process).release(held.claim, held.grant)
    assert line.service.answered == [waiter.token]
    assert isinstance(waiter.polls(), Grant)


def test_a_withdrawal_in_python_wakes_the_next_if_a_permit_is_free(line: Line) -> None:
    first, (second,) = line.held().waiter(), line.parked()
    line.freed_by_one_that_wakes_no_one()
    assert line.service.table(first.process).withdraw(first.claim, first.place.ticket) is None
    assert line.service.answered == [second.token]
    assert isinstance(second.polls(), Grant)


def test_a_withdrawal_that_finds_its_own_grant_wakes_no_one(line: Line) -> None:
    first = line.held().waiter()
    line.parked()
    line.freed_by_one_that_wakes_no_one()
    taken = first.polls()
    assert isinstance(taken, Grant)
    won = line.service.table(first.process).withdraw(first.claim, first.place.ticket)
    assert won is not None
    assert won.fencing_token == taken.fencing_token
    assert line.service.answers == []


def test_a_record_wait_that_ends_in_python_wakes_the_next_if_a_permit_is_free(line: Line) -> None:
    first, (second,) = line.held().waiter(), line.parked()
    table = line.service.table(first.process)
    # It reads the time, which otherwise comes before the first poll.
    table.now()
    first.process.faults = [lambda _: line.freed_by_one_that_wakes_no_one()]
    with pytest.raises(RecordWaitExceeded):
        table.check_turn(first.claim, first.place, wait_until_ms=0)
    assert line.service.answered == [second.token]
    assert isinstance(second.polls(), Grant)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ((0, 0), (0, 1)),
        # The state was entered again: after a poll, or after the continuation in which it parked has failed.
        ((0, 10), (1, 0)),
        ((0, 99_999_999), (1, 0)),
    ],
)
def test_a_try_to_park_outranks_every_earlier_one(line: Line, earlier: tuple[int, int], later: tuple[int, int]) -> None:
    workflow = line.service.workflow(line.held().process())
    turn = turn_of(workflow, execution_arn(), asking(line))
    for token, (second, retry) in [("newest", later), ("older", earlier)]:
        entered = f"2027-01-15T08:00:0{second}.123Z"
        workflow.wait_for_wake_up(step_event("WaitForWakeUp", turn, token, entered=entered, retry=retry))
    line.releases().run()
    assert line.service.answered == ["newest"]
