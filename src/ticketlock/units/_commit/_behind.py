"""Finishes the items of committed units behind their callers, in a thread."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from ticketlock.errors import CommittedUnfinished, TicketLockError
from ticketlock.wire import ForkingSteps, OwnProcess, raise_if_foreign, says_that_no_thread_starts

MOST_BEHIND = 16
"""How many units are finished behind their callers at a time, all of one ``Units``; the next one finishes its items
before it returns."""

_CHECK_AGAIN_S = 0.2
"""How often a call that waits looks for the thread, which may have died."""

_log = logging.getLogger("ticketlock")


def log_unfinished(error: TicketLockError) -> None:
    """Log what stays unfinished: the caller, to whom it would be raised, has gone on."""
    level = logging.ERROR if isinstance(error, CommittedUnfinished) else logging.WARNING
    _log.log(level, "a committed unit is not finished: %s", error)


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    """What one call makes of a unit that it wants to finish, in a thread."""

    thread: int = field(default_factory=threading.get_ident)


@dataclass(slots=True, eq=False)
class _Work:
    """A unit to be finished.

    Attributes:
        claims: those of the calls that want to finish it: the first one does.
        is_over: whether it is finished, or has failed.
        ends: for each call that waits for it, a queue that gets an entry then.
    """

    steps: ForkingSteps[None]
    claims: list[_Claim] = field(default_factory=list)
    is_over: bool = False
    ends: list[SimpleQueue[None]] = field(default_factory=list)

    def is_claimed_with(self, claim: _Claim) -> bool:
        """Claim it; return whether the claim is the first one."""
        self.claims.append(claim)
        return self.claims[0] is claim


class BehindThreads:
    """Finishes units one after the other, in a thread that ends after the last one; a program that ends waits for it.

    A signal handler may interrupt every call between any two opcodes, and hand over units or wait itself. So no call
    takes a mutex: who is to finish a unit is decided by one operation of a list, which nothing interrupts.

    Args:
        perform: performs the steps that finish a unit.
    """

    def __init__(self, perform: Callable[[ForkingSteps[None]], object]) -> None:
        self._perform = perform
        self._process = OwnProcess()
        self._under_way: deque[_Work] = deque()
        # Those that look for units before they end.
        self._threads: list[int] = []

    def __call__(self, steps: ForkingSteps[None]) -> bool:
        """Finish a unit behind its caller; return whether there is room, and a thread for it."""
        count = sum(not work.is_over for work in self._under_way.copy())
        # Once the main thread has ended, the program does not wait for new threads.
        if count >= MOST_BEHIND or not threading.main_thread().is_alive():
            return False
        work = _Work(steps)
        self._under_way.append(work)
        if self._threads:
            return True
        try:
            # Also if the caller is a daemon: a program that ends waits for it.
            threading.Thread(target=self._finish_all, name="ticketlock-finishing", daemon=False).start()
        except BaseException as error:
            is_taken_back = work.is_claimed_with(_Claim())
            if is_taken_back:
                self._ends(work)
            if says_that_no_thread_starts(error):
                return not is_taken_back
            raise
        return True

    def wait(self) -> None:
        """Wait until the units that were handed over before are finished, or have failed.

        Without a thread they are finished here. A call that has interrupted the finishing of a unit in its own thread,
        as a handler of signals or of log records may, does not wait for that unit.
        """
        if not self._process.is_this:
            return
        for work in self._under_way.copy():
            ends = SimpleQueue[None]()
            work.ends.append(ends)
            while not work.is_over and not self._is_being_finished_here(work):
                if self._threads or work.claims:
                    with suppress(Empty):
                        ends.get(timeout=_CHECK_AGAIN_S)
                else:
                    self._finish(work)

    def _is_being_finished_here(self, work: _Work) -> bool:
        return bool(work.claims) and work.claims[0].thread == threading.get_ident()

    def _finish_all(self) -> None:
        this = threading.get_ident()
        while self._left():
            self._threads.append(this)
            try:
                self._finish_what_is_left()
            finally:
                # Who has handed over a unit since the last look has seen this thread: look once more.
                self._threads.remove(this)

    def _finish_what_is_left(self) -> None:
        while left := self._left():
            try:
                self._finish(left[0])
            except BaseException:
                # One unit must not keep the others from being finished.
                _log.exception("a committed unit is not finished")

    def _left(self) -> list[_Work]:
        return [work for work in self._under_way.copy() if not work.claims]

    def _finish(self, work: _Work) -> None:
        """Finish a unit, unless another call does."""
        claim = _Claim()
        try:
            if work.is_claimed_with(claim):
                self._perform(work.steps)
        except TicketLockError as error:
            raise_if_foreign(error)
            log_unfinished(error)
        finally:
            try:
                self._ends_with(claim, work)
            finally:
                # Twice: an interrupt may end the first one.
                self._ends_with(claim, work)

    def _ends_with(self, claim: _Claim, work: _Work) -> None:
        if work.claims[:1] == [claim]:
            self._ends(work)

    def _ends(self, work: _Work) -> None:
        work.is_over = True
        with suppress(ValueError):
            self._under_way.remove(work)
        for ends in list(work.ends):
            ends.put(None)
