"""What runs a unit again: its tries, its turn, its name."""

from ticketlock.units._again._passing import NOT_IN_TIME, Lines, PlaceInLine
from ticketlock.units._again._queueing import Turns
from ticketlock.units._again._transactional import (
    AGAIN,
    TRANSACTIONAL,
    PayloadOf,
    TransactionalArguments,
    UnitDecorator,
    UnitFunction,
    UnitMethod,
    check_has_parentheses,
)
from ticketlock.units._again._turns import Contended, Locks, PlaceInTurn, ThreadLocks, check_locks
from ticketlock.units._again._unit_name import unit_name, unit_owner
