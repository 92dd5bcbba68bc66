"""The parameters of one acquisition."""

from dataclasses import dataclass
from typing import Any

from ticketlock._checks import boolean, text, whole_number
from ticketlock.errors import InvalidLockRequest
from ticketlock.locks._items import Session
from ticketlock.locks._modes import MAX_HOLDERS, Mode, mode_of
from ticketlock.locks._names import LockName, lock_name, owner_id

MIN_LEASE_MS = 1_000
MAX_LEASE_MS = 7 * 24 * 3_600_000
DATA_BYTES = 256


@dataclass(frozen=True, slots=True)
class Claim:
    """The parameters of one acquisition.

    Attributes:
        lock: the lock's name.
        owner: the identity of this acquisition, chosen before the first request; every retry carries it.
        lease_ms: how long a grant, or a queue row, is valid unless it is renewed: 1 second to 7 days.
        permits: how many may hold the lock at once, 1 to 100. The first use of a lock sets its permits.
        shared: whether to hold the lock together with other holders that share it, up to 100. If False, at most
            ``permits`` owners hold it.
        permits_since_ms: None for the caller's own number of permits. For a deployment's: when the execution that asks
            started; of two deployments' numbers the later one is in force. 0 changes no lock's number.
        data: up to 256 bytes that are shown beside the holder.
        session: where a parked waiter stores its task token, so that it can be woken; None if it only polls.
        noted_in: the session item that records each ticket before its row is written, so that a clean-up finds the
            row by its key; None without a clean-up.

    Raises:
        InvalidLockRequest: a field is out of its bounds.
    """

    lock: LockName
    owner: str
    lease_ms: int
    permits: int = 1
    data: str | None = None
    session: Session | None = None
    shared: bool = False
    noted_in: Session | None = None
    permits_since_ms: int | None = None

    def __post_init__(self) -> None:
        lock_name(self.lock)
        owner_id(self.owner)
        boolean("shared", self.shared)
        whole_number("lease_ms", self.lease_ms, MIN_LEASE_MS, MAX_LEASE_MS)
        whole_number("permits", self.permits, 1, MAX_HOLDERS)
        if self.permits != self.mode.permits_to_ask(self.permits):
            raise InvalidLockRequest("permits", self.permits, "1 if shared is true: up to 100 may share a lock")
        if self.data is not None:
            text("data", self.data, DATA_BYTES)

    @property
    def mode(self) -> Mode:
        """Whether it holds the lock exclusively or shared."""
        return mode_of(shared=self.shared)


def check_lease(lease_ms: int, client: Any) -> None:
    """Refuse a lease that could end during one request that hangs.

    Raises:
        InvalidLockRequest: it is shorter than four read time-outs of the client.
    """
    read_timeout_s = client.meta.config.read_timeout
    if read_timeout_s * 4_000 > lease_ms:
        allowed = f"at least {read_timeout_s * 4:g} s, four read time-outs of the client ({read_timeout_s} s each)"
        raise InvalidLockRequest("lease", f"{lease_ms / 1_000:g} s", allowed)
