"""The ``with`` blocks of held locks, and which of them a caller is inside of. No I/O.

A lease is an object: any thread or task may use and release it. So who once acquired it does not tell who would wait
for itself. That tells only a block that the caller has entered and not left:

- the same task has entered it, or the same thread where no task runs: not the parent of a task, not another thread;
- it is visible in the present context: web frameworks run requests in copies of theirs, on one pool thread in turn;
- in a thread, the calls under way say so. A pool's thread runs one job after another from one place of its loop, often
  in one context: a job that has entered a block and returned has left it to another.
"""

import sys
import threading
from collections.abc import Iterable
from contextvars import ContextVar
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import FrameType
from typing import Any

_entered: ContextVar[tuple["Block", ...]] = ContextVar("ticketlock_blocks", default=())

_Calls = tuple[tuple[FrameType, int], ...]
"""The calls under way, the innermost first, each with the instruction at which it is."""

_OURS = ("ticketlock.client._base_lease", "ticketlock.client._lease", "ticketlock.client._lock", __name__)
_OF_STACKS = ("enter_context", "enter_async_context")
_OF_CONTEXTLIB = ("__enter__", "__aenter__", *_OF_STACKS)
_GENERATOR = CO_GENERATOR | CO_ASYNC_GENERATOR


def running() -> object:
    """The task that runs, or this thread if none does: the Thread object, since thread ids are reused."""
    # Not imported for it: without asyncio there is no task. AttributeError: another thread is importing it.
    asyncio = sys.modules.get("asyncio")
    try:
        task = asyncio.current_task() if asyncio is not None else None
    except (AttributeError, RuntimeError):
        task = None
    return task if task is not None else threading.current_thread()


class Block:
    """One block that a task or thread has entered.

    Attributes:
        lease: what it holds; None once it was left.
        who: the task or thread.
        is_open: whether it was not left.
    """

    def __init__(self, lease: Any) -> None:
        self.lease = lease
        self.who = running()
        self.is_open = True
        calls = _calls()
        by = _entering(calls)
        self._is_in_a_stack = any(frame.f_code.co_name in _OF_STACKS for frame, _ in calls[:by])
        # Frames, not their ids, which are reused; kept while the block is open. Only those of others: ours refer to the
        # lease, and have ended.
        self._calls = tuple([call for call in calls if not _is_between(call[0])])
        self._by = sum(not _is_between(frame) for frame, _ in calls[:by])

    @property
    def holds(self) -> bool:
        """Whether it was not left, and its lease not released within it."""
        lease = self.lease
        return lease is not None and lease._may_be_held()

    def enter(self) -> None:
        """Make it visible in this context."""
        _entered.set((*_still_open(_entered.get()), self))

    def leave(self) -> None:
        """End it, wherever it is visible."""
        self.is_open = False
        self.lease = None
        self._calls = ()
        # No token of the variable: another context, which has a copy, may be the one that leaves.
        _entered.set(_still_open(_entered.get()))

    def is_around(self, now: _Calls) -> bool:
        """Whether a thread that makes these calls is inside of it."""
        frames = dict(now)
        for number, (frame, entered_at) in enumerate(self._calls):
            if frame in frames:
                return (
                    number < self._by
                    or frames[frame] != entered_at
                    # A loop that enters one exit stack again and again is inside of all that it has entered.
                    or (number == self._by and self._is_in_a_stack)
                )
        return False

    def distance(self, now: _Calls) -> float:
        """How many of the calls that have entered it have ended since."""
        frames = {frame for frame, _ in now}
        return next((number for number, (frame, _) in enumerate(self._calls) if frame in frames), float("inf"))


class Caller:
    """Who acquires a lock.

    Attributes:
        who: the task, or the thread where no task runs.
        blocks: those that it is inside of, the innermost last.
        left_open: other blocks that it has entered, visible in this context: it may have left them to others, or not.
    """

    def __init__(self) -> None:
        self.who = running()
        entered = _entered.get()
        still_open = _still_open(entered)
        if len(still_open) < len(entered):
            _entered.set(still_open)
        own = [block for block in still_open if block.who is self.who]
        now = _calls() if own and isinstance(self.who, threading.Thread) else None
        self.blocks = [block for block in own if now is None or block.is_around(now)]
        self.left_open = [block for block in own if block not in self.blocks]

    @property
    def is_a_task(self) -> bool:
        """Whether it is a task."""
        return not isinstance(self.who, threading.Thread)


def nearest(blocks: Iterable[Block]) -> Block | None:
    """Of several open blocks the one that is being left here: that of this very function, if it has entered one."""
    every = [block for block in blocks if block.is_open]
    if len(every) < 2:
        return every[0] if every else None
    now, who, visible = _calls(), running(), _entered.get()

    def far(block: Block) -> tuple[float, bool, bool]:
        return block.distance(now), block not in visible, block.who is not who

    # The last of those that are equally near.
    return min(reversed(every), key=far)


def _still_open(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    # A list: a generator that an interrupt ends would leave the variable's tuple half read.
    return tuple([block for block in blocks if block.holds])


def _calls() -> _Calls:
    """Those of the caller's caller: the caller keeps them, and would keep itself."""
    frame: FrameType | None = sys._getframe(2)
    calls = []
    while frame is not None:
        calls.append((frame, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)


def _entering(calls: _Calls) -> int:
    """Which of the calls has the block: not those that only pass it on to their callers."""
    for number, (frame, _) in enumerate(calls):
        if _is_between(frame):
            continue
        caller = calls[number + 1][0] if number + 1 < len(calls) else None
        is_a_managers = caller is not None and caller.f_globals.get("__name__") == "contextlib"
        if not (frame.f_code.co_flags & _GENERATOR and is_a_managers):
            return number
    return len(calls)


def _is_between(frame: FrameType) -> bool:
    """Whether it is ours, or one of contextlib, which only passes the block on."""
    name = frame.f_globals.get("__name__")
    return name in _OURS or (name == "contextlib" and frame.f_code.co_name in _OF_CONTEXTLIB)
