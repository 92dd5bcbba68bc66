"""How a unit can be committed, in one request or by marks; decided before anything is sent."""

from collections.abc import Sequence

from ticketlock.errors import InvalidUnitRequest, UnitTooLarge
from ticketlock.units._work import MOST_ACTIONS, MOST_BYTES, OURS_BYTES, Place

MOST_ITEMS = 100_000
"""A sweep reads all rows of a unit that has to be finished: they must take it minutes, not hours."""

_NO_LOCAL_INDEX = "a table without local secondary indexes, whose collections DynamoDB limits to 10 GB"
_WHEN = (
    "A unit marks its items at "
    'READ_LOCK, with engine="marked", if it inserts into a guarded table, and if it has more than '
    f"{MOST_ACTIONS} items or {MOST_BYTES:,} bytes"
)


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
