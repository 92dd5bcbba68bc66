"""Which run of an execution has ended: a redriven execution runs again under the same ARN."""

from collections.abc import Mapping
from typing import Any

_SAME_DATE_MS = 1_000


def knows_its_run(ended: Mapping[str, Any]) -> bool:
    """Whether the event of an end says which run it was.

    AWS's list of the event's fields does not have ``redriveCount``, so an event may lack it:
    https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html
    """
    return ended.get("redriveCount") is not None


def run_that_ended(ended: Mapping[str, Any], described: Mapping[str, Any]) -> int:
    """The number of redrives before the run whose end an event reports; of earlier runs the last, if it cannot tell.

    Args:
        ended: the event's detail; ``stopDate`` in milliseconds since the epoch.
        described: the result of DescribeExecution, now or a moment ago; empty if Step Functions has forgotten the
            execution. Not needed if the event knows its run.
    """
    if knows_its_run(ended):
        return int(ended["redriveCount"])
    redrives = int(described.get("redriveCount", 0))
    if redrives == 0:
        return 0
    # It is the last run unless the execution runs again, or ended later.
    stopped = described.get("stopDate")
    is_the_last = stopped is not None and stopped.timestamp() * 1_000 <= ended["stopDate"] + _SAME_DATE_MS
    return redrives if is_the_last else redrives - 1
