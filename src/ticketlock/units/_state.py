"""Whether a unit is open or how it has ended. It runs one method at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ticketlock.errors import ClientClosed, InvalidUnitRequest, TicketLockError, UnitFinished
from ticketlock.wire._driver import OwnProcess

UnitState = Literal["open", "committing", "committed", "rolled back", "saved", "unknown"]
_IN_WORDS = {"committing": "being committed", "unknown": "over, and its outcome unknown"}


class Life:
    """The state of one unit.

    Attributes:
        state: open, or how it has ended.
        is_reported: whether its commit has raised an error, so that the caller knows that it was not committed.
    """

    def __init__(self, unit: str) -> None:
        self.state: UnitState = "open"
        self.is_reported = False
        self._unit = unit
        self._process = OwnProcess()
        self._in_use = threading.Lock()
        self._has_refused = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended: committed, rolled back, saved, or with an unknown outcome."""
        return self.state not in ("open", "committing")

    @property
    def may_run_again(self) -> bool:
        """Whether nothing of it was written, and nothing will be."""
        return self.state in ("open", "rolled back")

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was begun in this process, and not in one that this was forked from."""
        return self._process.is_this

    def check_process(self) -> None:
        """Refuse to continue in a forked child.

        Raises:
            ClientClosed: this is one.
        """
        if not self.is_of_this_process:
            raise ClientClosed(
                f"the unit {self._unit} belongs to the process that this one was forked from: "
                "make `Units` here, and begin another"
            )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block one method is running: a statement of a second one would be lost.

        Raises:
            InvalidUnitRequest: another method is running, in another thread or task, or under a signal handler.
            UnitFinished: the unit has ended.
            ClientClosed: this process was forked from the one that has begun it.
        """
        # Before the lock: a thread of the parent that held it at the fork does not exist here to release it.
        self.check_process()
        if not self._in_use.acquire(blocking=False):
            self.check_open()
            self._has_refused = True
            allowed = "a unit for one thread or task at a time: one of its methods is under way, await that first"
            raise InvalidUnitRequest("unit", self._unit, allowed)
        try:
            self.check_open()
            yield
        finally:
            self._in_use.release()

    def check_open(self) -> None:
        """Refuse to continue after the end.

        Raises:
            UnitFinished: says how the unit has ended.
        """
        if self.state != "open":
            then = "`resume` continues it" if self.state == "saved" else "begin another"
            raise UnitFinished(f"the unit {self._unit} is {self.in_words}: {then}")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Within the block the caller commits the unit; note whether an error says that it was not committed."""
        try:
            yield
        except TicketLockError:
            self.is_reported = self.state != "open"
            raise

    def check_can_end(self) -> None:
        """Refuse to end a block beside a method that still runs, if a call was refused for it already.

        Raises:
            UnitFinished: the caller has caught that refusal, and not awaited the method.
        """
        if self._has_refused and self._in_use.locked():
            raise UnitFinished(
                f"the block has ended while a method of its unit {self._unit} was under way, beside which another call "
                "was refused: the unit is rolled back; await each call before the next"
            )

    def check_committed_or_reported(self) -> None:
        """Refuse to end a block without an error if its unit was not committed and its commit has raised no error.

        Raises:
            UnitFinished: says how the unit has ended.
        """
        if self.state not in ("committed", "saved") and not self.is_reported:
            raise UnitFinished(
                f"the block has ended without an error, but its unit {self._unit} is {self.in_words}: what has "
                "ended it, a conflict, an interrupt or a cancellation in one of its methods, was caught in the block"
            )

    @property
    def in_words(self) -> str:
        """The state, as a message shows it."""
        return _IN_WORDS.get(self.state, self.state)
