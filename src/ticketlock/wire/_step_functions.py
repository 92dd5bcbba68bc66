"""Requests to Step Functions: answer a task, close an execution, describe one."""

from collections.abc import Mapping
from typing import Any


def is_closed(described: Mapping[str, Any]) -> bool:
    """Whether an execution is over, by its description; a redrive that is under way counts as running."""
    return described["status"] in ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
