"""The steps of one unit, from its first statement to its end, and what performs them for threads."""

from ticketlock.units._unit_of_work._evaluating import Evaluated
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork, ending, is_of_steps
from ticketlock.units._unit_of_work._units_table import UnitsTable
