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
START_MS = int(START.timestamp() * 1_000)
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


AT_ONCE = [started(), left(0.2, "TakeTicket", GRANTED), entered(0.2, "Hold", "Parallel")]
# The reply with the ticket was lost: it is in the row.
TOKEN_ALONE = {"lock": {"turn": {"place": {"ticket": 7}, "grant": {"ticket": None, "fencingToken": 70}}}}
FAILED = [*HELD, event(6, "ExecutionFailed", error="OutOfStock", cause="no more")]
# It may have no details.
STOPPED = [started(), {"timestamp": START, "type": "ExecutionAborted"}]


@pytest.mark.parametrize(
    ("told", "shows"),
    [
        ([started()], {"name": "one", "entity": "order-42", "status": "RUNNING", "started_ms": START_MS}),
        (
            WAITED[:4],
            {"ticket": 7, "fencing_token": None, "ticket_ms": START_MS + 200, "polls": 0, "granted_ms": None},
        ),
        (WAITED, {"waited_ms": None}),
        (HELD, {"ticket": 7, "fencing_token": 70, "ticket_ms": START_MS + 200, "polls": 1, "held_ms": None}),
        # The poll that got the lock began with its step, and was answered at its end.
        (HELD, {"polled_ms": START_MS + 1_200, "granted_ms": START_MS + 1_300}),
        (AT_ONCE, {"ticket": 7, "fencing_token": 70, "polls": 0}),
        ([started(), left(1, "CheckPosition", TOKEN_ALONE)], {"ticket": 7}),
        (DONE, {"waited_ms": 3_000, "held_ms": 2_000}),
        # The work says when it began and ended.
        (DONE, {"status": "SUCCEEDED", "work_started_ms": START_MS + 4_000, "work_ended_ms": START_MS + 4_500}),
        (
            [started(), event(1, "ExecutionSucceeded", output='"done"')],
            {"status": "SUCCEEDED", "work_started_ms": None},
        ),
        (FAILED, {"status": "FAILED", "error": "OutOfStock: no more", "held_ms": 3_000}),
        (STOPPED, {"status": "ABORTED", "error": "", "held_ms": None}),
    ],
    ids=[
        "starts",
        "waits",
        "got the lock, and has not entered Hold",
        "holds",
        "holds, by its last poll",
        "holds at once",
        "its grant came without a ticket",
        "done",
        "done, by its work",
        "done, by work that says nothing",
        "failed",
        "stopped",
    ],
)
def test_a_history_shows_how_far_an_execution_came(told: list[Any], shows: dict[str, Any]) -> None:
    run = read_history("one", told)
    assert {name: getattr(run, name) for name in shows} == shows


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


@pytest.mark.parametrize(
    ("told", "story"),
    [
        (
            DONE,
            [
                "one starts",
                "one waits for its turn, ticket 7",
                "one holds order-42: ticket 7, fencing token 70",
                "one is done",
            ],
        ),
        (AT_ONCE, ["one starts", "one holds order-42: ticket 7, fencing token 70"]),
        ([started(), event(1, "ExecutionTimedOut")], ["one starts", "one ended as TIMED_OUT"]),
    ],
)
def test_the_story_of_an_execution_names_its_wait_its_hold_and_its_end(told: list[Any], story: list[str]) -> None:
    assert [text for _, text in events(read_history("one", told))] == story


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


ROW = "though its row was in the queue"


@pytest.mark.parametrize(
    ("runs", "failures"),
    [
        ([done("a", 1), done("b", 2), done("c", 3)], []),
        # The second begins when the first ends, or a moment before.
        ([done("a", 1), done("b", 2, work_started_ms=3_000)], []),
        (
            [done("a", 1), done("b", 2, work_started_ms=2_999)],
            ["exclusion: b (token 102) held order-42 beside a (token 101), for 1 ms"],
        ),
        ([done("a", 1), done("b", 1, entity="order-7")], []),
        (
            [done("a", 1), done("b", 2, fencing_token=101)],
            ["fencing: a (token 101) and b (token 101) were granted the same token"],
        ),
        (
            [done("a", 1, granted_ms=9_500, polled_ms=9_000), done("b", 2, work_ended_ms=9_000)],
            ["fencing: a (token 101) was granted after b (token 102), whose token is greater"],
        ),
        (
            [done("a", 1), done("b", 2, ticket=3), done("c", 3, ticket=4), done("d", 4, ticket=2)],
            [f"no overtaking: d (token 104) was overtaken by b (token 102), c (token 103), {ROW}"],
        ),
        # A grant whose poll began after the row was written saw the row.
        (
            [done("a", 1, ticket=2, polled_ms=101), done("b", 2, ticket=1)],
            [f"no overtaking: b (token 102) was overtaken by a (token 101), {ROW}"],
        ),
        *(
            ([done("a", 1, status=status, error="LockLost: why")], [f"a ended as {status} LockLost: why"])
            for status in ("FAILED", "ABORTED", "TIMED_OUT", "RUNNING")
        ),
        ([done("a", 1, work_ended_ms=None)], ["a ended as SUCCEEDED"]),
    ],
    ids=[
        "one after the other",
        "touching",
        "overlapping",
        "beside another entity",
        "one token twice",
        "a smaller token later",
        "overtaken twice",
        "overtaken after it stood",
        *(f"ended as {status}" for status in ("FAILED", "ABORTED", "TIMED_OUT", "RUNNING")),
        "work without an end",
    ],
)
def test_the_verdict_on_executions_names_each_broken_promise(runs: list[Execution], failures: list[str]) -> None:
    verdict = judge(runs, {"order-42": lock()})
    assert (list(verdict.failures), verdict.slips, verdict.passed) == (failures, (), not failures)


def test_being_overtaken_once_is_a_slip_and_passes() -> None:
    verdict = judge([done("a", 1), done("b", 2, ticket=3), done("c", 3, ticket=2)], {})
    assert (verdict.passed, verdict.slips) == (
        True,
        ("c (token 103) was overtaken by b (token 102), perhaps while its row was in the queue",),
    )


def test_overtakings_are_counted_whether_a_row_stood_or_not() -> None:
    runs = [done("a", 1, ticket=2, standings=()), done("b", 2, ticket=3), done("c", 3, ticket=1, standings=())]
    assert overtakings(runs) == {"c": 2}
    assert not overtakings([done("a", 1), Execution(name="b", ticket=None, fencing_token=102), done("c", 3)])


HOLDER = Holder(owner="a", fencing_token=9, lease_until_ms=0, lease_ms=0, since_ms=0, data=None)
WAITS = Row(ticket=9, owner="a", lease_until_ms=0, created_at_ms=0)


@pytest.mark.parametrize(
    ("state", "left"),
    [
        (lock(holders=(HOLDER,)), [": holder: 1"]),
        (lock(rows=(WAITS,), waiting=1), [": queue row: 1", ": waiter counted: 1"]),
        (LockState(item=None, rows=(), now=NOW), [" has no lock item in the table"]),
    ],
)
def test_what_is_left_of_a_lock_fails(state: LockState, left: list[str]) -> None:
    assert list(judge([], {"order-42": state}).failures) == [f"nothing left: order-42{each}" for each in left]


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


@pytest.mark.parametrize(
    ("run", "now_ms", "ms_a_cell", "drawn"),
    [
        (SHOWN, 6_000, 500, "  ··────████    "),
        (WAITER, 3_000, 500, "  ··──          "),
        (WAITER, 4_000, 500, "  ··────        "),
    ],
)
def test_a_lane_distinguishes_asking_waiting_and_holding_and_grows_with_the_clock(
    run: Execution, now_ms: int, ms_a_cell: int, drawn: str
) -> None:
    assert lane(run, 0, now_ms, ms_a_cell, 16) == drawn


@pytest.mark.parametrize("now_ms", [1_000, 2_500, 60_000])
def test_a_lane_never_leaves_its_space_and_shows_the_shortest_hold(now_ms: int) -> None:
    assert {len(lane(run, 1_000, now_ms, 100, 40)) for run in (WAITER, SHOWN)} == {40}
    assert "█" in lane(SHOWN, 0, 6_000, 100_000, 10)


def test_the_axis_counts_seconds_no_closer_than_they_can_be_read() -> None:
    assert axis(10, 40) == "╵0 s    ╵2 s    ╵4 s    ╵6 s    ╵8 s    "


def test_the_timeline_groups_lanes_by_entity() -> None:
    other = Execution(name="c", entity="order-7", started_ms=1_000)
    lines = printed(Timeline([SHOWN, other, WAITER], 7_000)).splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["order-42", "a", "b", "order-7", "c"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_timeline_fits_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in printed(Timeline([SHOWN, WAITER], 7_000), width).splitlines())


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


def texts(runs: list[Execution]) -> set[str | None]:
    """What stands in the picture, which is read as XML."""
    root = ElementTree.fromstring(picture(runs).to_svg().encode())
    assert (root.tag, root.find(f"{SVG}script")) == (f"{SVG}svg", None)
    return {text.text for text in root.iter(f"{SVG}text")}


TITLE = "One at a time for each entity, in ticket order"


@pytest.mark.parametrize(
    ("runs", "told"), [([SHOWN, WAITER], {TITLE, "order-42", "a", "b"}), ([], {TITLE})], ids=["two", "none"]
)
def test_the_picture_of_any_executions_is_xml_that_stands_alone(runs: list[Execution], told: set[str]) -> None:
    assert told <= texts(runs)


def test_the_timeline_of_no_executions_says_that_they_are_starting() -> None:
    assert "starting" in printed(Timeline([], 0))


@pytest.mark.parametrize(
    ("entity", "drawn"),
    [
        ("<script>&\"'</script>", "<script>&\"'</script>"),
        ("日本 🎟", "日本 🎟"),
        ("]]>", "]]>"),
        # What XML cannot write.
        ("tab\there", "tab�here"),
        ("\x00", "�"),
        ("\x1b[31m", "�[31m"),
        ("\ud800", "�"),
        ("\ufffe", "�"),
    ],
)
def test_the_picture_escapes_what_an_entity_is_called_or_replaces_it(entity: str, drawn: str) -> None:
    assert drawn in texts([Execution(name="a", entity=entity, started_ms=1)])


def test_the_demo_mixes_its_entities() -> None:
    planned = plan({"x": 3, "y": 1}, (0.5, 1.0))
    assert [(one.name, one.work_s) for one in planned] == [("x-01", 0.5), ("y-01", 0.5), ("x-02", 1.0), ("x-03", 0.5)]
