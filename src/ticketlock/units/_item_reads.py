"""Reads the items of a unit: each item once, when the unit first uses it; later statements see it as it was then."""

from collections.abc import Sequence

from ticketlock.units._reading import Reading, Wanted, image_of
from ticketlock.units._work import VERSION_BYTES, Place, Work
from ticketlock.wire._requests import ForkingSteps


def take_in(places: Sequence[Place], work: Work, reading: Reading, most: int) -> ForkingSteps[None]:
    """Read the items that were not read yet, ``most`` of one instant, and evaluate blind updates of them.

    Raises:
        ConditionFailed: the condition of a blind update does not hold.
        InvalidUnitRequest, ItemTooLarge: a blind update does not fit its item.
    """
    unread = list({id(place): place for place in places if not place.is_read}.values())
    if not unread:
        return
    found = yield from reading.serializable([Wanted(place.table, place.key) for place in unread])
    for at, (place, item) in enumerate(zip(unread, found, strict=True)):
        if at % most == 0:
            work.cuts += 1
        place.before = image = image_of(item, work.marks)
        if place.blind is not None:
            # If it is refused, it stays blind: the unit cannot be committed without it.
            image = place.blind.applied_to(image)
            if image is not None:
                place.table.check_item(image, "statement", VERSION_BYTES)
            place.blind, place.is_written = None, True
        seen = None if item is None or work.marks.is_placeholder(item) else item
        place.is_read, place.seen, place.cut, place.image = True, seen, work.cuts, image
