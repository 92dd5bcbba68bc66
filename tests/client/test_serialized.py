"""Functions whose calls run one at a time: the decorator of both clients, its keys, and what may be decorated."""

import asyncio
import enum
import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.places import Emulated, Moved, meanwhile, outcome, until

from ticketlock import InvalidLockRequest, LockClient, LockName, RecordWaitExceeded

Serialize = Callable[..., Callable[..., Any]]


@pytest.fixture
def serialize(place: Emulated) -> Serialize:
    """Decorates a function; for the client for tasks, a coroutine function around it."""
    locks = place.client()

    def serialize(work: Callable[..., Any], key: Any, **options: Any) -> Callable[..., Any]:
        if place.kind == "threads":
            return locks.serialized(key, **options)(work)

        @functools.wraps(work)
        async def task(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.wrap_future(meanwhile(lambda: work(*args, **kwargs)))

        in_the_loop: Any = locks.serialized(key, **options)(task)
        loop: Any = locks._loop  # type: ignore[attr-defined]
        return lambda *args, **kwargs: loop.do(lambda: in_the_loop(*args, **kwargs))

    return serialize


def test_calls_for_one_entity_run_one_at_a_time(place: Emulated, serialize: Serialize, entity: str) -> None:
    inside, most, begun = 0, 0, 0

    def work(order: str) -> str:
        nonlocal inside, most, begun
        inside += 1
        begun += 1
        most = max(most, inside)
        if begun == 1:
            until(lambda: most > 1 or place.queue_of(f"order-{order}") > 0, "another call")
        inside -= 1
        return order

    serialized = serialize(work, "order-{order}")
    results = [meanwhile(lambda: serialized(entity)) for _ in range(5)]
    assert [outcome(each) for each in results] == [entity] * 5
    assert most == 1


def test_calls_for_two_entities_run_together(serialize: Serialize, entity: str) -> None:
    inside: set[str] = set()

    def work(order: str) -> None:
        inside.add(order)
        until(lambda: len(inside) == 2)

    serialized = serialize(work, "{order}")
    for each in [meanwhile(partial(serialized, entity + name)) for name in "ab"]:
        outcome(each)


def test_the_lock_is_held_while_the_function_runs_and_free_afterwards(
    place: Emulated, serialize: Serialize, entity: str
) -> None:
    assert serialize(lambda order: place.holders_of(order), "{order}")(entity) == 1
    assert place.is_free(entity)


def test_an_error_of_the_function_passes_through_and_the_lock_is_freed(
    place: Emulated, serialize: Serialize, entity: str
) -> None:
    def fails(order: str) -> None:
        raise LookupError(order)

    serialized = serialize(fails, "{order}")
    with pytest.raises(LookupError, match=entity):
        serialized(entity)
    assert place.is_free(entity)


def test_a_key_may_be_a_callable_of_the_arguments(place: Emulated, serialize: Serialize, entity: str) -> None:
    def work(event: dict[str, str]) -> int:
        return place.holders_of(event["id"])

    assert serialize(work, lambda event: event["id"])({"id": entity}) == 1


def test_a_template_names_parameters_however_they_are_passed(
    place: Emulated, serialize: Serialize, entity: str
) -> None:
    def work(order: str, part: str = "7") -> int:
        return place.holders_of(f"{order}/{part}")

    serialized = serialize(work, "{order}/{part}")
    assert [serialized(entity), serialized(order=entity), serialized(entity, part="8")] == [1, 1, 1]


def test_a_template_reaches_into_an_event(place: Emulated, serialize: Serialize, entity: str) -> None:
    def handler(event: dict[str, str], _: object) -> int:
        return place.holders_of(f"order-{event['orderId']}")

    assert serialize(handler, "order-{event[orderId]}")({"orderId": entity}, None) == 1


def test_the_function_gets_its_lease_if_asked_for(serialize: Serialize, entity: str) -> None:
    def work(order: str, *, lease: Any) -> bool:
        return lease.is_held() and bool(lease.entity == order)

    assert serialize(work, "{order}", lease_as="lease")(entity)


def test_a_call_without_its_arguments_is_a_type_error_and_takes_no_lock(place: Emulated, serialize: Serialize) -> None:
    before = len(list(place.table.list_locks()))
    serialized = serialize(lambda order: order, "{order}")
    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        serialized()
    assert len(list(place.table.list_locks())) == before


def test_the_options_are_those_of_acquire(place: Emulated, serialize: Serialize, entity: str) -> None:
    place.client().acquire(entity)
    serialized = serialize(lambda order: order, "{order}", record_wait=0)
    with pytest.raises(RecordWaitExceeded):
        serialized(entity)


def test_the_functions_name_and_signature_stay(locks: LockClient) -> None:
    async def of_tasks(order: str) -> None:
        """Says what it does."""

    def of_threads(order: str) -> None:
        """Says what it does."""

    work: Any = of_threads if isinstance(locks, LockClient) else of_tasks
    decorated: Any = locks.serialized("{order}")(work)
    assert (decorated.__name__, decorated.__doc__) == (work.__name__, "Says what it does.")
    assert decorated.__wrapped__ is work


# Keys of a decorated function: two calls for one entity get the same lock, or are refused.


Call = Callable[..., Any]


class Order:
    id = "order-42"
    number = 42


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.fixture
def locks(moved: Moved) -> LockClient:
    return moved.client()


@pytest.fixture
def entity_of(moved: Moved, locks: LockClient) -> Call:
    """Calls a function with the given key, and returns the locks that were taken."""

    def entity_of(key: Any, given: Any) -> list[str]:
        async def of_tasks(order: Any) -> None: ...

        def of_threads(order: Any) -> None: ...

        loop: Any = getattr(locks, "_loop", None) if moved.kind == "tasks" else None
        decorated: Any = locks.serialized(key)(of_tasks if loop else of_threads)
        if loop:
            loop.do(lambda: decorated(given))
        else:
            decorated(given)
        return [each.lock.entity for each in moved.table.list_locks()]

    return entity_of


@pytest.mark.parametrize(
    ("key", "given", "entity"),
    [
        (lambda order: order, "order-42", "order-42"),
        (lambda order: order, 42, "42"),
        (lambda order: order, Level.HIGH, "3"),
        ("order-{order}", 42, "order-42"),
        ("order-{order}", -1, "order--1"),
        ("order-{order:05d}", 42, "order-00042"),
        ("{order!r}", "42", "'42'"),
        ("{order.id}/{order.number}", Order(), "order-42/42"),
        ("{order[id]}", {"id": 7}, "7"),
        ("{order[0]}", ["a"], "a"),
        ("{order}", Colour.RED, "red"),
        ("level-{order}", Level.HIGH, "level-3"),
        ("{{{order}}}", "a", "{a}"),
        ("order-42", object(), "order-42"),
    ],
)
def test_a_key_is_text_or_a_whole_number(entity_of: Call, key: Any, given: Any, entity: str) -> None:
    assert entity_of(key, given) == [entity]


async def coroutine_key(order: Any) -> str:
    return str(order)


def generator_key(order: Any) -> Any:
    yield order


class CoroutineKey:
    async def __call__(self, order: Any) -> str:
        return str(order)


@pytest.mark.parametrize("key", [coroutine_key, CoroutineKey()])
def test_a_key_that_is_a_coroutine_function_is_refused_at_once(locks: LockClient, key: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^key is .*not a coroutine"):
        locks.serialized(key)


@pytest.mark.parametrize("key", [42, None, b"order-42", ["order-42"]], ids=repr)
def test_a_key_that_is_neither_a_template_nor_a_callable_is_refused_at_once(locks: LockClient, key: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^key is "):
        locks.serialized(key)


NO_KEYS: list[Any] = [Order(), None, True, 42.0, b"order-42", ("order", 42), {"id": 1}]
LONG = 10**5_000  # Python refuses to write it.


@pytest.mark.parametrize(
    ("key", "given"),
    [
        *((lambda order: order, each) for each in NO_KEYS),
        *(("order-{order}", each) for each in NO_KEYS),
        pytest.param(lambda order: order, LONG, id="a long number"),
        pytest.param("order-{order}", LONG, id="a long number in a template"),
        (lambda order: coroutine_key(order), "order-42"),
        (generator_key, "order-42"),
        ("{order!s}", Order()),
        ("{order.colour}", Order()),
        ("{order[id]}", {}),
        ("{order[id]}", "text"),
        ("{order[0]}", []),
        ("{order:d}", "text"),
        ("{order.}", Order()),
        ("{order}", ""),
        (lambda _: "", "order-42"),
    ],
)
def test_any_other_key_is_refused_and_no_request_is_sent(moved: Moved, entity_of: Call, key: Any, given: Any) -> None:
    with pytest.raises(InvalidLockRequest):
        entity_of(key, given)
    assert moved.memory.sent == []


@pytest.mark.parametrize(
    ("template", "misspelt"),
    [("order-{order_ib}", "order_ib"), ("{}", ""), ("{0}", "0"), ("{order_id:{width}}", "width"), ("{lease}", "lease")],
)
def test_a_template_that_names_no_parameter_is_refused_at_once_by_name(
    moved: Moved, locks: LockClient, template: str, misspelt: str
) -> None:
    async def of_tasks(order_id: str, *, lease: Any) -> None: ...

    def of_threads(order_id: str, *, lease: Any) -> None: ...

    decorate: Any = locks.serialized(template, lease_as="lease")
    with pytest.raises(InvalidLockRequest, match=re.escape(f"order_id; {{{misspelt}}} is none")):
        decorate(of_tasks if moved.kind == "tasks" else of_threads)


@pytest.mark.parametrize("template", ["order-{order", "order}-", "{order!x", "{order["])
def test_a_malformed_template_is_refused_at_once(moved: Moved, locks: LockClient, template: str) -> None:
    async def of_tasks(order: str) -> None: ...

    def of_threads(order: str) -> None: ...

    decorate: Any = locks.serialized(template)
    with pytest.raises(InvalidLockRequest, match=r"^key is "):
        decorate(of_tasks if moved.kind == "tasks" else of_threads)


def test_an_owner_for_all_calls_is_refused_at_once(locks: LockClient) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^owner is .*each gets an owner of its own"):
        locks.serialized("order-42", owner="nightly")


def test_the_decorator_without_brackets_is_refused_at_once_by_name(locks: LockClient) -> None:
    # For the client for tasks its own class: the one in a loop is called from elsewhere.
    own: Any = getattr(locks, "_inner", locks)
    serialized: Callable[[Any], Callable[..., None]] = own.serialized
    with pytest.raises(InvalidLockRequest, match=r"ship.*write @serialized\(\"order-{order_id}\"\)"):

        @serialized
        def ship(order_id: str) -> None: ...


@pytest.mark.parametrize("kind", ["threads"])
def test_the_decorator_without_brackets_is_refused_under_another_decorator_and_in_a_class_as_well(
    locks: LockClient,
) -> None:
    serialized: Callable[[Any], Callable[..., None]] = cast("Any", locks).serialized

    def other(function: Callable[..., None]) -> Callable[..., None]:
        return function

    with pytest.raises(InvalidLockRequest, match=r"bill.*write @serialized"):

        class Orders:
            @other
            @serialized
            def bill(self) -> None: ...


@pytest.mark.parametrize("kind", ["threads"])
def test_a_function_that_has_its_name_may_be_a_key_wherever_it_is_written(moved: Moved, locks: LockClient) -> None:
    def key(order: str) -> str:
        return order

    def nested() -> Any:
        return locks.serialized(key)(lambda order: moved.holders_of(order))

    assert nested()("order-42") == 1
    # As in Python's prompt, in which every statement is on the first line.
    names: dict[str, Any] = {"locks": locks, "SimpleNamespace": SimpleNamespace}
    exec(compile("def key_of(order): return order.id", "<stdin>", "exec"), names)
    exec(compile("ship = locks.serialized(key_of)(lambda order: order.id)", "<stdin>", "exec"), names)
    assert names["ship"](SimpleNamespace(id="order-42")) == "order-42"


# Functions that may be decorated: their work has ended when the lock is released. Others are refused before they begin.


OF_THREADS = pytest.mark.parametrize("kind", ["threads"])
OF_TASKS = pytest.mark.parametrize("kind", ["tasks"])


@pytest.fixture
def begun() -> list[str]:
    """What the work has done."""
    return []


def behind(work: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not say what it wraps."""
    return lambda *args: work(*args)


def held(moved: Moved) -> bool:
    """Whether the lock is held now; only in memory, which can be read from anywhere."""
    return moved.holders_of("order-42") == 1


class CoroutineObject:
    async def __call__(self) -> None: ...


class GeneratorObject:
    def __call__(self) -> Iterator[None]:
        yield


class AsyncGeneratorObject:
    async def __call__(self) -> AsyncIterator[None]:
        yield


async def coroutine_function() -> None: ...


def generator_function() -> Iterator[None]:
    yield


async def async_generator_function() -> AsyncIterator[None]:
    yield


GENERATORS: list[Any] = [
    generator_function,
    async_generator_function,
    functools.partial(generator_function),
    staticmethod(generator_function),
    GeneratorObject(),
    AsyncGeneratorObject(),
    functools.partial(AsyncGeneratorObject()),
]
COROUTINES: list[Any] = [
    coroutine_function,
    functools.partial(coroutine_function),
    staticmethod(coroutine_function),
    CoroutineObject(),
    CoroutineObject().__call__,
    functools.partial(CoroutineObject()),
]


@pytest.mark.parametrize("work", GENERATORS, ids=lambda work: type(work).__name__)
def test_any_kind_of_generator_function_is_refused_at_once(locks: LockClient, work: Any) -> None:
    decorate = locks.serialized("order-42")
    with pytest.raises(TypeError, match="body runs after the call has returned: use acquire"):
        decorate(work)


@OF_THREADS
@pytest.mark.parametrize("work", COROUTINES, ids=lambda work: type(work).__name__)
def test_any_kind_of_coroutine_function_is_refused_at_once(locks: LockClient, work: Any) -> None:
    decorate = locks.serialized("order-42")
    with pytest.raises(TypeError, match=r"use ticketlock\.aio"):
        decorate(work)


@pytest.fixture
def late(begun: list[str]) -> dict[str, Callable[[], Any]]:
    """Functions that return work that has yet to run."""

    async def coroutine() -> None:
        begun.append("coroutine")

    def generator() -> Iterator[None]:
        begun.append("generator")
        yield

    async def async_generator() -> AsyncIterator[None]:
        begun.append("async generator")
        yield

    @functools.wraps(coroutine)
    def wrapper() -> Any:
        return coroutine()

    return {
        "a coroutine": behind(coroutine),
        "a coroutine of a function that says what it wraps": wrapper,
        "a generator": behind(generator),
        "an async generator": behind(async_generator),
        "an iterator": lambda: map(begun.append, ["iterator"]),
        "a context manager": contextmanager(generator),
    }


LATE = [
    "a coroutine",
    "a coroutine of a function that says what it wraps",
    "a generator",
    "an async generator",
    "an iterator",
    "a context manager",
]


@pytest.mark.parametrize("what", LATE)
def test_work_that_would_run_after_the_call_or_the_coroutine_is_refused_and_never_begins(
    moved: Moved, locks: Any, late: dict[str, Any], begun: list[str], what: str
) -> None:
    async def returns_it() -> Any:
        return late[what]()

    decorated = locks.serialized("order-42")(late[what] if moved.kind == "threads" else returns_it)
    with pytest.raises(TypeError, match="whose work would run without the lock"):
        decorated() if moved.kind == "threads" else locks._loop.do(decorated)
    assert begun == []
    assert moved.is_free("order-42")


@OF_THREADS
def test_a_task_that_a_function_has_started_is_cancelled_before_it_begins(moved: Moved, begun: list[str]) -> None:
    async def work() -> None:
        begun.append("work")

    def starts() -> Any:
        started.append(asyncio.ensure_future(work()))
        return started[0]

    async def calls() -> Any:
        decorated = moved.client().serialized("order-42")(starts)
        with pytest.raises(TypeError, match="an awaitable"):
            decorated()
        await asyncio.wait(started)
        return started[0].cancelled()

    started: list[asyncio.Future[None]] = []
    assert asyncio.run(calls())
    assert begun == []


def _wrapped(work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def wrapper(*args: Any) -> Any:
        return work(*args)

    return wrapper


class Awaited:
    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work

    async def __call__(self) -> bool:
        return bool(await self._work())


@OF_TASKS
@pytest.mark.parametrize(
    "made_of",
    [functools.partial, _wrapped, Awaited, lambda work: functools.partial(_wrapped(work))],
    ids=["partial", "wrapper", "object", "partial of a wrapper"],
)
def test_any_kind_of_coroutine_function_runs_under_the_lock(moved: Moved, locks: Any, made_of: Any) -> None:
    async def work() -> bool:
        return held(moved)

    decorated = locks.serialized("order-42")(made_of(work))
    assert locks._loop.do(decorated) is True
    assert moved.is_free("order-42")


@OF_TASKS
def test_a_plain_function_of_the_client_for_tasks_is_refused_at_once(locks: LockClient) -> None:
    decorate: Any = locks.serialized("order-42")
    for work in (lambda: None, functools.partial(len, []), len):
        with pytest.raises(TypeError, match=r"use ticketlock\.LockClient"):
            decorate(work)


@OF_THREADS
def test_a_static_method_and_a_class_method_may_be_decorated_from_outside(moved: Moved, locks: LockClient) -> None:
    class Orders:
        @locks.serialized("{order}")
        @staticmethod
        def ship(order: str) -> int:
            return moved.holders_of(order)

        @locks.serialized("{order}")
        @classmethod
        def bill(cls, order: str) -> tuple[str, int]:
            return cls.__name__, moved.holders_of(order)

    assert (Orders.ship("order-42"), Orders().ship("order-42")) == (1, 1)
    assert Orders().bill("order-42") == ("Orders", 1)


@OF_TASKS
def test_a_static_coroutine_method_runs_under_the_lock(moved: Moved, locks: Any) -> None:
    async def ship() -> bool:
        return held(moved)

    static: Any = locks.serialized("order-42")(staticmethod(ship))
    assert isinstance(static, staticmethod)
    assert locks._loop.do(static.__func__) is True


@OF_THREADS
def test_results_without_pending_work_are_returned_unchanged(locks: LockClient) -> None:
    returned: list[Any] = [[1], {"a": 1}, "text", (1,), range(3), None, LockName("order-42")]
    for each in returned:
        assert locks.serialized("order-42")(lambda each=each: each)() is each
