"""When a waiter looks again."""

from hypothesis import given
from hypothesis import strategies as st

from ticketlock import Place, Position
from ticketlock._time import Moment
from ticketlock._waiting import next_look_ms

LEASE_MS, SHORTEST_MS, LONGEST_MS = 60_000, 1_000, 5_000
NOW_MS = 1_800_000_000_000


def sleep_ms(ahead: int, leaves_in_ms: int | None, mean_hold_ms: int | None, jitter: float = 0.5) -> int:
    position = Position(
        place=Place(1, NOW_MS + LEASE_MS),
        ahead=ahead,
        next_free_ms=None if leaves_in_ms is None else NOW_MS + leaves_in_ms,
        mean_hold_ms=mean_hold_ms,
        holders=("owner",),
        now=Moment(0, NOW_MS, NOW_MS),
    )
    return next_look_ms(position, lease_ms=LEASE_MS, shortest_ms=SHORTEST_MS, longest_ms=LONGEST_MS, jitter=jitter)


def test_the_front_looks_when_the_holder_is_expected_to_leave() -> None:
    assert sleep_ms(0, 3_000, 10_000) == 3_000


def test_the_front_looks_at_once_when_nobody_holds() -> None:
    assert sleep_ms(0, None, 10_000) == SHORTEST_MS


def test_the_front_looks_at_growing_distances_when_the_holder_is_late() -> None:
    assert [sleep_ms(0, -late_ms, 10_000) for late_ms in (0, 4_000, 8_000, 60_000)] == [1_000, 2_000, 4_000, 5_000]


def test_somebody_further_back_sleeps_for_the_turns_before_its_own() -> None:
    assert sleep_ms(4, 0, 3_000) == 12_000


def test_nobody_oversleeps_by_more_than_a_front_waiters_longest_sleep_a_turn() -> None:
    assert [sleep_ms(ahead, 0, 60_000) for ahead in (1, 2, 3)] == [LONGEST_MS, 2 * LONGEST_MS, 3 * LONGEST_MS]


@given(
    ahead=st.integers(0, 10_000),
    leaves_in_ms=st.none() | st.integers(-(10**9), 10**9),
    mean_hold_ms=st.none() | st.integers(0, 10**9),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_nobody_sleeps_past_the_half_life_of_its_row_or_shorter_than_the_bound(
    ahead: int, leaves_in_ms: int | None, mean_hold_ms: int | None, jitter: float
) -> None:
    assert SHORTEST_MS <= sleep_ms(ahead, leaves_in_ms, mean_hold_ms, jitter) <= LEASE_MS // 2
