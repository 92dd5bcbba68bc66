"""Park: store this task's token, so that the process that frees the lock can wake this execution."""

from collections.abc import Mapping
from typing import Any

from _observed import observed, workflow

from ticketlock.workflow import Step


@observed
def handler(event: Mapping[str, Any]) -> Step:
    """See ``Workflow.wait_for_wake_up``."""
    return workflow().wait_for_wake_up(event)
