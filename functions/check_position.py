"""Poll once; take the lock if it is this execution's turn."""

from collections.abc import Mapping
from typing import Any

from _observed import observed, workflow

from ticketlock.workflow import Step


@observed
def handler(event: Mapping[str, Any]) -> Step:
    """See ``Workflow.check_position``."""
    return workflow().check_position(event)
