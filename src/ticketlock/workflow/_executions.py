"""Step Functions executions: what their ARNs say, and how one is seen closed."""

import hashlib
from collections.abc import Mapping
from typing import Any

_SAME_DATE_MS = 1_000


def redriven_since(ended: Mapping[str, Any], described: Mapping[str, Any]) -> bool:
    """Whether an execution has begun another life since it ended.

    Args:
        ended: the detail of the event of its end; ``stopDate`` in milliseconds since the epoch.
        described: as DescribeExecution has it now, or had it a moment ago.
    """
    redrives = described.get("redriveCount", 0)
    if "redriveCount" in ended:
        return bool(redrives > ended["redriveCount"])
    if redrives == 0:
        return False
    # An event that does not count: its life is the last one if the execution still stands where the event left it.
    stopped = described.get("stopDate")
    return stopped is None or stopped.timestamp() * 1_000 > ended["stopDate"] + _SAME_DATE_MS


def execution_arn(state_machine: str, name: str) -> str:
    """The ARN of the execution with a name, of a state machine, a version or an alias of it."""
    arn, partition, service, region, account, _, machine, *_ = state_machine.split(":")
    return ":".join((arn, partition, service, region, account, "execution", machine, name))


def short_hash(owner: str, digits: int = 8) -> str:
    """An owner, told apart without being named."""
    return hashlib.sha256(owner.encode()).hexdigest()[:digits]


def work_name(owner: str, fencing_token: int) -> str:
    """The name of the nested execution that is the work of one grant: however often it is started, it is one."""
    return f"lock-{short_hash(owner, 32)}-{fencing_token}"


def waiting_name(owner: str, continuation: int) -> str:
    """The name of the execution in which a wait goes on, for the first, second, ... time."""
    return f"wait-{short_hash(owner, 32)}-{continuation}"


def holding_name(owner: str, fencing_token: int, beats: int) -> str:
    """The name of the execution in which a heartbeat goes on after so many beats."""
    return f"hold-{short_hash(owner, 32)}-{fencing_token}-{beats}"
