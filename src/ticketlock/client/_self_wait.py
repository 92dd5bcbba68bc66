"""Whether an acquisition waits for its own caller."""

import logging
from collections.abc import Callable, Sequence

from ticketlock.client._base_lease import BaseLease
from ticketlock.client._blocks import Caller
from ticketlock.errors import AlreadyHeld
from ticketlock.locks import Claim, LockName, Position

_log = logging.getLogger("ticketlock")


class SelfWait:
    """Checks after each poll in vain whether an acquisition waits for its own caller.

    Args:
        around: the leases of the blocks that the caller is inside of.
        outside: other leases that the caller may have to release.
    """

    def __init__(
        self,
        claim: Claim,
        caller: Caller,
        around: Callable[[Caller, LockName], Sequence[BaseLease]],
        outside: Callable[[Caller, LockName], Sequence[BaseLease]],
    ) -> None:
        self._claim, self._caller = claim, caller
        self._around, self._outside = around, outside
        self._polls = 0

    def check(self, seen: Position) -> None:
        self._polls += 1
        lock, holders = self._claim.lock, {holder.owner for holder in seen.holders}
        own = {lease.owner for lease in self._around(self._caller, lock)} & holders
        if own and self._claim.shared and seen.turns > 0 and self._polls > 1:
            # The first report comes from joining: its count may include waiters that have crashed.
            raise AlreadyHeld(
                f"another caller waits to hold {lock.entity!r} alone, until this thread or task leaves its block that "
                "shares it, and this call would wait behind it: pass reentrant=True"
            )
        if own and own == holders and not self._claim.shared and len(holders) >= (seen.permits or 0):
            raise would_wait_for_itself(lock)
        if self._polls == 1:
            for lease in self._outside(self._caller, lock):
                if lease.owner in holders:
                    _log.warning(
                        "waiting for %r, which this %s, or the caller of its event loop, has acquired itself and not "
                        "released: %r. If no one else releases it, this waits for itself",
                        lock.entity,
                        "task" if self._caller.is_a_task else "thread",
                        lease,
                    )


def would_wait_for_itself(lock: LockName) -> AlreadyHeld:
    return AlreadyHeld(
        f"this thread or task is inside of a block that holds {lock.entity!r}, and would wait for itself: leave it "
        "first, or pass reentrant=True (and the same value of shared)"
    )
