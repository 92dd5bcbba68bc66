"""A unit that a signal handler or a cancellation interrupts is over, and leaves all of it or nothing."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kit.units import MARK, THREADS_ONLY, Books, Interrupt, Key, Lost, Party, UnitsWorld, some_account

from ticketlock import InvalidUnitRequest, RequestNotApplied, TableRefused, TicketLockError, UnitConflict, UnitFinished
from ticketlock.units import Unit

LEASE_S, COPIES_S = 60, 600
SET = "SET balance = :balance"
OLD, NEW = [1, 1, None], [2, 2, 2]
ALLOWED: dict[str, list[list[Any]]] = {"rolled back": [OLD], "unknown": [OLD, NEW], "committed": [NEW]}

ENGINE = pytest.mark.parametrize("engine", ["native", "marked"])
WHERE = pytest.mark.parametrize(
    "where", [Lost.INTERRUPTED_BEFORE, Lost.INTERRUPTED_AFTER], ids=["before it is sent", "before its reply is read"]
)


class Interrupted:
    """A unit on two items and a new one, which was interrupted.

    Attributes:
        number: the request at which it was interrupted.
        reported: the outcome that the unit reports.
    """

    def __init__(self, books: Books, ann: Party, ben: Party, keys: list[Key], unit: Unit, number: int) -> None:
        self.number = number
        self._books, self._ann, self._ben, self._keys, self._unit = books, ann, ben, keys, unit
        # No lease delays those who ask.
        self._ann.line.losses.clear()
        self.reported = self._reported()

    def _reported(self) -> str:
        with pytest.raises(UnitFinished) as finished:
            self._unit.get(self._ann.accounts, self._keys[0])
        return next(each for each in ("rolled back", "unknown", "committed") if f"{each}:" in str(finished.value))

    def balances(self) -> list[Any]:
        """As a reader finds them: all of the unit or nothing, as the unit reports."""
        found = [item and item["balance"] for item in self._ben.units.get_all(self._all())]
        assert found in ALLOWED[self.reported], self.number
        return found

    def has_marks(self) -> bool:
        return any(MARK in (self._books.raw("accounts", key) or {}) for key in self._keys)

    def is_over(self) -> None:
        """It refuses every call, and sends nothing."""
        before = len(self._ann.line.sent)
        with pytest.raises(UnitFinished):
            self._unit.update(self._ann.accounts, self._keys[0], SET, {":balance": 3})
        if self.reported == "committed":
            self._unit.commit()
        else:
            with pytest.raises(UnitFinished):
                self._unit.commit()
        if self.reported == "rolled back":
            self._unit.rollback()
        else:
            with pytest.raises(UnitFinished):
                self._unit.rollback()
        assert len(self._ann.line.sent) == before

    def next_commits(self) -> None:
        """The next unit on these items is committed."""
        with self._ben.begin() as unit:
            for key in self._keys:
                unit.put(self._ben.accounts, {**key, "balance": 7})
        assert [self._books.balance(key) for key in self._keys] == [7, 7, 7]

    def _all(self) -> list[Any]:
        return [(self._ben.accounts, key) for key in self._keys]


def interrupted(world: UnitsWorld, engine: str, *losses: tuple[Lost, int, int]) -> Iterator[Interrupted]:
    """Units that are interrupted at each of their requests, one after the other.

    Args:
        losses: what happens to which requests, counted from the one that is interrupted.
    """
    for number in range(1, 1_000):
        books, ann, ben = world.books, world.party(), world.party()
        keys: list[Key] = [books.account(1), books.account(1), some_account()]
        for what, first, last in losses:
            ann.loses(what, number + first, number + last)
        unit = ann.begin(engine=engine)
        try:
            with unit:
                unit.get_all([(ann.accounts, key) for key in keys])
                for key in keys:
                    unit.update(ann.accounts, key, SET, {":balance": 2})
        except Interrupt:
            yield Interrupted(books, ann, ben, keys, unit, number)
        else:
            break
    assert number > {"native": 2, "marked": 9}[engine]


@ENGINE
@WHERE
class TestAnInterruptAtAnyRequest:
    def test_leaves_all_of_it_or_nothing_at_once_and_the_unit_over(
        self, units_world: UnitsWorld, engine: str, where: Lost
    ) -> None:
        ends = []
        for it in interrupted(units_world, engine, (where, 0, 0)):
            ends.append(it.balances())
            assert not it.has_marks(), it.number
            it.is_over()
            it.next_commits()
        assert OLD in ends
        assert NEW in ends or (engine, where) == ("native", Lost.INTERRUPTED_BEFORE)

    def test_after_which_the_table_is_out_of_reach_is_what_the_caller_gets_and_the_rest_is_left_to_the_lease(
        self, units_world: UnitsWorld, engine: str, where: Lost
    ) -> None:
        for it in interrupted(units_world, engine, (where, 0, 0), (Lost.NOT_SENT, 1, 1_000)):
            it.balances()
            it.is_over()
            units_world.books.clock.advance(LEASE_S + COPIES_S)
            it.balances()
            it.next_commits()

    def test_and_another_one_at_the_next_leave_all_of_it_or_nothing(
        self, units_world: UnitsWorld, engine: str, where: Lost
    ) -> None:
        for it in interrupted(units_world, engine, (where, 0, 1)):
            it.balances()
            it.is_over()
            units_world.books.clock.advance(LEASE_S + COPIES_S)
            it.next_commits()


@ENGINE
def test_what_was_raised_is_what_the_caller_gets(ann: Party, account: Key, engine: str) -> None:
    raised = []
    for operation in ("GetItem", "UpdateItem" if engine == "marked" else "TransactWriteItems"):
        ann.line.losses.clear()
        ann.loses(Lost.INTERRUPTED_BEFORE, 1, operation=operation)
        with pytest.raises(Interrupt) as caught, ann.begin(engine=engine) as unit:
            unit.update(ann.accounts, account, SET, {":balance": 2})
        raised.append(caught.value)
    assert [(error.__cause__, error.__context__) for error in raised] == [(None, None)] * 2


@THREADS_ONLY
@ENGINE
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, TimeoutError, RuntimeError])
def test_every_exception_in_a_statement_or_a_commit_is_raised_and_the_unit_is_over(
    books: Books, ann: Party, account: Key, engine: str, kind: type[BaseException]
) -> None:
    def handle_a_signal() -> None:
        raise raised

    for operation in ("GetItem", "UpdateItem" if engine == "marked" else "TransactWriteItems"):
        raised = kind()
        ann.line.between[operation] = handle_a_signal
        with pytest.raises(kind) as caught, ann.begin(engine=engine) as unit:
            unit.update(ann.accounts, account, SET, {":balance": 2})
        assert caught.value is raised
        with pytest.raises(UnitFinished):
            unit.get(ann.accounts, account)
    assert books.balance(account) == 100


def test_a_unit_whose_statement_was_interrupted_is_rolled_back(books: Books, ann: Party, account: Key) -> None:
    unit = ann.begin()
    ann.loses(Lost.INTERRUPTED_AFTER, 1)
    with pytest.raises(Interrupt):
        unit.update(ann.accounts, account, SET, {":balance": 2})
    with pytest.raises(UnitFinished, match="rolled back"):
        unit.commit()
    assert books.balance(account) == 100


def test_a_unit_whose_outcome_is_unknown_is_not_rolled_back(ann: Party, account: Key) -> None:
    unit = ann.begin()
    unit.update(ann.accounts, account, SET, {":balance": 2})
    ann.loses(Lost.INTERRUPTED_AFTER, 1)
    with pytest.raises(Interrupt):
        unit.commit()
    with pytest.raises(UnitFinished, match="unknown"):
        unit.rollback()


@THREADS_ONLY
@ENGINE
@pytest.mark.parametrize("error", [RequestNotApplied("of another"), TableRefused("of another"), UnitConflict([])])
def test_an_error_of_ours_that_a_signal_handler_raises_is_no_answer_to_a_commit_under_way(
    books: Books, ann: Party, account: Key, engine: str, error: TicketLockError
) -> None:
    """The handler has used the table, or another unit."""

    def handle_a_signal(**_: object) -> None:
        events.unregister(f"after-call.dynamodb.{operation}", handle_a_signal)
        raise error

    unit = ann.begin(engine=engine)
    unit.update(ann.accounts, account, SET, {":balance": 2})
    # The deciding request of a marked unit is its second one.
    operation = "TransactWriteItems" if engine == "native" else "UpdateItem"
    events = ann.client.meta.events

    def after_the_mark(**_: object) -> None:
        events.unregister("after-call.dynamodb.UpdateItem", after_the_mark)
        events.register("after-call.dynamodb.UpdateItem", handle_a_signal)

    events.register(f"after-call.dynamodb.{operation}", handle_a_signal if engine == "native" else after_the_mark)
    with pytest.raises(type(error)) as caught:
        unit.commit()
    assert caught.value is error
    assert books.balance(account) == 2
    with pytest.raises(UnitFinished, match="unknown" if engine == "native" else "committed"):
        unit.rollback()


class TestABlockInWhichAnInterruptWasCaught:
    """Its caller believes that the unit is still open."""

    @WHERE
    def test_of_a_statement_does_not_end_as_if_it_were_committed(
        self, books: Books, ann: Party, account: Key, other: Key, where: Lost
    ) -> None:
        def work() -> None:
            with ann.begin() as unit:
                unit.update(ann.accounts, account, SET, {":balance": 2})
                ann.loses(where, 1)
                with pytest.raises(Interrupt):
                    unit.get(ann.accounts, other)

        with pytest.raises(UnitFinished, match=r"ended without an error, but its unit .* is rolled back"):
            work()
        assert books.balance(account) == 100

    def test_of_a_commit_says_that_its_outcome_is_unknown(self, ann: Party, account: Key) -> None:
        def work() -> None:
            with ann.begin() as unit:
                unit.update(ann.accounts, account, SET, {":balance": 2})
                ann.loses(Lost.INTERRUPTED_AFTER, 1)
                with pytest.raises(Interrupt):
                    unit.commit()

        with pytest.raises(UnitFinished, match="its outcome unknown"):
            work()

    def test_ends_silently_if_the_caller_has_rolled_back(self, books: Books, ann: Party, account: Key) -> None:
        with ann.begin() as unit:
            ann.loses(Lost.INTERRUPTED_BEFORE, 1)
            with pytest.raises(Interrupt):
                unit.update(ann.accounts, account, SET, {":balance": 2})
            unit.rollback()
        assert books.balance(account) == 100

    @THREADS_ONLY
    def test_returns_no_result_of_the_function(self, books: Books, ann: Party, account: Key) -> None:
        @ann.units.transactional()
        def work(*, unit: Unit) -> str:
            ann.loses(Lost.INTERRUPTED_BEFORE, 1)
            with pytest.raises(Interrupt):
                unit.update(ann.accounts, account, SET, {":balance": 2})
            return "done"

        with pytest.raises(UnitFinished):
            work()
        assert books.balance(account) == 100


@THREADS_ONLY
@ENGINE
class TestASignalHandlerThatUsesTheUnit:
    def test_is_refused_and_the_unit_stays_open(self, books: Books, ann: Party, account: Key, engine: str) -> None:
        refused: list[type[Exception]] = []

        def handle_a_signal() -> None:
            for use in (partial(unit.get, ann.accounts, account), unit.commit, unit.rollback):
                with pytest.raises((InvalidUnitRequest, UnitFinished)) as raised:
                    use()
                refused.append(type(raised.value))

        with ann.begin(engine=engine) as unit:
            ann.line.between["GetItem"] = handle_a_signal
            unit.update(ann.accounts, account, SET, {":balance": 2})
            ann.line.between["UpdateItem" if engine == "marked" else "TransactWriteItems"] = handle_a_signal
        assert refused == [InvalidUnitRequest] * 3 + [UnitFinished] * 3
        assert books.balance(account) == 2

    def test_and_raises_the_refusal_ends_the_unit(self, books: Books, ann: Party, account: Key, engine: str) -> None:
        for operation in ("GetItem", "UpdateItem" if engine == "marked" else "TransactWriteItems"):
            ann.line.between[operation] = lambda: unit.get(ann.accounts, account)
            with pytest.raises((InvalidUnitRequest, UnitFinished)), ann.begin(engine=engine) as unit:
                unit.update(ann.accounts, account, SET, {":balance": 2})
            with pytest.raises(UnitFinished, match=r"rolled back:|unknown:"):
                unit.get(ann.accounts, account)
            assert MARK not in (books.raw("accounts", account) or {})
        assert books.balance(account) == 100
