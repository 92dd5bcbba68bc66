"""Functions whose calls run one at a time: the decorator of both clients, its keys, and what may be decorated."""

import asyncio
import enum
import functools
import inspect
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kit.places import Emulated, Moved, meanwhile, outcome, until

from ticketlock import InvalidLockRequest, LockClient, LockName, RecordWaitExceeded

Serialize = Callable[..., Callable[..., Any]]


def decorated(locks: Any, work: Callable[..., Any], key: Any, **options: Any) -> Callable[..., Any]:
    """A decorated function; for the client for tasks, a decorated coroutine function around it, called in its loop."""
    serialized: Callable[..., Callable[..., Any]] = locks.serialized(key, **options)
    if isinstance(locks, LockClient):
        return serialized(work)

    @functools.wraps(work)
    async def task(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.wrap_future(meanwhile(lambda: work(*args, **kwargs)))

    in_the_loop = serialized(task)
    return lambda *args, **kwargs: locks._loop.do(lambda: in_the_loop(*args, **kwargs))


OF_THREADS = pytest.mark.parametrize("kind", ["threads"])
OF_TASKS = pytest.mark.parametrize("kind", ["tasks"])


@pytest.fixture
def locks(moved: Moved) -> LockClient:
    return moved.client()


@pytest.fixture
def serialize(place: Emulated) -> Serialize:
    return partial(decorated, place.client())


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


def test_the_function_gets_its_lease_if_asked_for_and_an_error_passes_through_and_the_lock_is_freed(
    place: Emulated, serialize: Serialize, entity: str
) -> None:
    def fails(lease: Any, order: str) -> None:
        assert lease.is_held()
        raise LookupError(lease.entity, place.holders_of(order))

    serialized = serialize(fails, "{order}", lease_as="lease")
    with pytest.raises(LookupError) as raised:
        serialized(entity)
    assert raised.value.args == (entity, 1)
    assert place.is_free(entity)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older Pythons do not let such a function be defined")
def test_an_annotation_may_name_what_is_not_defined_yet(locks: LockClient) -> None:
    work: dict[str, Any] = {}
    body = "return order"
    exec(f"def of_threads(order: Later): {body}\nasync def of_tasks(order: Later): {body}", work)
    ship: Any = locks.serialized("{order}")(work["of_threads" if isinstance(locks, LockClient) else "of_tasks"])
    said = ship("42") if isinstance(locks, LockClient) else locks._loop.do(lambda: ship("42"))
    assert said == "42"


def test_a_method_gets_its_lease_after_self_and_neither_callers_nor_frameworks_see_it(locks: LockClient) -> None:
    class Shop:
        def of_threads(self, lease: Any, order: str, *, by: str = "post") -> str:
            return f"{order} under {lease.entity} by {by}"

        async def of_tasks(self, lease: Any, order: str, *, by: str = "post") -> str:
            return f"{order} under {lease.entity} by {by}"

    work: Any = Shop.of_threads if isinstance(locks, LockClient) else Shop.of_tasks
    # Typed users see what tests/packaging/test_types.py checks.
    ship: Callable[..., Any] = locks.serialized("{order}", lease_as="lease")(work)
    assert str(inspect.signature(ship)) == "(self, order: str, *, by: str = 'post') -> str"
    shop: Any = Shop()
    calls: list[Callable[[], Any]] = [lambda: ship(shop, "42", by="ship"), lambda: ship(shop, by="ship", order="42")]
    for call in calls:
        said = call() if isinstance(locks, LockClient) else locks._loop.do(call)
        assert said == "42 under 42 by ship"


@pytest.mark.parametrize(
    "work", [lambda order: order, lambda order, *, lease: (order, lease)], ids=["without", "by its name"]
)
def test_a_function_that_does_not_take_its_lease_first_is_refused_at_once(locks: LockClient, work: Any) -> None:
    with pytest.raises(TypeError, match="gets 'lease' as its first argument, or after self"):
        decorated(locks, work, "{order}", lease_as="lease")


def test_a_lease_is_not_passed_by_the_name_of_its_parameter(serialize: Serialize, entity: str) -> None:
    serialized = serialize(lambda lease, order: (lease, order), lambda order, **_: order, lease_as="lease")
    with pytest.raises(TypeError, match="'lease' cannot be passed by its name"):
        serialized(entity, lease=None)


def test_a_call_may_be_skipped_if_the_lock_is_taken(place: Emulated, serialize: Serialize, entity: str) -> None:
    serialized = serialize(lambda order: f"{order} done", "{order}", record_wait=0, skip=True)
    assert serialized(entity) == f"{entity} done"
    with place.client().acquire(entity):
        assert serialized(entity) is None


def test_a_call_that_runs_is_not_skipped_whatever_it_waits_for(serialize: Serialize, entity: str) -> None:
    def work(order: str) -> None:
        raise RecordWaitExceeded(f"another lock than {order}")

    with pytest.raises(RecordWaitExceeded, match="another lock"):
        serialize(work, "{order}", skip=True)(entity)


def test_a_template_names_parameters_however_they_are_passed(
    place: Emulated, serialize: Serialize, entity: str
) -> None:
    def work(order: str, part: str = "7") -> int:
        return place.holders_of(f"{order}/{part}")

    serialized = serialize(work, "{order}/{part}")
    assert [serialized(entity), serialized(order=entity), serialized(entity, part="8")] == [1, 1, 1]


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
    done: Any = locks.serialized("{order}")(work)
    assert (done.__name__, done.__doc__, done.__wrapped__) == (work.__name__, "Says what it does.", work)


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
def entity_of(moved: Moved, locks: LockClient) -> Call:
    """Calls a function with the given key, and returns the locks that were taken."""

    def entity_of(key: Any, given: Any) -> list[str]:
        def work(order: Any) -> None: ...

        decorated(locks, work, key)(given)
        return [each.lock.entity for each in moved.table.list_locks()]

    return entity_of


@pytest.mark.parametrize(
    ("key", "given", "entity"),
    [
        (lambda order: order, "order-42", "order-42"),
        (lambda order: order, 42, "42"),
        (lambda order: order, Level.HIGH, "3"),
        ("order-{order}", 42, "order-42"),
        ("order-{order:05d}", 42, "order-00042"),
        ("{order!r}", "42", "'42'"),
        ("{order.id}/{order.number}", Order(), "order-42/42"),
        ("{order[id]}", {"id": 7}, "7"),
        ("{order[0]}", ["a"], "a"),
        (lambda order: order, Colour.RED, "red"),
        ("level-{order}", Level.HIGH, "level-3"),
        ("{{{order}}}", "a", "{a}"),
        ("order-42", object(), "order-42"),
        (lambda order: order, Decimal("42.0"), "42"),
        ("order-{order:05d}", Decimal(42), "order-00042"),
        (lambda order: order, uuid.UUID(int=42), "00000000-0000-0000-0000-00000000002a"),
        ("order-{order[id]}", {"id": uuid.UUID(int=42)}, "order-00000000-0000-0000-0000-00000000002a"),
    ],
)
def test_a_key_is_a_name_as_of_acquire(entity_of: Call, key: Any, given: Any, entity: str) -> None:
    assert entity_of(key, given) == [entity]


def test_a_key_may_be_the_name_of_a_lock_with_its_namespace_or_a_lock_object(locks: LockClient) -> None:
    taken: list[LockName] = []

    def work(lease: Any) -> None:
        taken.append(lease.lock)

    name, lock = LockName("order-42", "stock"), locks.lock("order-42", namespace="stock")
    for key in (lambda: name, lambda: lock):
        decorated(locks, work, key, lease_as="lease")()
    assert taken == [name, name]


async def coroutine_key(order: Any) -> str:
    return str(order)


def generator_key(order: Any) -> Any:
    yield order


class CoroutineKey:
    async def __call__(self, order: Any) -> str:
        return str(order)


@pytest.mark.parametrize("key", [coroutine_key, CoroutineKey(), 42, None, b"order-42", ["order-42"]])
def test_a_key_that_is_neither_a_template_nor_a_plain_function_is_refused_at_once(locks: LockClient, key: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^key is "):
        locks.serialized(key)


NO_KEYS: list[Any] = [Order(), None, True, 42.0, b"order-42", ("order", 42), Decimal("4.2"), Decimal("NaN")]
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


CONSTANTS = [
    ("order-{{order_id}}", "{order_id}"),
    ("{{ order_id }}", "{ order_id }"),
    ("{order_id}/{{item}}", "{item}"),
    ("${{order_id}}", "{order_id}"),
    ("$.order_id", "$."),
    ("order-$.order_id", "$."),
    ("order-$order_id", "$o"),
    ("order-%s", "%s"),
    ("order-%(order_id)s", "%(order_id)s"),
    ("order-<order_id>", "<order_id>"),
    ("/orders/:order_id", "/:order_id"),
    ("order_id", "order_id"),
    ("order_id.value", "order_id.value"),
    ("order_id['id']", "order_id['id']"),
]


@pytest.mark.parametrize(("template", "constant"), CONSTANTS)
def test_a_placeholder_of_another_language_would_be_the_same_in_each_call_and_is_refused_at_once(
    locks: LockClient, template: str, constant: str
) -> None:
    def work(order_id: str) -> None: ...

    with pytest.raises(InvalidLockRequest, match=re.escape(f"; {constant} is the same text in each call")):
        decorated(locks, work, template)


@pytest.mark.parametrize(
    "template", ["order-42", "nightly", "{order_id}.order_id", "US$5", "#{order_id}", "orders", "5%"]
)
def test_any_other_text_is_a_key(locks: LockClient, template: str) -> None:
    def work(order_id: str) -> None: ...

    assert callable(decorated(locks, work, template))


@pytest.mark.parametrize(
    ("template", "told"),
    [
        *(
            (template, f"order_id; {{{misspelt}}} is none")
            for template, misspelt in [("order-{order_ib}", "order_ib"), ("{}", ""), ("{0}", "0"), ("{lease}", "lease")]
        ),
        ("{order_id:{width}}", "order_id; {width} is none"),
        *((malformed, "key is ") for malformed in ("order-{order", "order}-", "{order!x", "{order[")),
    ],
)
def test_a_template_that_is_malformed_or_names_no_parameter_is_refused_at_once_by_name(
    locks: LockClient, template: str, told: str
) -> None:
    def work(lease: Any, order_id: str) -> None: ...

    with pytest.raises(InvalidLockRequest, match=re.escape(told)):
        decorated(locks, work, template, lease_as="lease")


def test_an_owner_for_all_calls_is_refused_at_once(locks: LockClient) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^owner is .*each gets an owner of its own"):
        decorated(locks, print, "order-42", owner="nightly")


def test_the_decorator_without_brackets_is_refused_by_name_also_under_another_decorator_and_in_a_class(
    locks: LockClient,
) -> None:
    # For the client for tasks its own class: the one in a loop is called from elsewhere.
    own: Any = getattr(locks, "_inner", locks)
    serialized: Callable[[Any], Callable[..., None]] = own.serialized

    def other(function: Callable[..., None]) -> Callable[..., None]:
        return function

    with pytest.raises(InvalidLockRequest, match=r"ship.*write @serialized\(\"order-{order_id}\"\)"):

        @serialized
        def ship(order_id: str) -> None: ...

    with pytest.raises(InvalidLockRequest, match=r"bill.*write @serialized"):

        class Orders:
            @other
            @serialized
            def bill(self) -> None: ...


@OF_THREADS
def test_a_function_that_is_defined_before_may_be_a_key_wherever_it_is_written(moved: Moved, locks: LockClient) -> None:
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


@pytest.fixture
def begun() -> list[str]:
    """The work that has begun."""
    return []


def is_held(moved: Moved) -> bool:
    """Whether the lock is held now; only in memory, which can be read from anywhere."""
    return moved.holders_of("order-42") == 1


class CoroutineObject:
    async def __call__(self) -> None: ...


class GeneratorObject:
    def __call__(self) -> Iterator[None]:
        yield


async def coroutine_function() -> None: ...


def generator_function() -> Iterator[None]:
    yield


async def async_generator_function() -> AsyncIterator[None]:
    yield


def ways_to_be(function: Callable[..., Any], an_object: Any) -> list[Any]:
    """A function, and what calls one without saying so."""
    return [function, partial(function), staticmethod(function), an_object, an_object.__call__, partial(an_object)]


GENERATORS = [async_generator_function, *ways_to_be(generator_function, GeneratorObject())]


@pytest.mark.parametrize("work", GENERATORS, ids=lambda work: type(work).__name__)
def test_any_kind_of_generator_function_is_refused_at_once(locks: LockClient, work: Any) -> None:
    decorate = locks.serialized("order-42")
    with pytest.raises(TypeError, match="body runs after the call has returned: use acquire"):
        decorate(work)


def test_a_property_is_refused_with_where_the_decorator_belongs(locks: LockClient) -> None:
    decorate: Any = locks.serialized("order-42")
    with pytest.raises(TypeError, match=r"write @serialized\(...\) below @property"):
        decorate(property(len))


@OF_THREADS
@pytest.mark.parametrize(
    "work", ways_to_be(coroutine_function, CoroutineObject()), ids=lambda work: type(work).__name__
)
def test_any_kind_of_coroutine_function_is_refused_at_once(locks: LockClient, work: Any) -> None:
    decorate = locks.serialized("order-42")
    with pytest.raises(TypeError, match=r"use ticketlock\.aio"):
        decorate(work)


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
        "a coroutine": lambda: coroutine(),
        "a coroutine of a function that says what it wraps": wrapper,
        "a generator": lambda: generator(),
        "an async generator": lambda: async_generator(),
        "an iterator": lambda: map(begun.append, ["iterator"]),
        "a context manager": contextmanager(generator),
    }


@pytest.mark.parametrize("what", late([]))
def test_work_that_would_run_after_the_call_or_the_coroutine_is_refused_and_never_begins(
    moved: Moved, locks: Any, begun: list[str], what: str
) -> None:
    returns_it = late(begun)[what]

    async def of_tasks() -> Any:
        return returns_it()

    done = locks.serialized("order-42")(returns_it if moved.kind == "threads" else of_tasks)
    with pytest.raises(TypeError, match="whose work would run without the lock"):
        done() if moved.kind == "threads" else locks._loop.do(done)
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
        done = moved.client().serialized("order-42")(starts)
        with pytest.raises(TypeError, match="an awaitable"):
            done()
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
    [partial, _wrapped, Awaited, lambda work: partial(_wrapped(work))],
    ids=["partial", "wrapper", "object", "partial of a wrapper"],
)
def test_any_kind_of_coroutine_function_runs_under_the_lock(moved: Moved, locks: Any, made_of: Any) -> None:
    async def work() -> bool:
        return is_held(moved)

    assert locks._loop.do(locks.serialized("order-42")(made_of(work))) is True
    assert moved.is_free("order-42")


@OF_TASKS
def test_a_plain_function_of_the_client_for_tasks_is_refused_at_once(locks: LockClient) -> None:
    decorate: Any = locks.serialized("order-42")
    for work in (lambda: None, partial(len, []), len):
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
        return is_held(moved)

    static: Any = locks.serialized("order-42")(staticmethod(ship))
    assert isinstance(static, staticmethod)
    assert locks._loop.do(static.__func__) is True


@OF_THREADS
def test_results_without_pending_work_are_returned_unchanged(locks: LockClient) -> None:
    returned: list[Any] = [[1], {"a": 1}, "text", (1,), range(3), None, LockName("order-42")]
    for each in returned:
        assert locks.serialized("order-42")(lambda each=each: each)() is each
