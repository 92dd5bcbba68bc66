"""A unit stays that of its process, whatever a child does that was forked within its block."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kit.units import THREADS_ONLY, Books, Key, Party
from units.conftest import PATIENCE_S

from ticketlock import ClientClosed
from ticketlock.units import READ_LOCK, SERIALIZABLE, Isolation

# A fork is no engine's affair; and a loop does not outlive it.
pytestmark = [pytest.mark.parametrize("units_engine", ["memory"], indirect=True), THREADS_ONLY]

SET, BY_THE_PARENT, BY_THE_CHILD = "SET balance = :n", {":n": 1}, {":n": 7}
LEVELS = pytest.mark.parametrize("isolation", [SERIALIZABLE, READ_LOCK], ids=repr)


def code_of_a_fork(act: Callable[[], object]) -> int:
    """The exit code of a child that does this: 0 if nothing was raised, minus SIGALRM if it hangs."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def another_thread_in(mutex: Any) -> Iterator[None]:
    """Within the block another thread holds a mutex: a child has no thread that releases it."""
    has_it, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with mutex:
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


@pytest.fixture
def heartbeats_mutex(ann: Party) -> Any:
    return ann.units._performer._heartbeat._mutex


@LEVELS
@pytest.mark.parametrize("error", [None, ZeroDivisionError()], ids=["without an error", "with an error"])
def test_a_child_that_leaves_its_block_sends_nothing_and_leaves_the_unit_to_its_parent(
    books: Books, ann: Party, account: Key, heartbeats_mutex: Any, isolation: Isolation, error: Exception | None
) -> None:
    unit = ann.begin(isolation=isolation)

    def leaves() -> None:
        assert ann.sends(lambda: unit.__exit__(type(error) if error else None, error, None)) == []

    with unit:
        unit.update(ann.accounts, account, SET, BY_THE_PARENT)
        with another_thread_in(heartbeats_mutex):
            assert code_of_a_fork(leaves) == 0
        assert books.marks([account]) == (isolation is READ_LOCK)
    assert books.balance(account) == 1


@LEVELS
def test_a_child_is_refused_every_use_of_the_unit_and_of_a_new_one_even_those_that_send_nothing(
    books: Books, ann: Party, account: Key, other: Key, heartbeats_mutex: Any, isolation: Isolation
) -> None:
    unit = ann.begin(isolation=isolation)
    uses: list[Callable[[], object]] = [
        unit.__enter__,
        lambda: unit.get(ann.accounts, account),
        lambda: unit.update(ann.accounts, account, SET, BY_THE_CHILD),
        lambda: unit.update(ann.accounts, other, SET, BY_THE_CHILD, blind=True),
        unit.commit,
        unit.rollback,
        unit.save,
        lambda: ann.begin(isolation=isolation).update(ann.accounts, other, SET, BY_THE_CHILD),
    ]

    def tries() -> None:
        for use in uses:
            with pytest.raises(ClientClosed, match="forked"):
                use()

    with unit:
        unit.update(ann.accounts, account, SET, BY_THE_PARENT)
        with another_thread_in(heartbeats_mutex):
            assert code_of_a_fork(tries) == 0
    assert books.balances([account, other]) == [1, 50]
