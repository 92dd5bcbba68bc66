"""The terms with which a unit begins, and the steps of a saved one.

A step that is retried after its save adds nothing: the conditional write that saves the unit records its steps too, so
a step is in the record exactly if its statements are.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ticketlock._checks import text
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._reading import SERIALIZABLE, Isolation
from ticketlock.units._record import UnitRecord

NAME_BYTES = 1_024
"""The longest name of a unit, of a step and of an owner."""
MOST_STEPS = 100
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class SavedStep:
    """What one process adds to a saved unit, for example a state of a workflow; each retry is the same step.

    Attributes:
        name: differs from those of the unit's other steps.
    """

    name: str

    @property
    def digest(self) -> bytes:
        """128 bits for the record, whatever the length of the name."""
        return hashlib.sha256(self.name.encode()).digest()[:_DIGEST_BYTES]


def with_step(saved: frozenset[bytes], step: SavedStep | None) -> frozenset[bytes]:
    """The steps of a unit after the save of this one."""
    return saved if step is None else saved | {step.digest}


def check_room(saved: frozenset[bytes], step: SavedStep | None) -> None:
    """Refuse one step too many: to drop an earlier one would let its retry count twice.

    Raises:
        InvalidUnitRequest: there is no room for it.
    """
    if step is not None and len(with_step(saved, step)) > MOST_STEPS:
        allowed = f"one of the unit's {MOST_STEPS} steps: it records no more; resume it without a step"
        raise InvalidUnitRequest("step", step.name, allowed)


class HeldLock(Protocol):
    """What a unit is committed under: a lease of ``ticketlock``, for example."""

    def condition_check(self) -> dict[str, Any]:
        """The check that the lock is held, as an item of ``TransactWriteItems``."""
        ...


Under = Callable[..., HeldLock]
"""Makes the lock of a call from the arguments of the call."""

Engine = Literal["native", "marked"]


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms with which a unit begins.

    Attributes:
        unit: the id under which it writes.
        born_ms: when its first try began, by a wall clock; later tries keep it.
        timeout_ms: how long it waits for other units.
        isolation: of reads without a level of their own.
        name: only one unit of a name is ever committed.
        under: a lock that must be held at the commit.
        engine: how it is committed; None: natively if it fits.
        saved: the record of the saved unit that it continues; None for a new unit.
        step: which step of that unit it is; None for none.
    """

    unit: str
    born_ms: int
    timeout_ms: int
    isolation: Isolation = SERIALIZABLE
    name: str | None = None
    under: HeldLock | None = None
    engine: Engine | None = None
    saved: UnitRecord | None = None
    step: SavedStep | None = None

    @property
    def id(self) -> str:
        """The id that users know: the same for every process that resumes the unit."""
        return self.unit if self.saved is None else self.saved.unit

    @property
    def repeats_step(self) -> bool:
        """Whether its step was saved before, and the unit is still pending."""
        head, step = self.saved, self.step
        return head is not None and head.state == "pending" and step is not None and step.digest in head.steps

    @property
    def beside(self) -> int:
        """How many actions its commit has in addition to those of its items."""
        return (self.name is not None) + (self.saved is not None) + (self.under is not None)


def check_of(under: HeldLock) -> Mapping[str, Any]:
    """The check that a lock is held, made by the lock.

    Raises:
        InvalidUnitRequest: it is not such a check: the unit would be committed without it.
    """
    found: Any = under.condition_check()
    only = found.get("ConditionCheck") if isinstance(found, Mapping) and len(found) == 1 else None
    wanted = {"TableName": str, "Key": Mapping, "ConditionExpression": str}
    if not isinstance(only, Mapping) or not all(isinstance(only.get(name), kind) for name, kind in wanted.items()):
        allowed = "a held lock, whose `condition_check()` is the ConditionCheck of a TransactWriteItems"
        raise InvalidUnitRequest("under", found, allowed)
    check: Mapping[str, Any] = found
    return check


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """How a unit is saved.

    Attributes:
        ms: for how long; afterwards any process may roll it back.
        owner: the owner with whose end the unit is rolled back; None for none.
        tries: how many times its coordinator has tried to save it, this one included.
    """

    ms: int
    owner: str | None = None
    tries: int = 1


def check_owner(owner: Any) -> str:
    """An owner of saved units.

    Raises:
        InvalidUnitRequest: it can be none.
    """
    return text("owner", owner, NAME_BYTES, InvalidUnitRequest)
