"""When a waiter of a workflow polls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketlock import Place, Position
from ticketlock.locks._items import Holder
from ticketlock.wire._table_time import Moment
from ticketlock.workflow._pace import PollPause, next_poll, next_poll_ms, next_sleep

pytestmark = pytest.mark.shows("liveness")

LEASE_MS, SHORTEST_MS, LONGEST_MS = 60_000, 1_000, 5_000
NOW_MS = 1_800_000_000_000
HOLDER = Holder("owner", 1, NOW_MS, LEASE_MS, NOW_MS, None)


def at(
    ahead: int = 0,
    *,
    held: bool = True,
    lease_ms: int = LEASE_MS,
    mean_hold_ms: int | None = None,
    next_free_in_ms: int | None = None,
    lease_over_in_ms: int | None = None,
    permits: int | None = 1,
) -> Position:
    """A position in the queue."""
    next_free_ms, lease_over_ms = (
        None if in_ms is None else NOW_MS + in_ms for in_ms in (next_free_in_ms, lease_over_in_ms)
    )
    return Position(
        place=Place(1, NOW_MS + lease_ms),
        ahead=ahead,
        turns=ahead,
        next_free_ms=next_free_ms,
        mean_hold_ms=mean_hold_ms,
        holders=(HOLDER,) if held else (),
        now=Moment(0, NOW_MS, NOW_MS, NOW_MS),
        lease_over_ms=lease_over_ms,
        permits=permits,
    )


def sleep_ms(ahead: int, leaves_in_ms: int | None, mean_hold_ms: int | None, jitter: float = 0.5) -> int:
    """How long a waiter sleeps so far behind, when the next holder is expected to leave then."""
    position = at(ahead, next_free_in_ms=leaves_in_ms, mean_hold_ms=mean_hold_ms)
    return next_poll_ms(position, lease_ms=LEASE_MS, shortest_ms=SHORTEST_MS, longest_ms=LONGEST_MS, jitter=jitter)


def test_the_front_waiter_polls_when_the_holder_is_expected_to_leave() -> None:
    assert sleep_ms(0, 3_000, 10_000) == 3_000


def test_the_front_waiter_polls_at_once_if_there_is_no_holder() -> None:
    assert sleep_ms(0, None, 10_000) == SHORTEST_MS


def test_the_front_waiter_polls_at_growing_intervals_if_the_holder_is_late() -> None:
    assert [sleep_ms(0, -late_ms, 10_000) for late_ms in (0, 4_000, 8_000, 60_000)] == [1_000, 2_000, 4_000, 5_000]


def test_a_waiter_further_back_sleeps_for_the_turns_before_its_own() -> None:
    assert sleep_ms(4, 0, 3_000) == 12_000


def test_no_waiter_oversleeps_by_more_than_a_front_waiters_longest_sleep_a_turn() -> None:
    assert [sleep_ms(ahead, 0, 60_000) for ahead in (1, 2, 3)] == [LONGEST_MS, 2 * LONGEST_MS, 3 * LONGEST_MS]


@given(
    ahead=st.integers(0, 10_000),
    leaves_in_ms=st.none() | st.integers(-(10**9), 10**9),
    mean_hold_ms=st.none() | st.integers(0, 10**9),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_no_waiter_sleeps_past_the_half_life_of_its_row_or_shorter_than_the_bound(
    ahead: int, leaves_in_ms: int | None, mean_hold_ms: int | None, jitter: float
) -> None:
    assert SHORTEST_MS <= sleep_ms(ahead, leaves_in_ms, mean_hold_ms, jitter) <= LEASE_MS // 2


POLL_MS = 5_000
HALF_LIFE_MS = LEASE_MS // 2
# What is left of a lease whose holder, which renews at half of it, is late by a tenth of it.
LATE_RENEWAL_MS = HALF_LIFE_MS - LEASE_MS // 10


def parking(
    lease_over_in_ms: int | None = LEASE_MS, *, ahead: int = 0, rest_ms: int | None = None, slack_ms: int = 0
) -> PollPause:
    """How a waiter that can be woken waits, behind a holder whose lease ends then."""
    position = at(ahead, held=lease_over_in_ms is not None, lease_over_in_ms=lease_over_in_ms)
    return next_sleep(position, lease_ms=LEASE_MS, poll_ms=POLL_MS, rest_ms=rest_ms, slack_ms=slack_ms)


def polling(waited_ms: int = 0, *, lease_ms: int = LEASE_MS, rest_ms: int | None = None) -> int:
    """How long the front waiter sleeps, behind a holder that is long overdue."""
    position = at(lease_ms=lease_ms, next_free_in_ms=-(10**9))
    sleep = next_poll(position, lease_ms=lease_ms, poll_ms=POLL_MS, waited_ms=waited_ms, rest_ms=rest_ms, jitter=0.5)
    assert sleep.status == "waiting"
    return sleep.ms


def test_a_waiter_that_is_woken_parks_while_the_holder_renews() -> None:
    """A running holder renews at half its lease."""
    assert [parking(left_ms).status for left_ms in (LEASE_MS, HALF_LIFE_MS)] == ["parked", "parked"]


def test_a_waiter_that_is_woken_parks_briefly_when_the_holder_is_late_with_its_renewal() -> None:
    late = [parking(left_ms).status for left_ms in (LATE_RENEWAL_MS - 1, 0, -10_000)]
    assert late == ["parkedBriefly"] * 3


def test_a_renewal_that_is_a_little_late_is_no_reason_to_poll() -> None:
    assert parking(LATE_RENEWAL_MS).status == "parked"


def test_only_the_front_waiter_watches_the_holder() -> None:
    assert [parking(0, ahead=ahead).status for ahead in (0, 1, 7)] == ["parkedBriefly", "parked", "parked"]


ROW_MS = 10 * LEASE_MS
HALF_ROW_MS = ROW_MS // 2


def far_behind(
    ahead: int,
    mean_hold_ms: int | None = HALF_ROW_MS,
    *,
    held: bool = True,
    permits: int | None = 1,
    lease_over_in_ms: int = LEASE_MS,
    row_ms: int = ROW_MS,
    rest_ms: int | None = None,
    slack_ms: int = 0,
) -> str:
    """How a waiter parks whose row may have a lease of its own."""
    over_in_ms = lease_over_in_ms if held else None
    seen = at(ahead, held=held, mean_hold_ms=mean_hold_ms, lease_over_in_ms=over_in_ms, permits=permits)
    sleep = next_sleep(seen, lease_ms=LEASE_MS, poll_ms=POLL_MS, rest_ms=rest_ms, row_ms=row_ms, slack_ms=slack_ms)
    return sleep.status


def test_only_who_will_not_be_next_in_line_for_half_of_a_rows_lease_sleeps_for_so_long() -> None:
    assert [far_behind(ahead) for ahead in (0, 1, 2, 7)] == ["parked", "parked", "parkedBehind", "parkedBehind"]
    assert [far_behind(11, HALF_ROW_MS // 10 - less) for less in (0, 1)] == ["parkedBehind", "parked"]
    assert far_behind(11, HALF_ROW_MS // 10 - 100, slack_ms=1_000) == "parkedBehind"


def test_before_the_first_release_a_turn_is_expected_to_last_a_lease() -> None:
    assert [far_behind(1 + turns, None) for turns in (HALF_ROW_MS // LEASE_MS, 1)] == ["parkedBehind", "parked"]


def test_behind_one_that_may_have_gone_a_waiter_sleeps_as_if_it_were_next() -> None:
    assert far_behind(7, held=False) == far_behind(7, permits=2) == far_behind(7, permits=None) == "parked"
    assert [far_behind(7, lease_over_in_ms=left_ms) for left_ms in (1, 0)] == ["parkedBehind", "parked"]


def test_while_the_lock_is_closed_a_waiter_far_behind_sleeps_for_long() -> None:
    assert far_behind(7, held=False, permits=0) == "parkedBehind"


def test_a_record_wait_of_one_far_behind_ends_in_time() -> None:
    rests = (HALF_ROW_MS, HALF_ROW_MS - 1, HALF_LIFE_MS, HALF_LIFE_MS - 1, POLL_MS - 1)
    expected = ["parkedBehind", "parked", "parked", "parkedBriefly", "waiting"]
    assert [far_behind(7, rest_ms=rest_ms) for rest_ms in rests] == expected


@pytest.mark.parametrize("row_ms", [0, LEASE_MS])
def test_without_a_lease_of_their_own_rows_are_renewed_with_the_locks_lease(row_ms: int) -> None:
    assert far_behind(7, row_ms=row_ms) == "parked"


def test_a_waiter_that_is_woken_parks_if_there_is_no_holder() -> None:
    assert parking(None).status == "parked"


def test_a_waiter_that_is_woken_parks_briefly_when_its_record_wait_ends_before_half_a_lease() -> None:
    statuses = [parking(rest_ms=rest_ms).status for rest_ms in (POLL_MS, HALF_LIFE_MS - 1, HALF_LIFE_MS)]
    assert statuses == ["parkedBriefly", "parkedBriefly", "parked"]


def test_a_parked_waiter_is_not_woken_because_two_clocks_differ() -> None:
    """Another function, with a clock of its own, repeats the decision of the last poll."""
    for slack_ms, status in ((0, "parkedBriefly"), (3_000, "parked")):
        assert parking(LATE_RENEWAL_MS - 1_000, slack_ms=slack_ms).status == status
        assert parking(rest_ms=HALF_LIFE_MS - 1_000, slack_ms=slack_ms).status == status


def test_a_waiter_that_is_woken_sleeps_for_the_rest_of_a_record_wait_that_is_about_to_end() -> None:
    for rest_ms in (POLL_MS - 1, 1, 0, -3_000):
        assert parking(rest_ms=rest_ms) == PollPause("waiting", max(0, rest_ms))


@given(
    lease_over_in_ms=st.none() | st.integers(-(10**7), 10**7),
    ahead=st.integers(0, 10),
    rest_ms=st.none() | st.integers(-(10**6), 10**9),
)
def test_a_waiter_that_is_woken_never_waits_past_its_record_wait_nor_long_past_an_expired_holders_lease(
    lease_over_in_ms: int | None, ahead: int, rest_ms: int | None
) -> None:
    sleep = parking(lease_over_in_ms, ahead=ahead, rest_ms=rest_ms)
    looks_after_ms = {"waiting": sleep.ms, "parked": HALF_LIFE_MS, "parkedBriefly": POLL_MS}[sleep.status]
    if rest_ms is not None:
        assert looks_after_ms <= max(0, rest_ms)
    if ahead == 0 and lease_over_in_ms is not None:
        assert looks_after_ms <= max(POLL_MS, lease_over_in_ms + LEASE_MS // 10)


def test_a_waiter_that_polls_does_so_every_poll_seconds_at_first() -> None:
    assert polling(0) == POLL_MS


def test_a_waiter_that_polls_does_so_less_often_the_longer_it_has_waited() -> None:
    hour_ms = 3_600_000
    # A thousandth of what it has waited.
    slept = [polling(hours * hour_ms, lease_ms=hour_ms) for hours in (1, 2, 24)]
    assert slept == [POLL_MS, 7_200, 86_400]


def test_a_waiter_that_polls_never_sleeps_longer_than_half_its_lease() -> None:
    assert polling(10**9) == HALF_LIFE_MS


def test_a_waiter_that_polls_never_sleeps_past_its_record_wait() -> None:
    assert [polling(rest_ms=rest_ms) for rest_ms in (60_000, 3_000, 0, -1)] == [POLL_MS, 3_000, 0, 0]
