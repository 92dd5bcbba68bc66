"""The units' own table, and what reaches all others, for threads."""

from collections.abc import Callable
from typing import Any

from ticketlock.errors import TicketLockError
from ticketlock.units._interrupts import ending
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._verbs import Verbs
from ticketlock.wire._actions import T
from ticketlock.wire._performer import Performer
from ticketlock.wire._requests import ForkingSteps


class UnitsTable(Performer):
    """The units' own table, and what reaches all others."""

    _time_check = TIME_CHECK

    def follow(self, steps: ForkingSteps[T]) -> T:
        """Perform what steps ask for."""
        return self.drive(self._driver.follow(steps))

    def follows(self, verbs: Verbs) -> Callable[[ForkingSteps[Any]], Any]:
        """What performs the steps of one unit, which is over where they are interrupted."""

        def follow(steps: ForkingSteps[T]) -> T:
            try:
                return self.drive(ending(verbs, self._driver, steps))
            except TicketLockError:
                raise
            except BaseException:
                # Perhaps before its first step.
                verbs.abandon()
                raise

        return follow
