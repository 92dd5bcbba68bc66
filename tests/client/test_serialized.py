"""Functions whose calls run one at a time: the decorator of both clients."""

import asyncio
import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kit.places import Emulated, meanwhile, outcome, until

from ticketlock import LockClient, RecordWaitExceeded

Serialize = Callable[..., Callable[..., Any]]


@pytest.fixture
def serialize(place: Emulated, locks: LockClient) -> Serialize:
    """Decorates a function; for the client for tasks, a coroutine function around it."""

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


def test_the_wrong_kind_of_function_is_refused_at_once(locks: LockClient) -> None:
    async def of_tasks() -> None: ...

    def of_threads() -> None: ...

    wrong: Any = of_tasks if isinstance(locks, LockClient) else of_threads
    decorate = locks.serialized("order-42")
    with pytest.raises(TypeError, match="use ticketlock"):
        decorate(wrong)
