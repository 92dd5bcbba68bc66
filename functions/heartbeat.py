"""Renew the lease, and leave this beat's task token where the release finds it."""

from collections.abc import Mapping
from typing import Any

from _observed import observed, workflow

from ticketlock.workflow import Step


@observed
def handler(event: Mapping[str, Any]) -> Step:
    """See ``Workflow.heartbeat``."""
    return workflow().heartbeat(event)
