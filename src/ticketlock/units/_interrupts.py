"""Ends a unit if a signal handler raises within one of its methods, or a task is cancelled there."""

from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

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
        if is_of_steps(error, steps):
            raise
        yield from driver.follow(verbs.give_up())
        raise


def is_of_steps(error: BaseException, steps: ForkingSteps[Any]) -> bool:
    """Whether an error is the steps' own. A signal handler may raise such an error as well, if it has used the unit."""
    return isinstance(error, TicketLockError) and getgeneratorstate(steps) == GEN_CLOSED
