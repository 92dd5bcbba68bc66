"""A unit stays that of its process, whatever a child does that was forked within its block."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.forked import another_thread_in, code_of_a_fork, mutexes_of
from kit.units import THREADS_ONLY, Books, Key, Party

from ticketlock import ClientClosed
from ticketlock.units import READ_LOCK, SERIALIZABLE, Isolation, Unit

# A fork is no engine's affair; and a loop does not outlive it.
pytestmark = [pytest.mark.parametrize("units_engine", ["memory"], indirect=True), THREADS_ONLY]

SET, BY_THE_PARENT, BY_THE_CHILD = "SET balance = :n", {":n": 1}, {":n": 7}
LEVELS = pytest.mark.parametrize("isolation", [SERIALIZABLE, READ_LOCK], ids=repr)


@pytest.fixture
def mutexes(ann: Party) -> list[Any]:
    """Those of the units, among them that of the heartbeat."""
    assert ann.units._performer._heartbeat
    return mutexes_of(ann.units)


@LEVELS
@pytest.mark.parametrize("error", [None, ZeroDivisionError()], ids=["without an error", "with an error"])
def test_a_child_that_leaves_its_block_sends_nothing_and_leaves_the_unit_to_its_parent(
    books: Books, ann: Party, account: Key, mutexes: list[Any], isolation: Isolation, error: Exception | None
) -> None:
    unit = ann.begin(isolation=isolation)

    def leaves() -> None:
        assert ann.sends(lambda: unit.__exit__(type(error) if error else None, error, None)) == []

    with unit:
        unit.update(ann.accounts, account, SET, BY_THE_PARENT)
        with another_thread_in(*mutexes):
            assert code_of_a_fork(leaves) == 0
        assert books.marks([account]) == (isolation is READ_LOCK)
    assert books.balance(account) == 1


@LEVELS
def test_a_child_is_refused_every_use_of_the_unit_and_of_a_new_one_even_those_that_send_nothing(
    books: Books, ann: Party, account: Key, other: Key, mutexes: list[Any], isolation: Isolation
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
        with another_thread_in(*mutexes):
            assert code_of_a_fork(tries) == 0
    assert books.balances([account, other]) == [1, 50]


def test_a_child_leaves_the_units_and_a_decorated_call_to_its_parent(
    ann: Party, account: Key, mutexes: list[Any]
) -> None:
    def leaves() -> None:
        assert repr(ann.units)
        assert ann.units.clean({"id": "a"})
        ann.units.close()
        with pytest.raises(ClientClosed, match="forked"):
            transfer()

    @ann.units.transactional()
    def transfer(unit: Unit) -> None:
        unit.update(ann.accounts, account, SET, BY_THE_CHILD)

    with another_thread_in(*mutexes):
        assert code_of_a_fork(leaves) == 0
