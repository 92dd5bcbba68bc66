"""The acquisitions and releases in progress in the threads of one client, whose close waits for them."""

import threading
import time
from collections.abc import Generator
from inspect import GEN_CLOSED, GEN_CREATED, getgeneratorstate
from typing import Any
from weakref import ReferenceType, ref

from ticketlock.locks import LockTable
from ticketlock.wire import Actions, OwnProcess, T, briefly

_MOST_TRACKED = 1_000
_ACQUISITION_LEAVES_WITHIN_S = 2.0
# More than the time for which one request is retried.
_RELEASE_ENDS_WITHIN_S = 10.0
_CHECKS_EVERY_S = 0.005


_Began = dict[int, tuple[ReferenceType[Generator[Any, Any, Any]], int, float]]


class UnderWay:
    """Acquisitions and releases in progress, in all threads.

    Each is tracked by its generator, which is closed however it ends. So no entry has to be removed, and no exception
    from a signal handler can prevent that. Entries of generators that are gone are dropped now and then.
    """

    def __init__(self, table: LockTable) -> None:
        self._table = table
        self._process = OwnProcess()
        # Re-entrant: a signal handler that closes the client may interrupt the thread that has this mutex.
        self._mutex = threading.RLock()
        # By the generator's id, which a later generator may have again: the generator, its thread, its limit.
        self._began: _Began = {}

    def acquisition(self, actions: Actions[T]) -> Actions[T]:
        """Track an acquisition: closing the client waits up to 2 s for it to leave the queue."""
        self._process.check()
        return self._followed(actions, _ACQUISITION_LEAVES_WITHIN_S)

    def release(self, actions: Actions[None]) -> None:
        """Perform a release, even if an interrupt comes before it has begun; closing the client waits for it.

        Raises:
            ClientClosed: this process was forked from the one that created the client.
        """
        try:
            # Before any mutex: a thread of the parent may have held it at the fork, and does not exist here.
            self._process.check()
            self._table.drive(self._followed(actions, _RELEASE_ENDS_WITHIN_S))
        except BaseException as error:
            if self._process.is_this and getgeneratorstate(actions) == GEN_CREATED:
                self._table.drive(actions)
            raise briefly(error)  # noqa: B904  # the same error

    def wait_for_others(self) -> None:
        """Wait until everything that other threads have begun has ended, or its time limit has passed."""
        began_s = time.monotonic()
        while any(time.monotonic() < began_s + within_s for within_s in self._of_others()):
            time.sleep(_CHECKS_EVERY_S)

    def _followed(self, actions: Actions[T], within_s: float) -> Actions[T]:
        with self._mutex:
            if len(self._began) >= _MOST_TRACKED:
                self._began = _of_living(self._began)
            self._began[id(actions)] = ref(actions), threading.get_ident(), within_s
        return actions

    def _of_others(self) -> list[float]:
        with self._mutex:
            began = list(self._began.values())
        return [
            within_s
            for each, thread, within_s in began
            if thread != threading.get_ident()
            and (actions := each()) is not None
            and getgeneratorstate(actions) not in (GEN_CREATED, GEN_CLOSED)
        ]


def _of_living(began: _Began) -> _Began:
    return {key: each for key, each in list(began.items()) if each[0]() is not None}
