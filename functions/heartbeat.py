"""Renew the lease, and store this heartbeat's task token for the release."""

from collections.abc import Mapping
from typing import Any

from _observed import observed, workflow

from ticketlock.workflow import Step


@observed
def handler(event: Mapping[str, Any]) -> Step:
    """See ``Workflow.heartbeat``."""
    return workflow().heartbeat(event)
