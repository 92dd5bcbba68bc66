"""Compares this machine's clock with table time."""

import time
from typing import Any

from botocore.exceptions import ClientError

from ticketlock.cli._finding import Finding
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire import _sdk

# The Date header has whole seconds, and is set when the service starts its work or when it ends it.
_DATE_RESOLUTION_MS = 2_000
# Beyond some minutes AWS refuses requests:
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
_REFUSED_FROM_MS = 300_000
_SUSPECT_FROM_MS = 30_000


def clock_finding(client: Any, table_name: str) -> Finding:
    """Compare the two. Locks do not depend on this clock, but AWS refuses requests if it is far off."""
    sent_ms = time.time_ns() // 1_000_000
    try:
        response = client.get_item(**TIME_CHECK.parameters(table_name))
    except ClientError as error:
        response = error.response
    received_ms = time.time_ns() // 1_000_000
    date_ms = _sdk.date_ms(response)
    if date_ms is None:
        return Finding("bad", "clock", "the replies have no Date header, and leases need it: does a proxy remove it?")
    ahead_ms = max(0, sent_ms - (date_ms + _DATE_RESOLUTION_MS))
    behind_ms = max(0, date_ms - received_ms)
    off_ms = max(ahead_ms, behind_ms)
    if off_ms == 0:
        return Finding("good", "clock", "agrees with the Date of the table's replies")
    text = f"{off_ms / 1_000:.1f} s {'ahead of' if ahead_ms else 'behind'} the table's"
    if off_ms < _SUSPECT_FROM_MS:
        return Finding("good", "clock", f"{text}: no lock depends on it")
    reason = "AWS refuses requests" if off_ms >= _REFUSED_FROM_MS else "AWS refuses requests when it is 5 minutes off"
    return Finding("bad", "clock", f"{text}: {reason}; set the clock, or run NTP")
