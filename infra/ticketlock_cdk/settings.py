"""The numbers of a deployment, checked when the template is synthesised."""

from dataclasses import dataclass
from typing import Literal

from aws_cdk import Duration

from ticketlock._writes import MAX_LEASE_MS

MIN_LEASE_S = 10
_MAX_LEASE_S = MAX_LEASE_MS // 1_000
# Longer than any step needs, shorter than the TimeoutSeconds of every step's state but the heartbeat's.
_LONGEST_FUNCTION_S = 10

RecordWait = Duration | Literal["Infinity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The numbers of one TicketLock.

    Attributes:
        lease_s: the lease in whole, even seconds: its half is the heartbeat's time-out.
        poll_s: the longest sleep of the front waiter in whole seconds.
        default_record_wait: for inputs without ``recordWaitSeconds``: seconds, or ``"Infinity"``.
    """

    lease_s: int
    poll_s: int
    default_record_wait: float | Literal["Infinity"]

    @classmethod
    def of(cls, *, lease: Duration, poll: Duration, default_record_wait: RecordWait) -> "Settings":
        """Check the construct's properties.

        Raises:
            ValueError: one of them is out of its bounds; names it, its value and what is allowed.
        """
        lease_s = _seconds("lease", lease)
        if lease_s % 2 != 0 or not MIN_LEASE_S <= lease_s <= _MAX_LEASE_S:
            raise _refused("lease", lease_s, f"whole, even seconds from {MIN_LEASE_S} to {_MAX_LEASE_S:,}")
        poll_s = _seconds("poll", poll)
        if poll_s % 1 != 0 or not 1 <= poll_s <= lease_s / 2:
            raise _refused("poll", poll_s, f"whole seconds from 1 to half the lease, which is {lease_s / 2:g}")
        wait: float | Literal["Infinity"] = "Infinity"
        if default_record_wait != "Infinity":
            wait = _seconds("default_record_wait", default_record_wait, or_else=' or "Infinity"')
        return cls(lease_s=int(lease_s), poll_s=int(poll_s), default_record_wait=wait)

    @property
    def function_timeout_s(self) -> int:
        """For every function but the heartbeat's."""
        return _LONGEST_FUNCTION_S

    @property
    def heartbeat_timeout_s(self) -> int:
        """Shorter than the heartbeat's state waits, so that no beat outlives its turn."""
        return min(_LONGEST_FUNCTION_S, self.lease_s // 2 - 1)


def _seconds(name: str, value: object, *, or_else: str = "") -> float:
    if not isinstance(value, Duration):
        raise TypeError(f"{name} is {value!r}; allowed: a Duration{or_else}")
    if value.is_unresolved():
        raise ValueError(f"{name} is known only at deploy time; allowed: a Duration that is known at synth")
    return value.to_milliseconds() / 1_000


def _refused(name: str, seconds: float, allowed: str) -> ValueError:
    return ValueError(f"{name} is {seconds:g} seconds; allowed: {allowed}")
