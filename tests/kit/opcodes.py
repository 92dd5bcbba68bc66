"""Runs something at one opcode of ticketlock's own code, or of libraries in which it waits, as a signal handler may."""

import concurrent.futures
import dis
import gc
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ticketlock

_ROOT = Path(ticketlock.__file__).parent
OF_A_LOCK = ("client", "locks", "wire")
OF_A_UNIT = ("units", "wire", "_expressions")
_FUTURES = Path(concurrent.futures.__file__).parent
OF_THREADS = ("wire/_performer.py", _FUTURES, threading.__file__, queue.__file__)
"""What starts threads and waits for them. Signal handlers run in Python's own libraries, too."""


class AtOpcode:
    """Within the block, something is run at the n-th opcode of this thread in the files of some rooms: folders or files
    of ticketlock, or absolute paths.

    Four kinds of opcodes are left out, since no code can guard them, and the interpreter runs no handler there (it does
    so after calls, at the beginning of functions and at backward jumps): a NOP, as a ``try`` begins with, which no
    handler covers; those between the last one of a ``with``
    block and its ``__exit__`` (https://bugs.python.org/issue29988); a return, after which the caller owns the result,
    but for one right after a call of C code, such as that of a lock's ``__enter__``; and the first and the last opcode
    of an ``except`` block, after which the thread would handle the caught exception for ever.

    Attributes:
        passed: how many opcodes were executed.
        where: the function in which it was run.
    """

    def __init__(self, number: int, do: Callable[[], object], rooms: Iterable[str | Path] = OF_A_LOCK) -> None:
        self.passed = 0
        self.where = ""
        self._rooms = tuple(str(_ROOT / room) for room in rooms)
        assert all(Path(room).exists() for room in self._rooms), f"no opcode would be in one of {self._rooms}"
        self._number = number
        self._do = do
        self._last: FrameType | None = None

    def __enter__(self) -> "AtOpcode":
        # Garbage that is collected here belongs to earlier work, and exceptions in it are ignored.
        self._collects = gc.isenabled()
        gc.disable()
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        if self._collects:
            gc.enable()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        # Calls of Python code come here whatever its file.
        before, self._last = self._last, frame
        if not frame.f_code.co_filename.startswith(self._rooms):
            return None
        # The function first: Python 3.12 and newer enable the events of opcodes only in a frame that has one.
        frame.f_trace = self._trace
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event in ("call", "opcode") and not self._is_left_out(frame, calls_c=before is frame):
            self.passed += 1
            if self.passed == self._number:
                self.where = frame.f_code.co_qualname
                self._do()
        return self._trace

    def _is_left_out(self, frame: FrameType, *, calls_c: bool) -> bool:
        left_out, after_calls = _left_out(frame.f_code)
        return frame.f_lasti in left_out or (frame.f_lasti in after_calls and not calls_c)


@cache
def _left_out(code: CodeType) -> tuple[frozenset[int], frozenset[int]]:
    """Where a code object has what is left out; and its returns right after calls, left out unless of C code."""
    found = list(dis.get_instructions(code))
    exits = {each.offset for each in found if each.opname in ("NOP", "PUSH_EXC_INFO", "POP_EXCEPT")}
    returns = {each.offset: before for before, each in pairwise(found) if each.opname.startswith("RETURN_")}
    after_calls = {at for at, before in returns.items() if before.opname.startswith("CALL")}
    exits |= returns.keys() - after_calls
    for at, first in enumerate(found):
        nones = found[at : at + 3]
        if len(nones) == 3 and all(each.opname == "LOAD_CONST" and each.argval is None for each in nones):
            calls = [each for each in found[at + 3 : at + 5] if each.opname in ("PRECALL", "CALL")]
            if calls:
                # What the block returns is saved first.
                before = found[at - 1] if at and found[at - 1].opname == "SWAP" else first
                exits.update(range(before.offset, calls[-1].offset + 1))
    return frozenset(exits), frozenset(after_calls)
