"""A client for tasks belongs to the event loop in which it was opened; elsewhere it says so at once."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from botocore.exceptions import HTTPClientError
from kit.awaited import Awaited, Sending

from ticketlock import ClientClosed, aio
from ticketlock.testing import ManualClock, MemoryDynamoDB

IN_ANOTHER = "was opened in another event loop: open a client of its own in each loop"
WITHOUT_ONE = "no event loop of asyncio runs here, .* it does not run under trio or curio"


class Opened:
    """A client, and a lease that it holds, of a loop that has been left."""

    def __init__(self, memory: MemoryDynamoDB, clock: ManualClock) -> None:
        self.locks = aio.LockClient("locks", client=Awaited(memory), clocks=clock, heartbeat=False)

    async def open(self) -> None:
        await self.locks.__aenter__()
        self.lease = await self.locks.acquire("held")
        self.group = await self.locks.acquire_all(["held too"])

    async def ship(self) -> None:
        decorated: Any = self.locks.serialized(lambda: "order-42")(self.open)
        await decorated()

    async def enter(self, entered: Any) -> None:
        async with entered:
            pytest.fail("entered")

    async def list(self) -> None:
        async for _ in self.locks.list():
            pytest.fail("listed")


USES: dict[str, Callable[[Opened], Coroutine[Any, Any, object]]] = {
    "open": lambda it: it.enter(it.locks),
    "acquire": lambda it: it.locks.acquire("order-42"),
    "enter": lambda it: it.enter(it.locks.acquire("order-42")),
    "try_acquire": lambda it: it.locks.try_acquire("order-42"),
    "acquire_all": lambda it: it.locks.acquire_all(["order-42"]),
    "serialized": lambda it: it.ship(),
    "resume": lambda it: it.locks.resume("held", it.lease.owner),
    "inspect": lambda it: it.locks.inspect("held"),
    "list": lambda it: it.list(),
    "remove_waiter": lambda it: it.locks.remove_waiter("held", 7),
    "close": lambda it: it.locks.close(),
    "renew": lambda it: it.lease.renew(),
    "extend": lambda it: it.lease.extend(600),
    "ensure": lambda it: it.lease.ensure(59.999),
    "set_data": lambda it: it.lease.set_data("page 7"),
    "transact_write": lambda it: it.lease.transact_write([]),
    "release": lambda it: it.lease.release(),
    "enter a lease": lambda it: it.enter(it.lease),
    "enter a group": lambda it: it.enter(it.group),
    "the end of a block": lambda it: it.lease.__aexit__(None, None, None),
    "release of a group": lambda it: it.group.release(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_client_that_is_used_in_another_event_loop_is_refused_at_once_and_works_on_in_its_own(
    memory: MemoryDynamoDB, clock: ManualClock, use: Callable[[Opened], Coroutine[Any, Any, object]]
) -> None:
    it = Opened(memory, clock)

    async def in_another() -> None:
        await use(it)

    own = asyncio.new_event_loop()
    own.run_until_complete(it.open())
    sent, before = len(memory.sent), memory.items()
    with pytest.raises(ClientClosed, match=IN_ANOTHER):
        asyncio.run(in_another())
    assert (len(memory.sent), memory.items()) == (sent, before)
    assert it.lease.is_held()
    own.run_until_complete(it.lease.release())
    own.run_until_complete(it.locks.close())
    own.close()


@pytest.mark.parametrize("use", [USES["open"], USES["acquire"], USES["list"]])
def test_a_client_is_refused_where_no_event_loop_of_asyncio_runs_in_a_sentence_that_names_other_libraries(
    memory: MemoryDynamoDB, clock: ManualClock, use: Callable[[Opened], Coroutine[Any, Any, object]]
) -> None:
    async def in_none() -> None:
        await use(Opened(memory, clock))

    # As trio and curio step through a coroutine.
    with pytest.raises(ClientClosed, match=WITHOUT_ONE):
        in_none().send(None)
    assert memory.sent == []


def test_a_client_of_its_own_for_aiobotocore_is_not_opened_again_in_another_event_loop() -> None:
    locks = aio.LockClient("locks", client_options={"region_name": "us-east-1"})

    async def enter() -> None:
        await locks.__aenter__()

    own = asyncio.new_event_loop()
    own.run_until_complete(enter())
    with pytest.raises(ClientClosed, match=IN_ANOTHER):
        asyncio.run(enter())
    own.run_until_complete(locks.close())
    own.close()


@pytest.mark.parametrize("why", ["Event loop is closed", "got Future <Future pending> attached to a different loop"])
def test_a_client_over_one_of_aiobotocore_that_was_opened_in_another_event_loop_says_so_at_once(
    memory: MemoryDynamoDB, clock: ManualClock, why: str
) -> None:
    sent: list[str] = []

    async def call(operation: str, _: Mapping[str, Any]) -> Any:
        sent.append(operation)
        try:
            raise RuntimeError(why)
        except RuntimeError as error:
            # As aiobotocore raises it.
            raise HTTPClientError(error=error)  # noqa: B904

    async def use() -> None:
        async with aio.LockClient("locks", client=Sending(memory, call), clocks=clock) as locks:
            await locks.acquire("order-42")

    with pytest.raises(ClientClosed, match=IN_ANOTHER):
        asyncio.run(use())
    assert len(sent) == 1
