"""The steps of a saved unit: one that is retried after its save adds nothing.

The conditional write that saves the unit records them too. So a step is in the record exactly if its statements are.
"""

import hashlib
from dataclasses import dataclass

from ticketlock.errors import InvalidUnitRequest

MOST_STEPS = 100
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Step:
    """What one process adds to a saved unit, for example a state of a workflow; each retry is the same step.

    Attributes:
        name: differs from those of the unit's other steps.
    """

    name: str

    @property
    def digest(self) -> bytes:
        """128 bits for the record, whatever the length of the name."""
        return hashlib.sha256(self.name.encode()).digest()[:_DIGEST_BYTES]


def with_step(saved: frozenset[bytes], step: Step | None) -> frozenset[bytes]:
    """The steps of a unit after the save of this one."""
    return saved if step is None else saved | {step.digest}


def check_room(saved: frozenset[bytes], step: Step | None) -> None:
    """Refuse one step too many: to drop an earlier one would let its retry count twice.

    Raises:
        InvalidUnitRequest: there is no room for it.
    """
    if step is not None and len(with_step(saved, step)) > MOST_STEPS:
        allowed = f"one of the unit's {MOST_STEPS} steps: it records no more; resume it without a step"
        raise InvalidUnitRequest("step", step.name, allowed)
