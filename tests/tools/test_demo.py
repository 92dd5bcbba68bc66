"""The demo: what it reads from event histories, its verdict on executions, and its timeline."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from kit.lock_history import events_of, history
from kit.lock_model import Standing
from rich.console import Console
from ticketlock_local.demo.checks import judge, overtakings
from ticketlock_local.demo.executions import Execution, read_history
from ticketlock_local.demo.picture import picture
from ticketlock_local.demo.run import plan, table
from ticketlock_local.demo.timeline import Lines, Timeline, axis, events, lane

from ticketlock import LockState
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.verify("tests no part of the product")

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = 1_767_225_600_000
WAITING = {"lock": {"turn": {"status": "waiting", "place": {"ticket": 7}}}}
GRANTED = {"lock": {"turn": {"status": "granted", "place": {"ticket": 7}, "grant": {"ticket": 7, "fencingToken": 70}}}}
OUTPUT = {"startedMs": START_MS + 4_000, "endedMs": START_MS + 4_500, "lock": {}}


def event(at_s: float, kind: str, **details: Any) -> dict[str, Any]:
    group = "state" + kind[kind.rindex("State") + 5 :] if "State" in kind else kind[0].lower() + kind[1:]
    return {"timestamp": START + timedelta(seconds=at_s), "type": kind, f"{group}EventDetails": details}


def started() -> dict[str, Any]:
    return event(0, "ExecutionStarted", input=json.dumps({"entity": "order-42", "task": {}}))


def entered(at_s: float, name: str, kind: str = "Task") -> dict[str, Any]:
    return event(at_s, f"{kind}StateEntered", name=name)


def left(at_s: float, name: str, output: Any, kind: str = "Task") -> dict[str, Any]:
    return event(at_s, f"{kind}StateExited", name=name, output=json.dumps(output))


WAITED = [
    started(),
    entered(0.1, "TakeTicket"),
    left(0.2, "TakeTicket", WAITING),
    entered(0.2, "WaitForTurn", "Wait"),
    left(1.2, "WaitForTurn", WAITING, "Wait"),
    entered(1.2, "CheckPosition"),
    left(1.3, "CheckPosition", GRANTED),
]
HELD = [*WAITED, entered(3, "Hold", "Parallel")]
DONE = [*HELD, left(5, "Hold", OUTPUT, "Parallel"), event(5, "ExecutionSucceeded", output=json.dumps(OUTPUT))]


def texts(run: Execution) -> list[str]:
    return [text for _, text in events(run)]


def test_a_history_that_has_only_begun_names_the_waiter_and_its_entity() -> None:
    run = read_history("one", [started()])
    assert (run.name, run.entity, run.status, run.started_ms) == ("one", "order-42", "RUNNING", START_MS)


def test_a_waiter_knows_its_ticket_and_no_token() -> None:
    run = read_history("one", WAITED[:4])
    assert (run.ticket, run.fencing_token, run.ticket_ms, run.polls) == (7, None, START_MS + 200, 0)


def test_the_grant_is_found_in_the_poll_that_got_it() -> None:
    run = read_history("one", HELD)
    assert (run.ticket, run.fencing_token, run.ticket_ms, run.polls) == (7, 70, START_MS + 200, 1)


def test_the_grant_is_found_in_the_first_step_without_a_wait() -> None:
    run = read_history("one", [started(), left(0.2, "TakeTicket", GRANTED), entered(0.2, "Hold", "Parallel")])
    assert (run.ticket, run.fencing_token, run.polls) == (7, 70, 0)


def test_a_ticket_whose_reply_was_lost_is_taken_from_the_row() -> None:
    grant = {"lock": {"turn": {"place": {"ticket": 7}, "grant": {"ticket": None, "fencingToken": 70}}}}
    assert read_history("one", [started(), left(1, "CheckPosition", grant)]).ticket == 7


def test_the_poll_that_got_the_lock_began_with_its_step_and_was_answered_at_its_end() -> None:
    run = read_history("one", HELD)
    assert (run.polled_ms, run.granted_ms) == (START_MS + 1_200, START_MS + 1_300)
    assert read_history("one", WAITED[:4]).granted_ms is None


def place(ticket: int, until_s: int) -> Any:
    row = {"ticket": ticket, "leaseUntilMs": START_MS + until_s * 1_000}
    return {"lock": {"turn": {"status": "waiting", "place": row, "claim": {"shared": True, "permits": 1}}}}


def test_a_row_is_certainly_in_the_queue_from_each_poll_to_the_end_of_its_lease() -> None:
    polls = [started(), left(1, "TakeTicket", place(7, 60)), left(40, "CheckPosition", place(7, 100))]
    run = read_history("one", polls)
    assert run.standings == (
        (START_MS + 1_000, START_MS + 60_000),
        (START_MS + 40_000, START_MS + 100_000),
    )
    assert run.shared
    lost = read_history("one", [*polls, left(200, "CheckPosition", place(9, 260))])
    assert (lost.ticket, lost.standings) == (9, ((START_MS + 200_000, START_MS + 260_000),))


def test_a_wait_that_ends_without_the_lock_was_in_the_queue_until_its_last_poll() -> None:
    refused = {"lock": {"turn": {"status": "RecordWaitExceeded", "cause": "why"}}}
    polls = [started(), left(1, "TakeTicket", place(7, 60)), left(40, "CheckPosition", place(7, 100))]
    ended = [left(80, "CheckPosition", refused), event(80, "ExecutionFailed", error="RecordWaitExceeded", cause="why")]
    run = read_history("one", [*polls, *ended])
    (acquisition,) = history(events_of(run)).acquisitions
    assert (acquisition.outcome, acquisition.ticket, acquisition.shared) == ("refused", 7, True)
    assert acquisition.standings[0] == Standing(START_MS + 1_000, START_MS + 40_000)


def test_waiting_and_holding_are_measured_by_the_service() -> None:
    run = read_history("one", DONE)
    assert (run.waited_ms, run.held_ms) == (3_000, 2_000)


def test_a_wait_and_a_hold_that_have_not_ended_have_no_length() -> None:
    assert read_history("one", WAITED).waited_ms is None
    assert read_history("one", HELD).held_ms is None


def test_the_time_of_the_work_is_what_the_work_says() -> None:
    run = read_history("one", DONE)
    assert (run.status, run.work_started_ms, run.work_ended_ms) == ("SUCCEEDED", START_MS + 4_000, START_MS + 4_500)


def test_work_that_returns_no_times_has_none() -> None:
    run = read_history("one", [started(), event(1, "ExecutionSucceeded", output='"done"')])
    assert (run.status, run.work_started_ms) == ("SUCCEEDED", None)


def test_a_failing_work_ends_its_hold_and_is_named() -> None:
    run = read_history("one", [*HELD, event(6, "ExecutionFailed", error="OutOfStock", cause="no more")])
    assert (run.status, run.error, run.held_ms) == ("FAILED", "OutOfStock: no more", 3_000)


def test_an_execution_that_was_stopped_may_have_no_details() -> None:
    stopped = {"timestamp": START, "type": "ExecutionAborted"}
    run = read_history("one", [started(), stopped])
    assert (run.status, run.error, run.held_ms) == ("ABORTED", "", None)


def test_the_story_of_a_waiter_names_its_ticket_and_its_token() -> None:
    assert texts(read_history("one", DONE)) == [
        "one starts",
        "one waits for its turn, ticket 7",
        "one holds order-42: ticket 7, fencing token 70",
        "one is done",
    ]


def test_an_owner_that_holds_at_once_is_not_shown_as_waiting() -> None:
    run = read_history("one", [started(), left(0.2, "TakeTicket", GRANTED), entered(0.3, "Hold", "Parallel")])
    assert texts(run) == ["one starts", "one holds order-42: ticket 7, fencing token 70"]


def test_the_story_of_a_failure_ends_with_its_reason() -> None:
    run = read_history("one", [started(), event(1, "ExecutionTimedOut")])
    assert texts(run)[-1] == "one ended as TIMED_OUT"


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


SVG = "{http://www.w3.org/2000/svg}"
WAITER = Execution(name="b", entity="order-42", started_ms=1_000, ticket_ms=2_000, ticket=8)
SHOWN = Execution(
    name="a",
    entity="order-42",
    status="SUCCEEDED",
    started_ms=1_000,
    ticket_ms=2_000,
    ticket=12_345,
    fencing_token=12_346,
    held_from_ms=4_000,
    held_until_ms=6_000,
    work_started_ms=4_500,
    work_ended_ms=5_500,
    ended_ms=6_000,
)


def printed(what: object, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_a_lane_distinguishes_asking_waiting_and_holding() -> None:
    assert lane(SHOWN, 0, 6_000, 500, 16) == "  ··────████    "


def test_the_lane_of_a_waiter_grows_with_the_clock() -> None:
    assert lane(WAITER, 0, 3_000, 500, 10) == "  ··──    "
    assert lane(WAITER, 0, 4_000, 500, 10) == "  ··────  "


def test_a_hold_too_short_for_the_scale_is_still_seen() -> None:
    assert "█" in lane(SHOWN, 0, 6_000, 100_000, 10)


@pytest.mark.parametrize("now_ms", [1_000, 2_500, 60_000])
def test_lanes_never_leave_their_space(now_ms: int) -> None:
    assert {len(lane(run, 1_000, now_ms, 100, 40)) for run in (WAITER, SHOWN)} == {40}


def test_the_axis_counts_seconds_no_closer_than_they_can_be_read() -> None:
    assert axis(10, 40) == "╵0 s    ╵2 s    ╵4 s    ╵6 s    ╵8 s    "


def test_the_timeline_groups_lanes_by_entity() -> None:
    other = Execution(name="c", entity="order-7", started_ms=1_000)
    lines = printed(Timeline([SHOWN, other, WAITER], 7_000)).splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["order-42", "a", "b", "order-7", "c"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_timeline_fits_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in printed(Timeline([SHOWN, WAITER], 7_000), width).splitlines())


def test_a_timeline_of_nothing_says_so() -> None:
    assert "starting" in printed(Timeline([], 0))


def test_the_table_has_ticket_token_waited_held_and_status() -> None:
    row = next(line for line in printed(table([SHOWN])).splitlines() if "12345" in line)
    assert row.split() == ["a", "12345", "12346", "3.00", "s", "2.00", "s", "SUCCEEDED"]


def test_names_in_brackets_are_no_markup() -> None:
    odd = Execution(name="[bold]x[/bold]", entity="[red]", started_ms=1)
    assert "[bold]x[/bold]" in printed(table([odd]))
    assert "[red]" in printed(Timeline([odd], 2))


def test_lines_come_in_the_order_of_the_events_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.show([WAITER], 1_500)
    lines.show([SHOWN, WAITER], 5_000)
    lines.show([SHOWN, WAITER], 7_000)
    assert capsys.readouterr().out.splitlines() == [
        "  0.00 s  b starts",
        "  0.00 s  a starts",
        "  1.00 s  b waits for its turn, ticket 8",
        "  3.00 s  a holds order-42: ticket 12345, fencing token 12346",
        "  5.00 s  a is done",
    ]


def test_the_picture_is_xml_that_stands_alone() -> None:
    root = ElementTree.fromstring(picture([SHOWN, WAITER]).to_svg())
    assert root.tag == f"{SVG}svg"
    assert {"a", "b", "One at a time for each entity, in ticket order", "order-42"} <= {
        text.text for text in root.iter(f"{SVG}text")
    }


@pytest.mark.parametrize("entity", ["<script>&\"'</script>", "日本 🎟", "]]>", "tab\there"])
def test_the_picture_escapes_what_an_entity_is_called(entity: str) -> None:
    run = Execution(name=entity, entity=entity, started_ms=1)
    root = ElementTree.fromstring(picture([run]).to_svg())
    assert root.find(f"{SVG}script") is None
    assert entity.replace("\t", "\N{REPLACEMENT CHARACTER}") in {text.text for text in root.iter(f"{SVG}text")}


@pytest.mark.parametrize("entity", ["\x00", "\x1b[31m", "\ud800", "￾"])
def test_the_picture_replaces_what_xml_cannot_write(entity: str) -> None:
    run = Execution(name="a", entity=entity, started_ms=1)
    svg = picture([run]).to_svg()
    assert "\N{REPLACEMENT CHARACTER}" in ElementTree.tostring(ElementTree.fromstring(svg.encode()), "unicode")


def test_the_picture_of_nothing_is_still_one() -> None:
    assert ElementTree.fromstring(picture([]).to_svg()).tag == f"{SVG}svg"


def test_the_demo_mixes_its_entities() -> None:
    planned = plan({"x": 3, "y": 1}, (0.5, 1.0))
    assert [(one.name, one.work_s) for one in planned] == [("x-01", 0.5), ("y-01", 0.5), ("x-02", 1.0), ("x-03", 0.5)]
