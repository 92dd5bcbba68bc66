"""Hand-over by callback with real clients, whose requests to Step Functions are answered over the wire."""

from typing import Any

import pytest
from kit.events import execution_arn, step_event, turn_of
from kit.world import World
from locks.waiting_line import Line

from ticketlock import Grant, RecordWaitExceeded

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"


def request(line: Line, **more: Any) -> dict[str, Any]:
    return {"entity": line.lock.entity, "task": {"functionArn": FUNCTION}, **more}


def test_a_waiter_whose_record_wait_ends_wakes_the_next_if_a_permit_is_free(world: World, line: Line) -> None:
    process, claim, grant = line.held().holders[0]
    first = world.process()
    workflow = line.service.workflow(first)
    turn = turn_of(workflow, execution_arn(), request(line, recordWaitSeconds=5))
    second = line.waiter()
    second.parks().run()
    world.advance(10_000)

    def freed_after_the_poll(_operation: str) -> None:
        """By a client that cannot wake waiters."""
        process.table.release(claim, grant)

    first.faults = [freed_after_the_poll]
    step = workflow.check_position(step_event("CheckPosition", turn))
    assert step.reply["status"] == "RecordWaitExceeded"
    assert second.has_word()
    assert isinstance(second.polls(), Grant)


def test_a_release_in_python_wakes_a_waiting_execution(line: Line) -> None:
    waiter = line.held().waiter()
    waiter.parks().run()
    process, claim, grant = line.holders[0]
    line.service.table(process).release(claim, grant)
    assert line.service.answered == [waiter.token]
    assert isinstance(waiter.polls(), Grant)


def test_a_withdrawal_in_python_wakes_the_next_if_a_permit_is_free(line: Line) -> None:
    first, second = line.held().waiter(), line.waiter()
    second.parks().run()
    process, claim, grant = line.holders[0]
    process.table.release(claim, grant)
    assert line.service.table(first.process).withdraw(first.claim, first.place.ticket) is None
    assert line.service.answered == [second.token]
    assert isinstance(second.polls(), Grant)


def test_a_withdrawal_that_finds_its_own_grant_wakes_no_one(line: Line) -> None:
    first, second = line.held().waiter(), line.waiter()
    second.parks().run()
    process, claim, grant = line.holders[0]
    process.table.release(claim, grant)
    taken = first.polls()
    assert isinstance(taken, Grant)
    won = line.service.table(first.process).withdraw(first.claim, first.place.ticket)
    assert won is not None
    assert won.fencing_token == taken.fencing_token
    assert line.service.answers == []


def test_a_record_wait_that_ends_in_python_wakes_the_next_if_a_permit_is_free(line: Line) -> None:
    first, second = line.held().waiter(), line.waiter()
    second.parks().run()
    process, claim, grant = line.holders[0]

    def freed_after_the_poll(_operation: str) -> None:
        """By a client that cannot wake waiters."""
        process.table.release(claim, grant)

    table = line.service.table(first.process)
    # It reads the time, which otherwise comes before the first poll.
    table.now()
    first.process.faults = [freed_after_the_poll]
    with pytest.raises(RecordWaitExceeded):
        table.check_turn(first.claim, first.place, wait_until_ms=0)
    assert line.service.answered == [second.token]
    assert isinstance(second.polls(), Grant)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ((0, 0), (0, 1)),
        # The state was entered again: after a poll, or after the continuation in which it parked has failed.
        ((0, 10), (1, 0)),
        ((0, 99_999_999), (1, 0)),
    ],
)
def test_a_try_to_park_outranks_every_earlier_one(line: Line, earlier: tuple[int, int], later: tuple[int, int]) -> None:
    workflow = line.service.workflow(line.held().process())
    turn = turn_of(workflow, execution_arn(), request(line))
    for token, (second, retry) in [("newest", later), ("older", earlier)]:
        entered = f"2027-01-15T08:00:0{second}.123Z"
        workflow.wait_for_wake_up(step_event("WaitForWakeUp", turn, token, entered=entered, retry=retry))
    line.releases().run()
    assert line.service.answered == ["newest"]
