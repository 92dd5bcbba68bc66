"""Performs calls and sleeps with boto3, for any number of threads."""

import _thread
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from botocore.exceptions import BotoCoreError

from ticketlock._checks import Refusals, text
from ticketlock.errors import TableError
from ticketlock.wire import _sdk
from ticketlock.wire._actions import (
    Actions,
    Answer,
    Call,
    Course,
    Fork,
    NoAnswer,
    Reply,
    ServiceName,
    Sleep,
    T,
    raise_if_foreign,
)
from ticketlock.wire._driver import Clocks, Driver, SystemClocks
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._sdk import NotSigned, error_of_signal_handler, refreshable
from ticketlock.wire._table_time import Moment

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient


_NO_THREAD_STARTS = ("can't start new thread", "can't create new thread")


def says_that_no_thread_starts(error: BaseException) -> bool:
    """Whether a thread could not be started: a container limits their number, or the program ends.

    A signal handler may raise a ``RuntimeError``, too, from code of its own, with another message.
    """
    if not isinstance(error, RuntimeError):
        return False
    raised_in = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    # Tools that replace the start of threads raise it themselves.
    return raised_in[-1] in ("threading", __name__) or str(error).startswith(_NO_THREAD_STARTS)


def at_once(works: Sequence[Callable[[], T]], most: int) -> list[T]:
    """Run several pieces of work at once; return what each returns, in their order. The caller may be interrupted.

    The locks of ``threading`` and of thread pools are objects in Python: an exception between two of their opcodes
    leaves them taken, and everyone who needs them waits for ever. The caller enters no such code: it starts threads
    without waiting for their start, and waits on a queue that is implemented in C.

    If one fails, or the caller is interrupted, those that have not begun never begin; the exception is raised once the
    others have ended. A second interrupt is raised at once.

    Args:
        most: how many run at the same time.

    Without threads for them, the caller does what they would do.

    Raises:
        BaseException: of the pieces that failed, the error of the first one.
    """
    left = deque(range(len(works)))
    returned: dict[int, T] = {}
    raised: dict[int, BaseException] = {}
    never_begun: list[int] = []
    # One entry for each piece that has ended. It only ends a wait: an interrupt may lose it.
    ended: SimpleQueue[None] = SimpleQueue()

    def run() -> None:
        while left:
            try:
                at = left.popleft()
            except IndexError:
                # Another thread was faster.
                return
            try:
                returned[at] = works[at]()
            except BaseException as error:
                give_up()
                raised[at] = error
            ended.put(None)

    def give_up() -> None:
        while left:
            try:
                never_begun.append(left.popleft())
            except IndexError:
                return

    def wait() -> None:
        while len(returned) + len(raised) + len(never_begun) < len(works):
            ended.get()

    try:
        try:
            for _ in range(min(most, len(works))):
                _thread.start_new_thread(run, ())
        except RuntimeError as error:
            if not says_that_no_thread_starts(error):
                raise
            run()
        wait()
    except BaseException:
        give_up()
        wait()
        raise
    if raised:
        raise raised[min(raised)]
    return [returned[at] for at in range(len(works))]


class Performer:
    """Sends requests to one table, for the threads of one process.

    A subclass names the request that asks the table for its time.

    Args:
        table_name: its name.
        client: a DynamoDB client with the settings of ``client_config``; None for one of its own.
        step_functions: a Step Functions client, or None.
        lambda_client: a Lambda client, or None.
        clocks: the source of time.
        sleep: waits between retries; takes seconds.
        give_up_after_ms: for how long one request is retried while the service throttles or fails.

    Raises:
        InvalidLockRequest: no Region is set, or the client cannot be used; it tells of all its settings at once.
    """

    _time_check: ClassVar[Request]

    def __init__(
        self,
        table_name: str,
        *,
        client: "DynamoDBClient | None" = None,
        step_functions: "SFNClient | None" = None,
        lambda_client: Any = None,
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] = time.sleep,
        give_up_after_ms: int = 8_000,
    ) -> None:
        refusals = Refusals()
        self.table_name = refusals.of(text, "table_name", table_name, 1_024)
        self._client = refusals.of(_sdk.make_client) if client is None else refusals.of(_sdk.checked_client, client)
        refusals.of(_sdk.check_kind, step_functions, "stepfunctions", is_awaited=False)
        refusals.of(_sdk.check_kind, lambda_client, "lambda", is_awaited=False)
        refusals.raise_all()
        self._clients: dict[ServiceName, Any] = {"stepfunctions": step_functions, "lambda": lambda_client}
        self._sleep = sleep
        own_clocks = clocks if clocks is not None else SystemClocks()
        self._driver = Driver(table_name, self._time_check, own_clocks, give_up_after_ms)

    @property
    def client(self) -> "DynamoDBClient":
        """The DynamoDB client."""
        return self._client

    @property
    def identity(self) -> tuple[str, str, str]:
        """A value that is equal for all clients of one table: endpoint, Region, name."""
        return self._client.meta.endpoint_url, self._client.meta.region_name, self.table_name

    @property
    def wakes(self) -> bool:
        """Whether it can reach a waiter that someone else runs."""
        return any(each is not None for each in self._clients.values())

    def run(self, steps: Callable[[Moment], Steps[T]], *, sleep: Callable[[float], object] | None = None) -> T:
        """Perform the steps of the protocol: send each request that they yield.

        Args:
            sleep: waits, in seconds; replaces the table's. An error that it raises ends the steps.
        """
        return self.drive(self._driver.run(steps), sleep=sleep)

    def now(self) -> Moment:
        """The present moment in table time; asks the table if it is not known."""
        return self.drive(self._driver.now())

    def perform(self, request: Request) -> Reply:
        """Send a request until it is applied or refused.

        Raises:
            RequestNotApplied: given up, and no attempt can have been applied.
            OutcomeUnknown: given up, and some attempt may have been applied.
            TableError: any other, if a retry cannot help.
        """
        return self.drive(self._driver.perform(request))

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made in this process, and not in one that this was forked from."""
        return self._driver.is_of_this_process

    @property
    def patience_ms(self) -> int:
        """For how long one request is retried while the service throttles or fails."""
        return self._driver.patience_ms

    def sending(self, request: Request) -> Actions[Answer]:
        """Send one request until it is applied or refused; a generator of calls and sleeps."""
        return self._driver.send(request)

    def drive(
        self,
        actions: Actions[T],
        *,
        sleep: Callable[[float], object] | None = None,
        dynamodb: "DynamoDBClient | None" = None,
    ) -> T:
        """Perform calls and sleeps, and pass back their results; with another DynamoDB client, if one is given."""
        wait = sleep if sleep is not None else self._sleep
        course = Course(actions)
        while True:
            try:
                return self._perform_all(course, dynamodb or self._client, wait)
            except BaseException as raised:
                # An interrupt between two actions.
                if not course.goes_on(raised):
                    raise course.end_by(raised)  # noqa: B904  # the same error

    def _perform_all(self, course: Course[T], dynamodb: "DynamoDBClient", wait: Callable[[float], object]) -> T:
        while (action := course.next()) is not None:
            try:
                course.answer = self._act(action, dynamodb, wait)
            except BaseException as raised:
                if not course.goes_on(raised):
                    raise
        return course.result

    def _act(self, action: Call | Sleep | Fork, dynamodb: "DynamoDBClient", wait: Callable[[float], object]) -> Any:
        if isinstance(action, Fork):
            works = [partial(self._come_of, course) for course in action.courses]
            return at_once(works, _sdk.most_at_once(self._client))
        if isinstance(action, Sleep):
            try:
                return wait(action.ms / 1_000)
            except Exception as error:
                raise NoAnswer(error) from error
        service, operation = action.service, action.operation
        client = dynamodb if service == "dynamodb" else _sdk.client_of(self._clients, service, operation)
        credentials = refreshable(client)
        if credentials is not None:
            try:
                credentials.get_frozen_credentials()
            except Exception as error:
                raise NotSigned(error) from error
        handled = sys.exception()
        try:
            return getattr(client, operation)(**action.parameters)
        except BotoCoreError as error:
            stranger = error_of_signal_handler(error, handled)
            if stranger is not None:
                raise stranger from None
            raise

    def _come_of(self, course: Actions[Any]) -> Any:
        try:
            return self.drive(course)
        except TableError as error:
            raise_if_foreign(error)
            return error
