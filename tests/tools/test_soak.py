"""The soaks that ``make soak`` runs, for seconds: their verdicts are correct, and they find what is broken."""

from argparse import Namespace
from collections import Counter
from typing import Any

import pytest
from frame import Run
from peers.sides import Stay
from soak_clients import LIFE_S, WORKERS, Soaked, Turn, Used, judge_life, judge_waiters, waiters
from soak_steps import Soaked as SoakedInSteps
from soak_steps import judge
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.emulator import Emulator
from units_soak import soak

from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("tests the tool; `make test` has a short soak")


@pytest.mark.shows("liveness")
@pytest.mark.always("the guarantees name it: no waiter starves")
def test_waiters_in_threads_and_tasks_each_get_their_turn_and_leave_nothing() -> None:
    run = Run()
    waiters(run, 10)
    assert run.checks
    assert run.failed == []


def test_an_overtaken_waiter_a_missing_one_a_token_and_a_row_that_is_left_are_found() -> None:
    stays = [Stay(1, stood_s=0, granted_s=9), Stay(2, stood_s=1, granted_s=5), Stay(3, stood_s=2, granted_s=6)]
    turns = [Turn(stay, began_s=0, token=7) for stay in stays]
    run = Run()
    judge_waiters(run, 4, Soaked("", turns=turns), [{"held": {"N": "1"}}, {}])
    assert run.failed == [
        "4 waiters: every waiter gets the lock",
        "4 waiters: no one is overtaken more than once",
        "4 waiters: tokens rise from grant to grant",
        "4 waiters: only the lock item is left, and no holder",
    ]


def test_a_lock_that_is_idle_for_a_lease_and_what_is_left_are_found() -> None:
    run = Run()
    became = Counter({"grants": 90, "closed": 9, "cancelled": 9, "record waits over": 9})
    judge(run, SoakedInSteps(became, handed=20, longest_idle_s=20.5, rows=1))
    assert run.failed == ["no lock is idle for 1.5 s while someone waits for it", "no row is left, and no holder"]


STEADY = Used(threads=15, files=30, kib=9_000, entries=40)
CLOSED = Used(threads=0, files=20, kib=9_000, entries=0)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({}, []),
        ({"failed": ["LockLost()"]}, ["life: a worker fails: LockLost()"]),
        ({"granted": WORKERS}, ["life: seconds of a worker for a lock: at most 10"]),
        ({"last": STEADY._replace(kib=20_000)}, ["life: KiB more at the end: at most 2048"]),
        ({"last": STEADY._replace(threads=17)}, ["life: threads more at the end: at most 1"]),
        ({"last": STEADY._replace(files=32)}, ["life: files more at the end: at most 1"]),
        ({"last": STEADY._replace(entries=4_000)}, ["life: what is remembered is bounded"]),
        ({"closed": CLOSED._replace(threads=1)}, ["life: no thread outlives the clients"]),
    ],
)
def test_what_fails_or_grows_in_a_long_life_is_found(change: dict[str, Any], failed: list[str]) -> None:
    found = {"granted": 9_000, "failed": [], "last": STEADY, "closed": CLOSED, **change}
    run, soaked = Run(Namespace(quick=False)), Soaked("", granted=found["granted"], failed=found["failed"])
    judge_life(run, soaked, LIFE_S, STEADY, found["last"], found["closed"])
    assert run.failed == failed


def test_lost_and_left_over_items_are_found(emulator: Emulator) -> None:
    run, soaked = Run(), soak(emulator.endpoint, total=60, processes=3, a_second=10)
    client: Any = make_client(**client_arguments(emulator.endpoint))
    mark = {"M": {"unit": {"S": "unknown"}, "kind": {"S": "write"}}}
    client.put_item(
        TableName=soaked.plan.table("accounts"),
        Item={"id": {"S": "account-0-0"}, "balance": {"N": "0"}, "_tluMark": mark},
    )
    soaked.judge(run)
    assert run.failed == [
        "the sum is kept",
        "each account holds what the committed units have moved",
        "no mark is left",
    ]
