"""The driver: when it sends a request again, and what it reports of one. The tests answer its calls."""

from collections.abc import Callable
from email.utils import formatdate
from itertools import count
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from kit.opcodes import AtOpcode

from ticketlock.errors import (
    ConditionFailed,
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    TableNotFound,
    TableRefused,
    TicketLockError,
)
from ticketlock.locks._fencing import FencedTransaction
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.testing import ManualClock
from ticketlock.units._like_boto3._client_errors import as_of_client
from ticketlock.wire._actions import Actions, Call, NoAnswer, Sleep, T
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import TOKEN_IS_SAFE_FOR_MS, Read, Request, Steps, TransactWrite, Write
from ticketlock.wire._sdk import NotSigned
from ticketlock.wire._step_functions import TaskAnswer
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.shows("lost requests")

THROTTLED = ClientError({"Error": {"Code": "ThrottlingException", "Message": ""}}, "PutItem")
REPLY_LOST = ReadTimeoutError(endpoint_url="https://dynamodb")
FIRST_BACKOFF_MS = 25
LONGEST_BACKOFF_MS = 1_000
UNREACHABLE = EndpointConnectionError(endpoint_url="https://dynamodb")
READ = Read({"pk": {"S": "order-42"}}, {"sk": {"S": "/"}}, limit=3)
WRITE = Write("Put", {}, "attribute_not_exists(pk)", item={})
WRITES = pytest.mark.parametrize(
    "request_", [WRITE, TransactWrite((WRITE,)), TaskAnswer("token")], ids=lambda each: type(each).__name__
)


def dated(clock: ManualClock, **more: Any) -> dict[str, Any]:
    """A reply that the service dates with the present time."""
    head = {"HTTPHeaders": {"date": formatdate(clock.wall_ms // 1_000, usegmt=True)}, "HTTPStatusCode": 200}
    return {**more, "ResponseMetadata": head}


def driver(clock: ManualClock, patience_ms: int = 8_000, jitter: float = 1) -> Driver:
    return Driver("locks", TIME_CHECK, clock, patience_ms, jitter=lambda: jitter)


def drive(actions: Actions[T], clock: ManualClock, answer: Callable[[Call], Any]) -> T:
    """Perform actions: time passes in sleeps, and calls return or raise the given answers."""
    outcome: Any = None
    try:
        while True:
            action = actions.throw(outcome) if isinstance(outcome, Exception) else actions.send(outcome)
            if isinstance(action, Sleep):
                clock.sleep(action.ms / 1_000)
                outcome = None
            elif isinstance(action, Call):
                outcome = answer(action)
            else:
                raise AssertionError(action)
    except StopIteration as end:
        result: T = end.value
        return result


def test_a_request_with_a_last_moment_is_not_retried_after_it(clock: ManualClock) -> None:
    too_late_ms = clock.read().local_ms + 1_000
    write = Write("Put", {}, "attribute_not_exists(pk)", item={}, not_after_local_ms=too_late_ms)
    actions = driver(clock, jitter=0.5).perform(write)
    next(actions)
    assert isinstance(actions.throw(THROTTLED), Sleep)
    # The machine stops for longer than it meant to sleep.
    clock.advance(70)
    with pytest.raises(RequestNotApplied):
        next(actions)


@pytest.mark.parametrize(
    ("rest_ms", "attempts"),
    [(-1, 1), (0, 1), (FIRST_BACKOFF_MS - 1, 1), (FIRST_BACKOFF_MS, 2), (FIRST_BACKOFF_MS + 1, 2)],
)
def test_steps_with_a_last_moment_send_each_request_at_least_once_and_none_again_after_it(
    rest_ms: int, attempts: int, clock: ManualClock
) -> None:
    calls = list[Call]()

    def answered(call: Call) -> Any:
        calls.append(call)
        return THROTTLED

    def steps(_: Moment) -> Steps[None]:
        yield READ

    with pytest.raises(RequestNotApplied):
        drive(driver(clock).run(steps, until_ms=clock.read().local_ms + rest_ms), clock, answered)
    assert len(calls) == attempts


class Leaving:
    """A service that applies one request, during which the wall clock is set, and then is unreachable."""

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


@WRITES
def test_an_applied_request_is_reported_as_unknown_if_table_time_is_lost_during_it(
    request_: Request, clock: ManualClock
) -> None:
    with pytest.raises(OutcomeUnknown):
        drive(driver(clock).perform(request_), clock, Leaving(clock))


def test_a_refusal_after_a_lost_reply_is_reported_as_unknown_if_table_time_is_lost_during_it(
    clock: ManualClock,
) -> None:
    service = Leaving(clock, REPLY_LOST, REPLY_LOST, Error={"Code": "ConditionalCheckFailedException"})

    def answer(call: Call) -> Any:
        reply = service(call)
        return reply if isinstance(reply, Exception) else ClientError(reply, "PutItem")

    with pytest.raises(OutcomeUnknown):
        drive(driver(clock).perform(WRITE), clock, answer)


def test_a_read_is_reported_as_not_applied_even_if_table_time_is_lost_during_it(clock: ManualClock) -> None:
    with pytest.raises(RequestNotApplied):
        drive(driver(clock).perform(READ), clock, Leaving(clock, Items=[]))


def test_a_request_continues_if_table_time_is_lost_during_it_and_learned_again(clock: ManualClock) -> None:
    service = Leaving(clock)

    def answer(call: Call) -> Any:
        return service(call) if service.is_reachable else dated(clock)

    reply = drive(driver(clock).perform(WRITE), clock, answer)
    assert reply.applied
    assert reply.now.earliest_ms <= clock.wall_ms <= reply.now.latest_ms


def test_a_service_whose_replies_are_all_too_slow_to_tell_table_time_is_given_up(clock: ManualClock) -> None:
    too_slow_s = 6
    asked = 0

    def slowly(_: Call) -> Any:
        nonlocal asked
        asked += 1
        assert asked < 10, "it never ends"
        clock.advance(too_slow_s)
        return dated(clock)

    with pytest.raises(RequestNotApplied):
        drive(driver(clock).now(), clock, slowly)
    # The second reply came after the driver's patience.
    assert clock.read().local_ms == 2_000 * too_slow_s


def error_of(code: str) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(response, "PutItem")


DEFINITE: list[tuple[Exception, type[TableError], str]] = [
    (error_of("ExpiredTokenException"), TableRefused, "ExpiredTokenException: why"),
    (error_of("AccessDeniedException"), TableRefused, "AccessDeniedException: why"),
    (error_of("ResourceNotFoundException"), TableNotFound, "there is no table"),
    (NoCredentialsError(), TableRefused, "Unable to locate credentials"),
    (NotSigned(RuntimeError("no refresh")), TableRefused, "RuntimeError: no refresh"),
]


def one_after_the_other(*outcomes: Any) -> Callable[[Call], Any]:
    left = list(outcomes)
    return lambda _: left.pop(0)


@WRITES
@pytest.mark.parametrize(("later", "says"), [(later, says) for later, _, says in DEFINITE])
def test_a_request_that_may_have_been_applied_stays_unknown_if_a_later_attempt_is_refused_for_good(
    request_: Request, later: Exception, says: str, clock: ManualClock
) -> None:
    with pytest.raises(OutcomeUnknown, match=says):
        drive(driver(clock).send(request_), clock, one_after_the_other(REPLY_LOST, later))


@WRITES
@pytest.mark.parametrize("earlier", [THROTTLED, UNREACHABLE], ids=["throttled", "unreachable"])
@pytest.mark.parametrize(("later", "meaning", "says"), DEFINITE)
def test_a_request_that_certainly_was_not_applied_is_refused_for_good_by_a_later_attempt(
    request_: Request, earlier: Exception, later: Exception, meaning: type[TableError], says: str, clock: ManualClock
) -> None:
    with pytest.raises(meaning, match=says):
        drive(driver(clock).send(request_), clock, one_after_the_other(earlier, later))


def test_a_read_is_refused_for_good_even_after_an_attempt_with_an_unknown_outcome(clock: ManualClock) -> None:
    outcomes = one_after_the_other(REPLY_LOST, error_of("AccessDeniedException"))
    with pytest.raises(TableRefused):
        drive(driver(clock).send(READ), clock, outcomes)


def test_the_error_of_the_later_attempt_is_the_cause(clock: ManualClock) -> None:
    denied = error_of("AccessDeniedException")
    with pytest.raises(OutcomeUnknown) as raised:
        drive(driver(clock).send(WRITE), clock, one_after_the_other(REPLY_LOST, denied))
    assert raised.value.__cause__ is denied


def test_a_condition_that_refuses_a_retry_is_a_refusal_that_an_earlier_attempt_may_have_caused(
    clock: ManualClock,
) -> None:
    refused = one_after_the_other(REPLY_LOST, error_of("ConditionalCheckFailedException"))
    found = drive(driver(clock).send(WRITE), clock, refused)
    assert found.refusal is not None
    assert found.perhaps_applied


def test_credentials_whose_provider_is_out_of_reach_for_too_long_are_refused_with_the_cause(clock: ManualClock) -> None:
    asked = 0

    def no_credentials(_: Call) -> Any:
        nonlocal asked
        asked += 1
        return NotSigned(REPLY_LOST)

    with pytest.raises(TableRefused, match="credentials could not be refreshed") as raised:
        drive(driver(clock).send(WRITE), clock, no_credentials)
    assert raised.value.__cause__ is REPLY_LOST
    assert asked > 5


# A transaction is applied once under its token, for as long as DynamoDB knows it.

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
TOKEN_IS_KNOWN_FOR_MS = 600_000
# Then its signature is too old: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
ARRIVES_AT_MOST_LATER_MS = 300_000
PATIENCE_MS = 1_800_000
TRANSACTIONS = pytest.mark.parametrize(
    "transaction",
    [TransactWrite((WRITE,)), FencedTransaction({}, (), PATIENCE_MS)],
    ids=lambda each: type(each).__name__,
)


class Silent:
    """A service that applies a transaction unless it recognises its token, and whose replies are all lost."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._known: dict[str, int] = {}
        self.applied: list[int] = []
        self.last_attempt_ms = 0

    def __call__(self, call: Call) -> Any:
        token = call.parameters["ClientRequestToken"]
        self.last_attempt_ms = self._clock.wall_ms
        if token not in self._known or self.last_attempt_ms - self._known[token] > TOKEN_IS_KNOWN_FOR_MS:
            self._known[token] = self.last_attempt_ms
            self.applied.append(self.last_attempt_ms)
        return REPLY_LOST


@TRANSACTIONS
def test_a_transaction_is_not_retried_beyond_the_life_of_its_token_with_any_patience_of_its_caller(
    transaction: Request, clock: ManualClock
) -> None:
    service = Silent(clock)
    with pytest.raises(OutcomeUnknown):
        drive(driver(clock, PATIENCE_MS).send(transaction), clock, service)
    (first_ms,) = service.applied
    assert service.last_attempt_ms - first_ms + ARRIVES_AT_MOST_LATER_MS < TOKEN_IS_KNOWN_FOR_MS
    assert service.last_attempt_ms - first_ms > TOKEN_IS_SAFE_FOR_MS / 2


def runs_on(clock: ManualClock, ms: int) -> None:
    clock.advance(ms / 1_000)


def is_frozen(clock: ManualClock, ms: int) -> None:
    """Its local clock stops."""
    clock.freeze(ms / 1_000)


def is_set_back(clock: ManualClock, ms: int) -> None:
    """Its wall clock shows nothing."""
    clock.advance(ms / 1_000)
    clock.set_wall(clock.wall_ms - 86_400_000)


def second_attempt(transaction: Request, clock: ManualClock, after: Callable[[ManualClock, int], None], ms: int) -> Any:
    """What the driver does this long after an attempt whose reply was lost."""
    actions = driver(clock, PATIENCE_MS, jitter=0).send(transaction)
    assert isinstance(next(actions), Call)
    assert isinstance(actions.throw(REPLY_LOST), Sleep)
    after(clock, ms)
    return next(actions)


MACHINES = pytest.mark.parametrize("machine", [runs_on, is_frozen, is_set_back])


@TRANSACTIONS
@MACHINES
@pytest.mark.parametrize("ms", [TOKEN_IS_SAFE_FOR_MS - 1, TOKEN_IS_SAFE_FOR_MS])
def test_a_transaction_is_retried_after_a_sleep_within_the_life_of_its_token_by_both_clocks(
    transaction: Request, machine: Callable[[ManualClock, int], None], ms: int, clock: ManualClock
) -> None:
    assert isinstance(second_attempt(transaction, clock, machine, ms), Call)


@TRANSACTIONS
@MACHINES
@pytest.mark.parametrize("ms", [TOKEN_IS_SAFE_FOR_MS + 1, TOKEN_IS_KNOWN_FOR_MS + 1])
def test_a_transaction_is_given_up_after_a_sleep_beyond_the_life_of_its_token_by_either_clock(
    transaction: Request, machine: Callable[[ManualClock, int], None], ms: int, clock: ManualClock
) -> None:
    with pytest.raises(OutcomeUnknown):
        second_attempt(transaction, clock, machine, ms)


@TRANSACTIONS
def test_a_transaction_that_certainly_was_not_applied_is_retried_for_its_callers_patience(
    transaction: Request, clock: ManualClock
) -> None:
    used: dict[str, list[int]] = {}

    def conflicts(call: Call) -> Any:
        used.setdefault(call.parameters["ClientRequestToken"], []).append(clock.wall_ms)
        return THROTTLED

    with pytest.raises(RequestNotApplied):
        drive(driver(clock, PATIENCE_MS).send(transaction), clock, conflicts)
    assert clock.read().local_ms > PATIENCE_MS - 2 * LONGEST_BACKOFF_MS
    assert all(attempts[-1] - attempts[0] <= TOKEN_IS_SAFE_FOR_MS for attempts in used.values())


def test_a_write_without_a_token_is_retried_for_its_callers_patience(clock: ManualClock) -> None:
    with pytest.raises(OutcomeUnknown):
        drive(driver(clock, PATIENCE_MS).send(WRITE), clock, lambda _: REPLY_LOST)
    assert clock.read().local_ms > PATIENCE_MS - 2 * LONGEST_BACKOFF_MS


OF_A_CLIENT_OF_A_UNIT = as_of_client(
    ConditionFailed("accounts", {"id": "a"}, "balance > :n", None, ()),
    SimpleNamespace(from_code=lambda _: ClientError),
    "PutItem",
    {"Error": {"Code": "ConditionalCheckFailedException"}},
)


@pytest.mark.parametrize("error", [TableRefused("of another"), OutcomeUnknown("of another"), OF_A_CLIENT_OF_A_UNIT])
def test_an_error_of_ours_that_a_signal_handler_raises_in_the_driver_is_no_answer_to_the_request(
    clock: ManualClock, error: TicketLockError
) -> None:
    """The request was applied. The handler has used the table, or a unit."""

    class Interrupted(Write):
        def items(self, _: Any) -> Any:
            raise error

    answers: list[object] = []

    def steps() -> Steps[None]:
        try:
            answers.append((yield Interrupted("Put", {}, "attribute_not_exists(pk)", item={})))
        except TicketLockError as answer:
            answers.append(answer)

    with pytest.raises((NoAnswer, ConditionFailed)) as raised:
        drive(driver(clock).perform_steps(steps()), clock, lambda _: dated(clock))
    assert getattr(raised.value, "error", raised.value) is error
    assert answers == []


def test_a_signal_handler_may_wait_at_any_opcode_for_another_thread_that_uses_the_table(clock: ManualClock) -> None:
    made = driver(clock)

    def reads() -> None:
        drive(made.perform(READ), clock, lambda _: dated(clock, Items=[]))

    def waits_for_a_thread() -> None:
        thread = Thread(target=reads)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()

    for number in count(1):
        with AtOpcode(number, waits_for_a_thread, ["wire/_driver.py", "wire/_table_time.py"]) as at:
            reads()
        if at.passed < number:
            break
    assert at.passed > 200
