"""What is read from an execution's event history, on engines that record the branches of a hold and others."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kit.lock_history import events_of, history
from kit.lock_model import Standing
from ticketlock_local.demo.executions import Execution, read_history
from ticketlock_local.demo.timeline import events

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
