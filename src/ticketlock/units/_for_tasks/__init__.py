"""Units of work for tasks."""

from ticketlock.units._for_tasks._unit import Unit, UnitClient
from ticketlock.units._for_tasks._units import Units
