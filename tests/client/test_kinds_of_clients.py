"""Clients for threads take SDK clients that block, clients for tasks take those that are awaited, and no others."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from aiobotocore.session import get_session
from boto3.dynamodb.transform import DynamoDBHighLevelResource
from boto3.resources.base import ResourceMeta, ServiceResource
from kit.awaited import Awaited

from ticketlock import InvalidLockRequest, LockClient, LockTable, aio, client_config, create_table
from ticketlock.errors import InvalidUnitRequest
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import Units, create_units_table

OF_THREADS = [LockClient, LockTable, Units, create_table, create_units_table]
OF_TASKS = [aio.LockClient, aio.Units]
REFUSED = (InvalidLockRequest, InvalidUnitRequest)


async def _no_client() -> None:
    """What aioboto3 gives to those who forget an `await`."""


@pytest.fixture
def not_opened() -> Iterator[Any]:
    """What aiobotocore gives to those who forget `async with`."""
    client = get_session().create_client("dynamodb")
    yield client
    # Otherwise it warns that it was never awaited.
    client._coro.close()


@pytest.fixture
def awaited(memory: MemoryDynamoDB, not_opened: Any) -> dict[str, Any]:
    """Clients for tasks, and what is no client yet."""

    async def opened() -> Any:
        async with get_session().create_client("dynamodb") as client:
            return client

    return {
        "aiobotocore": asyncio.run(opened()),
        "memory": memory.async_client,
        "not opened": not_opened,
        "a session": get_session(),
    }


@pytest.mark.parametrize("kind", ["aiobotocore", "memory", "not opened", "a session"])
@pytest.mark.parametrize("use", OF_THREADS)
def test_an_awaited_client_is_refused_where_threads_would_use_it(
    use: Callable[..., object], awaited: dict[str, Any], kind: str
) -> None:
    with pytest.raises(REFUSED, match=r"client is .*; allowed: .*boto3\.client\('dynamodb'\).*ticketlock\.aio") as told:
        use("locks", client=awaited[kind])
    assert type(awaited[kind]).__name__ in str(told.value)


@pytest.fixture
def blocking(memory: MemoryDynamoDB, not_opened: Any) -> dict[str, Any]:
    """Clients for threads, and what is no client yet."""
    return {
        "boto3": boto3.client("dynamodb"),
        "memory": memory.client,
        "a resource": boto3.resource("dynamodb"),
        "not opened": not_opened,
        "a session": boto3.Session(),
    }


@pytest.mark.parametrize("kind", ["boto3", "memory", "a resource", "not opened", "a session"])
@pytest.mark.parametrize("use", OF_TASKS)
def test_a_blocking_client_is_refused_where_tasks_would_use_it_before_it_is_opened(
    use: Callable[..., object], blocking: dict[str, Any], kind: str
) -> None:
    with pytest.raises(
        REFUSED, match=r"client is .*; allowed: .*aiobotocore.*async with .*memory\.async_client"
    ) as told:
        use("locks", client=blocking[kind])
    assert type(blocking[kind]).__name__ in str(told.value)


@pytest.mark.parametrize("use", [LockClient, LockTable, Units])
def test_the_client_of_a_resource_is_refused_for_its_calls_take_python_values(use: Callable[..., object]) -> None:
    resource: Any = boto3.resource("dynamodb", config=client_config())
    for client in (resource.meta.client, resource.Table("locks").meta.client):
        with pytest.raises(
            REFUSED, match=r"client is .*resource\.meta\.client.*; allowed: .*boto3\.client\('dynamodb'\)"
        ):
            use("locks", client=client)


@pytest.mark.parametrize("use", OF_TASKS)
def test_the_client_of_a_resource_for_tasks_is_refused_too(use: Callable[..., object], awaited: dict[str, Any]) -> None:
    class Resource(DynamoDBHighLevelResource, ServiceResource):
        """As aioboto3 makes them: boto3's own, over a client of aiobotocore."""

        meta = ResourceMeta("dynamodb")

    Resource(client=awaited["aiobotocore"])
    with pytest.raises(REFUSED, match=r"client is .*resource\.meta\.client.*; allowed: .*aiobotocore"):
        use("locks", client=awaited["aiobotocore"])


def test_a_coroutine_is_no_client() -> None:
    coroutine: Any = _no_client()
    with pytest.raises(InvalidLockRequest, match=r"client is .*coroutine"):
        aio.LockClient("locks", client=coroutine)
    coroutine.close()


def test_wrong_clients_of_both_services_are_told_at_once_beside_other_settings() -> None:
    with pytest.raises(InvalidLockRequest) as told:
        aio.LockClient(
            "locks", client=boto3.client("dynamodb"), step_functions=boto3.client("stepfunctions"), namespace="a/b"
        )
    assert all(f"{field} is " in str(told.value) for field in ("client", "step_functions", "namespace"))


@pytest.mark.parametrize("use", OF_THREADS)
def test_a_client_of_another_service_is_refused(use: Callable[..., object]) -> None:
    with pytest.raises(REFUSED, match=r"client is .*SFN.*; allowed: .*boto3\.client\('dynamodb'\)"):
        use("locks", client=boto3.client("stepfunctions", config=client_config()))


def test_a_client_of_dynamodb_is_none_of_step_functions(memory: MemoryDynamoDB) -> None:
    wrong: Any = boto3.client("dynamodb", config=client_config())
    with pytest.raises(InvalidLockRequest, match=r"step_functions is .*; allowed: .*boto3\.client\('stepfunctions'\)"):
        LockClient("locks", client=memory.client, step_functions=wrong)


def test_a_client_for_step_functions_is_of_the_same_kind(memory: MemoryDynamoDB, awaited: dict[str, Any]) -> None:
    with pytest.raises(InvalidLockRequest, match=r"step_functions is .*boto3\.client\('stepfunctions'\)"):
        LockClient("locks", client=memory.client, step_functions=awaited["aiobotocore"])


def test_a_transaction_takes_a_client_of_its_leases_kind(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    lease = LockClient("locks", client=memory.client, clocks=clock).acquire("order-42")
    with pytest.raises(InvalidLockRequest, match=r"boto3\.client"):
        lease.transact_write([], client=memory.async_client)

    async def main() -> None:
        async with aio.LockClient("locks", client=memory.async_client, clocks=clock) as locks:
            lease = await locks.acquire("order-43")
            with pytest.raises(InvalidLockRequest, match="aiobotocore"):
                await lease.transact_write([], client=memory.client)

    clock.run(main())


def test_units_queue_at_a_lock_client_of_their_own_kind(memory: MemoryDynamoDB) -> None:
    threads, tasks = LockClient("locks", client=memory.client), aio.LockClient("locks", client=memory.async_client)
    wrong: Any = tasks
    with pytest.raises(InvalidUnitRequest, match=r"locks is .*of ticketlock\.aio for tasks"):
        Units("units", client=memory.client, locks=wrong)
    wrong = threads
    with pytest.raises(InvalidUnitRequest, match=r"locks is .*of ticketlock\.aio for tasks"):
        aio.Units("units", client=memory.async_client, locks=wrong)


def test_a_wrapper_of_ones_own_is_not_judged(memory: MemoryDynamoDB, clock: ManualClock) -> None:
    """Nobody can tell whether its calls are awaited before one is made."""

    async def main() -> None:
        async with aio.LockClient("locks", client=Awaited(memory), clocks=clock) as locks, locks.acquire("order-42"):
            pass

    clock.run(main())
