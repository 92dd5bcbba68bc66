"""Lock tables without the CDK, and clients that cannot be created."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from kit.places import some_entity
from ticketlock_local.engines.emulator import Emulator

from ticketlock import InvalidLockRequest, LockClient, LockTable, aio, create_table
from ticketlock.testing import MemoryDynamoDB
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.shows("self-cleaning")

LOCK_KEYS = {"pk": "HASH", "sk": "RANGE"}


@pytest.fixture
def dynamodb(emulator: Emulator) -> Any:
    return boto3.client("dynamodb", endpoint_url=emulator.endpoint)


@pytest.fixture
def name(dynamodb: Any) -> Iterator[str]:
    name = f"locks-{some_entity()[-8:]}"
    yield name
    dynamodb.delete_table(TableName=name)


def make_table(dynamodb: Any, name: str, **keys: str) -> None:
    """A table that someone else has created, without time to live."""
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
    )


def time_to_live(dynamodb: Any, name: str) -> tuple[str, str | None]:
    found = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    return found["TimeToLiveStatus"], found.get("AttributeName")


def test_a_table_has_the_keys_of_a_lock_table_time_to_live_and_further_settings(dynamodb: Any, name: str) -> None:
    assert create_table(name, client=dynamodb, Tags=[{"Key": "team", "Value": "billing"}])
    made = dynamodb.describe_table(TableName=name)["Table"]
    assert {key["AttributeName"]: key["KeyType"] for key in made["KeySchema"]} == LOCK_KEYS
    assert {each["AttributeName"]: each["AttributeType"] for each in made["AttributeDefinitions"]} == dict.fromkeys(
        LOCK_KEYS, "S"
    )
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")
    assert dynamodb.list_tags_of_resource(ResourceArn=made["TableArn"])["Tags"] == [{"Key": "team", "Value": "billing"}]


def test_creating_a_table_twice_does_no_harm_to_its_locks(dynamodb: Any, name: str, emulator: Emulator) -> None:
    create_table(name, client=dynamodb)
    with LockClient(name, client=make_client(endpoint_url=emulator.endpoint)) as locks, locks.acquire("o") as lease:
        assert not create_table(name, client=dynamodb)
        assert lease.is_held()


def test_time_to_live_is_turned_on_if_a_table_lacks_it(dynamodb: Any, name: str) -> None:
    make_table(dynamodb, name, **LOCK_KEYS)
    assert not create_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("ENABLED", "expiresAt")


def test_a_table_with_other_keys_is_refused_and_its_time_to_live_unchanged(dynamodb: Any, name: str) -> None:
    make_table(dynamodb, name, id="HASH")
    with pytest.raises(ValueError, match="no lock table: its keys are"):
        create_table(name, client=dynamodb)
    assert time_to_live(dynamodb, name) == ("DISABLED", None)


def test_a_table_whose_time_to_live_uses_another_attribute_is_refused(dynamodb: Any, name: str) -> None:
    create_table(name, client=dynamodb)
    elsewhere = {"Enabled": True, "AttributeName": "deleteAfter"}
    dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=elsewhere)
    with pytest.raises(ValueError, match="time to live is on deleteAfter"):
        create_table(name, client=dynamodb)


def test_time_to_live_is_not_turned_on_in_a_table_with_items_of_another_kind() -> None:
    memory = MemoryDynamoDB(lock_table=None)
    make_table(memory, "app", **LOCK_KEYS)
    memory.client.put_item(TableName="app", Item={"pk": {"S": "user"}, "sk": {"S": "profile"}})
    with pytest.raises(ValueError, match="items of another kind"):
        create_table("app", client=memory.client)


def test_a_table_is_created_in_memory() -> None:
    memory = MemoryDynamoDB(lock_table=None)
    client = make_client()
    memory.serve(client)
    assert create_table("locks", client=client)
    with LockClient("locks", client=client) as locks:
        assert locks.acquire("order-42").is_held()


# Clients that cannot be created: without a Region, or with something other than an SDK client.


def for_tasks(**client: Any) -> None:
    async def open_it() -> None:
        async with aio.LockClient("locks", **client):
            pass

    asyncio.run(open_it())


MADE: list[Callable[..., object]] = [
    lambda **client: LockClient("locks", **client),
    lambda **client: LockTable("locks", **client),
    lambda **client: create_table("locks", **client),
    for_tasks,
]
EACH = pytest.mark.parametrize("make", MADE, ids=["LockClient", "LockTable", "create_table", "aio.LockClient"])


@pytest.fixture
def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(variable, raising=False)
    # The session that boto3.client uses has read them before.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


@EACH
@pytest.mark.usefixtures("no_region")
def test_without_a_region_the_error_says_where_to_set_one(make: Callable[..., object]) -> None:
    with pytest.raises(InvalidLockRequest, match="set AWS_DEFAULT_REGION"):
        make()


@EACH
@pytest.mark.parametrize("part", ["ServiceResource", "Table"])
def test_given_a_resource_or_its_table_the_error_says_which_client_is_needed(
    make: Callable[..., object], part: str
) -> None:
    resource = boto3.resource("dynamodb")
    with pytest.raises(
        InvalidLockRequest, match=rf"client is .*dynamodb.{part}.*(boto3|session)\.(create_)?client"
    ) as refused:
        make(client=resource if part == "ServiceResource" else resource.Table("locks"))
    # It retries by itself, and converts values: it is refused as well.
    assert "meta.client" not in str(refused.value)


def test_a_transaction_given_a_resource_says_which_client_is_needed(locks: LockClient, entity: str) -> None:
    lease = locks.acquire(entity)
    resource: Any = boto3.resource("dynamodb")
    with pytest.raises(InvalidLockRequest, match=r"(boto3|session)\.(create_)?client"):
        lease.transact_write([], client=resource)
