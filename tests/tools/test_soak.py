"""``make soak``, for minutes instead of an hour: its verdicts are correct, and it finds what is broken."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace

import pytest
from clients import Check
from memory_server import memory_server
from soak import judged, judged_hour, judged_life, said, seen_of, waiters
from soak_checker import Left
from soak_client import WORKERS, Life, Lived, Used, read
from soak_crowd import KINDS, Done, Kind
from soak_hour import Scale, hour
from soak_steps import QUICK_S, Soak, Soaked
from soak_steps import judged as judged_steps

from ticketlock.locks import _conditions
from ticketlock.locks._queue import Queue

pytestmark = [
    pytest.mark.shows("liveness"),
    pytest.mark.verify("tests the tool; `make test` has a short soak"),
]

SHORT = Scale(minutes=1, locks=6, machines=10)


def broken(checks: Iterable[Check]) -> list[str]:
    return [check.text for check in checks if not check.kept]


def test_traffic_from_many_machines_with_faults_and_crashes_keeps_every_promise_and_leaves_nothing() -> None:
    seen = hour(SHORT)
    assert seen.broken == ()
    assert broken(judged_hour(seen)) == []
    assert seen.grants > 100
    assert seen.happened["requests that met a fault"] > 0


def test_a_waiter_that_ignores_the_waiters_before_it_is_found_to_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    def finds_room(self: Queue, *_: object) -> bool:
        return self.item is not None and self.item.room(self.claim.mode) > 0

    monkeypatch.setattr(Queue, "may_enter", finds_room)
    assert any("no overtaking" in told for told in hour(SHORT).broken)


def test_a_newcomer_that_ignores_the_waiters_is_found_to_overtake_without_a_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_conditions, "NO_WAITER_IS_COUNTED", "waiting >= :zero")
    assert any("no overtaking" in told for told in hour(SHORT).broken)


@pytest.mark.always("the guarantees name it: no waiter starves")
def test_waiters_of_two_processes_each_get_their_turn_and_leave_nothing() -> None:
    assert broken(judged("10 waiters", waiters(10), asked=10, locks=1)) == []


def test_hand_overs_while_transactions_are_applied_item_by_item_leave_no_lock_idle_and_no_row() -> None:
    seen = Soak(QUICK_S).run()
    assert broken(judged_steps(seen)) == []
    assert seen.failed == []


def test_a_lock_that_is_idle_for_a_lease_and_what_is_left_are_found() -> None:
    became = Counter({"grants": 90, "closed": 9, "cancelled": 9, "record waits over": 9})
    seen = Soaked(60, became, handed=20, longest_idle_s=20.5, rows=1)
    assert broken(judged_steps(seen)) == [
        "no lock is idle for 1.5 s while someone waits for it",
        "no row is left, and no holder",
    ]


def test_a_run_without_a_grant_reports_why() -> None:
    with pytest.raises(SystemExit, match="the table has gone"):
        seen_of([Done(failed=["the table has gone"])], Left(locks=0, rows=0, held=0, waiting=0, holders=0))


def test_one_process_that_fails_ends_the_others() -> None:
    began = time.monotonic()
    with memory_server() as endpoint, pytest.raises(SystemExit, match="has failed"):
        said("soak_client.py", [asdict(Life(endpoint, "locks", "threads", seconds=120)), {"no": "life"}])
    assert time.monotonic() - began < 60


STEADY = Used(threads=20, files=30, traced_kib=9_000, rss_kib=90_000, remembered=40)
WELL = Lived(cycles=9_000, gave_up=100, failed=[], first=STEADY, last=STEADY, closed=replace(STEADY, threads=1))


def test_a_client_that_neither_fails_nor_grows_passes() -> None:
    assert broken(judged_life("threads", WELL, seconds=60)) == []


@pytest.mark.parametrize(
    ("life", "fault"),
    [
        (replace(WELL, failed=["LockLost()"]), "no worker fails"),
        (replace(WELL, cycles=WORKERS), "it takes locks all along"),
        (replace(WELL, last=replace(STEADY, traced_kib=20_000)), "memory does not grow"),
        (replace(WELL, last=replace(STEADY, threads=22)), "threads do not grow"),
        (replace(WELL, last=replace(STEADY, files=32)), "files do not grow"),
        (replace(WELL, last=replace(STEADY, remembered=4_000)), "what is remembered is bounded"),
        (replace(WELL, closed=replace(STEADY, threads=2)), "no thread outlives the client"),
    ],
)
def test_leaks_of_a_long_run_are_found(life: Lived, fault: str) -> None:
    assert broken(judged_life("threads", life, seconds=60)) == [f"life, threads: {fault}"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_whose_workers_all_fail_says_so_and_comes_to_its_end(kind: Kind) -> None:
    with memory_server() as endpoint:
        (printed,) = said("soak_client.py", [asdict(Life(endpoint, "no-table", kind, seconds=120))])
    life = read(printed)
    assert len(life.failed) == WORKERS
    assert f"life, {kind}: no worker fails" in broken(judged_life(kind, life, seconds=120))
