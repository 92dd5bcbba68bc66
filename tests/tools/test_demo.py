"""The demo: what it reads from event histories, its verdict on executions, and what it draws."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from kit.lock_history import events_of, history
from rich.console import Console
from ticketlock_local.demo.checks import judge, overlaps, overtakings
from ticketlock_local.demo.executions import Execution, read_history
from ticketlock_local.demo.picture import picture
from ticketlock_local.demo.promises import Standing
from ticketlock_local.demo.run import table
from ticketlock_local.demo.timeline import Timeline

from ticketlock import LockState
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.verify("tests no part of the product")

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1_000)
WAITING = {"lock": {"turn": {"status": "waiting", "place": {"ticket": 7}}}}
GRANTED = {"lock": {"turn": {"status": "granted", "place": {"ticket": 7}, "grant": {"ticket": 7, "fencingToken": 70}}}}
# The reply with the ticket was lost: it is in the row.
TOKEN_ALONE = {"lock": {"turn": {"place": {"ticket": 7}, "grant": {"ticket": None, "fencingToken": 70}}}}
OUTPUT = {"startedMs": START_MS + 4_000, "endedMs": START_MS + 4_500, "lock": {}}


def event(at_s: float, kind: str, **details: Any) -> dict[str, Any]:
    group = "state" + kind[kind.rindex("State") + 5 :] if "State" in kind else kind[0].lower() + kind[1:]
    return {"timestamp": START + timedelta(seconds=at_s), "type": kind, f"{group}EventDetails": details}


def entered(at_s: float, name: str) -> dict[str, Any]:
    return event(at_s, "TaskStateEntered", name=name)


def left(at_s: float, name: str, output: Any) -> dict[str, Any]:
    return event(at_s, "TaskStateExited", name=name, output=json.dumps(output))


STARTED = event(0, "ExecutionStarted", input=json.dumps({"entity": "order-42", "task": {}}))
PARKED = {"Error": "Parked", "Cause": json.dumps(WAITING)}
WAITED = [STARTED, entered(0.1, "TakeTicket"), left(0.2, "TakeTicket", PARKED), left(0.2, "Parked", WAITING)]
HELD = [*WAITED, entered(1.2, "CheckPosition"), left(1.3, "CheckPosition", GRANTED), entered(3, "Hold")]
DONE = [*HELD, left(5, "Hold", OUTPUT), event(5, "ExecutionSucceeded", output=json.dumps(OUTPUT))]


@pytest.mark.parametrize(
    ("told", "shows"),
    [
        (WAITED, {"entity": "order-42", "status": "RUNNING", "ticket": 7, "granted_ms": None, "waited_ms": None}),
        # The poll that got the lock began with its step, and was answered at its end.
        (HELD, {"fencing_token": 70, "polled_ms": START_MS + 1_200, "granted_ms": START_MS + 1_300, "polls": 1}),
        ([STARTED, left(1, "CheckPosition", TOKEN_ALONE)], {"ticket": 7}),
        # The work says when it began and ended.
        (DONE, {"status": "SUCCEEDED", "work_started_ms": START_MS + 4_000, "work_ended_ms": START_MS + 4_500}),
        (
            [*HELD, event(6, "ExecutionFailed", error="OutOfStock", cause="no more")],
            {"status": "FAILED", "error": "OutOfStock: no more", "held_ms": 3_000},
        ),
        # It may have no details.
        ([STARTED, {"timestamp": START, "type": "ExecutionAborted"}], {"status": "ABORTED", "error": ""}),
    ],
    ids=["waits", "holds", "its grant came without a ticket", "done", "failed", "stopped"],
)
def test_a_history_shows_how_far_an_execution_came(told: list[Any], shows: dict[str, Any]) -> None:
    run = read_history("one", told)
    assert {name: getattr(run, name) for name in shows} == shows


def place(ticket: int, until_s: int) -> Any:
    row = {"ticket": ticket, "leaseUntilMs": START_MS + until_s * 1_000}
    return {"lock": {"turn": {"status": "waiting", "place": row, "claim": {"shared": True, "permits": 1}}}}


POLLED = [STARTED, left(1, "TakeTicket", place(7, 60)), left(40, "CheckPosition", place(7, 100))]


def test_a_row_is_certainly_in_the_queue_from_each_poll_to_the_end_of_its_lease() -> None:
    run = read_history("one", POLLED)
    assert run.standings == ((START_MS + 1_000, START_MS + 60_000), (START_MS + 40_000, START_MS + 100_000))
    assert run.shared
    lost = read_history("one", [*POLLED, left(200, "CheckPosition", place(9, 260))])
    assert (lost.ticket, lost.standings) == (9, ((START_MS + 200_000, START_MS + 260_000),))


def test_a_wait_that_ends_without_the_lock_was_in_the_queue_until_its_last_poll() -> None:
    refused = {"lock": {"turn": {"status": "RecordWaitExceeded", "cause": "why"}}}
    ended = [left(80, "CheckPosition", refused), event(80, "ExecutionFailed", error="RecordWaitExceeded", cause="why")]
    (acquisition,) = history(events_of(read_history("one", [*POLLED, *ended]))).acquisitions
    assert (acquisition.outcome, acquisition.ticket, acquisition.shared) == ("refused", 7, True)
    assert acquisition.standings[0] == Standing(START_MS + 1_000, START_MS + 40_000)


def done(name: str, place: int, **other: Any) -> Execution:
    """The execution that held as number ``place`` and worked for one second of its two."""
    story: dict[str, Any] = {
        "name": name,
        "entity": "order-42",
        "status": "SUCCEEDED",
        "ticket": place,
        "standings": ((100, 60_000),),
        "fencing_token": 100 + place,
        "work_started_ms": place * 2_000,
        "work_ended_ms": place * 2_000 + 1_000,
    }
    return Execution(**story | other)


@pytest.mark.parametrize(
    ("runs", "broken"),
    [
        ([done("a", 1), done("b", 2), done("c", 3)], []),
        # The second begins when the first ends, or a moment before.
        ([done("a", 1), done("b", 2, work_started_ms=3_000)], []),
        ([done("a", 1), done("b", 2, work_started_ms=2_999)], ["exclusion"]),
        ([done("a", 1), done("b", 1, entity="order-7")], []),
        ([done("a", 1), done("b", 2, fencing_token=101)], ["fencing"]),
        ([done("a", 1, granted_ms=9_500, polled_ms=9_000), done("b", 2, work_ended_ms=9_000)], ["fencing"]),
        ([done("a", 1), done("b", 2, ticket=3), done("c", 3, ticket=4), done("d", 4, ticket=2)], ["no overtaking"]),
        # A grant whose poll began after the row was written saw the row.
        ([done("a", 1, ticket=2, polled_ms=101), done("b", 2, ticket=1)], ["no overtaking"]),
        ([done("a", 1, status="FAILED", error="LockLost: why")], ["a ended as FAILED LockLost"]),
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
        "failed",
        "work without an end",
    ],
)
def test_the_verdict_on_executions_names_each_broken_promise(runs: list[Execution], broken: list[str]) -> None:
    verdict = judge(runs, {})
    assert [failure.partition(":")[0] for failure in verdict.failures] == broken
    assert verdict.passed is (not broken)
    assert bool(overlaps(runs)) is ("exclusion" in broken)


def test_being_overtaken_once_is_a_slip_and_passes() -> None:
    runs = [done("a", 1), done("b", 2, ticket=3), done("c", 3, ticket=2)]
    slip = "c (token 103) was overtaken by b (token 102), perhaps while its row was in the queue"
    assert judge(runs, {}).slips == (slip,)
    assert judge(runs, {}).passed
    assert overtakings(runs) == {"c": 1}


def test_a_lock_that_is_not_in_the_table_fails() -> None:
    state = LockState(item=None, rows=(), now=Moment(local_ms=0, earliest_ms=0, latest_ms=0, wall_ms=0))
    assert judge([], {"order-42": state}).failures == ("nothing left: order-42 has no lock item in the table",)


@pytest.mark.parametrize(
    ("entity", "drawn"),
    [("<script>&\"'</script>", "<script>&\"'</script>"), ("[red]日本 🎟", "[red]日本 🎟"), ("\x1b\x00", "��")],
)
def test_executions_are_drawn_whatever_their_entity_is_called(entity: str, drawn: str) -> None:
    run = done("[b]a[/b]", 1, entity=entity, started_ms=1, ticket_ms=2, held_from_ms=3, held_until_ms=4)
    root = ElementTree.fromstring(picture([run]).to_svg().encode())
    assert drawn in {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(Timeline([run], 7_000), table([run]))
    assert "[b]a[/b]" in capture.get()
