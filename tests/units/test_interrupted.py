"""A unit that a signal handler or a cancellation interrupts is over, and leaves all of it or nothing."""

from functools import partial

import pytest
from kit.units import MARK, THREADS_ONLY, Books, Interrupt, Key, Lost, Party

from ticketlock import InvalidUnitRequest, RequestNotApplied, TableRefused, TicketLockError, UnitConflict, UnitFinished
from ticketlock.units import Unit

SET = "SET balance = :balance"

ENGINE = pytest.mark.parametrize("engine", ["native", "marked"])
WHERE = pytest.mark.parametrize(
    "where", [Lost.INTERRUPTED_BEFORE, Lost.INTERRUPTED_AFTER], ids=["before it is sent", "before its reply is read"]
)


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
        assert (caught.value, raised.__cause__, raised.__context__) == (raised, None, None)
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
