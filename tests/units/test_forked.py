"""A child that was forked within a unit: the unit stays its parent's, in all that the child does."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kit.units import MARK, THREADS_ONLY, Books, Key, Party

from ticketlock import ClientClosed
from ticketlock.units import READ_LOCK, SERIALIZABLE

# A fork is no engine's affair; and a loop does not outlive it.
pytestmark = [pytest.mark.parametrize("units_engine", ["memory"], indirect=True), THREADS_ONLY]

PATIENCE_S = 30
SET, ONE = "SET balance = :n", {":n": 1}
LEVELS = pytest.mark.parametrize("isolation", [SERIALIZABLE, READ_LOCK], ids=str)


def code_of_a_fork(act: Callable[[], object]) -> int:
    """What a child ends with that does this: 0 if nothing was raised, minus SIGALRM if it hangs."""
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
    """Within the block another thread holds it: a child has no thread that releases it."""
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
    made: Any = ann.units
    return made._performer._heartbeat._mutex


@LEVELS
@pytest.mark.parametrize("end", ["well", "error"])
def test_a_child_that_leaves_its_block_ends_silently_and_leaves_the_unit_to_its_parent(
    books: Books, ann: Party, account: Key, heartbeats_mutex: Any, isolation: Any, end: str
) -> None:
    unit = ann.begin(isolation=isolation)
    sent = 0

    def leaves() -> None:
        unit.__exit__(*((None,) * 3 if end == "well" else (ZeroDivisionError, ZeroDivisionError(), None)))
        assert len(ann.line.sent) == sent

    with unit:
        unit.update(ann.accounts, account, SET, ONE)
        sent = len(ann.line.sent)
        with another_thread_in(heartbeats_mutex):
            assert code_of_a_fork(leaves) == 0
        assert (MARK in (books.raw("accounts", account) or {})) is (isolation is READ_LOCK)
    assert books.balance(account) == 1


@LEVELS
def test_a_child_can_do_nothing_with_the_unit_or_with_a_new_one_not_even_what_sends_nothing(
    books: Books, ann: Party, account: Key, other: Key, heartbeats_mutex: Any, isolation: Any
) -> None:
    unit = ann.begin(isolation=isolation)
    uses: list[Callable[[], object]] = [
        unit.__enter__,
        lambda: unit.get(ann.accounts, account),
        lambda: unit.update(ann.accounts, account, SET, {":n": 7}),
        lambda: unit.update(ann.accounts, other, SET, {":n": 7}, blind=True),
        unit.commit,
        unit.rollback,
        unit.save,
        lambda: ann.begin(isolation=isolation).update(ann.accounts, other, SET, {":n": 7}),
    ]

    def tries() -> None:
        for use in uses:
            with pytest.raises(ClientClosed, match="forked"):
                use()

    with unit:
        unit.update(ann.accounts, account, SET, ONE)
        with another_thread_in(heartbeats_mutex):
            assert code_of_a_fork(tries) == 0
    assert [books.balance(key) for key in (account, other)] == [1, 50]
