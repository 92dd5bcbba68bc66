"""Ends a unit if a signal handler raises within one of its methods, or a task is cancelled there."""

from inspect import GEN_CLOSED, getgeneratorstate

from ticketlock.errors import TicketLockError
from ticketlock.units._verbs import Verbs
from ticketlock.wire._actions import Actions, T
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import ForkingSteps


def ending(verbs: Verbs, driver: Driver, steps: ForkingSteps[T]) -> Actions[T]:
    """Perform steps of a unit. If anything else than their own error is raised meanwhile, end the unit.

    The exception is raised again, with every outcome of the unit.
    """
    try:
        return (yield from driver.follow(steps))
    except GeneratorExit:
        raise
    except BaseException as error:
        if isinstance(error, TicketLockError) and getgeneratorstate(steps) == GEN_CLOSED:
            # The steps' own error. A signal handler may raise such an error as well, if it has used the unit.
            raise
        yield from driver.follow(verbs.give_up())
        raise
