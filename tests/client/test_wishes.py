"""The arguments of a client and an acquisition: each is accepted, or refused by name, and then nothing is written."""

import asyncio
import enum
import math
import pickle
import sys
import uuid
from array import array
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from datetime import timedelta
from decimal import Decimal
from functools import partial
from inspect import Parameter, signature
from typing import Any

import boto3
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.places import Emulated, Kind, Moved, Wire, until
from kit.promises import counts_are_kept

from ticketlock import (
    AcquireOptions,
    Claim,
    InvalidLockRequest,
    Lease,
    LockClient,
    LockName,
    LockTable,
    TicketLockError,
    aio,
    client_config,
    pessimistic,
)
from ticketlock.testing import ManualClock, MemoryDynamoDB

OF_ANY_TYPE = pytest.mark.verify("each verb some dozens of times; the other tests here have the cases that were found")

NO_DURATION: list[Any] = [math.nan, -1, True, "soon", timedelta(seconds=-1)]
NO_BOOLEAN: list[Any] = [1, "no", "", None]
LONG = 10**5_000  # Python refuses to write it.


async def no_one_awaits(_: object) -> None:
    """A coroutine function: its calls do nothing unless someone awaits them."""


# What a claim refuses, tests/locks/test_names.py has: here one value shows that each argument reaches it.
WRONG: list[dict[str, Any]] = [
    *({"lease": value} for value in (*NO_DURATION, 0.999, 7 * 24 * 3_600 + 1, math.inf, LONG)),
    *({"record_wait": value} for value in (*NO_DURATION, -math.inf)),
    *({"danger": value} for value in (-1, math.nan, 61)),
    *({"hold_at_least": value} for value in (*NO_DURATION, 59.999, 7 * 24 * 3_600 + 1)),
    *({"permits": value} for value in (0, 101, LONG)),
    {"permits": 2, "shared": True},
    {"shared": 1},
    *({"reentrant": value} for value in NO_BOOLEAN),
    # None is the client's default.
    *({"heartbeat": value} for value in NO_BOOLEAN if value is not None),
    *({name: "told"} for name in ("on_lost", "on_danger", "on_wait")),
    {"on_wait": no_one_awaits},
    *({"data": value} for value in ("", LONG)),
    *({"owner": value} for value in ("", LONG)),
    {"namespace": "a/b"},
    {"entity": LockName("order-42"), "namespace": "other"},
    *({"entity": value} for value in ("", True, 4.2, None, b"order-42", LONG)),
]


def named(wrong: dict[str, Any]) -> str:
    # The same in each process that collects the tests.
    shown = {LONG: "a long number", no_one_awaits: "a coroutine function"}
    return ", ".join(
        f"{name}={shown.get(value, value) if isinstance(value, Hashable) else value}" for name, value in wrong.items()
    )


@pytest.mark.parametrize("wrong", WRONG, ids=named)
def test_an_argument_out_of_its_bounds_is_refused_and_nothing_is_sent(
    moved: Moved, entity: str, wrong: dict[str, Any]
) -> None:
    locks = moved.client()
    with pytest.raises(InvalidLockRequest):
        locks.acquire(**{"entity": entity, **wrong})
    assert moved.memory.sent == []


class Told:
    """Callables of which a call runs nothing yet."""

    async def __call__(self, _: object) -> None:
        """As a bound method would be."""

    def generates(self, _: object) -> Iterator[None]:
        yield

    async def generates_in_a_loop(self, _: object) -> AsyncIterator[None]:
        yield


@pytest.mark.parametrize("kind", ["threads"])
@pytest.mark.parametrize("name", ["on_lost", "on_danger", "on_wait"])
@pytest.mark.parametrize(
    "told",
    [no_one_awaits, partial(no_one_awaits), Told(), Told().generates, Told().generates_in_a_loop],
    ids=["a coroutine function", "partial", "an object", "a generator function", "an asynchronous one"],
)
def test_a_callback_that_no_one_would_run_is_refused(moved: Moved, entity: str, name: str, told: Any) -> None:
    locks = moved.client()
    with pytest.raises(InvalidLockRequest, match=rf"{name} is .*; allowed: a plain function"):
        locks.acquire(entity, **{name: told})
    with pytest.raises(InvalidLockRequest, match="a plain function"):
        locks.serialized(lambda: "order-42", **{name: told})
    assert moved.memory.sent == []


@pytest.mark.parametrize("kind", ["threads"])
def test_a_callback_whose_result_would_have_to_be_awaited_is_logged(
    moved: Moved, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = list[Any]()

    def makes(lease: object) -> Any:
        made.append(no_one_awaits(lease))
        return made[0]

    moved.client(lease=1, heartbeat=False).acquire(entity, on_lost=makes)
    moved.clock.advance(1)
    until(lambda: "has not run: no one awaits what it returned" in caplog.text)
    made[0].close()


class Tea(int, enum.Enum):
    GREEN = 42


@pytest.mark.parametrize("entity", [42, Tea.GREEN, Decimal("42.0")])
def test_a_whole_number_is_the_entity_of_its_digits(moved: Moved, entity: Any) -> None:
    locks = moved.client()
    lease = locks.acquire(entity)
    assert lease.lock == LockName("42")
    assert moved.client().try_acquire("42") is None
    lease.release()
    with locks.acquire_all([entity, uuid.UUID(int=42)]) as both:
        assert [each.lock.entity for each in both.leases] == ["00000000-0000-0000-0000-00000000002a", "42"]


class Owner(enum.StrEnum):
    IMPORT = "import"


def test_an_owner_of_an_enum_is_its_value(moved: Moved) -> None:
    lease = moved.client().acquire("order-42", owner=Owner.IMPORT)
    assert moved.client().resume("order-42", "import").fencing_token == lease.fencing_token
    assert type(lease.owner) is str


UNEXPECTED = r"acquire\(\) got an unexpected keyword argument"


@pytest.mark.parametrize(
    ("wrong", "error", "shown"),
    [
        ({"timeout": 5}, TypeError, f"{UNEXPECTED} 'timeout'; record_wait is how many .*; lease is for how many "),
        ({"blocking": False}, TypeError, f"{UNEXPECTED} 'blocking'; record_wait is "),
        ({"ttl": 5}, TypeError, f"{UNEXPECTED} 'ttl'; lease is "),
        ({"max_leases": 5}, TypeError, f"{UNEXPECTED} 'max_leases'; permits is "),
        ({"sleep": 0.1}, TypeError, f"{UNEXPECTED} 'sleep'; check_every of the client is "),
        ({"auto_renewal": True}, TypeError, f"{UNEXPECTED} 'auto_renewal'; heartbeat is "),
        ({"identifier": "worker-7"}, TypeError, f"{UNEXPECTED} 'identifier'; data is "),
        ({"leese": 5}, TypeError, f"{UNEXPECTED} 'leese'; did you mean 'lease'\\?$"),
        ({"on_losing": print}, TypeError, f"{UNEXPECTED} 'on_losing'; did you mean 'on_lost'\\?$"),
        ({"retries": 5}, TypeError, f"{UNEXPECTED} 'retries'$"),
        ({"permits": 0}, ValueError, "permits is 0; allowed: a whole number from 1 to 100"),
        ({"permits": None}, InvalidLockRequest, "permits is None;"),
        ({"lease": -3}, InvalidLockRequest, "lease is -3; allowed"),
        ({"lease": math.inf}, InvalidLockRequest, "lease is math.inf;"),
        ({"record_wait": timedelta(-1)}, InvalidLockRequest, r"record_wait is datetime\.timedelta\(days=-1\);"),
        ({"record_wait": -1}, InvalidLockRequest, "record_wait is -1; allowed: a number of seconds from 0 on, or math"),
        ({"namespace": "a/b"}, InvalidLockRequest, 'namespace is "a/b"'),
    ],
    ids=str,
)
def test_a_refusal_names_the_argument_and_what_is_allowed_or_what_ours_is_called(
    moved: Moved, entity: str, wrong: dict[str, Any], error: type[Exception], shown: str
) -> None:
    locks = moved.client()
    verbs = {name: getattr(locks, name) for name in ("acquire", "serialized", "lock", "try_acquire")}
    for ask in [verbs[name] for name in verbs if "record_wait" not in wrong or name != "try_acquire"]:
        with pytest.raises(error, match=f"^{shown}"):
            ask(entity, **wrong)
    with pytest.raises(error, match=f"^{shown}"):
        locks.acquire_all([entity], **wrong)
    assert moved.memory.sent == []


def test_a_lease_that_one_hung_request_could_outlast_is_refused_and_nothing_is_sent(
    place: Emulated, entity: str
) -> None:
    wire = Wire()
    locks = place.client(wire=wire)
    with pytest.raises(InvalidLockRequest, match=r'^lease is "7.9 s"; allowed: at least 8 s, four read time-outs'):
        locks.acquire(entity, lease=7.9)
    assert wire.sent == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease": 0},
        {"record_wait": -1},
        {"check_every": (0, 1)},
        {"check_every": (0.1, math.nan)},
        {"check_every": 1},
        {"check_every": (1, 2, 3)},
        {"check_every": "ab"},
        *({"heartbeat": value} for value in NO_BOOLEAN),
        {"owner_name": ""},
        {"owner_name": "x" * 513},
        {"namespace": "a/b"},
    ],
    ids=str,
)
def test_a_client_refuses_settings_that_are_out_of_their_bounds(moved: Moved, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidLockRequest):
        moved.client(**wrong)


def test_durations_may_be_timedeltas(moved: Moved, entity: str) -> None:
    lease = moved.client(lease=timedelta(minutes=5)).acquire(entity, record_wait=timedelta())  # type: ignore[arg-type]
    assert 299 < lease.remaining_s <= 300
    lease.ensure(timedelta(minutes=4))


REFUSED: list[tuple[str, Callable[[Any], object]]] = [
    *(("at_least", partial(lambda value, lease: lease.ensure(value), value)) for value in NO_DURATION),
    ("data_left", lambda lease: lease.release(data_left="x" * 1_025)),
    *(("best_effort", partial(lambda value, lease: lease.release(best_effort=value), value)) for value in NO_BOOLEAN),
    *(("native", partial(lambda value, lease: lease.condition_check(native=value), value)) for value in NO_BOOLEAN),
    ("native", lambda lease: lease.fenced_put({"id": "42"}, native="no")),
    ("native", lambda lease: lease.fenced_update("SET stock = :stock", native="no")),
    *(
        ("patience", partial(lambda value, lease: lease.transact_write([], patience=value), value))
        for value in NO_DURATION
    ),
]


@pytest.mark.parametrize(("field", "asked"), REFUSED, ids=lambda each: each if isinstance(each, str) else "")
def test_a_lease_refuses_an_argument_by_name_and_the_lock_stays_held(
    moved: Moved, entity: str, field: str, asked: Callable[[Any], object]
) -> None:
    lease = moved.client().acquire(entity)
    sent = len(moved.memory.sent)
    with pytest.raises(InvalidLockRequest, match=f"^{field} is "):
        asked(lease)
    assert len(moved.memory.sent) == sent
    assert lease.is_held()


@pytest.mark.parametrize("wrong", NO_BOOLEAN, ids=repr)
def test_a_lock_is_not_resumed_with_a_heartbeat_that_is_neither_true_nor_false(
    moved: Moved, entity: str, wrong: Any
) -> None:
    locks = moved.client()
    with pytest.raises(InvalidLockRequest, match=r"^heartbeat is "):
        locks.resume(entity, "import", heartbeat=wrong)
    assert moved.memory.sent == []


NO_LISTS: list[Any] = [None, 42, "order-42", LockName("order-42"), {"a": 1}]
BYTES: list[Any] = [b"ab", bytearray(b"ab"), memoryview(b"ab"), array("B", b"ab"), array("b", b"ab")]


@pytest.mark.parametrize(
    "wrong",
    [*NO_LISTS, *BYTES, [], ["a", "a"], [42, "42"], [None], ["a", True], [b"a", b"b"]],
    # Without the address of a memoryview.
    ids=lambda wrong: repr(wrong).partition(" at ")[0],
)
def test_several_locks_are_refused_unless_they_are_a_list_of_different_entities_and_nothing_is_sent(
    moved: Moved, wrong: Any
) -> None:
    locks = moved.client()
    with pytest.raises(InvalidLockRequest):
        locks.acquire_all(wrong)
    assert moved.memory.sent == []


def test_an_array_of_numbers_is_a_list_of_entities(moved: Moved) -> None:
    with moved.client().acquire_all(array("i", [7, 42])) as both:
        assert [each.lock.entity for each in both.leases] == ["42", "7"]


@pytest.fixture
def python_writes_few_digits() -> Iterator[int]:
    before, few = sys.get_int_max_str_digits(), 640
    sys.set_int_max_str_digits(few)
    yield few
    sys.set_int_max_str_digits(before)


def test_a_number_of_more_digits_than_a_name_has_or_python_writes_is_refused(
    moved: Moved, python_writes_few_digits: int
) -> None:
    locks = moved.client()
    locks.acquire(10 ** (python_writes_few_digits - 1))
    for digits in (python_writes_few_digits + 1, 1_024, 1_501):
        with pytest.raises(InvalidLockRequest, match="a number of fewer digits"):
            locks.acquire(10 ** (digits - 1))


def test_to_try_says_that_it_does_not_wait(moved: Moved) -> None:
    locks = moved.client()
    options: dict[str, Any] = {"record_wait": 3}
    for ask in (partial(locks.try_acquire, "order-42"), locks.lock("order-42", record_wait=5).try_acquire):
        with pytest.raises(TypeError, match=r"^try_acquire\(\) does not wait"):
            ask(**options)
    assert moved.memory.sent == []


def test_an_sdk_client_that_retries_by_itself_is_refused_with_the_reason(place: Emulated, kind: Kind) -> None:
    async def for_tasks() -> None:
        options = {"endpoint_url": place.endpoint, "config": AioConfig()}
        async with aio.LockClient("locks", client_options=options):
            pass

    def for_threads() -> None:
        LockClient("locks", client=boto3.client("dynamodb", endpoint_url=place.endpoint))

    with pytest.raises(ValueError, match="total_max_attempts"):
        for_threads() if kind == "threads" else asyncio.run(for_tasks())


def test_the_ready_configuration_serves_both_sdks(place: Emulated, kind: Kind) -> None:
    async def for_tasks() -> None:
        async with (
            get_session().create_client("dynamodb", endpoint_url=place.endpoint, config=client_config()) as client,
            aio.LockClient(place.table_name, client=client) as locks,
        ):
            assert (await locks.inspect("never-used")).item is None

    def for_threads() -> None:
        client = boto3.client("dynamodb", endpoint_url=place.endpoint, config=client_config())
        with LockClient(place.table_name, client=client) as locks:
            assert locks.inspect("never-used").item is None

    for_threads() if kind == "threads" else asyncio.run(for_tasks())


def test_all_wrong_settings_of_a_client_of_locks_are_told_at_once() -> None:
    wrong: dict[str, Any] = {
        "namespace": "a/b",
        "lease": 0.999,
        "record_wait": -1,
        "check_every": 1,
        "owner_name": "",
        "heartbeat": "no",
        "on_wait": 1,
    }
    client = boto3.client("dynamodb", region_name="us-east-1", config=client_config(retries={}))
    with pytest.raises(InvalidLockRequest) as refused:
        LockClient("", client=client, **wrong)
    told = refused.value
    assert [problem.split(" is ")[0] for problem in told.problems] == [*wrong, "table_name", "client's retries"]
    assert str(told) == "\n  ".join(["9 settings are invalid:", *told.problems])
    assert (told.field, told.value) == ("namespace", '"a/b"')
    assert pickle.loads(pickle.dumps(told)).problems == told.problems


def test_both_clients_take_the_same_arguments() -> None:
    for name in ("acquire", "try_acquire", "acquire_all", "resume", "inspect", "serialized", "lock"):
        here, there = signature(getattr(LockClient, name)), signature(getattr(aio.LockClient, name))
        assert list(here.parameters) == list(there.parameters), name
        assert [each.default for each in here.parameters.values()] == [
            each.default for each in there.parameters.values()
        ], name


# Any argument of any type that the public API gets is accepted, or refused by an error of ticketlock's own.


class Shapeless:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("not shown")


NUMBERS = st.one_of(
    st.booleans(), st.integers(), st.sampled_from([10**5_000, -(10**5_000), 2**63, 10**38]), st.floats(), st.decimals()
)
ANYTHING = st.one_of(
    st.none(),
    NUMBERS,
    st.text(max_size=20),
    st.characters(categories=["Cs"]),
    st.binary(max_size=5),
    st.timedeltas(),
    st.sampled_from([Shapeless(), object(), print, LockName("order-42"), {}, [], ["a", "b"], ("a", 1), {"a": 1}, {1}]),
)
# Valid values, so that the arguments beside them are reached.
RIGHT: dict[str, Any] = {
    "entity": "order-42",
    "entities": ["order-42", "order-43"],
    "lock": LockName("order-42"),
    "owner": "build-7",
    "lease_ms": 10_000,
    "resource_name": "order-42",
    "timeout_in_seconds": 20,
    "transaction_id": "build-7",
    "table_name": "locks",
    "update": "SET a = :a",
    "item": {"id": "42"},
}
# Its content is checked by the SDK's own validator, which the client in memory does not have.
OWN_WRITE = {"Put": {"TableName": "locks", "Item": {"pk": {"S": "own"}, "sk": {"S": "own"}}}}
# Created elsewhere; or ticketlock's own values, which no caller creates by hand.
NOT_GIVEN = {"client", "step_functions", "clocks", "sleep", "session"}


class Here:
    """A client on a table in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=self.clock)
        self._made: dict[str, Any] = {"client": self.memory.client, "clocks": self.clock, "sleep": self.clock.sleep}
        self.locks = LockClient("locks", **self._made)
        self.table = LockTable("locks", **self._made)

    @property
    def lease(self) -> Lease:
        return self.locks.acquire("held", heartbeat=False)

    @property
    def make(self) -> Callable[..., Any]:
        return partial(LockClient, **self._made)


VERBS: dict[str, Callable[[Here], Callable[..., Any]]] = {
    "LockName": lambda _: LockName,
    "Claim": lambda _: Claim,
    "LockClient": lambda here: here.make,
    "acquire": lambda here: here.locks.acquire,
    "try_acquire": lambda here: partial(here.locks.acquire, record_wait=0),
    "acquire_all": lambda here: here.locks.acquire_all,
    "client.resume": lambda here: here.locks.resume,
    "client.inspect": lambda here: here.locks.inspect,
    "client.lock": lambda here: here.locks.lock,
    "ensure": lambda here: here.lease.ensure,
    "set_data": lambda here: here.lease.set_data,
    "release": lambda here: here.lease.release,
    "condition_check": lambda here: here.lease.condition_check,
    "fenced_put": lambda here: here.lease.fenced_put,
    "fenced_update": lambda here: here.lease.fenced_update,
    "transact_write": lambda here: partial(here.lease.transact_write, [OWN_WRITE]),
    "inspect": lambda here: here.table.inspect,
    "set_limit": lambda here: here.table.set_limit,
    "force_release": lambda here: here.table.force_release,
    "release_as": lambda here: here.table.release_as,
    "resume": lambda here: here.table.resume,
    "acquire_lock": lambda here: pessimistic(here.locks).acquire_lock,
    "release_lock": lambda here: pessimistic(here.locks).release_lock,
    "extend_lock": lambda here: pessimistic(here.locks).extend_lock,
}


def arguments_of(verb: Callable[..., Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Anything for each argument, or a valid value, or nothing if it is optional."""
    asked = [
        each
        for each in signature(verb).parameters.values()
        if each.name not in NOT_GIVEN and each.kind is not Parameter.VAR_KEYWORD
    ]
    given = {
        each.name: st.one_of(st.sampled_from([RIGHT[each.name]]), ANYTHING) if each.name in RIGHT else ANYTHING
        for each in asked
    }
    required = {each.name: given[each.name] for each in asked if each.default is Parameter.empty}
    if "AcquireOptions" in str(signature(verb)):
        given |= {name: ANYTHING for name in AcquireOptions.__optional_keys__ if name not in RIGHT}
    return st.fixed_dictionaries(required, optional={name: given[name] for name in given if name not in required})


@OF_ANY_TYPE
@pytest.mark.parametrize("name", VERBS)
@given(data=st.data())
@settings(max_examples=50)
def test_a_verb_with_any_arguments_is_done_or_refused_by_name_and_an_invalid_request_sends_nothing(
    name: str, data: st.DataObject
) -> None:
    here = Here()
    verb = VERBS[name](here)
    arguments = data.draw(arguments_of(verb))
    sent = len(here.memory.sent)
    try:
        done = verb(**arguments)
    except InvalidLockRequest:
        assert len(here.memory.sent) == sent
    except TicketLockError:
        pass
    else:
        if isinstance(done, LockClient):
            done.close()
    here.locks.close()
    counts_are_kept(here.memory.items(), here.clock.read().wall_ms)
