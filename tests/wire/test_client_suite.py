"""The client's own tests of acquiring and of waiting in line, in bad weather: those on a real table that count neither
requests nor tickets.
"""

import inspect
from types import ModuleType

import pytest
from client import test_acquiring, test_waiting_in_line
from client.test_waiting_in_line import line

__all__ = ["line"]

# A ticket whose reply was lost is taken twice, and counts as one ahead until the row is seen that follows it.
_COUNTS_TICKETS = {"test_on_wait_is_told_each_look_with_the_places_ahead"}

pytestmark = pytest.mark.usefixtures("bad_weather")


def _tests_of(suite: ModuleType, at_least: int) -> dict[str, object]:
    found = {
        name: test
        for name, test in vars(suite).items()
        if name.startswith("test_")
        and name not in _COUNTS_TICKETS
        and "moved" not in inspect.signature(test).parameters
    }
    assert len(found) >= at_least
    return found


globals().update(_tests_of(test_acquiring, 20) | _tests_of(test_waiting_in_line, 8))
