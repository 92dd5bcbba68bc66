"""Clean up after an execution that failed, timed out or was stopped: leave the queue, free locks that it may free."""

import os
from collections.abc import Mapping
from typing import Any

from _observed import observed, workflow

from ticketlock.workflow import Step

# Shorter than the function's time-out, which is Lambda's longest, since nothing waits for a clean-up.
PATIENCE_MS = 13 * 60_000


@observed
def handler(event: Mapping[str, Any]) -> Step:
    """See ``Workflow.clean_up``."""
    lease_ms = 1_000 * int(os.environ["LEASE_SECONDS"])
    return workflow().clean_up(
        event, state_machine=os.environ["STATE_MACHINE_ARN"], lease_ms=lease_ms, patience_ms=PATIENCE_MS
    )
