"""Books a trip in the states of a workflow, in one unit: the last state writes everything, or nothing is written."""

import json
import os
from typing import Any

from ticketlock.units import Unit, Units, unit_name, unit_owner

units = Units(os.environ["UNITS_TABLE"])
offers = units.table(os.environ["OFFERS_TABLE"])
travellers = units.table(os.environ["TRAVELLERS_TABLE"])
bookings = units.table(os.environ["BOOKINGS_TABLE"])


def take_seat(event: dict[str, Any], _context: Any) -> str:
    """Begin the unit. A retry begins another one of the same name: one of them can be committed."""
    with units.begin(name=unit_name(event["execution"], "booking")) as unit:
        _take(unit, event["trip"]["flight"])
        unit.put(bookings, {"id": event["execution"], "flight": event["trip"]["flight"]})
        return _hand_on(unit, event)


def take_room(event: dict[str, Any], _context: Any) -> str:
    """Add the room. A retry after the save adds nothing: its step is in the unit's record."""
    hotel = event["trip"]["hotel"]
    with units.resume(event["unit"], step="room") as unit:
        _take(unit, hotel)
        unit.update(bookings, {"id": event["execution"]}, "SET hotel = :hotel", {":hotel": hotel})
        return _hand_on(unit, event)


def pay(event: dict[str, Any], _context: Any) -> None:
    """Commit it, at the end of the block. A retry after the commit writes nothing."""
    print(json.dumps(event))
    trip = event["trip"]
    with units.resume(event["unit"]) as unit:
        unit.update(
            travellers,
            {"id": trip["traveller"]},
            "SET balance = balance - :price",
            {":price": trip["price"]},
            condition="balance >= :price",
        )


def let_go(event: dict[str, Any], _context: Any) -> str:
    """Roll it back, which may be repeated; no state has written anything that must be undone."""
    return units.rollback(event["unit"]).value


def _take(unit: Unit, offer: str) -> None:
    unit.update(offers, {"id": offer}, "SET places = places - :one", {":one": 1}, condition="places >= :one")


def _hand_on(unit: Unit, event: dict[str, Any]) -> str:
    """Save it until the next state, or until the execution ends."""
    print(json.dumps(event))
    return unit.save(owner=unit_owner(event["execution"], event["redrives"]))
