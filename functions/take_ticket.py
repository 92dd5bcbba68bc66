"""Check the request; take the lock, or join the queue."""

from collections.abc import Mapping
from typing import Any

from _observed import observed, workflow

from ticketlock.workflow import Step


@observed
def handler(event: Mapping[str, Any]) -> Step:
    """See ``Workflow.take_ticket``."""
    return workflow().take_ticket(event)
