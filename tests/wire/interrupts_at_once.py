"""A program: interrupts a performer that sends several requests at once, at each opcode or by real signals.

    python -m wire.interrupts_at_once opcodes|signals own|pool

It ends with an error if an interrupt leaves it waiting, or is replaced by another error. With ``pool`` the requests are
sent by a thread pool instead.
"""

import faulthandler
import itertools
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from kit.opcodes import OF_THREADS, AtOpcode

from ticketlock import LockTable
from ticketlock.testing import MemoryDynamoDB
from ticketlock.wire import _performer
from ticketlock.wire._actions import Actions, Call, Fork

PATIENCE_S = 10
SIGNALS = 1_500
DESCRIBE = Call("dynamodb", "describe_table", {"TableName": "locks"})


class Interrupt(BaseException):
    """What a signal handler raises."""


class Requests:
    """Several at once.

    Attributes:
        begun, ended: how many of them have.
    """

    def __init__(self, count: int) -> None:
        self.begun: list[None] = []
        self.ended: list[None] = []
        self._count = count

    def __call__(self) -> Actions[None]:
        yield Fork(tuple(self._one() for _ in range(self._count)))

    def _one(self) -> Actions[None]:
        self.begun.append(None)
        try:
            yield DESCRIBE
        finally:
            self.ended.append(None)


def interrupt(*_: object) -> None:
    raise Interrupt


def at_opcodes(table: LockTable) -> None:
    """Interrupt it once at each opcode of the performer, and of the libraries in which it waits."""
    for number in itertools.count(1):
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        requests = Requests(4)
        with suppress(Interrupt), AtOpcode(number, interrupt, OF_THREADS) as at:
            table.drive(requests())
        assert len(requests.begun) == len(requests.ended), number
        if at.passed < number:
            break
    assert number > 100


def by_signals(table: LockTable) -> None:
    """Interrupt it by timers."""
    is_armed = False

    def raise_once(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise Interrupt

    # Python only reports an exception of a handler that interrupts the callback of a weak reference.
    sys.unraisablehook = lambda _: None
    signal.signal(signal.SIGALRM, raise_once)
    chance, interrupted = random.Random(1), 0
    while interrupted < SIGNALS:
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        requests = Requests(12)
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, 0.004))
            table.drive(requests())
            is_armed = False
        except Interrupt:
            interrupted += 1
        assert len(requests.begun) == len(requests.ended), interrupted


def pooled(works: Sequence[Callable[[], Any]], most: int) -> list[Any]:
    """As ``at_once``."""
    with ThreadPoolExecutor(min(most, len(works))) as pool:
        return list(pool.map(lambda work: work(), works))


def main(how: str, threads: str) -> None:
    if threads == "pool":
        vars(_performer)["at_once"] = pooled
    table = LockTable("locks", client=MemoryDynamoDB().client)
    {"opcodes": at_opcodes, "signals": by_signals}[how](table)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        # Without waiting for a pool whose threads wait for ever.
        os._exit(1)
