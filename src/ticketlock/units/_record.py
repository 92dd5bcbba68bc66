"""The record of a saved unit, as the coordinator that has resumed it uses it."""

import logging
from dataclasses import replace

from ticketlock.errors import (
    ConditionFailed,
    LockLost,
    TableError,
    TicketLockError,
    UnitConflict,
    UnitContended,
    UnitRolledBack,
)
from ticketlock.units._commit import name_refused
from ticketlock.units._ended import ended
from ticketlock.units._finishing import close
from ticketlock.units._heads import Head, Heads
from ticketlock.units._rows import Receipt, read_receipt
from ticketlock.wire._answers import Reply
from ticketlock.wire._requests import ForkingSteps, Pause, Together
from ticketlock.wire._table_time import Moment

_log = logging.getLogger("ticketlock")

_OTHERS_MAY_CAUSE = (ConditionFailed, LockLost, UnitConflict, UnitContended, UnitRolledBack)


class SavedRecord:
    """One saved unit's record.

    Args:
        head: as this coordinator has claimed it.
        heads: the records of units.
    """

    def __init__(self, head: Head, heads: Heads) -> None:
        self._head, self._heads = head, heads

    def roll_back(self) -> ForkingSteps[None]:
        """End it, if it still belongs to this coordinator.

        Raises:
            UnitChanged: another coordinator has resumed it.
            UnitForgotten: there is no record of it any more.
            TableError: it is not known whether it was ended.
        """
        now: Moment = (yield Pause(0)).now
        reply: Reply = yield self._heads.end_saved(self._head, "rolledBack", now.latest_ms)
        if not reply.applied and not isinstance(error := ended(reply.item, self._head.unit), UnitRolledBack):
            raise error
        yield from self.forget()

    def explain(self, error: TicketLockError, name: str | None, seen: Receipt) -> ForkingSteps[None]:
        """Raise the reason that the record or the name shows, in place of an error that it may have caused.

        Such an error tells the caller to run the unit again; but another coordinator may have committed it.

        Args:
            error: the error of the commit.
            name: of the unit, if it has one.
            seen: the receipt of the name as the unit has seen it.

        Raises:
            UnitChanged, UnitRolledBack, UnitForgotten: as ``check_is_mine`` and ``check_name``.
        """
        if isinstance(error, _OTHERS_MAY_CAUSE):
            yield from self.check_is_mine(error)
        if name is not None and isinstance(error, UnitConflict | UnitRolledBack):
            try:
                yield from self.check_name(name, seen)
            except TableError as failed:
                _log.debug("the name of the unit %s was not checked: %s", self._head.unit, failed)

    def check_is_mine(self, error: TicketLockError) -> ForkingSteps[None]:
        """Check that no other coordinator of the same unit is the cause of an error.

        Args:
            error: the error of the commit.

        Raises:
            UnitChanged, UnitRolledBack, UnitForgotten: the record does not belong to this coordinator any more.
        """
        try:
            reply: Reply = yield self._heads.read(self._head.unit)
        except TableError:
            return
        head = Head.of(reply.item) if reply.item is not None else None
        if head is None or head.state != "pending" or head.rev != self._head.rev:
            raise ended(reply.item, self._head.unit) from error

    def check_name(self, name: str, seen: Receipt) -> ForkingSteps[None]:
        """End it if its name was used or given up since: no coordinator could commit it any more.

        Args:
            seen: the receipt of the name as the unit has seen it.

        Raises:
            UnitRolledBack: the name was used or given up.
            UnitChanged: it was, and another coordinator has resumed the unit.
            UnitForgotten: it was, and there is no record of the unit any more.
            TableError: the name could not be read.
        """
        reply: Reply = yield read_receipt(self._heads.table, name)
        if seen.still_lets(Receipt.of(reply.item)):
            return
        try:
            yield from self.roll_back()
        except TableError as error:
            _log.warning("the saved unit %s has lost its name, and its record stays open: %s", self._head.unit, error)
        raise name_refused(name)

    def forget(self) -> ForkingSteps[None]:
        """Delete its rows after its end, and let time to live delete its head; if that fails, a sweep does it."""
        if not self._head.pieces:
            return
        try:
            now: Moment = (yield Pause(0)).now
            yield from close(self._heads, replace(self._head, is_closed=True), now.latest_ms)
        except TableError as error:
            _log.warning("the record of the saved unit %s is not forgotten yet: %s", self._head.unit, error)

    def forget_rows(self) -> ForkingSteps[None]:
        """Delete the rows of the previous save after a new one; if that fails, time to live deletes them."""
        rows = tuple(self._heads.delete_piece(self._head, at) for at in range(self._head.pieces))
        if rows:
            yield Together(rows)
