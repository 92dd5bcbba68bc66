"""While a release that grants the lock to the next waiter is being applied: its items change one after the other."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.places import Moved, meanwhile, outcome, until

from ticketlock import Claim, ClientClosed, Grant, LockName, LockTable, Place, Position
from ticketlock.client._acquire import Waits, leave
from ticketlock.client._waiters import WaitKey, lines_of_this_process
from ticketlock.errors import RequestNotApplied
from ticketlock.locks._hand_over import Next, release_to
from ticketlock.locks._protocol import Contender
from ticketlock.testing import InSteps, ManualClock, MemoryDynamoDB

LOCK = LockName("order-42")
UNTIL_HALF = 4
"""Both items are reserved, the transaction is decided, and one item is changed."""
FIRST: dict[str, Callable[[int], int]] = {"lock item first": lambda _: 0, "row first": lambda left: left - 1}
SLOW: dict[str, Any] = {"check_every": (100, 100), "lease": 600}


class Halfway:
    """A holder's release to a waiter, half of which is applied; the rest follows when another request is retried."""

    def __init__(self, memory: MemoryDynamoDB, clock: ManualClock) -> None:
        self.memory = memory
        self.table = LockTable("locks", client=memory.client, clocks=clock, sleep=lambda _: self._finishes())
        held, self.claim = (Claim(LOCK, owner, 60_000) for owner in ("alice", "bob"))
        grant, joined = self.table.take_ticket(held, None), self.table.take_ticket(self.claim, None)
        assert isinstance(grant, Grant)
        assert isinstance(joined, Position)
        seen = self.table.check_turn(self.claim, joined.place, None)
        assert isinstance(seen, Position)
        self.place: Place = seen.place
        request = next(release_to(Contender(held, self.table.now()), grant, Next(self.claim, seen)))
        sent: Any = next(request.calls("locks", "alice's release"))
        self.release: InSteps = memory.in_steps("transact_write_items", **sent.parameters)
        for _ in range(UNTIL_HALF):
            assert self.release.step()

    def _finishes(self) -> None:
        while self.release.step():
            pass

    @property
    def left(self) -> tuple[list[str], int]:
        """Who holds the lock, and how many rows there are."""
        self._finishes()
        state = self.table.inspect(LOCK)
        assert state.item is not None
        return [each.owner for each in state.item.holders], len(state.rows)


@pytest.fixture(params=FIRST)
def halfway(memory: MemoryDynamoDB, clock: ManualClock, request: pytest.FixtureRequest) -> Halfway:
    memory.comes_next = FIRST[request.param]
    return Halfway(memory, clock)


def test_a_poll_of_the_waiter_finds_the_grant_and_writes_no_second_row(halfway: Halfway) -> None:
    found = halfway.table.check_turn(halfway.claim, halfway.place, None)
    assert isinstance(found, Grant), found
    assert halfway.left == (["bob"], 0)


def test_a_waiter_whose_record_wait_ends_gets_the_grant(halfway: Halfway) -> None:
    won = halfway.table.withdraw(halfway.claim, halfway.place.ticket)
    assert won is not None
    assert halfway.left == (["bob"], 0)


def test_a_waiter_that_is_interrupted_releases_the_grant(halfway: Halfway) -> None:
    halfway.table.contend(halfway.claim, lambda me: leave(me, {halfway.place.ticket}))
    assert halfway.left == ([], 0)


def test_a_waiter_that_is_interrupted_while_its_row_is_being_written_leaves_none(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    joins: list[InSteps] = []
    table = LockTable("locks", client=memory.client, clocks=clock, sleep=lambda _: [each.step() for each in joins])
    claim = Claim(LOCK, "bob", 60_000)
    table.take_ticket(replace(claim, owner="alice"), None)
    waiting = Contender(claim, table.now())
    # The row comes too late for its ticket: another ticket and its row are one transaction.
    steps = waiting.join()
    steps.send(table.perform(next(steps)))
    request = steps.send(table.perform(steps.throw(RequestNotApplied("throttled"))))
    sent: Any = next(request.calls("locks", "bob joins"))
    joins.append(memory.in_steps("transact_write_items", **sent.parameters))
    joins[0].step()
    assert waiting.last_ticket is not None
    table.contend(claim, lambda me: leave(me, {waiting.last_ticket or 0}))
    assert joins[0].is_over
    assert table.inspect(LOCK).rows == ()


class Half:
    """Applies half of the next release that grants the lock, and the rest when it is let go on."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self._memory = memory
        self._performs = memory.transact_write_items
        self.is_applied, self.goes_on, self.is_met = threading.Event(), threading.Event(), threading.Event()

    def transact_write_items(self, **parameters: Any) -> Any:
        if self.is_applied.is_set():
            try:
                return self._performs(**parameters)
            except ClientError:
                self.is_met.set()
                raise
        release = self._memory.in_steps("transact_write_items", **parameters)
        for _ in range(UNTIL_HALF):
            release.step()
        self.is_applied.set()
        self.goes_on.wait(20)
        return release.finish()


def _is_next(waits: Waits | None) -> bool:
    """Whether it sleeps after a poll that found it next in line; until then its sleeps end at once."""
    if waits is not None and waits.following is None:
        waits.wake()
    return waits is not None and waits.following is not None


@pytest.mark.parametrize("first", FIRST)
def test_a_client_that_is_closed_meanwhile_leaves_neither_a_row_nor_a_holder(
    moved: Moved, entity: str, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    moved.memory.comes_next = FIRST[first]
    lease, locks = moved.client(**SLOW).acquire(entity), moved.client(**SLOW)
    waiting = meanwhile(lambda: locks.acquire(entity))
    line = WaitKey(moved.table.identity, LockName(entity))
    until(lambda: _is_next(lines_of_this_process().first(line)), "its poll")
    half = Half(moved.memory)
    monkeypatch.setattr(moved.memory, "transact_write_items", half.transact_write_items)
    releasing = meanwhile(lease.release)
    until(half.is_applied.is_set, "half of the release")
    closing = meanwhile(locks.close)
    # It waits for the end of the release, or has left too early.
    until(lambda: half.is_met.is_set() or waiting.done(), "the end of the wait")
    half.goes_on.set()
    for done in (releasing, closing):
        outcome(done)
    with pytest.raises(ClientClosed):
        outcome(waiting)
    state = moved.table.inspect(LockName(entity))
    assert state.item is not None
    assert (state.item.holders, state.rows) == ((), ())
