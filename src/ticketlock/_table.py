"""The lock table over boto3: performs the protocol's requests, one process, any number of threads."""

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from ticketlock import _calls, _sdk
from ticketlock._clocks import Clocks, SystemClocks
from ticketlock._executions import close
from ticketlock._items import Item
from ticketlock._names import MAX_RECORD_WAIT_MS, LockName, whole_number
from ticketlock._outcomes import Grant, LockState, Place, Position, Released
from ticketlock._protocol import Contender
from ticketlock._queue import inspect
from ticketlock._requests import (
    Closing,
    Describing,
    Read,
    Reply,
    Request,
    Steps,
    TaskAnswer,
    TimeCheck,
    Transaction,
    Write,
)
from ticketlock._time import Moment, Reading, TableTime
from ticketlock._writes import Claim
from ticketlock.errors import InvalidLockRequest, OutcomeUnknown, RequestNotApplied, TableError, TableRefused

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

_FIRST_BACKOFF_MS = 25
_LONGEST_BACKOFF_MS = 1_000

T = TypeVar("T")


class LockTable:
    """A DynamoDB table of locks.

    The algorithm is the ticket lock of Reed and Kanodia, in the form that ``_protocol.py`` describes. Times are whole
    milliseconds. Every call may be repeated with the same owner.

    Args:
        table_name: a table with the string keys ``pk`` and ``sk`` and time to live on ``expiresAt``.
        client: a DynamoDB client of your own: no retries (``total_max_attempts`` 1), time-outs of at most 5 s.
        step_functions: a Step Functions client: whoever frees the lock or leaves the queue calls the next workflow in
            line; without one, that looks by itself after a while.
        clocks: where the time comes from.
        sleep: how to wait between repeats, in seconds.
        give_up_after_ms: for how long one request is repeated while the service throttles or fails.

    Raises:
        ValueError: the client is not usable; says which setting, and what it should be.
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: "DynamoDBClient | None" = None,
        step_functions: "SFNClient | None" = None,
        clocks: Clocks | None = None,
        sleep: Callable[[float], None] = time.sleep,
        give_up_after_ms: int = 8_000,
    ) -> None:
        self.table_name = table_name
        self._client = client if client is not None else _sdk.make_client()
        _sdk.check_client(self._client)
        self._step_functions = step_functions
        self._clocks = clocks if clocks is not None else SystemClocks()
        self._sleep = sleep
        self._give_up_after_ms = give_up_after_ms
        self._time = TableTime()
        self._time_lock = threading.Lock()

    def take_ticket(self, claim: Claim, record_wait_ms: int | None) -> Grant | Position:
        """Acquire at once, or stand in the queue.

        Args:
            claim: the acquisition.
            record_wait_ms: 0 raises RecordWaitExceeded instead of queueing; None waits for ever.

        Raises:
            InvalidLockRequest: an argument is out of its bounds; nothing was written.
            RecordWaitExceeded: somebody holds or queues, and the record wait is 0.
            PermitsMismatch, UnsupportedFormat: the lock exists with another limit, or in a newer format.
            TableError: the table could not be used.
        """
        if record_wait_ms is not None:
            whole_number("record_wait_ms", record_wait_ms, 0, MAX_RECORD_WAIT_MS)
        return self._contend(claim, lambda me: me.take_ticket(record_wait_ms))

    def check_turn(self, claim: Claim, place: Place, wait_until_ms: int | None) -> Grant | Position:
        """Look once, and take the lock or keep the place.

        Args:
            claim: the acquisition.
            place: from the ticket or the look before.
            wait_until_ms: the end of the record wait in table time; None waits for ever.

        Raises:
            RecordWaitExceeded: it is over, it is not the turn, and the queue is left.
            InvalidLockRequest, PermitsMismatch, UnsupportedFormat, TableError: as in ``take_ticket``.
        """
        if wait_until_ms is not None:
            whole_number("wait_until_ms", wait_until_ms, 0, 10 * MAX_RECORD_WAIT_MS)
        steps = Contender.check_turn if self._step_functions is None else _calls.check_turn
        return self._contend(claim, lambda me: steps(me, place, wait_until_ms))

    def withdraw(self, claim: Claim, ticket: int) -> Grant | None:
        """Leave the queue.

        Returns:
            None; or the grant, when an earlier try of the same owner had taken the lock already.
        """
        steps = Contender.withdraw if self._step_functions is None else _calls.withdraw
        return self._contend(claim, lambda me: steps(me, ticket))

    def renew(self, claim: Claim, fencing_token: int) -> Grant:
        """The heartbeat: a whole new lease, counted from now.

        Raises:
            LockLost: the lease is over, or the lock is not held with this token any more.
            TableError: the table could not be used; the lease runs on until its end.
        """
        return self._contend(claim, lambda me: me.renew(fencing_token))

    def release(self, claim: Claim, held: Grant) -> Released:
        """Free the lock.

        Args:
            claim: the acquisition.
            held: its grant, with the newest lease.

        Raises:
            LockLost: the lease had ended, and the lock is not held with this token any more.
            TableError: the table could not be used; the lease ends by itself.
        """
        steps = Contender.release if self._step_functions is None else _calls.release
        return self._contend(claim, lambda me: steps(me, held))

    def inspect(self, lock: LockName) -> LockState:
        """Read a lock, its holders and its whole queue; sends a Query a page."""
        return self.run(lambda now: inspect(lock, now))

    @property
    def step_functions(self) -> "SFNClient":
        """The Step Functions client.

        Raises:
            ValueError: there is none.
        """
        if self._step_functions is None:
            raise ValueError("a callback task or an execution is to be reached: give LockTable a Step Functions client")
        return self._step_functions

    def _contend(self, claim: Claim, steps: Callable[[Contender], Steps[T]]) -> T:
        slowest_s = _sdk.read_timeout_s(self._client)
        if slowest_s * 4_000 > claim.lease_ms:
            raise InvalidLockRequest(
                "lease_ms", claim.lease_ms, f"at least four read time-outs of the client ({slowest_s} s each)"
            )
        return self.run(lambda now: steps(Contender(claim, now)))

    def run(self, steps: Callable[[Moment], Steps[T]]) -> T:
        """Drive steps of the protocol to their end, performing each request that they yield."""
        generator = steps(self.now())
        try:
            request = next(generator)
            while True:
                try:
                    reply = self.perform(request)
                except TableError as error:
                    request = generator.throw(error)
                else:
                    request = generator.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def now(self) -> Moment:
        """The present moment in table time; asks the table where it is not known.

        It is the moment of the call, not of the answer: what a caller has finished by then was finished by then.
        """
        began = self._clocks.read()
        moment = self._moment(began)
        if moment is None:
            answer = self.perform(TimeCheck()).now
            moment = self._moment(began) or answer
        return moment

    def perform(self, request: Request) -> Reply:
        """Send a request until it is applied or refused.

        Raises:
            RequestNotApplied: given up, and no attempt can have been applied.
            OutcomeUnknown: given up, and some attempt may have been applied.
            TableError: another one, when repeating cannot help.
        """
        started_ms = self._clocks.read().local_ms
        last_ms = started_ms + self._give_up_after_ms
        if isinstance(request, Read | TaskAnswer) and request.patience_ms is not None:
            last_ms = min(last_ms, started_ms + request.patience_ms)
        if isinstance(request, Write) and request.not_after_local_ms is not None:
            last_ms = min(last_ms, request.not_after_local_ms)
            if started_ms > last_ms:
                raise RequestNotApplied("not sent: it would have come too late")
        perhaps_applied = False
        for attempt in itertools.count():
            sent = self._clocks.read()
            try:
                response = self._send(request)
                items = _items(request, response)
            except (BotoCoreError, ClientError) as error:
                meaning = _sdk.meaning(error)
                if isinstance(meaning, _sdk.Refusal):
                    now = self._moment_of(request, sent, getattr(error, "response", None))
                    return Reply(False, meaning.items, now, meaning.refused)
                if isinstance(meaning, TableError):
                    raise meaning from error
                perhaps_applied |= meaning.perhaps_applied and not isinstance(
                    request, Read | TimeCheck | Closing | Describing
                )
                pause_ms = random.random() * min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << attempt)
                if self._clocks.read().local_ms + pause_ms > last_ms:
                    given_up = OutcomeUnknown if perhaps_applied else RequestNotApplied
                    raise given_up(f"gave up after {attempt + 1} attempts: {error}") from error
                self._sleep(pause_ms / 1_000)
            else:
                now = self._moment_of(request, sent, response)
                return Reply(True, items, now, last_key=response.get("LastEvaluatedKey"))
        raise AssertionError("unreachable")

    def _send(self, request: Request) -> Any:
        table = {"TableName": self.table_name}
        client: Any = self._client
        if isinstance(request, Read):
            return client.query(**table, **request.parameters())
        if isinstance(request, TimeCheck):
            return client.get_item(**table, **request.parameters())
        if isinstance(request, TaskAnswer):
            return self._answer(request)
        if isinstance(request, Closing):
            close(self.step_functions, request.execution)
            return {}
        if isinstance(request, Describing):
            return self.step_functions.describe_execution(executionArn=request.execution)
        if isinstance(request, Transaction):
            return client.transact_write_items(
                TransactItems=[{write.operation: {**table, **write.parameters()}} for write in request.writes]
            )
        send = {"Update": client.update_item, "Put": client.put_item, "Delete": client.delete_item}
        returns = {} if request.returns == "NONE" else {"ReturnValues": request.returns}
        return send[request.operation](**table, **request.parameters(), **returns)

    def _answer(self, answer: TaskAnswer) -> Any:
        if answer.error is None:
            return self.step_functions.send_task_success(taskToken=answer.task_token, output="{}")
        return self.step_functions.send_task_failure(
            taskToken=answer.task_token, error=answer.error, cause=answer.cause or ""
        )

    def _moment_of(self, request: Request, sent: Reading, response: Any) -> Moment:
        """The moment of a reply, whose Date tells the table's time; that of another service's does not."""
        if isinstance(request, TaskAnswer | Closing | Describing):
            return self.now()
        received = self._clocks.read()
        date_ms = _sdk.date_ms(response)
        if date_ms is not None:
            with self._time_lock:
                self._time.observe(date_ms, sent, received)
        moment = self._moment(received)
        if moment is None:
            raise TableRefused("the replies of the service carry no Date: does something in between take it out?")
        return moment

    def _moment(self, reading: Reading) -> Moment | None:
        with self._time_lock:
            return self._time.at(reading)


def _items(request: Request, response: Any) -> tuple[Item | None, ...]:
    """The items in a reply; the SDK hands on a reply that broke off as an empty one."""
    if isinstance(request, Read):
        if "Items" not in response:
            raise _sdk.BrokenReply()
        return tuple(response["Items"])
    if isinstance(request, Closing):
        return ()
    if isinstance(request, Describing):
        return (response,)
    if isinstance(request, Write) and request.returns != "NONE" and "Attributes" not in response:
        raise _sdk.BrokenReply()
    return (response.get("Attributes"),)
