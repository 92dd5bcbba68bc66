"""A lock that is made once, and entered again and again; it, and a decorated function, work in a forked child."""

import asyncio
import copy
import datetime
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials
from kit.awaited import Awaited
from kit.forked import another_thread_in, end_in_time
from kit.places import meanwhile, outcome

from ticketlock import AlreadyHeld, ClientClosed, InvalidLockRequest, LockClient, LockLost, LockName, aio, client_config
from ticketlock.cli._local import serving
from ticketlock.testing import ManualClock, MemoryDynamoDB


@pytest.fixture
def table() -> MemoryDynamoDB:
    """In real time."""
    return MemoryDynamoDB()


@pytest.fixture
def locks(table: MemoryDynamoDB) -> Iterator[LockClient]:
    with LockClient("locks", client=table.client, record_wait=30) as locks:
        yield locks


def test_a_lock_is_entered_again_and_again_and_says_whether_anybody_holds_it(locks: LockClient) -> None:
    lock = locks.lock("order-42", lease=20, data="at work")
    tokens = []
    for _ in range(3):
        assert not lock.locked()
        with lock as lease:
            assert lock.locked()
            assert lease.data == "at work"
            with pytest.raises(AlreadyHeld), lock:
                pytest.fail("entered")
            tokens.append(lease.fencing_token)
    assert tokens == sorted(set(tokens))
    lease = lock.acquire()
    assert lock.try_acquire() is None
    assert locks.lock("order-42").locked()
    lease.release()
    assert not lock.locked()


def test_a_lock_whose_holder_has_expired_is_not_locked() -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)
    crashed = LockClient("locks", client=memory.client, clocks=clock, heartbeat=False)
    crashed.acquire("order-42", lease=10)
    lock = LockClient("locks", client=memory.client, clocks=clock).lock("order-42")
    assert lock.locked()
    clock.advance(20)
    assert not lock.locked()


def test_threads_that_share_one_lock_hold_it_one_at_a_time(locks: LockClient) -> None:
    lock, inside = locks.lock("order-42"), []

    def work(_: int) -> int:
        with lock as lease:
            inside.append(lease)
            assert len(inside) == 1
            return inside.pop().fencing_token

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(work, range(16)))) == 16


def test_each_block_of_a_shared_lock_releases_its_own_lease_on_whatever_thread_it_ends(locks: LockClient) -> None:
    lock = locks.lock("catalogue", shared=True)

    @contextmanager
    def reading() -> Iterator[Any]:
        with lock as lease:
            yield lease

    one, another = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    blocks = [reading() for _ in range(4)]
    leases = [pool.submit(block.__enter__).result() for block, pool in zip(blocks, [one, another] * 2, strict=True)]
    for number, pool in ((1, one), (0, another), (3, one), (2, one)):
        pool.submit(blocks[number].__exit__, None, None, None).result()
        assert not leases[number].is_held()
        leases[number] = None
        assert all(lease is None or lease.is_held() for lease in leases)


def test_a_block_that_is_left_by_hand_elsewhere_is_one_that_is_lost_before_one_that_is_held(locks: LockClient) -> None:
    lock = locks.lock("order-42")
    lost = ExitStack()
    lease = outcome(meanwhile(lambda: lost.enter_context(lock)))
    locks.table.force_release(lock.name, lease.fencing_token)
    held = ExitStack()
    live = held.enter_context(lock)
    # What leaves them are other stacks than those that have entered them.
    lost, held = lost.pop_all(), held.pop_all()
    with pytest.raises(LockLost):
        lease.renew()
    with pytest.raises(LockLost):
        outcome(meanwhile(lost.close))
    assert live.is_held()
    outcome(meanwhile(held.close))
    assert not live.is_held()


def test_an_exit_stack_and_reentrance_use_one_lock_several_times(locks: LockClient) -> None:
    lock = locks.lock("order-42", reentrant=True)
    with ExitStack() as stack:
        leases = [stack.enter_context(lock) for _ in range(3)]
        assert leases[0] is leases[2]
    assert not leases[0].is_held()


def test_a_lock_is_its_name_wherever_a_name_is_taken(locks: LockClient) -> None:
    lock, name = locks.lock(42, namespace="stock"), LockName("42", "stock")
    assert lock == name
    assert name == lock
    assert hash(lock) == hash(name)
    assert {lock, name} == {name}
    assert lock != locks.lock(42)
    assert type(pickle.loads(pickle.dumps(lock))) is LockName
    assert copy.copy(lock) is copy.deepcopy(lock) is lock
    with locks.acquire(lock) as lease:
        assert lease.lock == name
    with lock:
        assert locks.inspect(lock).item == locks.table.inspect(name).item


def test_the_identifier_of_a_contender_which_other_libraries_take_second_is_no_namespace(locks: LockClient) -> None:
    """Each contender would have a lock of its own."""
    make: Any = locks.lock
    with pytest.raises(TypeError, match="positional"):
        make("orders/42", "worker-7")


def test_a_lease_a_group_and_a_client_are_never_copied_and_stay_in_their_process(locks: LockClient) -> None:
    """A copy of a lease would not be told that it was released."""
    for each in (locks, locks.acquire("order-42"), locks.acquire_all(["order-43", "order-44"])):
        assert copy.copy(each) is copy.deepcopy(each) is each
        with pytest.raises(TypeError, match=f"a {type(each).__name__} cannot be pickled: acquire in the process that "):
            pickle.dumps(each)


def test_a_lock_refuses_what_an_acquisition_would_when_it_is_made(locks: LockClient) -> None:
    with pytest.raises(InvalidLockRequest):
        locks.lock("order-42", lease=0)
    lock: Any = locks.lock
    with pytest.raises(InvalidLockRequest, match="owner"):
        lock("order-42", owner="o")
    with pytest.raises(TypeError, match="record_wait"):
        lock("order-42", timeout=1)


def test_a_lock_says_that_its_lease_has_what_other_libraries_locks_have(locks: LockClient) -> None:
    # A type checker would refuse both.
    lock: Any = locks.lock("entity")
    with pytest.raises(
        AttributeError, match=r"^'Lock' object has no attribute 'release'; acquire\(\) returns a lease, "
    ):
        lock.release()
    with pytest.raises(AttributeError, match=r"no attribute 'owned'$"):
        lock.owned()
    with pytest.raises(AttributeError, match=r"^timeout of a lock cannot be set: "):
        lock.timeout = 3
    with pytest.raises(RuntimeError, match="was not entered"):
        lock.__exit__(None, None, None)


def test_a_lease_that_is_entered_a_second_time_says_how_to_do_that(locks: LockClient) -> None:
    once = locks.acquire("order-42")
    with once:
        pass
    with pytest.raises(LockLost, match=r"acquire.*locks\.lock"), once:
        pytest.fail("entered")


def test_a_lock_for_tasks_is_entered_again_and_again(table: MemoryDynamoDB) -> None:
    client = aio.LockClient("locks", client=Awaited(table), record_wait=30)
    # Never entered, which is no fault.
    client.lock("order-43")
    lock = client.lock("order-42")

    async def work() -> int:
        async with lock as lease:
            await asyncio.sleep(0)
            return lease.fencing_token

    async def main() -> None:
        async with client:
            assert not await lock.locked()
            async with lock:
                assert await lock.locked()
            lease = await lock.acquire()
            assert await lock.try_acquire() is None
            await lease.release()
            assert len(set(await asyncio.gather(*[work() for _ in range(8)]))) == 8
            async with lock.acquire(lease=10) as lease:
                assert lease.remaining_s <= 10

    with pytest.raises(AlreadyHeld):
        asyncio.run(_nested(table))
    asyncio.run(main())


async def _nested(table: MemoryDynamoDB) -> None:
    async with aio.LockClient("locks", client=Awaited(table)) as locks:
        lock = locks.lock("order-42")
        async with lock, lock:
            pytest.fail("entered")


# Forked children.


def in_a_child(work: Callable[[], str]) -> str:
    """What it says there."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        end_in_time()
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as told:
        return told.read()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("is_passed", [True, False], ids=["a client of its own", "the client that it makes"])
def test_a_decorated_function_and_a_lock_work_in_a_forked_child(
    table: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch, is_passed: bool
) -> None:
    with serving(table, port=0) as endpoint:
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "eu-west-1"}
        for name, value in keys.items():
            monkeypatch.setenv(name.replace("region_name", "aws_default_region").upper(), value)
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        client = boto3.client("dynamodb", config=client_config()) if is_passed else None
        locks = LockClient("locks", client=client, record_wait=30)
        lock = locks.lock("order-43")

        @locks.serialized("order-{number}", lease_as="lease")
        def ship(lease: Any, number: int) -> str:
            return str(lease.entity == f"order-{number}" and lease.is_held())

        def work() -> str:
            with lock as lease:
                lock_works = lease.is_held() and lock.locked()
            return f"{ship(42)} {ship(42)} {lock_works}"

        with lock:
            assert in_a_child(lambda: ship(42)) == "True"
            assert in_a_child(lambda: str(lock.try_acquire())) == "None", "its parent holds it"
        assert in_a_child(work) == "True True True"
        assert ship(42) == "True"
        assert in_a_child(lambda: str(locks.try_acquire("x"))).startswith("ClientClosed")
        locks.close()
        assert in_a_child(lambda: ship(42)).startswith("ClientClosed")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("close", [LockClient.close, LockClient.__exit__], ids=["close", "the end of with"])
def test_closing_the_client_in_a_child_frees_what_its_lock_objects_hold_there(
    table: MemoryDynamoDB, close: Callable[[LockClient], None]
) -> None:
    with serving(table, port=0) as endpoint:
        keys: dict[str, Any] = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "eu-west-1"}
        client = boto3.client("dynamodb", config=client_config(), endpoint_url=endpoint, **keys)
        locks = LockClient("locks", client=client, record_wait=30)
        lock, parents = locks.lock("order-42"), locks.acquire("order-43")

        def work() -> str:
            lease = lock.acquire()
            close(locks)
            said = f"{lease.is_held()} "
            try:
                lock.acquire()
            except ClientClosed as error:
                said += str(error)
            return said

        assert in_a_child(work) == "False the client was closed"
        assert not lock.locked()
        assert parents.is_held()
        lock.acquire(record_wait=0)
        locks.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_refreshes_the_credentials_of_boto3s_session_that_a_thread_of_its_parent_was_refreshing(
    table: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    def provided(seconds: float) -> dict[str, str]:
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        return {"access_key": "k", "secret_key": "s", "token": "t", "expiry_time": ends.isoformat()}

    session: Any = botocore.session.get_session()
    session._credentials = RefreshableCredentials.create_from_metadata(provided(5), lambda: provided(3_600), "test")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session(botocore_session=session, region_name="eu-west-1"))
    with serving(table, port=0) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
        lock = LockClient("locks", record_wait=30).lock("order-42")
        with another_thread_in(session._credentials._refresh_lock):
            assert in_a_child(lambda: str(lock.locked())) == "False"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_that_cannot_be_made_again_in_a_child_is_refused_with_what_to_do(locks: LockClient) -> None:
    """Two processes do not share a table in memory."""
    ship = locks.serialized("order-{number}")(lambda number: str(number))
    assert "create it, and the LockClient, in this process" in in_a_child(lambda: ship(42))
    with pytest.raises(ClientClosed):
        raise ClientClosed(in_a_child(lambda: ship(42)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_for_tasks_that_was_made_before_the_fork_is_refused_when_it_is_opened(table: MemoryDynamoDB) -> None:
    locks = aio.LockClient("locks", client=table.async_client)

    async def opened() -> str:
        async with locks:
            return "opened"

    assert "was forked: create a new client here" in in_a_child(lambda: asyncio.run(opened()))
    assert asyncio.run(opened()) == "opened"
