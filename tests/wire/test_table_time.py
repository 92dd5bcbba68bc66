"""Table time: the bounds contain the true time, even if this machine's clocks are wrong."""

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.opcodes import AtOpcode

from ticketlock.wire._table_time import Moment, Reading, TableTime

pytestmark = pytest.mark.shows("exclusion", "wrong clocks")

LOCAL_MS = 5_000_000
WALL_MS = 1_800_000_000_000
DATE_MS = 1_700_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def reading(after_ms: int = 0, *, wall_is_off_ms: int = 0) -> Reading:
    return Reading(LOCAL_MS + after_ms, WALL_MS + after_ms + wall_is_off_ms)


def told(date_ms: int = DATE_MS, *, sent_ms: int = 0, received_ms: int = 0) -> TableTime:
    table_time = TableTime()
    table_time.observe(date_ms, reading(sent_ms), reading(received_ms))
    return table_time


def at(table_time: TableTime, when: Reading | None = None) -> Moment:
    moment = table_time.at(when or reading())
    assert moment is not None
    return moment


def interrupt() -> None:
    raise KeyboardInterrupt


def width_ms(moment: Moment) -> int:
    return moment.latest_ms - moment.earliest_ms


def test_a_cold_process_knows_nothing() -> None:
    assert TableTime().at(reading()) is None


def test_one_date_bounds_table_time_to_two_seconds_even_if_the_wall_clock_is_wrong() -> None:
    moment = at(told())
    assert moment.earliest_ms == DATE_MS
    assert DATE_MS + 2_000 <= moment.latest_ms <= DATE_MS + 2_001


def test_a_slow_reply_widens_the_bounds_by_its_delay() -> None:
    moment = at(told(sent_ms=0, received_ms=700), reading(700))
    assert moment.earliest_ms == DATE_MS
    assert DATE_MS + 2_700 <= moment.latest_ms <= DATE_MS + 2_701


def test_a_reply_that_took_longer_than_five_seconds_is_not_used() -> None:
    assert told(received_ms=5_000).at(reading(5_000)) is not None
    assert told(received_ms=5_001).at(reading(5_001)) is None


def test_clocks_that_have_diverged_are_noticed_even_if_reading_them_is_interrupted() -> None:
    number, passed = 0, 0
    while passed >= number:
        number += 1
        table_time, parted = told(), reading(MINUTE_MS, wall_is_off_ms=HOUR_MS)
        with suppress(KeyboardInterrupt), AtOpcode(number, interrupt) as at_opcode:
            table_time.at(parted)
        passed = at_opcode.passed
        assert table_time.at(parted) is None, f"opcode {number}"
    assert number > 30


def test_a_further_date_tightens_the_bounds() -> None:
    table_time = told()
    table_time.observe(DATE_MS + 1_000, reading(10), reading(10))
    moment = at(table_time, reading(10))
    assert moment.earliest_ms == DATE_MS + 1_000
    assert DATE_MS + 2_010 <= moment.latest_ms <= DATE_MS + 2_012


def test_a_date_that_adds_no_information_changes_nothing() -> None:
    table_time = told()
    before = at(table_time, reading(10))
    table_time.observe(DATE_MS, reading(10 - 900), reading(10 + 900))
    assert width_ms(at(table_time, reading(10))) <= width_ms(before) + 2


def test_a_date_that_contradicts_the_bounds_replaces_them() -> None:
    table_time = told()
    table_time.observe(DATE_MS + HOUR_MS, reading(10), reading(10))
    moment = at(table_time, reading(10))
    assert moment.earliest_ms == DATE_MS + HOUR_MS
    assert width_ms(moment) <= 2_001


def test_bounds_widen_with_age_at_both_ends() -> None:
    table_time = told()
    young, old = at(table_time), at(table_time, reading(MINUTE_MS))
    assert old.earliest_ms == young.earliest_ms + MINUTE_MS - 60
    assert old.latest_ms == young.latest_ms + MINUTE_MS + 60


def test_a_reading_from_before_the_last_date_does_not_narrow_the_bounds() -> None:
    assert width_ms(at(told(), reading(-500))) >= 2_000


@pytest.mark.parametrize(
    ("when", "are_known"),
    [
        (reading(10 * MINUTE_MS), True),
        (reading(10 * MINUTE_MS + 1), False),
        *((reading(10, wall_is_off_ms=off_ms), True) for off_ms in (-1_000, 1_000)),
        *((reading(10, wall_is_off_ms=off_ms), False) for off_ms in (-1_001, 1_001)),
    ],
)
def test_bounds_are_forgotten_when_they_are_too_old_or_the_local_clocks_diverge(when: Reading, are_known: bool) -> None:
    assert (told().at(when) is not None) == are_known


def test_clocks_that_diverge_during_a_request_discard_the_bounds_and_learn_nothing() -> None:
    table_time = told()
    table_time.observe(DATE_MS, reading(0), reading(1_000, wall_is_off_ms=HOUR_MS))
    assert table_time.at(reading(1_000, wall_is_off_ms=HOUR_MS)) is None


def test_the_next_date_after_the_clocks_diverged_gives_bounds_again() -> None:
    table_time = told()
    table_time.at(reading(10, wall_is_off_ms=HOUR_MS))
    now = reading(20, wall_is_off_ms=HOUR_MS)
    table_time.observe(DATE_MS, now, now)
    assert at(table_time, now).earliest_ms == DATE_MS


def test_the_local_moment_of_a_table_time_is_the_first_at_which_it_may_have_come() -> None:
    moment = at(told())
    assert moment.local_of(moment.latest_ms) == moment.local_ms
    assert moment.local_of(moment.latest_ms - 5_000) < moment.local_ms
    # Sooner by what a slow clock may have lost by then.
    assert moment.local_of(moment.latest_ms + HOUR_MS) == moment.local_ms + HOUR_MS - 3_597


@pytest.mark.parametrize(("wall_is_off_ms", "likely"), [(0, 500), (-240_000, 0), (240_000, 2_000)])
def test_the_likely_time_is_the_wall_clocks_as_far_as_the_bounds_allow(wall_is_off_ms: int, likely: int) -> None:
    assert Moment(0, 1_000_000, 1_002_000, wall_ms=1_000_500 + wall_is_off_ms).likely_ms == 1_000_000 + likely


@dataclass(frozen=True)
class Exchange:
    """One request and its reply, by the local clock.

    Attributes:
        pause_ms: the time since the reply before.
        wall_jump_ms: by how much the wall clock is set in that pause.
        there_ms, back_ms: how long the request and the reply travel.
        dated_early_ms: how long before the service's work its Date is taken.
    """

    pause_ms: int
    wall_jump_ms: int
    there_ms: int
    back_ms: int
    dated_early_ms: int


exchanges = st.builds(
    Exchange,
    pause_ms=st.one_of(st.integers(0, 3_000), st.integers(0, 5 * MINUTE_MS), st.integers(0, 24 * HOUR_MS)),
    wall_jump_ms=st.one_of(st.just(0), st.integers(-HOUR_MS, HOUR_MS)),
    there_ms=st.integers(0, 2_000),
    back_ms=st.integers(0, 2_000),
    dated_early_ms=st.integers(0, 999),
)


@settings(deadline=None)
@given(
    offset_ms=st.integers(-HOUR_MS, HOUR_MS).map(lambda off_ms: DATE_MS - LOCAL_MS + off_ms),
    drift_ppm=st.integers(-100, 100),
    history=st.lists(exchanges, min_size=1, max_size=20),
    looks_later_ms=st.lists(st.integers(0, 24 * HOUR_MS), max_size=3),
)
def test_the_true_table_time_always_lies_within_the_bounds(
    offset_ms: int, drift_ppm: int, history: list[Exchange], looks_later_ms: list[int]
) -> None:
    def table_ms(local_ms: int) -> float:
        return local_ms + offset_ms + (local_ms - LOCAL_MS) * drift_ppm / 1_000_000

    def check(when: Reading, *, forgotten: bool = False) -> None:
        moment = table_time.at(when)
        assert forgotten or moment is not None
        assert moment is None or moment.earliest_ms <= table_ms(when.local_ms) <= moment.latest_ms

    table_time = TableTime()
    local_ms, wall_ahead_ms = LOCAL_MS, WALL_MS - LOCAL_MS
    for exchange in history:
        local_ms += exchange.pause_ms
        wall_ahead_ms += exchange.wall_jump_ms
        sent = Reading(local_ms, local_ms + wall_ahead_ms)
        worked_ms = table_ms(local_ms + exchange.there_ms)
        local_ms += exchange.there_ms + exchange.back_ms
        received = Reading(local_ms, local_ms + wall_ahead_ms)
        table_time.observe(int(worked_ms - exchange.dated_early_ms) // 1_000 * 1_000, sent, received)
        check(received)
    for later_ms in looks_later_ms:
        later = Reading(local_ms + later_ms, local_ms + later_ms + wall_ahead_ms)
        check(later, forgotten=later_ms > 10 * MINUTE_MS)


@settings(deadline=None)
@given(history=st.lists(exchanges, min_size=2, max_size=20))
def test_a_lease_that_one_process_wrote_is_not_taken_as_expired_early_by_another(history: list[Exchange]) -> None:
    """Leases are written by the upper bound and judged by the lower: with any bounds of the two processes a lease lasts
    its length.
    """
    writer, judge = TableTime(), TableTime()
    local_ms = LOCAL_MS
    for index, exchange in enumerate(history):
        local_ms += exchange.pause_ms
        sent_ms, date_ms = local_ms, (DATE_MS + local_ms + exchange.there_ms - LOCAL_MS) // 1_000 * 1_000
        local_ms += exchange.there_ms + exchange.back_ms
        learner = (writer, judge)[index % 2]
        learner.observe(date_ms, Reading(sent_ms, sent_ms + WALL_MS), Reading(local_ms, local_ms + WALL_MS))
    now = Reading(local_ms, local_ms + WALL_MS)
    lease_ms = 60_000
    written, judged = writer.at(now), judge.at(Reading(local_ms + lease_ms - 1, local_ms + lease_ms - 1 + WALL_MS))
    # A process that has forgotten the bounds asks the table first.
    assert written is None or judged is None or judged.earliest_ms <= written.latest_ms + lease_ms
