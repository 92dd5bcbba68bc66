"""The demo's verdict on executions as they would be read from their event histories."""

from typing import Any

import pytest
from ticketlock_local.demo.checks import judge, overtakings
from ticketlock_local.demo.executions import Execution

from ticketlock import LockState
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.verify("tests no part of the product")

NOW = Moment(local_ms=0, earliest_ms=0, latest_ms=0, wall_ms=0)


def done(name: str, place: int, *, ticket: int | None = None, **other: Any) -> Execution:
    """The execution that held as number ``place`` and worked for one second of its two."""
    began = place * 2_000
    story: dict[str, Any] = {
        "name": name,
        "entity": "order-42",
        "status": "SUCCEEDED",
        "ticket": place if ticket is None else ticket,
        "standings": ((100, 60_000),),
        "fencing_token": 100 + place,
        "work_started_ms": began,
        "work_ended_ms": began + 1_000,
    }
    return Execution(**story | other)


def lock(*, holders: tuple[Holder, ...] = (), rows: tuple[Row, ...] = (), waiting: int = 0) -> LockState:
    item = LockItem(
        issued=9,
        waiting=waiting,
        ticket_at_ms=0,
        void_up_to=0,
        fencing_token=9,
        permits=1,
        held=len(holders),
        mean_hold_ms=None,
        holders=holders,
    )
    return LockState(item=item, rows=rows, now=NOW)


def test_executions_one_after_the_other_in_ticket_order_pass() -> None:
    verdict = judge([done("a", 1), done("b", 2), done("c", 3)], {"order-42": lock()})
    assert (verdict.passed, verdict.failures, verdict.slips) == (True, (), ())


def test_works_that_touch_but_do_not_overlap_pass() -> None:
    assert judge([done("a", 1), done("b", 2, work_started_ms=3_000)], {}).passed


def test_works_of_one_entity_that_overlap_fail() -> None:
    verdict = judge([done("a", 1), done("b", 2, work_started_ms=2_999)], {})
    assert verdict.failures == ("exclusion: b (token 102) held order-42 beside a (token 101), for 1 ms",)


def test_works_of_different_entities_may_overlap() -> None:
    assert judge([done("a", 1), done("b", 1, entity="order-7")], {}).passed


def test_a_fencing_token_that_does_not_rise_fails() -> None:
    verdict = judge([done("a", 1), done("b", 2, fencing_token=101)], {})
    assert verdict.failures == ("fencing: a (token 101) and b (token 101) were granted the same token",)


def test_a_grant_that_polled_after_one_with_a_greater_token_fails() -> None:
    verdict = judge([done("a", 1, granted_ms=9_500, polled_ms=9_000), done("b", 2)], {})
    assert "fencing: a (token 101) was granted after b (token 102), whose token is greater" in verdict.failures


def test_being_overtaken_once_is_a_slip_and_passes() -> None:
    verdict = judge([done("a", 1), done("b", 2, ticket=3), done("c", 3, ticket=2)], {})
    assert (verdict.passed, verdict.slips) == (
        True,
        ("c (token 103) was overtaken by b (token 102), perhaps while its row was in the queue",),
    )


def test_being_overtaken_twice_fails() -> None:
    verdict = judge([done("a", 1), done("b", 2, ticket=3), done("c", 3, ticket=4), done("d", 4, ticket=2)], {})
    assert verdict.failures == (
        "no overtaking: d (token 104) was overtaken by b (token 102), c (token 103), though its row was in the queue",
    )


def test_being_passed_by_a_grant_that_polled_after_the_row_was_written_fails() -> None:
    verdict = judge([done("a", 1, ticket=2, polled_ms=101), done("b", 2, ticket=1)], {})
    assert verdict.failures == (
        "no overtaking: b (token 102) was overtaken by a (token 101), though its row was in the queue",
    )


def test_overtakings_are_counted_whether_a_row_stood_or_not() -> None:
    runs = [done("a", 1, ticket=2, standings=()), done("b", 2, ticket=3), done("c", 3, ticket=1, standings=())]
    assert overtakings(runs) == {"c": 2}


def test_a_missing_ticket_is_not_mistaken_for_a_number() -> None:
    assert not overtakings([done("a", 1), Execution(name="b", ticket=None, fencing_token=102), done("c", 3)])


@pytest.mark.parametrize("status", ["FAILED", "ABORTED", "TIMED_OUT", "RUNNING"])
def test_an_execution_that_did_not_succeed_fails(status: str) -> None:
    (failure,) = judge([done("a", 1, status=status, error="LockLost: why")], {}).failures
    assert failure == f"a ended as {status} LockLost: why"


def test_an_execution_without_the_times_of_its_work_fails() -> None:
    assert not judge([done("a", 1, work_ended_ms=None)], {}).passed


def test_a_holder_that_is_left_fails() -> None:
    holder = Holder(owner="a", fencing_token=9, lease_until_ms=0, since_ms=0, data=None)
    assert judge([], {"order-42": lock(holders=(holder,))}).failures == ("nothing left: order-42: holder: 1",)


def test_a_queue_row_and_its_count_that_are_left_fail() -> None:
    row = Row(ticket=9, owner="a", lease_until_ms=0, created_at_ms=0)
    assert judge([], {"order-42": lock(rows=(row,), waiting=1)}).failures == (
        "nothing left: order-42: queue row: 1",
        "nothing left: order-42: waiter counted: 1",
    )


def test_a_lock_that_was_never_used_fails() -> None:
    unused = LockState(item=None, rows=(), now=NOW)
    assert judge([], {"order-42": unused}).failures == ("nothing left: order-42 has no lock item in the table",)
