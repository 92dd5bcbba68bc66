"""The numbers of a deployment, checked when the template is synthesised."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from aws_cdk import Duration

from ticketlock.locks import MAX_HOLDERS, MAX_LEASE_MS
from ticketlock.workflow import BEATS_AN_EXECUTION, most_polls_an_execution
from ticketlock_cdk.checks import check_bound, check_flag

MIN_LEASE_S = 10
_MAX_LEASE_S = MAX_LEASE_MS // 1_000
ROW_LEASE_S = 600
# Longer than any step needs; shorter than the TimeoutSeconds of every step's state except the heartbeat's.
_LONGEST_FUNCTION_S = 10

# From the grant to the start of the work, and from its end to the release, with time to spare. A grant is reported with
# three quarters of its lease at least.
_BEFORE_THE_LEASE_ENDS_S = 5

RecordWait = Duration | Literal["Infinity"]


class HandOver(StrEnum):
    """How a waiter learns that its turn may have come.

    Attributes:
        CALLBACK: the process that frees the lock wakes it; it also polls by itself, rarely if it is far behind.
        POLL: it polls at intervals.
    """

    CALLBACK = "callback"
    POLL = "poll"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    """The numbers of one TicketLock.

    Attributes:
        lease_s: the lease in whole, even seconds; half of it is the heartbeat's time-out.
        row_lease_s: the same of the queue row of a waiter far behind, whose time-out is half of it.
        poll_s: the longest sleep of the front waiter in whole seconds.
        default_record_wait: the record wait of inputs without ``recordWaitSeconds``: seconds, or ``"Infinity"``.
        permits: how many may hold a lock at once, for inputs without ``permits``.
        hand_over: how a waiter learns that its turn may have come.
        heartbeat: whether the lease is renewed while the work runs.
        work_timeout_s: without heartbeat, how long the work may take; it must end within the lease.
        polls_an_execution: after so many polls another execution continues a wait.
        beats_an_execution: after so many heartbeats another execution continues a hold.
    """

    lease_s: int
    poll_s: int
    row_lease_s: int = ROW_LEASE_S
    default_record_wait: float | Literal["Infinity"] = "Infinity"
    permits: int = 1
    hand_over: HandOver = HandOver.CALLBACK
    heartbeat: bool = True
    work_timeout_s: int = 0
    polls_an_execution: int = most_polls_an_execution(woken=True)
    beats_an_execution: int = BEATS_AN_EXECUTION

    @classmethod
    def of(
        cls,
        *,
        lease: Duration,
        row_lease: Duration | None = None,
        poll: Duration,
        default_record_wait: RecordWait,
        permits: int = 1,
        hand_over: HandOver = HandOver.CALLBACK,
        heartbeat: bool = True,
        work_timeout: Duration | None = None,
        polls_an_execution: int | None = None,
        beats_an_execution: int = BEATS_AN_EXECUTION,
    ) -> "LockSettings":
        """Check the construct's properties.

        Raises:
            ValueError: one of them is out of its bounds; the message names it, its value and what is allowed.
        """
        check_flag("heartbeat", heartbeat)
        lease_s = _seconds("lease", lease)
        if lease_s % 2 != 0 or not MIN_LEASE_S <= lease_s <= _MAX_LEASE_S:
            raise _refused("lease", lease_s, f"whole, even seconds from {MIN_LEASE_S} to {_MAX_LEASE_S:,}")
        row_lease_s = max(lease_s, ROW_LEASE_S) if row_lease is None else _seconds("row_lease", row_lease)
        if row_lease_s % 2 != 0 or not lease_s <= row_lease_s <= _MAX_LEASE_S:
            raise _refused(
                "row_lease", row_lease_s, f"whole, even seconds from the lease, {lease_s:g}, to {_MAX_LEASE_S:,}"
            )
        poll_s = _seconds("poll", poll)
        if poll_s % 1 != 0 or not 1 <= poll_s <= lease_s / 2:
            raise _refused("poll", poll_s, f"whole seconds from 1 to half the lease, which is {lease_s / 2:g}")
        wait: float | Literal["Infinity"] = "Infinity"
        if default_record_wait != "Infinity":
            wait = _seconds("default_record_wait", default_record_wait, or_else=' or "Infinity"')
        most_polls = most_polls_an_execution(woken=hand_over == HandOver.CALLBACK)
        polls = most_polls if polls_an_execution is None else polls_an_execution
        for name, value, least, most in (
            ("permits", permits, 1, MAX_HOLDERS),
            ("polls_an_execution", polls, 2, most_polls),
            ("beats_an_execution", beats_an_execution, 2, BEATS_AN_EXECUTION),
        ):
            check_bound(name, value, least, most)
        return cls(
            lease_s=int(lease_s),
            row_lease_s=int(row_lease_s),
            poll_s=int(poll_s),
            default_record_wait=wait,
            permits=permits,
            hand_over=HandOver(hand_over),
            heartbeat=heartbeat,
            work_timeout_s=_work_timeout_s(work_timeout, int(lease_s), heartbeat=heartbeat),
            polls_an_execution=polls,
            beats_an_execution=beats_an_execution,
        )

    @property
    def function_timeout_s(self) -> int:
        """The time-out of every function except the heartbeat's."""
        return _LONGEST_FUNCTION_S

    @property
    def heartbeat_timeout_s(self) -> int:
        """The heartbeat's time-out, shorter than its state's, so that no heartbeat outlives its turn."""
        return min(_LONGEST_FUNCTION_S, self.lease_s // 2 - 1)


def _work_timeout_s(work_timeout: Duration | None, lease_s: int, *, heartbeat: bool) -> int:
    if heartbeat:
        if work_timeout is not None:
            raise ValueError("work_timeout is given; allowed: with heartbeat=False, where the lease bounds the work")
        return 0
    longest_s = lease_s * 3 // 4 - _BEFORE_THE_LEASE_ENDS_S
    if work_timeout is None:
        return longest_s
    timeout_s = _seconds("work_timeout", work_timeout)
    if timeout_s % 1 != 0 or not 1 <= timeout_s <= longest_s:
        raise _refused(
            "work_timeout",
            timeout_s,
            f"whole seconds from 1 to {longest_s}, which is three quarters of the lease less "
            f"{_BEFORE_THE_LEASE_ENDS_S} seconds for the steps before and after",
        )
    return int(timeout_s)


def _seconds(name: str, value: object, *, or_else: str = "") -> float:
    if not isinstance(value, Duration):
        raise TypeError(f"{name} is {value!r}; allowed: a Duration{or_else}")
    if value.is_unresolved():
        raise ValueError(f"{name} is known only at deploy time; allowed: a Duration that is known at synth")
    return value.to_milliseconds() / 1_000


def _refused(name: str, seconds: float, allowed: str) -> ValueError:
    return ValueError(f"{name} is {seconds:g} seconds; allowed: {allowed}")
