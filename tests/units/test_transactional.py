"""The decorator: each call is a unit, and runs again after errors where another try may succeed."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, assert_type

import pytest
from kit.units import Books, some_name

from ticketlock import (
    ConditionFailed,
    Fence,
    InvalidLockRequest,
    InvalidUnitRequest,
    Lease,
    LockClient,
    LockLost,
    OutcomeUnknown,
    RequestNotApplied,
    UnitConflict,
    UnitContended,
    UnitRolledBack,
    UnitTooLarge,
    create_table,
)
from ticketlock.testing import ManualClock
from ticketlock.units import COMMITTED, READ_LOCK, Unit, Units, UnitTable
from ticketlock.units._again._transactional import Tries
from ticketlock.units._statements._settings import Terms
from ticketlock.wire._actions import Sleep

pytestmark = pytest.mark.shows("strict serialisability", "no deadlock", "state that writes once")


def add_one(unit: Unit, accounts: UnitTable, name: str) -> Any:
    after = unit.update(accounts, {"id": name}, "SET balance = balance + :n", {":n": 1})
    assert after is not None
    return after["balance"]


@pytest.fixture
def count(units: Units, accounts: UnitTable, name: str) -> Callable[..., Any]:
    """Counts in the account, and returns its balance."""

    @units.transactional()
    def count(unit: Unit) -> Any:
        return add_one(unit, accounts, name)

    return count


def test_a_call_is_a_unit_which_the_function_gets_first_and_commits_when_it_returns(
    books: Books, units: Units, accounts: UnitTable, name: str
) -> None:
    class Teller:
        @units.transactional(unit_as="work")
        def count(self, work: Unit, account: str, *, times: int = 1) -> str:
            for _ in range(times):
                counted = str(add_one(work, accounts, account))
            assert books.balance({"id": account}) == int(counted) - times
            return counted

    @units.transactional()
    def count(unit: Unit, account: str, times: int = 1) -> str:
        return Teller().count(unit, account, times=times)

    assert str(inspect.signature(count)) == "(account: str, times: int = 1) -> str"
    assert assert_type(count(name, times=1), str) == "101"
    assert books.balance({"id": name}) == 101
    assert assert_type(Teller().count(name), str) == "102"


def test_a_call_that_meets_a_conflict_runs_again(books: Books, units: Units, accounts: UnitTable, name: str) -> None:
    seen = []

    @units.transactional()
    def count(unit: Unit) -> None:
        seen.append(add_one(unit, accounts, name))
        if len(seen) == 1:
            with units.begin() as other:
                other.update(accounts, {"id": name}, "SET balance = :n", {":n": 500})

    count()
    assert seen == [101, 501]
    assert books.balance({"id": name}) == 501


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        (UnitConflict([]), 3),
        (UnitRolledBack("by hand"), 3),
        (UnitContended("pending"), 3),
        (OutcomeUnknown("no answer"), 1),
        (RequestNotApplied("throttled"), 1),
        (ConditionFailed("accounts", {"id": "a"}, "balance > :n"), 1),
        (UnitTooLarge("101 items"), 1),
        (LookupError("mine"), 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_exception_rolls_back_and_only_what_another_try_may_do_better_runs_again_until_the_last_try(
    books: Books, units: Units, accounts: UnitTable, name: str, error: Exception, runs: int
) -> None:
    tried = []

    @units.transactional(tries=3)
    def fail(unit: Unit) -> None:
        tried.append(unit.id)
        add_one(unit, accounts, name)
        raise error

    with pytest.raises(type(error)) as raised:
        fail()
    assert raised.value is error
    assert (len(set(tried)), books.balance({"id": name})) == (runs, 100)


def test_what_is_raised_after_the_function_has_committed_by_hand_does_not_run_again(
    books: Books, units: Units, accounts: UnitTable, name: str
) -> None:
    @units.transactional()
    def count(unit: Unit) -> None:
        add_one(unit, accounts, name)
        unit.commit()
        raise UnitConflict([("carts", {"id": "of another unit"})])

    with pytest.raises(UnitConflict, match="of another unit"):
        count()
    assert books.balance({"id": name}) == 101


@pytest.mark.parametrize(
    "named",
    ["count-{account}-{part[0]}", lambda account, part: f"{account}/{part[0]}"],
    ids=["a template", "a function of the arguments"],
)
def test_a_call_whose_name_was_committed_before_does_not_run(
    units: Units, accounts: UnitTable, name: str, named: str | Callable[..., str]
) -> None:
    @units.transactional(name=named)
    def count(unit: Unit, account: str, part: list[int]) -> Any:
        assert part
        return add_one(unit, accounts, account)

    assert [count(name, [1]), count(name, part=[1]), count(name, [2])] == [101, 101, 102]


def test_only_a_call_with_a_name_may_return_none_by_its_type(units: Units) -> None:
    def work(unit: Unit) -> str:
        return unit.id

    assert_type(units.transactional()(work)(), str)
    assert_type(units.transactional(name=some_name())(work)(), str | None)


def test_a_name_that_is_committed_while_the_function_runs_is_committed_once(
    books: Books, units: Units, accounts: UnitTable, name: str
) -> None:
    runs = []

    @units.transactional(name=name)
    def count(unit: Unit) -> Any:
        runs.append(unit.id)
        if len(runs) == 1:
            count()
        return add_one(unit, accounts, name)

    assert count() == 101
    assert len(runs) == 2
    assert books.balance({"id": name}) == 101


def test_a_call_whose_name_is_no_text_sends_nothing(units: Units) -> None:
    no_text: Any = 1.5

    @units.transactional(name=lambda: no_text)
    def count(unit: Unit) -> None:
        raise AssertionError(unit.id)

    with pytest.raises(InvalidUnitRequest, match=r"name is 1\.5; allowed: text, a whole number or a UUID"):
        count()


@pytest.fixture
def locks(books: Books) -> Iterator[LockClient]:
    """On a table of its own."""
    table_name = f"locks-{some_name()}"
    create_table(table_name, client=books.plain_client)
    with LockClient(table_name, client=books.engine.client()) as locks:
        yield locks
    books.plain_client.delete_table(TableName=table_name)


@pytest.mark.parametrize("name_of", [None, lambda _account, lease: lease.entity], ids=["unnamed", "named"])
def test_a_call_is_under_the_lock_that_is_made_of_its_arguments_unless_its_name_was_committed_before(
    books: Books, units: Units, accounts: UnitTable, name: str, locks: LockClient, name_of: Any
) -> None:
    def work(unit: Unit, account: str, lease: Lease) -> Any:
        assert lease.entity == account
        return add_one(unit, accounts, account)

    count = units.transactional(name=name_of, under=lambda _account, lease: lease)(work)
    with locks.acquire(name) as lease:
        assert count(name, lease) == 101
    with pytest.raises(LockLost) if name_of is None else nullcontext():
        assert count(name, lease) == 101
    assert books.balance({"id": name}) == 101


def test_every_try_is_under_the_lock(
    books: Books, units: Units, accounts: UnitTable, name: str, locks: LockClient
) -> None:
    runs = []

    @units.transactional(under=lambda lease: lease)
    def count(unit: Unit, lease: Lease) -> None:
        runs.append(unit.id)
        if len(runs) > 1:
            lease.release()
        add_one(unit, accounts, name)
        if len(runs) == 1:
            raise UnitConflict([])

    with pytest.raises(LockLost):
        count(locks.acquire(name))
    assert len(runs) == 2
    assert books.balance({"id": name}) == 100


@pytest.mark.parametrize(
    ("makes", "error", "why"),
    [
        (lambda: None, InvalidUnitRequest, r"^under is .*held lock"),
        (lambda: "order-42", InvalidUnitRequest, r"^under is .*held lock"),
        (lambda: {"entity": "order-42"}, InvalidUnitRequest, r"^under is .*held lock"),
        (lambda: Fence({"entity": "e", "namespace": "n", "owner": "o"}, "locks"), InvalidLockRequest, "fencingToken"),
    ],
    ids=["none", "a text", "an object", "an exception"],
)
def test_a_call_that_makes_no_lock_does_not_run(units: Units, makes: Any, error: type[Exception], why: str) -> None:
    @units.transactional(under=makes)
    def never(unit: Unit) -> None:
        raise AssertionError(unit.id)

    with pytest.raises(error, match=why):
        never()


@pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)  # moto is for one thread
def test_calls_of_many_threads_lose_no_increment(books: Books, units: Units, accounts: UnitTable, name: str) -> None:
    @units.transactional(tries=1_000)
    def count(unit: Unit) -> None:
        add_one(unit, accounts, name)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(count) for _ in range(20)]:
            done.result()
    assert books.balance({"id": name}) == 120


def tries_of(clock: ManualClock) -> Tries:
    """More tries than a test needs, whose pauses are as long as they may be."""
    born_ms = clock.read().wall_ms
    return Tries(Terms("0" * 26, born_ms, 1_000), 20, clock, jitter=lambda: 1.0)


def test_the_longest_pause_between_tries_doubles_up_to_a_second() -> None:
    tries, pauses = tries_of(ManualClock()), []
    for _ in range(9):
        tries.note_failure(UnitConflict([]))
        assert not tries.are_used_up
        (pause,) = tries.prepare_next()
        assert isinstance(pause, Sleep)
        pauses.append(pause.ms)
    assert pauses == [25, 50, 100, 200, 400, 800, 1_000, 1_000, 1_000]


def test_each_try_has_an_id_of_its_own_and_the_age_of_the_first() -> None:
    clock = ManualClock()
    tries = tries_of(clock)
    first = tries.terms
    clock.advance(60)
    tries.note_failure(UnitConflict([]))
    list(tries.prepare_next())
    assert tries.terms.unit > first.unit
    assert tries.terms.born_ms == first.born_ms


async def of_tasks(unit: Unit) -> None: ...


def step_by_step(unit: Unit) -> Iterator[str]:
    yield unit.id


def without_unit(account: str) -> None: ...


def with_unit_by_name(account: str, *, unit: Unit) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (of_tasks, r"is a coroutine function: use ticketlock\.aio\.Units"),
        (functools.partial(of_tasks), "is a coroutine function"),
        (step_by_step, r"is a generator function, whose body runs .*: use begin"),
        (without_unit, r"without_unit gets 'unit' as its first argument, .* write def without_unit\(unit, \.\.\.\)"),
        (with_unit_by_name, "gets 'unit' as its first argument, or after self"),
    ],
)
def test_transactional_refuses_a_function_that_it_could_not_call_as_a_unit(
    units: Units, function: Any, why: str
) -> None:
    with pytest.raises(TypeError, match=why):
        units.transactional()(function)


def test_transactional_refuses_a_function_that_is_decorated_without_parentheses(units: Units) -> None:
    decorate: Any = units.transactional
    with pytest.raises(TypeError, match=r"write @units\.transactional\(\), with parentheses"):
        decorate(without_unit)


def test_transactional_refuses_a_result_whose_work_would_run_after_the_commit(
    books: Books, units: Units, accounts: UnitTable, name: str
) -> None:
    @units.transactional()
    def count(unit: Unit) -> Any:
        add_one(unit, accounts, name)
        return (each for each in "abc")

    with pytest.raises(TypeError, match="whose work would run after the commit"):
        count()
    assert books.balance({"id": name}) == 100


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tries", 0),
        ("tries", 1.5),
        ("tries", True),
        ("unit_as", ""),
        ("unit_as", None),
        ("isolation", "serializable"),
        ("timeout", -1),
        ("name", 5),
        ("name", "{unknown}"),
        ("name", "{"),
        ("under", "order-42"),
        ("under", asyncio.sleep),
        ("payload", "{account}"),
        ("payload", asyncio.sleep),
        ("payload", lambda account: account),
    ],
)
def test_an_argument_of_transactional_that_is_wrong_is_refused_at_once(units: Units, field: str, value: Any) -> None:
    def work(unit: Unit, account: str) -> None: ...

    transactional: Any = units.transactional
    with pytest.raises(InvalidUnitRequest) as raised:
        transactional(**{field: value})(work)
    assert raised.value.field == field


@pytest.mark.parametrize(("end", "balance"), [("commit", 102), ("rollback", 100)])
def test_a_call_that_is_given_a_unit_is_part_of_that_unit_and_ends_with_it(
    books: Books, units: Units, name: str, count: Callable[..., Any], end: str, balance: int
) -> None:
    unit = units.begin()
    assert [count(unit), count(unit)] == [101, 102]
    assert books.balance({"id": name}) == 100
    getattr(unit, end)()
    assert books.balance({"id": name}) == balance


def test_a_unit_is_not_given_by_the_name_of_the_parameter(
    books: Books, units: Units, name: str, count: Callable[..., Any]
) -> None:
    with units.begin() as unit, pytest.raises(TypeError, match="'unit' cannot be passed by its name"):
        count(unit=unit)
    assert books.balance({"id": name}) == 100


@pytest.mark.parametrize(
    "promise",
    [{"name": "count-1"}, {"under": lambda **_: None}, {"isolation": READ_LOCK}],
    ids=lambda each: str(*each),
)
def test_a_call_that_is_given_a_unit_is_refused_if_that_unit_does_not_keep_what_the_decorator_promises(
    units: Units, promise: dict[str, Any]
) -> None:
    def work(unit: Unit) -> None:
        raise AssertionError(unit)

    never = units.transactional(**promise)(work)
    (field,) = promise
    with units.begin() as unit, pytest.raises(InvalidUnitRequest, match=f"^unit is .*{field}"):
        never(unit)


def test_a_call_that_is_given_a_unit_joins_one_of_a_higher_level_and_does_not_run_again_by_itself(units: Units) -> None:
    runs: list[Unit] = []

    @units.transactional(tries=3, isolation=COMMITTED)
    def conflicts(unit: Unit) -> None:
        runs.append(unit)
        raise UnitConflict([])

    with pytest.raises(UnitConflict), units.begin(isolation=READ_LOCK) as unit:
        conflicts(unit)
    assert runs == [unit]
