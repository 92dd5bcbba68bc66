"""Parking: a client that frees a permit polls for the next in line, and a waiter that parks polls for a free permit.

So one of the two sees the other, in every order of their requests.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from kit.engines import IN_MEMORY
from kit.orders import every_order
from kit.step_functions import Callback
from kit.world import LEASE_MS, Process, Stepper, World, exclusion_held
from locks.waiting_line import MARGIN_MS, Line, Waiter

from ticketlock import Grant, Place, Position, RecordWaitExceeded
from ticketlock.locks._hand_over import await_wake_up
from ticketlock.locks._items import row_key
from ticketlock.locks._protocol import COMES_AGAIN_MS, Contender
from ticketlock.wire._requests import Steps

pytestmark = pytest.mark.shows("liveness")

Steppers = Sequence[Stepper[Any]]


@IN_MEMORY
def test_no_wake_up_is_lost_in_every_order_of_an_arrival_and_a_release(world: World, processes: list[Process]) -> None:
    """From the first request on: the release may come before the ticket, between ticket and row, or later."""

    def start() -> tuple[tuple[Line, Callback[Grant | Place]], Steppers]:
        line = Line(world, processes).held()
        process = line.process()
        claim, session = line.claim(process, "waiter")

        def arrive(me: Contender) -> Steps[Grant | Place]:
            found = yield from me.take_ticket(None)
            if isinstance(found, Grant):
                return found
            yield from await_wake_up(me, found.place, session, "token", 0, lambda _: True)
            return found.place

        arriving = Callback(process, claim, arrive, line.service)
        return (line, arriving), [arriving, line.releases()]

    granted = woken = 0
    for order, (line, arriving) in every_order(world, start):
        if isinstance(arriving.result, Grant):
            granted += 1
        else:
            woken += 1
            assert line.service.answered == ["token"], order
        assert exclusion_held(processes), order
    assert granted > 0
    assert woken > 0


@IN_MEMORY
def test_no_wake_up_is_lost_in_every_order_of_two_parkings_and_a_release(
    world: World, processes: list[Process]
) -> None:
    def start() -> tuple[Line, Steppers]:
        line = Line(world, processes).held()
        first, second = line.waiter(), line.waiter()
        return line, [first.parks(), second.parks(), line.releases()]

    for order, line in every_order(world, start):
        first, _ = line.waiters
        assert first.has_word(), order
        assert isinstance(first.polls(), Grant), order


@IN_MEMORY
def test_no_wake_up_is_lost_in_every_order_of_the_first_giving_up_the_second_parking_and_a_release(
    world: World, processes: list[Process]
) -> None:
    def start() -> tuple[tuple[Line, Callback[Grant | Position]], Steppers]:
        line = Line(world, processes).held()
        first, second = line.waiter(), line.waiter()
        leaving = first.gives_up()
        return (line, leaving), [leaving, second.parks(), line.releases()]

    took = left = 0
    for order, (line, leaving) in every_order(world, start):
        assert exclusion_held(processes), order
        if isinstance(leaving.result, Grant):
            took += 1
            assert isinstance(line.waiters[1].polls(), Position), order
            continue
        assert isinstance(leaving.error, RecordWaitExceeded), order
        left += 1
        assert line.waiters[1].has_word(), order
        assert isinstance(line.waiters[1].polls(), Grant), order
    assert took > 0
    assert left > 0


@IN_MEMORY
def test_in_every_order_of_two_releases_both_waiters_are_woken(world: World, processes: list[Process]) -> None:
    def start() -> tuple[Line, Steppers]:
        line = Line(world, processes, permits=2).held().held()
        line.parked(2)
        return line, [line.releases(0), line.releases(1)]

    for order, line in every_order(world, start):
        assert all(waiter.has_word() for waiter in line.waiters), order
        assert all(isinstance(waiter.polls(), Grant) for waiter in line.waiters), order


def test_a_waiter_whose_turn_has_not_come_stays_parked_even_beyond_what_the_poll_reads(line: Line) -> None:
    line.held().parked(5)
    assert line.service.answers == []


def test_a_waiter_whose_turn_has_come_ends_its_task_at_once_as_an_owner_that_holds_already(line: Line) -> None:
    waiter = line.held().waiter()
    line.releases().run()
    assert not waiter.stays_parked()
    assert waiter.has_word()
    assert isinstance(waiter.polls(), Grant)
    assert not waiter.stays_parked()


def test_the_first_behind_an_expired_holder_ends_its_task_at_once(world: World, line: Line) -> None:
    first, second = line.held().waiter(), line.waiter()
    world.advance(LEASE_MS // 2)
    for waiter in (first, second):
        waiter.polls()
    world.advance(LEASE_MS // 2 + MARGIN_MS)
    assert not first.stays_parked()
    assert second.stays_parked()


def test_a_waiter_that_lost_its_row_ends_its_task_at_once(line: Line) -> None:
    waiter = line.held().waiter()
    waiter.process.client.delete_item(
        TableName=line.world.engine.table_name, Key=row_key(line.lock, waiter.place.ticket)
    )
    assert not waiter.stays_parked()


def test_a_waiter_that_must_not_stay_parked_for_so_long_ends_its_task_at_once(line: Line) -> None:
    waiter = line.held().waiter()
    assert waiter.parks(may_stay=False).run().result is None
    assert waiter.has_word()


def test_parking_extends_the_row(world: World, line: Line) -> None:
    waiters = [line.held().waiter(), line.waiter(), line.waiter(), line.waiter()]
    for _ in range(3):
        world.advance(LEASE_MS // 2)
        for waiter in waiters:
            waiter.parks().run()
    rows = line.process().table.inspect(line.lock).rows
    assert [row.ticket for row in rows] == [waiter.place.ticket for waiter in waiters]
    assert min(row.lease_until_ms for row in rows) > world.now_ms + LEASE_MS // 2


ROW_LEASE_MS = 10 * LEASE_MS


@pytest.fixture
def patient(world: World) -> Line:
    """A held lock, and waiters whose rows have a longer lease."""
    return Line(world, row_lease_ms=ROW_LEASE_MS).held()


def left_ms(line: Line) -> list[int]:
    """What is left of the leases of the rows."""
    return [row.lease_until_ms - line.world.now_ms for row in line.process().table.inspect(line.lock).rows]


def test_a_parked_waiters_row_may_have_a_longer_lease_than_the_lock(world: World, patient: Line) -> None:
    (waiter,) = patient.parked()
    assert left_ms(patient)[0] == pytest.approx(ROW_LEASE_MS, abs=MARGIN_MS)
    for _ in range(ROW_LEASE_MS // LEASE_MS):
        world.advance(LEASE_MS // 2)
        patient.holders[0].renews()
    assert left_ms(patient)[0] == pytest.approx(ROW_LEASE_MS // 2, abs=MARGIN_MS)
    assert waiter.stays_parked()
    assert left_ms(patient)[0] == pytest.approx(ROW_LEASE_MS, abs=MARGIN_MS)


def test_before_it_parks_and_when_it_holds_the_lock_a_waiter_has_the_locks_lease(world: World, patient: Line) -> None:
    waiter = patient.waiter()
    assert left_ms(patient)[0] == pytest.approx(LEASE_MS, abs=MARGIN_MS)
    assert waiter.stays_parked()
    patient.releases().run()
    grant = waiter.polls()
    assert isinstance(grant, Grant)
    assert grant.lease_until_ms - world.now_ms == pytest.approx(LEASE_MS, abs=MARGIN_MS)


def test_a_waiter_whose_task_has_ended_has_a_minute_to_come_again(world: World, patient: Line) -> None:
    gone, second = patient.parked(2)
    patient.service.gone.add(gone.token)
    patient.releases().run()
    assert left_ms(patient)[0] == pytest.approx(COMES_AGAIN_MS, abs=MARGIN_MS)
    assert second.has_word()
    assert isinstance(second.polls(), Position)
    world.advance(COMES_AGAIN_MS + MARGIN_MS)
    assert isinstance(second.polls(), Grant)


def test_a_waiter_that_was_between_two_tasks_has_its_whole_row_again_and_its_turn(patient: Line) -> None:
    first, second = patient.parked(2)
    patient.service.gone.add(first.token)
    patient.releases().run()
    patient.service.gone.discard(first.token)
    assert not first.stays_parked()
    assert isinstance(second.polls(), Position)
    assert isinstance(first.polls(), Grant)


@pytest.fixture
def shortened(world: World, patient: Line) -> Waiter:
    """It remembers its row as it was before its task ended and it was woken in vain; its polls do not read the row."""
    waiters = patient.parked(5)
    world.advance(LEASE_MS // 2)
    patient.holders[0].renews()
    last = waiters[-1]
    assert isinstance(last.polls(), Position)
    patient.service.gone.update(waiter.token for waiter in waiters)
    patient.releases().run()
    patient.service.gone.clear()
    assert left_ms(patient)[-1] == pytest.approx(COMES_AGAIN_MS, abs=MARGIN_MS)
    return last


def test_a_waiter_whose_row_was_shortened_has_its_whole_row_again_when_it_parks_again(
    patient: Line, shortened: Waiter
) -> None:
    assert shortened.stays_parked()
    assert left_ms(patient)[-1] == pytest.approx(ROW_LEASE_MS, abs=MARGIN_MS)


def test_a_waiter_whose_row_was_shortened_and_that_cannot_park_again_keeps_it_by_its_polls(
    world: World, patient: Line, shortened: Waiter
) -> None:
    world.advance(COMES_AGAIN_MS // 2)
    assert isinstance(shortened.polls(), Position)
    assert left_ms(patient)[-1] == pytest.approx(LEASE_MS, abs=MARGIN_MS)


def ends_in(waiter: Waiter, ms: int) -> None:
    """Let its row end then."""
    waiter.process.client.update_item(
        TableName=waiter.process.world.engine.table_name,
        Key=row_key(waiter.claim.lock, waiter.place.ticket),
        UpdateExpression="SET leaseUntilMs = :end",
        ExpressionAttributeValues={":end": {"N": str(waiter.process.world.now_ms + ms)}},
    )


@pytest.mark.parametrize(("ms", "is_written"), [(COMES_AGAIN_MS, False), (COMES_AGAIN_MS + 10_000, True)])
def test_a_parked_waiter_that_reads_its_row_extends_it_only_if_it_could_be_shortened(
    world: World, ms: int, is_written: bool
) -> None:
    line = Line(world, row_lease_ms=COMES_AGAIN_MS + 12_000).held()
    waiter = line.waiter()
    ends_in(waiter, ms)
    before = left_ms(line)
    assert waiter.stays_parked()
    assert (left_ms(line) != before) is is_written


def test_a_waiter_that_reads_its_row_while_it_is_being_shortened_has_its_whole_row_again(patient: Line) -> None:
    """The poll sees half of the transaction that shortens: the session, and not yet the row."""
    (waiter,) = patient.parked()
    parks = waiter.parks("the next token", 1)
    parks.step()
    parks.step()
    ends_in(waiter, COMES_AGAIN_MS)
    assert parks.run().result is not None
    assert left_ms(patient)[0] == pytest.approx(ROW_LEASE_MS, abs=MARGIN_MS)


@pytest.mark.parametrize(("ends_in_ms", "is_shortened"), [(COMES_AGAIN_MS, False), (COMES_AGAIN_MS + MARGIN_MS, True)])
def test_a_row_that_ends_within_a_minute_stays_as_it_is(world: World, ends_in_ms: int, is_shortened: bool) -> None:
    line = Line(world, row_lease_ms=COMES_AGAIN_MS + LEASE_MS // 2).held()
    (gone,) = line.parked()
    world.advance(left_ms(line)[0] - ends_in_ms)
    before = left_ms(line)
    line.service.gone.add(gone.token)
    line.releases().run()
    assert (left_ms(line) != before) is is_shortened


@IN_MEMORY
def test_in_every_order_of_a_release_and_the_next_park_a_waiter_keeps_its_place(
    world: World, processes: list[Process]
) -> None:
    """Its last task has timed out: the release finds an old token, or the new one."""

    def start() -> tuple[Line, Steppers]:
        line = Line(world, processes, row_lease_ms=ROW_LEASE_MS).held()
        (waiter,) = line.parked()
        line.service.gone.add(waiter.token)
        return line, [waiter.parks("the next token", 1), line.releases()]

    for order, line in every_order(world, start):
        (waiter,) = line.waiters
        # Unless it polls at once.
        assert line.service.answered or left_ms(line)[0] > ROW_LEASE_MS // 2, order
        assert isinstance(waiter.polls(), Grant), order


def test_a_waiter_that_finds_the_lock_idle_looks_whether_the_first_in_line_has_gone(
    world: World, patient: Line
) -> None:
    """Holder and first in line crashed, and no event tells of them."""
    gone, second = patient.parked(2)
    patient.service.gone.add(gone.token)
    world.advance(LEASE_MS + MARGIN_MS)
    assert second.stays_parked()
    assert left_ms(patient)[0] == pytest.approx(COMES_AGAIN_MS, abs=MARGIN_MS)
    world.advance(COMES_AGAIN_MS + MARGIN_MS)
    assert not second.stays_parked()
    assert isinstance(second.polls(), Grant)


def test_only_the_newest_token_is_woken(line: Line) -> None:
    waiter = line.held().waiter()
    waiter.parks("first park", 0).run()
    waiter.parks("second park", 1).run()
    line.releases().run()
    assert line.service.answered == ["second park"]


def test_a_late_copy_of_an_earlier_parking_does_not_take_the_place_of_a_newer_token(line: Line) -> None:
    waiter = line.held().waiter()
    late = waiter.parks("first park", 0)
    waiter.parks("second park", 1).run()
    assert late.run().error is None
    line.releases().run()
    assert line.service.answered == ["second park"]


@IN_MEMORY
def test_in_every_order_of_a_parking_its_copy_and_the_next_one_the_newest_token_stays(
    world: World, processes: list[Process]
) -> None:
    def start() -> tuple[Line, Steppers]:
        line = Line(world, processes).held()
        waiter = line.waiter()
        return line, [waiter.parks("first park", 0), waiter.parks("first park", 0), waiter.parks("second park", 1)]

    for order, line in every_order(world, start):
        line.releases().run()
        assert line.service.answered == ["second park"], order


def test_a_parked_waiters_session_may_be_deleted_a_day_after_the_lease(line: Line) -> None:
    (waiter,) = line.held().parked()
    found = waiter.process.client.get_item(
        TableName=line.world.engine.table_name, Key=waiter.session.key(), ConsistentRead=True
    )["Item"]
    expires_in_s = int(found["expiresAt"]["N"]) - line.world.now_ms // 1_000
    assert expires_in_s == pytest.approx(24 * 3_600 + LEASE_MS // 1_000, abs=5)
