"""Drives a protocol: sends its requests until they are applied or refused, and turns the answers into replies.

It does no I/O: everything here is a generator that yields actions, a ``Call`` of an SDK's client or a ``Sleep``. A
performer (``_performer.py`` with boto3 for threads, ``_for_tasks`` with aiobotocore for tasks) sends back what
a call returned, or throws what it raised. So retries, deadlines and table time are implemented once for both.
"""

import itertools
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, Protocol

from ticketlock.errors import (
    ClientClosed,
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    TableNotFound,
    TableRefused,
    TicketLockError,
)
from ticketlock.wire import _sdk
from ticketlock.wire._actions import (
    Actions,
    Answer,
    Fork,
    NoAnswer,
    Refusal,
    Reply,
    Sleep,
    T,
    is_foreign,
    raise_if_foreign,
)
from ticketlock.wire._requests import ForkingSteps, Request, Steps, Together
from ticketlock.wire._sdk import NotSigned
from ticketlock.wire._table_time import Moment, Reading, TableTime, passed_ms

# Linux's CLOCK_BOOTTIME continues while the machine is suspended; so does CLOCK_MONOTONIC on macOS.
_LOCAL_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

_FIRST_BACKOFF_MS = 25
_LONGEST_BACKOFF_MS = 1_000


class Clocks(Protocol):
    """The source of clock readings: the machine, or a test."""

    def read(self) -> Reading:
        """Read the clocks."""
        ...


class SystemClocks:
    """The machine's own clocks."""

    def read(self) -> Reading:
        """Read the clocks."""
        local_ns = time.clock_gettime_ns(_LOCAL_CLOCK) if _LOCAL_CLOCK is not None else time.monotonic_ns()
        return Reading(local_ns // 1_000_000, time.time_ns() // 1_000_000)


def longest_backoff_ms(doublings: int) -> int:
    """The pause before another try, before it is shortened at random."""
    # Limited: so many doublings of a millisecond are longer already.
    return min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << min(doublings, _LONGEST_BACKOFF_MS.bit_length()))


class OwnProcess:
    """The process that created the object."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether this process is that one, and not a fork of it."""
        return self._pid == os.getpid()

    def check(self) -> None:
        """Refuse to work in a forked child.

        Raises:
            ClientClosed: this process is one.
        """
        if not self.is_this:
            raise ClientClosed(
                f"the client was made in process {self._pid}, from which this one was forked: create a new client here"
            )


class Driver:
    """Sends one process's requests to one table: keeps table time, and retries requests.

    Args:
        table_name: the table of requests that do not name one.
        time_check: the request that asks the table for its time.
        clocks: the source of time.
        give_up_after_ms: for how long one request is retried while the service throttles or fails.
        jitter: random numbers in [0, 1), so that retries of several clients do not collide again.

    Attributes:
        patience_ms: for how long one request is retried.
    """

    def __init__(
        self,
        table_name: str,
        time_check: Request,
        clocks: Clocks,
        give_up_after_ms: int,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.clocks = clocks
        self._table_name = table_name
        self._time_check = time_check
        self.patience_ms = give_up_after_ms
        self._jitter = jitter
        self._time = TableTime()
        self._process = OwnProcess()

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made in this process, and not in one that this was forked from."""
        return self._process.is_this

    def check_process(self) -> None:
        """Refuse to work in a forked child; raises as ``OwnProcess.check``."""
        self._process.check()

    def run(self, steps: Callable[[Moment], Steps[T]], *, until_ms: int | None = None) -> Actions[T]:
        """Perform the steps of the protocol: send each request that they yield.

        Args:
            steps: gets the time at their beginning.
            until_ms: the last moment on the local clock at which a request is sent again, however long it is retried
                otherwise; None for no such moment. Each is sent once.
        """
        return (yield from self.perform_steps(steps((yield from self.now(until_ms))), until_ms=until_ms))

    def perform_steps(
        self,
        generator: ForkingSteps[T],
        *,
        until_ms: int | None = None,
        begun_with: Request | Together | None = None,
    ) -> Actions[T]:
        """The same for steps that do not need the time at their beginning, and may send several requests at once.

        Args:
            begun_with: the first request, of steps that were begun; None for others.
        """
        try:
            request = next(generator) if begun_with is None else begun_with
            while True:
                try:
                    if isinstance(request, Together):
                        reply = yield Fork(tuple(self._course(each, until_ms) for each in request.requests))
                    else:
                        reply = yield from self.perform(request, until_ms)
                except TableError as error:
                    request = generator.throw(NoAnswer(error) if is_foreign(error) else error)
                else:
                    request = generator.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def _course(self, each: Request | ForkingSteps[Any], until_ms: int | None) -> Actions[Any]:
        if isinstance(each, Request):
            return self.perform(each, until_ms)
        return self.perform_steps(each, until_ms=until_ms)

    def now(self, until_ms: int | None = None) -> Actions[Moment]:
        """The present moment in table time; asks the table if it is not known.

        It is the moment of the call, not of the answer: what a caller had finished by then is finished.
        """
        # Before any lock is taken: at the fork another thread may have held it, and that thread does not exist here.
        self._process.check()
        began = self.clocks.read()
        last_ms = _earlier(began.local_ms + self.patience_ms, until_ms)
        while (moment := self._moment(began)) is None:
            answer = yield from self.send(self._time_check, until_ms)
            if _sdk.date_ms(answer.response) is None:
                raise TableRefused("the service's replies have no `Date` header; a proxy may have removed it")
            moment = self._moment(began)
            if moment is not None:
                break
            # No bound learned: the reply took over 5 s, or the clocks jumped. Ask again.
            began = self.clocks.read()
            if began.local_ms > last_ms:
                raise RequestNotApplied(f"no reply carried table time within {self.patience_ms} ms")
        return moment

    def perform(self, request: Request, until_ms: int | None = None) -> Actions[Reply]:
        """Send a request until it is applied or refused, and return the reply with its moment.

        Raises:
            RequestNotApplied: given up, and no attempt can have been applied.
            OutcomeUnknown: given up, and some attempt may have been applied; or one was, and table time is not known
                since then.
            TableError: any other, if a retry cannot help.
        """
        answer = yield from self.send(request, until_ms)
        now = self._moment(answer.received)
        if now is None:
            try:
                now = yield from self.now(until_ms)
            except TableError as error:
                raise_if_foreign(error)
                if not answer.perhaps_applied:
                    raise
                raise OutcomeUnknown(f"the request was answered, but table time is not known: {error}") from error
        refusal = answer.refusal
        if refusal is not None:
            unanswered = answer.perhaps_applied
            return Reply(False, refusal.items, now, refusal.refused, repeated=unanswered, unanswered=unanswered)
        last_key, consumed = answer.response.get("LastEvaluatedKey"), _sdk.consumed(answer.response)
        return Reply(True, answer.items, now, last_key=last_key, unanswered=answer.unanswered, consumed=consumed)

    def send(self, request: Request, until_ms: int | None = None) -> Actions[Answer]:
        """Send a request until the service has applied or refused it.

        Args:
            request: the request.
            until_ms: as in ``run``.

        Raises:
            RequestNotApplied, OutcomeUnknown, TableError: as in ``perform``. If an earlier attempt may have been
                applied, an error of a later one is ``OutcomeUnknown``. The exception is a condition that did not hold:
                then the protocol reads the item.
            ClientClosed: this process was forked from the one that created the driver.
        """
        first = sent = self.clocks.read()
        last_start_ms = request.last_start_ms()
        last_ms = sent.local_ms + request.gives_up_after_ms(self.patience_ms)
        last_ms = _earlier(_earlier(last_ms, last_start_ms), until_ms)
        identity = _identity_of(request)
        perhaps_applied = False
        for attempt in itertools.count():
            if attempt:
                sent = self.clocks.read()
            # By the clock that moved further: the local one stops in a frozen machine.
            if last_start_ms is not None and first.local_ms + passed_ms(first, sent) > last_start_ms:
                given_up = OutcomeUnknown if perhaps_applied else RequestNotApplied
                raise given_up("not sent: it would have arrived too late")
            self._process.check()
            if passed_ms(first, sent) > request.repeatable_for_ms:
                if perhaps_applied:
                    raise OutcomeUnknown("not sent again: the service may have forgotten the first attempt by now")
                # No attempt was applied: start again under a new identity.
                identity, first = _identity_of(request), sent
            try:
                response = yield from request.calls(self._table_name, identity)
                items = request.items(response)
            except _sdk.FAILURES as error:
                if isinstance(error, TicketLockError):
                    # That of a unit's `client`, which is an error of the SDK, too: a signal handler has used one.
                    raise
                meaning = _sdk.meaning(error)
                if isinstance(meaning, Refusal):
                    refused = getattr(error, "response", None)
                    received = self._received(request, sent, refused)
                    return Answer(refused, received, perhaps_applied, refusal=meaning, error=error)
                if isinstance(meaning, TableNotFound):
                    meaning = _not_found(request.tables(self._table_name))
                if isinstance(meaning, TableError):
                    # An error of this attempt says nothing about earlier ones.
                    if perhaps_applied:
                        meaning = OutcomeUnknown(f"an earlier attempt may have been applied; then: {meaning}")
                    shown, cause = _shown(request, meaning, error)
                    raise shown from cause
                perhaps_applied |= meaning.perhaps_applied and request.may_write
                pause_ms = self._jitter() * longest_backoff_ms(attempt)
                if self._is_the_last(request, perhaps_applied, first, pause_ms, last_ms):
                    in_the_end = OutcomeUnknown if perhaps_applied else meaning.in_the_end
                    over = in_the_end(f"gave up after {attempt + 1} attempts: {error}")
                    shown, cause = _shown(request, over, error)
                    raise shown from cause
            else:
                received = self._received(request, sent, response)
                return Answer(response, received, request.may_write, items, unanswered=perhaps_applied)
            yield Sleep(pause_ms)
        raise AssertionError("unreachable")

    def _is_the_last(
        self, request: Request, perhaps_applied: bool, first: Reading, pause_ms: float, last_ms: int
    ) -> bool:
        """Whether an attempt after this pause would be too late."""
        now = self.clocks.read()
        if now.local_ms + pause_ms > last_ms:
            return True
        return perhaps_applied and passed_ms(first, now) + pause_ms > request.repeatable_for_ms

    def _received(self, request: Request, sent: Reading, response: Any) -> Reading:
        """Use the Date of an answer if it carries table time."""
        received = self.clocks.read()
        if request.tells_time:
            date_ms = _sdk.date_ms(response)
            if date_ms is not None:
                self._time.observe(date_ms, sent, received)
        return received

    def _moment(self, reading: Reading) -> Moment | None:
        return self._time.at(reading)


def _identity_of(request: Request) -> str:
    """A new identity; none for one that may be applied twice, or that its condition protects."""
    return token_hex(16) if request.repeatable_for_ms < math.inf else ""


def _earlier(moment_ms: int, other_ms: int | None) -> int:
    """The earlier of two moments, of which the second may be none."""
    return moment_ms if other_ms is None else min(moment_ms, other_ms)


def _not_found(names: Sequence[str]) -> TableNotFound:
    """Name the missing table; of several tables the service does not say which."""
    if len(names) == 1:
        return TableNotFound(f"there is no table {names[0]!r} in this account and Region")
    return TableNotFound(f"one of the tables {', '.join(map(repr, names))} does not exist in this account and Region")


def _shown(request: Request, error: TableError, cause: Exception) -> tuple[TableError, Exception | None]:
    """The error for the caller, and its cause, without what the request leaves out of logs."""
    shown = request.as_shown(error)
    if shown is not error:
        return shown, None
    return shown, cause.cause if isinstance(cause, NotSigned) else cause
