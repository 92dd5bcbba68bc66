"""The ticket lock, on every engine."""

import pytest
from kit.engines import counting_engine_names
from kit.world import World
from locks.waiting_line import Line

collect_ignore = [] if counting_engine_names() else ["test_capacity_units.py"]


@pytest.fixture
def line(world: World) -> Line:
    return Line(world)
