"""Sends the requests of units, for threads."""

import functools
import logging
from collections.abc import Callable
from typing import Any

from ticketlock.errors import TicketLockError
from ticketlock.units._interrupts import ending, is_of_steps
from ticketlock.units._keeping import Kept
from ticketlock.units._rows import TIME_CHECK
from ticketlock.units._verbs import Verbs
from ticketlock.wire._actions import T
from ticketlock.wire._heartbeat import Due, Heartbeat
from ticketlock.wire._performer import Performer
from ticketlock.wire._requests import ForkingSteps

_log = logging.getLogger("ticketlock")


class UnitsTable(Performer):
    """The units table, and the driver of the requests to all tables."""

    _time_check = TIME_CHECK

    def follow(self, steps: ForkingSteps[T]) -> T:
        """Perform steps."""
        return self.drive(self._driver.follow(steps))

    def follows(self, verbs: Verbs) -> Callable[[ForkingSteps[Any]], Any]:
        """What performs the steps of one unit, and ends the unit if they are interrupted."""

        def follow(steps: ForkingSteps[T]) -> T:
            try:
                try:
                    return self.drive(ending(verbs, self._driver, steps))
                finally:
                    self._keep(verbs)
            except BaseException as error:
                if not is_of_steps(error, steps):
                    # Perhaps before the first step, or while its read locks were handed to the heartbeat.
                    self.drive(self._driver.follow(verbs.give_up()))
                    self._keep(verbs)
                raise

        return follow

    def _keep(self, verbs: Verbs) -> None:
        """Have a unit's read locks renewed from its first statement to its end."""
        kept = verbs.kept
        if kept is None or not self._driver.is_of_this_process:
            # The heartbeat's thread does not exist here; a thread of the parent may have held its mutex at the fork.
            return
        if verbs.life.is_over or not kept._is_watched_on():
            self._heartbeat.forget(kept)
        elif not kept.is_watched:
            kept.is_watched = True
            self._heartbeat.watch(kept)

    @functools.cached_property
    def _heartbeat(self) -> Heartbeat[Kept]:
        return Heartbeat(self._driver.clocks, self._tend)

    def _tend(self, kept: Kept, _due: Due) -> None:
        try:
            self.follow(kept.renew())
        except TicketLockError as error:
            _log.warning("the read locks of a unit were not renewed: %s", error)
