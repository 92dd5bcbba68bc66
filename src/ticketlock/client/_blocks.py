"""The ``with`` blocks of held locks, and which of them a caller is inside of. No I/O.

A lease is an object: any thread or task may use and release it. So who once acquired it does not tell who would wait
for itself. That tells only a block that the caller is inside of:

- the same task has entered it, or the same thread where no task runs: not the parent of a task, not another thread;
- the function whose ``with`` has entered it is among the calls under way, and has gone on since. What was entered by
  hand, as frameworks do for their requests, is an object, whichever function called ``__enter__``;
- or the function that keeps the exit stack is, and the stack still has the block: ``pop_all`` hands it on.
"""

import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from opcode import opmap
from types import FrameType
from typing import Any
from weakref import ref

_OURS = (
    __name__,
    *(f"ticketlock.client.{name}" for name in ("_base_lease", "_lease", "_lock")),
    *(f"ticketlock.client._for_tasks.{name}" for name in ("_acquiring", "_lease", "_lock")),
)
_ENTERING_STACKS = ("enter_context", "enter_async_context")
_OF_LOOPS = ("asyncio", "concurrent", "threading")
_GENERATOR = CO_GENERATOR | CO_ASYNC_GENERATOR

# What a frame executes while it enters a block: BEFORE_WITH up to Python 3.13, later the call of what LOAD_SPECIAL has
# found; for `async with` the SEND to the awaitable that GET_AWAITABLE 1 has made.
_CACHE, _CALL, _SEND = opmap["CACHE"], opmap["CALL"], opmap["SEND"]
_BEFORE_WITH, _LOAD_SPECIAL = opmap.get("BEFORE_WITH", -1), opmap.get("LOAD_SPECIAL", -1)
_GET_AWAITABLE, _EXTENDED_ARG, _AFTER_AENTER = opmap["GET_AWAITABLE"], opmap["EXTENDED_ARG"], 1


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

    Args:
        within: the function whose block it is; by default that of the ``with`` that is entering it.
    """

    def __init__(self, lease: Any, within: FrameType | None = None) -> None:
        self.lease = lease
        self.who = running()
        self.is_open = True
        # Frames of functions that are in a `with` of theirs. No others: a frame keeps its variables alive, such as a
        # generator that has to end, and with it the block.
        frame = within if within is not None else _first_of_others()
        self._statement = frame if frame is not None and _enters(frame) else None
        self._owner: FrameType | None = None
        self._keeper: FrameType | None = None
        self._stack: ref[Any] | None = None
        self._manager: ref[Any] | None = None
        for each in _outward(frame):
            if _is_of_a_manager(each):
                continue
            if each is within or _enters(each):
                self._owner, self._entered_at = each, each.f_lasti
                break
            if self._keeper is None and _is_contextlibs(each) and each.f_code.co_name in _ENTERING_STACKS:
                self._is_entered_by(each)

    def _is_entered_by(self, frame: FrameType) -> None:
        """Note the exit stack that is entering it, and who keeps that."""
        stack, manager = frame.f_locals["self"], frame.f_locals["cm"]
        # A manager that has no weak references counts as entered by hand.
        with suppress(TypeError):
            self._stack, self._manager = ref(stack), ref(manager)
            keepers = [each for each in _outward(frame.f_back) if _has(each, stack)]
            self._keeper = keepers[-1] if keepers and not _is_of_a_manager(keepers[-1]) else None

    @property
    def holds(self) -> bool:
        """Whether it was not left, and its lease not released within it."""
        lease = self.lease
        return lease is not None and lease._may_be_held()

    def enter(self) -> None:
        """From now on callers find it."""
        key = id(self)
        _open[key] = ref(self, lambda _: _open.pop(key, None))

    def leave(self) -> None:
        """End it."""
        self.is_open = False
        self.lease = self._statement = self._owner = self._keeper = None
        _open.pop(id(self), None)

    def is_around(self, calls: Collection[FrameType]) -> bool:
        """Whether who makes these calls is inside of it."""
        owner, keeper = self._owner, self._keeper
        if owner is not None and owner in calls and owner.f_lasti != self._entered_at:
            return True
        stack = self._stack() if self._stack is not None else None
        # One variable of a loop keeps one stack after the other.
        return keeper is not None and keeper in calls and self._is_on(stack) and _has(keeper, stack)

    def _is_on(self, stack: Any) -> bool:
        manager = self._manager() if self._manager is not None else None
        exits = getattr(stack, "_exit_callbacks", ())
        return manager is not None and any(getattr(each, "__self__", None) is manager for _, each in exits)

    def is_left_by(self, frame: FrameType | None, stack: Any) -> bool:
        """Whether the ``with`` of this function, or this exit stack, has entered it."""
        if self._statement is not None:
            return self._statement is frame
        return stack is not None and self._stack is not None and self._stack() is stack

    @property
    def is_left_elsewhere(self) -> bool:
        """Whether only a ``with`` leaves it, in its function."""
        return self._statement is not None


_open: dict[int, ref[Block]] = {}


class Caller:
    """Who acquires a lock.

    Attributes:
        who: the task, or the thread where no task runs.
        blocks: those that it is inside of, the innermost last.
        left_open: other blocks that may wait for it: it has entered them, and may have left them to others or not; or
            another has, in a function that waits for this one.
    """

    def __init__(self) -> None:
        self.who = running()
        self.blocks: list[Block] = []
        self.left_open: list[Block] = []
        # Copied in one step: other threads enter and leave blocks.
        every = [block for each in list(_open.values()) if (block := each()) is not None and block.holds]
        if not every:
            return
        calls = set[FrameType]()
        frame: FrameType | None = sys._getframe(1)
        # No generator: the calls under way may be many.
        while frame is not None:
            calls.add(frame)
            frame = frame.f_back
        for block in every:
            is_around, is_own = block.is_around(calls), block.who is self.who
            if is_around and is_own:
                self.blocks.append(block)
            elif is_around or is_own:
                self.left_open.append(block)

    @property
    def is_a_task(self) -> bool:
        """Whether it is a task."""
        return not isinstance(self.who, threading.Thread)


def being_left(blocks: Iterable[Block]) -> Block | None:
    """Of several open blocks the one that is being left here.

    It is the last one that the same ``with``, or the same exit stack, has entered. Otherwise it is left by hand: then
    one whose lease is lost anyway comes first, then the last one of this task or thread.
    """
    every = [block for block in blocks if block.is_open]
    if len(every) < 2:
        return every[0] if every else None
    frame, who = _first_of_others(), running()
    stack = frame.f_locals.get("self") if frame is not None and _is_contextlibs(frame) else None

    def fits(block: Block) -> tuple[bool, bool, bool, bool]:
        return (
            block.is_left_by(frame, stack),
            not block.is_left_elsewhere,
            not block.holds,
            block.who is who,
        )

    return max(reversed(every), key=fits)


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_of_others() -> FrameType | None:
    """The innermost call under way that is not ours."""
    return next((each for each in _outward(sys._getframe(1)) if each.f_globals.get("__name__") not in _OURS), None)


def _has(frame: FrameType, value: object) -> bool:
    """Whether a variable of a function is an object.

    Up to Python 3.12 a frame keeps the variables that it was asked for; so not in the loops of pools.
    """
    is_a_loop = frame.f_globals.get("__name__", "").partition(".")[0] in _OF_LOOPS
    return not is_a_loop and any(each is value for each in list(frame.f_locals.values()))


def _is_contextlibs(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "contextlib"


def _is_of_a_manager(frame: FrameType) -> bool:
    """Whether it is a generator under ``contextmanager``: what it enters is around the block of its user."""
    caller = frame.f_back
    return bool(frame.f_code.co_flags & _GENERATOR) and caller is not None and _is_contextlibs(caller)


def _enters(frame: FrameType) -> bool:
    """Whether the instruction that it executes enters the block of a ``with`` or ``async with``."""
    code = frame.f_code.co_code

    def before(at: int) -> int:
        at -= 2
        while at > 0 and code[at] == _CACHE:
            at -= 2
        return at

    # Calls may leave it at their last cache entry.
    at = before(frame.f_lasti + 2)
    if code[at] == _CALL:
        return code[before(at)] == _LOAD_SPECIAL
    if code[at] == _SEND:
        at = before(before(at))
        while code[at] == _EXTENDED_ARG:
            at = before(at)
        return code[at] == _GET_AWAITABLE and code[at + 1] == _AFTER_AENTER
    return code[at] == _BEFORE_WITH
