"""The bound of liveness in docs/guarantees.md, from the constants of the code."""

import inspect
import math

from ticketlock import LockClient
from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.wire import _table_time

_LEASE_S, _REPLY_MS = 60, 20
_DRIFT_MS = _table_time._FORGOTTEN_AFTER_MS * _table_time._DRIFT_PER_MS


def bound() -> str:
    """The formula, its parts, and what it comes to for a client that is first in line."""
    margin, date = f"{EXPIRY_MARGIN_MS // 1_000} s", f"{_table_time._DATE_RESOLUTION_MS // 1_000} s"
    slowest, drift = f"{_table_time._SLOWEST_MS // 1_000} s", f"{_DRIFT_MS / 1_000:.1f} s"
    return f"""```
delay  <=  lease  +  {margin}  +  2 * ({date} + reply + drift)  +  poll
```

{margin} is the margin for the service's own servers, {date} the resolution of `Date`, once for the writer of the lease
and once for its judge, reply the duration of the reply that told the time (at most {slowest}), drift 0.1 % of the time
since (at most {drift}). {_example()}"""


def _example() -> str:
    _, longest_sleep_s = inspect.signature(LockClient).parameters["check_every"].default
    uncertain_ms = _table_time._DATE_RESOLUTION_MS + _REPLY_MS + _DRIFT_MS
    judged_ms = EXPIRY_MARGIN_MS + uncertain_ms + longest_sleep_s * 1_000
    crashed_s = _rounded_up(_LEASE_S * 1_000 + uncertain_ms + judged_ms)
    after_lease_s = _rounded_up(judged_ms)
    return f"""With a lease of {_LEASE_S} s and replies of {_REPLY_MS} ms, a client that is first in line
has the lock {crashed_s} s after the crash, and {after_lease_s} s after the lease's end in the table, at the latest."""


def _rounded_up(ms: float) -> float:
    return math.ceil(ms / 100) / 10
