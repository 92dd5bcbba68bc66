"""The state machine's definition, with the numbers and lists of one deployment set by state name.

Strings stay as ``${...}`` placeholders, which the deployment substitutes.
"""

import json
from collections.abc import Sequence
from typing import Any

from ticketlock_cdk.assets import source_folder


def serialize_definition(
    *, lease_s: int, poll_s: int, default_record_wait: float | str, targets: Sequence[str]
) -> dict[str, Any]:
    """The definition of the serialised workflow.

    Args:
        lease_s: the lease in whole, even seconds; the heartbeat comes at its half-life.
        poll_s: the longest sleep of the front waiter, in whole seconds.
        default_record_wait: for inputs without ``recordWaitSeconds``: seconds, or ``"Infinity"``.
        targets: the ARNs of the functions and state machines that may be run.
    """
    definition: dict[str, Any] = json.loads((source_folder("statemachines") / "serialize.asl.json").read_text())
    states = definition["States"]
    states["TakeTicket"]["Parameters"]["Payload"] |= {
        "targets": list(targets),
        "defaultRecordWaitSeconds": default_record_wait,
        "leaseSeconds": lease_s,
        "pollSeconds": poll_s,
    }
    heartbeat = states["Hold"]["Branches"][1]["States"]["Heartbeat"]
    heartbeat["TimeoutSeconds"] = lease_s // 2
    on_any_error = heartbeat["Retry"][-1]
    # Its attempts, spread over the other half of the lease: past that the lease is lost anyway.
    on_any_error["IntervalSeconds"] = max(1, lease_s // 12)
    return definition
