"""What a client's holdings need around them: the lock table, and what watches the leases."""

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
    """The lock table, as far as a client's holdings need it."""

    @property
    def identity(self) -> Hashable:
        """What is the same for all clients of one table."""
        ...

    def contending(self, claim: Claim, steps: Callable[[Contender], Steps[T]]) -> Actions[T]:
        """Steps of one claim, as calls and sleeps."""
        ...

    def sending(self, request: Request) -> Actions[Answer]:
        """One request, until it is applied or refused."""
        ...


class Heart(Protocol[L_contra]):
    """What watches the leases: a thread, or a task for each."""

    def watch(self, lease: L_contra) -> None:
        """Watch it from now on."""
        ...

    def forget(self, lease: L_contra) -> None:
        """Watch it no more."""
        ...

    def tell(self, lease: L_contra, what: Due) -> None:
        """Tell its caller."""
        ...

    def join_idle(self) -> None:
        """See that nothing is left that watches nothing."""
        ...
