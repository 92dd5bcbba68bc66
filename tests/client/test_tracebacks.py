"""Tracebacks: an error of ours shows at most three frames of ours below the caller's line; a bug shows all."""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError
from kit.awaited import Awaited
from kit.places import Moved, Wire, is_grant

from ticketlock import LockClient, LockLost, OutcomeUnknown, RecordWaitExceeded, TicketLockError, aio
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB
from ticketlock.units import Units, create_units_table

MOST = 3
LONG = "x" * 1_025


def frames_of_ours(error: BaseException) -> list[str]:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [each.f_code.co_name for each in frames if each.f_globals["__name__"].partition(".")[0] == "ticketlock"]


@pytest.mark.parametrize(
    "call",
    [
        lambda locks: locks.acquire("free", lease=0),
        lambda locks: locks.acquire(""),
        lambda locks: locks.try_acquire("free", permits=0),
        lambda locks: locks.acquire_all(["free", ""]),
        lambda locks: locks.acquire_all(["free"], data=LONG),
        lambda locks: locks.serialized("free", lease=0),
        lambda locks: locks.inspect(""),
        lambda locks: locks.resume("free", "no-one"),
        lambda locks: locks.remove_waiter("", 1),
        lambda locks: locks.acquire("held", record_wait=0),
        lambda locks: locks.acquire_all(["held"], record_wait=0),
    ],
)
def test_a_refused_call_shows_three_frames_of_ours_at_most(moved: Moved, call: Callable[[Any], object]) -> None:
    moved.client(heartbeat=False).acquire("held")
    with pytest.raises(TicketLockError) as refused:
        call(moved.client())
    assert 1 <= len(frames_of_ours(refused.value)) <= MOST, frames_of_ours(refused.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda lease: lease.renew(),
        lambda lease: lease.extend(600),
        lambda lease: lease.ensure(70),
        lambda lease: lease.set_data("at work"),
        lambda lease: lease.set_data(LONG),
        lambda lease: lease.transact_write([{}]),
        lambda lease: lease.release(data_left=LONG),
        lambda lease: lease.release(),
    ],
)
def test_a_call_of_a_lost_lease_shows_three_frames_of_ours_at_most(
    moved: Moved, entity: str, call: Callable[[Any], object]
) -> None:
    lease = moved.client(heartbeat=False).acquire(entity)
    moved.clock.advance(1)
    moved.lose(entity)
    with pytest.raises(TicketLockError) as refused:
        call(lease)
    assert 1 <= len(frames_of_ours(refused.value)) <= MOST, frames_of_ours(refused.value)


def test_blocks_and_decorated_functions_of_tasks_show_three_frames_of_ours_at_most() -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)

    async def main() -> None:
        async with aio.LockClient("locks", client=Awaited(memory), clocks=clock, heartbeat=False) as locks:

            @locks.serialized("held", record_wait=0)
            async def in_vain() -> None: ...

            async def block(acquiring: Any) -> None:
                async with acquiring:
                    clock.advance(100)

            for late in (locks.acquire("a"), locks.acquire_all(["a", "b"])):
                with pytest.raises(LockLost) as lost:
                    await block(late)
                assert 1 <= len(frames_of_ours(lost.value)) <= MOST, frames_of_ours(lost.value)
            await locks.acquire("held", owner="other")
            for call in (in_vain, lambda: block(locks.acquire_all(["free", "held"], record_wait=0))):
                with pytest.raises(RecordWaitExceeded) as refused:
                    await asyncio.create_task(call())
                assert 1 <= len(frames_of_ours(refused.value)) <= MOST, frames_of_ours(refused.value)

    asyncio.run(main())


def test_blocks_and_decorated_functions_of_threads_show_three_frames_of_ours_at_most() -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)
    locks = LockClient("locks", client=memory.client, clocks=clock, heartbeat=False)

    @locks.serialized("a")
    def too_long() -> None:
        clock.advance(100)

    def block(acquire: Callable[[], Any]) -> None:
        with acquire():
            clock.advance(100)

    for call in (
        too_long,
        lambda: block(lambda: locks.acquire("a")),
        lambda: block(lambda: locks.acquire_all(["a", "b"])),
    ):
        with pytest.raises(LockLost) as lost:
            call()
        assert 1 <= len(frames_of_ours(lost.value)) <= MOST, frames_of_ours(lost.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda units, _: units.begin(timeout=-1),
        lambda units, _: units.table("missing"),
        lambda units, table: units.get(table, {"wrong": 1}),
        lambda units, table: units.begin().put(table, {"wrong": 1}),
        lambda units, table: units.begin().update(table, {"id": "a"}, "SET"),
        lambda units, table: units.begin().delete(table, {"id": "a"}, condition="attribute_exists(id)"),
        lambda units, _: units.begin().client.put_item(TableName="accounts", Item={"wrong": {"S": "a"}}),
    ],
)
def test_a_refused_call_of_units_shows_three_frames_of_ours_at_most(call: Callable[[Any, Any], object]) -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(lock_table=None, clock=clock)
    create_units_table("units", client=memory.client)
    memory.create_table(
        TableName="accounts",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    units = Units("units", client=memory.client, clocks=clock, sleep=clock.sleep)
    table = units.table("accounts")
    with pytest.raises(TicketLockError) as refused:
        call(units, table)
    assert 1 <= len(frames_of_ours(refused.value)) <= MOST, frames_of_ours(refused.value)


def test_an_error_that_passed_through_the_callers_code_keeps_that_code_and_one_of_the_sdk_stays_as_the_cause(
    moved: Moved, entity: str
) -> None:
    def gives_up(_: object) -> None:
        raise LockLost("another one")

    moved.client(heartbeat=False).acquire(entity)
    with pytest.raises(LockLost) as lost:
        moved.client().acquire(entity, on_wait=gives_up)
    assert gives_up.__name__ in [frame.name for frame in traceback.extract_tb(lost.value.__traceback__)]
    lease = moved.client(heartbeat=False).acquire(f"{entity}, free")
    with moved.time_flies(), moved.memory.outage(Fault.REPLY_LOST), pytest.raises(OutcomeUnknown) as unknown:
        lease.renew()
    assert isinstance(unknown.value.__cause__, BotoCoreError)


def test_another_error_keeps_all_its_frames(moved: Moved, entity: str) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    wire = Wire()
    wire.before(is_grant, fail)
    with pytest.raises(ZeroDivisionError) as bug:
        moved.client(wire=wire).acquire(entity)
    assert len(frames_of_ours(bug.value)) > MOST
