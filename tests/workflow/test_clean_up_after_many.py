"""Thousands of executions end at once: the clean-up finishes its events, even if requests are throttled."""

import random
from collections import Counter

import pytest
from kit.mass_end import Ended, MassEnd

pytestmark = [
    pytest.mark.shows("clean-up"),
    pytest.mark.verify("thousands of events; test_clean_up_events.py counts the requests of one"),
]

DESCRIBES_A_SECOND, DESCRIBES_SAVED = 15, 300
CONCURRENCY = 10


@pytest.fixture(scope="module")
def mass() -> MassEnd:
    return MassEnd(describes_a_second=DESCRIBES_A_SECOND, describes_saved=DESCRIBES_SAVED)


@pytest.fixture(scope="module")
def ended(mass: MassEnd) -> list[Ended]:
    """6,000 events at 100 a second; half of the executions left nothing, the others a row in one of two queues."""
    ended = mass.failed_works(1_500) + mass.never_came(1_500) + mass.waiters(1_500) + mass.waiters(1_500)
    random.Random(1).shuffle(ended)
    mass.clean_up(ended, a_second=100, concurrency=CONCURRENCY)
    return ended


def test_no_event_fails(mass: MassEnd, ended: list[Ended]) -> None:
    assert len(ended) == 6_000
    # Otherwise the test would show nothing.
    assert mass.step_functions.refused > 0
    assert [each.error for each in ended if each.error is not None] == []


def test_an_execution_that_left_nothing_costs_one_request_to_the_table_and_no_call_of_step_functions(
    ended: list[Ended],
) -> None:
    nothing = [each for each in ended if each.kind == "left nothing"]
    assert len(nothing) == 3_000
    assert Counter(sum(each.table.values()) for each in nothing) == {1: 3_000}
    assert Counter(sum(each.calls.values()) for each in nothing) == {0: 3_000}


def test_all_rows_are_deleted(mass: MassEnd, ended: list[Ended]) -> None:
    assert ended
    assert mass.rows() == 0
