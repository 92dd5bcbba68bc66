"""The serialised workflow, opened for one test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from statemachines.harness import Work
from statemachines.stage import Stage, stage
from ticketlock_local.emulator import Emulator

Open = Callable[..., Stage]


@pytest.fixture
def open_stage(emulator: Emulator) -> Iterator[Open]:
    """Opens the workflow; closed at the end of the test."""
    with ExitStack() as stack:

        def opened(work: Any = None, **more: Any) -> Stage:
            functions = work if isinstance(work, dict) else {"work": work if work is not None else Work()}
            return stack.enter_context(stage(emulator.endpoint, functions, **more))

        yield opened
