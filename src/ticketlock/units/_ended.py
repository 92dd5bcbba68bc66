"""The error of a unit that another process has ended, as its record shows."""

from ticketlock.errors import TicketLockError, UnitChanged, UnitForgotten, UnitRolledBack
from ticketlock.units._heads import Head
from ticketlock.wire._attributes import Item


def ended(row: Item | None, unit: str) -> TicketLockError:
    """Why a write to a unit's head was refused: its condition is that the unit is pending, and this coordinator's.

    Args:
        row: the head, as returned with the refusal; None for none.
    """
    if row is None:
        return UnitForgotten(f"the unit {unit} was ended by another process, and its record is gone")
    head = Head.of(row)
    if head.state != "rolledBack":
        committed = ", and committed it" if head.state == "committed" else ""
        return UnitChanged(
            f"another process has resumed the unit {unit} since{committed}; nothing of this object was written"
        )
    why = ", by an operator or because its lease had ended"
    if head.by is not None:
        why = f" by the unit {head.by}, which is older"
    elif head.is_saved:
        owner = "" if head.owner is None else f", or its owner {head.owner!r} had ended"
        why = f": by a `rollback`, or because its `keep_for` was over, its name was used or given up{owner}"
    return UnitRolledBack(f"the unit {unit} was rolled back{why}", head.by)
