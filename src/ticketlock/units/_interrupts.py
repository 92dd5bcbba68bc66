"""What a signal handler raises in the midst of a unit, or a cancellation: the unit is over, and leaves nothing."""

from inspect import GEN_CLOSED, getgeneratorstate

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
    except GeneratorExit:
        raise
    except BaseException as error:
        if isinstance(error, TicketLockError) and getgeneratorstate(steps) == GEN_CLOSED:
            # Of the steps' own. A signal handler may raise such an error, too: it may have used the unit.
            raise
        yield from driver.follow(verbs.give_up())
        raise
