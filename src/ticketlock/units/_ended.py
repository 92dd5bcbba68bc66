"""What somebody else's end of a unit is told as, by what stands in its record."""

from ticketlock.errors import TicketLockError, UnitChanged, UnitForgotten, UnitRolledBack
from ticketlock.units._heads import Head
from ticketlock.wire._attributes import Item


def ended(row: Item | None, unit: str) -> TicketLockError:
    """Why a write on a unit's head was refused, which asks that it is pending, and this coordinator's.

    Args:
        row: the head, as the refusal brought it; None for none.
    """
    if row is None:
        return UnitForgotten(f"the unit {unit} was ended by another process, and its record is gone")
    head = Head.of(row)
    if head.state != "rolledBack":
        committed = ", and committed it" if head.state == "committed" else ""
        return UnitChanged(f"another process has resumed the unit {unit} since{committed}: nothing of this one counts")
    why = ", by hand or since its lease was over"
    if head.by is not None:
        why = f" by the unit {head.by}, which is older"
    elif head.is_saved:
        owner = "" if head.owner is None else f", or {head.owner} has ended"
        why = f", by hand, or since its time was over, or its name used or given up{owner}"
    return UnitRolledBack(f"the unit {unit} was rolled back{why}", head.by)
