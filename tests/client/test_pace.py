"""When a waiter polls: in time, not too often, and about as often at any depth of the queue."""

import heapq
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketlock.client._pace import Pace, PaceBounds
from ticketlock.locks._items import Holder
from ticketlock.locks._outcomes import Place, Position
from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.shows("liveness", "killed holder")

LEASE_MS = 60_000
SHORTEST_MS, LONGEST_MS = PaceBounds().shortest_ms, PaceBounds().longest_ms
JITTER_MS = 8
"""How much later than planned the first in line polls at most."""
NOW = Moment(1_000_000, 1_700_000_000_000, 1_700_000_002_000, 1_700_000_001_000)
REQUEST_MS = 4


def seen(
    turns: int,
    *,
    free_in_ms: int | None = 0,
    mean_hold_ms: int | None = 50,
    row_ms: int = LEASE_MS,
    at_ms: int = 0,
    token: int | None = 1,
) -> Position:
    now = Moment(NOW.local_ms + at_ms, NOW.earliest_ms + at_ms, NOW.latest_ms + at_ms, NOW.wall_ms + at_ms)
    return Position(
        place=Place(7, now.latest_ms + row_ms),
        ahead=turns,
        next_free_ms=None if free_in_ms is None else now.likely_ms + free_in_ms,
        mean_hold_ms=mean_hold_ms,
        holders=() if free_in_ms is None else (Holder("build-7", 1, now.latest_ms, LEASE_MS, now.earliest_ms, None),),
        now=now,
        turns=turns,
        fencing_token=token,
    )


def sleep_ms(
    position: Position,
    *,
    jitter: float = 0.5,
    rest_ms: float | None = None,
    pace: Pace | None = None,
    will_be_woken: bool = False,
) -> float:
    pace = pace or Pace(PaceBounds())
    return pace.sleep_ms(position, lease_ms=LEASE_MS, rest_ms=rest_ms, jitter=jitter, will_be_woken=will_be_woken)


TURNS = st.integers(0, 1_000)
TURNS_OF_OTHERS = st.integers(1, 1_000)
HOLDS_MS = st.none() | st.integers(0, 7 * 24 * 3_600_000)
FREE_IN_MS = st.none() | st.integers(-10_000_000, 10_000_000)
JITTERS = st.floats(0, 1, exclude_max=True)


@given(TURNS, FREE_IN_MS, HOLDS_MS, JITTERS, st.integers(-LEASE_MS, LEASE_MS), st.none() | st.floats(0, 100_000))
def test_a_waiter_sleeps_a_little_and_wakes_in_time_to_extend_its_row_to_give_up_and_to_find_that_others_have(
    turns: int, free_in_ms: int | None, hold_ms: int | None, jitter: float, row_ms: int, rest_ms: float | None
) -> None:
    """The first in line polls every 0.4 seconds even if it expects a long hold, any other at least every eight."""
    position = seen(turns, free_in_ms=free_in_ms, mean_hold_ms=hold_ms, row_ms=row_ms)
    ms = sleep_ms(position, jitter=jitter, rest_ms=rest_ms)
    assert ms <= max(SHORTEST_MS, min(row_ms - LEASE_MS // 4, LEASE_MS // 2))
    assert ms <= (20 * LONGEST_MS if turns else LONGEST_MS)
    if rest_ms is not None:
        assert ms <= rest_ms
    else:
        assert ms >= SHORTEST_MS


@given(TURNS_OF_OTHERS, HOLDS_MS, JITTERS)
def test_no_waiter_sleeps_through_many_holds_that_are_suddenly_short(
    turns: int, hold_ms: int | None, jitter: float
) -> None:
    assert sleep_ms(seen(turns, mean_hold_ms=hold_ms, free_in_ms=hold_ms), jitter=jitter) <= 2 * LONGEST_MS * turns


@given(TURNS_OF_OTHERS, st.integers(0, 400), JITTERS)
def test_a_waiter_behind_others_wakes_before_its_turn_would_come_without_hand_overs(
    turns: int, hold_ms: int, jitter: float
) -> None:
    ms = sleep_ms(seen(turns, mean_hold_ms=hold_ms, free_in_ms=hold_ms), jitter=jitter)
    assert ms <= hold_ms + turns * (hold_ms + 2 * SHORTEST_MS)


@given(st.integers(50, 300), JITTERS)
def test_the_first_in_line_polls_when_the_holder_is_expected_to_leave(free_in_ms: int, jitter: float) -> None:
    ms = sleep_ms(seen(0, free_in_ms=free_in_ms, mean_hold_ms=500), jitter=jitter)
    assert free_in_ms < ms <= free_in_ms + JITTER_MS


@pytest.mark.parametrize(("hold_ms", "later_ms"), [(1, 20), (39, 20), (41, 20.5), (50, 25)])
@given(free_in_ms=st.integers(0, 300), jitter=JITTERS)
def test_a_waiter_that_the_release_will_wake_polls_half_a_hold_and_at_least_four_short_sleeps_later(
    hold_ms: int, later_ms: float, free_in_ms: int, jitter: float
) -> None:
    ms = sleep_ms(seen(0, free_in_ms=free_in_ms, mean_hold_ms=hold_ms), jitter=jitter, will_be_woken=True)
    assert free_in_ms + later_ms < ms <= free_in_ms + later_ms + JITTER_MS


@pytest.mark.parametrize("is_closed", [False, True], ids=["overdue", "closed"])
def test_the_first_in_line_polls_an_overdue_or_closed_lock_at_growing_intervals(is_closed: bool) -> None:
    """At the shortest ones it would ask 70 times a second."""
    pace, at_ms, sleeps, seconds = Pace(PaceBounds()), 0.0, [], 10
    while at_ms < 1_000 * seconds:
        free_in_ms = None if is_closed else -int(at_ms)
        sleeps.append(sleep_ms(seen(0, free_in_ms=free_in_ms, at_ms=int(at_ms), mean_hold_ms=50), pace=pace))
        at_ms += sleeps[-1]
    assert sleeps == sorted(sleeps)
    assert sleeps[-1] == LONGEST_MS
    assert len(sleeps) < 7 * seconds
    assert is_closed or sleeps[0] < 10


@given(st.integers(0, int(LONGEST_MS) - 10), JITTERS)
def test_the_first_in_line_polls_when_the_lease_of_a_crashed_holder_has_ended(over_in_ms: int, jitter: float) -> None:
    """Neither before, when it could not take it, nor with its next poll, up to 0.4 s later."""
    overdue = seen(0, free_in_ms=-10_000, mean_hold_ms=50)
    lease_over_ms = overdue.now.earliest_ms - EXPIRY_MARGIN_MS + over_in_ms
    ms = sleep_ms(replace(overdue, lease_over_ms=lease_over_ms), jitter=jitter)
    assert over_in_ms < ms <= over_in_ms + SHORTEST_MS


def test_the_end_of_a_lease_far_in_the_future_or_the_past_is_no_reason_to_poll() -> None:
    overdue = seen(0, free_in_ms=-10_000, mean_hold_ms=50)
    for over_in_ms in (LEASE_MS // 2, -60_000):
        lease_over_ms = overdue.now.earliest_ms - EXPIRY_MARGIN_MS + over_in_ms
        assert sleep_ms(replace(overdue, lease_over_ms=lease_over_ms)) == sleep_ms(overdue)


def test_one_slow_request_does_not_make_a_waiter_sleep_long() -> None:
    def second(request_ms: int) -> float:
        pace = Pace(PaceBounds())
        first = sleep_ms(seen(40), pace=pace)
        return sleep_ms(seen(40, at_ms=int(first) + request_ms), pace=pace)

    assert second(3_000) <= second(REQUEST_MS) * 1.1


def test_what_the_last_wait_measured_counts_half() -> None:
    remembered = Pace(PaceBounds(), hand_over_ms=400)
    assert remembered.hand_over_ms == 200
    assert Pace(PaceBounds()).hand_over_ms == Pace(PaceBounds(), hand_over_ms=1).hand_over_ms == 10


def test_waiters_that_may_hold_together_are_one_turn() -> None:
    def third(grants_a_turn: int) -> float:
        pace, ahead = Pace(PaceBounds()), grants_a_turn * 8
        sleep_ms(seen(20), pace=pace)
        token = 1 + 12 * grants_a_turn
        sleep_ms(replace(seen(8, at_ms=550, token=token), ahead=ahead), pace=pace)
        return sleep_ms(replace(seen(8, at_ms=800, token=token), ahead=ahead), pace=pace)

    assert third(5) == pytest.approx(third(1))


def test_the_first_in_line_polls_again_at_once_if_its_poll_did_not_read_the_lock() -> None:
    """Other owners were faster five times: that says nothing about whether the lock is closed."""
    pace = Pace(PaceBounds())
    sleep_ms(seen(0), pace=pace)
    unseen = seen(0, free_in_ms=None, mean_hold_ms=None, token=None, at_ms=20_000)
    assert sleep_ms(unseen, pace=pace) < 10


# A whole queue of waiters.


REQUESTS_BESIDE_POLLS = 5
"""A refused try, a ticket, a row, the grant, the release."""


@dataclass
class Line:
    """Clients that take one lock again and again; each request is applied in the middle of ``REQUEST_MS``.

    Attributes:
        hold_ms: how long the holder works that got the lock at that time.
        idle_ms: for each grant from the queue: when it came, and how long the lock had been free.
        polls: the number of polls of each.
    """

    clients: int
    hold_ms: Callable[[float], float]
    idle_ms: list[tuple[float, float]] = field(default_factory=list)
    polls: list[tuple[float, int]] = field(default_factory=list)
    now_ms: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(1)
        self._rows: list[int] = []
        self._holder_since_ms: float | None = None
        self._free_since_ms = 0.0
        self._mean_ms: int | None = None
        self._issued = self._token = 0

    def run(self, seconds: float) -> None:
        """Start them within half a second, and run."""
        clients = [self._client() for _ in range(self.clients)]
        due = [(self._random.uniform(0, 500), number) for number in range(self.clients)]
        heapq.heapify(due)
        while due[0][0] < seconds * 1_000:
            self.now_ms, number = due[0]
            heapq.heapreplace(due, (self.now_ms + next(clients[number]), number))

    def idle_after(self, ms: float) -> list[float]:
        return [idle for at_ms, idle in self.idle_ms if at_ms >= ms]

    def polls_after(self, ms: float) -> float:
        return statistics.mean(polls for at_ms, polls in self.polls if at_ms >= ms)

    def _client(self) -> Iterator[float]:
        hand_over_ms = 0.0
        while True:
            yield 3 * REQUEST_MS
            self._issued += 1
            ticket, polls = self._issued, 0
            self._rows.append(ticket)
            pace = Pace(PaceBounds(), hand_over_ms)
            while True:
                yield pace.sleep_ms(self._seen(ticket), lease_ms=LEASE_MS, rest_ms=None, jitter=self._random.random())
                polls += 1
                yield REQUEST_MS / 2
                mine = self._holder_since_ms is None and self._rows[0] == ticket
                yield REQUEST_MS / 2
                if mine:
                    break
            hand_over_ms, built_ms = pace.hand_over_ms, self.now_ms
            yield REQUEST_MS / 2
            self._rows.remove(ticket)
            self._holder_since_ms, self._token = built_ms, self._token + 1
            self.idle_ms.append((self.now_ms, self.now_ms - self._free_since_ms))
            self.polls.append((self.now_ms, polls))
            mean_ms = self._mean_ms
            yield REQUEST_MS / 2
            yield self.hold_ms(self.now_ms)
            held_ms = int(self.now_ms - built_ms)
            yield REQUEST_MS / 2
            # As the protocol does: down at once, up slowly.
            self._mean_ms = held_ms if mean_ms is None else min(held_ms, (3 * mean_ms + held_ms) // 4)
            self._holder_since_ms, self._free_since_ms = None, self.now_ms

    def _seen(self, ticket: int) -> Position:
        since_ms = self._holder_since_ms
        return seen(
            sum(row < ticket for row in self._rows),
            free_in_ms=None if since_ms is None else int(since_ms + (self._mean_ms or 0) - self.now_ms),
            mean_hold_ms=self._mean_ms,
            at_ms=int(self.now_ms),
            token=self._token,
        )


def line(clients: int, hold_ms: Callable[[float], float], seconds: float) -> Line:
    made = Line(clients, hold_ms)
    made.run(seconds)
    return made


@pytest.mark.parametrize(("hold_ms", "seconds"), [(50, 15), (500, 60)])
def test_a_queue_of_fifty_hands_the_lock_over_at_once_with_few_polls(hold_ms: int, seconds: int) -> None:
    fifty = line(50, lambda _: hold_ms, seconds)
    assert statistics.mean(fifty.idle_after(5_000)) < 15
    assert fifty.polls_after(5_000) <= 5.1


def test_a_waiter_polls_about_as_often_behind_two_hundred_as_behind_ten() -> None:
    ten, many = (line(clients, lambda _: 50, 40) for clients in (11, 201))
    requests, requests_of_ten = (REQUESTS_BESIDE_POLLS + each.polls_after(14_000) for each in (many, ten))
    assert requests < 1.3 * requests_of_ten


def test_irregular_holds_are_not_overslept_by_more_than_they_last() -> None:
    chance = random.Random(2)
    irregular = line(50, lambda _: chance.expovariate(1 / 50), 60)
    assert statistics.mean(irregular.idle_after(5_000)) < 50
    assert irregular.polls_after(5_000) < 15


def test_after_long_holds_short_ones_are_found_soon() -> None:
    def suddenly(at_ms: float) -> float:
        return 10_000 if at_ms < 60_000 else 50

    changing = line(20, suddenly, 90)
    after = changing.idle_after(72_000)
    assert len(after) > 100
    assert max(changing.idle_after(5_000)) < 5_000
    assert statistics.mean(changing.idle_after(80_000)) < 20


def test_after_short_holds_a_long_one_is_not_polled_all_the_time() -> None:
    def suddenly(at_ms: float) -> float:
        return 50 if at_ms < 20_000 else 10_000

    changing = line(20, suddenly, 100)
    assert max(idle for at_ms, idle in changing.idle_ms if at_ms > 20_000) < LONGEST_MS + 50
    assert changing.polls_after(40_000) < 150
