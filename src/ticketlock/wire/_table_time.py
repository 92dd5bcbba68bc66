"""Table time: what a process knows of the table's clock, without relying on its own.

Every reply of DynamoDB carries the service's ``Date``, in whole seconds. A Date of D means that at some moment between
sending the request and receiving the reply the table's clock was in [D, D + 2 s): one second for the missing fraction,
one because the header may be written at either end of the work. So each reply bounds the difference between the table's
clock and this machine's. The bounds of several replies are intersected (Marzullo's idea: the true value is in every
interval) and widened with age for drift. Bounds that contradict each other are discarded and learned again; old ones,
and those from before the machine's clocks were set or stopped, are forgotten; a reply that took long is not used. A
process without bounds asks the table first: nothing is ever written or judged by the wall clock.

Nothing here reads a clock: readings are arguments.
"""

from ticketlock._value import value

# The Date has no fraction, and may be taken at either end of the service's work.
_DATE_RESOLUTION_MS = 2_000
# Ten times the drift of a bad quartz, twice the fastest slewing of an NTP daemon: 1 ms a second.
_DRIFT_PER_MS = 0.001
# If a process stopped during its first request, it would know table time only to within that pause, and its leases
# would be that much longer.
_SLOWEST_MS = 5_000
# By then drift may have widened the bounds by 0.6 s on either side: better ask again.
_FORGOTTEN_AFTER_MS = 600_000
# The two local clocks differ by this much only if one of them was set, or the machine was frozen.
_LOCAL_CLOCKS_PART_MS = 1_000


@value(frozen=True, slots=True)
class Reading:
    """One reading of this machine's clocks.

    Attributes:
        local_ms: a clock that is never set and continues while the machine is suspended; any origin.
        wall_ms: the wall clock, milliseconds since the epoch.
    """

    local_ms: int
    wall_ms: int


def passed_ms(since: Reading, until: Reading) -> int:
    """The time between two readings, by the clock that moved further: one may have stopped, or the wall clock been set
    back.
    """
    return max(until.local_ms - since.local_ms, until.wall_ms - since.wall_ms)


@value(frozen=True, slots=True)
class Moment:
    """What a process knows of table time at one instant.

    Attributes:
        local_ms: the instant on this machine's own clock.
        earliest_ms: table time is not before this, milliseconds since the epoch. Leases are compared with it.
        latest_ms: table time is not after this. The ends of leases are computed from it.
        wall_ms: this machine's wall clock.
    """

    local_ms: int
    earliest_ms: int
    latest_ms: int
    wall_ms: int

    @property
    def likely_ms(self) -> int:
        """The best estimate, for waits and statistics: safety does not depend on it.

        The wall clock, limited to the bounds: synchronised machines agree to about a millisecond, whereas the bounds
        are seconds apart. On a machine with a wrong clock it is one of the bounds.
        """
        return min(max(self.wall_ms, self.earliest_ms), self.latest_ms)

    def local_of(self, table_ms: int) -> int:
        """The first moment of the local clock, which may be slow, at which table time may have reached ``table_ms``."""
        return self.local_ms + int((table_ms - self.latest_ms) / (1 + _DRIFT_PER_MS))


@value(frozen=True, slots=True)
class Estimate:
    """What replies have told of the table's clock.

    Attributes:
        bounds: those of (table time - local clock), and the local time at which they were exact; None if not known.
        last: the last reading by which the local clocks were compared; None before the first one.
    """

    bounds: tuple[float, float, int] | None = None
    last: Reading | None = None

    def until(self, reading: Reading) -> "Estimate":
        """The same, used at a reading: nothing is known any more if the local clocks have parted since the last one."""
        have_parted = self.last is not None and _have_parted(self.last, reading)
        return Estimate(None if have_parted else self.bounds, reading)

    def widened(self, local_ms: int) -> tuple[float, float] | None:
        """The bounds at this local time; None if they are not known, or too old."""
        if self.bounds is None:
            return None
        low, high, exact_at_ms = self.bounds
        if local_ms - exact_at_ms > _FORGOTTEN_AFTER_MS:
            return None
        drift = max(0, local_ms - exact_at_ms) * _DRIFT_PER_MS
        return low - drift, high + drift


class TableTime:
    """The running estimate of the table's clock, for several threads.

    No mutex: a signal handler may interrupt the thread that has it, and wait for another thread that needs it. Each
    change makes a new estimate from the one before; if two threads do so at once, one of their replies is not used.
    """

    def __init__(self) -> None:
        self._estimate = Estimate()

    def at(self, reading: Reading) -> Moment | None:
        """What is known at ``reading``; None if the table must be asked."""
        self._estimate = estimate = self._estimate.until(reading)
        bounds = estimate.widened(reading.local_ms)
        if bounds is None:
            return None
        low, high = bounds
        return Moment(reading.local_ms, int(reading.local_ms + low), int(reading.local_ms + high) + 1, reading.wall_ms)

    def observe(self, date_ms: int, sent: Reading, received: Reading) -> None:
        """Use the Date of a reply, in milliseconds since the epoch, and the readings around its request."""
        known = self._estimate.until(sent).until(received)
        is_slow = received.local_ms - sent.local_ms > _SLOWEST_MS
        # If the machine was frozen during the request, or its clock set, when the reply was written is unknown.
        if is_slow or _have_parted(sent, received):
            self._estimate = known
            return
        low: float = date_ms - received.local_ms
        high: float = date_ms + _DATE_RESOLUTION_MS - sent.local_ms
        bounds = known.widened(received.local_ms)
        if bounds is not None and max(low, bounds[0]) <= min(high, bounds[1]):
            low, high = max(low, bounds[0]), min(high, bounds[1])
        self._estimate = Estimate((low, high, received.local_ms), received)


def _have_parted(one: Reading, other: Reading) -> bool:
    return abs((other.wall_ms - other.local_ms) - (one.wall_ms - one.local_ms)) > _LOCAL_CLOCKS_PART_MS
