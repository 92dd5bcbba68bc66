"""Drives the protocol: turns its requests into calls of the SDK, and what comes back into replies. No I/O of its own.

Everything here is a generator that yields actions, a ``Call`` of an SDK's client or a ``Sleep``. Whoever performs them
(``_table.py`` with boto3 and threads, ``aio`` with aiobotocore) sends back what a call returned, or throws what it
raised. So repeats, deadlines and the time of the table have one home for both.
"""

import itertools
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError, TableRefused
from ticketlock.wire import _sdk
from ticketlock.wire._actions import Actions, Call, Sleep, T
from ticketlock.wire._attributes import Item
from ticketlock.wire._clocks import Clocks
from ticketlock.wire._requests import (
    Closing,
    Describing,
    Pause,
    Read,
    Reply,
    Request,
    Scan,
    Steps,
    TaskAnswer,
    TimeCheck,
    Transaction,
    Write,
)
from ticketlock.wire._sdk import StillRunning
from ticketlock.wire._step_functions import is_closed
from ticketlock.wire._table_time import Moment, Reading, TableTime

_FIRST_BACKOFF_MS = 25
_LONGEST_BACKOFF_MS = 1_000


class Driver:
    """One process's dealings with one table: what it knows of the time, and how it repeats requests.

    Args:
        table_name: the table.
        clocks: where the time comes from.
        give_up_after_ms: for how long one request is repeated while the service throttles or fails.
        jitter: random numbers in [0, 1), so that repeats do not meet again.
    """

    def __init__(
        self,
        table_name: str,
        clocks: Clocks,
        give_up_after_ms: int,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.clocks = clocks
        self._table_name = table_name
        self._give_up_after_ms = give_up_after_ms
        self._jitter = jitter
        self._time = TableTime()
        self._time_lock = threading.Lock()

    def run(self, steps: Callable[[Moment], Steps[T]]) -> Actions[T]:
        """Drive steps of the protocol to their end, performing each request that they yield."""
        generator = steps((yield from self.now()))
        try:
            request = next(generator)
            while True:
                try:
                    reply = yield from self.perform(request)
                except TableError as error:
                    request = generator.throw(error)
                else:
                    request = generator.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def now(self) -> Actions[Moment]:
        """The present moment in table time; asks the table where it is not known.

        It is the moment of the call, not of the answer: what a caller has finished by then was finished by then.
        """
        last_ms = self.clocks.read().local_ms + self._give_up_after_ms
        while True:
            began = self.clocks.read()
            moment = self._moment(began)
            if moment is None:
                answer = yield from self._answer(TimeCheck())
                if _sdk.date_ms(answer.response) is None:
                    raise TableRefused(
                        "the replies of the service carry no Date: does something in between take it out?"
                    )
                moment = self._moment(began)
            if moment is not None:
                return moment
            # A reply does not tell it that was slow, or came while this machine stood still or its clock was set.
            if self.clocks.read().local_ms > last_ms:
                raise RequestNotApplied(f"no reply told the table's time within {self._give_up_after_ms} ms")

    def perform(self, request: Request) -> Actions[Reply]:
        """Send a request until it is applied or refused.

        Raises:
            RequestNotApplied: given up, and no attempt can have been applied.
            OutcomeUnknown: given up, and some attempt may have been applied; or one was, and the time is not known
                since.
            TableError: another one, when repeating cannot help.
        """
        if isinstance(request, Pause):
            yield Sleep(request.ms)
            return Reply(True, (), (yield from self.now()))
        answer = yield from self._answer(request)
        now = self._moment(answer.received)
        if now is None:
            try:
                now = yield from self.now()
            except TableError as error:
                if not answer.perhaps_applied:
                    raise
                raise OutcomeUnknown(f"it was answered, but the table's time is not known since: {error}") from error
        refusal = answer.refusal
        if refusal is not None:
            return Reply(False, refusal.items, now, refusal.refused)
        return Reply(True, answer.items, now, last_key=answer.response.get("LastEvaluatedKey"))

    def _answer(self, request: Request) -> "Actions[_Answer]":
        """Send a request until the service has applied or refused it."""
        started_ms = self.clocks.read().local_ms
        last_ms = started_ms + self._give_up_after_ms
        if isinstance(request, Read | TaskAnswer) and request.patience_ms is not None:
            last_ms = min(last_ms, started_ms + request.patience_ms)
        too_late_ms = request.not_after_local_ms if isinstance(request, Write) else None
        if too_late_ms is not None:
            last_ms = min(last_ms, too_late_ms)
        send = self._sender(request)
        writes = not isinstance(request, Read | Scan | TimeCheck | Closing | Describing)
        perhaps_applied = False
        for attempt in itertools.count():
            sent = self.clocks.read()
            if too_late_ms is not None and sent.local_ms > too_late_ms:
                given_up = OutcomeUnknown if perhaps_applied else RequestNotApplied
                raise given_up("not sent: it would have come too late")
            try:
                response = yield from send()
                items = _items(request, response)
            except (BotoCoreError, ClientError) as error:
                meaning = _sdk.meaning(error)
                if isinstance(meaning, _sdk.Refusal):
                    refused = getattr(error, "response", None)
                    return _Answer(refused, self._received(request, sent, refused), perhaps_applied, refusal=meaning)
                if isinstance(meaning, TableError):
                    if isinstance(request, TaskAnswer):
                        raise _without_the_token(meaning, request) from None
                    raise meaning from error
                perhaps_applied |= meaning.perhaps_applied and writes
                pause_ms = self._jitter() * min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << attempt)
                if self.clocks.read().local_ms + pause_ms > last_ms:
                    given_up = OutcomeUnknown if perhaps_applied else RequestNotApplied
                    over = given_up(f"gave up after {attempt + 1} attempts: {error}")
                    if isinstance(request, TaskAnswer):
                        raise _without_the_token(over, request) from None
                    raise over from error
                yield Sleep(pause_ms)
            else:
                return _Answer(response, self._received(request, sent, response), writes, items)
        raise AssertionError("unreachable")

    def _sender(self, request: Request) -> Callable[[], Actions[Any]]:
        """What sends a request, once a call: the same in every attempt."""
        if isinstance(request, Closing):
            return partial(_close, request.execution)
        if isinstance(request, Describing):
            return partial(_describe, request.execution)
        return partial(_once, self._call(request))

    def _call(self, request: Request) -> Call:
        table = {"TableName": self._table_name}
        if isinstance(request, Read):
            return Call("dynamodb", "query", {**table, **request.parameters()})
        if isinstance(request, Scan):
            return Call("dynamodb", "scan", {**table, **request.parameters()})
        if isinstance(request, TimeCheck):
            return Call("dynamodb", "get_item", {**table, **request.parameters()})
        if isinstance(request, TaskAnswer):
            return _answer_to_task(request)
        if isinstance(request, Transaction):
            items = [{write.operation: {**table, **write.parameters()}} for write in request.writes]
            # DynamoDB applies a transaction once in ten minutes, and says so to each attempt with this token
            # (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html).
            parameters = {"TransactItems": items, "ClientRequestToken": uuid.uuid4().hex}
            return Call("dynamodb", "transact_write_items", parameters)
        assert isinstance(request, Write)
        operation = {"Update": "update_item", "Put": "put_item", "Delete": "delete_item"}[request.operation]
        returns = {} if request.returns == "NONE" else {"ReturnValues": request.returns}
        return Call("dynamodb", operation, {**table, **request.parameters(), **returns})

    def _received(self, request: Request, sent: Reading, response: Any) -> Reading:
        """Take in the Date of a reply, which tells the table's time; that of another service's does not."""
        received = self.clocks.read()
        if not isinstance(request, TaskAnswer | Closing | Describing):
            date_ms = _sdk.date_ms(response)
            if date_ms is not None:
                with self._time_lock:
                    self._time.observe(date_ms, sent, received)
        return received

    def _moment(self, reading: Reading) -> Moment | None:
        with self._time_lock:
            return self._time.at(reading)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the service answered to a request.

    Attributes:
        response: the reply, or that of the error which refused it.
        received: when it came.
        perhaps_applied: whether an attempt has written, or may have.
        items: of an applied request.
        refusal: of a refused one.
    """

    response: Any
    received: Reading
    perhaps_applied: bool
    items: tuple[Item | None, ...] = ()
    refusal: _sdk.Refusal | None = None


def _without_the_token(meaning: TableError, answer: TaskAnswer) -> TableError:
    """The same, for a log: what the service says may quote the token that it refuses."""
    return type(meaning)(str(meaning).replace(answer.task_token, "..."))


def _once(call: Call) -> Actions[Any]:
    return (yield call)


def _answer_to_task(answer: TaskAnswer) -> Call:
    if answer.error is None:
        return Call("stepfunctions", "send_task_success", {"taskToken": answer.task_token, "output": "{}"})
    failure = {"taskToken": answer.task_token, "error": answer.error, "cause": answer.cause or ""}
    return Call("stepfunctions", "send_task_failure", failure)


def _describe(execution: str) -> Actions[Any]:
    described = yield Call("stepfunctions", "describe_execution", {"executionArn": execution})
    if "status" not in described:
        raise _sdk.BrokenReply()
    return described


def _close(execution: str) -> Actions[Any]:
    """Stop an execution, unless it is closed already."""
    if not is_closed((yield from _describe(execution))):
        over = {"error": "Abandoned", "cause": "the execution that started it is over"}
        yield Call("stepfunctions", "stop_execution", {"executionArn": execution, **over})
        if not is_closed((yield from _describe(execution))):
            raise StillRunning()
    return {}


def _items(request: Request, response: Any) -> tuple[Item | None, ...]:
    """The items in a reply; the SDK hands on a reply that broke off as an empty one."""
    if isinstance(request, Read | Scan):
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
