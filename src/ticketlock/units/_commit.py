"""What a unit commits in addition to its items."""

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


@dataclass(slots=True)
class Fate:
    """What a commit has achieved so far, for the code that handles an interrupt of it.

    Attributes:
        became: rolled back, until a request may have decided it; unknown from then on; committed, once a reply says so,
            or if the unit was committed when it was resumed.
    """

    became: Literal["rolled back", "unknown", "committed"] = "rolled back"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a unit commits in addition to its items.

    Attributes:
        unit: its id; also the client request token of a native commit.
        units_table: the name of the units table.
        born_ms: when its first try began.
        attempt: part of the names of the rows of a marked commit.
        name: of which only one unit is ever committed; None for none.
        receipt: the name's receipt, as it was read.
        saved: the record of the saved unit that it continues; None for none.
        lock_check: the check that a lock is held, as in the low-level API; None for none.
        fate: what it has achieved so far.
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
        """How many actions it adds to those of the items."""
        return (self.name is not None) + (self.saved is not None) + (self.lock_check is not None)


def writes_beside(commit: Commit, now_ms: int) -> tuple[Write, ...]:
    """The write that takes the name, and the one that ends the record of the saved unit."""
    writes: tuple[Write, ...] = ()
    if commit.name is not None:
        after = Receipt(is_committed=True, unit=commit.unit)
        writes += (put_receipt(commit.units_table, commit.name, commit.receipt, after, now_ms),)
    if commit.saved is not None:
        writes += (Heads(commit.units_table).end_saved(commit.saved, "committed", now_ms),)
    return writes


def refused_beside(commit: Commit, reply: Reply, first: int) -> TicketLockError | None:
    """The final reason for a refusal that does not depend on the items: the lock, or the record of a saved unit.

    Args:
        first: the position of the first write beside the items.
    """
    if commit.lock_check is not None and reply.refused[-1]:
        # The usual mistake beside a loss: the function was given the table of another lock.
        table = commit.lock_check["ConditionCheck"]["TableName"]
        return LockLost(
            f"the lock is not held with this fencing token any more, by the table {table}: nothing was written"
        )
    at = first + (commit.name is not None)
    if commit.saved is not None and reply.refused[at]:
        return ended(reply.items[at], commit.saved.unit)
    return None


def refused_name(commit: Commit, reply: Reply, first: int) -> UnitRolledBack | None:
    """The refusal of the unit's name, if that was the reason.

    Args:
        first: as for `refused_beside`.
    """
    if commit.name is None or not reply.refused[first]:
        return None
    return name_refused(commit.name)


def name_refused(name: str) -> UnitRolledBack:
    """The error: since it was read, another unit was committed under this name, or a process has given the name up."""
    return UnitRolledBack(f"the name {name!r} was used or given up meanwhile: nothing was written")


def has_written_beside(commit: Commit, items: Sequence[Item | None]) -> bool:
    """Whether the rows that it writes beside its items show that it was committed.

    Args:
        items: those rows, in the order of the writes.
    """
    if commit.name is not None and is_receipt_of(items[0], commit.unit):
        return True
    return commit.saved is not None and is_committed_by(items[commit.name is not None], commit.unit)


def is_committed_by(row: Item | None, coordinator: str) -> bool:
    """Whether this coordinator has committed a saved unit."""
    return row is not None and (row.get("state"), row.get("coordinator")) == ({"S": "committed"}, {"S": coordinator})


def conflict(places: Sequence[Place]) -> UnitConflict:
    """The error that other writers have changed these items."""
    items, guards = list[_Named](), list[_Named]()
    inserted_into = set[str]()
    for place in places:
        named, guarded = (place.table.name, PYTHON.back(place.key) or {}), guarded_by(place)
        (items if guarded is None else guards).append(named)
        inserted_into |= {guarded} if guarded is not None else set()
    return UnitConflict(items, guards=guards, inserted_into=inserted_into)
