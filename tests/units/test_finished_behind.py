"""Units that are committed by marks, and whose items are finished behind their callers, or written in transactions."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest
from kit.engines import Engine, engine_named, first_on
from kit.opcodes import AtOpcode
from kit.units import MARK, Books, Interrupt, Key, in_memory, some_account
from units.conftest import PATIENCE_S

from ticketlock import ClientClosed, InvalidUnitRequest, aio
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import Units, UnitTable
from ticketlock.units._commit._behind import MOST_BEHIND, BehindThreads
from ticketlock.wire._requests import ForkingSteps

SET = "SET balance = :balance"
MOST_IN_A_TRANSACTION = 100
LARGER_THAN_ANY_STACK = 2**46

T = TypeVar("T")


@pytest.fixture(scope="module", params=first_on("memory", ["memory", "ministack"]))  # moto is for one thread
def units_engine(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[Engine]:
    with engine_named(request.param, url_of) as named:
        yield named


def set_by_marks(units: Units, books: Books, keys: Sequence[Key], balance: int) -> None:
    accounts = units.table(books.tables["accounts"])
    with units.begin(engine="marked") as unit:
        unit.get_all([(accounts, key) for key in keys])
        for key in keys:
            unit.update(accounts, key, SET, {":balance": balance})


class Gate:
    """A client whose new values wait for the test."""

    def __init__(self, books: Books) -> None:
        self.client = books.engine.client()
        self.sent: list[str] = []
        self._opened = threading.Event()
        self.client.meta.events.register("before-parameter-build.dynamodb", self._pass)

    def opens(self) -> None:
        self._opened.set()

    def _pass(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.sent.append(model.name)
        if "REMOVE #mark" in params.get("UpdateExpression", ""):
            assert self._opened.wait(PATIENCE_S)


@pytest.fixture
def gate(books: Books) -> Iterator[Gate]:
    gate = Gate(books)
    yield gate
    gate.opens()


def test_a_commit_returns_before_its_items_are_finished_and_close_waits_for_them(books: Books, gate: Gate) -> None:
    keys = [books.account(100) for _ in range(3)]
    with Units(books.tables["units"], client=gate.client, finish_behind=True) as units:
        set_by_marks(units, books, keys, 7)
        assert [books.balance(key) for key in keys] == [100] * 3
        reader = books.units()
        wanted = [(reader.table(books.tables["accounts"]), key) for key in keys]
        assert [item and item["balance"] for item in reader.get_all(wanted)] == [7] * 3
        gate.opens()
    assert [books.balance(key) for key in keys] == [7] * 3
    assert books.marks(keys) == 0


def test_another_unit_of_the_process_may_write_the_items_before_they_are_finished(books: Books, gate: Gate) -> None:
    key = books.account(100)
    units = Units(books.tables["units"], client=gate.client, finish_behind=True)
    set_by_marks(units, books, [key], 7)
    set_by_marks(books.units(), books, [key], 8)
    gate.opens()
    units.close()
    assert books.balance(key) == 8
    assert books.marks([key]) == 0


@pytest.mark.parametrize("count", [MOST_BEHIND - 1, MOST_BEHIND, MOST_BEHIND + 1])
def test_beyond_sixteen_units_behind_the_next_one_is_finished_before_its_commit_returns(
    books: Books, gate: Gate, count: int
) -> None:
    keys = [books.account(100) for _ in range(count)]
    units = Units(books.tables["units"], client=gate.client, finish_behind=True)
    for key in keys[:MOST_BEHIND]:
        set_by_marks(units, books, [key], 7)
    last = threading.Thread(target=set_by_marks, args=(units, books, keys[MOST_BEHIND:], 7))
    if count > MOST_BEHIND:
        last.start()
        last.join(0.2)
        assert last.is_alive()
    gate.opens()
    units.close()
    if count > MOST_BEHIND:
        last.join(PATIENCE_S)
    assert [books.balance(key) for key in keys] == [7] * count
    assert books.marks(keys) == 0


def test_an_item_that_dynamodb_refuses_behind_the_caller_is_logged(
    books: Books, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    key = books.account(100)
    units = Units(books.tables["units"], client=gate.client, finish_behind=True)
    gate.client.meta.events.register("before-parameter-build.dynamodb.UpdateItem", _made_invalid)
    set_by_marks(units, books, [key], 7)
    gate.opens()
    units.close()
    assert [(record.levelno, "a committed unit is not finished" in record.message) for record in caplog.records] == [
        (logging.ERROR, True)
    ]
    books.units().sweep()
    assert books.balance(key) == 7


def _made_invalid(params: dict[str, Any], **_: Any) -> None:
    if "REMOVE #mark" in params["UpdateExpression"]:
        params["UpdateExpression"] = "SET"


PROGRAM = """
import sys
from ticketlock.units import Units
from ticketlock.wire._sdk import make_client

url, units_table, table, *ids = sys.argv[1:]
units = Units(units_table, client=make_client(endpoint_url=url), finish_behind=True)
accounts = units.table(table)
for each in ids:
    with units.begin(engine="marked") as unit:
        unit.update(accounts, {"id": each}, "SET balance = :n", {":n": 7})
"""


@pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)
def test_a_program_that_ends_finishes_what_it_has_committed(books: Books) -> None:
    keys = [books.account(100) for _ in range(5)]
    arguments = [books.engine.endpoint_url, books.tables["units"], books.tables["accounts"]]
    program = [sys.executable, "-c", PROGRAM, *arguments, *(key["id"] for key in keys)]
    subprocess.run(program, check=True, timeout=PATIENCE_S)
    assert [books.balance(key) for key in keys] == [7] * 5
    assert books.marks(keys) == 0


@pytest.mark.parametrize("units_engine", ["ministack"], indirect=True)
def test_the_units_of_tasks_are_finished_behind_their_callers_too(books: Books) -> None:
    keys = [books.account(100) for _ in range(MOST_BEHIND + 2)]
    behind = []

    async def main() -> None:
        options = {"endpoint_url": books.engine.endpoint_url}
        async with aio.Units(books.tables["units"], client_options=options, finish_behind=True) as units:
            accounts = await units.table(books.tables["accounts"])
            for key in keys:
                async with units.begin(engine="marked") as unit:
                    await unit.update(accounts, key, SET, {":balance": 7})
                behind.append(len(units._finishing))

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert 0 < max(behind) <= MOST_BEHIND
    assert [books.balance(key) for key in keys] == [7] * len(keys)
    assert books.marks(keys) == 0


class SlowTasks:
    """A client of tasks whose new values wait for the next one, at most a while: so one is always under way."""

    def __init__(self, memory: MemoryDynamoDB) -> None:
        self._client = memory.async_client
        self._next = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def update_item(self, **parameters: Any) -> Any:
        if "REMOVE #mark" in parameters["UpdateExpression"]:
            self._next.set()
            self._next = another = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(another.wait(), 0.5)
        return await self._client.update_item(**parameters)


def in_tasks() -> tuple[MemoryDynamoDB, aio.Units]:
    memory = in_memory()
    return memory, aio.Units("units", client=SlowTasks(memory), finish_behind=True)


async def with_accounts(units: aio.Units, names: Iterable[str]) -> UnitTable:
    accounts = await units.table("accounts")
    async with units.begin() as unit:
        await unit.put_all(accounts, [{"id": name, "balance": 0} for name in names])
    return accounts


async def add_by_marks(units: aio.Units, accounts: UnitTable, name: str) -> None:
    async with units.begin(engine="marked") as unit:
        await unit.update(accounts, {"id": name}, "ADD balance :one", {":one": 1})


def marks_in(memory: MemoryDynamoDB) -> int:
    return sum(MARK in item for item in memory.items("accounts"))


def test_close_returns_although_other_tasks_go_on_to_commit_and_finishes_what_is_committed() -> None:
    memory, units = in_tasks()
    committed = dict.fromkeys("abcd", 0)

    async def goes_on(accounts: UnitTable, name: str) -> None:
        while True:
            await add_by_marks(units, accounts, name)
            committed[name] += 1

    async def main() -> None:
        await units.__aenter__()
        accounts = await with_accounts(units, committed)
        tasks = [asyncio.create_task(goes_on(accounts, name)) for name in committed]
        while not all(committed.values()):
            await asyncio.sleep(0.01)
        await units.close()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, ClientClosed)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert marks_in(memory) == 0
    assert {item["id"]["S"]: int(item["balance"]["N"]) for item in memory.items("accounts")} == committed


def test_an_end_of_the_loop_before_close_is_logged_for_a_unit_that_is_not_finished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory, units = in_tasks()

    async def main() -> None:
        await units.__aenter__()
        await add_by_marks(units, await with_accounts(units, "a"), "a")

    asyncio.run(main())
    told = [record for record in caplog.records if "its task was cancelled" in record.message]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert marks_in(memory) == 1


@pytest.mark.parametrize(
    ("count", "transactions"),
    [(1, 0), (2, 2), (MOST_IN_A_TRANSACTION, 2), (MOST_IN_A_TRANSACTION + 1, 2), (MOST_IN_A_TRANSACTION + 2, 4)],
)
def test_marks_and_new_values_are_written_in_transactions_of_a_hundred(
    books: Books, gate: Gate, count: int, transactions: int
) -> None:
    keys = [books.account(100) for _ in range(count)]
    gate.opens()
    units = Units(books.tables["units"], client=gate.client, mark_together=True)
    set_by_marks(units, books, keys, 7)
    assert gate.sent.count("TransactWriteItems") == transactions
    assert [books.balance(key) for key in keys] == [7] * count
    assert books.marks(keys) == 0


def test_new_values_for_which_no_caller_waits_are_written_one_by_one(books: Books, gate: Gate) -> None:
    keys = [books.account(100) for _ in range(MOST_IN_A_TRANSACTION)]
    gate.opens()
    with Units(books.tables["units"], client=gate.client, mark_together=True, finish_behind=True) as units:
        set_by_marks(units, books, keys, 7)
    assert gate.sent.count("TransactWriteItems") == 1
    assert books.marks(keys) == 0


def test_marks_in_transactions_wait_for_the_mark_of_an_older_unit(books: Books, gate: Gate) -> None:
    keys = [books.account(100) for _ in range(5)]
    gate.opens()
    older = Units(books.tables["units"], client=Gate(books).client, finish_behind=True)
    set_by_marks(older, books, keys[:1], 50)
    units = Units(books.tables["units"], client=gate.client, mark_together=True)
    accounts = units.table(books.tables["accounts"])
    with units.begin(engine="marked") as unit:
        for key in keys:
            unit.update(accounts, key, "SET balance = balance + :n", {":n": 1})
    assert [books.balance(key) for key in keys] == [51, *[101] * 4]
    assert books.marks(keys) == 0


def test_a_resumed_unit_is_marked_as_the_client_that_resumes_it_was_told(books: Books, gate: Gate) -> None:
    keys = [books.account(100) for _ in range(150)]
    gate.opens()
    units = Units(books.tables["units"], client=gate.client, mark_together=True)
    before = Units(books.tables["units"], client=books.client())
    unit = before.begin(engine="marked")
    unit.update_all(before.table(books.tables["accounts"]), keys, "SET balance = :n", {":n": 7})
    resumed = units.resume(unit.save())
    gate.sent.clear()
    resumed.commit()
    # Two for the marks, the decision, and two for the new values; beside them those of its record.
    assert gate.sent.count("TransactWriteItems") == 5
    assert len(gate.sent) < 20
    assert [books.balance(key) for key in keys] == [7] * len(keys)


@pytest.mark.parametrize("field", ["mark_together", "finish_behind"])
def test_the_choices_are_true_or_false(books: Books, field: str) -> None:
    wrong: Any = {field: "yes"}
    for kind in (Units, aio.Units):
        with pytest.raises(InvalidUnitRequest, match=field):
            kind(books.tables["units"], **wrong)


@pytest.mark.parametrize("together", [False, True])
def test_an_insert_and_a_delete_are_finished_behind_too(books: Books, *, together: bool) -> None:
    there, new = books.account(100), some_account()
    with Units(
        books.tables["units"], client=books.engine.client(), finish_behind=True, mark_together=together
    ) as units:
        accounts = units.table(books.tables["accounts"])
        with units.begin(engine="marked") as unit:
            unit.delete(accounts, there)
            unit.put(accounts, {**new, "balance": 5})
    assert [books.item("accounts", key) for key in (there, new)] == [None, {**new, "balance": 5}]
    assert books.marks([there, new]) == 0


IN_MEMORY = pytest.mark.parametrize("units_engine", ["memory"], indirect=True)


class Finished:
    """Units that are handed over, by their names, and what becomes of them."""

    def __init__(self, perform: Callable[[ForkingSteps[None]], object] = list) -> None:
        self.behind = BehindThreads(perform)
        self.handed_over, self.finished = list[str](), list[str]()

    def hand_over(self, name: str, do: Callable[[], object] = lambda: None) -> bool:
        """Hand over a unit; ``do`` is done when it is finished. Whether it was taken."""
        is_taken = self.behind(self._steps(name, do))
        if is_taken:
            self.handed_over.append(name)
        return is_taken

    def _steps(self, name: str, do: Callable[[], object]) -> ForkingSteps[None]:
        yield from ()
        do()
        self.finished.append(name)


def in_a_thread(work: Callable[[], T]) -> T:
    """Work that must not hang, in a thread that can be traced."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work).result(PATIENCE_S)
    finally:
        pool.shutdown(wait=False)


def hands_over(made: Finished) -> None:
    made.hand_over("the caller's")


def closes(made: Finished) -> None:
    made.hand_over("the caller's")
    made.behind.wait()


def closes_after_a_thread_that_died(made: Finished) -> None:
    with dying_threads():
        made.hand_over("the caller's")
    made.behind.wait()


@contextmanager
def dying_threads() -> Iterator[None]:
    """Each thread that begins here is killed before it does anything."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "run", lambda _: None)
        yield


DOES = pytest.mark.parametrize("does", [hands_over, closes, closes_after_a_thread_that_died])


def at_each_opcode(does: Callable[[Finished], None], do: Callable[[Finished], object], *, left: int) -> None:
    """Do something at each opcode of a call; then units must be finished, once, and there must be room for others.

    Args:
        left: how many may be left to the next sweep.
    """

    def is_beyond(opcode: int) -> bool:
        made = Finished()
        with suppress(Interrupt), AtOpcode(opcode, lambda: do(made), ("units/_commit/_behind.py",)) as within:
            does(made)
        made.behind.wait()
        assert len(set(made.handed_over) - set(made.finished)) <= left
        assert len(made.finished) == len(set(made.finished))
        with dying_threads():
            assert [made.hand_over(str(number)) for number in range(MOST_BEHIND + 1)] == [True] * MOST_BEHIND + [False]
        made.behind.wait()
        return within.passed < opcode

    assert next(at for at in count(1) if in_a_thread(partial(is_beyond, at))) > 1


@DOES
@pytest.mark.parametrize("closes", [False, True], ids=["", "and close"])
def test_a_signal_handler_may_hand_over_a_unit_and_close_at_any_opcode(
    does: Callable[[Finished], None], *, closes: bool
) -> None:
    def handle(made: Finished) -> None:
        made.hand_over("the handler's")
        if closes:
            made.behind.wait()

    at_each_opcode(does, handle, left=0)


@DOES
def test_a_signal_handler_may_raise_at_any_opcode_and_interrupts_the_finishing_of_one_unit_at_most(
    does: Callable[[Finished], None],
) -> None:
    def handle(_: Finished) -> None:
        raise Interrupt

    at_each_opcode(does, handle, left=1)


class Stop(BaseException):
    """What ends a thread."""


@pytest.mark.parametrize("error", [SystemExit, Stop, ValueError, MemoryError])
def test_units_are_finished_after_one_whose_finishing_was_stopped(error: type[BaseException]) -> None:
    made, gate = Finished(), threading.Event()

    def stop() -> None:
        gate.wait(PATIENCE_S)
        raise error

    made.hand_over("stopped", stop)
    made.hand_over("after it")
    gate.set()
    in_a_thread(made.behind.wait)
    made.hand_over("later")
    in_a_thread(made.behind.wait)
    assert made.finished == ["after it", "later"]


def test_close_finishes_what_a_thread_has_left_that_has_died() -> None:
    made = Finished()
    with dying_threads():
        made.hand_over("left")
    in_a_thread(made.behind.wait)
    assert made.finished == ["left"]


def test_close_returns_although_others_go_on_to_commit() -> None:
    made, has_closed = Finished(), threading.Event()

    def another() -> None:
        # There is always a unit under way.
        if not has_closed.is_set():
            made.hand_over(f"another after {len(made.finished)}", another)

    made.hand_over("before", another)
    try:
        in_a_thread(made.behind.wait)
        assert "before" in made.finished
    finally:
        has_closed.set()
    in_a_thread(made.behind.wait)


def test_what_finishes_a_unit_may_close_and_does_not_wait_for_itself() -> None:
    """As a handler of log records may."""
    made = Finished()
    made.hand_over("the first", made.behind.wait)
    made.hand_over("the second")
    in_a_thread(made.behind.wait)
    assert made.finished == ["the first", "the second"]


@pytest.fixture
def no_threads() -> Iterator[None]:
    """From now on no thread can be started, as beyond a container's limit: no stack is that large."""
    before = threading.stack_size(LARGER_THAN_ANY_STACK)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        threading.Thread(target=int).start()
    yield
    threading.stack_size(before)


@IN_MEMORY
@pytest.mark.usefixtures("no_threads")
@pytest.mark.parametrize("behind", [True, False], ids=["behind", "in front"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_without_threads_a_unit_is_committed_and_finished_by_its_caller(
    books: Books, *, behind: bool, together: bool
) -> None:
    keys = [books.account(100) for _ in range(5)]
    units = Units(books.tables["units"], client=books.engine.client(), finish_behind=behind, mark_together=together)
    set_by_marks(units, books, keys, 7)
    assert [books.balance(key) for key in keys] == [7] * 5
    assert books.marks(keys) == 0
    units.close()


@IN_MEMORY
def test_without_threads_after_the_decision_a_unit_is_finished_by_its_caller(books: Books) -> None:
    keys = [books.account(100) for _ in range(5)]
    client, before = books.engine.client(), threading.stack_size()

    def no_thread_starts(params: dict[str, Any], **_: Any) -> None:
        if ":committed" in params.get("ExpressionAttributeValues", {}):
            threading.stack_size(LARGER_THAN_ANY_STACK)

    client.meta.events.register("before-parameter-build.dynamodb.UpdateItem", no_thread_starts)
    try:
        set_by_marks(Units(books.tables["units"], client=client), books, keys, 7)
        assert threading.stack_size() == LARGER_THAN_ANY_STACK
    finally:
        threading.stack_size(before)
    assert [books.balance(key) for key in keys] == [7] * 5
    assert books.marks(keys) == 0


@IN_MEMORY
@pytest.mark.parametrize("message", ["can't start new thread", "can't create new thread at interpreter shutdown"])
def test_a_thread_that_a_tool_does_not_start_is_as_one_that_python_does_not_start(
    books: Books, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    def refuses(_: threading.Thread) -> None:
        raise RuntimeError(message)

    key = books.account(100)
    monkeypatch.setattr(threading.Thread, "start", refuses)
    set_by_marks(Units(books.tables["units"], client=books.engine.client(), finish_behind=True), books, [key], 7)
    assert (books.balance(key), books.marks([key])) == (7, 0)


@IN_MEMORY
def test_a_forked_child_waits_for_no_unit_of_its_parent(books: Books, gate: Gate) -> None:
    key = books.account(100)
    units = Units(books.tables["units"], client=gate.client, finish_behind=True)
    set_by_marks(units, books, [key], 7)
    child = os.fork()
    if child == 0:
        try:
            units.close()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.opens()
    units.close()
    assert books.balance(key) == 7


AT_EXIT = """
import atexit, sys, threading
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import Units, create_units_table

memory = MemoryDynamoDB(lock_table=None)
create_units_table("units", client=memory.client)
memory.create_table(
    TableName="accounts",
    BillingMode="PAY_PER_REQUEST",
    AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
)
units = Units("units", client=memory.client, finish_behind=True)
accounts = units.table("accounts")

def show():
    print(sum("_tluVersion" in item for item in memory.items("accounts")), flush=True)

def commit():
    for number in range(20):
        with units.begin(engine="marked") as unit:
            unit.put_all(accounts, [{"id": f"{number}-{each}"} for each in range(5)])

def commit_late():
    # The main thread has ended, and waits for this one.
    threading.main_thread().join()
    commit()

# The last one that is registered is called first.
atexit.register(show)
{then}
"""


@pytest.mark.parametrize(
    "then",
    ["atexit.register(commit)", "threading.Thread(target=commit_late).start()", "commit()"],
    ids=["at exit", "while the program ends", "before"],
)
def test_what_is_committed_while_a_program_ends_is_finished(then: str) -> None:
    program = [sys.executable, "-c", AT_EXIT.replace("{then}", then)]
    ended = subprocess.run(program, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("100\n", "")
