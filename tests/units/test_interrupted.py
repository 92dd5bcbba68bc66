"""A unit that a signal handler interrupts, at any of its opcodes, leaves all of it or nothing, and says which.

So does one whose log record a handler refuses. Each may raise anything: one of our errors, too, if it has used units.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from typing import Any

import pytest
from kit.opcodes import OF_A_UNIT, AtOpcode
from kit.places import meanwhile, outcome
from kit.units import MARK, THREADS_ONLY, Books, Interrupt, Key, Lost, Party, in_memory, loaded, new_version

from ticketlock import (
    ConditionFailed,
    InvalidUnitRequest,
    LockClient,
    LockLost,
    RequestNotApplied,
    TableRefused,
    TicketLockError,
    UnitConflict,
    UnitFinished,
    create_table,
)
from ticketlock.testing import ManualClock
from ticketlock.units import READ_LOCK, Unit, Units
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork
from ticketlock.wire._requests import ForkingSteps, Pause

SET = "SET balance = :balance"
ENGINE = pytest.mark.parametrize("engine", ["native", "marked"])
DECIDES = {"native": "TransactWriteItems", "marked": "UpdateItem"}
"""The operation that decides a unit; the first one of a marked unit only marks."""


@THREADS_ONLY
@ENGINE
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, TimeoutError, RuntimeError, None])
def test_every_exception_in_a_statement_or_a_commit_is_raised_and_ends_the_unit(
    books: Books, ann: Party, account: Key, engine: str, kind: type[BaseException] | None
) -> None:
    """Also the refusal of the unit itself, of which the signal handler makes use."""

    def handle_a_signal() -> None:
        if raised is not None:
            raise raised
        unit.get(ann.accounts, account)

    for operation in ("GetItem", DECIDES[engine]):
        raised = kind() if kind is not None else None
        ann.line.between[operation] = handle_a_signal
        with pytest.raises(kind or (InvalidUnitRequest, UnitFinished)) as caught, ann.begin(engine=engine) as unit:
            unit.update(ann.accounts, account, SET, {":balance": 2})
        if raised is not None:
            assert (caught.value, raised.__cause__, raised.__context__) == (raised, None, None)
        with pytest.raises(UnitFinished, match=r"rolled back:|unknown:"):
            unit.get(ann.accounts, account)
        assert MARK not in (books.raw("accounts", account) or {})
    assert books.balance(account) == 100


@THREADS_ONLY
@ENGINE
@pytest.mark.parametrize("error", [RequestNotApplied("of another"), TableRefused("of another"), UnitConflict([])])
def test_an_error_of_ours_that_a_signal_handler_raises_is_no_answer_to_a_commit_under_way(
    books: Books, ann: Party, account: Key, engine: str, error: TicketLockError
) -> None:
    """The handler has used the table, or another unit."""
    unit = ann.begin(engine=engine)
    unit.update(ann.accounts, account, SET, {":balance": 2})
    deciding = 1 if engine == "native" else 2
    ann.loses(Lost.INTERRUPTED_AFTER, deciding, operation=DECIDES[engine]).error = error
    with pytest.raises(type(error)) as caught:
        unit.commit()
    assert caught.value is error
    assert books.balance(account) == 2
    with pytest.raises(UnitFinished, match="unknown" if engine == "native" else "committed"):
        unit.rollback()


# The caller believes that the unit is still open: what is interrupted, where, and what the end of the block says.
@pytest.mark.parametrize(
    ("what", "where", "says"),
    [
        ("statement", Lost.INTERRUPTED_BEFORE, r"ended without an error, but its unit .* is rolled back"),
        ("statement", Lost.INTERRUPTED_AFTER, r"ended without an error, but its unit .* is rolled back"),
        ("commit", Lost.INTERRUPTED_AFTER, "its outcome unknown"),
    ],
    ids=str,
)
def test_a_block_in_which_an_interrupt_was_caught_does_not_end_as_if_its_unit_were_committed(
    books: Books, ann: Party, account: Key, other: Key, what: str, where: Lost, says: str
) -> None:
    def work() -> None:
        with ann.begin() as unit:
            unit.update(ann.accounts, account, SET, {":balance": 2})
            ann.loses(where, 1)
            with pytest.raises(Interrupt):
                unit.get(ann.accounts, other) if what == "statement" else unit.commit()

    with pytest.raises(UnitFinished, match=says):
        work()
    assert books.balance(account) == (100 if what == "statement" else 2)


def test_a_block_in_which_an_interrupt_was_caught_ends_silently_if_the_caller_has_rolled_back(
    books: Books, ann: Party, account: Key
) -> None:
    with ann.begin() as unit:
        ann.loses(Lost.INTERRUPTED_BEFORE, 1)
        with pytest.raises(Interrupt):
            unit.update(ann.accounts, account, SET, {":balance": 2})
        unit.rollback()
    assert books.balance(account) == 100


@THREADS_ONLY
def test_a_transactional_function_in_which_an_interrupt_was_caught_returns_no_result(
    books: Books, ann: Party, account: Key
) -> None:
    @ann.units.transactional()
    def work(unit: Unit) -> str:
        ann.loses(Lost.INTERRUPTED_BEFORE, 1)
        with pytest.raises(Interrupt):
            unit.update(ann.accounts, account, SET, {":balance": 2})
        return "done"

    with pytest.raises(UnitFinished):
        work()
    assert books.balance(account) == 100


@THREADS_ONLY
@ENGINE
def test_a_signal_handler_that_uses_the_unit_is_refused_and_the_unit_stays_open(
    books: Books, ann: Party, account: Key, engine: str
) -> None:
    refused: list[type[Exception]] = []

    def handle_a_signal() -> None:
        for use in (partial(unit.get, ann.accounts, account), unit.commit, unit.rollback):
            with pytest.raises((InvalidUnitRequest, UnitFinished)) as raised:
                use()
            refused.append(type(raised.value))

    with ann.begin(engine=engine) as unit:
        ann.line.between["GetItem"] = handle_a_signal
        unit.update(ann.accounts, account, SET, {":balance": 2})
        ann.line.between[DECIDES[engine]] = handle_a_signal
    assert refused == [InvalidUnitRequest] * 3 + [UnitFinished] * 3
    assert books.balance(account) == 2


# Interrupts at opcodes.

IN_GENERATORS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PATIENT = pytest.mark.timeout(1_200)
NAMES = ("a", "b", "c")
OLD, NEW, OTHERS = [1, 1, None], [2, 2, 2], [5, 1, None]
"""The balances before and after the work, and after the work of others in its place."""


@dataclass
class Scene:
    """Two existing accounts and one that does not exist, and two processes; all in memory."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.memory = in_memory(self.clock)
        for name in NAMES[:2]:
            item = {"id": {"S": name}, "balance": {"N": "1"}, "_tluVersion": {"S": new_version()}}
            self.memory.client.put_item(TableName="accounts", Item=item)
        self.units, self.others = self.units_with(None), self.units_with(None)
        self.accounts = self.units.table("accounts")

    def units_with(self, locks: LockClient | None) -> Units:
        """Another process, whose calls take turns with these locks."""
        return Units("units", client=self.memory.client, clocks=self.clock, sleep=self.clock.sleep, locks=locks)

    def raw(self) -> list[dict[str, Any]]:
        return sorted(map(loaded, self.memory.items("accounts")), key=lambda item: str(item["id"]))

    def balances(self) -> list[Any]:
        """As a reader finds them at this moment."""
        accounts = self.others.table("accounts")
        found = self.others.get_all([(accounts, {"id": name}) for name in NAMES])
        return [item and item["balance"] for item in found]

    def says(self, unit: Unit) -> str:
        try:
            unit.get(self.accounts, {"id": "a"})
        except UnitFinished as finished:
            return next(each for each in ("rolled back", "unknown", "committed") if f"{each}:" in str(finished))
        return "open"

    def records(self) -> list[str]:
        """The states of the records of units."""
        return [head["state"]["S"] for head in self.memory.items("units") if "state" in head]

    def is_renewed(self) -> bool:
        """Whether a heartbeat renews the read locks of the interrupted unit."""
        return bool(self.units._performer._heartbeat._leases)

    def next_commits(self) -> None:
        accounts = self.others.table("accounts")
        with self.others.begin() as unit:
            for name in NAMES:
                unit.put(accounts, {"id": name, "balance": 7})
        assert [item["balance"] for item in self.raw()] == [7, 7, 7]


# What a unit does.


def reads_all(scene: Scene, unit: Unit) -> None:
    unit.get_all([(scene.accounts, {"id": name}) for name in NAMES])


def states_all(scene: Scene, unit: Unit) -> None:
    reads_all(scene, unit)
    for name in NAMES:
        unit.update(scene.accounts, {"id": name}, SET, {":balance": 2})


def states_one(scene: Scene, unit: Unit) -> None:
    unit.update(scene.accounts, {"id": "a"}, SET, {":balance": 2})


def others_change_one(scene: Scene, _: Unit) -> None:
    with scene.others.begin() as other:
        other.update(scene.others.table("accounts"), {"id": "a"}, SET, {":balance": 5})


def commits(_: Scene, unit: Unit) -> None:
    unit.commit()


def rolls_back(_: Scene, unit: Unit) -> None:
    unit.rollback()


def leaves_its_block(_: Scene, unit: Unit) -> None:
    unit.__exit__(None, None, None)


Act = Callable[[Scene, Unit], None]


@dataclass(frozen=True)
class Work:
    """The work to interrupt: the terms of a unit, what is done before, and what is interrupted."""

    terms: dict[str, Any]
    before: tuple[Act, ...]
    act: Act


MARKED, LOCKING = {"engine": "marked"}, {"isolation": READ_LOCK}
LOCKING_WORKS = {
    # After its first statement a heartbeat renews its read locks.
    "locking": Work(LOCKING, (), reads_all),
    "locking more": Work(LOCKING, (states_one,), states_all),
    "locked and rolled back": Work(LOCKING, (states_one,), rolls_back),
}
WORKS = {
    "statements": Work({}, (), states_all),
    "native": Work({}, (states_all,), commits),
    "marked": Work(MARKED, (states_all,), commits),
    "marked at the end of a block": Work(MARKED, (states_all,), leaves_its_block),
    "marked in vain": Work(MARKED, (states_all, others_change_one), commits),
    **LOCKING_WORKS,
    "locked and committed": Work(LOCKING, (states_one, states_all), commits),
}
MANY = pytest.mark.verify("thousands of opcodes, each of a unit of its own; make test asks some of them")
FEW_OPCODES = 401
"""The step between the opcodes that `make test` asks."""


Makes = Callable[[], BaseException]
OF_A_HANDLER: dict[str, Makes] = {
    "an interrupt": Interrupt,
    # Of another unit, or of another lock. A unit whose own error the first one were would run again.
    "a conflict": partial(UnitConflict, [("accounts", {"id": "z"})]),
    "a loss": partial(LockLost, "a lease"),
    "a condition": partial(ConditionFailed, "accounts", {"id": "z"}, "of another", None, ()),
}
"""What signal handlers raise."""


def raising(error: BaseException) -> None:
    raise error


@dataclass
class Interrupted:
    """The interrupted work.

    Attributes:
        passed: how many opcodes were executed.
        where: the function.
        was_raised: whether the work has raised what the handler has raised.
    """

    passed: int
    where: str
    scene: Scene
    unit: Unit
    was_raised: bool

    @property
    def had_not_begun(self) -> bool:
        """Whether the method was only called: the unit is as before."""
        return self.where.startswith(("Unit.", "with_tables")) or self.where.endswith("<locals>.perform")

    @property
    def was_ignored(self) -> bool:
        """Whether Python has ignored it, as everything that is raised in a generator whose rest nobody asks for."""
        return self.where.endswith(("<genexpr>", "that_fit_together")) and not self.was_raised


def interrupted(work: Work, number: int, makes: Makes) -> Interrupted:
    """On its own thread: after a trace function raises, the interpreter believes that the thread is handling it."""
    scene = Scene()
    unit = scene.units.begin(**work.terms)
    for each in work.before:
        each(scene, unit)
    error, caught = makes(), None
    with AtOpcode(number, partial(raising, error), OF_A_UNIT) as at:
        try:
            work.act(scene, unit)
        except (Interrupt, TicketLockError) as raised:
            caught = raised
    if caught not in (None, error):
        assert isinstance(caught, UnitConflict)
        assert others_change_one in work.before
    return Interrupted(at.passed, at.where, scene, unit, caught is error)


FEWEST_OPCODES = 1_500
"""Each work has more; with fewer the tests would show less than they say."""


def each_interrupted(work: Work, step: int, makes: Makes = Interrupt) -> Iterator[Interrupted]:
    for number in count(1 + step // 2, step):
        case = outcome(meanwhile(partial(interrupted, work, number, makes)))
        if case.passed < number:
            break
        yield case
    assert case.passed > FEWEST_OPCODES


ADDS: dict[str, Callable[[Scene, Unit], object]] = {
    "put_all": lambda scene, unit: unit.put_all(scene.accounts, [{"id": name, "balance": 2} for name in NAMES]),
    "update_all": lambda scene, unit: unit.update_all(
        scene.accounts, [{"id": name} for name in NAMES], SET, {":balance": 2}
    ),
    "transact_write_items": lambda _, unit: unit.client.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": "accounts", "Item": {"id": {"S": name}, "balance": {"N": "2"}}}} for name in NAMES
        ]
    ),
    "get_all after blind updates": lambda scene, unit: unit.get_all([(scene.accounts, {"id": name}) for name in NAMES]),
}


def refused_by_a_handler(does: str, makes: Makes, number: int) -> tuple[AtOpcode, bool, list[Any]]:
    """Where it was refused, whether the call has raised the error, and the balances after the commit that follows."""
    scene = Scene()
    unit = scene.units.begin()
    if does.startswith("get_all"):
        for name in NAMES:
            unit.update(scene.accounts, {"id": name}, SET, {":balance": 2}, blind=True)

    error, caught = makes(), None
    with AtOpcode(number, partial(raising, error), OF_A_UNIT) as at:
        try:
            ADDS[does](scene, unit)
        except TicketLockError as raised:
            caught = raised
    assert caught in (None, error)
    with suppress(UnitFinished):
        unit.commit()
    return at, caught is not None, scene.balances()


@IN_GENERATORS
@PATIENT
@pytest.mark.parametrize("does", ADDS)
@pytest.mark.parametrize(
    ("step", "error"),
    [(61, "a condition"), *(pytest.param(7, each, marks=MANY) for each in ("a condition", "a loss"))],
    ids=["some opcodes", "more opcodes", "more opcodes, a loss"],
)
def test_a_call_that_raises_an_error_of_ours_that_a_signal_handler_has_raised_leaves_no_statement(
    does: str, step: int, error: str
) -> None:
    for number in count(1, step):
        at, was_raised, balances = outcome(meanwhile(partial(refused_by_a_handler, does, OF_A_HANDLER[error], number)))
        # A call that has ended may still be interrupted before its caller goes on.
        has_ended = at.where.startswith(("Unit.", "UnitClient."))
        # What was stated before is still in the unit if the call had not begun.
        is_open = has_ended or does.startswith("get_all")
        assert balances in ([OLD] if was_raised and not is_open else [OLD, NEW]), f"opcode {at.passed}, in {at.where}"
        if at.passed < number:
            break
    assert at.passed > 1_000


TRIES: dict[str, dict[str, Any]] = {
    "native": {},
    "named": {"name": "add"},
    "read locks": LOCKING,
}


def added_once(terms: dict[str, Any], number: int) -> tuple[int, int, Any]:
    """Add to an account in a call that may run again. How many opcodes were executed, how often it ran, the balance.

    Whoever repeats a name, after an error or an answer, adds nothing more, and is told what the first one was.
    """
    scene = Scene()
    ran, told = list[None](), list[Any]()

    def work(unit: Unit) -> int:
        ran.append(None)
        unit.update(scene.accounts, {"id": "a"}, "ADD balance :one", {":one": 1})
        return len(ran)

    adds = scene.units.transactional(**terms)(work)
    error, was_raised = OF_A_HANDLER["a conflict"](), False
    with AtOpcode(number, partial(raising, error), OF_A_UNIT) as at:
        try:
            told.append(adds())
        except UnitConflict as caught:
            was_raised = caught is error
    assert "pending" not in scene.records(), f"opcode {at.passed}, in {at.where}"
    assert not scene.is_renewed()
    balance = scene.balances()[0]
    assert was_raised or balance == 2
    runs = len(ran)
    if "name" in terms:
        told += [adds(), scene.others.outcome(**terms).result]
        assert (scene.balances()[0], len({*told})) == (2, 1), f"opcode {at.passed}, in {at.where}: {told}"
    return at.passed, runs, balance


@IN_GENERATORS
@PATIENT
@pytest.mark.parametrize("how", TRIES)
@pytest.mark.parametrize("step", [pytest.param(7, marks=MANY), 61], ids=["more opcodes", "some opcodes"])
def test_a_call_is_applied_once_wherever_a_signal_handler_raises_the_conflict_of_another_unit(
    how: str, step: int
) -> None:
    seen = set[tuple[int, Any]]()
    for number in count(1, step):
        passed, ran, balance = outcome(meanwhile(partial(added_once, TRIES[how], number)))
        assert balance in (1, 2), f"opcode {number}: {balance}"
        seen.add((ran, balance))
        if passed < number:
            break
    # It was raised before the call has run, in its statement, and after its decision.
    assert {(1, 2), (2, 2)} <= seen


@pytest.mark.parametrize("error", OF_A_HANDLER)
def test_a_call_never_waits_for_read_locks_of_its_own_try_whose_end_was_interrupted_at_its_entry(
    error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter runs signal handlers there, where no code of the function guards it."""
    scene, left, leave = Scene(), [OF_A_HANDLER[error]()], Unit.__exit__

    def interrupted_once(unit: Unit, *raised: Any) -> None:
        if left:
            raise left.pop()
        leave(unit, *raised)

    @scene.units.transactional(isolation=READ_LOCK)
    def adds(unit: Unit) -> None:
        unit.update(scene.accounts, {"id": "a"}, "ADD balance :one", {":one": 1})

    monkeypatch.setattr(Unit, "__exit__", interrupted_once)
    began_ms = scene.clock.read().local_ms
    with suppress(Interrupt, LockLost, ConditionFailed):
        adds()
    assert set(scene.records()) <= {"rolledBack", "committed"}
    assert not scene.is_renewed()
    assert scene.clock.read().local_ms - began_ms < 1_000


class Refuses(logging.Handler):
    """A handler of log records that raises an error at the first one."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    def emit(self, _: logging.LogRecord) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [UnitConflict([]), RequestNotApplied("of another"), ValueError("of another")])
def test_an_error_that_a_log_handler_raises_after_the_decision_is_not_that_of_the_unit(
    books: Books, ann: Party, account: Key, error: Exception
) -> None:
    """Its items cannot be finished, which is logged."""
    logger, handler = logging.getLogger("ticketlock"), Refuses(error)
    unit = ann.begin(engine="marked")
    unit.update(ann.accounts, account, SET, {":balance": 2})
    ann.loses(Lost.REQUEST, 3, inf, operation="UpdateItem")
    logger.addHandler(handler)
    try:
        with pytest.raises(type(error)) as caught:
            unit.commit()
    finally:
        logger.removeHandler(handler)
    assert (caught.value, handler.error) == (error, None)
    with pytest.raises(UnitFinished, match="is committed"):
        unit.rollback()
    ann.line.losses.clear()
    assert ann.units.get(ann.accounts, account) == {**account, "balance": 2}
    assert books.balance(account) == 100


@IN_GENERATORS
@PATIENT
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize(
    ("step", "error"),
    [(FEW_OPCODES, "an interrupt"), *(pytest.param(61, each, marks=MANY) for each in OF_A_HANDLER)],
    ids=["some opcodes", *(f"more opcodes, {each}" for each in OF_A_HANDLER)],
)
def test_an_exception_raised_anywhere_leaves_all_or_nothing_at_once_and_the_next_unit_commits(
    work: str, step: int, error: str
) -> None:
    check_each(WORKS[work], step, OF_A_HANDLER[error])


def check_each(work: Work, step: int, makes: Makes = Interrupt) -> None:
    old = OTHERS if others_change_one in work.before else OLD
    may_be: dict[str, list[list[Any]]] = {
        "rolled back": [old],
        "open": [old],
        "unknown": [old, NEW],
        "committed": [NEW],
    }
    for case in each_interrupted(work, step, makes):
        try:
            says = case.scene.says(case.unit)
            if says == "open":
                assert case.had_not_begun or case.was_ignored
                case.unit.rollback()
            assert case.scene.balances() in may_be[says]
            assert not any(MARK in item for item in case.scene.raw())
            assert "pending" not in case.scene.records()
            assert not case.scene.is_renewed()
            case.scene.next_commits()
        except BaseException as error:
            error.add_note(f"opcode {case.passed}, in {case.where}")
            raise


def never_given_up(_: UnitOfWork) -> ForkingSteps[None]:
    return
    yield Pause(0)


@IN_GENERATORS
@PATIENT
@pytest.mark.parametrize("work", LOCKING_WORKS)
def test_a_unit_with_read_locks_that_is_not_given_up_when_it_is_interrupted_is_caught(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnitOfWork, "end_after_interrupt", never_given_up)
    with pytest.raises(AssertionError):
        check_each(LOCKING_WORKS[work], FEW_OPCODES)


# The interpreter runs handlers at the first opcode of `__exit__`; its next ones only begin to guard it.
BEGINNING_OF_THE_END = range(3, 40)

ENDS = {
    "writes": Work({}, (states_one,), leaves_its_block),
    "has read locks": Work(LOCKING, (states_one,), leaves_its_block),
}


def left_by_ends(work: Work) -> Iterator[str]:
    """Interrupts ends of blocks at one opcode each; yields where one has left the unit open, renewed or pending."""
    for number in BEGINNING_OF_THE_END:
        case = outcome(meanwhile(partial(interrupted, work, number, Interrupt)))
        says, records = case.scene.says(case.unit), case.scene.records()
        if says != "rolled back" or case.scene.is_renewed() or "pending" in records:
            yield f"opcode {number}, in {case.where}: {says}, {records}"


@IN_GENERATORS
@PATIENT
@pytest.mark.parametrize("work", ENDS)
def test_an_exception_raised_at_the_beginning_of_the_end_of_a_block_ends_the_unit(work: str) -> None:
    assert list(left_by_ends(ENDS[work])) == []


@IN_GENERATORS
@PATIENT
@pytest.mark.parametrize("work", ENDS)
def test_an_end_of_a_block_that_does_not_see_that_its_unit_is_open_is_caught(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnitOfWork, "is_waiting_for_its_end", False)
    assert next(left_by_ends(ENDS[work]), None) is not None


def renewed_after_turns() -> Iterator[str]:
    """Interrupts calls that take their turn at every third opcode of ``Units`` and of ``LockClient``, but for those at
    the entry of a release; yields where one has left a lock that is renewed.
    """
    for number in count(2, 3):
        scene = Scene()
        create_table("locks", client=scene.memory.client)
        locks = LockClient("locks", client=scene.memory.client, clocks=scene.clock, sleep=scene.clock.sleep)
        case = outcome(meanwhile(partial(takes_its_turn, scene, locks, number)))
        is_renewed = any(lease._is_watched_on() for lease in locks._heartbeat._leases)
        locks.close()
        if is_renewed:
            yield f"opcode {number}, in {case.where}"
        if case.passed < number:
            break
    assert case.passed > 500, "too few opcodes"


@IN_GENERATORS
@PATIENT
def test_an_exception_raised_while_a_call_takes_its_turn_leaves_no_lock_renewed() -> None:
    assert list(renewed_after_turns()) == []


@IN_GENERATORS
@PATIENT
def test_a_call_that_does_not_give_back_the_locks_of_its_turn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockClient, "_give_back_since", lambda *_: None)
    assert next(renewed_after_turns(), None) is not None


def takes_its_turn(scene: Scene, locks: LockClient, number: int) -> AtOpcode:
    """A call whose first try meets a conflict."""
    units = scene.units_with(locks)
    accounts = units.table("accounts")
    tries: list[None] = []

    @units.transactional(tries=2)
    def work(unit: Unit) -> None:
        tries.append(None)
        unit.update(accounts, {"id": "a"}, SET, {":balance": 2})
        if len(tries) == 1:
            others_change_one(scene, unit)

    rooms = (
        "units/_units.py",
        "units/_unit_of_work/_units_table.py",
        "units/_again/_queueing.py",
        "client/_client.py",
    )
    with suppress(Interrupt), AtOpcode(number, partial(raising, Interrupt()), rooms) as at:
        work()
    return at
