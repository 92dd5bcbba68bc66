"""What an operator is told of a lock: whether its holders renew, who is stuck, and what to do next."""

from collections.abc import Callable

import pytest
from cli.seen import printed

from ticketlock import Claim, Grant, LockName, LockState, LockTable
from ticketlock.cli._reading import FreeLocks
from ticketlock.cli._show import Listed, state_tables
from ticketlock.cli._verdicts import judge
from ticketlock.testing import ManualClock, MemoryDynamoDB

LOCK = LockName("order-42")


class Desk:
    """A lock in memory, and what is done with it, in words: a minute's leases for holders, an hour's for waiters."""

    def __init__(self, permits: int = 1) -> None:
        self._clock = clock = ManualClock()
        self.table = LockTable("locks", client=MemoryDynamoDB(clock=clock).client, clocks=clock, sleep=clock.sleep)
        self._permits = permits
        self._held: list[tuple[Claim, int]] = []
        self._waiters = 0

    def do(self, words: str) -> LockState:
        """Words of ``done``, or seconds that pass; then what is read of the lock."""
        done: dict[str, Callable[[], object]] = {
            "hold": self._hold,
            "wait": self._wait,
            "leave": lambda: self.table.remove_waiter(LOCK, self.table.inspect(LOCK).rows[0].ticket),
            "renew": lambda: self.table.renew(*self._held[-1]),
            "release": lambda: self.table.force_release(LOCK, self._held.pop()[1]),
            "close": lambda: self.table.set_limit(LOCK, 0),
        }
        for word in words.split(", "):
            self._clock.advance(float(word[:-2])) if word.endswith(" s") else done[word]()
        return self.table.inspect(LOCK, to_the_end=False)

    def _hold(self) -> None:
        claim = Claim(LOCK, f"holder {len(self._held)}", 60_000, permits=self._permits)
        found = self.table.take_ticket(claim, None)
        assert isinstance(found, Grant)
        self._held.append((claim, found.fencing_token))

    def _wait(self) -> None:
        self._waiters += 1
        self.table.take_ticket(Claim(LOCK, f"waiter {self._waiters}", 3_600_000, permits=self._permits), None)


@pytest.mark.parametrize(
    ("words", "verdict", "for_s"),
    [
        ("hold", "granted", 0),
        ("hold, 33 s", "granted", 33),
        ("hold, 39 s", "silent", 39),
        ("hold, 30 s, renew, 33 s", "renewing", 33),
        ("hold, 30 s, renew, 39 s", "silent", 39),
        ("hold, 30 s, renew, 59 s", "silent", 59),
        ("hold, 65 s", "expired", 5),
        ("hold, release", "free", None),
        ("hold, close", "granted", 0),
        ("hold, release, close", "closed", None),
    ],
)
def test_a_holder_is_silent_once_a_renewal_is_overdue_and_expired_at_the_end_of_its_lease(
    words: str, verdict: str, for_s: int | None
) -> None:
    found = judge(Desk().do(words)).verdict
    assert found.word == verdict
    # The holder has counted its lease from the latest time that it may have been.
    assert found.for_ms is None if for_s is None else for_s - 3 < (found.for_ms or 0) / 1_000 <= for_s


@pytest.mark.parametrize(
    ("words", "step", "is_stuck"),
    [
        ("hold, 39 s", "nothing", False),
        ("hold, wait, 30 s", "wait", False),
        ("hold, 1 s, release, hold, wait, 30 s, renew, 30 s, renew, 5 s", "check its work", True),
        ("hold, wait, 39 s", "wait out lease", True),
        ("hold, wait, 65 s", "next takes it", False),
        ("hold, wait, 125 s", "run doctor", True),
        ("hold, wait, close", "ask who closed", True),
        ("hold, wait, close, release", "ask who closed", True),
        ("hold, wait, release", "next takes it", False),
        ("hold, release, close", "nothing", False),
        ("hold, 65 s", "nothing", False),
    ],
)
def test_what_to_do_next_depends_on_the_verdict_and_on_whether_someone_waits(
    words: str, step: str, is_stuck: bool
) -> None:
    state = Desk().do(words)
    found = judge(state)
    assert (found.next.value, found.is_stuck) == (step, is_stuck)
    has_a_sentence = any(line.startswith("next: ") for line in printed(state_tables(LOCK, state)))
    assert has_a_sentence == (step != "nothing" or found.verdict.word == "expired")


def test_the_worst_of_several_holders_counts_and_a_free_place_counts_only_if_it_is_not_taken() -> None:
    desk = Desk(permits=3)
    state = desk.do("hold, hold, 20 s, hold, 19 s, wait")
    found = judge(state)
    assert found.holder is not None
    assert (found.verdict.word, found.alike, found.holder.owner) == ("silent", 2, "holder 0")
    # Not from the others, too.
    taken_away = f"ticketlock release order-42 --force --fencing-token {found.holder.fencing_token}"
    assert taken_away in " ".join(printed(state_tables(LOCK, state)))
    assert judge(desk.do("release")).verdict.word == "free"


def test_a_lock_that_stays_free_for_the_same_first_waiter_is_stuck_after_a_minute() -> None:
    desk, free = Desk(), FreeLocks()
    told = []
    for words in ("hold, wait, wait, release", "5 s", "56 s", "leave"):
        state = desk.do(words)
        (lock,) = desk.table.list_locks()
        (line,) = free.judge([Listed(lock, state)])
        told.append((line.judged.verdict.word, line.judged.verdict.for_ms, line.judged.is_stuck))
    assert told[:3] == [("free", None, False), ("free", 5_000, False), ("free", 61_000, True)]
    assert told[3:] == [("free", None, False)]
