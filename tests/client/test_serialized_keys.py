"""Keys of a decorated function: two calls for one entity get the same lock, or are refused."""

import enum
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.places import Moved

from ticketlock import InvalidLockRequest, LockClient

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


def test_without_brackets_it_is_refused_at_once_by_name(locks: LockClient) -> None:
    # For the client for tasks its own class: the one in a loop is called from elsewhere.
    own: Any = getattr(locks, "_inner", locks)
    serialized: Callable[[Any], Callable[..., None]] = own.serialized
    with pytest.raises(InvalidLockRequest, match=r"ship.*write @serialized\(\"order-{order_id}\"\)"):

        @serialized
        def ship(order_id: str) -> None: ...


@pytest.mark.parametrize("kind", ["threads"])
def test_without_brackets_under_another_decorator_and_in_a_class_it_is_refused_as_well(locks: LockClient) -> None:
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
