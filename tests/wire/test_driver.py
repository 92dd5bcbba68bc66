"""The driver, driven by hand."""

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from ticketlock.errors import OutcomeUnknown, RequestNotApplied
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.testing import ManualClock
from ticketlock.wire._actions import Actions, Call, Sleep, T
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import Read, Request, TransactWrite, Write
from ticketlock.wire._step_functions import TaskAnswer

THROTTLED = ClientError({"Error": {"Code": "ThrottlingException", "Message": ""}}, "PutItem")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://dynamodb")
READ = Read({"pk": {"S": "order-42"}}, {"sk": {"S": "/"}}, limit=3)
WRITE = Write("Put", {}, "attribute_not_exists(pk)", item={})


def test_what_is_not_to_be_sent_after_a_moment_is_not_repeated_after_it_either() -> None:
    clock = ManualClock()
    too_late_ms = clock.read().local_ms + 1_000
    write = Write("Put", {}, "attribute_not_exists(pk)", item={}, not_after_local_ms=too_late_ms)
    actions = Driver("locks", TIME_CHECK, clock, 8_000, jitter=lambda: 0.5).perform(write)
    next(actions)
    assert isinstance(actions.throw(THROTTLED), Sleep)
    # The machine stands still for longer than it wanted to.
    clock.advance(70)
    with pytest.raises(RequestNotApplied):
        next(actions)


def dated(clock: ManualClock, **more: Any) -> dict[str, Any]:
    """A reply that the service dates with the present time."""
    head = {"HTTPHeaders": {"date": formatdate(clock.wall_ms // 1_000, usegmt=True)}, "HTTPStatusCode": 200}
    return {**more, "ResponseMetadata": head}


def drive(actions: Actions[T], clock: ManualClock, answer: Callable[[Call], Any]) -> T:
    """Perform actions: time passes in sleeps, and calls are answered, or fail with what was answered."""
    outcome: Any = None
    try:
        while True:
            action = actions.throw(outcome) if isinstance(outcome, Exception) else actions.send(outcome)
            if isinstance(action, Sleep):
                clock.sleep(action.ms / 1_000)
                outcome = None
            else:
                outcome = answer(action)
    except StopIteration as end:
        result: T = end.value
        return result


class Leaving:
    """A service that applies one request, on whose way the wall clock is set, and is out of reach afterwards."""

    def __init__(self, clock: ManualClock, *before: Exception, **reply: Any) -> None:
        self._clock = clock
        self._before = list(before)
        self._reply = reply
        self.is_reachable = True

    def __call__(self, _: Call) -> Any:
        if not self.is_reachable:
            return UNREACHABLE
        if self._before:
            return self._before.pop(0)
        self.is_reachable = False
        self._clock.set_wall(self._clock.wall_ms + 5_000)
        return dated(self._clock, **self._reply)


@pytest.mark.parametrize(
    "request_", [WRITE, TransactWrite((WRITE,)), TaskAnswer("token")], ids=lambda each: type(each).__name__
)
def test_a_request_that_was_applied_is_not_said_to_be_unapplied_when_the_time_is_lost_on_its_way(
    request_: Request,
) -> None:
    clock = ManualClock()
    with pytest.raises(OutcomeUnknown):
        drive(Driver("locks", TIME_CHECK, clock, 8_000).perform(request_), clock, Leaving(clock))


def test_nor_is_one_that_was_refused_after_an_attempt_whose_reply_was_lost() -> None:
    clock = ManualClock()
    lost = ReadTimeoutError(endpoint_url="https://dynamodb")
    service = Leaving(clock, lost, lost, Error={"Code": "ConditionalCheckFailedException"})

    def answer(call: Call) -> Any:
        reply = service(call)
        return reply if isinstance(reply, Exception) else ClientError(reply, "PutItem")

    with pytest.raises(OutcomeUnknown):
        drive(Driver("locks", TIME_CHECK, clock, 8_000).perform(WRITE), clock, answer)


def test_a_read_changes_nothing_also_when_the_time_is_lost_on_its_way() -> None:
    clock = ManualClock()
    with pytest.raises(RequestNotApplied):
        drive(
            Driver("locks", TIME_CHECK, clock, 8_000).perform(READ),
            clock,
            Leaving(clock, Items=[]),
        )


def test_a_request_goes_on_when_the_time_is_lost_on_its_way_and_found_again() -> None:
    clock = ManualClock()
    service = Leaving(clock)

    def answer(call: Call) -> Any:
        return service(call) if service.is_reachable else dated(clock)

    reply = drive(Driver("locks", TIME_CHECK, clock, 8_000).perform(WRITE), clock, answer)
    assert reply.applied
    assert reply.now.earliest_ms <= clock.wall_ms <= reply.now.latest_ms


def test_a_service_whose_every_reply_is_too_slow_to_tell_the_time_is_given_up() -> None:
    clock = ManualClock()
    asked = 0

    def slowly(_: Call) -> Any:
        nonlocal asked
        asked += 1
        assert asked < 10, "it goes on for ever"
        clock.advance(6)
        return dated(clock)

    with pytest.raises(RequestNotApplied):
        drive(Driver("locks", TIME_CHECK, clock, 8_000).now(), clock, slowly)
    assert clock.read().local_ms == 12_000
