"""What a signal handler raises in the midst of a unit, or a cancellation: the unit is over, and leaves nothing."""

from ticketlock.errors import TicketLockError
from ticketlock.units._verbs import Verbs
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import ForkingSteps


def ending(verbs: Verbs, driver: Driver, steps: ForkingSteps[T]) -> Actions[T]:
    """Steps of a unit, to their end; or to its own, where anything is raised that is no answer to them.

    What was raised goes on, whatever becomes of the unit.
    """
    try:
        return (yield from driver.follow(steps))
    except (TicketLockError, GeneratorExit):
        raise
    except BaseException:
        yield from driver.follow(verbs.give_up())
        raise
