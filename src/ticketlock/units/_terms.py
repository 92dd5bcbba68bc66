"""What a unit is begun with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._heads import Head
from ticketlock.units._reading import SERIALIZABLE, Isolation


class HeldLock(Protocol):
    """What a unit commits under: a lease of ``ticketlock``, for example."""

    def condition_check(self) -> dict[str, Any]:
        """The check that it is held, as an item of ``TransactWriteItems``."""
        ...


Under = Callable[..., HeldLock]
"""Makes the lock of a call from the call's arguments."""

Engine = Literal["native", "marked"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a unit is begun with.

    Attributes:
        unit: its id in what it writes.
        born_ms: when its first try began, by a wall clock; kept by those that follow.
        timeout_ms: for how long it waits for other units.
        isolation: of reads that say nothing else.
        name: for exactly once.
        under: a lock that has to be held at the commit.
        engine: how it is committed; None for natively, where it fits.
        saved: the record of the saved unit that it goes on with; None for a new unit.
    """

    unit: str
    born_ms: int
    timeout_ms: int
    isolation: Isolation = SERIALIZABLE
    name: str | None = None
    under: HeldLock | None = None
    engine: Engine | None = None
    saved: Head | None = None

    @property
    def id(self) -> str:
        """What users call the unit: the same for all that go on with it."""
        return self.unit if self.saved is None else self.saved.unit

    @property
    def beside(self) -> int:
        """How many actions its commit has beside its items."""
        return (self.name is not None) + (self.saved is not None) + (self.under is not None)


def check_of(under: HeldLock) -> Mapping[str, Any]:
    """The check that a lock is held, which others have made.

    Raises:
        InvalidUnitRequest: it is none: the unit would be committed without it.
    """
    found: Any = under.condition_check()
    only = found.get("ConditionCheck") if isinstance(found, Mapping) and len(found) == 1 else None
    wanted = {"TableName": str, "Key": Mapping, "ConditionExpression": str}
    if not isinstance(only, Mapping) or not all(isinstance(only.get(name), kind) for name, kind in wanted.items()):
        allowed = "a held lock, whose `condition_check()` is the ConditionCheck of a TransactWriteItems"
        raise InvalidUnitRequest("under", found, allowed)
    check: Mapping[str, Any] = found
    return check
