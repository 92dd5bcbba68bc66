"""How a unit can be committed, in one request or by marks; decided before anything is sent."""

from collections.abc import Sequence

from ticketlock._expressions._values import MAX_ITEM_BYTES
from ticketlock.errors import InvalidUnitRequest, UnitTooLarge
from ticketlock.units._commit import MOST_ACTIONS, MOST_BYTES
from ticketlock.units._terms import Terms
from ticketlock.units._work import OURS_BYTES, Place

_MAY_MARK = (
    "a table without local secondary indexes, whose collections DynamoDB limits to 10 GB. A unit marks its items at "
    'READ_LOCK, with engine="marked", if it inserts into a guarded table, and if it has more than '
    f"{MOST_ACTIONS} items or {MOST_BYTES:,} bytes"
)


def fits_one_request(touched: Sequence[Place], terms: Terms, most: int) -> bool:
    """Whether one request of at most ``most`` actions can commit all, as far as the sizes of items are known.

    Raises:
        UnitTooLarge: it cannot, and the unit's terms allow nothing else.
    """
    count = len(touched) + terms.beside
    # The lock's item counts too, and ticketlock does not read it.
    size = sum(place.size_bytes for place in touched) + (terms.under is not None) * MAX_ITEM_BYTES
    fits = count <= most and size <= MOST_BYTES
    if terms.engine == "native" and not fits:
        raise UnitTooLarge(
            f"the commit has {count} actions, one for each item, the name, the lock and the saved record, of "
            f"{size:,} bytes; one request of DynamoDB takes {most} actions of {MOST_BYTES:,} bytes: leave out "
            "`engine`, so that the unit can be committed by marks"
        )
    return fits


def check_may_mark(touched: Sequence[Place]) -> None:
    """Refuse what DynamoDB might refuse after the unit is committed.

    Raises:
        InvalidUnitRequest: a table has local secondary indexes.
        ItemTooLarge: an item has no room for a mark.
    """
    for place in touched:
        if place.table.schema.local_indexes:
            raise InvalidUnitRequest("table", place.table.name, _MAY_MARK)
        for image in (place.image, place.before):
            if image is not None:
                place.table.check_item(image, "mark", OURS_BYTES)
