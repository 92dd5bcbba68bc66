"""Free the lock and end the heartbeat, after the work has ended or failed."""

from collections.abc import Mapping
from typing import Any

from _observed import observed, workflow

from ticketlock.workflow import Step


@observed
def handler(event: Mapping[str, Any]) -> Step:
    """See ``Workflow.release``."""
    return workflow().release(event)
