"""Performs calls and sleeps with aiobotocore, for the tasks of one event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

from botocore.exceptions import HTTPClientError

from ticketlock._checks import Refusals, text
from ticketlock.errors import ClientClosed, TableError
from ticketlock.wire import _sdk
from ticketlock.wire._actions import Actions, Answer, Call, Course, Fork, ServiceName, Sleep, T, is_foreign
from ticketlock.wire._driver import Clocks, Driver
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._sdk import NotSigned, client_config, refreshable
from ticketlock.wire._table_time import Moment

_GIVE_UP_AFTER_MS = 8_000

_OF_ANOTHER_LOOP = (
    "the client was opened in another event loop: open a client of its own in each loop, with 'async with'; each "
    "asyncio.run has a new loop"
)


def make_client(options: Mapping[str, Any]) -> Any:
    """Return a context manager that opens a DynamoDB client: short time-outs, no retries of its own."""
    # Imported here: not needed if the caller passes a client.
    from aiobotocore.session import get_session

    return get_session().create_client("dynamodb", **{"config": client_config(), **options})


class AsyncPerformer:
    """Sends requests to one table, for the tasks of one event loop.

    A subclass names the request that asks the table for its time.

    Args:
        table_name: its name.
        step_functions, lambda_client: aiobotocore clients for Step Functions and Lambda, or None.
        clocks: the source of time.

    Attributes:
        client: the aiobotocore client for DynamoDB; None until it is open.
    """

    _time_check: ClassVar[Request]

    def __init__(self, table_name: str, step_functions: Any, clocks: Clocks, lambda_client: Any = None) -> None:
        self.table_name = table_name
        self.client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: dict[ServiceName, Any] = {"stepfunctions": step_functions, "lambda": lambda_client}
        self._driver = Driver(table_name, self._time_check, clocks, _GIVE_UP_AFTER_MS)

    def open(self, client: Any) -> None:
        """Use this client, with the settings of ``client_config``, in the running event loop.

        Raises:
            InvalidLockRequest: it cannot be used; the message says why.
            ClientClosed: as from ``check_loop``.
        """
        self.check_loop()
        refusals = Refusals()
        refusals.of(text, "table_name", self.table_name, 1_024)
        refusals.of(_sdk.checked_client, client, is_awaited=True)
        refusals.raise_all()
        self.client, self._loop = client, asyncio.get_running_loop()

    def close(self) -> None:
        """Use no client and no event loop any more, until it is opened again."""
        self.client = self._loop = None

    def check_loop(self) -> None:
        """Refuse to work where its client cannot: requests would fail one by one, perhaps after they were applied.

        Raises:
            ClientClosed: it was opened in another event loop, or no event loop of asyncio runs, or this process was
                forked from the one that made it.
        """
        self._driver.check_process()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ClientClosed(
                "no event loop of asyncio runs here, and ticketlock.aio needs one: it does not run under trio or "
                "curio; use anyio's backend for asyncio, or the client for threads in a worker thread"
            ) from None
        if self._loop is not None and self._loop is not loop:
            raise ClientClosed(_OF_ANOTHER_LOOP)

    @property
    def identity(self) -> tuple[str, str, str]:
        """A value that is equal for all clients of one table: endpoint, Region, name."""
        return self.client.meta.endpoint_url, self.client.meta.region_name, self.table_name

    async def run(self, steps: Callable[[Moment], Steps[T]]) -> T:
        """Perform the steps of a protocol: send each request that they yield."""
        return await self.drive(self._driver.run(steps))

    @property
    def wakes(self) -> bool:
        """Whether it can reach a waiter that someone else runs."""
        return any(each is not None for each in self._clients.values())

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

    async def drive(
        self,
        actions: Actions[T],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        dynamodb: Any = None,
    ) -> T:
        """Perform calls and sleeps, and pass back their results.

        Args:
            sleep: waits; takes seconds.
            dynamodb: a DynamoDB client to use instead of the table's.

        Raises:
            ClientClosed: as from ``check_loop``; nothing was performed.
        """
        self.check_loop()
        clients: dict[ServiceName, Any] = {**self._clients, "dynamodb": dynamodb or self.client}
        course = Course(actions)
        while True:
            try:
                return await self._perform_all(course, clients, sleep)
            except BaseException as raised:
                # An interrupt between two actions.
                if not course.goes_on(raised):
                    raise course.end_by(raised)  # noqa: B904  # the same error

    async def _perform_all(
        self, course: Course[T], clients: Mapping[ServiceName, Any], sleep: Callable[[float], Awaitable[object]]
    ) -> T:
        while (action := course.next()) is not None:
            try:
                if isinstance(action, Fork):
                    course.answer = await self._come_of(action.courses)
                elif isinstance(action, Sleep):
                    await sleep(action.ms / 1_000)
                else:
                    course.answer = await _called(_sdk.client_of(clients, action.service, action.operation), action)
            except BaseException as raised:
                if not course.goes_on(raised):
                    raise
        return course.result

    async def _come_of(self, courses: Sequence[Actions[Any]]) -> list[Any]:
        at_once = asyncio.Semaphore(_sdk.most_at_once(self.client))

        async def come_of(each: Actions[Any]) -> Any:
            async with at_once:
                return await self.drive(each)

        # Wait for all of them: no one else waits for those that are left.
        found = await asyncio.gather(*map(come_of, courses), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException) and (not isinstance(each, TableError) or is_foreign(each)):
                raise each
        return found


async def _called(client: Any, call: Call) -> Any:
    credentials = refreshable(client)
    if credentials is not None:
        try:
            await credentials.get_frozen_credentials()
        except Exception as error:
            raise NotSigned(error) from error
    try:
        return await getattr(client, call.operation)(**call.parameters)
    except HTTPClientError as error:
        if _is_of_another_loop(error):
            raise ClientClosed(f"{_OF_ANOTHER_LOOP}. This is so for a client of aiobotocore, too") from error
        raise


def _is_of_another_loop(error: HTTPClientError) -> bool:
    """Whether a request failed because the SDK's client was opened in another event loop: a retry fails, too."""
    why = error.__cause__ or error.__context__
    return isinstance(why, RuntimeError) and "loop" in str(why)
