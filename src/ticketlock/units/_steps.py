"""The steps that have saved a unit: one that is tried again after its save adds nothing.

They stand in the unit's record, which the same conditional write saves. So a step is among them exactly if what it has
stated is in the unit.
"""

import hashlib
from dataclasses import dataclass

from ticketlock.errors import InvalidUnitRequest

MOST_STEPS = 100
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Step:
    """What resumes a saved unit, such as a state of a workflow; all its tries are the same step.

    Attributes:
        name: distinguishes it from the other steps of the unit.
    """

    name: str

    @property
    def digest(self) -> bytes:
        """What the record keeps of it: 128 bits, however long the name is."""
        return hashlib.sha256(self.name.encode()).digest()[:_DIGEST_BYTES]


def with_step(saved: frozenset[bytes], step: Step | None) -> frozenset[bytes]:
    """The steps that have saved a unit, once this one has."""
    return saved if step is None else saved | {step.digest}


def check_room(saved: frozenset[bytes], step: Step | None) -> None:
    """Refuse one step too many: none of those before is ever forgotten.

    Raises:
        InvalidUnitRequest: there is no room for it.
    """
    if step is not None and len(with_step(saved, step)) > MOST_STEPS:
        allowed = f"up to {MOST_STEPS} steps that save one unit, and this one would be the next: resume it without one"
        raise InvalidUnitRequest("step", step.name, allowed)
