"""Runs several pieces of work at once, for a thread that a signal handler may interrupt anywhere.

The locks of ``threading`` and of thread pools are objects in Python: an exception between two of their opcodes leaves
them taken, and everyone who needs them waits for ever. The caller of ``at_once`` enters no such code: it starts threads
without waiting for their start, and waits on a queue that is implemented in C.
"""

import _thread
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from ticketlock.wire._actions import T


def at_once(works: Sequence[Callable[[], T]], most: int) -> list[T]:
    """What each piece of work returns, in their order.

    If one fails, or the caller is interrupted, those that have not begun never begin; the exception is raised once the
    others have ended. A second interrupt is raised at once.

    Args:
        most: how many run at the same time.

    Raises:
        BaseException: of the pieces that failed, the error of the first one.
        RuntimeError: a thread cannot be started.
    """
    left = deque(range(len(works)))
    returned: dict[int, T] = {}
    raised: dict[int, BaseException] = {}
    never_begun: list[int] = []
    # One entry for each piece that has ended. It only ends a wait: an interrupt may lose it.
    ended: SimpleQueue[None] = SimpleQueue()

    def run() -> None:
        while left:
            try:
                at = left.popleft()
            except IndexError:
                # Another thread was faster.
                return
            try:
                returned[at] = works[at]()
            except BaseException as error:
                give_up()
                raised[at] = error
            ended.put(None)

    def give_up() -> None:
        while left:
            try:
                never_begun.append(left.popleft())
            except IndexError:
                return

    def wait() -> None:
        while len(returned) + len(raised) + len(never_begun) < len(works):
            ended.get()

    try:
        for _ in range(min(most, len(works))):
            _thread.start_new_thread(run, ())
        wait()
    except BaseException:
        give_up()
        wait()
        raise
    if raised:
        raise raised[min(raised)]
    return [returned[at] for at in range(len(works))]
