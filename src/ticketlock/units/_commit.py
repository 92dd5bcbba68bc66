"""What a unit commits beside its items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ticketlock.errors import LockLost, TicketLockError, UnitConflict, UnitRolledBack
from ticketlock.units._ended import ended
from ticketlock.units._guards import guarded_by
from ticketlock.units._heads import Head, Heads
from ticketlock.units._rows import NEVER_USED, Receipt, is_receipt_of, put_receipt
from ticketlock.units._values import PYTHON
from ticketlock.units._work import Place
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._requests import Write

_Named = tuple[str, Mapping[str, Any]]

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
        saved: the record of a saved unit that it goes on with; None for none.
        lock_check: the check that a lock is held, as the low-level API has it; None for none.
        fate: what it has come to.
    """

    unit: str
    units_table: str
    born_ms: int
    attempt: str = "1"
    name: str | None = None
    receipt: Receipt = NEVER_USED
    saved: Head | None = None
    lock_check: Mapping[str, Any] | None = None
    fate: Fate = field(default_factory=Fate)

    @property
    def beside(self) -> int:
        """How many actions it has beside its items."""
        return (self.name is not None) + (self.saved is not None) + (self.lock_check is not None)


def writes_beside(commit: Commit, now_ms: int) -> tuple[Write, ...]:
    """The write that takes the name, and the one that ends the record that it goes on with."""
    writes: tuple[Write, ...] = ()
    if commit.name is not None:
        after = Receipt(True, commit.unit, commit.receipt.tries)
        writes += (put_receipt(commit.units_table, commit.name, commit.receipt, after, now_ms),)
    if commit.saved is not None:
        writes += (Heads(commit.units_table).end_saved(commit.saved, "committed", now_ms),)
    return writes


def refused_beside(commit: Commit, reply: Reply, first: int) -> TicketLockError | None:
    """What has refused a commit for good, whatever has become of its items: its lock, or the record of a saved unit.

    Args:
        first: the position of its first write beside them.
    """
    if commit.lock_check is not None and reply.refused[-1]:
        return LockLost("the lock is not held with this fencing token any more: nothing was written")
    at = first + (commit.name is not None)
    if commit.saved is not None and reply.refused[at]:
        return ended(reply.items[at], commit.saved.unit)
    return None


def refused_name(commit: Commit, reply: Reply, first: int) -> UnitRolledBack | None:
    """The refusal of its name, if that is one.

    Args:
        first: as of `refused_beside`.
    """
    if commit.name is None or not reply.refused[first]:
        return None
    return name_refused(commit.name)


def name_refused(name: str) -> UnitRolledBack:
    """Another unit was committed under this name since it was seen, or somebody has given it up."""
    return UnitRolledBack(f"the name {name!r} was used or given up meanwhile: nothing was written")


def has_written_beside(commit: Commit, items: Sequence[Item | None]) -> bool:
    """Whether what stands where it writes beside its items says that it was committed.

    Args:
        items: what stands there, in the order of the writes.
    """
    if commit.name is not None and is_receipt_of(items[0], commit.unit):
        return True
    return commit.saved is not None and is_committed_by(items[commit.name is not None], commit.unit)


def is_committed_by(row: Item | None, coordinator: str) -> bool:
    """Whether this coordinator has committed a saved unit."""
    return row is not None and (head := Head.of(row)).state == "committed" and head.coordinator == coordinator


def conflict(places: Sequence[Place]) -> UnitConflict:
    """Others have written these."""
    items, guards = list[_Named](), list[_Named]()
    inserted_into = set[str]()
    for place in places:
        named, guarded = (place.table.name, PYTHON.back(place.key) or {}), guarded_by(place)
        (items if guarded is None else guards).append(named)
        inserted_into |= {guarded} if guarded is not None else set()
    return UnitConflict(items, guards=guards, inserted_into=inserted_into)
