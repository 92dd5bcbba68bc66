"""The interfaces that a client's holdings need: the lock table, and what watches the leases."""

from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

from ticketlock.client._base_lease import BaseLease
from ticketlock.locks._claim import Claim
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._answers import Answer
from ticketlock.wire._heartbeat import Due
from ticketlock.wire._requests import Request, Steps

L_contra = TypeVar("L_contra", bound=BaseLease, contravariant=True)


class Table(Protocol):
    """A lock table, as a client's holdings use it."""

    @property
    def identity(self) -> Hashable:
        """A value that is equal for all clients of one table."""
        ...

    @property
    def patience_ms(self) -> int:
        """For how long one request is retried."""
        ...

    def contending(
        self, claim: Claim, steps: Callable[[Contender], Steps[T]], *, until_ms: int | None = None
    ) -> Actions[T]:
        """Perform the steps of one claim, as calls and sleeps; send no request again after this moment."""
        ...

    def sending(self, request: Request) -> Actions[Answer]:
        """Send one request until it is applied or refused."""
        ...


class Heart(Protocol[L_contra]):
    """Watches the leases: one thread, or one task for each."""

    def watch(self, lease: L_contra) -> None:
        """Watch a lease from now on."""
        ...

    def forget(self, lease: L_contra) -> None:
        """Stop watching a lease."""
        ...

    def tell(self, lease: L_contra, what: Due) -> None:
        """Call the lease's callback."""
        ...

    def join_idle(self) -> None:
        """Wait for threads that have nothing left to watch."""
        ...
