"""Children that are forked from a process whose other threads hold mutexes."""

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any

PATIENCE_S = 30
_MUTEX = type(threading.RLock())


def code_of_a_fork(act: Callable[[], object]) -> int:
    """The exit code of a child that does this: 0 if nothing was raised, minus SIGALRM if it hangs."""
    child = os.fork()
    if child == 0:
        end_in_time()
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def end_in_time() -> None:
    """End this process by SIGALRM if it hangs."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE_S)


@contextmanager
def another_thread_in(*mutexes: Any) -> Iterator[None]:
    """Within the block another thread holds these mutexes: a child has no thread that releases them."""
    has_it, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as held:
            for mutex in mutexes:
                held.enter_context(mutex)
            has_it.set()
            may_go.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    has_it.wait()
    try:
        yield
    finally:
        may_go.set()
        holding.join()


def mutexes_of(*owners: object) -> list[Any]:
    """The mutexes that are reached from these objects of ours, through their attributes and containers."""
    found, seen, left = list[Any](), set[int](), list[object](owners)
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType):
            continue
        seen.add(id(each))
        if isinstance(each, _MUTEX):
            found.append(each)
        elif isinstance(each, dict | list | tuple | set) or _is_ours(each):
            left.extend(gc.get_referents(each))
    return found


def _is_ours(each: object) -> bool:
    module = type(each).__module__
    return module.startswith("ticketlock.") and not module.startswith("ticketlock.testing")
