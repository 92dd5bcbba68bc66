"""A lock table in memory, and durable executions on AWS's local runner."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from durable.executions import Executions


@pytest.fixture
def executions() -> Iterator[Callable[..., Executions]]:
    """Makes executions of a handler; see ``Executions``."""
    made: list[Executions] = []

    def make(*args: Any, **more: Any) -> Executions:
        made.append(Executions(*args, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
