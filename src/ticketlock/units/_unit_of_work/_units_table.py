"""What performs the steps of units for threads, and keeps the read locks of those that are open."""

import functools
import logging
from collections.abc import Callable
from typing import Any

from ticketlock.errors import TicketLockError
from ticketlock.units._commit import ReadLockLease
from ticketlock.units._records import TIME_CHECK
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork, ending, is_of_steps
from ticketlock.wire import Due, ForkingSteps, Heartbeat, Performer, T, briefly

_log = logging.getLogger("ticketlock")


class UnitsTable(Performer):
    """The units table, and the driver of the requests to all tables."""

    _time_check = TIME_CHECK

    def perform_steps(self, steps: ForkingSteps[T]) -> T:
        return self.drive(self._driver.perform_steps(steps))

    def performer_of(self, unit_of_work: UnitOfWork) -> Callable[[ForkingSteps[Any]], Any]:
        """What performs the steps of one unit, and ends the unit if they are interrupted."""

        def perform(steps: ForkingSteps[T]) -> T:
            try:
                try:
                    # Most statements send nothing.
                    first = next(steps)
                    return self.drive(ending(unit_of_work, self._driver, steps, first))
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    self._keep(unit_of_work)
            except BaseException as error:
                if not is_of_steps(error, steps):
                    # Perhaps before the first step, or while its read locks were handed to the heartbeat.
                    self.drive(self._driver.perform_steps(unit_of_work.end_after_interrupt()))
                    self._keep(unit_of_work)
                raise briefly(error)  # noqa: B904  # the same error

        return perform

    def _keep(self, unit_of_work: UnitOfWork) -> None:
        """Have a unit's read locks renewed from its first statement to its end."""
        kept = unit_of_work.kept
        if kept is None or not self.is_of_this_process:
            # The heartbeat's thread does not exist here; a thread of the parent may have held its mutex at the fork.
            return
        if unit_of_work.state.is_over or not kept._is_watched_on():
            self._heartbeat.forget(kept)
        elif not kept.is_watched:
            kept.is_watched = True
            self._heartbeat.watch(kept)

    @functools.cached_property
    def _heartbeat(self) -> Heartbeat[ReadLockLease]:
        return Heartbeat(self._driver.clocks, self._tend)

    def _tend(self, kept: ReadLockLease, _due: Due) -> None:
        try:
            self.perform_steps(kept.renew())
        except TicketLockError as error:
            _log.warning("the read locks of a unit were not renewed: %s", error)
