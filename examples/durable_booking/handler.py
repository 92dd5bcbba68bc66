"""A durable function that books a table: it reserves, waits for a day, confirms, and is alone for the restaurant then.

Environment: ``LOCK_TABLE``, ``UNITS_TABLE``, ``RESTAURANTS_TABLE``, ``BOOKINGS_TABLE``.
"""

import os
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration

from ticketlock.durable import DurableLocks, LockedStep
from ticketlock.units import Units

locks = DurableLocks(os.environ["LOCK_TABLE"])
units = Units(os.environ["UNITS_TABLE"])
restaurants = units.table(os.environ["RESTAURANTS_TABLE"])
bookings = units.table(os.environ["BOOKINGS_TABLE"])


def reserve(step: LockedStep, name: str, restaurant: str, guest: str) -> str:
    """Take a free table and write the booking, together; once, however often this step runs."""
    with units.begin(name=name, under=step.fence) as unit:
        unit.update(
            restaurants, {"id": restaurant}, "SET tables = tables - :one", {":one": 1}, condition="tables >= :one"
        )
        unit.put(bookings, {"id": name, "restaurant": restaurant, "guest": guest, "status": "reserved"})
    return name


def confirm(step: LockedStep, name: str, booking: str) -> str:
    """Confirm the booking, if the lock is still held."""
    with units.begin(name=name, under=step.fence) as unit:
        unit.update(bookings, {"id": booking}, "SET #status = :is", {":is": "confirmed"}, names={"#status": "status"})
    return "confirmed"


@durable_execution
def handler(event: dict[str, Any], context: DurableContext) -> str:
    """Book a table for a guest: ``{"restaurant": ..., "guest": ...}``."""
    restaurant = event["restaurant"]
    with locks.hold(context, f"restaurant-{restaurant}", record_wait=3_600) as lease:
        booking = lease.step(reserve, lease.unit_name("reserve"), restaurant, event["guest"])
        # The guest may cancel until then. Nothing runs, and no one else books.
        context.wait(Duration.from_days(1))
        return lease.step(confirm, lease.unit_name("confirm"), booking)
