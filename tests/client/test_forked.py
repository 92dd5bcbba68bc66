"""A forked child is refused, or leaves the lock to its parent, and never waits for a thread that it does not have."""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kit.forked import another_thread_in, code_of_a_fork, end_in_time, mutexes_of

from ticketlock import ClientClosed, Lease, LeaseGroup, LockClient, RecordWaitExceeded, aio
from ticketlock.client import _client
from ticketlock.client._waiters import waiters_of_this_process
from ticketlock.testing import MemoryDynamoDB

# The client's, its holdings', those of what is under way, of the heartbeat, of table time, of the leases; the lines'.
AT_LEAST = 7


class Held:
    """A client, a lease and a group of one process."""

    def __init__(self) -> None:
        self.memory = MemoryDynamoDB()
        self.locks = LockClient("locks", client=self.memory.client)
        self.lease = self.locks.acquire("order-42")
        self.group = self.locks.acquire_all(["order-43", "order-44"])
        self.told: list[object] = []

    def drop(self) -> None:
        vars(self).clear()
        gc.collect()

    @property
    def mutexes(self) -> list[Any]:
        return mutexes_of(self.locks, self.lease, self.group, waiters_of_this_process())


@pytest.fixture
def held() -> Held:
    return Held()


def leave(entered: Lease | LeaseGroup, error: Exception | None = None) -> None:
    entered.__exit__(type(error) if error else None, error, None)


QUIET: dict[str, Callable[[Held], object]] = {
    "the end of a block": lambda it: leave(it.lease),
    "the end of a block that fails": lambda it: leave(it.lease, LookupError()),
    "the end of a group's block": lambda it: leave(it.group),
    "is_held": lambda it: it.lease.is_held() or it.group.is_held() or None,
    "remaining_s": lambda it: it.lease.remaining_s,
    "deadline": lambda it: it.lease.deadline,
    "repr": lambda it: (repr(it.lease), repr(it.locks), repr(it.group)),
    "close": lambda it: it.locks.close(),
    "the end of the client's block": lambda it: it.locks.__exit__(),
    "the end of the interpreter": lambda _: _client._release_all(),
    "a collection of garbage": lambda it: it.drop(),
}

REFUSED: dict[str, Callable[[Held], object]] = {
    "acquire": lambda it: it.locks.acquire("other"),
    "acquire in vain": lambda it: it.locks.try_acquire("order-42"),
    "acquire_all": lambda it: it.locks.acquire_all(["other"]),
    "serialized": lambda it: it.locks.serialized(lambda: "other")(list)(),
    "resume": lambda it: it.locks.resume("order-42", it.lease.owner),
    "inspect": lambda it: it.locks.inspect("order-42"),
    "list": lambda it: list(it.locks.list()),
    "remove_waiter": lambda it: it.locks.remove_waiter("order-42", 7),
    "table": lambda it: it.locks.table.now(),
    "enter": lambda it: it.lease.__enter__(),
    "enter a group": lambda it: it.group.__enter__(),
    "renew": lambda it: it.lease.renew(),
    "extend": lambda it: it.lease.extend(600),
    "ensure": lambda it: it.lease.ensure(10),
    "set_data": lambda it: it.lease.set_data("page 7"),
    "transact_write": lambda it: it.lease.transact_write([]),
    "condition_check": lambda it: it.lease.condition_check(),
    "detach": lambda it: it.lease.detach(),
    "release": lambda it: it.lease.release(),
    "release with best effort": lambda it: it.lease.release(best_effort=True),
    "release of a group": lambda it: it.group.release(),
}


@pytest.mark.parametrize("use", QUIET.values(), ids=QUIET.keys())
def test_a_child_leaves_the_lock_to_its_parent_although_another_thread_was_in_every_mutex(
    held: Held, use: Callable[[Held], object]
) -> None:
    def quietly() -> None:
        sent = held.memory.sent
        before = len(sent)
        use(held)
        assert len(sent) == before

    assert len(held.mutexes) >= AT_LEAST
    with another_thread_in(*held.mutexes):
        assert code_of_a_fork(quietly) == 0
    held.lease.renew()
    held.group.release()
    held.lease.release()


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED.keys())
def test_a_child_is_refused_whatever_it_calls_although_another_thread_was_in_every_mutex(
    held: Held, use: Callable[[Held], object]
) -> None:
    def refused() -> None:
        with pytest.raises(ClientClosed, match="forked"):
            use(held)

    with another_thread_in(*held.mutexes):
        assert code_of_a_fork(refused) == 0
    assert held.lease.is_held()


def test_a_child_that_was_forked_within_an_acquisition_does_not_go_on_with_it(held: Held) -> None:
    waiting, children, parent = LockClient("locks", client=held.memory.client), list[int](), os.getpid()

    def fork(_: object) -> None:
        if not children:
            with another_thread_in(*mutexes_of(waiting), *held.mutexes):
                children.append(os.fork())
            if os.getpid() != parent:
                end_in_time()

    code = 1
    try:
        with pytest.raises((ClientClosed, RecordWaitExceeded)) as raised:
            waiting.acquire("order-42", on_wait=fork, record_wait=1)
        code = 0 if "forked" in str(raised.value) else 2
    finally:
        if os.getpid() != parent:
            os._exit(code)
    assert raised.type is RecordWaitExceeded
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


async def itself(acquiring: Any) -> Any:
    return acquiring


ENTERED: dict[str, Callable[[aio.LockClient], Awaitable[Any]]] = {
    "a lease": lambda locks: locks.acquire("order-42"),
    "an acquisition": lambda locks: itself(locks.acquire("order-42")),
    "a group": lambda locks: locks.acquire_all(["order-42"]),
}


@pytest.mark.parametrize("entered", ENTERED)
def test_a_child_that_was_forked_in_a_coroutine_leaves_the_blocks_of_its_parent_and_is_refused(
    memory: MemoryDynamoDB, entered: str
) -> None:
    children, parent = list[int](), os.getpid()

    async def main() -> None:
        made = aio.LockClient("locks", client=memory.async_client, heartbeat=False)
        async with made as locks, await ENTERED[entered](locks) as held:
            children.append(os.fork())
            if os.getpid() != parent:
                end_in_time()
                for use in (held.release, lambda: locks.acquire("other")):
                    with pytest.raises(ClientClosed, match="forked"):
                        await use()

    code = 1
    try:
        asyncio.run(main())
        code = 0
    finally:
        if os.getpid() != parent:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
