"""Step Functions executions: their ARNs and names, and whether they have ended."""

import hashlib
from collections.abc import Mapping
from typing import Any

_SAME_DATE_MS = 1_000


def redriven_since(ended: Mapping[str, Any], described: Mapping[str, Any]) -> bool:
    """Whether an execution has been redriven since it ended.

    Args:
        ended: the detail of its end's event; ``stopDate`` in milliseconds since the epoch.
        described: the result of DescribeExecution, now or a moment ago.
    """
    redrives = described.get("redriveCount", 0)
    if "redriveCount" in ended:
        return bool(redrives > ended["redriveCount"])
    if redrives == 0:
        return False
    # The event has no redrive count: the execution was redriven since unless its last end is the event's.
    stopped = described.get("stopDate")
    return stopped is None or stopped.timestamp() * 1_000 > ended["stopDate"] + _SAME_DATE_MS


def execution_arn(state_machine: str, name: str) -> str:
    """The ARN of the named execution of a state machine, a version or an alias of it."""
    arn, partition, service, region, account, _, machine, *_ = state_machine.split(":")
    return ":".join((arn, partition, service, region, account, "execution", machine, name))


def short_hash(owner: str, digits: int = 8) -> str:
    """A hash that identifies an owner without its name."""
    return hashlib.sha256(owner.encode()).hexdigest()[:digits]


def work_name(owner: str, fencing_token: int) -> str:
    """The name of the nested execution that is the work of one grant: however often it is started, there is only
    one.
    """
    return f"lock-{short_hash(owner, 32)}-{fencing_token}"


def waiting_name(owner: str, continuation: int) -> str:
    """The name of the first, second, ... continuation of a wait."""
    return f"wait-{short_hash(owner, 32)}-{continuation}"


def holding_name(owner: str, fencing_token: int, beats: int) -> str:
    """The name of the continuation of a heartbeat after so many beats."""
    return f"hold-{short_hash(owner, 32)}-{fencing_token}-{beats}"
