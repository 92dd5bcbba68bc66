"""How a unit can be committed, in one request or by marks; decided before anything is sent."""

from collections.abc import Sequence

from ticketlock._expressions._values import MAX_ITEM_BYTES
from ticketlock.errors import InvalidUnitRequest, UnitTooLarge
from ticketlock.units._commit import MOST_ACTIONS, MOST_BYTES
from ticketlock.units._terms import Terms
from ticketlock.units._work import OURS_BYTES, Place

MOST_ITEMS = 100_000
"""A sweep reads all rows of a unit that has to be finished: they must take it minutes, not hours."""

_NO_LOCAL_INDEX = "a table without local secondary indexes, whose collections DynamoDB limits to 10 GB"
_WHEN = (
    "A unit marks its items at "
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


def check_count(places: Sequence[Place]) -> None:
    """Refuse a unit of more items than can be finished, or resumed, in reasonable time.

    Raises:
        UnitTooLarge: there are more.
    """
    if len(places) > MOST_ITEMS:
        raise UnitTooLarge(
            f"the unit writes or checks {len(places):,} items, and may have up to {MOST_ITEMS:,}: split it into "
            "several units"
        )


def check_may_mark(touched: Sequence[Place]) -> None:
    """Refuse what DynamoDB might refuse after the unit is committed.

    Raises:
        InvalidUnitRequest: a table has local secondary indexes, or something that this version does not know; or an
            index that was added since the statement does not accept an item.
        ItemTooLarge: an item has no room for a mark.
    """
    for place in touched:
        schema = place.table.schema
        if schema.local_indexes:
            raise InvalidUnitRequest("table", place.table.name, f"{_NO_LOCAL_INDEX}. {_WHEN}")
        if schema.unknown is not None:
            allowed = f"a table that this version of ticketlock knows: it has {schema.unknown}; upgrade ticketlock"
            raise InvalidUnitRequest("table", place.table.name, f"{allowed}. {_WHEN}")
        for image in (place.image, place.before):
            if image is not None:
                place.table.check_item(image, "mark", OURS_BYTES)
