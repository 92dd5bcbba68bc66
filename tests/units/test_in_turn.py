"""Calls that met a conflict queue for the items, in arrival order, in place of back-off. The queue is advisory."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from kit.engines import Engine, engine_named, first_on
from kit.opcodes import AtOpcode
from kit.places import until
from kit.units import Books, some_name
from units.conftest import PATIENCE_S

from ticketlock import InvalidUnitRequest, LockClient, LockLost, aio, create_table
from ticketlock.units import COMMITTED, READ_LOCK, Unit, Units, UnitTable
from ticketlock.units._again._passing import MOST_IN_A_ROW, Lines, PlaceInLine
from ticketlock.units._again._turns import _ENTITY_BYTES, _MOST_KNOWN, NAMESPACE, Contended, entity_of


@pytest.fixture(scope="module", params=first_on("memory", ["memory", "ministack"]))  # moto is for one thread
def units_engine(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[Engine]:
    with engine_named(request.param, url_of) as named:
        yield named


@pytest.fixture
def lock_table(books: Books) -> Iterator[str]:
    name = f"locks-{some_name()}"
    create_table(name, client=books.plain_client)
    yield name
    books.plain_client.delete_table(TableName=name)


@pytest.fixture
def locks(books: Books, lock_table: str) -> Iterator[LockClient]:
    with LockClient(lock_table, client=books.engine.client()) as locks:
        yield locks


@pytest.fixture
def units(books: Books, locks: LockClient) -> Units:
    return books.units(locks=locks)


@pytest.fixture
def entity(books: Books, name: str) -> str:
    return entity_of(books.tables["accounts"], {"id": name})


def add_one(unit: Unit, accounts: UnitTable, name: str) -> None:
    unit.update(accounts, {"id": name}, "SET balance = balance + :n", {":n": 1})


def others_write(units: Units, accounts: UnitTable, name: str) -> None:
    with units.begin() as unit:
        add_one(unit, accounts, name)


def meets_others(units: Units, accounts: UnitTable, name: str) -> None:
    """A call whose first try meets a conflict with others, and whose second one does not."""
    tried = []

    @units.transactional(tries=2)
    def count(unit: Unit) -> None:
        tried.append(unit.id)
        add_one(unit, accounts, name)
        if len(tried) == 1:
            others_write(units, accounts, name)

    count()
    assert len(tried) == 2


def holders(locks: LockClient, entity: str) -> int:
    item = locks.inspect(entity, namespace=NAMESPACE).item
    return 0 if item is None else len(item.holders)


def waiters(locks: LockClient, entity: str) -> int:
    return len(locks.inspect(entity, namespace=NAMESPACE).rows)


def test_each_try_of_a_call_holds_the_locks_of_all_items_at_which_earlier_tries_met_conflicts(
    books: Books, units: Units, accounts: UnitTable, locks: LockClient, name: str, entity: str
) -> None:
    other_name, held = some_name(), []
    other_entity = entity_of(books.tables["accounts"], {"id": other_name})
    books.write("accounts", {"id": other_name, "balance": 100})

    @units.transactional()
    def count(unit: Unit) -> None:
        held.append((holders(locks, entity), holders(locks, other_entity)))
        for at, each in enumerate((name, other_name)):
            add_one(unit, accounts, each)
            if len(held) == at + 1:
                others_write(units, accounts, each)

    count()
    assert held == [(0, 0), (1, 0), (1, 1)]
    assert (holders(locks, entity), holders(locks, other_entity)) == (0, 0)
    assert [books.balance({"id": each}) for each in (name, other_name)] == [102, 102]


@pytest.fixture
def in_line(units: Units, accounts: UnitTable, locks: LockClient, name: str, entity: str) -> Iterator[threading.Event]:
    """Ends the turn of another thread's call, behind which a third one waits, so that the queue is known."""
    go_on, pool = threading.Event(), ThreadPoolExecutor(2)
    its_turn, tried = threading.Event(), []

    @units.transactional()
    def first(unit: Unit) -> None:
        tried.append(unit.id)
        add_one(unit, accounts, name)
        if len(tried) == 1:
            others_write(units, accounts, name)
        else:
            its_turn.set()
            assert go_on.wait(PATIENCE_S)

    def behind() -> None:
        with locks.acquire(entity, namespace=NAMESPACE):
            pass

    before = locks.acquire(entity, namespace=NAMESPACE)
    done = [pool.submit(first)]
    until_waiting(locks, entity, 1)
    done.append(pool.submit(behind))
    until_waiting(locks, entity, 2)
    before.release()
    assert its_turn.wait(PATIENCE_S)
    yield go_on
    go_on.set()
    for each in done:
        each.result(PATIENCE_S)
    pool.shutdown()


def until_waiting(locks: LockClient, entity: str, count: int) -> None:
    until(lambda: waiters(locks, entity) == count, f"a queue of {count}")


def calls_behind(units: Units) -> int:
    return sum(len(line.behind) for line in units._turns.lines._lines.values())


def result_behind(in_line: threading.Event, units: Units, call: Callable[[], Any]) -> Any:
    """The result of a call that comes meanwhile, and waits for the turn before it, which then ends."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(call)
        until(lambda: calls_behind(units) == 1, "a call behind the first one")
        in_line.set()
        return done.result(PATIENCE_S)


def test_a_call_that_meets_an_item_with_a_queue_steps_back_which_counts_as_no_try(
    books: Books, units: Units, accounts: UnitTable, locks: LockClient, name: str, entity: str, in_line: threading.Event
) -> None:
    seen: list[Any] = []

    @units.transactional(tries=1)
    def count(unit: Unit) -> None:
        seen.append(holders(locks, entity))
        add_one(unit, accounts, name)
        seen.append("has read")

    result_behind(in_line, units, count)
    assert seen == [1, 1, "has read"]
    assert books.balance({"id": name}) == 103


def test_a_call_that_stepped_back_and_whose_turn_does_not_come_in_time_runs_without_it(
    books: Books, units: Units, accounts: UnitTable, name: str, in_line: threading.Event
) -> None:
    @units.transactional(tries=1, timeout=0)
    def count(unit: Unit) -> None:
        add_one(unit, accounts, name)

    count()
    assert books.balance({"id": name}) == 102
    assert not in_line.is_set()


def test_a_call_that_steps_back_from_a_read_removes_its_marks(
    books: Books, units: Units, accounts: UnitTable, name: str, in_line: threading.Event
) -> None:
    free, was_marked = some_name(), list[bool]()
    books.write("accounts", {"id": free, "balance": 100})

    @units.transactional(tries=1, isolation=READ_LOCK)
    def read(unit: Unit) -> Any:
        was_marked.append(books.marks([{"id": free}]) > 0)
        return [(unit.get(accounts, {"id": each}) or {})["balance"] for each in (free, name)]

    assert result_behind(in_line, units, read) == [100, 102]
    assert was_marked == [False, False]


def test_no_call_steps_back_for_a_read_that_the_commit_does_not_check(
    units: Units, accounts: UnitTable, name: str, in_line: threading.Event
) -> None:
    @units.transactional(tries=1, isolation=COMMITTED)
    def read(unit: Unit) -> Any:
        return unit.get(accounts, {"id": name})

    assert read()["balance"] == 101
    assert not in_line.is_set()


def test_no_call_steps_back_from_an_item_after_its_conflict_is_over(
    books: Books, units: Units, accounts: UnitTable, name: str
) -> None:
    meets_others(units, accounts, name)
    runs = []

    @units.transactional(tries=1)
    def count(unit: Unit) -> None:
        runs.append(unit.id)
        add_one(unit, accounts, name)

    count()
    assert len(runs) == 1
    assert books.balance({"id": name}) == 103


@pytest.mark.parametrize(
    ("table", "timeout", "why"),
    [(None, 0, "a unit runs without its turn"), ("no-such-table", 10, "there is no table 'no-such-table'")],
    ids=["its turn does not come in time", "there is no table of locks"],
)
def test_a_call_that_cannot_get_its_turn_runs_again_without_it_and_logs_why(
    books: Books,
    lock_table: str,
    locks: LockClient,
    name: str,
    entity: str,
    caplog: pytest.LogCaptureFixture,
    table: str | None,
    timeout: int,
    why: str,
) -> None:
    with (
        locks.acquire(entity, namespace=NAMESPACE) as other,
        LockClient(table or lock_table, client=books.engine.client()) as its_locks,
    ):
        units = books.units(locks=its_locks, timeout=timeout)
        meets_others(units, units.table(books.tables["accounts"]), name)
        assert other.is_held()
    assert books.balance({"id": name}) == 102
    assert why in caplog.text


def test_a_call_whose_turn_is_taken_away_is_committed_all_the_same(
    books: Books, units: Units, accounts: UnitTable, locks: LockClient, name: str, entity: str
) -> None:
    tried = []

    @units.transactional()
    def count(unit: Unit) -> str:
        tried.append(unit.id)
        add_one(unit, accounts, name)
        if len(tried) == 1:
            others_write(units, accounts, name)
        else:
            item = locks.inspect(entity, namespace=NAMESPACE).item
            assert item is not None
            locks.table.force_release(locks.lock(entity, namespace=NAMESPACE), item.holders[0].fencing_token)
        return "done"

    assert count() == "done"
    assert books.balance({"id": name}) == 102


def test_a_call_within_a_call_does_not_wait_for_itself(
    books: Books,
    units: Units,
    accounts: UnitTable,
    locks: LockClient,
    name: str,
    entity: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried: list[int] = []

    @units.transactional()
    def count(unit: Unit) -> None:
        tried.append(holders(locks, entity))
        if len(tried) == 2:
            meets_others(units, accounts, name)
        add_one(unit, accounts, name)
        if len(tried) == 1:
            others_write(units, accounts, name)

    count()
    assert tried == [0, 1]
    assert books.balance({"id": name}) == 104
    assert caplog.text == ""


def test_threads_that_update_one_item_need_few_tries(
    books: Books, units: Units, accounts: UnitTable, name: str
) -> None:
    threads, calls_a_thread, most_runs_a_call, runs = 8, 5, 2.5, []

    @units.transactional(tries=100)
    def count(unit: Unit) -> None:
        add_one(unit, accounts, name)
        runs.append(unit.id)

    def several() -> None:
        for _ in range(calls_a_thread):
            count()

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(several) for _ in range(threads)]:
            done.result(PATIENCE_S)
    assert books.balance({"id": name}) == 100 + threads * calls_a_thread
    assert len(runs) <= most_runs_a_call * threads * calls_a_thread


def test_calls_of_one_process_pass_the_locks_on_until_the_next_process_has_its_turn(
    books: Books, units: Units, accounts: UnitTable, locks: LockClient, name: str, entity: str
) -> None:
    tokens, others = list[int](), ThreadPoolExecutor(1)
    its_turn, go_on = threading.Event(), threading.Event()

    @units.transactional()
    def count(unit: Unit) -> None:
        add_one(unit, accounts, name)
        item = locks.inspect(entity, namespace=NAMESPACE).item
        assert item is not None
        tokens.append(item.holders[0].fencing_token)
        its_turn.set()
        assert go_on.wait(PATIENCE_S)

    def of_another_process() -> int:
        with locks.acquire(entity, namespace=NAMESPACE) as lease:
            return lease.fencing_token

    units._turns.contended.add([entity])
    with ThreadPoolExecutor(MOST_IN_A_ROW + 2) as pool:
        calls = [pool.submit(count)]
        assert its_turn.wait(PATIENCE_S)
        units._turns.contended.add([entity])
        calls += [pool.submit(count) for _ in range(MOST_IN_A_ROW + 1)]
        until(lambda: calls_behind(units) == MOST_IN_A_ROW + 1, "calls behind the first one")
        other = others.submit(of_another_process)
        until_waiting(locks, entity, 1)
        go_on.set()
        for each in calls:
            each.result(PATIENCE_S)
    first = tokens[0]
    assert tokens == [first] * MOST_IN_A_ROW + [first + 2] * 2
    assert other.result(PATIENCE_S) == first + 1
    others.shutdown()
    assert books.balance({"id": name}) == 100 + MOST_IN_A_ROW + 2
    assert (holders(locks, entity), units._turns.lines._lines) == (0, {})


def test_a_call_whose_turn_is_passed_on_does_not_wait_for_itself(
    books: Books,
    units: Units,
    accounts: UnitTable,
    name: str,
    in_line: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @units.transactional()
    def count(unit: Unit) -> None:
        add_one(unit, accounts, name)
        if unit.get(accounts, {"id": name}) == {"id": name, "balance": 103}:
            meets_others(units, accounts, name)

    result_behind(in_line, units, count)
    assert books.balance({"id": name}) == 104
    assert caplog.text == ""


def test_a_turn_whose_locks_are_lost_is_not_passed_on(
    books: Books, units: Units, accounts: UnitTable, locks: LockClient, name: str, entity: str, in_line: threading.Event
) -> None:
    before = locks.inspect(entity, namespace=NAMESPACE).item
    assert before is not None
    token = before.holders[0].fencing_token
    locks.table.force_release(locks.lock(entity, namespace=NAMESPACE), token)
    seen = []

    @units.transactional()
    def count(unit: Unit) -> None:
        add_one(unit, accounts, name)
        item = locks.inspect(entity, namespace=NAMESPACE).item
        seen.append([holder.fencing_token for holder in item.holders] if item is not None else [])

    (lease,) = next(iter(units._turns.lines._lines.values())).first.group.leases
    with pytest.raises(LockLost):
        lease.renew()
    result_behind(in_line, units, count)
    assert seen[-1] == [token + 2]
    assert books.balance({"id": name}) == 103


def test_a_place_is_first_once_those_before_it_have_left_in_any_order() -> None:
    lines, told = Lines(), list[str]()
    first, second, third, other = places = [
        PlaceInLine(frozenset([entity]), caller, partial(told.append, caller))
        for entity, caller in (("a", "first"), ("a", "second"), ("a", "third"), ("b", "other"))
    ]
    for place in places:
        lines.join(place)
    assert [lines.is_first(place) for place in (first, second, third, other)] == [True, False, False, True]
    lines.leave(second)
    lines.leave(first)
    assert told == ["third"]
    assert lines.is_first(third)
    assert lines.is_alone(third)
    lines.leave(third)
    lines.leave(other)
    assert told == ["third"]
    assert lines._lines == {}


def test_a_signal_handler_may_take_a_place_at_any_opcode_at_which_its_thread_takes_or_leaves_one() -> None:
    def take_two_places(opcode: int) -> bool:
        lines, told = Lines(), list[str]()

        def place(caller: str) -> PlaceInLine:
            return PlaceInLine(frozenset(["a"]), caller, partial(told.append, caller))

        def handle_a_signal() -> None:
            handlers = place("this thread")
            lines.join(handlers)
            lines.leave(handlers)

        own, other = place("this thread"), place("another thread")
        with AtOpcode(opcode, handle_a_signal, ("units/_again/_passing.py",)) as within:
            lines.join(own)
            lines.join(other)
            lines.leave(own)
        assert lines.is_first(other)
        lines.leave(other)
        assert told in (["another thread"], ["another thread"] * 2)
        assert lines._lines == {}
        return within.passed >= opcode

    def at_each_opcode() -> None:
        assert next(at for at in count(1) if not take_two_places(at)) > 1

    pool = ThreadPoolExecutor(1)
    pool.submit(at_each_opcode).result(PATIENCE_S)
    pool.shutdown()


def test_units_refuse_an_argument_for_locks_that_is_no_lock_client(books: Books, lock_table: str) -> None:
    no_clients: list[Any] = [lock_table, books.plain_client]
    for no_client in no_clients:
        for kind in (Units, aio.Units):
            with pytest.raises(InvalidUnitRequest, match=r"locks is .* allowed: a LockClient"):
                kind(books.tables["units"], locks=no_client)


def test_the_entity_of_an_item_has_a_readable_key() -> None:
    assert entity_of("orders", {"customer": "ann", "at": Decimal("7.5")}) == "orders/ann/7.5"
    assert entity_of("blobs", {"id": Binary(b"\x01\xff")}) == r"blobs/Binary(b'\x01\xff')"


LONGEST = _ENTITY_BYTES - len("orders/")


@pytest.mark.parametrize(("size", "is_readable"), [(LONGEST, True), (LONGEST + 1, False), (2_048, False)])
def test_an_entity_that_is_longer_than_the_name_of_a_lock_may_be_is_hashed(size: int, is_readable: bool) -> None:
    entity = entity_of("orders", {"id": "x" * size})
    assert (entity == f"orders/{'x' * size}") == is_readable
    assert len(entity) <= _ENTITY_BYTES
    assert entity != entity_of("orders", {"id": "x" * (size - 1) + "y"})


def test_of_too_many_contended_items_those_whose_last_conflict_is_oldest_are_forgotten() -> None:
    contended = Contended()
    for number in range(_MOST_KNOWN):
        contended.add([str(number)])
    contended.add(["0", "another"])
    assert ["0" in contended, "1" in contended, "2" in contended] == [True, False, True]
