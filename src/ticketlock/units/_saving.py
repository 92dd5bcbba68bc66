"""Writes a saved unit into its record: the new rows first, then the head that names them.

So a crash in between saves nothing, and the unit stays as it was saved before. Time to live deletes the rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError, UnitRolledBack
from ticketlock.units._commit import Fate
from ticketlock.units._ended import ended
from ticketlock.units._formats import check_row, fields
from ticketlock.units._heads import Head, Heads, with_pieces
from ticketlock.units._owners import found_by_owner, owner_goes_on
from ticketlock.units._packing import in_pieces, item_read, item_told
from ticketlock.units._reading import Isolation, image_of
from ticketlock.units._record import SavedRecord
from ticketlock.units._rows import Receipt
from ticketlock.units._steps import with_step
from ticketlock.units._tables import UnitTable
from ticketlock.units._terms import Terms, check_of
from ticketlock.units._work import Place, Work
from ticketlock.wire._answers import Reply
from ticketlock.wire._requests import ForkingSteps, Pause, Together, TransactWrite

_OF_ITEMS = ("Key", "ExpressionAttributeValues")
SAVED = ("timeoutMs", "isolation", "name", "receipt", "under", "engine", "prefix", "cuts", "guarded", "places")
"""The names in a saved unit."""
_RECEIPT = ("isCommitted", "unit")
_PLACE = ("table", "key", "seen", "image", "glimpse", "isRead", "isWritten", "isChecked", "cut")


@dataclass(frozen=True, slots=True)
class SavedLock:
    """The lock that a saved unit is under, as it was held at the save; its holder may have ended since."""

    check: Mapping[str, Any]

    def condition_check(self) -> dict[str, Any]:
        """The check that it is held, still with that very token."""
        return {"ConditionCheck": dict(self.check)}


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a unit is saved.

    Attributes:
        ms: for how long; afterwards any process may roll it back.
        owner: the owner with whose end the unit is rolled back; None for none.
        tries: how many times its coordinator has tried to save it, this one included.
    """

    ms: int
    owner: str | None = None
    tries: int = 1


def save(
    terms: Terms, work: Work, receipt: Receipt | None, heads: Heads, keeping: Keeping, fate: Fate
) -> ForkingSteps[Head]:
    """Save what a unit has read and stated, in place of what it was resumed with.

    Args:
        receipt: of its name, as it was seen; None where it has none.
        keeping: for how long, and under which owner.
        fate: unknown, from the moment at which a request may have handed the unit on.

    Raises:
        UnsupportedFormat: a newer version has saved it since, or another unit of its owner, or has ended its owner.
        UnitChanged: another coordinator has resumed it since.
        UnitRolledBack, UnitForgotten: it was ended meanwhile, or its owner has ended.
        OutcomeUnknown: it may or may not be saved.
        TableError: another one; it is not saved.
    """
    reply: Reply = yield Pause(0)
    now, before = reply.now, terms.saved
    told = _unit_told(terms, work, receipt)
    made = Head(
        terms.id,
        "pending",
        terms.born_ms,
        lease_until_ms=now.latest_ms + keeping.ms,
        rev=1 if before is None else before.rev + 1,
        attempt=terms.unit,
        coordinator=terms.unit,
        owner=keeping.owner,
        steps=with_step(frozenset() if before is None else before.steps, terms.step),
    )
    head, pieces = with_pieces(made, in_pieces(told))
    rows = [heads.put_saved_piece(head, at, piece, keeping.tries) for at, piece in enumerate(pieces)]
    if head.owner is not None:
        rows.append(found_by_owner(heads.table, head, head.owner))
    for written in (yield Together(tuple(rows))) if rows else ():
        if isinstance(written, TableError):
            raise _not_saved(written) from written
        if written.item is not None:
            # Refused by a row that stays longer, or is of a newer version.
            check_row(written.item)
    fate.became = "unknown"
    try:
        put = heads.save(head, before)
        reply = yield put if head.owner is None else TransactWrite((put, owner_goes_on(heads.table, head.owner)))
    except OutcomeUnknown:
        raise
    except TableError:
        fate.became = "rolled back"
        raise
    if not reply.applied and not _is_saved_by(reply, terms.unit):
        if _is_perhaps_succeeded(reply, head):
            raise OutcomeUnknown(
                f"other processes have resumed and saved the unit {terms.id} since, before or after this save: "
                "`resume` shows what is saved"
            )
        fate.became = "rolled back"
        if not reply.refused[0]:
            end = reply.items[1]
            if end is not None:
                check_row(end)
            if before is not None:
                yield from SavedRecord(before, heads).roll_back()
            why = f"its owner {head.owner!r} has ended"
            raise UnitRolledBack(f"the unit {terms.id} was not saved, and is rolled back: {why}")
        raise ended(reply.item, terms.id)
    return head


def _not_saved(error: TableError) -> TableError:
    """The error of a row that no head names yet: with or without that row, nothing was saved."""
    return RequestNotApplied(f"the unit was not saved ({error})") if isinstance(error, OutcomeUnknown) else error


def _is_saved_by(reply: Reply, coordinator: str) -> bool:
    """Whether an earlier attempt of this save was applied: only this coordinator writes rows under its id."""
    return reply.item is not None and Head.of(reply.item).attempt == coordinator


def _is_perhaps_succeeded(reply: Reply, made: Head) -> bool:
    """Whether an earlier attempt of this save may have been applied, and a later coordinator has saved the unit since.

    A claim and a save raise `rev` by one each, and no save drops a step.
    """
    if not reply.repeated or reply.item is None:
        return False
    found = Head.of(reply.item)
    return found.state != "rolledBack" and found.rev >= made.rev + 2 and made.steps <= found.steps


def _unit_told(terms: Terms, work: Work, receipt: Receipt | None) -> dict[str, Any]:
    return {
        "timeoutMs": terms.timeout_ms,
        "isolation": terms.isolation.value,
        "name": terms.name,
        "receipt": None if receipt is None else _receipt_told(receipt),
        "under": None if terms.under is None else _lock_told(check_of(terms.under)["ConditionCheck"]),
        "engine": terms.engine,
        "prefix": work.marks.prefix,
        "cuts": work.cuts,
        "guarded": sorted({place.table.name for place in work.places.values() if place.table.is_guarded}),
        "places": [_place_told(place) for place in work.places.values()],
    }


def terms_of(told: Mapping[str, Any], own: Terms, head: Head) -> Terms:
    """What the unit was begun with, under the id and the step of the coordinator that goes on with it."""
    lock = told["under"]
    under = None if lock is None else SavedLock({name: _lock_field(name, value) for name, value in lock.items()})
    isolation = Isolation(told["isolation"])
    began = told["timeoutMs"], isolation, told["name"], under, told["engine"]
    return Terms(own.unit, head.born_ms, *began, head, own.step)


def receipt_of(told: Mapping[str, Any]) -> Receipt | None:
    """The receipt of its name, as it was seen."""
    if told["receipt"] is None:
        return None
    seen = fields(told["receipt"], _RECEIPT)
    return Receipt(is_committed=seen["isCommitted"], unit=seen["unit"])


def work_of(told: Mapping[str, Any], work: Work, tables: Mapping[str, UnitTable]) -> None:
    """Put the unit's items into an empty work."""
    work.cuts = told["cuts"]
    for each in told["places"]:
        saved = fields(each, _PLACE)
        place = work.place(tables[saved["table"]], item_read(saved["key"]))
        place.seen = _item(saved["seen"])
        place.before = image_of(place.seen, work.marks)
        place.image = _item(saved["image"][0]) if saved["image"] else place.before
        place.glimpse = (_item(saved["glimpse"][0]),) if saved["glimpse"] else None
        place.is_read, place.is_written, place.is_checked = (
            saved["isRead"],
            saved["isWritten"],
            saved["isChecked"],
        )
        place.cut = saved["cut"]


def _receipt_told(receipt: Receipt) -> dict[str, Any]:
    return {"isCommitted": receipt.is_committed, "unit": receipt.unit}


def _place_told(place: Place) -> dict[str, Any]:
    return {
        "table": place.table.name,
        "key": item_told(place.key),
        "seen": _told(place.seen),
        # An item that was only read is stored once.
        "image": [] if place.image == place.before else [_told(place.image)],
        "glimpse": [] if place.glimpse is None else [_told(place.glimpse[0])],
        "isRead": place.is_read,
        "isWritten": place.is_written,
        "isChecked": place.is_checked,
        "cut": place.cut,
    }


def _told(item: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if item is None else item_told(item)


def _item(told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if told is None else item_read(told)


def _lock_told(check: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item_told(value) if name in _OF_ITEMS else value for name, value in check.items()}


def _lock_field(name: str, told: Any) -> Any:
    return item_read(told) if name in _OF_ITEMS else told


def tables_of(told: Mapping[str, Any]) -> Sequence[str]:
    """The tables of its items."""
    return sorted({place["table"] for place in told["places"]})
