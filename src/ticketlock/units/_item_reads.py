"""Reads the items of a unit when it first uses them; later statements see each as it was then.

Items that the caller asks for together are of one instant. If the unit has read some of them before, or at different
moments, all of them are read again in one request: those that it has read must be as they were.
"""

from collections.abc import Sequence

from ticketlock.units._batches import cut
from ticketlock.units._commit import conflict
from ticketlock.units._reading import Reading, Wanted, image_of, is_as_seen
from ticketlock.units._work import VERSION_BYTES, Place, Work
from ticketlock.wire._attributes import Item
from ticketlock.wire._requests import ForkingSteps


def take_in(places: Sequence[Place], work: Work, reading: Reading, most: int) -> ForkingSteps[None]:
    """Read the items that were not read yet, and evaluate blind updates of them; ``most`` are of one instant.

    Raises:
        UnitConflict: an item that the unit had read before has changed.
        ConditionFailed: the condition of a blind update does not hold.
        InvalidUnitRequest, ItemTooLarge: a blind update does not fit its item.
    """
    for together in cut(each_once(places), most):
        if not are_of_one_instant(together):
            work.cuts += 1
            items = yield from reading.serializable([Wanted(place.table, place.key) for place in together])
            _take(together, items, work)


def each_once(places: Sequence[Place]) -> list[Place]:
    """The same without repetitions: DynamoDB accepts each key once."""
    return list({id(place): place for place in places}.values())


def are_of_one_instant(places: Sequence[Place]) -> bool:
    """Whether one request has read all of them."""
    return all(place.is_read for place in places) and len({place.cut for place in places}) < 2


def _take(places: Sequence[Place], items: Sequence[Item | None], work: Work) -> None:
    found = list(zip(places, items, strict=True))
    changed = [place for place, item in found if place.is_read and not is_as_seen(item, place.seen, work.marks)]
    if changed:
        raise conflict(changed)
    for place, item in found:
        place.cut = work.cuts
        if not place.is_read:
            _take_first(place, item, work)


def _take_first(place: Place, item: Item | None, work: Work) -> None:
    place.before = image = image_of(item, work.marks)
    if place.blind is not None:
        # If it is refused, it stays blind: the unit cannot be committed without it.
        image = place.blind.applied_to(image)
        if image is not None:
            place.table.check_item(image, "statement", VERSION_BYTES)
        place.blind, place.is_written = None, True
    place.seen = None if item is None or work.marks.is_placeholder(item) else item
    place.is_read, place.image = True, image
