"""What a unit commits beside its items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ticketlock.errors import UnitConflict
from ticketlock.units._rows import NEVER_USED, Receipt, put_receipt
from ticketlock.units._values import PYTHON
from ticketlock.units._work import Place
from ticketlock.wire._requests import Write

MOST_ACTIONS = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"""


MOST_BYTES = 4 * 1_024 * 1_024
"""As above: of all items, each as it stands or as it will be, whichever is larger."""


@dataclass(slots=True)
class Fate:
    """What a commit has come to, for whoever breaks it off.

    Attributes:
        became: rolled back, while no request can have decided it; unknown, from the moment at which one may.
    """

    became: Literal["rolled back", "unknown", "committed"] = "rolled back"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a unit commits beside its items.

    Attributes:
        unit: its id, under which the service knows the attempts of a native commit too.
        units_table: the name of the units' own table.
        born_ms: when its first try began.
        attempt: names the rows of a marked commit.
        name: for exactly once; None for none.
        receipt: of the name, as it was seen.
        lock_check: the check that a lock is held, as the low-level API has it; None for none.
        fate: what it has come to.
    """

    unit: str
    units_table: str
    born_ms: int
    attempt: str = "1"
    name: str | None = None
    receipt: Receipt = NEVER_USED
    lock_check: Mapping[str, Any] | None = None
    fate: Fate = field(default_factory=Fate)


def receipt_write(commit: Commit, now_ms: int) -> tuple[Write, ...]:
    """The write that takes the name; none where there is no name."""
    if commit.name is None:
        return ()
    after = Receipt(True, commit.unit, commit.receipt.tries)
    return (put_receipt(commit.units_table, commit.name, commit.receipt, after, now_ms),)


def conflict(places: Sequence[Place]) -> UnitConflict:
    """Others have written these."""
    return UnitConflict((place.table.name, PYTHON.back(place.key) or {}) for place in places)
