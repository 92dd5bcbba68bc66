"""Units that are committed by marks, and whose items are finished behind their callers, or written in transactions."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from kit.engines import Engine, engine_named, first_on
from kit.opcodes import AtOpcode
from kit.units import Books, Key, some_account
from units.conftest import PATIENCE_S

from ticketlock import InvalidUnitRequest, aio
from ticketlock.units import Units
from ticketlock.units._behind import MOST_BEHIND, BehindThreads
from ticketlock.wire._requests import ForkingSteps

SET = "SET balance = :balance"
MOST_IN_A_TRANSACTION = 100


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
    set_by_marks(units, books, [key], 7)
    gate.client.meta.events.register("before-parameter-build.dynamodb.UpdateItem", _made_invalid)
    gate.opens()
    units.close()
    assert [(record.levelno, "a committed unit is not finished" in record.message) for record in caplog.records] == [
        (logging.ERROR, True)
    ]
    books.units().sweep()
    assert books.balance(key) == 7


def _made_invalid(params: dict[str, Any], **_: Any) -> None:
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


def test_a_signal_handler_may_hand_over_a_unit_at_any_opcode_at_which_another_one_is_handed_over() -> None:
    finished = list[str]()

    def steps(name: str) -> ForkingSteps[None]:
        yield from ()
        finished.append(name)

    def hand_over_both(opcode: int) -> bool:
        behind, taken = BehindThreads(list[object]), list[str]()

        def hand_over(name: str) -> None:
            if behind(steps(name)):
                taken.append(name)

        with AtOpcode(opcode, lambda: hand_over("the handler's"), ("units/_behind.py",)) as within:
            hand_over("the caller's")
        behind.wait()
        assert sorted(finished) == sorted(taken)
        assert "the caller's" in taken
        finished.clear()
        return within.passed >= opcode

    def at_each_opcode() -> None:
        assert next(at for at in count(1) if not hand_over_both(at)) > 1

    pool = ThreadPoolExecutor(1)
    pool.submit(at_each_opcode).result(PATIENCE_S)
    pool.shutdown()
